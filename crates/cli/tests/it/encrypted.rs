//! States that OpenTofu encrypts itself, in terrane's own backend: what the engine can read reaches those who need it,
//! and what nobody has read is never taken for nothing.

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, shown, stack, terrane};

const ENCRYPTION: &str = r#"terraform {
  encryption {
    key_provider "pbkdf2" "main" {
      passphrase = "a passphrase for this test"
      iterations = 200000 // the fewest it takes
    }
    method "aes_gcm" "main" { keys = key_provider.pbkdf2.main }
    state {
      method   = method.aes_gcm.main
      enforced = true
    }
  }
}
"#;

/// `base` gives a value to `app`, and its state is encrypted.
fn project(value: &str) -> TestTerrane {
    let test = terrane();
    let stacks = [
        "context \"word\" {\n  vars = { word = secret(\"env:WORD\") }\n}\n".to_owned(),
        stack("base", "contexts = [\"word\"]"),
        stack("app", "inputs = { name = stack.base.output.name }"),
    ];
    test.write("terrane.hcl", &format!("{HEAD}{}", stacks.concat()))
        .write("base/main.tf", &base(value))
        .write(
            "app/main.tf",
            "variable \"name\" { type = string }\nresource \"terraform_data\" \"a\" { input = var.name }\n\
             output \"greeting\" { value = \"hello ${terraform_data.a.output}\" }\n",
        );
    test.env("WORD", "tell-nobody-of-this")
}

fn base(value: &str) -> String {
    format!(
        "{ENCRYPTION}variable \"word\" {{ type = string }}\nresource \"terraform_data\" \"a\" {{ input = \"{value}\" }}\n\
         output \"name\" {{ value = terraform_data.a.output }}\noutput \"url\" {{ value = \"https://${{var.word}}@example.org\" }}\n"
    )
}

#[test]
fn outputs_of_an_encrypted_state_reach_its_dependents() {
    let test = project("base");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
    assert_eq!(said.stdout, "hello base");
    test.write("base/main.tf", &base("other"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
    assert_eq!(said.stdout, "hello other");
    // What holds a secret of the run is hidden, as in any state.
    assert_snapshot!(test.cli(&["output", "base"]).expect(0), @r#"
    name = "other"
    url  = (sensitive)
    "#);
    // Older content that came back has the outputs it had.
    let rollback = "state rollback base --to 1 --reason r --auto-approve";
    drop(test.cli(&rollback.split(' ').collect::<Vec<_>>()).expect(0));
    let said = test.cli(&["output", "base", "name", "--raw"]).expect(0);
    assert_eq!(said.stdout, "base");
    drop(test.cli(&["destroy", "--auto-approve"]).expect(0));
}

#[test]
fn outputs_that_nobody_has_read_are_not_null() {
    let test = project("base");
    drop(test.cli(&["apply", "base", "--auto-approve"]).expect(0));
    let state = test.cli(&["state", "pull", "base"]).expect(0);
    test.write("base.tfstate", &state.stdout);
    let elsewhere = ["--data", "elsewhere"];
    let push = "state push base base.tfstate --reason moved --auto-approve";
    let push: Vec<&str> = push.split(' ').chain(elsewhere).collect();
    drop(test.cli(&push).expect(0));
    let ask = |args: &str| {
        let args: Vec<&str> = args.split(' ').chain(elsewhere).collect();
        let said = test.cli(&args);
        shown(&test, &said)
    };
    assert_snapshot!(ask("output base"), @"
    ── stderr
    error: the engine has encrypted the state `base`, and its outputs were not read yet
    hint: `terrane plan base --data elsewhere` reads them through the engine
    [exit 1]
    ");
    assert_snapshot!(ask("apply app --auto-approve"), @"
    ── stderr
    error: the engine has encrypted the state `base`, and its outputs were not read yet
    hint: a plan of that stack reads them through the engine
    [exit 1]
    ");
    ask("plan base");
    assert_snapshot!(ask("output base name --raw"), @"
    base
    ");
}
