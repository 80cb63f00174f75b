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
    warning: no home is named: lanes and history are limited to this job
    change set c1: apply on `local`
    Done: 2 stacks applied in 0 s.
    ");
    let test = empty_home(test, "second");
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(0)), @"
    ── stderr
    warning: no home is named: lanes and history are limited to this job
    change set c1: apply on `local`
    Done: 2 stacks unchanged in 0 s.
    ");
    let test = empty_home(test, "third");
    drop(test.cli(&["plan", "app", "--detailed-exitcode"]).expect(0));
    assert_snapshot!(shown(&test, &test.cli(&["plan", "+app"]).expect(0)), @"
    change set c2 on `local`

    base  no changes
    app   no changes

    No changes: everything matches the configuration.
    ── stderr
    change set c2: plan on `local`
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

const IT: &str = "resource \"terraform_data\" \"it\" { input = 1 }\n";

/// One stack, `app`, with this backend in its target.
fn one(test: &TestTerrane, backend: &str) {
    let target = format!("target \"local\" {{\n  writers = [\"anyone\"]\n  {backend}\n}}");
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &target);
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")));
}

fn at(test: &TestTerrane, dir: &str) -> String {
    let dir = test.root().join(dir).display().to_string();
    format!("backend \"local\" {{ path = \"{dir}/${{stack.state}}.tfstate\" }}")
}

/// The copy is laid out anew for the next plan: everything would be made again, each time.
#[test]
fn no_state_lies_in_the_copy_that_the_engine_works_in() {
    let test = terrane();
    test.write("app/main.tf", IT);
    one(
        &test,
        "backend \"local\" { path = \"states/${stack.state}.tfstate\" }",
    );
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: the engine works in a copy of the source, and would lose the state of stack `app` there
      --> terrane.hcl:9:3
       |
     9 |   backend "local" { path = "states/${stack.state}.tfstate" }
       |   ^^^^^^^^^^^^^^^ `states/app.tfstate` would lie in that copy
       |
       = hint: `path = "${env("HOME")}/states/${stack.state}.tfstate"` in the target, or any path that
               begins with `/`; without a `backend` block terrane keeps the state

    1 error in terrane.hcl
    [exit 1]
    "#);
    test.write(
        "app/main.tf",
        &format!("terraform {{\n  backend \"local\" {{ path = \"../app.tfstate\" }}\n}}\n{IT}"),
    );
    one(&test, "backend \"local\" {}");
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: the engine works in a copy of the source, and would lose the state of stack `app` there
      --> app/main.tf:2:3
       |
     2 |   backend "local" { path = "../app.tfstate" }
       |   ^^^^^^^^^^^^^^^ `../app.tfstate` would lie in that copy
       |
       = hint: `path = "${env("HOME")}/states/${stack.state}.tfstate"` in the target, or any path that
               begins with `/`; without a `backend` block terrane keeps the state

    1 error in app/main.tf
    [exit 1]
    "#);
    test.write("app/main.tf", IT);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: the engine works in a copy of the source, and would lose the state of stack `app` there
      --> terrane.hcl:9:3
       |
     9 |   backend "local" {}
       |   ^^^^^^^^^^^^^^^ no `path`: it would lie in that copy
       |
       = hint: `path = "${env("HOME")}/states/${stack.state}.tfstate"` in the target, or any path that
               begins with `/`; without a `backend` block terrane keeps the state

    1 error in terrane.hcl
    [exit 1]
    "#);
    one(&test, "backend \"local\" { path = env(\"STATES\") }");
    let test = test.env("STATES", "app.tfstate");
    drop(test.cli(&["validate"]).expect(0));
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(4)), @"
    change set c1 on `local`

    app  failed while planning
        `path` of backend `local` is `app.tfstate`, which would be lost with the engine's copy of the
        source
        it must begin with `/`

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c1: plan on `local`
    [exit 4]
    ");
}

/// What terrane keeps of a state is kept under its name: one would be given the outputs of the other.
#[test]
fn two_states_have_two_names_wherever_they_live() {
    let test = terrane();
    let there = at(&test, "there");
    let other = format!("target \"other\" {{\n  writers = [\"anyone\"]\n  {there}\n}}\n");
    let second = stack("second", "state = \"app\"").replace("\"local\"", "\"other\"");
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{other}{}{second}", stack("app", "")),
    )
    .write("app/main.tf", IT)
    .write("second/main.tf", IT);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: the states of stacks `app` and `second` have one name, `app`
      --> terrane.hcl:24:11   what terrane keeps of both would be mixed
      --> terrane.hcl:13:7    `app`
      = hint: a name may have parts: `state = "other/app"`

    1 error in terrane.hcl
    [exit 1]
    "#);
}

#[test]
fn a_state_goes_along_to_the_backend_of_its_target() {
    let test = terrane();
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", IT);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let pull = || test.cli(&["state", "pull", "app"]).expect(0).stdout;
    let lineage = |state: &str| {
        let state: serde_json::Value = serde_json::from_str(state).expect("a state");
        state["lineage"].as_str().expect("a lineage").to_owned()
    };
    let own = lineage(&pull());
    one(&test, &at(&test, "there"));
    for action in [
        &["plan"][..],
        &["apply", "--auto-approve"],
        &["destroy", "--auto-approve"],
    ] {
        insta::allow_duplicates! {
            assert_snapshot!(shown(&test, &test.cli(action).expect(4)), @"
            ── stderr
            error: the state of stack `app` is in this home (serial 1), but target `local` uses backend `local`:
                   what was applied would be created again
            hint: `terrane state export app --to engine` exports it to the engine's backend; it is enough if the
                  state is there already
            [exit 4]
            ");
        }
    }
    let export = ["state", "export", "app", "--to", "engine"];
    let told = |said: &testkit::CommandOutput| shown(&test, said).replace(&own, "LINEAGE");
    assert_snapshot!(told(&test.cli(&export).expect(0)), @"
    ── stderr
    State `app` written to the backend of target `local`: serial 1, lineage LINEAGE.
    ");
    assert_snapshot!(told(&test.cli(&export).expect(0)), @"
    ── stderr
    State `app` is there already, in the backend of target `local`: serial 1, lineage LINEAGE.
    ");
    assert_eq!(lineage(&pull()), own);
    drop(test.cli(&["plan", "--detailed-exitcode"]).expect(0));
}

/// A wrong bucket looks like a stack that was never applied.
#[test]
fn a_state_that_is_not_where_it_was_is_not_made_again() {
    let test = terrane();
    test.write("app/main.tf", IT);
    one(&test, &at(&test, "there"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    one(&test, &at(&test, "elsewhere"));
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(4)), @"
    change set c2 on `local`

    app  failed while planning
        its backend contained resources before (serial 1), but no longer contains that state: they would
        be created again
        its target may name the wrong backend; if this is intended,
        `terrane state export app --to engine` copies the state there, or
        `terrane state import app --from engine` uses the state that is there

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c2: plan on `local`
    [exit 4]
    ");
    drop(test.cli(&["apply", "--auto-approve"]).expect(4));
    one(&test, &at(&test, "there"));
    drop(test.cli(&["plan", "--detailed-exitcode"]).expect(0));
    one(&test, &at(&test, "elsewhere"));
    let said = test.cli(&["state", "import", "app", "--from", "engine"]);
    assert_snapshot!(shown(&test, &said), @"
    change set c5 on `local`

    app  + 1 add
      + terraform_data.it
          input   1
          known after apply: id, output

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy.
    ── stderr
    State `app` is what the backend of its target holds now: nothing.
    change set c5: plan on `local`
    The plan is not empty: review it before the next apply.
    [exit 2]
    ");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

/// Found from where the source is, not from its copy.
#[test]
fn a_file_that_the_source_names_is_brought_in() {
    let test = terrane();
    let own = "terraform {\n  backend \"local\" { path = \"../old.tfstate\" }\n}\n";
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", &format!("{own}{IT}"))
        .write(".gitignore", "*.tfstate\n");
    let engine = engines::tofu().display().to_string();
    let applied = test.shell(&format!(
        "cd app && '{engine}' init -input=false && '{engine}' apply -auto-approve && rm -rf .terraform"
    ));
    assert_eq!(applied.code, Some(0), "{applied}");
    drop(test.cli(&["plan"]).expect(4));
    drop(
        test.cli(&["state", "import", "app", "--from", "engine"])
            .expect(0),
    );
    drop(test.cli(&["plan", "--detailed-exitcode"]).expect(0));
}

/// Somebody else applied `base`, in another home: a value that is not there any more would be applied.
#[test]
fn values_come_from_what_the_backend_holds_now() {
    let test = project("path = \"STATES/${stack.state}.tfstate\"", "");
    check(&test);
    let data = |name: &str| test.root().join(name).display().to_string();
    let base = std::fs::read_to_string(test.root().join("project/base/main.tf")).expect("a module");
    test.write("base/main.tf", &base.replace("\"base\"", "\"moved\""));
    let other = data("other");
    let apply = ["--data", &other, "apply", "--auto-approve"];
    drop(test.cli(&apply).expect(0));
    assert_snapshot!(shown(&test, &test.cli(&["plan", "app"]).expect(0)), @"
    change set c2 on `local`

    app  no changes

    No changes: everything matches the configuration.
    ── stderr
    change set c2: plan on `local`
    ");
    // A home that has seen none of them.
    let (fresh, plan) = (data("fresh"), ["plan", "app", "--detailed-exitcode"]);
    drop(
        test.cli(&[&["--data", &fresh], &plan[..]].concat())
            .expect(0),
    );
    std::fs::remove_dir_all(data("states")).expect("a directory");
    std::fs::write(data("states"), "").expect("a file in its place");
    // Who cannot look makes do with what was seen, and says so.
    let said = test.cli(&["plan", "app"]);
    let said = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let copy = "warning: cannot read the state of stack `base` in its backend, so its values come from a copy (just now): \
                the engine could not initialise its backend";
    assert!(said.contains(copy), "{said}");
    let unseen = data("unseen");
    let said = test.cli(&["--data", &unseen, "plan", "app"]).expect(1);
    let error = "error: cannot read the state of stack `base` in its backend";
    assert!(said.stderr.contains(error), "{said}");
}

/// Who looks at what somebody else wrote has not written it.
#[test]
fn a_plan_is_not_blamed_for_what_it_saw() {
    let test = terrane();
    test.write("app/main.tf", IT);
    one(&test, &at(&test, "there"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = test.root().join("there/app.tfstate");
    let state = std::fs::read_to_string(&file).expect("a state");
    let state = state
        .replace("\"serial\":1", "\"serial\":2")
        .replace("\"input\":1", "\"input\":2")
        .replace("\"output\":1", "\"output\":2")
        .replace("\"value\":1", "\"value\":2");
    std::fs::write(&file, state).expect("a file");
    drop(test.cli(&["plan"]).expect(0));
    let said = test.cli(&["state", "blame", "app", "terraform_data.it", "input"]);
    let said = shown(&test, &said.expect(0));
    assert!(said.contains("not written by a terrane run"), "{said}");
    assert!(!said.contains("r2"), "{said}");
}

/// Who only takes a value from it must not get its state out of sight.
#[test]
fn a_dependent_does_not_take_another_state_for_that_of_its_upstream() {
    let test = project("path = \"STATES/${stack.state}.tfstate\"", "");
    check(&test);
    let file = test.project().join("terrane.hcl");
    let elsewhere = std::fs::read_to_string(&file).expect("a project");
    let elsewhere = elsewhere.replace("/states/", "/elsewhere/");
    test.write("terrane.hcl", &elsewhere);
    for stack in ["app", "base"] {
        let said = test.cli(&["plan", stack]).expect(4);
        let words = format!("{}{}", said.stdout, said.stderr);
        assert!(
            words.contains("contained resources before (serial 1)"),
            "{said}"
        );
    }
}

#[test]
fn a_state_that_is_still_here_gives_no_nulls_to_dependents() {
    let test = terrane();
    let there = at(&test, "there");
    let other = "target \"other\" { writers = [\"anyone\"] }\n";
    let app = stack("app", "inputs = { name = stack.base.output.name }");
    let app = app.replace("\"local\"", "\"other\"");
    let write = |head: &str| {
        let stacks = format!("{}{app}", stack("base", ""));
        test.write("terrane.hcl", &format!("{head}{other}{stacks}"));
    };
    test.write(
        "base/main.tf",
        &format!("{IT}output \"name\" {{ value = \"base\" }}\n"),
    )
    .write(
        "app/main.tf",
        "variable \"name\" { type = string }\nresource \"terraform_data\" \"it\" { input = var.name }\n",
    );
    write(HEAD);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let target = format!("target \"local\" {{\n  writers = [\"anyone\"]\n  {there}\n}}");
    write(&HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &target));
    assert_snapshot!(shown(&test, &test.cli(&["plan", "app"]).expect(4)), @"
    ── stderr
    error: the state of stack `base` is in this home (serial 1), but its target uses a backend of the
           engine
    hint: `terrane state export base --to engine` exports it to the engine's backend; it is enough if
          the state is there already
    [exit 4]
    ");
}
