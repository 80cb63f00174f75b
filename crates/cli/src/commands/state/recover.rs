//! `terrane state recover`

use std::path::PathBuf;

use control::states::recover::{
    self as recovery, RecoverError, RecoverReport, RecoveredStanding, RecoveredVersion,
};

use control::home::StorePlace;

use crate::args::Global;
use crate::view::{Look, errors};
use crate::{CommandError, ExitStatus, Process, report};

/// Decrypt everything a home holds, with its files and the key alone
///
/// Needs no database and no server: a copy of the directory, or of the bucket, is enough. Writes every version
/// in clear to `OUT/PROJECT/STATE/VERSION-SERIAL.tfstate`, and an `index.json` of what it found.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state recover --data /mnt/backup/home --key master.key --to recovered\n  terrane state recover --data copy-of-bucket --to recovered --json"
)]
pub(crate) struct RecoverArgs {
    /// The master key, if it is not in its usual place
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where to write; made if it is not there, and never written over
    #[arg(long, value_name = "OUT")]
    to: PathBuf,
}

pub(crate) fn recover(
    args: &RecoverArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let settings = process.settings(global)?;
    let key = args.key.as_ref().map(|key| process.cwd.join(key));
    let key = key.unwrap_or_else(|| settings.config_dir.join("master.key"));
    let data = match settings.named_home {
        Some(StorePlace::Directory(dir)) => dir,
        Some(StorePlace::Shared(_)) => {
            return Err(
                CommandError::new("a bucket is recovered from a copy on disk")
                    .hint("copy it with the service's own tool, then name the copy: `--data DIR`")
                    .status(ExitStatus::Usage),
            );
        }
        None => settings.data_dir,
    };
    let to = process.cwd.join(&args.to);
    let report = recovery::recover(&data, &key, &to).map_err(|err| {
        let shown = CommandError::from_error(&err);
        match err {
            RecoverError::NoKey { .. } => shown.hint("name the key: `--key FILE`"),
            RecoverError::NoHome { .. } => shown.hint("name the home, or a copy: `--data DIR`"),
            RecoverError::NotEmpty { .. } => shown.hint("name a new directory: `--to OUT`"),
            RecoverError::Key { .. } | RecoverError::Read { .. } | RecoverError::Write { .. } => {
                shown
            }
        }
    })?;
    if global.json {
        let document = serde_json::to_value(&report)
            .map_err(|err| CommandError::because("could not write JSON", &err))?;
        report::json(&document)?;
    } else {
        report::data(&summary(&report))?;
        report::say(&doubts(&report, process.look(global)))?;
    }
    Ok(if report.damaged.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

fn summary(report: &RecoverReport) -> String {
    let version = |RecoveredVersion { file, standing, .. }: &RecoveredVersion| {
        let note = match standing {
            RecoveredStanding::Acknowledged => "",
            RecoveredStanding::NotProvablyAcknowledged => "  (not provably acknowledged)",
            RecoveredStanding::Superseded => "  (not acknowledged: another one was)",
        };
        format!("{}{note}\n", file.display())
    };
    let versions = report.versions.iter().map(version);
    let refused = report.refused.iter();
    let refused = refused.map(|file| format!("{}  (was refused)\n", file.display()));
    versions.chain(refused).collect()
}

fn doubts(report: &RecoverReport, look: Look) -> String {
    let unproven =
        |one: &&RecoveredVersion| one.standing == RecoveredStanding::NotProvablyAcknowledged;
    let mut text = String::new();
    for RecoveredVersion { version, .. } in report.versions.iter().filter(unproven) {
        let message = format!(
            "version {} of state `{}` (serial {}) is not provably acknowledged",
            version.version, version.state, version.serial
        );
        let hint = "nothing that was written after it says so: compare it with the version before"
            .to_owned();
        text.push_str(&errors::render_warning(&message, &[hint], look));
    }
    for damaged in &report.damaged {
        let what = match damaged.version {
            Some(version) => format!("version {version}"),
            None => "a refused write".to_owned(),
        };
        let message = format!("could not read {what} of state `{}`", damaged.state);
        text.push_str(&errors::render(&message, &damaged.why, &[], look));
    }
    text
}
