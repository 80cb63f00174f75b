//! `fmt`: the engine's own formatting for the project file and the modules.

use insta::assert_snapshot;

use crate::project::{HEAD, stack, terrane};

const UGLY: &str = "output \"a\" {\n      value=1\n}\n";
const TIDY: &str = "output \"a\" {\n  value = 1\n}\n";

#[test]
fn names_what_would_change_and_then_changes_it() {
    let test = terrane();
    let tidy = format!(
        "{HEAD}{}{}",
        stack("app", "labels = []"),
        stack("web", "labels = []")
    );
    test.write("terrane.hcl", &tidy.replace("order = 0", "order   =   0"))
        .write(
            "app/main.tf",
            &format!("module \"m\" {{ source = \"../modules/m\" }}\n{UGLY}"),
        )
        .write("web/main.tf", TIDY)
        .write("modules/m/main.tf", UGLY);
    assert_snapshot!(test.cli(&["fmt", "--check"]).expect(2), @"
    app/main.tf
    modules/m/main.tf
    terrane.hcl
    [exit 2]
    ");
    assert_eq!(test.read("modules/m/main.tf"), UGLY);
    assert_snapshot!(test.cli(&["fmt"]).expect(0), @"
    app/main.tf
    modules/m/main.tf
    terrane.hcl
    ");
    assert_eq!(test.read("modules/m/main.tf"), TIDY);
    assert_eq!(test.read("terrane.hcl"), tidy);
    assert_snapshot!(test.cli(&["fmt", "--check"]).expect(0), @"");
}

#[test]
fn names_files_as_data() {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}", stack("app", "labels = []")),
    )
    .write("app/main.tf", UGLY);
    assert_snapshot!(test.cli(&["fmt", "--check", "--json"]).expect(2), @r#"
    {
      "changed": [
        "app/main.tf"
      ]
    }
    [exit 2]
    "#);
}

#[test]
fn the_example_is_tidy() {
    let test = terrane();
    test.copy_example("quickstart");
    drop(test.cli(&["fmt", "--check"]).expect(0));
}

#[test]
fn a_project_with_mistakes_is_formatted_all_the_same() {
    let test = terrane();
    let file = format!("{HEAD}{}", stack("app", "inputs = { sise = 3 }"));
    test.write("terrane.hcl", &file).write("app/main.tf", UGLY);
    drop(test.cli(&["fmt"]).expect(0));
    assert_eq!(test.read("app/main.tf"), TIDY);
    test.write("terrane.hcl", "stack {\n");
    assert_snapshot!(test.cli(&["fmt"]).expect(1), @"
    ── stderr
    error: syntax error: this `{` is not closed
      --> terrane.hcl:1:7
       |
     1 | stack {
       |       ^ opened here

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn an_error_of_the_engine_can_be_read() {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}", stack("app", "labels = []")),
    )
    .write("app/main.tf", "locals { a = \"${\" }\n");
    let said = test.cli(&["fmt"]).expect(1);
    assert!(
        !said.stderr.contains(['\u{1b}', '╷', '│']),
        "colours and frames of the engine:\n{}",
        said.stderr
    );
    let begin: Vec<&str> = said.stderr.lines().take(2).collect();
    assert_snapshot!(begin.join("\n"), @"
    error: the engine could not format `app`
           Error: Invalid multi-line string
    ");
}
