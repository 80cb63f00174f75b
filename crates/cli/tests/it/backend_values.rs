//! Values of stacks in backends of the engine: others may apply them from another home, at any time.

use testkit::{CommandOutput, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const APP: &str = "variable \"name\" { type = string }\nresource \"terraform_data\" \"a\" { input = var.name }\noutput \"greeting\" { value = \"hello ${terraform_data.a.output}\" }\n";
const MOVED: &str = "the value of its input `name` changed after it was made";

fn base(value: &str) -> String {
    format!(
        "resource \"terraform_data\" \"a\" {{ input = \"{value}\" }}\noutput \"name\" {{ value = terraform_data.a.output }}\n"
    )
}

/// `base`, whose state a file outside of the project holds, gives a value to `app`, whose state is terrane's. Both are applied.
fn project() -> TestTerrane {
    let test = terrane();
    let far = format!(
        "target \"far\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{ path = \"{}/${{stack.state}}.tfstate\" }}\n}}\n",
        test.root().join("states").display()
    );
    let stacks = [
        stack("base", "").replace("\"local\"", "\"far\""),
        stack("app", "inputs = { name = stack.base.output.name }"),
    ];
    test.write("terrane.hcl", &format!("{HEAD}{far}{}", stacks.concat()))
        .write("base/main.tf", &base("base"))
        .write("app/main.tf", APP);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test.write("app/main.tf", &APP.replace("hello", "good day"));
    test
}

/// Somebody else applies `base`.
fn apply_elsewhere(test: &TestTerrane) {
    test.write("base/main.tf", &base("moved"));
    let other = test.root().join("other").display().to_string();
    let apply = ["--data", &other, "apply", "base", "--auto-approve"];
    drop(test.cli(&apply).expect(0));
}

fn greeting(test: &TestTerrane) -> String {
    let said = test.cli(&["output", "app", "greeting", "--raw"]);
    said.expect(0).stdout
}

#[track_caller]
fn is_refused(test: &TestTerrane, said: &CommandOutput) {
    assert!(said.stderr.contains(MOVED), "{said}");
    assert_eq!(greeting(test), "hello base", "nothing was applied");
}

#[test]
fn a_yes_is_not_to_values_that_moved_meanwhile() {
    let test = project();
    drop(test.cli(&["apply", "app"]).expect(3));
    apply_elsewhere(&test);
    let said = test.cli(&["run", "confirm", "c2"]).expect(4);
    is_refused(&test, &said);
    // What was seen then is what is planned with.
    drop(test.cli(&["apply", "--resume", "c2"]).expect(3));
    drop(test.cli(&["run", "confirm", "c2"]).expect(0));
    assert_eq!(greeting(&test), "good day moved");
}

/// An upstream that is planned along, and does not change, may be applied by somebody else as well.
#[test]
fn a_yes_is_not_to_values_of_what_did_not_change_either() {
    let test = project();
    drop(test.cli(&["apply"]).expect(3));
    apply_elsewhere(&test);
    let said = test.cli(&["run", "confirm", "c2"]).expect(4);
    is_refused(&test, &said);
}

#[test]
fn a_bundle_is_not_applied_with_values_that_moved_meanwhile() {
    let test = project();
    drop(
        test.cli(&["plan", "app", "--out", "plan.terrane"])
            .expect(0),
    );
    apply_elsewhere(&test);
    let said = test
        .cli(&["apply", "plan.terrane", "--auto-approve"])
        .expect(4);
    is_refused(&test, &said);
}

#[test]
fn who_cannot_look_before_an_apply_says_so() {
    let test = project();
    let mut terminal = test.terminal(&["apply", "app"]);
    terminal.wait_for("Type `yes`");
    let states = test.root().join("states");
    std::fs::remove_dir_all(&states).expect("a directory");
    std::fs::write(&states, "").expect("a file in its place");
    terminal.type_line("yes");
    let said = terminal.wait().expect(0);
    let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let copy = "could not read the state of stack `base` in its backend before the apply; its values come from a copy";
    assert!(words.contains(copy), "{said}");
    assert_eq!(greeting(&test), "good day base");
}
