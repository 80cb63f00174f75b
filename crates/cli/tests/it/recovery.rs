//! A runner is killed: its engine goes on alone, what it made is found, and the next command goes on from
//! there.

use insta::assert_snapshot;
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
fn while_applying_the_engine_goes_on_and_its_state_is_found() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        testkit::kill(story.runner("r1"));
        story.open("slow");
        // The terminal waits for the engine, which nobody but the lock knows of any more.
        let said = apply.wait().expect(1);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @"");
        }
        assert_eq!(story.made(), ["first", "slow"]);

        let again = story.cli(&["apply", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&again), @"");
        }
        assert_eq!(story.made(), ["first", "slow", "top"]);
    }
}

#[test]
fn the_next_command_ends_what_a_crash_left() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("slow");
    story.settle();
    assert_eq!(story.made(), ["first", "slow"]);
    let said = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_snapshot!(essence(&said), @"");
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn the_next_command_waits_for_an_engine_that_lost_its_runner() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    let again = story.start("again", &["apply", "--auto-approve"]);
    story.wait_until("the second terminal", || {
        again.stderr_so_far().contains("Attached")
    });
    story.open("slow");
    let said = again.wait();
    assert_snapshot!(essence(&said), @"");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn while_planning_it_is_planned_again() {
    let story = story("tofu");
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    story.open("slow");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    testkit::kill(story.runner("r1"));
    story.open("plan");
    let _ = apply.wait().expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}

#[test]
fn while_planning_with_nobody_watching_the_next_command_works() {
    let story = story("tofu");
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    story.open("slow");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("plan");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.open("plan");
    story.settle();
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "slow", "top"]);
}
