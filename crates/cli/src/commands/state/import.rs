//! `terrane state import`

use control::state_import::{self, Import, OldHome, Place};
use model::changeset::Action;
use model::ids::StackName;
use model::project::Project;
use serde_json::json;

use crate::args::Global;
use crate::commands::change::{self, Change};
use crate::commands::{open_home, selection, sound_project};
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
    /// The stack whose state it becomes
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    stack: Option<String>,
    /// Every stack that has a file `STATE.tfstate` in the directory
    #[arg(long)]
    all: bool,
    /// A file, a directory of files, `engine`, or a URL
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where `USER:PASSWORD` or a token for the URL is: `env:NAME`, `file:PATH`, `command:PROGRAM`
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    /// Keep the old home locked, so that nobody writes there by mistake
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
    let (open, project) = sound_project(global, process)?;
    let from = Place::parse(&args.from, &process.cwd);
    let stacks = chosen(args, &from, &project)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let who = process.actor();
    let mut done = Vec::new();
    for stack in &stacks {
        if !control::changesets::is_ours(&project, stack) {
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
        let imported = state_import::import(&control, &open, &project, &process.env, &import)
            .await
            .map_err(|err| {
                let shown = CommandError::from_error(&err);
                err.hint().into_iter().fold(shown, CommandError::hint)
            })?;
        let version = &imported.version;
        let word = if imported.was_here {
            "was here already"
        } else {
            "imported"
        };
        let left = match imported.old_home {
            OldHome::LeftLocked => "; its old home stays locked",
            OldHome::NoLock | OldHome::Released => "",
        };
        report::say(&format!(
            "State `{}` {word}: serial {}, lineage {}{left}.\n",
            version.state.name, version.serial, version.lineage
        ))?;
        if from == Place::Engine && !imported.was_here {
            report::say(
                "note: the old backend was not locked: see to it that nobody writes there any more\n",
            )?;
        }
        done.push(json!({
            "stack": stack.as_str(), "state": version.state.name, "version": version.version,
            "serial": version.serial, "lineage": version.lineage, "was_here": imported.was_here,
            "left_locked": imported.old_home == OldHome::LeftLocked,
        }));
    }
    if global.json {
        report::json(&json!({ "imported": done }))?;
    }
    if args.no_plan || stacks.is_empty() {
        return Ok(ExitStatus::Done);
    }
    let change = Change {
        selectors: stacks.iter().map(ToString::to_string).collect(),
        detailed_exitcode: true,
        ..Change::of(Action::Plan)
    };
    let status = change::carry_out(change, global, process).await?;
    if status == ExitStatus::Changes {
        report::say(
            "The state is here, but the plan is not empty: look at it before the next apply.\n",
        )?;
    }
    Ok(status)
}

fn chosen(
    args: &ImportArgs,
    from: &Place,
    project: &Project,
) -> Result<Vec<StackName>, CommandError> {
    if let Some(stack) = &args.stack {
        return Ok(vec![selection::one(stack, project)?.clone()]);
    }
    let Place::Directory(dir) = from else {
        return Err(
            CommandError::new("`--all` imports from a directory of state files")
                .hint("`--from DIR`, as `terrane state export --all --to DIR` writes it")
                .status(ExitStatus::Usage),
        );
    };
    let has_file = |state: &str| dir.join(format!("{state}.tfstate")).is_file();
    let stacks = project.stacks.values();
    Ok(stacks
        .filter(|stack| has_file(&stack.state))
        .map(|stack| stack.name.clone())
        .collect())
}
