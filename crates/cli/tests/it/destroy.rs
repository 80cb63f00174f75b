//! Destroy goes backwards, and a protected stack wants its name typed.

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, essence, gated, link, takes};

fn story(engine: &str) -> Story {
    // Noted when it goes away as well.
    let module = |name: &str| {
        link(name).replace(
            "  provisioner",
            &format!(
                "  provisioner \"local-exec\" {{\n    when    = destroy\n    command = \"echo no {name} >> ROOT/made\"\n  }}\n  provisioner"
            ),
        )
    };
    Story::new(engine)
        .stack("base", "", &module("base"))
        .stack("middle", &takes("base"), &module("middle"))
        .stack("top", &takes("middle"), &module("top"))
}

#[test]
fn dependents_go_first() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let said = story.cli(&["destroy", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @"
            change set c2: destroy on `local`
            ✓ base     destroyed 1 resource
            ✓ middle   destroyed 1 resource
            ✓ top      destroyed 1 resource
            Done: 3 stacks destroyed in 0 s.
            [exit 0]
            ");
        }
        let made = story.made();
        assert_eq!(made[3..], ["no top", "no middle", "no base"]);
        let again = story.cli(&["destroy", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&again), @"
            change set c3: destroy on `local`
              base     no changes
              middle   no changes
              top      no changes
            Done: 3 stacks unchanged in 0 s.
            [exit 0]
            ");
        }
    }
}

#[test]
fn what_still_has_dependents_can_go_alone_and_come_back() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = story
        .cli(&["destroy", "middle+", "--auto-approve"])
        .expect(0);
    assert_eq!(story.made()[3..], ["no top", "no middle"]);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made()[5..], ["middle", "top"]);
}

/// `apply = "auto"` speaks of an apply.
#[test]
fn nothing_is_destroyed_without_a_yes() {
    let story = Story::new("tofu").stack("base", "apply = \"auto\"", &link("base"));
    let _ = story.cli(&["apply"]).expect(0);
    assert_snapshot!(essence(&story.cli(&["destroy"]).expect(3)), @r#"
    change set c2: destroy on `local`

    error: change set c2 waits: no terminal to confirm it
    hint: `terrane run confirm c2` destroys it, `terrane run discard c2 --reason "…"` drops it
    hint: the same command with `--auto-approve` destroys without confirmation
    [exit 3]
    "#);
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
}

/// What somebody else destroyed meanwhile took the values with it that the old plan needs.
#[test]
fn a_destroy_that_somebody_else_did_is_refused_as_moved() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = story.cli(&["destroy"]).expect(3);
    let _ = story.cli(&["destroy", "--auto-approve"]).expect(0);
    let said = story.cli(&["run", "confirm", "c2"]).expect(4);
    assert!(
        said.stderr.contains("the state moved after it was made"),
        "{said}"
    );
    assert!(
        said.stderr.contains("the same `terrane destroy` again"),
        "{said}"
    );
}

#[test]
fn a_protected_stack_wants_its_name() {
    let story = Story::new("tofu").stack("precious", "protected = true", &link("precious"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let refused = story.cli(&["destroy", "--auto-approve"]).expect(4);
    assert_snapshot!(refused, @"
    ── stderr
    error: stack `precious` is protected: its name must be typed, and there is no terminal
    hint: give it with `--confirm precious`, or exclude the stack with `!precious`
    [exit 4]
    ");
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);

    let mut terminal = story.terminal(&["destroy", "--auto-approve"]);
    terminal.wait_for("Type its name");
    terminal.type_line("precius");
    assert_snapshot!(terminal.wait(), @"
    Stack `precious` is protected. Type its name to destroy it: precius
    error: stack `precious` is protected: its name was not typed
    hint: give it with `--confirm precious`, or exclude the stack with `!precious`
    [exit 4]
    ");

    let mut terminal = story.terminal(&["destroy", "--auto-approve"]);
    terminal.wait_for("Type its name");
    terminal.type_line("precious");
    let _ = terminal.wait().expect(0);
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
}

#[test]
fn a_protected_stack_goes_by_its_name_in_a_script_and_its_history_stays() {
    let story = Story::new("tofu").stack("precious", "protected = true", &link("precious"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let destroy = ["destroy", "--auto-approve", "--confirm"];
    let _ = story.cli(&[&destroy[..], &["other"]].concat()).expect(4);
    let _ = story.cli(&[&destroy[..], &["precious"]].concat()).expect(0);
    let versions = story
        .cli(&["state", "versions", "precious", "--json"])
        .expect(0);
    assert_eq!(
        versions.stdout.matches("\"serial\"").count(),
        2,
        "{}",
        versions.stdout
    );
    let back = [
        "state",
        "rollback",
        "precious",
        "--to",
        "1",
        "--reason",
        "a mistake",
        "--auto-approve",
    ];
    let _ = story.cli(&back).expect(0);
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_stack_that_was_removed_is_destroyed_with_the_code_that_made_it() {
    let story = story("tofu");
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "three stacks"]);
    let with = story.git(&["rev-parse", "--short=12", "HEAD"]);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = story
        .cli(&["hold", "add", "top", "--reason", "x"])
        .expect(0);
    // It goes from the project, module and all, and so do its traces in the working tree.
    let file = story.read("terrane.hcl");
    let (rest, _) = file.split_once("stack \"top\"").unwrap();
    story.write("terrane.hcl", rest);
    std::fs::remove_dir_all(story.project().join("top")).unwrap();
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "top is not needed"]);
    story.write("base/later.txt", "later\n");
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "something else"]);

    // What is kept of it can be asked for all the while.
    for words in [&["versions", "top"][..], &["show", "top"], &["pull", "top"]] {
        let said = story.cli(&[&["state"], words].concat()).expect(0);
        assert!(!said.stdout.is_empty(), "{said}");
    }
    let said = story.cli(&["state", "versions", "topp"]).expect(64);
    assert!(said.stderr.contains("there is no stack `topp`"), "{said}");

    let said = story.cli(&["destroy", "top", "--auto-approve"]).expect(4);
    assert_snapshot!(said.stderr.replace(with.trim(), "WITH"), @r#"
    error: stack `top` is no longer in the project; commit WITH ("three stacks") is the last one
           with it
    hint: `terrane destroy top --from WITH` destroys it with the code of that commit
    "#);
    let present = story
        .cli(&["destroy", "middle", "--from", with.trim(), "--auto-approve"])
        .expect(4);
    assert_snapshot!(present, @"
    ── stderr
    error: stack `middle` is in the project now
    hint: `terrane destroy middle` destroys it with its current code
    [exit 4]
    ");
    // What is held, or was done by hand, ends as for any other stack.
    let _ = story.cli(&["hold", "release", "top"]).expect(0);
    let edit = [
        "state",
        "push",
        "top",
        "../top.json",
        "--force",
        "--reason",
        "x",
        "--auto-approve",
    ];
    let pulled = story.cli(&["state", "pull", "top"]).expect(0).stdout;
    std::fs::write(
        story.root().join("top.json"),
        pulled.replace("\"serial\":1", "\"serial\":7"),
    )
    .unwrap();
    let _ = story.cli(&edit).expect(0);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert!(open.stdout.contains("top"), "{open}");
    let said = story
        .cli(&["destroy", "top", "--from", with.trim(), "--auto-approve"])
        .expect(0);
    let open = story.cli(&["run", "list", "--open"]).expect(0);
    assert_eq!(open.stdout, "", "{open}");
    assert_snapshot!(essence(&said), @"
    change set c2: destroy on `local`
    ✓ top   destroyed 1 resource
    Done: 1 stack destroyed in 0 s.
    [exit 0]
    ");
    assert_eq!(story.made()[3..], ["no top"]);
    assert!(
        !story.project().join("top").exists(),
        "the working tree is as it was"
    );
    let quiet = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
    assert!(
        !quiet.stderr.contains("no stack uses it any more"),
        "{}",
        quiet.stderr
    );
}

#[test]
fn an_older_commit_takes_no_protection_off() {
    let story = story("tofu");
    let commit = |what: &str| {
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        story
            .git(&["rev-parse", "--short=12", "HEAD"])
            .trim()
            .to_owned()
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let open = commit("three stacks");
    let file = story.read("terrane.hcl");
    let (rest, top) = file.split_once("stack \"top\" {").unwrap();
    story.write(
        "terrane.hcl",
        &format!("{rest}stack \"top\" {{\n  protected = true{top}"),
    );
    let guarded = commit("top is protected");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.write("terrane.hcl", rest);
    std::fs::remove_dir_all(story.project().join("top")).unwrap();
    let _ = commit("top is not needed");

    let destroy = ["destroy", "top", "--from", &open, "--auto-approve"];
    let said = story.cli(&destroy).expect(4);
    assert_snapshot!(said.stderr.replace(&guarded, "GUARDED"), @r#"
    warning: commit GUARDED ("top is protected") is the last that has `top`; `--from` names another
    error: stack `top` is protected: its name must be typed, and there is no terminal
    hint: give it with `--confirm top`, or exclude the stack with `!top`
    "#);
    let _ = story
        .cli(&[&destroy[..], &["--confirm", "top"]].concat())
        .expect(0);
}

#[test]
fn an_older_commit_brings_no_other_rules() {
    let story = Story::new("tofu")
        .block("target \"ci\" { writers = [\"job\"] }\nwriter \"job\" {\n  issuer = \"https://token.example.io\"\n  claims = { repository = \"example/infra\" }\n}")
        .stack("base", "", &link("base"))
        .stack("top", "", &link("top"));
    let commit = |what: &str| {
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        let id = story.git(&["rev-parse", "--short=12", "HEAD"]);
        id.trim().to_owned()
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let open = commit("open");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, top) = file.split_once("stack \"top\" {").unwrap();
    let closed = top.replace("\"local\"", "\"ci\"");
    story.write("terrane.hcl", &format!("{rest}stack \"top\" {{{closed}"));
    let last = commit("closed");
    story.write("terrane.hcl", rest);
    let _ = commit("top is not needed");
    let destroy = |from: &str| {
        let said = story.cli(&["destroy", "top", "--from", from, "--auto-approve"]);
        said.expect(4).stderr.replace(&last, "LAST")
    };
    assert_snapshot!(destroy(&open), @r#"
    error: the rules of another commit do not hold for stack `top`: LAST ("closed") is the last
           that has it, on target `ci`
    hint: `terrane destroy top --from LAST` destroys it with the code of that commit
    "#);
    let said = destroy(&last);
    assert!(said.contains("target `ci`"), "{said}");
}

#[test]
fn an_older_commit_lets_nobody_else_in() {
    let story = Story::new("tofu").stack("base", "", &link("base"));
    let bare = story.read("terrane.hcl");
    let commit = |what: &str, rest: &str| {
        story.write("terrane.hcl", &format!("{bare}{rest}"));
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        let id = story.git(&["rev-parse", "--short=12", "HEAD"]);
        id.trim().to_owned()
    };
    let of = |reference: &str| {
        format!(
            "target \"ci\" {{ writers = [\"job\"] }}\nwriter \"job\" {{\n  issuer = \"https://token.example.io\"\n  \
             claims = {{ ref = \"{reference}\" }}\n}}\n\
             stack \"top\" {{\n  path = \"base\"\n  state = \"top\"\n  target = \"ci\"\n  layer = \"all\"\n}}\n"
        )
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let loose = commit("any branch", &of("refs/heads/*"));
    let last = commit("main alone", &of("refs/heads/main"));
    let _ = commit("top is not needed", "");
    let said = story.cli(&["destroy", "top", "--from", &loose, "--auto-approve"]);
    assert_snapshot!(said.expect(4).stderr.replace(&last, "LAST"), @r#"
    error: the rules of another commit do not hold for stack `top`: LAST ("main alone") is the
           last that has it, on target `ci`
    hint: `terrane destroy top --from LAST` destroys it with the code of that commit
    "#);
}

#[test]
fn an_older_commit_takes_no_policy_off() {
    let story = Story::new("tofu")
        .stack("base", "", &link("base"))
        .stack("top", "", &link("top"));
    let commit = |what: &str| {
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        let id = story.git(&["rev-parse", "--short=12", "HEAD"]);
        id.trim().to_owned()
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let free = commit("two stacks");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let policy = "policy \"keep\" { path = \"keep.rego\" }\n";
    let deny = "package terrane\nimport rego.v1\ndeny contains \"no destroys here\" if input.run.destroy\n";
    story.write("terrane.hcl", &format!("{file}{policy}"));
    story.write("keep.rego", deny);
    let last = commit("nothing is destroyed");
    let (rest, _) = file.split_once("stack \"top\" {").unwrap();
    story.write("terrane.hcl", &format!("{rest}{policy}"));
    let _ = commit("top is not needed");
    let destroy = |from: &str| {
        let said = story.cli(&["destroy", "top", "--from", from, "--auto-approve"]);
        said.expect(4).stderr.replace(&last, "LAST")
    };
    assert_snapshot!(destroy(&free), @r#"
    error: the rules of another commit do not hold for stack `top`: LAST ("nothing is
           destroyed") is the last that has it, with policy `keep`, which the named commit lacks or
           defines differently
    hint: `terrane destroy top --from LAST` destroys it with the code of that commit
    "#);
    let said = destroy(&last);
    assert!(said.contains("no destroys here"), "{said}");
}

/// What is forbidden everywhere is not allowed for what is gone.
#[test]
fn a_policy_of_now_is_asked_about_what_was_removed() {
    let story = Story::new("tofu")
        .stack("base", "", &link("base"))
        .stack("top", "", &link("top"));
    let commit = |what: &str| {
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        let id = story.git(&["rev-parse", "--short=12", "HEAD"]);
        id.trim().to_owned()
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let last = commit("two stacks");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, _) = file.split_once("stack \"top\" {").unwrap();
    let policies = "policy \"keep\" { path = \"keep.rego\" }\n\
         policy \"other\" {\n  path = \"other.rego\"\n  stacks = [\"base\"]\n}\n";
    let deny = "package terrane\nimport rego.v1\ndeny contains \"WORDS\" if input.run.destroy\n";
    story.write("terrane.hcl", &format!("{rest}{policies}"));
    story.write("keep.rego", &deny.replace("WORDS", "no destroys here"));
    story.write("other.rego", &deny.replace("WORDS", "base stays"));
    let _ = commit("top is not needed");
    let said = story.cli(&["destroy", "top", "--from", &last, "--auto-approve"]);
    let said = said.expect(4).stderr;
    assert!(said.contains("no destroys here"), "{said}");
    assert!(!said.contains("base stays"), "{said}");
}

/// A state is what is destroyed: its rules hold, whatever its stack was called once.
#[test]
fn an_older_name_takes_no_rules_off() {
    let story = Story::new("tofu")
        .block("target \"ci\" { writers = [\"job\"] }\nwriter \"job\" {\n  issuer = \"https://token.example.io\"\n  claims = { repository = \"example/infra\" }\n}")
        .stack("base", "", &link("base"))
        .stack("top", "state = \"kept\"", &link("top"));
    let commit = |what: &str| {
        story.git(&["add", "-A"]);
        story.git(&["commit", "-qm", what]);
        let id = story.git(&["rev-parse", "--short=12", "HEAD"]);
        id.trim().to_owned()
    };
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    let open = commit("open");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, top) = file.split_once("stack \"top\" {").unwrap();
    let closed = top.replace("\"local\"", "\"ci\"");
    story.write("terrane.hcl", &format!("{rest}stack \"roof\" {{{closed}"));
    let last = commit("renamed and closed");
    let destroy = || {
        let said = story.cli(&["destroy", "top", "--from", &open, "--auto-approve"]);
        said.expect(4).stderr.replace(&last, "LAST")
    };
    assert_snapshot!(destroy(), @"
    error: the state of stack `top` now belongs to stack `roof` of the project
    hint: `terrane destroy roof` destroys it with its current code
    ");
    story.write("terrane.hcl", rest);
    let _ = commit("roof is not needed");
    assert_snapshot!(destroy(), @r#"
    error: the rules of another commit do not hold for stack `top`: LAST ("renamed and closed")
           is the last that has it, on target `ci`
    hint: `terrane destroy roof --from LAST` destroys it with the code of that commit
    "#);
}

#[test]
fn the_last_stack_can_go_the_same_way() {
    let story = Story::new("tofu").stack("base", "", &link("base"));
    story.git(&["init", "-q"]);
    story.write(".gitignore", ".terrane/\n");
    story.git(&["add", "-A"]);
    story.git(&["commit", "-qm", "one stack"]);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, _) = file.split_once("stack \"base\"").unwrap();
    story.write("terrane.hcl", rest);
    story.git(&["commit", "-qam", "none"]);
    let said = story.cli(&["destroy", "base"]).expect(4);
    assert!(
        said.stderr.contains("(\"one stack\") is the last"),
        "{said}"
    );
    let destroy = ["destroy", "base", "--from", "HEAD~1", "--auto-approve"];
    let said = story.cli(&destroy).expect(0);
    assert!(said.stderr.contains("Done: 1 stack destroyed"), "{said}");
    // Without anything to destroy it is what it is for every other command.
    let said = story.cli(&["destroy", "--auto-approve"]).expect(64);
    assert!(said.stderr.contains("this project has no stacks"), "{said}");
}

#[test]
fn what_was_removed_still_stands_on_its_upstream() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let file = story.read("terrane.hcl");
    let (rest, _) = file.split_once("stack \"top\"").unwrap();
    story.write("terrane.hcl", rest);
    let said = story
        .cli(&["destroy", "middle", "--auto-approve"])
        .expect(4);
    assert_snapshot!(said.stderr, @r#"
    warning: state `top` contains resources, but no stack uses it any more
    hint: if its stack was renamed, set `state = "top"` in the stack's block
    hint: if its stack was removed, `terrane destroy top` names the last commit with it, for `--from`
    hint: `terrane state list` shows all states
    error: stack `top`, which is no longer in the project, still depends on `middle`
    hint: `terrane destroy top` names the commit to destroy it with first
    "#);
    assert_eq!(story.made().len(), 3, "nothing was destroyed");
}

#[test]
fn what_stands_on_it_counts_wherever_its_state_is() {
    let story = Story::new("tofu")
        .block("target \"files\" {\n  writers = [\"anyone\"]\n  backend \"local\" {\n    path = \"ROOT/${stack.name}.tfstate\"\n  }\n}")
        .stack("base", "", &link("base"));
    let file = story
        .read("terrane.hcl")
        .replace("ROOT", &story.root().display().to_string());
    story.write("terrane.hcl", &file);
    let block = format!(
        "stack \"top\" {{\n  path = \"top\"\n  target = \"files\"\n  layer = \"all\"\n  {}\n}}\n",
        takes("base")
    );
    story.module("top", &link("top"));
    story.write("terrane.hcl", &(file + &block));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["destroy", "base", "--auto-approve"]).expect(4);
    assert!(
        said.stderr.contains("stack `top` still depends on `base`"),
        "{}",
        said.stderr
    );
    let _ = story.cli(&["destroy", "base+", "--auto-approve"]).expect(0);
}

#[test]
fn nothing_is_destroyed_that_something_else_stands_on() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["destroy", "base", "--auto-approve"]).expect(4);
    assert_snapshot!(essence(&said), @"
    error: stack `middle` still depends on `base`: it is applied, and not part of this destroy

    hint: `terrane destroy base+` destroys its dependents first
    [exit 4]
    ");
    assert_eq!(story.made().len(), 3, "nothing went away");
}

#[test]
fn what_was_applied_while_a_destroy_waited_keeps_what_it_stands_on() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    // Nothing stands on it yet; it waits for a yes, and holds nothing meanwhile.
    let _ = story.cli(&["destroy", "base"]).expect(3);
    let _ = story.cli(&["apply", "middle", "--auto-approve"]).expect(0);
    let said = story.cli(&["run", "confirm", "c2"]).expect(4);
    assert_snapshot!(essence(&said), @"
    change set c2: destroy on `local`
    ✗ base   not destroyed: `middle` depends on it and was applied meanwhile
    ✗ base   not destroyed: `middle` depends on it and was applied meanwhile

    error: change set c2 stopped: 1 skipped
    hint: `terrane destroy base+` destroys its dependents first
    [exit 4]
    ");
    assert_eq!(story.made(), ["base", "middle"], "nothing went away");
    let list = story.cli(&["run", "list", "--all", "--json"]).expect(0);
    assert!(list.stdout.contains("was applied meanwhile"), "{list}");
}

/// On another target, or in a lane of its own, nothing else keeps the two apart.
#[test]
fn nothing_is_applied_on_what_is_being_destroyed() {
    for (target, other) in [
        ("target \"other\" { writers = [\"anyone\"] }", "other"),
        (
            "target \"wide\" {\n  writers = [\"anyone\"]\n  lane    = \"stack\"\n}",
            "wide",
        ),
    ] {
        let first = if other == "wide" { other } else { "local" };
        let slow = gated("base", "when = destroy").replace(
            "  when = destroy\n  provisioner \"local-exec\" {",
            "  provisioner \"local-exec\" {\n    when = destroy",
        );
        let slow = format!("{slow}output \"name\" {{ value = terraform_data.base.output }}\n");
        let story = Story::new("tofu")
            .block(target)
            .stack_on(first, "base", "", &slow)
            .stack_on(other, "app", &takes("base"), &link("app"))
            .stack_on(other, "top", &takes("app"), &link("top"));
        let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
        let destroy = story.start("destroy", &["destroy", "base", "--auto-approve"]);
        story.wait_for("base");
        let said = story
            .cli(&["apply", "app", "top", "--auto-approve"])
            .expect(4);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said).lines().skip(1).collect::<Vec<_>>().join("\n"), @"
              top   skipped: `app` did not succeed
            ✗ app   not applied: it depends on `base`, which change set c2 is destroying
            ✗ app   not applied: it depends on `base`, which change set c2 is destroying
              top   skipped: `app` did not succeed

            error: change set c3 stopped: 2 skipped
            hint: when that is over, `terrane apply +app` applies it with its dependencies
            [exit 4]
            ");
        }
        story.open("base");
        let _ = destroy.wait().expect(0);
        assert_eq!(story.made(), ["base"], "only what went away said so");
        let _ = story.cli(&["apply", "+app", "--auto-approve"]).expect(0);
    }
}
