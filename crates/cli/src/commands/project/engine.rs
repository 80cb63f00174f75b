//! `terrane engine`

mod install_progress;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Subcommand;
use control::project::engines::{
    self, Engine, EngineOrigin, EngineSearch, InstallError, InstallOptions, InstallProgress,
    ReleaseSource,
};
use model::base::error::Explain;
use model::base::ids::StackName;
use model::project::Project;
use model::project::engine::{Constraint, EngineRequirement, Flavor};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::{read_project, valid_project};
use crate::global::Global;
use crate::view::table::Table;
use crate::view::{ViewOptions, errors, text};
use crate::{CommandError, ExitStatus, Process, report};
use install_progress::InstallPrinter;

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

/// List the engines on PATH and in the user's cache, and which stacks use them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  terrane engine list")]
struct ListArgs {}

/// Get an engine that fits the project
///
/// One on PATH that fits is used. Otherwise the official release is downloaded, and its checksum and signature are
/// verified. It is kept per user and version.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane engine install                 # what the project requires\n  \
    terrane engine install tofu 1.11.14\n  terrane engine install terraform '~> 1.11'\n\n\
    TERRANE_ENGINE_MIRROR names a mirror of the release archives."
)]
struct InstallArgs {
    /// `tofu` or `terraform` [default: what the project requires]
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
    let search = EngineSearch::new(path, &settings.cache_dir);
    let found = engines::list(&search);
    // Outside a project, no stacks use engines.
    let project = read_project(global, process).ok();
    let project = project.and_then(|open| open.loaded.project);
    let users = project.map(|project| EngineUsage::of(&project, &search));
    if global.json {
        let engines: Vec<_> = found
            .iter()
            .map(|engine| {
                json!({
                    "flavor": engine.flavor, "version": engine.version.to_string(),
                    "program": engine.program, "origin": engine.origin,
                    "stacks": users.as_ref().map(|users| users.names(engine)),
                })
            })
            .collect();
        let without = users.as_ref().map(|users| &users.without);
        report::json(&json!({ "engines": engines, "without": without }))?;
        return Ok(ExitStatus::Done);
    }
    let mut table = match &users {
        Some(_) => Table::new(["ENGINE", "VERSION", "FROM", "USED BY", "PROGRAM"]),
        None => Table::new(["ENGINE", "VERSION", "FROM", "PROGRAM"]),
    };
    for engine in &found {
        let mut row = vec![
            engine.flavor.to_string(),
            engine.version.to_string(),
            origin(engine.origin).to_owned(),
        ];
        row.extend(users.as_ref().map(|users| users.words(engine)));
        row.push(engine.program.display().to_string());
        table.row(row);
    }
    report::data(&table.render(process.data_look(global)))?;
    if found.is_empty() {
        report::say("There is no engine yet. `terrane engine install` gets one.\n")?;
        return Ok(ExitStatus::Done);
    }
    if let Some(users) = users.filter(|users| !users.without.is_empty()) {
        let stacks: Vec<String> = users
            .without
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let said = format!("no engine here fits {}", text::list(&stacks));
        let hint = "`terrane engine install` gets one".to_owned();
        report::say(&errors::render_warning(
            &said,
            &[hint],
            process.look(global),
        ))?;
    }
    Ok(ExitStatus::Done)
}

/// The engine that each stack of a project would use.
struct EngineUsage {
    by_program: BTreeMap<PathBuf, Vec<StackName>>,
    all: usize,
    without: Vec<StackName>,
}

impl EngineUsage {
    fn of(project: &Project, search: &EngineSearch<'_>) -> Self {
        let mut users = Self {
            by_program: BTreeMap::new(),
            all: project.stacks.len(),
            without: Vec::new(),
        };
        let mut known: Vec<(&EngineRequirement, Option<PathBuf>)> = Vec::new();
        for (name, stack) in &project.stacks {
            let same = known.iter().find(|(wish, _)| **wish == stack.engine);
            let program = if let Some((_, program)) = same {
                program.clone()
            } else {
                let located = engines::locate(&stack.engine, search).ok();
                let program = located.map(|engine| engine.program);
                known.push((&stack.engine, program.clone()));
                program
            };
            match program {
                Some(program) => users
                    .by_program
                    .entry(program)
                    .or_default()
                    .push(name.clone()),
                None => users.without.push(name.clone()),
            }
        }
        users
    }

    fn names(&self, engine: &Engine) -> &[StackName] {
        self.by_program
            .get(&engine.program)
            .map_or(&[], Vec::as_slice)
    }

    fn words(&self, engine: &Engine) -> String {
        match self.names(engine) {
            [] => String::new(),
            all if all.len() == self.all => "all stacks".to_owned(),
            [one] => one.to_string(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }
}

fn origin(origin: EngineOrigin) -> &'static str {
    match origin {
        EngineOrigin::Path => "PATH",
        EngineOrigin::Cache => "cache",
        EngineOrigin::Release => "release",
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
            search: EngineSearch::new(path, &settings.cache_dir),
            source,
        };
        let engine = watched(&wish, &options, process.look(global), process).await?;
        let engine = engine.map_err(|err| CommandError::from_error(&err))?;
        tell_installed(&engine, global)?;
    }
    Ok(ExitStatus::Done)
}

/// Installs an engine and reports progress. A signal stops the install; nothing continues in the background.
async fn watched(
    wish: &EngineRequirement,
    options: &InstallOptions<'_>,
    look: ViewOptions,
    process: &Process,
) -> Result<Result<Engine, InstallError>, CommandError> {
    let listen = |kind| {
        signal(kind).map_err(|err| CommandError::because("could not listen for signals", &err))
    };
    let mut interrupts = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let teller = Mutex::new(InstallPrinter::new(
        io::stderr(),
        wish.flavor,
        look,
        process.can_draw(),
    ));
    let with = |action: &dyn Fn(&mut InstallPrinter<io::Stderr>)| {
        action(&mut teller.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut tell = |progress: InstallProgress| with(&|teller| teller.tell(&progress));
    let mut installing = std::pin::pin!(engines::install(wish, options, &mut tell));
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            engine = &mut installing => {
                with(&InstallPrinter::end);
                return Ok(engine);
            }
            _ = interrupts.recv() => break,
            _ = terminated.recv() => break,
            _ = ticks.tick() => with(&|teller| teller.tick(Instant::now())),
        }
    }
    with(&InstallPrinter::end);
    Err(interrupted())
}

/// The requested engines: from the command line, else all that the project's stacks require.
fn wishes(
    args: &InstallArgs,
    global: &Global,
    process: &Process,
) -> Result<Vec<EngineRequirement>, CommandError> {
    let usage = |err: &dyn Explain| CommandError::from_error(err).status(ExitStatus::Usage);
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
    let (_, project) = valid_project(global, process)?;
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
        EngineOrigin::Path => "is on PATH",
        EngineOrigin::Cache => "is there",
        EngineOrigin::Release => "was installed from its release",
    };
    report::data(&format!("{engine} {how}: {}\n", engine.program.display()))
}

async fn lock(
    args: &LockArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    let settings = process.settings(global)?;
    let written = engines::lock(
        &open,
        &project,
        &process.env,
        &settings.cache_dir,
        args.upgrade,
    )
    .await
    .map_err(|err| CommandError::from_error(&err))?;
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
