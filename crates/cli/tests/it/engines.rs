//! Which engine serves which stack, what is said if none does, and how often `init` runs.

use std::path::PathBuf;

use insta::assert_snapshot;
use testkit::{TestTerrane, engines};

use crate::project::{HEAD, one_stack, runs, shown, stack, terrane};

/// Versions of the engines at hand differ from machine to machine.
fn levelled(test: &TestTerrane, said: &testkit::CommandOutput) -> String {
    let mut text = shown(test, said);
    for (name, version) in versions(test) {
        text = text.replace(&version, &format!("<{name}'s>"));
    }
    text
}

fn versions(test: &TestTerrane) -> Vec<(String, String)> {
    let said = test.cli(&["engine", "list", "--json"]).expect(0);
    let list: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    let engines = list["engines"].as_array().expect("a list");
    engines
        .iter()
        .map(|engine| {
            let word = |key: &str| engine[key].as_str().expect("a text").to_owned();
            (word("flavor"), word("version"))
        })
        .collect()
}

/// A program in front of everything else on `PATH`.
fn script(test: &TestTerrane, name: &str, text: &str) -> PathBuf {
    let path = test.root().join("bin").join(name);
    testkit::write_program(&path, text);
    path
}

#[test]
fn a_wrong_version_names_both_and_the_remedy() {
    let test = one_stack("", "");
    let pinned = HEAD.replace(
        "engine \"tofu\" {}",
        "engine \"tofu\" { version = \"~> 99.1\" }",
    );
    test.write("terrane.hcl", &format!("{pinned}{}", stack("app", "")));
    assert_snapshot!(levelled(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: `tofu ~> 99.1` is required, but there is only <tofu's> at `ROOT/bin/tofu`
    hint: `terrane engine install` installs a suitable version
    [exit 1]
    ");
}

#[test]
fn the_engines_at_hand_are_listed() {
    let test = terrane();
    let said = test.cli(&["engine", "list"]).expect(0);
    let first = said.stdout.lines().nth(1).unwrap_or_default();
    assert!(
        first.starts_with("tofu") && first.contains("PATH"),
        "{said}"
    );
    assert!(
        versions(&test)
            .iter()
            .any(|(name, version)| name == "tofu" && !version.is_empty())
    );
}

#[test]
fn a_list_says_which_stacks_use_an_engine() {
    let test = one_stack("", "");
    let said = test.cli(&["engine", "list"]).expect(0);
    let tofu = said.stdout.lines().find(|line| line.starts_with("tofu"));
    assert!(
        tofu.is_some_and(|line| line.contains("all stacks")),
        "{said}"
    );
    let pinned = HEAD.replace(
        "engine \"tofu\" {}",
        "engine \"tofu\" { version = \"~> 99.1\" }",
    );
    test.write("terrane.hcl", &format!("{pinned}{}", stack("app", "")));
    let said = test.cli(&["engine", "list"]).expect(0);
    assert_snapshot!(said.stderr, @"
    warning: no engine here fits `app`
    hint: `terrane engine install` gets one
    ");
}

#[test]
fn without_any_engine_the_way_to_one_is_shown() {
    let test = one_stack("", "");
    let empty = test.root().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let git = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap();
    std::os::unix::fs::symlink(git, empty.join("git")).unwrap();
    let test = test.env("PATH", &empty.display().to_string());
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: there is no `tofu`: neither on `PATH` nor in `ROOT/cache/terrane/engines`
    hint: `terrane engine install` installs a suitable version
    [exit 1]
    ");
    assert_snapshot!(shown(&test, &test.cli(&["engine", "list"]).expect(0)), @"
    ── stderr
    There is no engine yet. `terrane engine install` gets one.
    ");
    // Nothing that needs no engine asks for one.
    drop(test.cli(&["validate"]).expect(0));
    drop(test.cli(&["graph"]).expect(0));
}

#[test]
fn an_engine_that_talks_nonsense_is_named() {
    let test = one_stack("", "");
    script(&test, "tofu", "#!/bin/sh\necho 'hello there'\n");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: cannot read the version of `ROOT/bin/tofu`: exit code 0, hello there
    hint: repair or remove `ROOT/bin/tofu`
    hint: `terrane engine install` installs a suitable version
    [exit 1]
    ");
}

#[test]
fn an_engine_that_talks_nonsense_while_it_plans_fails_its_stack() {
    let test = one_stack("", "");
    script(
        &test,
        "tofu",
        "#!/bin/sh\ncase \"$1\" in\n  version) echo '{\"terraform_version\": \"1.11.0\"}' ;;\n  *) echo '{\"type\": 7}'; echo '}garbage{'; exit 3 ;;\nesac\n",
    );
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @r#"
    change set c1 on `local`

    app  failed while planning
        Error: could not initialise: the engine ended with exit code 3
          {"type": 7}
          }garbage{

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c1: plan on `local`
    [exit 1]
    "#);
}

#[test]
fn an_engine_that_claims_success_without_a_plan_fails_its_stack() {
    let test = one_stack("", "");
    script(
        &test,
        "tofu",
        "#!/bin/sh\ncase \"$1\" in\n  version) echo '{\"terraform_version\": \"1.11.0\"}' ;;\n  init) ;;\n  *) echo 'garbage'; exit 2 ;;\nesac\n",
    );
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    change set c1 on `local`

    app  failed while planning
        Error: could not read the plan: the engine ended with exit code 2
          garbage

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c1: plan on `local`
    [exit 1]
    ");
}

#[test]
fn two_engines_serve_one_project() {
    if engines::terraform().is_none() {
        return;
    }
    let test = terrane();
    let file = format!(
        "{HEAD}{}{}",
        stack("app", ""),
        stack(
            "old",
            "engine \"terraform\" {}\n  inputs = { from = stack.app.output.name }"
        )
    );
    test.write("terrane.hcl", &file)
        .write(
            "app/main.tf",
            "resource \"terraform_data\" \"a\" { input = \"x\" }\noutput \"name\" { value = terraform_data.a.output }\n",
        )
        .write(
            "old/main.tf",
            &format!(
                "variable \"from\" {{ type = string }}\n{}output \"name\" {{ value = \"y${{var.from}}\" }}\n",
                runs(&format!("cat /proc/$PPID/cmdline > {}", test.root().join("program").display()), "var.from")
            ),
        );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "old", "name", "--raw"]).expect(0);
    assert_eq!(said.stdout, "yx");
    let program = std::fs::read_to_string(test.root().join("program")).unwrap();
    assert!(program.contains("terraform"), "{program}");
}

/// How many times `init` ran so far.
fn inits(test: &TestTerrane) -> usize {
    let runs = test.home().join("projects/k3v9qd/runs");
    std::fs::read_dir(runs)
        .expect("runs")
        .filter(|run| {
            let dir = run.as_ref().expect("a run").path();
            dir.join("init.jsonl").exists()
        })
        .count()
}

#[test]
fn init_runs_only_if_something_it_depends_on_changed() {
    let test = one_stack("", "output \"a\" { value = 1 }\n");
    test.write("modules/one/main.tf", "output \"x\" { value = 1 }\n")
        .write("modules/two/main.tf", "output \"x\" { value = 2 }\n");
    let apply = |module: &str| {
        test.write("app/main.tf", module);
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        inits(&test)
    };
    assert_eq!(apply("output \"a\" { value = 1 }\n"), 1, "the first");
    assert_eq!(apply("output \"a\" { value = 1 }\n"), 1, "unchanged");
    assert_eq!(apply("output \"a\" { value = 2 }\n"), 1, "another value");
    let versioned = "terraform { required_version = \">= 1.5\" }\noutput \"a\" { value = 2 }\n";
    assert_eq!(apply(versioned), 2, "another required version");
    let calling = format!("{versioned}module \"m\" {{ source = \"../modules/one\" }}\n");
    assert_eq!(apply(&calling), 3, "a module");
    assert_eq!(apply(&calling.replace("one", "two")), 4, "another module");
    assert_eq!(apply(&calling.replace("one", "two")), 4, "unchanged again");
}

#[test]
fn a_suitable_engine_on_the_path_is_installed_already() {
    let test = one_stack("", "");
    assert_snapshot!(levelled(&test, &test.cli(&["engine", "install"]).expect(0)), @"tofu <tofu's> is on PATH: ROOT/bin/tofu");
}

#[test]
fn without_providers_there_is_nothing_to_lock() {
    let test = one_stack("", "");
    assert_snapshot!(test.cli(&["engine", "lock"]).expect(0), @"
    ── stderr
    No lock file changed.
    ");
}

/// Where others apply, what they get must be what was reviewed.
#[test]
fn a_missing_lock_file_is_refused_on_a_target_of_others() {
    let test = terrane();
    let target = "target \"local\" { writers = [\"server\"] }";
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", target);
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write(
            "app/main.tf",
            "terraform {\n  required_providers {\n    random = { source = \"hashicorp/random\" }\n  }\n}\n",
        );
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(4)), @"
    change set c1 on `local`

    app  failed while planning
        the provider lock file `.terraform.lock.hcl` is missing
        run `terrane engine lock` and commit what it writes

    Plan: no changes so far; 1 failed.
    ── stderr
    change set c1: plan on `local`
    [exit 4]
    ");
}
