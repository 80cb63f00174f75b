//! Shared code of the read-only state commands: which version, what may be shown, and how errors are
//! reported.

use std::time::Duration;

use control::Control;
use control::state::queries::version::{self, AskStateError};
use jiff::Timestamp;
use model::state::time_spec::InvalidTimeSpec;
use model::state::version_ref::VersionRef;
use model::state::{StateName, StateVersion, time_spec};

use crate::commands::manual::reason_text;
use crate::global::Global;
use crate::view::duration;
use crate::{CommandError, Process, report};

/// Which version is looked at.
#[derive(Debug, clap::Args)]
pub(super) struct VersionRefArgs {
    /// An older version instead of the newest
    #[arg(long, value_name = "N", conflicts_with = "at")]
    version: Option<i64>,
    /// What was the newest at that time: `2026-11-01T10:00` (UTC), or how long ago: `2h`
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl VersionRefArgs {
    pub(super) fn pick(&self) -> Result<VersionRef, CommandError> {
        match (self.version, &self.at) {
            (Some(version), _) => Ok(VersionRef::Version(version)),
            (None, Some(at)) => Ok(VersionRef::At(moment(at)?)),
            (None, None) => Ok(VersionRef::Head),
        }
    }
}

/// Whether sensitive values are shown.
#[derive(Debug, clap::Args)]
pub(super) struct RevealArgs {
    /// Show sensitive values in clear; recorded, with the reason
    #[arg(long, requires = "reason")]
    reveal: bool,
    /// Why the values must be shown
    #[arg(long, value_name = "TEXT", requires = "reveal")]
    reason: Option<String>,
    /// Show everything, however long it is
    #[arg(long)]
    pub(super) full: bool,
}

impl RevealArgs {
    /// Records the reveal before anything is shown: a view that is not recorded cannot be undone.
    pub(super) async fn reveal(
        &self,
        control: &Control,
        state: &StateName,
        global: &Global,
        process: &Process,
        detail: String,
    ) -> Result<bool, CommandError> {
        let Some(reason) = self.reason.as_deref().filter(|_| self.reveal) else {
            return Ok(false);
        };
        let reason = reason_text(reason, global, process)?;
        let actor = process.actor();
        version::record_reveal(control, state, &actor, &reason, detail)
            .await
            .map_err(|err| shown(&err))?;
        Ok(true)
    }
}

/// Prints a note if this is a copy of the state, and how old it is.
pub(crate) fn say_if_copy(version: &StateVersion) -> Result<(), CommandError> {
    if !version.is_copy() {
        return Ok(());
    }
    let since = Timestamp::now().duration_since(version.created_at);
    report::say(&format!(
        "note: a copy, seen {}: the state lives in a backend of the engine\n",
        duration::ago(Duration::try_from(since).unwrap_or_default())
    ))
}

pub(super) fn moment(word: &str) -> Result<Timestamp, CommandError> {
    time_spec::parse(word, Timestamp::now()).map_err(|err| not_a_moment(&err))
}

pub(super) fn not_a_moment(err: &InvalidTimeSpec) -> CommandError {
    CommandError::from_error(err)
}

pub(super) fn shown(err: &AskStateError) -> CommandError {
    CommandError::from_error(err)
}
