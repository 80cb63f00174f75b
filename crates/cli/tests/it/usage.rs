//! Help, and what is said of a wrong command line.

use insta::assert_snapshot;

use crate::project::terrane;

/// Every command a person may type.
const COMMANDS: [&[&str]; 13] = [
    &["init"],
    &["validate"],
    &["graph"],
    &["plan"],
    &["apply"],
    &["destroy"],
    &["output"],
    &["fmt"],
    &["engine"],
    &["engine", "list"],
    &["engine", "install"],
    &["engine", "lock"],
    &["completions"],
];

#[test]
fn every_command_has_help_with_an_example() {
    let test = terrane();
    for command in COMMANDS {
        let said = test.cli(&[command, &["--help"]].concat()).expect(0);
        let example = format!("\n  terrane {}", command.join(" "));
        assert!(said.stdout.contains("Example"), "{command:?}:\n{said}");
        assert!(said.stdout.contains(&example), "{command:?}:\n{said}");
    }
}

#[test]
fn the_first_page_lists_every_command() {
    let test = terrane();
    let said = test.cli(&["--help"]).expect(0);
    assert_snapshot!(said, @"");
    for command in COMMANDS {
        assert!(
            said.stdout.contains(&format!("\n  {}", command[0])),
            "{command:?}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_its_own_code() {
    let test = terrane();
    assert_snapshot!(test.cli(&["aply"]).expect(64), @"");
    assert_snapshot!(test.cli(&["plan", "--no-such-flag"]).expect(64), @"");
    assert_snapshot!(test.cli(&["output"]).expect(64), @"");
    drop(test.cli(&["graph", "--format", "png"]).expect(64));
    drop(test.cli(&["plan", "-j", "many"]).expect(64));
    drop(
        test.cli(&["plan", "--destroy", "--refresh-only"])
            .expect(64),
    );
    drop(test.cli(&[]).expect(64));
}

#[test]
fn the_version_is_told() {
    let said = terrane().cli(&["--version"]).expect(0);
    assert_eq!(
        said.stdout,
        format!("terrane {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_know_the_commands() {
    let test = terrane();
    for shell in ["bash", "zsh", "fish"] {
        let said = test.cli(&["completions", shell]).expect(0);
        assert!(said.stdout.contains("validate"), "{shell}");
        assert!(said.stdout.contains("auto-approve"), "{shell}");
    }
}
