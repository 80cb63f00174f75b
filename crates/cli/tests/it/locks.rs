//! Who holds which state, and what becomes of a holder whose lock was broken.

use std::fs;

use insta::assert_snapshot;
use testkit::{CommandOutput, engines};

use crate::story::{Story, essence, gated, noted};

/// What was said, with what differs between machines levelled.
pub(crate) fn levelled(story: &Story, said: &CommandOutput) -> String {
    let root = story.root().display().to_string();
    let text = said.to_string().replace(&root, "ROOT");
    let words = |line: &str| {
        let level = |word: &str| {
            let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            if bare.len() == 36 && bare.matches('-').count() == 4 {
                return word.replace(bare, "ID");
            }
            if let Some((before, rest)) = word.split_once("story-")
                && ["", "`"].contains(&before)
            {
                let name = rest.split_once('/').map_or(rest, |(_, name)| name);
                return format!("{before}story/{name}");
            }
            match word.split_once('@') {
                Some(_) => "USER@HOST".to_owned(),
                None => word.to_owned(),
            }
        };
        let words: Vec<String> = line.split_whitespace().map(level).collect();
        words.join(" ")
    };
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

/// A stack that was applied once and is being changed: its engine waits at `slow`.
pub(crate) fn changing(engine: &str) -> Story {
    let story = Story::new(engine).stack("base", "", &noted("first"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let more = gated("slow", "depends_on = [terraform_data.first]");
    story.module("base", &format!("{}{more}", noted("first")));
    story
}

/// Somebody else's next version: what is there, one serial on, with an output more.
pub(crate) fn next_version(story: &Story) -> String {
    let state = story.cli(&["state", "pull", "base"]).expect(0).stdout;
    let state = with_serial(&state, 2);
    // The two engines indent differently.
    let outputs = "{\"by\":{\"value\":\"hand\",\"type\":\"string\"}}";
    let next = state
        .replace("\"outputs\":{}", &format!("\"outputs\":{outputs}"))
        .replace("\"outputs\": {}", &format!("\"outputs\": {outputs}"));
    assert_ne!(state, next);
    fs::write(story.root().join("next.tfstate"), &next).unwrap();
    next
}

/// The same state, whose serial was 1.
pub(crate) fn with_serial(state: &str, serial: u64) -> String {
    let other = state
        .replace("\"serial\":1,", &format!("\"serial\":{serial},"))
        .replace("\"serial\": 1,", &format!("\"serial\": {serial},"));
    assert_ne!(state, other);
    other
}

#[test]
fn a_lock_is_shown_with_its_run_and_not_broken_while_that_lives() {
    let story = changing("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let list = story.cli(&["lock", "list"]).expect(0);
    let shown = levelled(&story, &list);
    let last: Vec<&str> = shown.lines().last().unwrap().split(" apply ").collect();
    assert_eq!(last[0], "base USER@HOST");
    assert!(last[1].ends_with("run r2, alive"), "{shown}");

    let json = story.cli(&["lock", "list", "--json"]).expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["locks"][0]["run"], "r2");
    assert_eq!(json["locks"][0]["alive"], true);

    let refused = story.cli(&["lock", "break", "base", "--reason", "it takes long"]);
    assert_snapshot!(levelled(&story, &refused.expect(4)), @"
    ── stderr
    error: run r2, which holds the lock on state `story/base`, is still running
    hint: wait for r2, or interrupt it where it was started
    hint: `--force` breaks the lock anyway; later writes of r2 are then refused
    [exit 4]
    ");
    let refused = story.cli(&["lock", "break", "base", "--reason", " "]);
    let _ = refused.expect(64);

    story.open("slow");
    let _ = apply.wait().expect(0);
    let list = story.cli(&["lock", "list"]).expect(0);
    assert_eq!(list.stderr, "Nothing is locked.\n");
    let none = story.cli(&["lock", "break", "base", "--reason", "why not"]);
    assert_snapshot!(levelled(&story, &none.expect(1)), @"
    ── stderr
    error: state `story/base` is not locked
    hint: `terrane lock list` lists all locks
    [exit 1]
    ");
}

#[test]
fn an_orphan_names_the_command_that_resolves_it() {
    let story = changing("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r2"));
    story.open("slow");
    story.settle();
    let list = story.cli(&["lock", "list"]).expect(0);
    let shown = levelled(&story, &list).replace('\n', " ");
    assert!(
        shown.ends_with("run r2 is dead; release the lock: `terrane plan base`"),
        "{shown}"
    );
    let _ = story.cli(&["plan", "base"]).expect(0);
    let list = story.cli(&["lock", "list"]).expect(0);
    assert_eq!(list.stderr, "Nothing is locked.\n");
}

#[test]
fn a_stale_writer_is_fenced_and_what_it_made_waits_for_a_person() {
    for (engine, _) in engines::all() {
        let story = changing(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        let next = next_version(&story);
        let forced = [
            "lock",
            "break",
            "base",
            "--auto-approve",
            "--force",
            "--reason",
            "it hangs",
        ];
        let _ = story.cli(&forced).expect(0);
        let file = story.root().join("next.tfstate").display().to_string();
        let push = [
            "state",
            "push",
            "base",
            &file,
            "--auto-approve",
            "--reason",
            "by hand",
        ];
        let _ = story.cli(&push).expect(0);
        // Its engine has made something, and must not write over what came in between.
        story.open("slow");
        let said = apply.wait().expect(1);
        assert!(essence(&said).contains("is quarantined as"), "{said}");
        assert_eq!(story.cli(&["state", "pull", "base"]).expect(0).stdout, next);

        let blocked = story.cli(&["apply", "--auto-approve"]).expect(4);
        assert!(
            blocked
                .stderr
                .contains("run r2 left a state that was quarantined"),
            "{blocked}"
        );
        assert!(
            blocked.stderr.contains("terrane run discard r2 --reason"),
            "{blocked}"
        );
        let open = story.cli(&["run", "list", "--open"]).expect(0);
        let decide =
            "`terrane state push base --kept r2 --reason …` or `terrane run discard r2 --reason …`";
        assert!(open.stdout.contains("QUARANTINED"), "{open}");
        assert!(open.stdout.contains(decide), "{open}");
        let plan = story.cli(&["plan"]).expect(0);
        assert!(plan.stdout.contains("left a quarantined state"), "{plan}");
        if engine == "tofu" {
            decide_to_push(&story);
        } else {
            decide_to_discard(&story);
        }
    }
}

/// What was kept aside becomes the newest version: nothing is made twice.
fn decide_to_push(story: &Story) {
    let kept = [
        "state",
        "push",
        "base",
        "--kept",
        "r2",
        "--reason",
        "it has it",
    ];
    let shown = story.cli(&kept).expect(3);
    assert!(shown.stderr.contains("+ terraform_data.slow"), "{shown}");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(4);
    let pushed = story.cli(&[&kept[..], &["--auto-approve"]].concat());
    let _ = pushed.expect(0);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow"]);
}

/// A person says that it is not needed: the next apply makes it again.
fn decide_to_discard(story: &Story) {
    let discard = ["run", "discard", "r2", "--reason", "it was removed by hand"];
    let _ = story.cli(&discard).expect(0);
    let again = story.cli(&discard).expect(1);
    assert!(
        again.stderr.contains("left no quarantined state"),
        "{again}"
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "slow"]);
}
