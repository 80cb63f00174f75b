//! `terrane key`: the master keys of a home.

use std::path::PathBuf;

use control::home::master_keys::{self, KeysError, MasterKey};
use serde_json::json;

use crate::commands::home_args::HomeHandle;
use crate::commands::manual::ask;
use crate::global::Global;
use crate::view::{errors, table::Table, text::count};
use crate::{CommandError, ExitStatus, Process, report};

/// See which master keys a home needs, and replace one
///
/// The key is a file in the config directory, made on first use; `TERRANE_KEY_FILE` names another,
/// `TERRANE_KEY` is the key itself, `TERRANE_KEY_AGE` an age identity, or the path of its file, that decrypts
/// `master.key.age`, and `TERRANE_KEY_COMMAND` a command that prints it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane key list\n  terrane key rotate")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    List(ListArgs),
    Rotate(RotateArgs),
}

/// Show the master keys, and how many data keys need each
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane key list\n  terrane key list --json")]
struct ListArgs {}

/// Replace the master key
///
/// Data keys are wrapped with the new one; states are not rewritten. May be repeated after a crash. The old key
/// stays in the file, behind the new one, until you remove it: backups from before need it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane key rotate\n  terrane key rotate --auto-approve\n  terrane key rotate --to /media/usb/terrane.key"
)]
struct RotateArgs {
    /// Put the new key there instead of where the old one is
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Do it without asking
    #[arg(long)]
    auto_approve: bool,
}

pub(crate) async fn key(
    args: KeyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    match args.command {
        KeyCommand::List(ListArgs {}) => list(&place, global, process).await,
        KeyCommand::Rotate(args) => rotate(&args, &place, global, process).await,
    }
}

async fn list(
    place: &HomeHandle,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let masters = master_keys::list(&place.control).await;
    let masters = masters.map_err(|err| failed(&err))?;
    if global.json {
        let document = |key: &MasterKey| {
            json!({
                "id": key.id,
                "wraps": key.wraps,
                "at_hand": key.at_hand,
                "data_keys": key.data_keys,
            })
        };
        let masters: Vec<_> = masters.iter().map(document).collect();
        report::json(&json!({ "keys": masters }))?;
        return Ok(ExitStatus::Done);
    }
    let mut table = Table::new(["KEY", "DATA KEYS", "USE"]).right(1);
    for key in &masters {
        let used = match (key.wraps, key.at_hand, key.data_keys) {
            (true, _, _) => "wraps",
            (false, true, 0) => "nothing needs it in this home; other homes and older backups may",
            (false, true, _) => "unwraps; `terrane key rotate` continues",
            (false, false, _) => "missing: the data keys it wraps cannot be read",
        };
        table.row([key.id.as_str(), &key.data_keys.to_string(), used]);
    }
    report::data(&table.render(process.data_look(global)))?;
    Ok(ExitStatus::Done)
}

async fn rotate(
    args: &RotateArgs,
    place: &HomeHandle,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let to = args.to.as_ref().map(|path| process.cwd.join(path));
    let file = master_keys::place_for(&place.control, to.as_deref()).map_err(|err| failed(&err))?;
    let question = format!(
        "Put a new master key into `{}` and wrap every data key with it?",
        file.display()
    );
    ask(&question, args.auto_approve, process)?;
    let rotated = master_keys::rotate(&place.control, to.as_deref()).await;
    let rotated = rotated.map_err(|err| failed(&err))?;
    let file = rotated.file.display();
    if global.json {
        report::json(&json!({
            "new": rotated.new,
            "old": rotated.old,
            "file": file.to_string(),
            "rewrapped": rotated.rewrapped,
            "resumed": rotated.resumed,
        }))?;
        return Ok(ExitStatus::Done);
    }
    let begun = if rotated.resumed {
        "Continued with"
    } else {
        "Made"
    };
    report::say(&format!(
        "{begun} master key `{}`; wrapped {} with it.\n",
        rotated.new,
        count(rotated.rewrapped, "data key")
    ))?;
    let mut hints = vec![format!("back it up: it is in `{file}`")];
    if rotated.moved {
        hints.push(format!(
            "the old key alone opens nothing any more: `export TERRANE_KEY_FILE={file}`"
        ));
    }
    hints.push(
        "other homes still use the old key, which is kept behind the new one; a server that reads the key from a file or a command reads the new one automatically"
            .to_owned(),
    );
    hints.push(
        "rotate each of them; remove the old key's line only when no home and no backup needs it"
            .to_owned(),
    );
    let said = "without the new key no state can be read any more";
    report::say(&errors::render_warning(said, &hints, process.look(global)))?;
    Ok(ExitStatus::Done)
}

fn failed(err: &KeysError) -> CommandError {
    CommandError::from_error(err)
}
