//! Whoever is killed, whenever, and again while it is being repaired: in the end everything is made, and
//! nothing is made twice unless the engine itself was killed in the middle of it.

use std::time::Duration;

use testkit::{BackgroundCommand, SeededRng};

use crate::story::{Story, link, takes};

/// Most of a round is waiting, so some go side by side.
const SIDES: u64 = 3;
/// Of each side: more than a hundred in all. Who found nobody alive has killed nobody.
const KILLS: usize = 34;
/// In one round, one after the other.
const AT_ONCE: usize = 3;
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
    let mut dice = SeededRng::new(seed + side);
    let engines = testkit::engines::all();
    let (mut killed, mut round) = (0, 0);
    while killed < KILLS {
        let (engine, _) = engines[round % engines.len()];
        let story = story(engine);
        let mut victims = Vec::new();
        for _ in 0..AT_ONCE {
            let apply = story.start("apply", &["apply", "--auto-approve"]);
            // An apply of three takes some seconds; some moments are before its start, some after its end.
            testkit::pause(Duration::from_millis(dice.roll(1600)));
            victims.push(kill_somebody(&story, apply, &mut dice));
        }
        let what = format!("seed {seed}, side {side}, round {round}, killed {victims:?}");
        let engine_died = victims.iter().any(|victim| victim.is_engine());
        finish(&story, engine_died, &what);
        let hit = |victim: &&Victim| **victim != Victim::Nobody;
        killed += victims.iter().filter(hit).count();
        round += 1;
        assert!(round < 3 * KILLS, "nobody is ever alive: {what}");
    }
}

/// Three in a row; the first has facts to publish, the second a gate to pass.
fn story(engine: &str) -> Story {
    let publish = "publish \"runtime\" {\n    path   = \"one.yaml\"\n    values = { name = output.name }\n  }";
    let gate = "gate \"command\" \"stands\" { run = [\"true\"] }";
    let story = Story::new(engine)
        .block("facts \"runtime\" { repository = \"../facts.git\" }")
        .stack("one", publish, &link("one"))
        .stack("two", &format!("{}\n  {gate}", takes("one")), &link("two"))
        .stack("three", &takes("two"), &link("three"));
    drop(story.git(&["init", "--quiet", "--bare", "../facts.git"]));
    story
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Nobody,
    Terminal,
    Runner,
    RunnerAndTerminal,
    /// Its runner sees it die.
    Engine,
    /// Terminal, runner and engine, as when the machine goes.
    Everybody,
}

impl Victim {
    fn is_engine(self) -> bool {
        match self {
            Self::Engine | Self::Everybody => true,
            Self::Nobody | Self::Terminal | Self::Runner | Self::RunnerAndTerminal => false,
        }
    }
}

fn kill_somebody(story: &Story, mut apply: BackgroundCommand, dice: &mut SeededRng) -> Victim {
    let victim = match dice.roll(5) {
        0 => Victim::Terminal,
        1 => Victim::Engine,
        2 => Victim::Runner,
        3 => Victim::RunnerAndTerminal,
        _ => Victim::Everybody,
    };
    let engine = || RUNS.iter().rev().find_map(|run| story.live_engine(run));
    let runner = || RUNS.iter().rev().find_map(|run| story.live_runner(run));
    let (engine, runner) = match victim {
        Victim::Nobody | Victim::Terminal => (None, None),
        Victim::Engine => (engine(), None),
        Victim::Runner | Victim::RunnerAndTerminal => (None, runner()),
        Victim::Everybody => (engine(), runner()),
    };
    // First who would repair something, then what would be repaired.
    let terminal = match victim {
        Victim::Terminal | Victim::RunnerAndTerminal | Victim::Everybody => apply.is_alive(),
        Victim::Nobody | Victim::Engine | Victim::Runner => false,
    };
    if terminal {
        apply.kill();
    }
    for pid in [runner, engine].into_iter().flatten() {
        testkit::kill(pid);
    }
    let _ = apply.wait();
    match (terminal, runner, engine) {
        (false, None, None) => Victim::Nobody,
        (true, None, None) => Victim::Terminal,
        (false, Some(_), None) => Victim::Runner,
        (true, Some(_), None) => Victim::RunnerAndTerminal,
        (_, _, Some(_)) if victim == Victim::Everybody => Victim::Everybody,
        (_, _, Some(_)) => Victim::Engine,
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
    let published = story.git(&["--git-dir=../facts.git", "log", "--format=%s", "facts"]);
    assert_eq!(published, "publish facts of one\n", "{what}\n{told}");
    let verified = story.cli(&["verify"]);
    assert_eq!(verified.code, Some(0), "{what}\n{told}\n{verified}");
}
