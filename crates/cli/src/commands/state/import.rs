//! `terrane state import`

use std::time::Duration;

use control::Control;
use control::project::open::OpenProject;
use control::state::artifacts::RestoredArtifacts;
use control::state::http_backend_lock::Locking;
use control::transfer::import as state_import;
use control::transfer::import::{
    ImportError, ImportRequest, Imported, ImportedEntry, SourceLockState, StateImport,
    StateLocation,
};
use jiff::Timestamp;
use model::base::ids::StackName;
use model::project::{EdgeKind, Project, Stack};
use model::run::changeset::Action;
use serde_json::{Value, json};

use super::locking_args::LockingArgs;
use crate::commands::change::{self, ChangeOptions};
use crate::commands::home_args::{HomeHandle, require_durable_home};
use crate::commands::{open_home, read_project, selection, valid_project};
use crate::global::Global;
use crate::view::duration;
use crate::view::text::clean;
use crate::{CommandError, ExitStatus, Process, report};

const NOT_LOCKED: &str =
    "note: the old backend was not locked: make sure that no client writes there any more\n";

/// Import a state from a file or a backend, with its lineage and serial
///
/// An HTTP backend is locked first, so that no client writes there meanwhile. Afterwards a plan proves that
/// nothing changes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state import network --from network.tfstate\n  terrane state import network --from engine   # the backend its source names, or its target\n  \
    terrane state import network --from https://state.example.io/network --credential env:STATE_TOKEN --leave-locked\n  \
    terrane state import --all --from backup/"
)]
pub(crate) struct ImportArgs {
    /// The stack whose state it becomes, or `PROJECT/NAME`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    stack: Option<String>,
    /// Every state of a directory that `terrane state export --all` wrote; of another one, every stack that has a
    /// file `STATE.tfstate` in it
    #[arg(long)]
    all: bool,
    /// A file, a directory of files, `engine`, `copy` (what was last seen in the backend its target had), or a URL
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where `USER:PASSWORD` or a token for the URL is: `env:NAME`, `file:PATH`, `command:PROGRAM`
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    #[command(flatten)]
    locking: LockingArgs,
    /// Keep the old home locked, so that no client writes there by mistake (a URL or `engine`)
    #[arg(long)]
    leave_locked: bool,
    /// Do not plan afterwards
    #[arg(long)]
    no_plan: bool,
}

pub(crate) async fn import(
    args: &ImportArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let from = StateLocation::parse(&args.from, &process.cwd);
    if args.leave_locked && !matches!(from, StateLocation::Http(_) | StateLocation::Engine) {
        return Err(
            CommandError::new("`--leave-locked`: a file cannot be kept locked")
                .hint("import without it, and make sure that no client writes there any more")
                .status(ExitStatus::Usage),
        );
    }
    let locking = &args.locking.read(matches!(from, StateLocation::Http(_)))?;
    if args.leave_locked && *locking == Locking::Nowhere {
        let message =
            "cannot use `--leave-locked` with `--no-lock`: without a lock, nothing stays locked";
        return Err(CommandError::new(message).status(ExitStatus::Usage));
    }
    require_durable_home(global, process)?;
    let stacks = match &args.stack {
        None => import_all(args, &from, locking, global, process).await?,
        Some(word) if is_by_name(word, global, process) => {
            import_by_name(args, word, &from, locking, global, process).await?;
            Vec::new()
        }
        Some(word) => {
            let (open, project) = valid_project(global, process)?;
            let stack = selection::one(word, &project)?.clone();
            let stacks = vec![stack];
            let source = ImportSource {
                args,
                from: &from,
                locking,
            };
            import_stacks(source, &open, &project, stacks, global, process).await?
        }
    };
    if args.no_plan || stacks.is_empty() {
        return Ok(ExitStatus::Done);
    }
    let change = ChangeOptions {
        selectors: stacks.iter().map(ToString::to_string).collect(),
        detailed_exitcode: true,
        ..ChangeOptions::of(Action::Plan)
    };
    let status = Box::pin(change::carry_out(change, global, process)).await?;
    if status == ExitStatus::Changes {
        report::say("The plan is not empty: review it before the next apply.\n")?;
    }
    Ok(status)
}

/// Whether the argument names a state directly: `PROJECT/NAME`, or any name outside a project.
fn is_by_name(word: &str, global: &Global, process: &Process) -> bool {
    word.contains('/') || (global.project.is_none() && read_project(global, process).is_err())
}

/// Imports all states of an export. From another directory, imports the files that are named after states of
/// stacks here.
async fn import_all(
    args: &ImportArgs,
    from: &StateLocation,
    locking: &Locking,
    global: &Global,
    process: &Process,
) -> Result<Vec<StackName>, CommandError> {
    let StateLocation::Directory(dir) = from else {
        return Err(
            CommandError::new("`--all` imports from a directory of state files")
                .hint("`--from DIR`, as `terrane state export --all --to DIR` writes it")
                .status(ExitStatus::Usage),
        );
    };
    if !dir.join(state_import::LIST).is_file() {
        let (open, project) = valid_project(global, process)?;
        let has_file = |state: &str| dir.join(format!("{state}.tfstate")).is_file();
        let stacks = project.stacks.values();
        let stacks = stacks.filter(|stack| has_file(&stack.state));
        let stacks = stacks.map(|stack| stack.name.clone()).collect();
        let source = ImportSource {
            args,
            from,
            locking,
        };
        return import_stacks(source, &open, &project, stacks, global, process).await;
    }
    let home = HomeHandle::open(global, process).await?;
    let who = process.actor();
    let brought = state_import::import_all(&home.control, dir, &who).await;
    let (brought, artifacts) = brought.map_err(|err| failed(&err))?;
    let (mut done, mut stacks) = (Vec::new(), Vec::new());
    for one in &brought {
        let state = match one {
            ImportedEntry::State(imported) => {
                done.push(document(None, imported));
                say(imported, home.control.home.project())?;
                &imported.version.state
            }
            ImportedEntry::Copy(state) => {
                report::say(&format!(
                    "State `{}` lives in a backend of the engine: the next run keeps a copy again.\n",
                    clean(&state.to_string())
                ))?;
                continue;
            }
        };
        let known = home.project.iter().flat_map(|project| &project.stacks);
        let of_it = |stack: &Stack| home.control.state_name(&stack.state) == *state;
        stacks.extend(
            known
                .filter(|(_, stack)| of_it(stack))
                .map(|(name, _)| name.clone()),
        );
    }
    say_artifacts(&artifacts)?;
    if global.json {
        report::json(&json!({ "imported": done, "artifacts": artifacts.files }))?;
    }
    Ok(stacks)
}

fn say_artifacts(brought: &RestoredArtifacts) -> Result<(), CommandError> {
    if brought.files > 0 {
        report::say(&format!(
            "{} artifacts of stacks are here.\n",
            brought.files
        ))?;
    }
    for state in &brought.stay {
        report::say(&format!(
            "State `{state}` has other artifacts here than the directory: they stay.\n"
        ))?;
    }
    Ok(())
}

async fn import_by_name(
    args: &ImportArgs,
    word: &str,
    from: &StateLocation,
    locking: &Locking,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let home = HomeHandle::open(global, process).await?;
    let import = StateImport {
        state: &home.state(word).await?,
        from,
        credential: args.credential.as_deref(),
        root: &home.root,
        locking,
        leave_locked: args.leave_locked,
        who: &process.actor(),
    };
    let imported = state_import::import_state(&home.control, &process.env, &import).await;
    let imported = imported.map_err(|err| failed(&err))?;
    say(&imported, home.control.home.project())?;
    if imported.old_home == SourceLockState::NotLocked && !imported.was_here {
        report::say(NOT_LOCKED)?;
    }
    if global.json {
        report::json(&json!({ "imported": [document(None, &imported)] }))?;
    }
    Ok(())
}

/// Where states come from, and how they are locked there.
#[derive(Clone, Copy)]
struct ImportSource<'a> {
    args: &'a ImportArgs,
    from: &'a StateLocation,
    locking: &'a Locking,
}

async fn import_stacks(
    source: ImportSource<'_>,
    open: &OpenProject,
    project: &Project,
    stacks: Vec<StackName>,
    global: &Global,
    process: &Process,
) -> Result<Vec<StackName>, CommandError> {
    let ImportSource {
        args,
        from,
        locking,
    } = source;
    let settings = process.settings(global)?;
    let control = open_home(&settings, open, process, process.look(global)).await?;
    let who = process.actor();
    let mut done = Vec::new();
    for stack in &stacks {
        if !project.is_on_terrane_backend(stack) && *from != StateLocation::Engine {
            return Err(CommandError::new(format!(
                "the target of stack `{stack}` keeps states in a backend of the engine"
            ))
            .hint(format!(
                "remove its `backend` block first, so that the state has a place here; then `terrane state import {stack} --from copy` \
                 brings what was last seen there"
            ))
            .status(ExitStatus::Refused));
        }
        let import = ImportRequest {
            stack,
            from: from.clone(),
            credential: args.credential.as_deref(),
            locking,
            leave_locked: args.leave_locked,
            who: &who,
        };
        let imported = state_import::import(&control, open, project, &process.env, &import).await;
        let imported = imported.map_err(|err| failed(&err))?;
        say(&imported, control.home.project())?;
        let was_not_locked = imported.old_home == SourceLockState::NotLocked
            || (*from == StateLocation::Engine && imported.old_home == SourceLockState::NoLock);
        if was_not_locked && !imported.was_here {
            report::say(NOT_LOCKED)?;
        }
        if let SourceLockState::Seen { at } = imported.old_home {
            let since = Timestamp::now().duration_since(at);
            report::say(&format!(
                "note: it is a copy from {}: make sure that no client has written there since, or does any more\n",
                duration::ago(Duration::try_from(since).unwrap_or_default())
            ))?;
        }
        done.push(document(Some(stack), &imported));
    }
    if global.json {
        report::json(&json!({ "imported": done }))?;
    }
    if !args.no_plan {
        upstreams_are_here(&control, project, &stacks).await?;
    }
    Ok(stacks)
}

/// Refuses to plan a stack that uses outputs of an upstream whose state is not imported yet. Applying that
/// upstream would create everything again.
async fn upstreams_are_here(
    control: &Control,
    project: &Project,
    stacks: &[StackName],
) -> Result<(), CommandError> {
    for stack in stacks {
        for edge in &project.stacks[stack].edges {
            let upstream = &edge.upstream;
            let takes = matches!(edge.kind, EdgeKind::Output { .. });
            if !takes || !project.is_on_terrane_backend(upstream) {
                continue;
            }
            let state = control.state_name(&project.stacks[upstream].state);
            let head = control.state_head(&state).await;
            if head.is_ok_and(|head| head.is_none()) {
                return Err(CommandError::new(format!(
                    "no plan proves it yet: `{stack}` takes outputs of `{upstream}`, whose state is not here"
                ))
                .hint(format!(
                    "`terrane state import {upstream} --from …`, then `terrane plan {stack}`"
                )));
            }
        }
    }
    Ok(())
}

fn say(imported: &Imported, project: &str) -> Result<(), CommandError> {
    let version = &imported.version;
    let name = if version.state.project == project {
        version.state.name.clone()
    } else {
        version.state.to_string()
    };
    let word = if imported.was_here {
        "was here already"
    } else {
        "imported"
    };
    let left = match imported.old_home {
        SourceLockState::LeftLocked { .. } => "; its old home stays locked",
        SourceLockState::NoLock
        | SourceLockState::NotLocked
        | SourceLockState::Released
        | SourceLockState::Seen { .. } => "",
        SourceLockState::Stays => {
            return report::say(&format!(
                "State `{}` is what the backend of its target holds now: {}.\n",
                clean(&version.state.name),
                if version.lineage.is_empty() {
                    "nothing".to_owned()
                } else {
                    format!(
                        "serial {}, lineage {}",
                        version.serial,
                        clean(&version.lineage)
                    )
                }
            ));
        }
    };
    report::say(&format!(
        "State `{}` {word}: serial {}, lineage {}{left}.\n",
        clean(&name),
        version.serial,
        clean(&version.lineage)
    ))?;
    if let Some(way) = &imported.locked_by {
        report::say(&format!("note: its old home was locked by {way}\n"))?;
    }
    match &imported.old_home {
        SourceLockState::LeftLocked { id: Some(id) } => report::say(&format!(
            "hint: `{id}` is its lock: `force-unlock {id}` of an engine with that backend releases it\n"
        ))?,
        SourceLockState::LeftLocked { id: None } => report::say(
            "hint: an engine that is refused there names the lock: its `force-unlock ID` releases it\n",
        )?,
        SourceLockState::NoLock
        | SourceLockState::NotLocked
        | SourceLockState::Released
        | SourceLockState::Seen { .. }
        | SourceLockState::Stays => {}
    }
    Ok(())
}

fn document(stack: Option<&StackName>, imported: &Imported) -> Value {
    let version = &imported.version;
    let lock = match &imported.old_home {
        SourceLockState::LeftLocked { id } => id.as_ref(),
        SourceLockState::NoLock
        | SourceLockState::NotLocked
        | SourceLockState::Released
        | SourceLockState::Seen { .. }
        | SourceLockState::Stays => None,
    };
    json!({
        "stack": stack.map(StackName::as_str), "project": version.state.project,
        "state": version.state.name, "version": version.version,
        "serial": version.serial, "lineage": version.lineage, "was_here": imported.was_here,
        "left_locked": matches!(imported.old_home, SourceLockState::LeftLocked { .. }), "lock_id": lock,
    })
}

fn failed(err: &ImportError) -> CommandError {
    let shown = CommandError::from_error(err);
    if err.is_interruption() {
        shown.status(ExitStatus::Interrupted)
    } else {
        shown
    }
}
