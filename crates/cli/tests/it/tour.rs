//! The README's tour, word for word: every command in it is run.

use std::path::Path;

use testkit::{Said, TestTerrane};

use crate::project::terrane;

fn repository() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the repository's root")
}

/// The commands in blocks marked as `console`.
fn commands(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            commands.push(command);
        }
    }
    commands
}

/// Runs all lines in one shell that stops at the first that fails.
fn run(test: &TestTerrane, lines: &[&str]) -> Said {
    let binary = Path::new(env!("CARGO_BIN_EXE_terrane"));
    let head = format!(
        "set -e -x\nPATH={}:$PATH\ncd {}\n",
        binary.parent().expect("its directory").display(),
        repository().display()
    );
    test.shell(&(head + &lines.join("\n")))
}

#[test]
fn every_command_of_the_readme_works() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let lines = commands(&readme);
    assert!(lines.len() > 10, "{lines:?}");
    let test = terrane().without_env("TERRANE_HOME");
    let key = test.root().join("user/.config/terrane/master.key");
    std::fs::remove_file(&key).unwrap();
    let said = run(&test, &lines).expect(0);
    assert!(said.stdout.contains("web-production"), "{said}");
    assert!(!key.exists(), "a master key is left behind");
}
