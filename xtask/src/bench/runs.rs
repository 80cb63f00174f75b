//! The cost of runs besides their engines: durable writes, the time to the first engine, and the effect of
//! thousands of stored runs.
//!
//! Not here: the comparison with other tools (`bench`), the output (`table`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::measure::Sample;
use super::options::Options;
use super::project::BenchProject;
use super::subjects::{Peer, Subject};

/// A file system without the cost of durable writes.
const MEMORY: &str = "/dev/shm";

pub(crate) struct Runs {
    pub(crate) stacks: usize,
    /// First applies of `Options::stacks` stacks: with the home on a disk and in memory.
    pub(crate) on_disk: Vec<Sample>,
    pub(crate) in_memory: Vec<Sample>,
    pub(crate) few: Figures,
    /// The number of runs in the home.
    pub(crate) stored: usize,
    pub(crate) many: Figures,
    /// The same apply without changes, by Terragrunt.
    pub(crate) terragrunt: Vec<Sample>,
}

/// Measured with few runs in the home, and again with many.
#[derive(Default)]
pub(crate) struct Figures {
    /// An apply without changes.
    pub(crate) unchanged: Vec<Sample>,
    /// The time from the request to the start of the first engine in that apply.
    pub(crate) first_engine: Vec<Sample>,
    /// The same with one changed leaf: the time to decide what to run.
    pub(crate) leaf: Vec<Sample>,
}

pub(crate) fn measure(options: &Options, scratch: &Path) -> io::Result<Runs> {
    let (on_disk, in_memory) = durability(options, scratch)?;
    let stacks = options.run_stacks;
    let dir = scratch.join("runs");
    let project = BenchProject::of(stacks);
    project.write(&dir, options)?;
    let subject = Subject::new(Peer::Terrane, options, &dir);
    eprintln!("bench: {stacks} stacks, first apply");
    subject.apply("first", &project)?;
    let mut changes = 0;
    let few = figures(options, &subject, &dir, &project, &mut changes)?;
    // One run of each stack per apply.
    let mut stored = stacks * (1 + 2 * options.runs);
    while stored < options.stored_runs {
        eprintln!(
            "bench: {stored} of {} runs in the home",
            options.stored_runs
        );
        subject.apply("more", &project)?;
        stored += stacks;
    }
    let many = if options.stored_runs > 0 {
        figures(options, &subject, &dir, &project, &mut changes)?
    } else {
        Figures::default()
    };
    std::fs::remove_dir_all(&dir)?;
    let mut terragrunt = Vec::new();
    if options.terragrunt.is_some() {
        project.write(&dir, options)?;
        let subject = Subject::new(Peer::Terragrunt, options, &dir);
        eprintln!("bench: {stacks} stacks, {}", Peer::Terragrunt.title());
        subject.apply("first", &project)?;
        for _ in 0..options.runs {
            terragrunt.push(subject.apply("unchanged", &project)?);
        }
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(Runs {
        stacks,
        on_disk,
        in_memory,
        few,
        stored,
        many,
        terragrunt,
    })
}

/// The same work by the same program; only the location of the home differs.
fn durability(options: &Options, scratch: &Path) -> io::Result<(Vec<Sample>, Vec<Sample>)> {
    let (mut on_disk, mut in_memory) = (Vec::new(), Vec::new());
    if !Path::new(MEMORY).is_dir() {
        return Ok((on_disk, in_memory));
    }
    let memory = PathBuf::from(format!("{MEMORY}/terrane-bench-{}", std::process::id()));
    // One round more than elsewhere, because the difference is small.
    for round in 0..=options.runs {
        for (home, samples) in [(None, &mut on_disk), (Some(&memory), &mut in_memory)] {
            let place = home.map_or("on disk", |_| "in memory");
            eprintln!("bench: durability, home {place}, round {}", round + 1);
            let dir = scratch.join(format!("durability-{}-{round}", home.is_some()));
            let project = BenchProject::of(options.stacks);
            project.write(&dir, options)?;
            let mut subject = Subject::new(Peer::Terrane, options, &dir);
            if let Some(home) = home {
                keep_work_on_disk(home, &dir.join("work"))?;
                subject = subject.with_home(home);
            }
            samples.push(subject.apply("first", &project)?);
            if let Some(home) = home {
                std::fs::remove_dir_all(home)?;
            }
        }
    }
    Ok((on_disk, in_memory))
}

/// The engines' files are on disk in both cases: only terrane's durable writes differ.
fn keep_work_on_disk(home: &Path, work: &Path) -> io::Result<()> {
    std::fs::create_dir_all(work)?;
    std::fs::create_dir_all(home)?;
    std::os::unix::fs::symlink(work, home.join("projects"))
}

fn figures(
    options: &Options,
    subject: &Subject<'_>,
    dir: &Path,
    project: &BenchProject,
    changes: &mut usize,
) -> io::Result<Figures> {
    let mut figures = Figures::default();
    for _ in 0..options.runs {
        eprintln!("bench: {} stacks, nothing changed", project.len());
        let begun = SystemTime::now();
        figures.unchanged.push(subject.apply("again", project)?);
        figures.first_engine.push(first_engine(subject, begun)?);
        eprintln!("bench: {} stacks, one leaf changed", project.len());
        *changes += 1;
        let module = dir.join("stacks").join(project.last()).join("changed.tf");
        std::fs::write(
            module,
            format!("resource \"terraform_data\" \"changed\" {{\n  input = {changes}\n}}\n"),
        )?;
        let begun = SystemTime::now();
        subject.apply("leaf", project)?;
        figures.leaf.push(first_engine(subject, begun)?);
    }
    Ok(figures)
}

/// The time from the request to the first engine: its log is created just before it starts.
fn first_engine(subject: &Subject<'_>, begun: SystemTime) -> io::Result<Sample> {
    let mut first: Option<Duration> = None;
    for project in std::fs::read_dir(subject.home().join("projects"))? {
        for run in std::fs::read_dir(project?.path().join("runs"))? {
            let run = run?.path();
            for log in ["init.jsonl", "plan.jsonl"] {
                let Ok(made) = std::fs::metadata(run.join(log)).and_then(|log| log.created())
                else {
                    continue;
                };
                if let Ok(after) = made.duration_since(begun) {
                    first = Some(first.map_or(after, |first| first.min(after)));
                }
            }
        }
    }
    let first = first.ok_or_else(|| io::Error::other("no engine was started"))?;
    Ok(Sample::of_wall(first))
}
