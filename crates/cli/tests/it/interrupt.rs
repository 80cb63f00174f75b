//! Ctrl-C in the middle of an apply: once ends the engines in order, twice leaves them to it.

use insta::{allow_duplicates, assert_snapshot};
use testkit::engines;

use crate::story::{Story, essence, gated, link, noted, takes};

fn story(engine: &str) -> Story {
    let base = format!(
        "{}{}output \"name\" {{ value = \"base\" }}\n",
        noted("first"),
        gated("slow", "depends_on = [terraform_data.first]")
    );
    Story::new(engine)
        .stack("base", "", &base)
        .stack("top", &takes("base"), &link("top"))
}

#[test]
fn one_ends_the_engine_and_keeps_what_was_made() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        apply.interrupt();
        let said = apply.wait().expect(130);
        allow_duplicates! {
            assert_snapshot!(without_engine_words(&essence(&said)), @"
            change set c1: apply on `local`
              top    skipped
            ✗ base   interrupted
            Interrupting: engines finish their current work and save their state. Press Ctrl-C again to detach.
            change set c1: apply on `local`, interrupting
            change set c1: apply on `local`, interrupted
            ✗ base   interrupted while applying, after 0 s
                state kept: serial N (1 resource changed, 1 begun before the interruption)

            error: change set c1 stopped: 1 interrupted, 1 skipped
            hint: `terrane apply --resume c1` runs what is left
            [exit 130]
            ");
        }
        assert_eq!(story.made(), ["first"]);

        story.open("slow");
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert_eq!(story.made(), ["first", "slow", "top"]);
    }
}

/// Each engine has its own words for being interrupted.
fn without_engine_words(text: &str) -> String {
    let is_ours = |line: &&str| !line.starts_with("    ") || line.contains("state kept");
    let lines: Vec<String> = text.lines().filter(is_ours).map(without_serial).collect();
    lines.join("\n")
}

/// How often an engine stores its state while it stops is its own affair.
fn without_serial(line: &str) -> String {
    match line.split_once("serial ") {
        None => line.to_owned(),
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}serial N{after}")
        }
    }
}

#[test]
fn two_detach_and_the_engine_ends_by_itself() {
    let story = story("tofu");
    story.engine_script(
        "trap : INT\n\
         REAL \"$@\"\n\
         code=$?\n\
         if [ \"$1\" = apply ]; then WAIT(ending); fi\n\
         exit $code\n",
    );
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.interrupt();
    story.wait_for("ending");
    // Whoever looks meanwhile reads why it takes so long.
    let list = story.cli(&["run", "list"]).expect(0);
    let words = list.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(
            "is being interrupted: its engine finishes its current work and saves its state"
        ),
        "{list}"
    );
    apply.interrupt();
    let said = apply.wait().expect(130);
    let last = said.stderr.lines().next_back().unwrap_or_default();
    assert_snapshot!(last, @"Detached: change set c1 stops on its own once its engines finish their current work. Follow it with `terrane run logs -f c1`.");

    // Nobody watches; the engine still ends in order and its state is kept.
    story.open("ending");
    story.settle();
    story.open("slow");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn while_planning_nothing_is_made() {
    let story = story("tofu");
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    apply.interrupt();
    let said = apply.wait().expect(130);
    assert_snapshot!(essence(&said), @"
    change set c1: apply on `local`
      top    skipped
    ✗ base   interrupted
    Interrupting: engines finish their current work and save their state. Press Ctrl-C again to detach.
    change set c1: apply on `local`, interrupting
    change set c1: apply on `local`, interrupted
    ✗ base   interrupted while planning, after 0 s

    error: change set c1 stopped: 1 interrupted, 1 skipped
    hint: `terrane apply --resume c1` runs what is left
    [exit 130]
    ");
    story.settle();
    story.open("plan");
    story.open("slow");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}
