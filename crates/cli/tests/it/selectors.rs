//! Which stacks words on the command line mean.

use insta::assert_snapshot;

use crate::project::{names, one_stack, selected, terrane};
use crate::story::{Story, noted};

#[track_caller]
fn check(selectors: &[&str], expected: &str) {
    let test = terrane();
    test.copy_example("quickstart");
    assert_eq!(selected(&test, selectors), expected, "{selectors:?}");
}

#[test]
fn names_and_globs() {
    check(&["network"], "network");
    check(&["network", "dns"], "dns network");
    check(&["web-*"], "web-production web-staging");
}

#[test]
fn kinds() {
    check(&["layer:foundation"], "dns network");
    check(&["label:stateful"], "cluster database");
    check(
        &["target:local"],
        "cluster database dns monitoring network web-production web-staging",
    );
}

#[test]
fn up_and_down() {
    check(&["+database"], "database network");
    check(
        &["cluster+"],
        "cluster monitoring web-production web-staging",
    );
    check(
        &["+cluster+"],
        "cluster monitoring network web-production web-staging",
    );
}

#[test]
fn no_and_both() {
    check(&["layer:platform", "!cluster"], "database monitoring");
    check(&["layer:platform&label:stateful"], "cluster database");
    check(&["layer:platform & !label:stateful"], "monitoring");
    check(&["!web-*", "!layer:platform"], "dns network");
}

#[test]
fn an_unknown_name_is_wrong_usage() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli(&["graph", "netwrok"]).expect(64), @"
    ── stderr
    error: there is no stack `netwrok`
    hint: did you mean `network`?
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["plan", "layer:platfrm"]).expect(64), @"
    ── stderr
    error: there is no layer `platfrm`
    hint: did you mean `platform`?
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["plan", "zone:a"]).expect(64), @"
    ── stderr
    error: `zone:` is not a kind of selector
    hint: there are `target:`, `layer:`, `label:` and `changed:`
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["plan", "api-*"]).expect(64), @"
    ── stderr
    error: no stack matches `api-*`
    hint: `terrane graph` lists the stacks
    [exit 64]
    ");
}

#[test]
fn no_words_in_a_stacks_directory_mean_that_stack() {
    let test = terrane();
    test.copy_example("quickstart");
    let said = test.cli_in("infra/network", &["plan", "--json"]).expect(0);
    let planned: Vec<String> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "plan")
        .map(|event| event["stack"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(planned, ["network"]);
}

#[test]
fn no_words_where_no_stack_lives_are_refused() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli_in("templates", &["plan"]).expect(64), @"
    ── stderr
    error: there is no stack in `templates`
    hint: name the stacks, or run the command in the project's root for all of them
    [exit 64]
    ");
}

#[test]
fn the_same_words_select_for_every_command() {
    let test = terrane();
    test.copy_example("quickstart");
    let drawn = names(
        &test
            .cli(&["graph", "--json", "layer:foundation"])
            .expect(0)
            .stdout,
    );
    let said = test.cli(&["plan", "layer:foundation"]).expect(0);
    for name in drawn.split(' ') {
        assert!(said.stdout.contains(name), "{said}");
    }
    assert!(!said.stdout.contains("cluster"), "{said}");
}

#[test]
fn a_directory_is_not_a_name_but_tells_it() {
    let test = one_stack("", "");
    test.write(
        "terrane.hcl",
        &test
            .read("terrane.hcl")
            .replace("stack \"app\"", "stack \"web\""),
    );
    assert_snapshot!(test.cli(&["plan", "app/"]).expect(64), @"
    ── stderr
    error: `app/` is a path, not the name of a stack
    hint: the stack there is `web`
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["plan", "app/main.tf"]).expect(64), @"
    ── stderr
    error: `app/main.tf` is a path, not the name of a stack
    hint: the stack there is `web`
    [exit 64]
    ");
    // As seen from where one stands.
    let said = test.cli_in("app", &["plan", "./main.tf"]).expect(64);
    assert!(said.stderr.contains("the stack there is `web`"), "{said}");
    let said = test.cli(&["plan", "nowhere/else"]).expect(64);
    assert!(
        said.stderr.contains("there is no stack `nowhere/else`"),
        "{said}"
    );
    let quickstart = terrane();
    quickstart.copy_example("quickstart");
    assert_snapshot!(quickstart.cli(&["plan", "infra"]).expect(64), @"
    ── stderr
    error: `infra` is a path, not the name of a stack
    hint: the stacks there are `cluster`, `database`, `dns`, `monitoring`, `network` and 2 more
    [exit 64]
    ");
}

#[test]
fn what_differs_from_what_was_applied() {
    let story = Story::new("tofu")
        .stack("one", "", &noted("one"))
        .stack("two", "", &noted("two"));
    let _ = story.cli(&["apply", "one", "--auto-approve"]).expect(0);
    let said = story.cli(&["plan", "changed:applied"]).expect(0);
    assert!(
        !said.stdout.contains("one") && said.stdout.contains("two"),
        "{said}"
    );
    let _ = story
        .cli(&["apply", "changed:applied", "--auto-approve"])
        .expect(0);
    assert_eq!(story.made(), ["one", "two"]);
    let said = story
        .cli(&["apply", "changed:applied", "--auto-approve"])
        .expect(0);
    assert!(said.stderr.contains("Nothing is selected"), "{said}");
    story.module("one", &(noted("one") + "output \"o\" { value = 1 }\n"));
    let said = story.cli(&["plan", "changed:applied"]).expect(0);
    assert!(
        said.stdout.contains("one") && !said.stdout.contains("two"),
        "{said}"
    );
}
