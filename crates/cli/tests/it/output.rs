//! `output`: what a stack last applied.

use insta::assert_snapshot;
use testkit::{TestTerrane, engines};

use crate::project::one_stack;
use crate::story::{Story, takes};

fn applied() -> TestTerrane {
    let test = one_stack(
        "",
        r#"output "text" { value = "plain" }
output "number" { value = 3 }
output "lines" { value = "one\ntwo" }
output "list" { value = ["a", "b"] }
output "object" { value = { name = "x", sizes = [1, 2] } }
output "password" {
  value     = "open-sesame"
  sensitive = true
}
"#,
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test
}

#[test]
fn all_outputs_are_shown_and_secrets_are_masked() {
    let test = applied();
    assert_snapshot!(test.cli(&["output", "app"]).expect(0), @r#"
    lines    = "one\ntwo"
    list     = ["a", "b"]
    number   = 3
    object   = { name = "x", sizes = [1, 2] }
    password = (sensitive)
    text     = "plain"
    "#);
    assert_snapshot!(test.cli(&["output", "app", "--json"]).expect(0), @r#"
    {
      "lines": {
        "value": "one\ntwo",
        "sensitive": false
      },
      "list": {
        "value": [
          "a",
          "b"
        ],
        "sensitive": false
      },
      "number": {
        "value": 3,
        "sensitive": false
      },
      "object": {
        "value": {
          "name": "x",
          "sizes": [
            1,
            2
          ]
        },
        "sensitive": false
      },
      "password": {
        "value": null,
        "sensitive": true
      },
      "text": {
        "value": "plain",
        "sensitive": false
      }
    }
    "#);
}

#[test]
fn one_output_is_shown_alone() {
    let test = applied();
    let raw = |name: &str| test.cli(&["output", "app", name, "--raw"]).expect(0).stdout;
    assert_eq!(raw("text"), "plain");
    assert_eq!(raw("number"), "3");
    assert_eq!(raw("lines"), "one\ntwo");
    assert_eq!(raw("password"), "open-sesame");
    assert_snapshot!(test.cli(&["output", "app", "object"]).expect(0), @r#"{ name = "x", sizes = [1, 2] }"#);
    assert_snapshot!(test.cli(&["output", "app", "object", "--json"]).expect(0), @r#"
    {
      "name": "x",
      "sizes": [
        1,
        2
      ]
    }
    "#);
}

#[test]
fn what_is_not_there_is_said() {
    let test = applied();
    assert_snapshot!(test.cli(&["output", "app", "txt"]).expect(1), @"
    ── stderr
    error: stack `app` has no output `txt`
    hint: it has `lines`, `list`, `number`, `object`, `password`, `text`
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["output", "ap"]).expect(64), @"
    ── stderr
    error: there is no stack `ap`
    hint: did you mean `app`?
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["output", "app", "list", "--raw"]).expect(64), @"
    ── stderr
    error: output `list` is not a string, a number or a bool
    hint: use `--json` instead of `--raw`
    [exit 64]
    ");
    let fresh = one_stack("", "output \"a\" { value = 1 }\n");
    assert_snapshot!(fresh.cli(&["output", "app"]).expect(1), @"
    ── stderr
    error: stack `app` was not applied yet
    hint: `terrane apply app`
    [exit 1]
    ");
}

#[test]
fn an_output_that_is_null_reaches_a_dependent() {
    let top = "variable \"from\" {\n  type    = string\n  default = \"nobody\"\n}\n\
               output \"got\" { value = var.from == null ? \"null\" : var.from }\n";
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .stack(
                "base",
                "",
                "resource \"terraform_data\" \"it\" {}\noutput \"name\" { value = null }\noutput \"id\" { value = 1 }\n",
            )
            .stack("top", &takes("base"), top);
        let plan = story.cli(&["plan"]).expect(0);
        assert!(
            plan.stdout.contains("`name` is known after `base`"),
            "{plan}"
        );
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let got = story.cli(&["output", "top", "got", "--raw"]).expect(0);
        assert_eq!(got.stdout, "null");
        // The upstream is not part of it: what it has is enough, also after its state was touched.
        let _ = story.cli(&["apply", "top", "--auto-approve"]).expect(0);
        let touch = "exec base --reason test -- taint terraform_data.it";
        let _ = story.cli(&touch.split(' ').collect::<Vec<_>>()).expect(0);
        let _ = story.cli(&["plan", "top", "--detailed-exitcode"]).expect(0);
    }
}

#[test]
fn a_long_number_reaches_a_dependent_digit_for_digit() {
    const LONG: &str = "123456789012345678901234567890";
    let top = "variable \"n\" {\n  type = any\n}\noutput \"next\" { value = var.n.deep[0] + 1 }\n";
    for (engine, _) in engines::all() {
        let base = format!(
            "output \"n\" {{ value = {{ deep = [{LONG}] }} }}\noutput \"flat\" {{ value = {LONG} }}\n"
        );
        let story = Story::new(engine).stack("base", "", &base).stack(
            "top",
            "inputs = { n = stack.base.output.n }",
            top,
        );
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let shown = |args: &[&str]| story.cli(args).expect(0).stdout;
        assert_eq!(shown(&["output", "base", "flat", "--raw"]), LONG);
        assert_eq!(
            shown(&["output", "top", "next", "--raw"]),
            "123456789012345678901234567891"
        );
        let json = shown(&["output", "base", "n", "--json"]);
        assert_eq!(json, format!("{{\"deep\":[{LONG}]}}\n"));
    }
}

/// Half a destroy takes the outputs first: what is not there is not null.
#[test]
fn an_output_that_half_a_destroy_took_does_not_become_null() {
    let base = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    when    = destroy\n    command = \"exit 1\"\n  }\n}\n\
                output \"name\" { value = terraform_data.it.id }\n";
    let app = "variable \"from\" { default = \"none\" }\n\
               output \"got\" { value = var.from == null ? \"null\" : \"it\" }\n";
    let story = Story::new("tofu").stack("base", "", base).stack(
        "app",
        "inputs = { from = stack.base.output.name }",
        app,
    );
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let _ = story.cli(&["destroy", "base", "--auto-approve"]).expect(1);
    assert_snapshot!(story.cli(&["apply", "app", "--auto-approve"]).expect(1), @"
    ── stderr
    error: stack `app` needs output `name` of `base`, which does not exist yet
    hint: `terrane apply +app` applies its dependencies first
    [exit 1]
    ");
}
