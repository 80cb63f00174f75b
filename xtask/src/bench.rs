//! Compares terrane with other tools on the same generated project: `cargo xtask bench`.
//!
//! Not here: the project (`project`), how a tool is run (`subjects`), the cost of runs besides their engines
//! (`runs`), how time, CPU and memory are measured (`measure`), the output (`table`).

mod inputs;
mod measure;
mod options;
mod project;
mod runs;
mod subjects;
mod table;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use measure::Sample;
use options::Options;
use project::BenchProject;
use subjects::{Peer, Subject};
use table::{Measured, Report};

pub(crate) fn main(root: &Path, args: &[&str]) -> io::Result<ExitCode> {
    // The shell loops call this for each stack: their own part of the work, besides the engine.
    if let ["tfvars", stack_dir] = args {
        inputs::write(Path::new(stack_dir))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse(root, args).map_err(io::Error::other)?;
    let scratch = Scratch::new(options.keep)?;
    let report = run(&options, &scratch.dir)?;
    println!("{}", table::render(&report));
    Ok(ExitCode::SUCCESS)
}

fn run(options: &Options, scratch: &Path) -> io::Result<Report> {
    // Done first, because it also loads the engine into the page cache before any measurement.
    let engine = options.engine_version()?;
    let mut peers = vec![Peer::Terrane, Peer::SameWork, Peer::LessWork];
    if options.terragrunt.is_some() {
        peers.push(Peer::Terragrunt);
    }
    let mut measured: Vec<Measured> = peers.iter().map(|peer| Measured::new(*peer)).collect();

    // Round by round, not tool by tool, so that a busy minute affects all tools equally.
    for round in 1..=options.runs {
        let mut answer = None;
        for (peer, measured) in peers.iter().zip(&mut measured) {
            let dir = scratch.join(format!("{}-{round}", peer.word()));
            let project = BenchProject::of(options.stacks);
            project.write(&dir, options)?;
            let subject = Subject::new(*peer, options, &dir);
            progress(round, options, *peer, "first apply");
            measured.first.push(subject.apply("first", &project)?);
            same_answer(&mut answer, &subject.answer(&project)?, *peer)?;
            progress(round, options, *peer, "nothing changed");
            measured
                .unchanged
                .push(subject.apply("unchanged", &project)?);
            // Not removed until the end: ext4 creates files slowly after many were removed.
        }
    }

    let memory = match options.memory_stacks {
        0 => None,
        stacks => {
            eprintln!("bench: memory of {stacks} stacks");
            let dir = scratch.join("memory");
            let project = BenchProject::of(stacks);
            project.write(&dir, options)?;
            let peak = Subject::new(Peer::Terrane, options, &dir).peak_memory()?;
            std::fs::remove_dir_all(&dir)?;
            Some((stacks, peak)).filter(|(_, peak)| *peak > 0)
        }
    };

    let reading = match options.reading_stacks {
        0 => None,
        stacks => {
            eprintln!("bench: validate and graph of {stacks} stacks");
            let dir = scratch.join("reading");
            BenchProject::of(stacks).write(&dir, options)?;
            let subject = Subject::new(Peer::Terrane, options, &dir);
            let mut samples = Vec::new();
            for _ in 0..options.runs.max(5) {
                samples.push(subject.validate_and_graph()?);
            }
            std::fs::remove_dir_all(&dir)?;
            Some((stacks, samples))
        }
    };

    let runs = match options.run_stacks {
        0 => None,
        _ => Some(runs::measure(options, scratch)?),
    };

    Ok(Report {
        stacks: options.stacks,
        runs: options.runs,
        jobs: options.jobs,
        engine,
        measured,
        memory,
        reading,
        beside: runs,
    })
}

fn progress(round: usize, options: &Options, peer: Peer, action: &str) {
    eprintln!(
        "bench: round {round} of {}: {}, {action}",
        options.runs,
        peer.title()
    );
}

/// Checks that all tools did the same work: all must produce the same value in the last stack.
fn same_answer(expected: &mut Option<String>, seen: &str, peer: Peer) -> io::Result<()> {
    let expected = expected.get_or_insert_with(|| seen.to_owned());
    if *expected == seen {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} ended with `{seen}`, the first one with `{expected}`: not the same work",
        peer.title()
    )))
}

/// A directory that is removed on drop, unless it is kept for inspection.
pub(crate) struct Scratch {
    pub(crate) dir: std::path::PathBuf,
    keep: bool,
}

impl Scratch {
    pub(crate) fn new(keep: bool) -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("terrane-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Self { dir, keep })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("bench: kept {}", self.dir.display());
        } else if let Err(err) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("bench: could not remove {}: {err}", self.dir.display());
        }
    }
}

/// The median, the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread {
    median: Duration,
    least: Duration,
    most: Duration,
}

impl Spread {
    fn of(samples: &[Sample], figure: impl Fn(&Sample) -> Option<Duration>) -> Option<Self> {
        let mut values: Vec<Duration> = samples.iter().filter_map(figure).collect();
        values.sort_unstable();
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2
        };
        Some(Self {
            median,
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(walls: &[u64], expected: Option<(u64, u64, u64)>) {
        let samples: Vec<Sample> = walls
            .iter()
            .map(|millis| Sample::of_wall(Duration::from_millis(*millis)))
            .collect();
        let seen = Spread::of(&samples, |sample| Some(sample.wall)).map(|spread| {
            [spread.median, spread.least, spread.most].map(|value| value.as_millis())
        });
        assert_eq!(seen, expected.map(|(a, b, c)| [a, b, c].map(u128::from)));
    }

    #[test]
    fn the_median_is_the_middle() {
        check(&[], None);
        check(&[7], Some((7, 7, 7)));
        check(&[30, 10, 20], Some((20, 10, 30)));
        check(&[40, 10, 20, 30], Some((25, 10, 40)));
    }

    #[test]
    fn another_answer_is_an_error() {
        let mut expected = None;
        same_answer(&mut expected, "a", Peer::Terrane).unwrap();
        same_answer(&mut expected, "a", Peer::SameWork).unwrap();
        assert!(same_answer(&mut expected, "b", Peer::LessWork).is_err());
    }
}
