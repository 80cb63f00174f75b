//! Targets whose states an engine's own backend keeps.

use insta::assert_snapshot;
use testkit::{TestTerrane, engines};

use crate::project::{HEAD, shown, stack, terrane};

/// `base` gives a value to `app`; both keep their states in files outside of the project.
fn project(backend: &str, module_backend: &str) -> TestTerrane {
    let test = terrane();
    let states = test.root().join("states").display().to_string();
    let target = format!(
        "target \"local\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{ {} }}\n}}",
        backend.replace("STATES", &states)
    );
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &target);
    let stacks = [
        stack("base", ""),
        stack("app", "inputs = { name = stack.base.output.name }"),
    ];
    let own = module_backend.replace("STATES", &states);
    test.write("terrane.hcl", &format!("{head}{}", stacks.concat()))
        .write(
            "base/main.tf",
            &format!("{}resource \"terraform_data\" \"a\" {{ input = \"base\" }}\noutput \"name\" {{ value = terraform_data.a.output }}\n", own.replace("NAME", "base")),
        )
        .write(
            "app/main.tf",
            &format!("{}variable \"name\" {{ type = string }}\nresource \"terraform_data\" \"a\" {{ input = var.name }}\noutput \"greeting\" {{ value = \"hello ${{terraform_data.a.output}}\" }}\n", own.replace("NAME", "app")),
        );
    test
}

#[track_caller]
fn check(test: &TestTerrane) {
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    for name in ["base", "app"] {
        let state = test.root().join(format!("states/{name}.tfstate"));
        let text = std::fs::read_to_string(&state).expect("a state of the backend's own");
        assert!(text.contains("terraform_data"), "{text}");
    }
    let said = test.cli(&["output", "app", "greeting", "--raw"]).expect(0);
    assert_eq!(said.stdout, "hello base");
}

#[test]
fn apply_and_outputs_work_with_a_backend_of_the_engine() {
    let test = project("path = \"STATES/${stack.state}.tfstate\"", "");
    check(&test);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(0)), @"
    ── stderr
    change set c2: apply on `local`
    Done: 2 stacks unchanged in 0 s.
    ");
    drop(test.cli(&["destroy", "--auto-approve"]).expect(0));
    let state = std::fs::read_to_string(test.root().join("states/app.tfstate")).unwrap();
    assert!(!state.contains("terraform_data"), "{state}");
}

#[test]
fn the_modules_own_settings_of_that_backend_hold() {
    let test = project(
        "",
        "terraform {\n  backend \"local\" { path = \"STATES/NAME.tfstate\" }\n}\n",
    );
    check(&test);
}

fn empty_home(test: TestTerrane, name: &str) -> TestTerrane {
    let data = test.root().join(name).display().to_string();
    test.env("XDG_DATA_HOME", &data)
}

/// A CI job comes with an empty home each time; the backend remembers.
#[test]
fn a_job_with_an_empty_home_finds_what_an_earlier_one_applied() {
    let test = project("path = \"STATES/${stack.state}.tfstate\"", "")
        .without_env("TERRANE_HOME")
        .env("CI", "true");
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(0)), @"
    ── stderr
    warning: no home is named: lanes and history reach no further than this job
    change set c1: apply on `local`
    Done: 2 stacks applied in 0 s.
    ");
    let test = empty_home(test, "second");
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(0)), @"
    ── stderr
    warning: no home is named: lanes and history reach no further than this job
    change set c1: apply on `local`
    Done: 2 stacks unchanged in 0 s.
    ");
    let test = empty_home(test, "third");
    assert_snapshot!(shown(&test, &test.cli(&["plan", "app"]).expect(1)), @"
    ── stderr
    error: stack `app` needs output `name` of `base`, which is not there yet
    hint: `terrane apply +app` applies what it needs first
    [exit 1]
    ");
    assert_snapshot!(shown(&test, &test.cli(&["plan", "+app"]).expect(0)), @"
    change set c1 on `local`

    base  no changes
    app   no changes

    No changes: everything is as the configuration says.
    ── stderr
    change set c1: plan on `local`
    ");
}

#[test]
fn an_override_file_of_the_module_does_not_take_the_state_elsewhere() {
    for (engine, _) in engines::all() {
        let head = HEAD.replace("\"tofu\"", &format!("\"{engine}\""));
        let test = terrane();
        test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
            .write("app/main.tf", "output \"o\" { value = \"kept\" }\n")
            .write(
                "app/zz_override.tf",
                "terraform {\n  backend \"local\" {}\n}\n",
            );
        let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
        let said = test.cli(&["output", "app", "o", "--raw"]).expect(0);
        assert_eq!(said.stdout, "kept", "{engine}");
    }
}

#[test]
fn outputs_come_from_where_the_state_is_now() {
    let test = terrane();
    let write = |target: &str, value: &str| {
        let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", target);
        test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
            .write(
                "app/main.tf",
                &format!("output \"o\" {{ value = \"{value}\" }}\n"),
            );
        let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
        test.cli(&["output", "app", "o", "--raw"]).expect(0).stdout
    };
    assert_eq!(
        write("target \"local\" { writers = [\"anyone\"] }", "one"),
        "one"
    );
    let path = test.root().join("elsewhere.tfstate").display().to_string();
    let moved = format!(
        "target \"local\" {{\n  writers = [\"anyone\"]\n  backend \"local\" {{\n    path = \"{path}\"\n  }}\n}}"
    );
    assert_eq!(write(&moved, "two"), "two");
}
