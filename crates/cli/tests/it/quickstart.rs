//! The quickstart, from nothing to applied and unchanged, with both engines, in Git and outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::{allow_duplicates, assert_snapshot};
use testkit::{CommandOutput, TestTerrane, engines};

use crate::story::{essence, files, holding, is_busy, terrane};

/// Who must be done before whom is begun.
const EDGES: [(&str, &str); 8] = [
    ("network", "cluster"),
    ("network", "database"),
    ("cluster", "monitoring"),
    ("database", "monitoring"),
    ("dns", "web-staging"),
    ("database", "web-staging"),
    ("cluster", "web-staging"),
    ("web-staging", "web-production"),
];

#[test]
fn both_engines_apply_in_order_and_find_it_unchanged() {
    for (engine, _) in engines::all() {
        let test = quickstart(engine);
        let first = test.cli(&["apply", "--auto-approve"]).expect(0);
        check_order(&first);
        allow_duplicates! {
            assert_snapshot!(essence(&first), @"
            change set c1: apply on `local`
            ✓ cluster          applied 4 changes
            ✓ database         applied 1 change
            ✓ dns              applied 1 change
            ✓ monitoring       applied 1 change
            ✓ network          applied 4 changes
            ✓ web-production   applied 3 changes
            ✓ web-staging      applied 3 changes
            Done: 7 stacks applied in 0 s.
            [exit 0]
            ");
        }
        let url = test.cli(&["output", "web-production", "url", "--raw"]);
        assert_eq!(url.expect(0).stdout, "https://production.apps.example.io");

        let second = test.cli(&["apply", "--auto-approve"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(essence(&second), @"
            change set c2: apply on `local`
              cluster          untouched: nothing it consumes changes
              database         untouched: nothing it consumes changes
              dns              no changes
              monitoring       untouched: nothing it consumes changes
              network          no changes
              web-production   untouched: nothing it consumes changes
              web-staging      untouched: nothing it consumes changes
            Done: 2 stacks unchanged, 5 untouched in 0 s.
            [exit 0]
            ");
        }
        let plan = test.cli(&["plan", "--detailed-exitcode"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(plan.stdout, @"
            change set c3 on `local`

            dns             no changes
            network         no changes
            cluster         untouched: nothing it consumes changes
            database        untouched: nothing it consumes changes
            monitoring      untouched: nothing it consumes changes
            web-staging     untouched: nothing it consumes changes
            web-production  untouched: nothing it consumes changes

            No changes; 5 stacks untouched: `--all` plans everything.
            ");
        }
    }
}

#[test]
fn one_change_reaches_only_what_depends_on_it() {
    let test = quickstart("tofu");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let text = test.read("terrane.hcl");
    test.write("terrane.hcl", &text.replace("nodes   = 3", "nodes   = 4"));
    let plan = test.cli(&["plan", "--detailed-exitcode"]).expect(2);
    // Some of their lines show identifiers, which differ each time.
    let is_output = |line: &&str| line.trim_start().starts_with("output ");
    let lines: Vec<&str> = plan
        .stdout
        .lines()
        .filter(|line| !is_output(line))
        .collect();
    assert_snapshot!(lines.join("\n"), @r#"
    change set c2 on `local`

    dns             no changes
    network         no changes

    cluster         ~ 3 change
      ~ terraform_data.pool["a"]
          input.kubelet   1 line added, 1 removed
                apiVersion: kubelet.config.k8s.io/v1beta1
                kind: KubeletConfiguration
              - maxPods: 90
              + maxPods: 120
                systemReserved:
                  cpu: 100m
              … 1 line unchanged
          input.nodes     3 → 4
          … 6 unchanged
      ~ terraform_data.pool["b"]
          input.kubelet   1 line added, 1 removed
                apiVersion: kubelet.config.k8s.io/v1beta1
                kind: KubeletConfiguration
              - maxPods: 90
              + maxPods: 120
                systemReserved:
                  cpu: 100m
              … 1 line unchanged
          input.nodes     3 → 4
          … 6 unchanged
      ~ terraform_data.pool["c"]
          input.kubelet   1 line added, 1 removed
                apiVersion: kubelet.config.k8s.io/v1beta1
                kind: KubeletConfiguration
              - maxPods: 90
              + maxPods: 120
                systemReserved:
                  cpu: 100m
              … 1 line unchanged
          input.nodes     3 → 4
          … 6 unchanged
      outputs
        ~ node_count   9 → 12

    database        untouched: nothing it consumes changes
    monitoring      untouched: nothing it consumes changes
    web-staging     untouched: nothing it consumes changes
    web-production  untouched: nothing it consumes changes

    policy          passed (1 checked)

    Plan: 0 to add, 3 to change, 0 to replace, 0 to destroy, in 1 of 7 stacks.
    "#);
}

/// Who takes a zone away hears of the pool that goes with it, while the network is still whole.
#[test]
fn what_policy_would_deny_of_a_dependent_is_in_the_plan() {
    let test = quickstart("tofu");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let text = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &text.replace("[\"a\", \"b\", \"c\"]", "[\"a\", \"b\"]"),
    );
    let plan = test.cli(&["plan"]).expect(0);
    let said = plan
        .stdout
        .lines()
        .find(|line| line.contains("would deny  "));
    assert_snapshot!(said.unwrap_or_default(), @r#"  would deny  stateful  cluster: terraform_data.pool["c"] is deleted, and nobody asked for a destroy"#);
}

#[test]
fn the_source_stays_clean_outside_git() {
    let test = quickstart("tofu");
    let before = files(&test.project());
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(files(&test.project()), before);
}

#[test]
fn the_source_stays_clean_in_git() {
    let test = quickstart("tofu");
    test.commit_all();
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(test.git(&["status", "--porcelain", "--ignored"]), "");
    let unchanged = test.cli(&["plan", "changed:HEAD"]).expect(0);
    assert_snapshot!(unchanged, @"
    ── stderr
    Nothing is selected, so there is nothing to do.
    ");
}

#[test]
fn the_home_is_private_and_holds_nothing_in_clear() {
    let test = quickstart("tofu");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    test.wait_until("the end of all runners", || !is_busy(&test));
    let password = test.cli(&["output", "database", "password", "--raw"]);
    let password = password.expect(0).stdout;
    assert_eq!(holding(&test, &password), Vec::<std::path::PathBuf>::new());

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&test.home()), 0o700);
    let open: Vec<String> = files(&test.home())
        .iter()
        // Slots hold the source and what the engine makes of it, below a private directory.
        .filter(|path| !path.components().any(|part| part.as_os_str() == "slots"))
        .filter(|path| mode(path) & 0o077 != 0)
        .map(|path| format!("{:o} {}", mode(path), path.display()))
        .collect();
    assert_eq!(open, Vec::<String>::new());
}

fn quickstart(engine: &str) -> TestTerrane {
    let test = terrane();
    test.copy_example("quickstart");
    let text = test.read("terrane.hcl");
    let wanted = format!("engine \"{engine}\"");
    test.write("terrane.hcl", &text.replace("engine \"tofu\"", &wanted));
    test
}

#[track_caller]
fn check_order(said: &CommandOutput) {
    let at = |mark: &str, stack: &str, words: &str| {
        let is_it = |line: &str| {
            let mut parts = line.split_whitespace().skip(1);
            parts.next() == Some(mark) && parts.next() == Some(stack) && line.contains(words)
        };
        said.stderr.lines().position(is_it)
    };
    for (first, second) in EDGES {
        let done = at("✓", first, "applied");
        let begun = at("●", second, "planning");
        assert!(
            done.is_some() && done < begun,
            "`{first}` before `{second}`: {said}"
        );
    }
}
