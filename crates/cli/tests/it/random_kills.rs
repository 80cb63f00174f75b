//! Whoever is killed, whenever: in the end everything was made exactly once.

use std::time::Duration;

use testkit::Background;

use crate::dice::{self, Dice};
use crate::story::{Story, link, takes};

/// Most of a round is waiting, so some go side by side.
const SIDES: u64 = 3;
const ROUNDS: usize = 5;

#[test]
fn killed_at_any_moment_it_comes_to_the_same_end() {
    let seed = dice::seed();
    std::thread::scope(|scope| {
        for side in 0..SIDES {
            scope.spawn(move || rounds(seed, side));
        }
    });
}

fn rounds(seed: u64, side: u64) {
    let mut dice = Dice::new(seed + side);
    for round in 0..ROUNDS {
        let story = Story::new("tofu")
            .stack("one", "", &link("one"))
            .stack("two", &takes("one"), &link("two"))
            .stack("three", &takes("two"), &link("three"));
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        // An apply of three takes about a second; some moments are before its start, some after its end.
        std::thread::park_timeout(Duration::from_millis(dice.roll(1200)));
        let victim = kill_somebody(&story, apply, &mut dice);
        let what = format!("seed {seed}, side {side}, round {round}, killed {victim}");
        finish(&story, &what);
    }
}

fn kill_somebody(story: &Story, apply: Background, dice: &mut Dice) -> String {
    let terminal_too = dice.roll(2) == 0;
    let runs = ["r1", "r2", "r3"].map(|run| story.live_runner(run));
    let runner = runs.into_iter().flatten().next_back();
    let runner = runner.filter(|_| dice.roll(2) == 0 || !terminal_too);
    if let Some(runner) = runner {
        testkit::kill(runner);
    }
    if terminal_too {
        apply.kill();
    }
    let _ = apply.wait();
    format!("terminal: {terminal_too}, runner: {runner:?}")
}

fn finish(story: &Story, what: &str) {
    let mut said = Vec::new();
    for _ in 0..4 {
        let again = story.cli(&["apply", "--auto-approve"]);
        let is_done = again.code == Some(0);
        said.push(again.to_string());
        if is_done {
            break;
        }
    }
    let told = said.join("\n");
    assert_eq!(story.made(), ["one", "two", "three"], "{what}\n{told}");
    let plan = story.cli(&["plan", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(0), "{what}\n{told}\n{plan}");
}
