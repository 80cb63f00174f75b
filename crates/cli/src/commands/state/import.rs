//! `terrane state import`

use control::artifacts::BroughtArtifacts;
use control::projects::OpenProject;
use control::state_import::{
    self, Brought, Import, ImportError, Imported, OldHome, Place, StateImport,
};
use model::changeset::Action;
use model::ids::StackName;
use model::project::{Project, Stack};
use serde_json::{Value, json};

use crate::args::Global;
use crate::commands::change::{self, Change};
use crate::commands::place::{Place as Home, must_outlive};
use crate::commands::{open_home, read_project, selection, sound_project};
use crate::view::text::clean;
use crate::{CommandError, ExitStatus, Process, report};

/// Bring a state here from where it was, with its lineage and serial
///
/// An HTTP backend is locked first, so that nobody writes there meanwhile. Afterwards a plan proves that
/// nothing changes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state import network --from network.tfstate\n  terrane state import network --from engine   # the backend its source names\n  \
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
    /// A file, a directory of files, `engine`, or a URL
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where `USER:PASSWORD` or a token for the URL is: `env:NAME`, `file:PATH`, `command:PROGRAM`
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    /// Keep the old home locked, so that nobody writes there by mistake (a URL only)
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
    let from = Place::parse(&args.from, &process.cwd);
    if args.leave_locked && !matches!(from, Place::Http(_)) {
        return Err(
            CommandError::new("`--leave-locked`: only an HTTP backend can be kept locked")
                .hint("import without it, and see to it that nobody writes there any more")
                .status(ExitStatus::Usage),
        );
    }
    must_outlive(global, process)?;
    let stacks = match &args.stack {
        None => import_all(args, &from, global, process).await?,
        Some(word) if is_by_name(word, global, process) => {
            import_by_name(args, word, &from, global, process).await?;
            Vec::new()
        }
        Some(word) => {
            let (open, project) = sound_project(global, process)?;
            let stack = selection::one(word, &project)?.clone();
            import_stacks(args, &from, &open, &project, vec![stack], global, process).await?
        }
    };
    if args.no_plan || stacks.is_empty() {
        return Ok(ExitStatus::Done);
    }
    let change = Change {
        selectors: stacks.iter().map(ToString::to_string).collect(),
        detailed_exitcode: true,
        ..Change::of(Action::Plan)
    };
    let status = Box::pin(change::carry_out(change, global, process)).await?;
    if status == ExitStatus::Changes {
        report::say(
            "The state is here, but the plan is not empty: look at it before the next apply.\n",
        )?;
    }
    Ok(status)
}

/// `PROJECT/NAME` is a state of any project; outside of one, every name is of none.
fn is_by_name(word: &str, global: &Global, process: &Process) -> bool {
    word.contains('/') || (global.project.is_none() && read_project(global, process).is_err())
}

/// A directory of all states comes back whole; one of files by hand, as far as stacks here have the names.
async fn import_all(
    args: &ImportArgs,
    from: &Place,
    global: &Global,
    process: &Process,
) -> Result<Vec<StackName>, CommandError> {
    let Place::Directory(dir) = from else {
        return Err(
            CommandError::new("`--all` imports from a directory of state files")
                .hint("`--from DIR`, as `terrane state export --all --to DIR` writes it")
                .status(ExitStatus::Usage),
        );
    };
    if !dir.join(state_import::LIST).is_file() {
        let (open, project) = sound_project(global, process)?;
        let has_file = |state: &str| dir.join(format!("{state}.tfstate")).is_file();
        let stacks = project.stacks.values();
        let stacks = stacks.filter(|stack| has_file(&stack.state));
        let stacks = stacks.map(|stack| stack.name.clone()).collect();
        return import_stacks(args, from, &open, &project, stacks, global, process).await;
    }
    let home = Home::open(global, process).await?;
    let who = process.actor();
    let brought = state_import::import_all(&home.control, dir, &who).await;
    let (brought, artifacts) = brought.map_err(|err| failed(&err))?;
    let (mut done, mut stacks) = (Vec::new(), Vec::new());
    for one in &brought {
        let state = match one {
            Brought::State(imported) => {
                done.push(document(None, imported));
                say(imported)?;
                &imported.version.state
            }
            Brought::Copy(state) => {
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

fn say_artifacts(brought: &BroughtArtifacts) -> Result<(), CommandError> {
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
    from: &Place,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let home = Home::open(global, process).await?;
    let import = StateImport {
        state: &home.state(word).await?,
        from,
        credential: args.credential.as_deref(),
        root: &home.root,
        leave_locked: args.leave_locked,
        who: &process.actor(),
    };
    let imported = state_import::import_state(&home.control, &process.env, &import).await;
    let imported = imported.map_err(|err| failed(&err))?;
    say(&imported)?;
    if global.json {
        report::json(&json!({ "imported": [document(None, &imported)] }))?;
    }
    Ok(())
}

async fn import_stacks(
    args: &ImportArgs,
    from: &Place,
    open: &OpenProject,
    project: &Project,
    stacks: Vec<StackName>,
    global: &Global,
    process: &Process,
) -> Result<Vec<StackName>, CommandError> {
    let settings = process.settings(global)?;
    let control = open_home(&settings, open, process, process.look(global)).await?;
    let who = process.actor();
    let mut done = Vec::new();
    for stack in &stacks {
        if !control::changesets::is_ours(project, stack) {
            return Err(CommandError::new(format!(
                "the target of stack `{stack}` keeps states in a backend of the engine"
            ))
            .hint("remove its `backend` block first, so that the state has a place here")
            .status(ExitStatus::Refused));
        }
        let import = Import {
            stack,
            from: from.clone(),
            credential: args.credential.as_deref(),
            leave_locked: args.leave_locked,
            who: &who,
        };
        let imported = state_import::import(&control, open, project, &process.env, &import).await;
        let imported = imported.map_err(|err| failed(&err))?;
        say(&imported)?;
        if *from == Place::Engine && !imported.was_here {
            report::say(
                "note: the old backend was not locked: see to it that nobody writes there any more\n",
            )?;
        }
        done.push(document(Some(stack), &imported));
    }
    if global.json {
        report::json(&json!({ "imported": done }))?;
    }
    Ok(stacks)
}

fn say(imported: &Imported) -> Result<(), CommandError> {
    let version = &imported.version;
    let word = if imported.was_here {
        "was here already"
    } else {
        "imported"
    };
    let left = match imported.old_home {
        OldHome::LeftLocked { .. } => "; its old home stays locked",
        OldHome::NoLock | OldHome::Released => "",
    };
    report::say(&format!(
        "State `{}` {word}: serial {}, lineage {}{left}.\n",
        clean(&version.state.name),
        version.serial,
        clean(&version.lineage)
    ))?;
    if let OldHome::LeftLocked { id } = &imported.old_home {
        report::say(&format!(
            "hint: `{id}` is its lock: `force-unlock {id}` of an engine with that backend frees it\n"
        ))?;
    }
    Ok(())
}

fn document(stack: Option<&StackName>, imported: &Imported) -> Value {
    let version = &imported.version;
    let lock = match &imported.old_home {
        OldHome::LeftLocked { id } => Some(id),
        OldHome::NoLock | OldHome::Released => None,
    };
    json!({
        "stack": stack.map(StackName::as_str), "project": version.state.project,
        "state": version.state.name, "version": version.version,
        "serial": version.serial, "lineage": version.lineage, "was_here": imported.was_here,
        "left_locked": lock.is_some(), "lock_id": lock,
    })
}

fn failed(err: &ImportError) -> CommandError {
    let shown = CommandError::from_error(err);
    err.hint().into_iter().fold(shown, CommandError::hint)
}
