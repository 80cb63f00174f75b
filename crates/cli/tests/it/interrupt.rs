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
            assert_snapshot!(essence(&said), @"");
        }
        assert_eq!(story.made(), ["first"]);

        story.open("slow");
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert_eq!(story.made(), ["first", "slow", "top"]);
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
    apply.interrupt();
    let said = apply.wait().expect(130);
    let last: Vec<&str> = said.stderr.lines().rev().take(2).collect();
    assert_snapshot!(last.join("\n"), @"");

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
    assert_snapshot!(essence(&said), @"");
    story.settle();
    story.open("plan");
    story.open("slow");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}
