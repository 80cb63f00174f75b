//! The output of the bench: medians with their spread, and a verdict for each limit.

use std::fmt::Write as _;
use std::time::Duration;

use super::Spread;
use super::measure::Sample;
use super::runs::{Figures, Runs};
use super::subjects::Peer;

pub(crate) struct Report {
    pub(crate) stacks: usize,
    pub(crate) runs: usize,
    pub(crate) jobs: usize,
    pub(crate) engine: String,
    pub(crate) measured: Vec<Measured>,
    /// The number of stacks, and the peak in bytes.
    pub(crate) memory: Option<(usize, u64)>,
    pub(crate) reading: Option<(usize, Vec<Sample>)>,
    pub(crate) beside: Option<Runs>,
}

pub(crate) struct Measured {
    pub(crate) peer: Peer,
    pub(crate) first: Vec<Sample>,
    pub(crate) unchanged: Vec<Sample>,
}

impl Measured {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            first: Vec::new(),
            unchanged: Vec::new(),
        }
    }
}

/// Which of the two applies a limit is about.
#[derive(Clone, Copy)]
enum Turn {
    First,
    Unchanged,
}

pub(crate) fn render(report: &Report) -> String {
    let mut text = format!(
        "\n{} stacks, {} at once, {}, {} runs: median (least–most)\n\n\
         | | first apply, wall | CPU | nothing changed, wall | CPU |\n|---|---:|---:|---:|---:|\n",
        report.stacks, report.jobs, report.engine, report.runs
    );
    for measured in &report.measured {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            measured.peer.title(),
            figure(Spread::of(&measured.first, |sample| Some(sample.wall))),
            figure(Spread::of(&measured.first, |sample| sample.cpu)),
            figure(Spread::of(&measured.unchanged, |sample| Some(sample.wall))),
            figure(Spread::of(&measured.unchanged, |sample| sample.cpu)),
        );
    }
    if let Some(runs) = &report.beside {
        text.push_str(&figures_table(runs));
    }
    text.push_str("\n| bar | seen | at most | |\n|---|---:|---:|---|\n");
    let beside = report
        .beside
        .iter()
        .flat_map(|runs| runs_bars(runs, report));
    for (what, seen, bar, unit) in bars(report).into_iter().chain(beside) {
        let verdict = match seen {
            None => "not measured",
            Some(seen) if seen <= bar => "ok",
            Some(_) => "over",
        };
        let seen = seen.map_or_else(|| "–".to_owned(), |seen| format!("{seen:.2}{unit}"));
        let _ = writeln!(text, "| {what} | {seen} | {bar:.2}{unit} | {verdict} |");
    }
    text
}

/// A promised limit: name, measured value, limit, unit.
type Bar = (String, Option<f64>, f64, &'static str);

fn bars(report: &Report) -> Vec<Bar> {
    use {Peer as P, Turn as T};
    let mut bars = vec![
        (
            "first apply ÷ loop A".to_owned(),
            ratio(report, T::First, P::SameWork),
            0.95,
            "×",
        ),
        (
            "first apply ÷ loop B".to_owned(),
            ratio(report, T::First, P::LessWork),
            1.5,
            "×",
        ),
        (
            "nothing changed ÷ loop B".to_owned(),
            ratio(report, T::Unchanged, P::LessWork),
            0.5,
            "×",
        ),
        (
            "nothing changed ÷ terragrunt".to_owned(),
            ratio(report, T::Unchanged, P::Terragrunt),
            0.4,
            "×",
        ),
        (
            "own CPU ÷ engines, first apply".to_owned(),
            own_share(report, T::First),
            5.0,
            " %",
        ),
        (
            "own CPU ÷ engines, nothing changed".to_owned(),
            own_share(report, T::Unchanged),
            20.0,
            " %",
        ),
    ];
    if let Some((stacks, bytes)) = report.memory {
        #[expect(clippy::cast_precision_loss, reason = "megabytes for people")]
        let megabytes = bytes as f64 / 1e6;
        bars.push((
            format!("memory at {stacks} stacks"),
            Some(megabytes),
            60.0,
            " MB",
        ));
    }
    if let Some((stacks, samples)) = &report.reading {
        let wall = Spread::of(samples, |sample| Some(sample.wall));
        bars.push((
            format!("validate + graph of {stacks} stacks"),
            wall.map(|spread| spread.median.as_secs_f64() * 1e3),
            300.0,
            " ms",
        ));
    }
    bars
}

/// A measurement and its samples.
type Row = (&'static str, fn(&Figures) -> &[Sample]);

/// The measured cost of runs besides their engines.
fn figures_table(runs: &Runs) -> String {
    let mut text = format!(
        "\n{} stacks, by runs in the home\n\n\
         | | few | {} |\n|---|---:|---:|\n",
        runs.stacks, runs.stored
    );
    let rows: [Row; 3] = [
        ("nothing changed, wall", |seen| &seen.unchanged),
        ("until the first engine, nothing changed", |seen| {
            &seen.first_engine
        }),
        ("until the first engine, one leaf changed", |seen| {
            &seen.leaf
        }),
    ];
    for (what, of) in rows {
        let wall = |seen| figure(Spread::of(of(seen), |sample| Some(sample.wall)));
        let (few, many) = (wall(&runs.few), wall(&runs.many));
        let _ = writeln!(text, "| {what} | {few} | {many} |");
    }
    let wall = |samples| figure(Spread::of(samples, |sample| Some(sample.wall)));
    let _ = writeln!(
        text,
        "\nfirst apply, home on disk {}, in memory {}",
        wall(&runs.on_disk),
        wall(&runs.in_memory)
    );
    if !runs.terragrunt.is_empty() {
        let _ = writeln!(
            text,
            "{} stacks, nothing changed, terragrunt {}",
            runs.stacks,
            wall(&runs.terragrunt)
        );
    }
    text
}

fn runs_bars(runs: &Runs, report: &Report) -> Vec<Bar> {
    let stacks = runs.stacks;
    let (few, many) = (&runs.few, &runs.many);
    let more = |few: &[Sample], many: &[Sample]| Some((median(many)? / median(few)? - 1.0) * 100.0);
    let millis = |samples: &[Sample]| Some(median(samples)? * 1e3);
    let faster = || Some(median(&few.unchanged)? / median(&runs.terragrunt)?);
    let stored = |what: &str| format!("{what}, {} runs stored", runs.stored);
    vec![
        (
            format!(
                "durability, {} stacks: home on disk ÷ in memory",
                report.stacks
            ),
            more(&runs.in_memory, &runs.on_disk),
            8.0,
            " %",
        ),
        (
            format!("request to first engine, {stacks} stacks"),
            millis(&few.first_engine),
            150.0,
            " ms",
        ),
        (
            format!("one leaf of {stacks} changed: decided what to run"),
            millis(&few.leaf),
            200.0,
            " ms",
        ),
        (
            stored("more until the first engine"),
            more(&few.first_engine, &many.first_engine),
            10.0,
            " %",
        ),
        (
            stored("more until a changed leaf is decided"),
            more(&few.leaf, &many.leaf),
            10.0,
            " %",
        ),
        (
            stored("more for an apply with nothing changed"),
            more(&few.unchanged, &many.unchanged),
            10.0,
            " %",
        ),
        (
            format!("nothing changed ÷ terragrunt, {stacks} stacks"),
            faster(),
            0.25,
            "×",
        ),
    ]
}

/// Seconds.
fn median(samples: &[Sample]) -> Option<f64> {
    Some(
        Spread::of(samples, |sample| Some(sample.wall))?
            .median
            .as_secs_f64(),
    )
}

fn ratio(report: &Report, turn: Turn, peer: Peer) -> Option<f64> {
    let wall = |peer| Spread::of(samples(report, turn, peer)?, |sample| Some(sample.wall));
    Some(wall(Peer::Terrane)?.median.as_secs_f64() / wall(peer)?.median.as_secs_f64())
}

/// terrane's own CPU time in percent of the engines'.
fn own_share(report: &Report, turn: Turn) -> Option<f64> {
    let samples = samples(report, turn, Peer::Terrane)?;
    let own = Spread::of(samples, |sample| sample.own)?.median;
    let engines = Spread::of(samples, Sample::engines)?.median;
    Some(own.as_secs_f64() / engines.as_secs_f64() * 100.0)
}

fn samples(report: &Report, turn: Turn, peer: Peer) -> Option<&[Sample]> {
    let measured = report
        .measured
        .iter()
        .find(|measured| measured.peer == peer)?;
    Some(match turn {
        Turn::First => &measured.first,
        Turn::Unchanged => &measured.unchanged,
    })
}

fn figure(spread: Option<Spread>) -> String {
    let seconds = |value: Duration| format!("{:.2}", value.as_secs_f64());
    match spread {
        None => "–".to_owned(),
        Some(spread) => format!(
            "{} s ({}–{})",
            seconds(spread.median),
            seconds(spread.least),
            seconds(spread.most)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall: u64, own: u64, engines: u64) -> Sample {
        let millis = Duration::from_millis;
        Sample {
            wall: millis(wall),
            cpu: Some(millis(own + engines)),
            own: Some(millis(own)),
        }
    }

    fn plain(wall: u64) -> Sample {
        Sample::of_wall(Duration::from_millis(wall))
    }

    #[test]
    fn bars_say_ok_over_or_not_measured() {
        let measured = |peer, first, unchanged| Measured {
            peer,
            first,
            unchanged,
        };
        let report = Report {
            stacks: 50,
            runs: 1,
            jobs: 2,
            engine: "OpenTofu v1.11.14".to_owned(),
            measured: vec![
                measured(
                    Peer::Terrane,
                    vec![sample(900, 60, 1000)],
                    vec![sample(300, 10, 100)],
                ),
                measured(Peer::SameWork, vec![plain(1000)], vec![plain(1000)]),
                measured(Peer::LessWork, vec![plain(500)], vec![plain(500)]),
            ],
            memory: Some((200, 61_000_000)),
            reading: Some((1000, vec![plain(120)])),
            beside: None,
        };
        let expected = "
50 stacks, 2 at once, OpenTofu v1.11.14, 1 runs: median (least–most)

| | first apply, wall | CPU | nothing changed, wall | CPU |
|---|---:|---:|---:|---:|
| terrane | 0.90 s (0.90–0.90) | 1.06 s (1.06–1.06) | 0.30 s (0.30–0.30) | 0.11 s (0.11–0.11) |
| loop A: init, plan, show, apply, output | 1.00 s (1.00–1.00) | – | 1.00 s (1.00–1.00) | – |
| loop B: init, apply, output | 0.50 s (0.50–0.50) | – | 0.50 s (0.50–0.50) | – |

| bar | seen | at most | |
|---|---:|---:|---|
| first apply ÷ loop A | 0.90× | 0.95× | ok |
| first apply ÷ loop B | 1.80× | 1.50× | over |
| nothing changed ÷ loop B | 0.60× | 0.50× | over |
| nothing changed ÷ terragrunt | – | 0.40× | not measured |
| own CPU ÷ engines, first apply | 6.00 % | 5.00 % | over |
| own CPU ÷ engines, nothing changed | 10.00 % | 20.00 % | ok |
| memory at 200 stacks | 61.00 MB | 60.00 MB | over |
| validate + graph of 1000 stacks | 120.00 ms | 300.00 ms | ok |
";
        assert_eq!(render(&report), expected);
    }
}
