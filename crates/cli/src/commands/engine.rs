//! `terrane engine`

use std::ffi::OsStr;

use clap::Subcommand;
use control::engines::{self, Engine, InstallOptions, Origin, Progress, ReleaseSource, Search};
use model::engine::{Constraint, EngineRequirement, Flavor};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::sound_project;
use crate::args::Global;
use crate::view::table::Table;
use crate::{CommandError, ExitStatus, Process, report};

/// Find, install and pin engines
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane engine list\n  terrane engine install\n  terrane engine lock"
)]
pub(crate) struct EngineArgs {
    #[command(subcommand)]
    command: EngineCommand,
}

#[derive(Debug, Subcommand)]
enum EngineCommand {
    List(ListArgs),
    Install(InstallArgs),
    Lock(LockArgs),
}

/// List the engines on PATH and in the user's cache
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  terrane engine list")]
struct ListArgs {}

/// Get an engine that fits the project
///
/// In this order: one on PATH; the official release, its checksum and signature verified; a build from
/// source (OpenTofu, with Go, some minutes). It is kept per user and version.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane engine install                 # what the project asks for\n  \
    terrane engine install tofu 1.11.14\n  terrane engine install terraform '~> 1.11'\n\n\
    TERRANE_ENGINE_MIRROR names a mirror of the release archives."
)]
struct InstallArgs {
    /// `tofu` or `terraform`; none: what the project asks for
    flavor: Option<String>,
    /// A version or a constraint
    #[arg(requires = "flavor")]
    version: Option<String>,
}

/// Write provider lock files for all platforms of the project
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane engine lock\n  terrane engine lock --upgrade")]
struct LockArgs {
    /// Take the newest providers that the constraints allow
    #[arg(long)]
    upgrade: bool,
}

pub(crate) async fn engine(
    args: EngineArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        EngineCommand::List(ListArgs {}) => list(global, process),
        EngineCommand::Install(args) => install(args, global, process).await,
        EngineCommand::Lock(args) => lock(&args, global, process).await,
    }
}

fn list(global: &Global, process: &Process) -> Result<ExitStatus, CommandError> {
    let settings = process.settings(global)?;
    let path = process.env.get("PATH").map(OsStr::new);
    let found = engines::list(&Search::new(path, &settings.cache_dir));
    if global.json {
        let engines: Vec<_> = found
            .iter()
            .map(|engine| {
                json!({
                    "flavor": engine.flavor, "version": engine.version.to_string(),
                    "program": engine.program, "origin": engine.origin,
                })
            })
            .collect();
        report::json(&json!({ "engines": engines }))?;
        return Ok(ExitStatus::Done);
    }
    if found.is_empty() {
        report::say("There is no engine yet. `terrane engine install` gets one.\n")?;
        return Ok(ExitStatus::Done);
    }
    let mut table = Table::new(["ENGINE", "VERSION", "FROM", "PROGRAM"]);
    for engine in &found {
        table.row([
            engine.flavor.to_string(),
            engine.version.to_string(),
            origin(engine.origin).to_owned(),
            engine.program.display().to_string(),
        ]);
    }
    report::data(&table.render(process.data_look(global)))?;
    Ok(ExitStatus::Done)
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Path => "PATH",
        Origin::Cache => "cache",
        Origin::Release => "release",
        Origin::Built => "source",
    }
}

async fn install(
    args: InstallArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let wishes = wishes(&args, global, process)?;
    let settings = process.settings(global)?;
    let path = process.env.get("PATH").map(OsStr::new);
    for wish in wishes {
        let source = match process.var("TERRANE_ENGINE_MIRROR") {
            Some(mirror) => ReleaseSource::mirror(wish.flavor, mirror),
            None => ReleaseSource::official(wish.flavor),
        };
        let options = InstallOptions {
            search: Search::new(path, &settings.cache_dir),
            source,
            asker: &process.env,
            build: true,
        };
        let mut teller = Teller::new(wish.flavor);
        let mut tell = |progress| teller.tell(&progress);
        let mut terminated = signal(SignalKind::terminate())
            .map_err(|err| CommandError::because("could not listen for signals", &err))?;
        // What it has begun ends with it: nothing is unpacked or built behind anybody's back.
        let engine = tokio::select! {
            engine = engines::install(&wish, &options, &mut tell) => engine,
            _ = tokio::signal::ctrl_c() => return Err(interrupted()),
            _ = terminated.recv() => return Err(interrupted()),
        };
        let engine = engine.map_err(|err| {
            let hint = err.hint();
            hint.into_iter()
                .fold(CommandError::from_error(&err), CommandError::hint)
        })?;
        tell_installed(&engine, global)?;
    }
    Ok(ExitStatus::Done)
}

/// What is wanted: on the command line, else everything the project's stacks ask for.
fn wishes(
    args: &InstallArgs,
    global: &Global,
    process: &Process,
) -> Result<Vec<EngineRequirement>, CommandError> {
    let usage =
        |err: &dyn std::error::Error| CommandError::from_error(err).status(ExitStatus::Usage);
    if let Some(flavor) = &args.flavor {
        let flavor: Flavor = flavor.parse().map_err(|err| usage(&err))?;
        let constraint = args
            .version
            .as_deref()
            .map(str::parse::<Constraint>)
            .transpose();
        let constraint = constraint.map_err(|err| usage(&err))?;
        return Ok(vec![EngineRequirement { flavor, constraint }]);
    }
    let (_, project) = sound_project(global, process)?;
    let mut wishes = vec![project.engine.clone()];
    for stack in project.stacks.values() {
        if !wishes.contains(&stack.engine) {
            wishes.push(stack.engine.clone());
        }
    }
    Ok(wishes)
}

fn interrupted() -> CommandError {
    CommandError::new("interrupted: nothing was installed").status(ExitStatus::Interrupted)
}

fn tell_installed(engine: &Engine, global: &Global) -> Result<(), CommandError> {
    if global.json {
        return report::json(&json!({
            "flavor": engine.flavor, "version": engine.version.to_string(),
            "program": engine.program, "origin": engine.origin,
        }));
    }
    let how = match engine.origin {
        Origin::Path => "is on PATH",
        Origin::Cache => "is there",
        Origin::Release => "was installed from its release",
        Origin::Built => "was built from source",
    };
    report::data(&format!("{engine} {how}: {}\n", engine.program.display()))
}

/// Says each step once; a download says how far it is by quarters.
struct Teller {
    flavor: Flavor,
    quarter: u64,
}

impl Teller {
    fn new(flavor: Flavor) -> Self {
        Self { flavor, quarter: 0 }
    }

    fn tell(&mut self, progress: &Progress) {
        let line = match progress {
            Progress::Waiting => "waiting for another install to end".to_owned(),
            Progress::Chosen { version } => format!("installing {} {version}", self.flavor),
            Progress::Downloading {
                done,
                total: Some(total),
            } if *total > 0 => {
                let quarter = done * 4 / total;
                if quarter <= self.quarter {
                    return;
                }
                self.quarter = quarter;
                format!("downloading, {} %", quarter * 25)
            }
            Progress::Downloading { .. } => return,
            Progress::Verifying => "verifying checksum and signature".to_owned(),
            Progress::Unpacking => "unpacking".to_owned(),
            Progress::Building { because } => {
                format!("building from source, which takes some minutes ({because})")
            }
        };
        // Progress that cannot be told is no reason to stop.
        drop(report::say(&format!("  {line}\n")));
    }
}

async fn lock(
    args: &LockArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = sound_project(global, process)?;
    let settings = process.settings(global)?;
    let written = engines::lock(
        &open,
        &project,
        &process.env,
        &settings.cache_dir,
        args.upgrade,
    )
    .await
    .map_err(|err| {
        let hint = err.hint();
        hint.into_iter()
            .fold(CommandError::from_error(&err), CommandError::hint)
    })?;
    if global.json {
        report::json(&json!({ "written": written }))?;
        return Ok(ExitStatus::Done);
    }
    for path in &written {
        report::data(&format!("{path}\n"))?;
    }
    if written.is_empty() {
        report::say("No lock file changed.\n")?;
    }
    Ok(ExitStatus::Done)
}
