//! Whoever is killed, whenever, and again while it is being repaired: in the end everything is made, and
//! nothing is made twice unless the engine itself was killed in the middle of it.

use std::time::Duration;

use testkit::{Background, Dice};

use crate::story::{Story, link, takes};

/// Most of a round is waiting, so some go side by side.
const SIDES: u64 = 3;
const ROUNDS: usize = 12;
/// In one round, one after the other: more than a hundred in all.
const KILLS: usize = 3;
const RUNS: [&str; 3] = ["r1", "r2", "r3"];

#[test]
fn killed_at_any_moment_it_comes_to_the_same_end() {
    let seed = testkit::seed();
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
        let mut victims = Vec::new();
        for _ in 0..KILLS {
            let apply = story.start("apply", &["apply", "--auto-approve"]);
            // An apply of three takes about a second; some moments are before its start, some after its end.
            std::thread::park_timeout(Duration::from_millis(dice.roll(1200)));
            victims.push(kill_somebody(&story, apply, &mut dice));
        }
        let what = format!("seed {seed}, side {side}, round {round}, killed {victims:?}");
        finish(&story, victims.contains(&Victim::Engine), &what);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Nobody,
    Terminal,
    Runner,
    RunnerAndTerminal,
    /// Its runner sees it die.
    Engine,
}

fn kill_somebody(story: &Story, apply: Background, dice: &mut Dice) -> Victim {
    let victim = match dice.roll(4) {
        0 => Victim::Terminal,
        1 => Victim::Engine,
        2 => Victim::Runner,
        _ => Victim::RunnerAndTerminal,
    };
    let pid = match victim {
        Victim::Nobody | Victim::Terminal => None,
        Victim::Engine => RUNS.iter().rev().find_map(|run| story.live_engine(run)),
        Victim::Runner | Victim::RunnerAndTerminal => {
            RUNS.iter().rev().find_map(|run| story.live_runner(run))
        }
    };
    if let Some(pid) = pid {
        testkit::kill(pid);
    }
    if matches!(victim, Victim::Terminal | Victim::RunnerAndTerminal) {
        apply.kill();
        let _ = apply.wait();
        return victim;
    }
    let _ = apply.wait();
    if pid.is_some() {
        victim
    } else {
        Victim::Nobody
    }
}

fn finish(story: &Story, engine_died: bool, what: &str) {
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
    let mut made = story.made();
    if engine_died {
        made.sort();
        made.dedup();
        assert_eq!(made, ["one", "three", "two"], "{what}\n{told}");
    } else {
        assert_eq!(made, ["one", "two", "three"], "{what}\n{told}");
    }
    let plan = story.cli(&["plan", "--all", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(0), "{what}\n{told}\n{plan}");
}
