//! A runner killed while facts are on their way, and places that are not any more what they were.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use testkit::write_program;

use crate::story::{Story, essence, noted};

/// A stack with facts. Whoever pushes them waits in the repository until the story opens `push`.
fn story() -> Story {
    let base = format!("{}output \"name\" {{ value = \"base\" }}\n", noted("base"));
    let publish =
        "publish \"runtime\" {\n    path   = \"a.yaml\"\n    values = { name = output.name }\n  }";
    let story = Story::new("tofu")
        .block("facts \"runtime\" { repository = \"../facts.git\" }")
        .stack("base", publish, &base);
    drop(story.git(&["init", "--quiet", "--bare", "../facts.git"]));
    story
}

fn hold_pushes(story: &Story) {
    let root = story.root().display().to_string();
    let hook = format!(
        "#!/bin/sh\necho $$ >> {root}/push.started\n\
         while [ -d {root} ] && [ ! -e {root}/push.go ]; do sleep 0.05; done\n"
    );
    write_program(&story.root().join("facts.git/hooks/pre-receive"), &hook);
}

/// How many pushes have begun.
fn pushes(story: &Story) -> usize {
    let text = fs::read_to_string(story.root().join("push.started")).unwrap_or_default();
    text.lines().count()
}

fn commits(story: &Story) -> String {
    let git = "--git-dir=../facts.git";
    story.git(&[git, "log", "--format=%s", "--reverse", "facts"])
}

#[test]
fn a_runner_that_is_killed_while_it_pushes_publishes_once() {
    let story = story();
    hold_pushes(&story);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the push", || pushes(&story) == 1);
    testkit::kill(story.runner("r1"));
    story.open("push");
    drop(apply.wait().expect(0));
    assert_eq!(commits(&story), "publish facts of base\n");
    // What was pushed by one that is dead is nobody else's.
    drop(story.cli(&["facts", "diff"]).expect(0));
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(commits(&story), "publish facts of base\n");
}

/// Two terminals come at the same moment: one of them ends what is abandoned, the other must not wait for it in vain.
#[test]
fn what_terminal_and_runner_left_is_ended_by_whoever_comes_next() {
    let story = story();
    hold_pushes(&story);
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_until("the push", || pushes(&story) == 1);
    apply.kill();
    drop(apply.wait());
    testkit::kill(story.runner("r1"));
    let again = story.start("again", &["apply", "--auto-approve"]);
    let other = story.start("other", &["apply", "--auto-approve"]);
    story.wait_until("another push", || pushes(&story) == 2);
    story.open("push");
    drop(again.wait().expect(0));
    drop(other.wait().expect(0));
    assert_eq!(commits(&story), "publish facts of base\n");
    assert_eq!(story.made(), ["base"]);
    drop(story.cli(&["facts", "diff"]).expect(0));
}

#[test]
fn a_repository_that_disappears_is_named_and_comes_back() {
    for is_link in [false, true] {
        let story = story();
        let (here, away) = (
            story.root().join("facts.git"),
            story.root().join("away.git"),
        );
        if is_link {
            let real = story.root().join("real.git");
            fs::rename(&here, &real).unwrap();
            std::os::unix::fs::symlink(&real, &here).unwrap();
        }
        check_disappearance(&story, &here, &away);
    }
}

fn check_disappearance(story: &Story, here: &Path, away: &Path) {
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    fs::rename(here, away).unwrap();
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    let said = essence(&said).replace(&story.root().display().to_string(), "ROOT");
    let line = said.lines().find(|line| line.contains("not published"));
    insta::allow_duplicates! {
        assert_snapshot!(line.unwrap_or_default(), @"✗ base   applied, not published: cannot use the facts at `runtime`: could not read `ROOT/project/../facts.git`: 'ROOT/project/../facts.git' does not appear to be a git repository; Could not read from remote repository.");
    }
    assert!(
        said.contains("must name a repository that exists"),
        "{said}"
    );
    fs::rename(away, here).unwrap();
    drop(story.cli(&["run", "retry", "r2"]).expect(0));
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    // It is the same one: nothing was withdrawn from it.
    assert_eq!(commits(story), "publish facts of base\n");
    drop(story.cli(&["facts", "diff"]).expect(0));
}

#[test]
fn a_kubeconfig_that_is_none_is_said_and_the_way_out_named() {
    let module = |kubeconfig: &str| {
        format!(
            "{}output \"kubeconfig\" {{\n  sensitive = true\n  value     = \"{kubeconfig}\"\n}}\n",
            noted("base")
        )
    };
    let stages = r#"
  bootstrap "command" {
    run        = ["true"]
    kubeconfig = output.kubeconfig
  }
  gate "kubernetes" "nodes" {
    kubeconfig = output.kubeconfig
    kind       = "Namespace"
    name       = "default"
    field      = "status.phase"
    expect     = "Active"
    failures   = 1
  }"#;
    let story = Story::new("tofu").stack("base", stages, &module("marked-garbage"));
    let said = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert_snapshot!(essence(&said), @"
    change set c1: apply on `local`
    ✗ base   applied, not bootstrapped: bootstrap `command`: cannot parse the kubeconfig as YAML or JSON (terrane.hcl:11)
    ✗ base   applied, not done: failed while bootstrapping, after 0 s
        bootstrap `command`: cannot parse the kubeconfig as YAML or JSON (terrane.hcl:11)

    error: change set c1 stopped: 1 applied but not done
    hint: fix the cause, then `terrane run retry r1` continues there
    [exit 1]
    ");
    let said = story.cli(&["destroy", "--auto-approve"]).expect(1);
    let words: Vec<&str> = said.stderr.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains(
            "nothing was destroyed: could not find its cluster: cannot parse the kubeconfig"
        ),
        "{words}"
    );
    assert!(
        words.contains("remove the `bootstrap` block from the project"),
        "{words}"
    );
    assert!(!words.contains("marked-garbage"), "{words}");
    // The way out that is named.
    let text = fs::read_to_string(story.project().join("terrane.hcl")).unwrap();
    let start = text.find("  bootstrap").unwrap();
    let end = text.find("  gate").unwrap();
    let without = format!("{}{}", &text[..start], &text[end..]);
    story.write("terrane.hcl", &without);
    drop(story.cli(&["destroy", "--auto-approve"]).expect(0));
}
