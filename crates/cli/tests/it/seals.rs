//! A plan is applied only if all it was made from is as it was; if not, what moved is said, and an approval
//! stays valid only for an equal plan.

use std::fs;

use insta::assert_snapshot;
use testkit::{CommandOutput, Terminal};

use crate::story::{Story, link, takes};

fn story() -> Story {
    Story::new("tofu")
        .stack("base", "", &link("base"))
        .stack("top", &takes("base"), &link("top"))
}

/// Asks about an apply, and stops at the question.
fn asked(story: &Story, stack: &str) -> Terminal {
    let terminal = story.terminal(&["apply", stack]);
    terminal.wait_for("Type `yes`");
    terminal
}

/// What a screen says of a refusal: why, and how to go on.
fn refusal(said: &CommandOutput) -> String {
    let lines: Vec<&str> = said.stdout.lines().map(str::trim).collect();
    let mut starts = lines.iter();
    let first = starts.rposition(|line| line.starts_with("this plan may no longer"));
    let first = first.unwrap_or_else(|| panic!("no refusal: {said}"));
    let end = lines[first..].iter().position(|line| line.is_empty());
    let end = end.map_or(lines.len(), |end| first + end);
    lines[first..end].join("\n")
}

#[test]
fn a_state_that_moved_is_named_with_who_moved_it() {
    let story = story();
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    story.module(
        "base",
        &format!("{}output \"more\" {{ value = 1 }}\n", link("base")),
    );
    let mut terminal = asked(&story, "base");
    story.module(
        "base",
        &format!("{}output \"other\" {{ value = 1 }}\n", link("base")),
    );
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    let user = story.shell("id --user --name").stdout;
    let shown = refusal(&said).replace(&format!("`{}`", user.trim()), "`USER`");
    assert_snapshot!(shown, @"
    this plan may no longer be applied: the state moved after it was made (serial 1, now 2)
    serial 2 was written by run r3 (requested by `USER`) less than a minute ago
    `terrane apply --resume c2` plans `base` again; approvals stay valid if the new plan is equal
    ");
}

#[test]
fn a_value_that_moved_is_not_shown() {
    let story = story();
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let mut terminal = asked(&story, "top");
    story.module("base", &link("base").replace("base after", "base AFTER"));
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    assert_snapshot!(refusal(&said), @"
    this plan may no longer be applied: the value of its input `from` changed after it was made
    `terrane apply --resume c2` plans `top` again; approvals stay valid if the new plan is equal
    ");
    assert_eq!(story.made(), ["base"]);
}

#[test]
fn an_engine_that_was_replaced_is_noticed() {
    let story = story();
    let mut terminal = asked(&story, "base");
    story.engine_script(
        "if [ \"$1\" = version ]; then echo '{\"terraform_version\":\"1.99.0\"}'; exit; fi\nexec REAL \"$@\"\n",
    );
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    let real = testkit::engines::tofu();
    let version = real.parent().and_then(|dir| dir.file_name());
    let version = version.unwrap().to_string_lossy().into_owned();
    assert_snapshot!(refusal(&said).replace(&version, "VERSION"), @"
    this plan may no longer be applied: the engine changed after it was made (tofu VERSION, now tofu
    1.99.0)
    `terrane apply --resume c1` plans `base` again; approvals stay valid if the new plan is equal
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

#[test]
fn a_lock_file_that_another_init_leaves_otherwise_is_noticed() {
    let story = story();
    let mut terminal = asked(&story, "base");
    // What was set up for the plan is gone, and setting up again finds other providers.
    let tree = story.data().join("slots/_local/0/base");
    fs::remove_file(tree.join(".terraform.initialised")).unwrap();
    story.engine_script(
        "REAL \"$@\" || exit\nif [ \"$1\" = init ]; then echo '# others' > .terraform.lock.hcl; fi\n",
    );
    terminal.type_line("yes");
    let said = terminal.wait().expect(4);
    assert_snapshot!(refusal(&said), @"
    this plan may no longer be applied: the provider lock file changed after it was made (none, now
    4819503)
    `terrane apply --resume c1` plans `base` again; approvals stay valid if the new plan is equal
    ");
    assert_eq!(story.made(), Vec::<String>::new());
}

/// The last look is the one that grants the lock: nothing comes between it and the apply.
#[test]
fn a_state_that_moves_before_the_lock_is_noticed() {
    let story = story();
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let file = story.root().join("by-hand.tfstate");
    let pulled = story.cli(&["state", "pull", "base"]).expect(0).stdout;
    let mut state: serde_json::Value = serde_json::from_str(&pulled).unwrap();
    let serial = state["serial"].as_i64().unwrap();
    state["serial"] = (serial + 1).into();
    fs::write(&file, state.to_string()).unwrap();
    story.module(
        "base",
        &format!("{}output \"more\" {{ value = 1 }}\n", link("base")),
    );
    let mut terminal = asked(&story, "base");
    story.engine_script("if [ \"$1\" = apply ]; then WAIT(apply); fi\nexec REAL \"$@\"\n");
    terminal.type_line("yes");
    story.wait_for("apply");
    let push = [
        "state",
        "push",
        "base",
        file.to_str().unwrap(),
        "--reason",
        "test",
        "--auto-approve",
    ];
    let _ = story.cli(&push).expect(0);
    story.open("apply");
    let said = terminal.wait().expect(4);
    let user = story.shell("id --user --name").stdout;
    let shown = refusal(&said).replace(&format!("`{}`", user.trim()), "`USER`");
    assert_snapshot!(shown, @"
    this plan may no longer be applied: the state moved after it was made (serial 1, now 2)
    serial 2 was written by `USER` less than a minute ago
    `terrane apply --resume c2` plans `base` again; approvals stay valid if the new plan is equal
    ");
}

/// A plan that was made beside another engine is made afresh; its module reads a file outside of the project.
fn beside_another(content: &str) -> (Story, Terminal) {
    let story = Story::new("tofu").stack(
        "base",
        "",
        "resource \"terraform_data\" \"base\" {\n  triggers_replace = file(\"ROOT/value\")\n  \
         input = \"same\"\n}\n",
    );
    let value = story.root().join("value");
    fs::write(&value, "first").unwrap();
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    fs::write(&value, "second").unwrap();
    story.engine_script(
        "if [ \"$1\" = plan ] && mkdir ROOT/once 2>/dev/null; then WAIT(plan); fi\nexec REAL \"$@\"\n",
    );
    let other = story.start("other", &["plan", "base", "--out", "../other.terrane"]);
    story.wait_for("plan");
    let mut terminal = asked(&story, "base");
    fs::write(&value, content).unwrap();
    story.open("plan");
    let _ = other.wait().expect(0);
    terminal.type_line("yes");
    (story, terminal)
}

#[test]
fn a_confirmation_covers_an_equal_plan() {
    let (story, terminal) = beside_another("second");
    let said = terminal.wait().expect(0);
    assert_eq!(said.stdout.matches("Type `yes`").count(), 1, "{said}");
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn what_is_new_in_a_fresh_plan_is_shown_and_asked_about() {
    let (story, mut terminal) = beside_another("third");
    terminal.wait_for("new since it was approved");
    terminal.type_line("yes");
    let said = terminal.wait().expect(0);
    let remark = said.stdout.lines().find(|line| line.contains("new since"));
    assert_snapshot!(remark.unwrap_or_default().trim(), @"new since it was approved: gives `triggers_replace` of `terraform_data.base` another value");
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
}
