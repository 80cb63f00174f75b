//! `terrane state recover`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use control::home::master_keys::KeySource;
use control::home::{HomeLocation, HomeSettings};
use control::state::queries::recover::OTHER_KEY;
use control::state::queries::recover::{
    self as recovery, AcceptedLoss, HomeRebuild, RecoverReport, RecoveredStatus, RecoveredVersion,
};
use control::state::queries::restore_report::{LostState, RestoreReport};
use model::state::{RivalVersion, StateName, StateVersion};
use serde_json::json;

use crate::commands::manual::ReasonArg;
use crate::commands::read_project;
use crate::global::Global;
use crate::global::at_home;
use crate::view::text::count;
use crate::view::{ViewOptions, actors, errors};
use crate::{CommandError, ExitStatus, Process, report};

/// Decrypt everything in a home, with only its files and the key
///
/// Needs no database and no server: a copy of the directory, or of the bucket, is enough. Writes every version
/// in clear to `OUT/PROJECT/STATE/VERSION-SERIAL.tfstate`, the artifacts of stacks to `OUT/PROJECT/STATE/artifacts/`,
/// and an `index.json` of what it found.
///
/// With `--into-home` nothing is decrypted: the database is rebuilt from the files, or, if it is an older copy,
/// completed from them. Locks, runs, tokens and deletions of states are only in the database.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state recover --data /mnt/backup/home --key master.key --to recovered\n  terrane state recover --data copy-of-bucket --to recovered --json\n  terrane state recover --into-home\n  \
                  terrane state recover --into-home --accept-loss shop/network@41 --reason \"the disk lost version 42\""
)]
pub(crate) struct RecoverArgs {
    /// The master key, if it is not where `TERRANE_KEY…` says or in its usual place
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where to write; created if it does not exist, and never overwritten
    #[arg(
        long,
        value_name = "OUT",
        required_unless_present_any = ["into_home", "accept_loss"],
        conflicts_with = "into_home"
    )]
    to: Option<PathBuf>,
    /// Write what the files contain into the database of the home
    #[arg(long)]
    into_home: bool,
    /// Continue the state from this version, although newer versions were acknowledged and cannot be opened; 0 means an
    /// empty state, if no version can be opened. May be repeated
    #[arg(
        long,
        value_name = "NAME@VERSION",
        value_parser = read_loss,
        conflicts_with = "to",
        requires = "reason"
    )]
    accept_loss: Vec<AcceptedLoss>,
    /// Why the loss is accepted, in a sentence; it is recorded
    #[arg(long, value_name = "TEXT", requires = "accept_loss")]
    reason: Option<String>,
}

fn read_loss(word: &str) -> Result<AcceptedLoss, String> {
    let parsed = word.rsplit_once('@').and_then(|(state, version)| {
        let version = version.parse().ok()?;
        let state = state.to_owned();
        Some(AcceptedLoss { state, version })
    });
    parsed.ok_or_else(|| {
        "write the state and the version to continue from: `NAME@VERSION`".to_owned()
    })
}

pub(crate) async fn recover(
    args: &RecoverArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    if args.to.is_none() && !args.into_home {
        return Err(
            CommandError::new("`--accept-loss` is for a home that is made again")
                .hint("use it with `--into-home`")
                .status(ExitStatus::Usage),
        );
    }
    let mut settings = process.settings(global)?;
    if let Some(key) = &args.key {
        settings.key = KeySource::File(process.key_file("--key", key)?);
    }
    let Some(to) = &args.to else {
        return into_home(args, &settings, global, process).await;
    };
    let data = match settings.named_home {
        Some(HomeLocation::Directory(dir)) => dir,
        Some(HomeLocation::Shared(_)) => {
            return Err(
                CommandError::new("a bucket is recovered from a copy on disk")
                    .hint("copy it with the service's own tool, then name the copy: `--data DIR`")
                    .status(ExitStatus::Usage),
            );
        }
        None => settings.data_dir,
    };
    let to = process.cwd.join(to);
    let recovered = recovery::recover(&data, &settings.key, &to).await;
    let report = recovered.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        let document = serde_json::to_value(&report)
            .map_err(|err| CommandError::because("could not write JSON", &err))?;
        report::json(&actors::by_name(document))?;
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

async fn into_home(
    args: &RecoverArgs,
    settings: &HomeSettings,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let home = match read_project(global, process) {
        Ok(open) => settings.home_of(&open.identity.id),
        Err(err) if global.project.is_some() => return Err(err),
        Err(err) => settings
            .bare_home()
            .ok_or_else(|| err.hint("or name a home: `--data DIR`"))?,
    };
    let reason = args.reason.clone().map(ReasonArg::from);
    let reason = reason
        .map(|reason| reason.read(global, process))
        .transpose()?;
    let done = recovery::into_home(&home, &args.accept_loss, reason.as_ref()).await;
    let HomeRebuild { rebuilt, went_on } = done.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        report::json(&actors::by_name(json!({
            "states": rebuilt.states,
            "versions": rebuilt.versions,
            "heads": rebuilt.heads,
            "artifacts": rebuilt.artifacts,
            "not_provably_acknowledged": rebuilt.unproven,
            "broken": rebuilt.broken,
            "lost": rebuilt.lost.iter().map(lost_document).collect::<Vec<_>>(),
            "acknowledged_twice": rebuilt.rivals.iter().map(|rival| &rival.version).collect::<Vec<_>>(),
            "damaged": rebuilt.unread.iter().map(|unread| json!({
                "state": unread.state,
                "version": unread.version,
                "causes": unread.causes,
            })).collect::<Vec<_>>(),
            "went_on": went_on,
        })))?;
    } else {
        let look = process.look(global);
        let mut text = told(&rebuilt, !went_on.is_empty(), look);
        text.push_str(&told_of_losses(&rebuilt, look));
        for version in &went_on {
            _ = writeln!(
                text,
                "State `{}` continues with version {}, serial {}. Its record stays open: `terrane run list --open`.",
                version.state, version.version, version.serial
            );
        }
        report::say(&at_home(&text, global))?;
    }
    let all_opens =
        rebuilt.broken.is_empty() && rebuilt.lost.is_empty() && rebuilt.unread.is_empty();
    let is_decided = all_opens || accepted_all(&rebuilt, &went_on);
    Ok(if is_decided && rebuilt.rivals.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

/// Whether the user has accepted all reported losses.
fn accepted_all(rebuilt: &RestoreReport, went_on: &[StateVersion]) -> bool {
    let decided = |state: &StateName| went_on.iter().any(|version| version.state == *state);
    rebuilt.lost.is_empty()
        && rebuilt.broken.iter().all(|version| decided(&version.state))
        && rebuilt.unread.iter().all(|unread| decided(&unread.state))
}

fn lost_document(lost: &LostState) -> serde_json::Value {
    json!({
        "state": lost.state,
        "acknowledged": lost.acknowledged,
        "opens": (lost.readable > 0).then_some(lost.readable),
        "causes": lost.causes,
    })
}

fn told_of_losses(rebuilt: &RestoreReport, look: ViewOptions) -> String {
    let mut text = String::new();
    let (of_the_key, others): (Vec<&LostState>, Vec<&LostState>) =
        rebuilt.lost.iter().partition(|lost| lost.needs_other_key);
    if let Some(first) = of_the_key.first() {
        let names: Vec<String> = of_the_key
            .iter()
            .map(|lost| format!("`{}`", lost.state))
            .collect();
        let message = format!(
            "{} cannot be read with this master key: {}",
            count(of_the_key.len(), "state"),
            names.join(", ")
        );
        let hints = [OTHER_KEY.to_owned()];
        text.push_str(&errors::render(&message, &first.causes, &hints, look));
    }
    for lost in others {
        let hints = ways_on(&lost.state, lost.readable);
        text.push_str(&errors::render(&lost.message, &lost.causes, &hints, look));
    }
    for rival in &rebuilt.rivals {
        let hints = ways_to_settle(rival);
        text.push_str(&errors::render(&rival.to_string(), &[], &hints, look));
    }
    for unread in &rebuilt.unread {
        let message = format!(
            "version {} of state `{}` is damaged, and was left out",
            unread.version, unread.state
        );
        let hint = "restore the file from a backup, and begin again without the database; otherwise the state continues without it".to_owned();
        text.push_str(&errors::render(&message, &unread.causes, &[hint], look));
    }
    text
}

/// Hints for a lost version; `verify` prints them, too.
pub(super) fn ways_on(state: &StateName, readable: i64) -> Vec<String> {
    let restore = "restore the file from a backup, then `terrane state recover --into-home` again";
    let mut hints = vec![restore.to_owned()];
    hints.push(if readable > 0 {
        format!(
            "or continue from version {readable}: `terrane state recover --into-home --accept-loss {state}@{readable} --reason \"…\"`"
        )
    } else {
        begin_anew(state)
    });
    hints
}

/// The hint for the last resort; `verify` prints it, too.
pub(super) fn begin_anew(state: &StateName) -> String {
    format!(
        "or start with an empty state, and import the existing resources: `terrane state recover --into-home --accept-loss {state}@0 --reason \"…\"`"
    )
}

/// Hints for two acknowledged versions with the same number.
pub(super) fn ways_to_settle(rival: &RivalVersion) -> Vec<String> {
    let RivalVersion { version, newest } = rival;
    let (state, newest) = (&version.state, newest.version);
    vec![
        "`terrane state recover --to DIR` (for a bucket, of a copy) writes both: compare them with the real resources".to_owned(),
        format!(
            "then choose the version to continue from: `terrane state recover --into-home --accept-loss {state}@{newest} --reason \"…\"`, and `terrane state push` if the other one is right"
        ),
    ]
}

fn told(rebuilt: &RestoreReport, went_on: bool, look: ViewOptions) -> String {
    let plural =
        |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut text = match rebuilt.states.as_slice() {
        [] if went_on
            || !(rebuilt.lost.is_empty()
                && rebuilt.broken.is_empty()
                && rebuilt.rivals.is_empty()) =>
        {
            String::new()
        }
        [] if rebuilt.artifacts == 0 && rebuilt.heads == 0 => {
            "The database contains everything that the files contain.\n".to_owned()
        }
        [] => String::new(),
        states => {
            let names: Vec<String> = states.iter().map(|state| format!("`{state}`")).collect();
            format!(
                "The database has {} of {} again: {}.\n",
                plural(rebuilt.versions, "version"),
                plural(states.len(), "state"),
                names.join(", ")
            )
        }
    };
    if rebuilt.heads > 0 {
        let count = plural(
            usize::try_from(rebuilt.heads).unwrap_or(usize::MAX),
            "state",
        );
        _ = writeln!(text, "The newest version is the newest again for {count}.");
    }
    if rebuilt.artifacts > 0 {
        let count = plural(rebuilt.artifacts, "state");
        _ = writeln!(text, "It contains the artifacts of {count} again.");
    }
    if !rebuilt.states.is_empty() {
        let lost = "locks, runs and tokens that the database had are not in the files, nor that a state was deleted";
        let hint = "`terrane state verify` checks what is there".to_owned();
        text.push_str(&errors::render_warning(lost, &[hint], look));
    }
    for version in &rebuilt.unproven {
        let message = format!(
            "version {} of state `{}` (serial {}) is not provably acknowledged, and was left out",
            version.version, version.state, version.serial
        );
        let hint = "`terrane state recover --to DIR` (for a bucket, of a copy) writes it down: compare it, then `terrane state push`";
        text.push_str(&errors::render_warning(&message, &[hint.to_owned()], look));
    }
    for version in &rebuilt.broken {
        let message = format!(
            "version {} of state `{}` builds on one that is gone",
            version.version, version.state
        );
        text.push_str(&errors::render(&message, &[], &[], look));
    }
    text
}

fn summary(report: &RecoverReport) -> String {
    let version = |RecoveredVersion { file, standing, .. }: &RecoveredVersion| {
        let note = match standing {
            RecoveredStatus::Acknowledged => "",
            RecoveredStatus::NotProvablyAcknowledged => "  (not provably acknowledged)",
            RecoveredStatus::Superseded => "  (not acknowledged: another one was)",
        };
        format!("{}{note}\n", file.display())
    };
    let versions = report.versions.iter().map(version);
    let refused = report.refused.iter();
    let refused = refused.map(|file| format!("{}  (was refused)\n", file.display()));
    let artifacts = report.artifacts.iter();
    let artifacts = artifacts.map(|file| format!("{}\n", file.display()));
    versions.chain(refused).chain(artifacts).collect()
}

fn doubts(report: &RecoverReport, look: ViewOptions) -> String {
    let unproven =
        |one: &&RecoveredVersion| one.standing == RecoveredStatus::NotProvablyAcknowledged;
    let mut text = String::new();
    for RecoveredVersion { version, .. } in report.versions.iter().filter(unproven) {
        let message = format!(
            "version {} of state `{}` (serial {}) is not provably acknowledged",
            version.version, version.state, version.serial
        );
        let hint = "no later version mentions it: compare it with the version before".to_owned();
        text.push_str(&errors::render_warning(&message, &[hint], look));
    }
    // A failing key fails for everything that it encrypted: report it once.
    let mut told: BTreeMap<(&StateName, &[String]), Vec<Option<i64>>> = BTreeMap::new();
    for damaged in &report.damaged {
        let key = (&damaged.state, damaged.why.as_slice());
        told.entry(key).or_default().push(damaged.version);
    }
    for ((state, why), pieces) in told {
        let what = match pieces[..] {
            [Some(version)] => format!("version {version}"),
            [None] => "a refused write, or the artifacts,".to_owned(),
            _ => format!("{} pieces", pieces.len()),
        };
        let message = format!("could not read {what} of state `{state}`");
        text.push_str(&errors::render(&message, why, &[], look));
    }
    text
}
