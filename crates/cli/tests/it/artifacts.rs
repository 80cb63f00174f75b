//! Files that a stack writes: there in every later run, in no other tree, nowhere in clear, and never lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::Value;
use testkit::{SeededRng, TestTerrane, engines};

use crate::project::{HEAD, one_stack, runs, shown, stack, terrane};
use crate::story::{Story, gated, holding, resource};

/// What no file of the home may hold in clear; each test has its own, and its source does not name it.
fn secret(of: &str) -> String {
    format!("client-key-of-{of}-77ab0c9e12").to_uppercase()
}

const KEEPS: &str = "artifacts = [\"kubeconfig\", \"out/*\"]";

fn writes(of: &str, text: &str) -> String {
    let secret = secret(of).to_lowercase();
    format!(
        "umask 022; mkdir -p out; echo $(echo {secret} | tr a-z A-Z) {text} > kubeconfig; echo {text} > out/talosconfig"
    )
}

/// A module that reads what an earlier one wrote: it cannot be planned without it.
const READS: &str = r#"
output "read" {
  value     = file("${path.module}/kubeconfig")
  sensitive = true
}
output "also" { value = file("${path.module}/out/talosconfig") }
"#;

fn artifacts(test: &TestTerrane) -> Vec<(String, u64)> {
    let said = test
        .cli(&["output", "app", "--artifacts", "--json"])
        .expect(0);
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    let files = document["artifacts"].as_array().unwrap().iter();
    let fact = |file: &Value| {
        (
            file["path"].as_str().unwrap().to_owned(),
            file["size"].as_u64().unwrap(),
        )
    };
    files.map(fact).collect()
}

#[test]
fn what_a_stack_writes_is_there_in_its_next_run() {
    for (engine, _) in engines::all() {
        let cluster = |text: &str| resource("cluster", "", &writes("next", text));
        let story = Story::new(engine).stack("app", KEEPS, &cluster("first"));
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert_eq!(
            holding(&story, &secret("next")),
            Vec::<std::path::PathBuf>::new()
        );
        story.module("app", &(cluster("first") + READS));
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let read = story.cli(&["output", "app", "read", "--raw"]).expect(0);
        assert_eq!(read.stdout, format!("{} first\n", secret("next")));
        // In a fresh tree as well.
        story.settle();
        fs::remove_dir_all(story.data().join("slots")).unwrap();
        let again = story.cli(&["plan", "--all", "--detailed-exitcode"]);
        assert_eq!(again.code, Some(0), "{again}");
        assert_eq!(
            holding(&story, &secret("next")),
            Vec::<std::path::PathBuf>::new()
        );
    }
}

#[test]
fn they_are_copied_out_and_shown_no_more_than_needed() {
    let module = runs(&writes("copies", "first"), "1") + "output \"name\" { value = \"prod\" }\n";
    let test = one_stack(KEEPS, &module);
    assert_snapshot!(test.cli(&["output", "app", "--artifacts"]).expect(1), @"
    ── stderr
    error: stack `app` has no artifacts: it was not applied, or wrote none
    hint: `artifacts` in its block names the files that are kept
    [exit 1]
    ");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(test.cli(&["output", "app"]).expect(0), @r#"
    name = "prod"
    ── stderr
    2 artifacts are kept: `terrane output app --artifacts DIR` copies them
    "#);
    assert_snapshot!(test.cli(&["output", "app", "--artifacts"]).expect(0), @"
    ARTIFACT          BYTES   SHA256
    kubeconfig           38   f306a6395ffc3e69
    out/talosconfig       6   b640e840b19d3786
    ");
    let copied = test
        .cli(&["output", "app", "--artifacts", "copies"])
        .expect(0);
    assert_snapshot!(shown(&test, &copied), @"
    ── stderr
    Written: `ROOT/project/copies/kubeconfig`
    Written: `ROOT/project/copies/out/talosconfig`
    ");
    let kubeconfig = test.project().join("copies/kubeconfig");
    assert_eq!(
        fs::read_to_string(&kubeconfig).unwrap(),
        format!("{} first\n", secret("copies"))
    );
    let mode = fs::metadata(&kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The same once more is nothing new; another file is not written over unasked.
    drop(
        test.cli(&["output", "app", "--artifacts", "copies"])
            .expect(0),
    );
    fs::write(&kubeconfig, "mine").unwrap();
    fs::remove_dir_all(test.project().join("copies/out")).unwrap();
    let refused = test
        .cli(&["output", "app", "--artifacts", "copies"])
        .expect(1);
    assert_snapshot!(shown(&test, &refused), @"
    ── stderr
    error: `ROOT/project/copies/kubeconfig` already exists and is a different file
    hint: name another directory, or use `--force`
    [exit 1]
    ");
    assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), "mine");
    assert!(!test.project().join("copies/out").exists());
    let forced = [
        "output",
        "app",
        "--artifacts",
        "copies",
        "--force",
        "--json",
    ];
    let forced = test.cli(&forced).expect(0);
    assert!(!forced.to_string().contains(&secret("copies")), "{forced}");
    assert_eq!(
        fs::read_to_string(&kubeconfig).unwrap(),
        format!("{} first\n", secret("copies"))
    );
}

#[test]
fn one_that_the_module_removes_or_replaces_is_not_restored() {
    let test = one_stack(KEEPS, &runs(&writes("removed", "first"), "1"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(artifacts(&test).len(), 2);
    test.write(
        "app/main.tf",
        &runs(
            "rm kubeconfig; echo longer than before > out/talosconfig",
            "2",
        ),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(artifacts(&test), [("out/talosconfig".to_owned(), 19)]);
    test.write(
        "app/main.tf",
        &(runs("true", "2")
            + "output \"there\" { value = fileexists(\"${path.module}/kubeconfig\") }\n"),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let there = test.cli(&["output", "app", "there", "--raw"]).expect(0);
    assert_eq!(there.stdout, "false");
}

#[test]
fn what_a_failed_apply_wrote_is_kept() {
    let fails = "resource \"terraform_data\" \"fails\" {\n  depends_on = [terraform_data.runs]\n  provisioner \"local-exec\" { command = \"exit 3\" }\n}\n";
    let test = one_stack(KEEPS, &(runs(&writes("failed", "first"), "1") + fails));
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    assert_eq!(artifacts(&test).len(), 2);
    test.write(
        "app/main.tf",
        &(runs(&writes("failed", "first"), "1") + READS),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn a_destroy_and_a_hook_see_them_and_a_hook_may_write_them() {
    let ends = "resource \"terraform_data\" \"ends\" {\n  provisioner \"local-exec\" {\n    when    = destroy\n    command = \"cat kubeconfig > WHERE\"\n  }\n}\n";
    let test = terrane();
    let destroyed = test.root().join("destroyed");
    let context = "context \"fetch\" {\n  autoattach = [\"*\"]\n  hook \"after\" \"apply\" { run = [\"sh\", \"-c\", \"cat kubeconfig > out/fetched\"] }\n}\n";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stack("app", KEEPS)),
    )
    .write(
        "app/main.tf",
        &(runs(&writes("hook", "first"), "1")
            + &ends.replace("WHERE", &destroyed.display().to_string())),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let size = u64::try_from(secret("hook").len()).unwrap() + 7;
    let files = [
        ("kubeconfig", size),
        ("out/fetched", size),
        ("out/talosconfig", 6),
    ];
    assert_eq!(
        artifacts(&test),
        files.map(|(path, size)| (path.to_owned(), size))
    );
    drop(test.cli(&["destroy", "app", "--auto-approve"]).expect(0));
    assert_eq!(
        fs::read_to_string(destroyed).unwrap(),
        format!("{} first\n", secret("hook"))
    );
}

#[test]
fn what_cannot_be_kept_is_named_and_costs_nothing_else() {
    let command = format!("{}; ln -s /etc/passwd out/link", writes("refused", "first"));
    let test = one_stack(KEEPS, &runs(&command, "1"));
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    let words: Vec<&str> = said.stderr.split_whitespace().collect();
    let expected = "applied, but artifact `out/link` is not kept: it is a symbolic link";
    assert!(words.join(" ").contains(expected), "{said}");
    assert_eq!(artifacts(&test).len(), 2);
}

#[test]
fn a_file_of_the_source_is_not_written_over() {
    let test = one_stack(KEEPS, &runs(&writes("source", "first"), "1"));
    test.write("app/out/.gitkeep", "");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(artifacts(&test).len(), 2);
    test.write("app/kubeconfig", "of the source");
    assert_snapshot!(test.cli(&["plan"]).expect(1), @"
    ── stderr
    error: stack `app` lists `kubeconfig` in `artifacts`, but the source already has `app/kubeconfig`
    hint: remove it from the source, or add it to `.gitignore`: `app/kubeconfig`
    [exit 1]
    ");
}

/// The order that is written down in `control::runner::workspace::artifacts`.
#[test]
fn a_killed_runner_costs_no_artifact() {
    let module = resource("cluster", "", &writes("killed", "first"))
        + &gated("slow", "depends_on = [terraform_data.cluster]");
    let story = Story::new("tofu").stack("app", KEEPS, &module).stack(
        "beside",
        "",
        "output \"a\" { value = 1 }\n",
    );
    let apply = story.start("apply", &["apply", "app", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("slow");
    story.settle();
    // Whoever comes next lays the tree out anew.
    let _ = story.cli(&["plan", "beside"]).expect(0);
    assert_eq!(artifacts(&story).len(), 2);
    story.module("app", &(module + READS));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    story.settle();
    assert_eq!(
        holding(&story, &secret("killed")),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn killed_at_any_moment_no_artifact_is_lost() {
    let seed = testkit::seed();
    let mut dice = SeededRng::new(seed);
    for round in 0..6 {
        let module = |text: &str| resource(&format!("cluster_{text}"), "", &writes("random", text));
        let story = Story::new("tofu").stack("app", KEEPS, &module("first"));
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        testkit::pause(std::time::Duration::from_millis(dice.roll(1000)));
        if let Some(runner) = ["r1"].iter().find_map(|run| story.live_runner(run)) {
            testkit::kill(runner);
        }
        let _ = apply.wait();
        story.settle();
        let what = format!("seed {seed}, round {round}");
        // Nothing is made twice, so nothing writes the files a second time.
        for _ in 0..3 {
            let again = story.cli(&["apply", "--auto-approve"]);
            if again.code == Some(0) {
                break;
            }
        }
        story.module("app", &(module("first") + READS));
        let read = story.cli(&["apply", "--auto-approve"]);
        assert_eq!(read.code, Some(0), "{what}: {read}");
        story.settle();
        assert_eq!(
            holding(&story, &secret("random")),
            Vec::<std::path::PathBuf>::new(),
            "{what}"
        );
    }
}

#[test]
fn a_backup_of_all_states_has_them() {
    let test = one_stack(KEEPS, &runs(&writes("backup", "first"), "1"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    drop(
        test.cli(&["state", "export", "--all", "--to", "../backup"])
            .expect(0),
    );
    let before = artifacts(&test);
    fs::rename(test.home(), test.root().join("gone")).unwrap();
    let import = [
        "state",
        "import",
        "--all",
        "--from",
        "../backup",
        "--no-plan",
    ];
    let brought = test.cli(&import).expect(0);
    assert!(
        brought.stderr.contains("2 artifacts of stacks are here"),
        "{brought}"
    );
    assert_eq!(artifacts(&test), before);
    test.write(
        "app/main.tf",
        &(runs(&writes("backup", "first"), "1") + READS),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    // Later ones are not written over by an old backup.
    test.write("app/main.tf", &runs(&writes("backup", "second one"), "2"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let newer = artifacts(&test);
    drop(test.cli(&import));
    assert_eq!(artifacts(&test), newer);
    let file = test.root().join("backup/app.artifacts/kubeconfig");
    fs::write(file, "changed").unwrap();
    let changed = test.cli(&import).expect(1);
    let words: Vec<&str> = changed.stderr.split_whitespace().collect();
    let expected = "is not the exported file";
    assert!(words.join(" ").contains(expected), "{changed}");
}

#[test]
fn they_come_back_without_the_database() {
    let test = one_stack(KEEPS, &runs(&writes("database", "first"), "1"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let before = artifacts(&test);
    for file in ["terrane.db", "terrane.db-wal", "terrane.db-shm"] {
        let _ = fs::remove_file(test.home().join(file));
    }
    drop(test.cli(&["state", "recover", "--to", "../out"]).expect(0));
    let read = fs::read_to_string(test.root().join("out/k3v9qd/app/artifacts/kubeconfig"));
    assert_eq!(read.unwrap(), format!("{} first\n", secret("database")));
    let said = test.cli(&["state", "recover", "--into-home"]).expect(0);
    assert!(
        said.stderr
            .contains("It contains the artifacts of 1 state again"),
        "{said}"
    );
    assert_eq!(artifacts(&test), before);
}
