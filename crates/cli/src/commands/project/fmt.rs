//! `terrane fmt`

use std::path::{Path, PathBuf};

use control::project::formatting::{self, FormatReport};

use crate::commands::{read_project, valid_project};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Format the project file and the stacks
///
/// The engine does the formatting, so the result is what `tofu fmt` or `terraform fmt` gives.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane fmt\n  terrane fmt --check   # exit code 2 if a file would change"
)]
pub(crate) struct FmtArgs {
    /// Change nothing; name the files that would change
    #[arg(long)]
    check: bool,
}

pub(crate) async fn fmt(
    args: &FmtArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let open = read_project(global, process)?;
    // Semantic errors do not prevent formatting.
    let Some(project) = open.loaded.project.clone() else {
        return valid_project(global, process).map(|_| ExitStatus::Done);
    };
    let settings = process.settings(global)?;
    let formatted = formatting::format(
        &open,
        &project,
        &process.env,
        &settings.cache_dir,
        args.check,
    )
    .await
    .map_err(|err| CommandError::from_error(&err))?;
    let FormatReport { changed } = formatted;
    if global.json {
        report::json(&serde_json::json!({ "changed": names(&changed) }))?;
    } else {
        for name in names(&changed) {
            report::data(&format!("{name}\n"))?;
        }
    }
    Ok(if args.check && !changed.is_empty() {
        ExitStatus::Changes
    } else {
        ExitStatus::Done
    })
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files
        .iter()
        .map(|file| Path::display(file).to_string())
        .collect()
}
