//! `terrane state export`

use control::project::open::ProjectContext;
use control::state::http_backend_lock::Locking;
use control::transfer::export::{self, StateExport};
use control::transfer::import::StateLocation;
use serde_json::json;

use super::locking_args::LockingArgs;
use super::query_args::say_if_copy;
use crate::commands::home_args::HomeHandle;
use crate::commands::{open_home, selection, valid_project};
use crate::global::Global;
use crate::view::text::{clean, count};
use crate::{CommandError, ExitStatus, Process, report};

/// Take states out: one to a file or a backend, or all of them to a directory
///
/// A state contains every value in clear, sensitive ones too. `--all` is consistent while others write, and
/// `terrane state import --all` restores it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state export network --to network.tfstate\n  terrane state export network --to engine   # the backend of its target, or that its source names\n  \
    terrane state export network --to https://state.example.io/network --credential env:STATE_TOKEN\n  \
    terrane state export --all --to backup/"
)]
pub(crate) struct ExportArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    stack: Option<String>,
    /// Every state of the home, into an empty directory
    #[arg(long)]
    all: bool,
    /// A file, a directory, `engine`, or a URL
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Where `USER:PASSWORD` or a token for the URL is: `env:NAME`, `file:PATH`, `command:PROGRAM`
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    /// With `engine`: write what was last seen in the backend of the stack's target to another one, though somebody may have
    /// written there since
    #[arg(long)]
    copy: bool,
    #[command(flatten)]
    locking: LockingArgs,
}

pub(crate) async fn export(
    args: &ExportArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let Some(stack) = &args.stack else {
        return export_all(args, global, process).await;
    };
    let to = StateLocation::parse(&args.to, &process.cwd);
    let locking = &args.locking.read(matches!(to, StateLocation::Http(_)))?;
    let other = match args.to.as_str() {
        "-" => Some("`terrane state pull` prints a state; a file of that name is `./-`"),
        "copy" => Some("`copy` is for `state import`; a file of that name is `./copy`"),
        _ => None,
    };
    if let Some(hint) = other {
        return Err(
            CommandError::new(format!("cannot export a state to `{}`", args.to))
                .hint(hint)
                .status(ExitStatus::Usage),
        );
    }
    let exported = if to == StateLocation::Engine {
        let (open, project) = valid_project(global, process)?;
        let stack = selection::one(stack, &project)?;
        let settings = process.settings(global)?;
        let control = open_home(&settings, &open, process, process.look(global)).await?;
        let context = ProjectContext {
            open: &open,
            project: &project,
            env: &process.env,
        };
        export::export_to_engine(&control, context, stack, &process.actor(), args.copy).await
    } else {
        let place = HomeHandle::open(global, process).await?;
        let export = StateExport {
            state: &place.state(stack).await?,
            to: &to,
            credential: args.credential.as_deref(),
            root: &place.root,
            locking,
            who: &process.actor(),
        };
        export::export_state(&place.control, &process.env, &export).await
    };
    let exported = exported.map_err(|err| failed(&err))?;
    if global.json {
        let version = &exported.version;
        report::json(&json!({
            "stack": stack, "state": version.state.name, "version": version.version,
            "serial": exported.serial, "lineage": version.lineage,
        }))?;
    }
    print(&exported, &to, locking)?;
    Ok(ExitStatus::Done)
}

async fn export_all(
    args: &ExportArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let dir = process.cwd.join(&args.to);
    let entries = export::export_all(&place.control, &dir).await;
    let entries = entries.map_err(|err| failed(&err))?;
    if global.json {
        report::json(&json!({ "exported": entries }))?;
    }
    report::say(&format!(
        "{} written to `{}`.\n",
        count(entries.len(), "state"),
        dir.display()
    ))?;
    Ok(ExitStatus::Done)
}

fn failed(err: &export::ExportError) -> CommandError {
    let shown = CommandError::from_error(err);
    if err.is_interruption() {
        shown.status(ExitStatus::Interrupted)
    } else {
        shown
    }
}

fn print(
    exported: &export::Exported,
    to: &StateLocation,
    locking: &Locking,
) -> Result<(), CommandError> {
    let version = &exported.version;
    let done = if exported.was_there {
        "is there already, in"
    } else {
        "written to"
    };
    report::say(&format!(
        "State `{}` {done} {}: serial {}, lineage {}.\n",
        clean(&version.state.name),
        exported.place,
        exported.serial,
        clean(&version.lineage)
    ))?;
    if *to != StateLocation::Engine {
        say_if_copy(version)?;
    }
    if let Some(way) = &exported.locked_by {
        report::say(&format!("note: the backend was locked by {way}\n"))?;
    }
    if *locking == Locking::Nowhere {
        report::say(
            "note: the backend was not locked: make sure that no other client wrote there\n",
        )?;
    }
    if exported.secret_paths > 0 {
        report::say(&format!(
            "note: {} of its values contain secrets of runs; masked here, they are shown where this is imported\n",
            exported.secret_paths
        ))?;
    }
    Ok(())
}
