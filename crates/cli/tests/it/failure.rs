//! One stack fails: what depends on it is skipped, the rest is finished, and the same command goes on
//! when the cause is gone.

use insta::{allow_duplicates, assert_snapshot};
use testkit::engines;

use crate::project::one_stack;
use crate::story::{Story, essence, link, noted, resource, takes};

#[test]
fn dependents_are_skipped_and_the_rest_is_finished() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .stack("base", "", &broken_base())
            .stack("middle", &takes("base"), &link("middle"))
            .stack("top", &takes("middle"), &link("top"))
            .stack("other", "", &link("other"))
            .stack("beside", &takes("other"), &link("beside"));
        let failed = story.cli(&["apply", "--auto-approve"]).expect(1);
        allow_duplicates! {
            assert_snapshot!(essence(&failed), @"
            change set c1: apply on `local`
              middle   skipped: `base` did not succeed
              top      skipped: `base` did not succeed
            ✓ beside   applied 1 change
            ✓ other    applied 1 change
            ✗ base     failed: local-exec provisioner error
            ✗ base     failed while applying, after 0 s
                Error: local-exec provisioner error
                  with terraform_data.second, on base/main.tf line 11
                  Error running command 'echo no room left; exit 7': exit status 7. Output: no room left
                state kept: serial 1 (1 resource changed, 1 begun before the failure)
              middle   skipped: `base` did not succeed
              top      skipped: `base` did not succeed (through `middle`)

            error: change set c1 stopped: 1 failed, 2 skipped, 2 applied
            hint: fix the cause, then `terrane apply --resume c1` runs what is left
            [exit 1]
            ");
        }
        assert_eq!(sorted(story.made()), ["beside", "first", "other"]);

        story.module("base", &base(&noted("second")));
        let mended = story.cli(&["apply", "--auto-approve"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(essence(&mended), @"
            change set c2: apply on `local`
              beside   untouched: nothing it consumes changes
              other    no changes
            ✓ base     applied 1 change
            ✓ middle   applied 1 change
            ✓ top      applied 1 change
            Done: 3 stacks applied, 1 unchanged, 1 untouched in 0 s.
            [exit 0]
            ");
        }
        // What was made before the failure was kept, not made again.
        let made = sorted(story.made());
        assert_eq!(
            made,
            ["beside", "first", "middle", "other", "second", "top"]
        );
    }
}

#[test]
fn a_plan_that_fails_is_told_as_well() {
    let story = Story::new("tofu")
        .stack(
            "base",
            "",
            "output \"name\" {\n  value = file(\"missing.txt\")\n}\n",
        )
        .stack("top", &takes("base"), &link("top"));
    let plan = story.cli(&["plan"]).expect(1);
    assert_snapshot!(plan.stdout, @r#"
    change set c1 on `local`

    base  failed while planning
        Error: Invalid function argument
          on base/main.tf line 2
          Invalid value for "path" parameter: no file exists at "missing.txt"; this function works only
          with files that are distributed as part of the configuration source code, so if this file will
          be created by a resource in this configuration you must instead obtain this result from an
          attribute of that resource.

    top   skipped: `base` did not succeed

    Plan: no changes so far; 1 failed, 1 skipped.
    "#);
    let runs = story.cli(&["run", "list", "--all"]).expect(0);
    let reasons = ["Invalid function argument", "`base` did not succeed"];
    for reason in reasons {
        assert!(runs.stdout.contains(reason), "not why it failed:\n{runs}");
    }
    let apply = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert_snapshot!(essence(&apply), @r#"
    change set c2: apply on `local`
      top    skipped: `base` did not succeed
    ✗ base   failed: Invalid function argument
    ✗ base   failed while planning, after 0 s
        Error: Invalid function argument
          on base/main.tf line 2
          Invalid value for "path" parameter: no file exists at "missing.txt"; this function works only
          with files that are distributed as part of the configuration source code, so if this file will
          be created by a resource in this configuration you must instead obtain this result from an
          attribute of that resource.
      top    skipped: `base` did not succeed

    error: change set c2 stopped: 1 failed, 1 skipped
    hint: fix the cause, then `terrane apply --resume c2` runs what is left
    [exit 1]
    "#);
}

fn base(second: &str) -> String {
    format!(
        "{}{second}output \"name\" {{ value = \"base\" }}\n",
        noted("first")
    )
}

fn broken_base() -> String {
    let after = "depends_on = [terraform_data.first]";
    base(&resource("second", after, "echo no room left; exit 7"))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn a_change_set_that_never_was_cannot_be_resumed() {
    let test = one_stack("", "");
    assert_snapshot!(test.cli(&["apply", "--resume", "c99"]).expect(1), @"
    ── stderr
    error: there is no change set `c99`
    hint: `terrane run list --all` lists all change sets
    [exit 1]
    ");
}

/// It was left alone for what a plan would change that was never carried out; another plan may change more.
#[test]
fn what_was_left_alone_is_looked_at_again_with_what_failed() {
    let base = |value: &str, command: &str| {
        let made = resource(
            "base",
            &format!("triggers_replace = \"{command}\""),
            command,
        );
        format!("{made}output \"name\" {{ value = \"{value}\" }}\n")
    };
    let story = Story::new("tofu")
        .stack("base", "", &base("one", "true"))
        .stack("top", &takes("base"), &link("top"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.module("base", &base("one", "false"));
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert!(said.stderr.contains("untouched"), "{said}");
    story.module("base", &base("two", "true"));
    let _ = story
        .cli(&["apply", "--resume", "--auto-approve"])
        .expect(0);
    let top = story.cli(&["output", "top", "name", "--raw"]).expect(0);
    assert_eq!(top.stdout, "top after two");
}
