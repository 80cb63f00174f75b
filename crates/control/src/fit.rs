//! What was approved of a run's plan, kept sealed beside it, and whether a fresh plan fits it.
//!
//! Not here: what fits (`model::plan::fit`), and what becomes of approvals (`model::changeset`).

use std::fs;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use model::ids::RunId;
use model::plan::fit::{Difference, Fit, fits};
use model::plan::{ParsePlanError, difference};
use model::run::{PlanRecord, Preview, RunEvent, RunSpec};
use serde::{Deserialize, Serialize};
use store::{ChangeSetError, Scope, StoreError};

use crate::Control;
use crate::bundle::digests::{Purpose, digester};
use crate::runner::write_private;

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("could not understand the plan")]
    Parse(#[from] ParsePlanError),
    #[error("could not read what happened to run `{run}`")]
    Events { run: RunId, source: ChangeSetError },
    #[error("could not keep what run `{run}` would change")]
    Keep { run: RunId, source: io::Error },
    #[error("could not seal what run `{run}` would change")]
    Seal { run: RunId, source: StoreError },
    #[error("could not write down what run `{run}` would change")]
    Write {
        run: RunId,
        source: serde_json::Error,
    },
}

/// How a fresh plan stands to what was approved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// None if nothing was approved yet.
    pub fits: Option<bool>,
    /// What nobody approved, for people.
    pub novelties: Vec<String>,
    /// If it fits: from when on what was said is about it.
    pub since: Option<Timestamp>,
}

/// What a plan does not show is approved with the source it stands in.
const OTHER_SOURCE: &str =
    "its own source is another one: commands of provisioners and hooks are in no plan";

/// What is kept of a plan that people see. Fields are only added.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    difference: Difference,
    /// Digest of the stack's own source.
    #[serde(default)]
    own_source: String,
}

/// Judges a fresh plan, given as the engine's JSON. What was approved stays what others are compared with for as long
/// as they fit; else the fresh plan takes its place, to be approved itself. `is_heard`: others than who asks approve it, so
/// its source must be the one that they could see.
pub async fn judge(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    json: &[u8],
    is_confirmed: bool,
    is_reviewed: bool,
    is_heard: bool,
) -> Result<Judged, FitError> {
    let fresh = read(control, run, spec, json).await?;
    let mut judged = match last_seen(control, run).await? {
        Seen::Approved(plan) => Judged {
            since: plan.since,
            ..compare(control, run, spec, &fresh).await?
        },
        // Whoever confirmed the change set saw what could be seen of it.
        Seen::Previewed if is_confirmed => compare(control, run, spec, &fresh).await?,
        // Of a bundle: what was seen where it was made, if anything could be.
        Seen::Nothing if is_reviewed && place(control, run).0.exists() => {
            compare(control, run, spec, &fresh).await?
        }
        Seen::Previewed | Seen::Nothing => Judged::default(),
    };
    if is_heard && judged.fits == Some(true) && !has_approved_source(control, run, spec).await? {
        judged.fits = Some(false);
        judged.novelties = vec![OTHER_SOURCE.to_owned()];
    }
    if judged.fits == Some(true) {
        return Ok(judged);
    }
    keep(control, run, spec, &fresh).await?;
    Ok(Judged {
        since: None,
        ..judged
    })
}

/// What a plan would change, its values as keyed digests.
pub async fn read(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    json: &[u8],
) -> Result<Difference, FitError> {
    let digester = digester(control, run, spec, Purpose::PlanValue).await;
    let digester = digester.map_err(|source| FitError::Seal { run, source })?;
    let digest = |value: &serde_json::Value| digester.digest(value.to_string().as_bytes());
    Ok(difference(json, &digest)?)
}

/// Compares with what was approved of this run. If that is not known any more, nothing fits.
pub async fn compare(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    fresh: &Difference,
) -> Result<Judged, FitError> {
    let Some(Kept {
        difference: approved,
        ..
    }) = approved(control, run, spec).await?
    else {
        return Ok(Judged {
            fits: Some(false),
            novelties: Vec::new(), // there is nothing to tell it from
            since: None,
        });
    };
    let novelties: Vec<String> = match fits(fresh, &approved) {
        Fit::Yes => Vec::new(),
        Fit::No(novelties) => novelties.iter().map(ToString::to_string).collect(),
    };
    Ok(Judged {
        fits: Some(novelties.is_empty()),
        novelties,
        since: None,
    })
}

/// Keeps what a person is about to see of a run, to compare later plans with.
pub async fn keep(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    difference: &Difference,
) -> Result<(), FitError> {
    let kept = Kept {
        difference: difference.clone(),
        own_source: spec.own_source.clone(),
    };
    let plain = serde_json::to_vec(&kept).map_err(|source| FitError::Write { run, source })?;
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let (path, purpose) = place(control, run);
    let sealed = control.store.seal(scope, &purpose, plain).await;
    let sealed = sealed.map_err(|source| FitError::Seal { run, source })?;
    write_private(&path, &sealed).map_err(|source| FitError::Keep { run, source })
}

/// Whether what was approved of this run was planned from the same source of its stack. One from before this was kept
/// says nothing.
async fn has_approved_source(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
) -> Result<bool, FitError> {
    let approved = approved(control, run, spec).await?;
    Ok(approved
        .is_some_and(|kept| kept.own_source.is_empty() || kept.own_source == spec.own_source))
}

async fn approved(control: &Control, run: RunId, spec: &RunSpec) -> Result<Option<Kept>, FitError> {
    let (path, purpose) = place(control, run);
    let Ok(sealed) = fs::read(path) else {
        return Ok(None);
    };
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let plain = control.store.unseal(scope, &purpose, sealed).await;
    let plain = plain.map_err(|source| FitError::Seal { run, source })?;
    Ok(serde_json::from_slice(&plain).ok())
}

/// What people have seen of a run so far.
enum Seen {
    Nothing,
    /// A preview, without the values that did not exist yet.
    Previewed,
    /// A plan that somebody said yes to.
    Approved(Box<PlanRecord>),
}

/// The last plan of this run, if somebody said yes to it: an apply is started only then.
async fn last_seen(control: &Control, run: RunId) -> Result<Seen, FitError> {
    let events = control.store.run_events(run).await;
    let events = events.map_err(|source| FitError::Events { run, source })?;
    let (mut last, mut approved, mut previewed) = (None, false, false);
    for (_, event) in events {
        match event {
            RunEvent::PlanFinished { plan, fits, .. } => {
                approved &= fits == Some(true);
                previewed = false;
                last = Some(plan);
            }
            RunEvent::Previewed { preview, .. } => {
                previewed = matches!(preview, Preview::Planned { .. });
            }
            RunEvent::Confirmed | RunEvent::ApplyStarted => approved = true,
            // What was applied is behind it: the yes to that says nothing of what follows.
            RunEvent::ApplyFinished { .. } => (last, approved) = (None, false),
            RunEvent::Reopened { .. } => previewed = false,
            _ => {}
        }
    }
    Ok(match last.filter(|_| approved) {
        Some(plan) => Seen::Approved(Box::new(plan)),
        None if previewed => Seen::Previewed,
        None => Seen::Nothing,
    })
}

/// Where it is kept, and for what it is sealed.
pub(crate) fn place(control: &Control, run: RunId) -> (PathBuf, String) {
    let path = control.home.run_dir(run).join("plan.difference");
    (path, format!("plan-difference {run}"))
}
