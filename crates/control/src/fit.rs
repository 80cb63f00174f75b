//! What was approved of a run's plan, kept sealed beside it, and whether a fresh plan fits it.
//!
//! Not here: what fits (`model::plan::fit`), and what becomes of approvals (`model::changeset`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use model::approval::Approval;
use model::changeset::SetEvent;
use model::ids::{ChangeSetId, RunId};
use model::plan::fit::{Difference, Fit, fits};
use model::plan::{ParsePlanError, difference};
use model::policy::{Point, Requirement};
use model::run::{PlanRecord, Preview, RunEvent, RunSpec, Skip};
use serde::{Deserialize, Serialize};
use store::{ChangeSetError, Scope, StoreError};

use crate::Control;
use crate::home::write_private;
use crate::keyed_digests::{Purpose, digester};

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("could not understand the plan")]
    Parse(#[from] ParsePlanError),
    #[error("could not read what happened to run `{run}`")]
    Events { run: RunId, source: ChangeSetError },
    #[error("could not read what happened to change set `{set}`")]
    Set {
        set: ChangeSetId,
        source: ChangeSetError,
    },
    #[error("could not read who approved change set `{set}`")]
    Approvals {
        set: ChangeSetId,
        source: ChangeSetError,
    },
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

/// How a fresh plan, or preview, stands to what people saw of the run before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Whether it is no more than that; none if nobody had said anything of it.
    pub fits: Option<bool>,
    /// Whether the yes to that is one to this, too.
    pub is_said: bool,
    /// What nobody approved, for people.
    pub novelties: Vec<String>,
    /// If it fits: from when on what was said is about it.
    pub since: Option<Timestamp>,
    /// The approvals that policies were known to want when it was said.
    foreseen: Vec<Requirement>,
    /// What it was compared with.
    seen: Option<Sight>,
    /// What counts until this one is recorded.
    before: Option<Kept>,
}

impl Judged {
    /// As one that nobody could have agreed to.
    #[must_use]
    pub fn differing(self, novelty: &str) -> Self {
        Self {
            fits: Some(false),
            novelties: vec![novelty.to_owned()],
            before: self.before,
            ..Self::default()
        }
    }

    /// Whether who spoke knew that a policy wants this.
    pub fn foresaw(&self, wanted: &Requirement) -> bool {
        self.foreseen.contains(wanted)
    }
}

/// What there is to see of a plan, its values as keyed digests. Kept: fields are only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    #[serde(flatten)]
    pub difference: Difference,
    /// Digest of the stack's own source.
    #[serde(default)]
    pub own_source: String,
    /// Digests of the values of its inputs, as far as they were known.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
}

impl Sight {
    /// Of a stack that does not change.
    pub fn of_nothing(spec: &RunSpec) -> Self {
        Self {
            own_source: spec.own_source.clone(),
            ..Self::default()
        }
    }

    /// What a fresh plan would do beyond it. From another source of the stack, or with other values, it may do what is in no
    /// plan. One from before these were kept says nothing of them.
    fn novelties(&self, fresh: &Self, is_heard: bool) -> Vec<String> {
        if let Fit::No(novelties) = fits(&fresh.difference, &self.difference) {
            return novelties.iter().map(ToString::to_string).collect();
        }
        let moved = |(name, digest): (&String, &String)| {
            let now = fresh.inputs.get(name)?;
            (now != digest).then(|| format!("input `{name}` has another value"))
        };
        let mut novelties: Vec<String> = self.inputs.iter().filter_map(moved).collect();
        let is_same = self.own_source.is_empty() || self.own_source == fresh.own_source;
        if is_heard && !is_same {
            novelties.push(OTHER_SOURCE.to_owned());
        }
        novelties
    }

    /// With what was known when it was spoken of, and cannot be told now: a value that comes later is held to that.
    #[must_use]
    fn standing_on(mut self, seen: &Self) -> Self {
        for (name, digest) in &seen.inputs {
            let now = self.inputs.entry(name.clone());
            now.or_insert_with(|| digest.clone());
        }
        self
    }
}

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The record of the plan names it so: the digest of what there is to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// A bundle brought it along: it was seen where that was made, whatever is recorded here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_brought: bool,
    /// What people last saw.
    #[serde(flatten)]
    seen: Sight,
    /// Planned since, and to be applied without a look. If others look all the same, for want of an approval or a yes, what
    /// they say is about this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unseen: Option<Sight>,
    /// What was kept of the plan before. A plan is kept before it is recorded: if that fails, what counts is still this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<Kept>>,
}

impl Kept {
    fn new(seen: Sight, unseen: Option<Sight>) -> Self {
        Self {
            name: None,
            is_brought: false,
            seen,
            unseen,
            before: None,
        }
    }

    /// What the record of a plan means, or what was there before any was made.
    fn named(mut self, name: Option<&str>) -> Option<Self> {
        let before = self.before.take().map(|before| *before);
        let is_meant = |kept: &Self| {
            let is_same = kept.name.as_deref() == name;
            is_same || name.is_none() && kept.is_brought
        };
        Some(self)
            .filter(is_meant)
            .or_else(|| before.filter(is_meant))
    }
}

/// When, and for whom, a plan is judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occasion {
    /// Its change set holds its lanes: who confirmed it saw what could be seen, and nobody looks at this one.
    pub is_confirmed: bool,
    /// Of a bundle: what was seen where it was made, if anything could be.
    pub is_reviewed: bool,
    /// Others than who asks approve it, so its source must be the one that they could see.
    pub is_heard: bool,
}

/// What a plan does not show is approved with the source it stands in.
const OTHER_SOURCE: &str =
    "its own source is another one: commands of provisioners and hooks are in no plan";

/// Judges a fresh plan or preview by what people saw and said of the run before.
pub async fn judge(
    control: &Control,
    set: ChangeSetId,
    run: RunId,
    spec: &RunSpec,
    fresh: &Sight,
    occasion: Occasion,
) -> Result<Judged, FitError> {
    let shown = last_shown(control, set, run).await?;
    let kept = kept(control, run, spec).await?;
    let kept = kept.and_then(|kept| kept.named(shown.sight.as_deref()));
    let before = kept.clone();
    let has_yes = match shown.yes {
        Yes::ToPlan => true,
        Yes::ToPreview => occasion.is_confirmed,
        Yes::None => occasion.is_reviewed && kept.is_some(),
    };
    let has_word = has_yes || is_approved(control, set, run, shown.since).await?;
    if !has_word {
        return Ok(Judged {
            before,
            ..Judged::default()
        });
    }
    let is_looked_at = shown.is_confirmed || is_approved(control, set, run, shown.made).await?;
    let seen = kept.map(|kept| match kept.unseen {
        Some(unseen) if is_looked_at => unseen,
        Some(_) | None => kept.seen,
    });
    let novelties = seen
        .as_ref()
        .map(|it| it.novelties(fresh, occasion.is_heard));
    let fits = novelties.as_ref().is_some_and(Vec::is_empty);
    Ok(Judged {
        fits: Some(fits),
        is_said: has_yes && fits,
        novelties: novelties.unwrap_or_default(), // nothing is kept: there is nothing to tell it from
        since: shown.since.filter(|_| fits),
        foreseen: shown.wanted,
        seen,
        before,
    })
}

/// Whether anybody approved a run, by itself or with its change set, from some moment on.
async fn is_approved(
    control: &Control,
    set: ChangeSetId,
    run: RunId,
    since: Option<Timestamp>,
) -> Result<bool, FitError> {
    let Some(since) = since else {
        return Ok(false);
    };
    let given = control.store.approval_list(set).await;
    let given = given.map_err(|source| FitError::Approvals { set, source })?;
    let is_about = |it: &Approval| it.run.is_none_or(|about| about == run) && it.at >= since;
    Ok(given.iter().any(is_about))
}

/// What a plan, given as the engine's JSON, would change; its values as keyed digests.
pub async fn read(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    json: &[u8],
) -> Result<Difference, FitError> {
    let digester = digester(control, run, spec, Purpose::PlanValue).await;
    let digester = digester.map_err(|source| FitError::Seal { run, source })?;
    let digest = |value: &serde_json::Value| digester.digest(value.to_string().as_bytes());
    Ok(difference(json, spec.refresh_only, &digest)?)
}

/// Keeps what a person is about to see of a run, to compare later plans with; gives the name that its record calls it by.
pub async fn keep(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    judged: Judged,
    fresh: Sight,
) -> Result<String, FitError> {
    let seen = match &judged.seen {
        Some(seen) if judged.fits == Some(true) => fresh.standing_on(seen),
        Some(_) | None => fresh,
    };
    write_named(control, run, spec, Kept::new(seen, None), judged.before).await
}

/// Keeps what is to be applied without a look, beside what was seen.
pub async fn keep_unseen(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    judged: Judged,
    fresh: Sight,
) -> Result<String, FitError> {
    let kept = match judged.seen {
        Some(seen) => Kept::new(seen, Some(fresh)),
        None => Kept::new(fresh, None),
    };
    write_named(control, run, spec, kept, judged.before).await
}

/// Keeps what a bundle shows of a stack that is planned where it is applied.
pub async fn keep_shown(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    shown: Sight,
) -> Result<(), FitError> {
    let kept = Kept {
        is_brought: true,
        ..Kept::new(shown, None)
    };
    write_named(control, run, spec, kept, None).await?;
    Ok(())
}

/// Of what was kept where a bundle was made, what people saw there.
pub fn shown_in(plain: &[u8]) -> Option<Sight> {
    let kept: Kept = serde_json::from_slice(plain).ok()?;
    Some(kept.seen)
}

async fn write_named(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    kept: Kept,
    before: Option<Kept>,
) -> Result<String, FitError> {
    let seen = serde_json::to_vec(&(&kept.seen, &kept.unseen));
    let seen = seen.map_err(|source| FitError::Write { run, source })?;
    let name = drivers::snapshot::sha256(&seen);
    let kept = Kept {
        name: Some(name.clone()),
        before: before.map(Box::new),
        ..kept
    };
    write(control, run, spec, &kept).await?;
    Ok(name)
}

async fn write(control: &Control, run: RunId, spec: &RunSpec, kept: &Kept) -> Result<(), FitError> {
    let plain = serde_json::to_vec(kept).map_err(|source| FitError::Write { run, source })?;
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let (path, purpose) = place(control, run);
    let sealed = control.store.seal(scope, &purpose, plain).await;
    let sealed = sealed.map_err(|source| FitError::Seal { run, source })?;
    // Never half of it, and never nothing.
    let new = path.with_extension("new");
    let written = write_private(&new, &sealed).and_then(|()| fs::rename(&new, &path));
    written.map_err(|source| FitError::Keep { run, source })
}

async fn kept(control: &Control, run: RunId, spec: &RunSpec) -> Result<Option<Kept>, FitError> {
    let (path, purpose) = place(control, run);
    let Ok(sealed) = fs::read(path) else {
        return Ok(None);
    };
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let plain = match control.store.unseal(scope, &purpose, sealed).await {
        Err(source) if source.is_outage() => return Err(FitError::Seal { run, source }),
        // What cannot be read any more is not known any more: nothing fits it.
        plain => plain.ok(),
    };
    Ok(plain.and_then(|plain| serde_json::from_slice(&plain).ok()))
}

/// What people could see of a run so far, and said of it.
#[derive(Default)]
struct Shown {
    /// From when on what is said is about it; none if nothing was shown.
    since: Option<Timestamp>,
    /// When the last plan or preview was made.
    made: Option<Timestamp>,
    /// The approvals that policies were known to want.
    wanted: Vec<Requirement>,
    /// What there was to see, by the name it is kept by.
    sight: Option<String>,
    yes: Yes,
    /// When that was said to a plan.
    yes_at: Option<Timestamp>,
    /// Somebody said yes to the last one as it is.
    is_confirmed: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Yes {
    #[default]
    None,
    /// Whoever confirms the change set says it to what could be seen, without the values that did not exist yet.
    ToPreview,
    ToPlan,
}

impl Shown {
    fn new(at: Timestamp, plan: &PlanRecord, yes: Yes) -> Self {
        Self {
            since: Some(plan.since.unwrap_or(Timestamp::MIN)),
            made: Some(at),
            wanted: plan.foreseen().cloned().collect(),
            sight: plan.sight.clone(),
            yes,
            yes_at: None,
            is_confirmed: false,
        }
    }

    fn say_yes(&mut self, at: Timestamp) {
        self.yes = Yes::ToPlan;
        self.yes_at = Some(at);
    }
}

async fn last_shown(control: &Control, set: ChangeSetId, run: RunId) -> Result<Shown, FitError> {
    let events = control.store.run_events(run).await;
    let events = events.map_err(|source| FitError::Events { run, source })?;
    let mut shown = Shown::default();
    for (at, event) in events {
        match event {
            RunEvent::PlanFinished { plan, fits, .. } => {
                // A yes carries over to what fits.
                let carries = shown.yes == Yes::ToPlan && fits == Some(true);
                let yes = if carries { Yes::ToPlan } else { Yes::None };
                let yes_at = shown.yes_at;
                shown = Shown {
                    yes_at,
                    ..Shown::new(at, &plan, yes)
                };
            }
            RunEvent::Previewed { preview, .. } => {
                shown = match preview {
                    Preview::Planned { plan } => Shown::new(at, &plan, Yes::ToPreview),
                    Preview::None | Preview::Unchanged | Preview::Impossible { .. } => {
                        Shown::default()
                    }
                }
            }
            // Policies may want more while people look.
            RunEvent::PolicyAsked {
                at: Point::Approval,
                said,
                ..
            }
            | RunEvent::ApplyPutOff { said } => shown.wanted.extend(said.approvals),
            RunEvent::Confirmed => {
                shown.say_yes(at);
                shown.is_confirmed = true;
            }
            // An apply is started only if somebody said yes.
            RunEvent::ApplyStarted => shown.say_yes(at),
            // What was applied is behind it: what was said of that says nothing of what follows.
            RunEvent::ApplyFinished { .. } => shown = Shown::default(),
            // Who does not want it takes the yes back.
            RunEvent::Skipped {
                because: Skip::NotConfirmed,
            } => shown.yes = Yes::None,
            RunEvent::Reopened { .. } if shown.yes == Yes::ToPreview => shown.yes = Yes::None,
            _ => {}
        }
    }
    // Also of a run that was over before: what was discarded is the whole change set.
    if shown.yes == Yes::ToPlan && shown.yes_at <= last_discarded(control, set).await? {
        shown.yes = Yes::None;
    }
    Ok(shown)
}

/// When somebody last said that they do not want a change set.
async fn last_discarded(
    control: &Control,
    set: ChangeSetId,
) -> Result<Option<Timestamp>, FitError> {
    let events = control.store.change_set_events(set).await;
    let events = events.map_err(|source| FitError::Set { set, source })?;
    let is_discarded = |(at, event): &(Timestamp, SetEvent)| {
        matches!(event, SetEvent::Discarded { .. }).then_some(*at)
    };
    Ok(events.iter().rev().find_map(is_discarded))
}

/// Where it is kept, and for what it is sealed.
pub(crate) fn place(control: &Control, run: RunId) -> (PathBuf, String) {
    let path = control.home.run_dir(run).join("plan.difference");
    (path, format!("plan-difference {run}"))
}
