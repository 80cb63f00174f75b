//! Checks whether everything that a plan was made from is unchanged. If not, reports exactly what changed and
//! who changed it.
//!
//! The head is checked here, so that a refusal comes before the engine starts. The statement that grants the
//! engine its lock checks the head again. terrane passes everything else to the engine, so one check is
//! enough.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use drivers::engine::EngineSearch;
use model::project::Backend;
use model::project::engine::EngineRequirement;
use model::run::changeset::Action;
use model::run::seal::{self, Seal, SealMismatch, SealedHead};
use model::run::{PlanRecord, RunEvent, RunSpec};
use model::state::StateVersion;

use super::inputs::Inputs;
use super::workspace::Workspace;
use super::{Failure, StageJob};
use crate::project::engines;
use crate::state::last_write;

/// Why a plan may no longer be applied.
pub(super) struct StalePlan {
    why: String,
    /// Who changed the state, if the state has changed.
    by: Option<String>,
}

impl StalePlan {
    pub(super) fn because(why: impl Into<String>) -> Self {
        let why = why.into();
        Self { why, by: None }
    }

    /// A preview is planned again, because it was never meant to be applied. So is a plan that was confirmed
    /// in advance, because the user requested the outcome. A bundle is applied as it was reviewed, or not at
    /// all.
    pub(super) fn into_event(
        self,
        job: &StageJob<'_>,
        plan: &PlanRecord,
    ) -> Result<RunEvent, Failure> {
        let Self { why, by } = self;
        if !job.is_bundled() && (plan.preview || job.auto_approve) {
            return Ok(RunEvent::PlanVoided { why });
        }
        let mut message = format!("this plan may no longer be applied: {why}");
        if let Some(by) = by {
            message = format!("{message}\n{by}");
        }
        let (stack, set) = (&job.spec.stack.name, job.set.id);
        let hint = match job.set.request.action {
            _ if job.is_bundled() => "`terrane plan --out FILE` makes a new one".to_owned(),
            Action::Destroy => "the same `terrane destroy` again plans it again".to_owned(),
            Action::Plan | Action::Apply | Action::Exec => format!(
                "`terrane apply --resume {set}` plans `{stack}` again; approvals stay valid if the new plan is equal"
            ),
        };
        Err(Failure::new(message).hint(hint).refused())
    }
}

/// What changed before the engine is set up again. The provider lock file is checked after that:
/// [`lock_file_moved`].
pub(super) async fn moved(
    job: &StageJob<'_>,
    plan: &PlanRecord,
    inputs: &Inputs,
    goes_on: bool,
) -> Result<Option<StalePlan>, Failure> {
    let head = match job.spec.target.backend {
        Backend::Terrane => head(job).await?,
        // The engine compares the plan with its backend itself.
        Backend::Engine { .. } => None,
    };
    let sealed = &plan.seal;
    let now = Seal {
        source: job.spec.source.clone(),
        head: match job.spec.target.backend {
            Backend::Terrane => head.as_ref().map(SealedHead::of),
            Backend::Engine { .. } => sealed.head.clone(),
        },
        inputs: inputs.digest.clone(),
        each_input: inputs.each.clone(),
        // The process that made the plan continues with the same program.
        engine: if goes_on {
            sealed.engine.clone()
        } else {
            engine(job).await?
        },
        lock_file: sealed.lock_file.clone(),
    };
    let all = seal::moved(sealed, &now);
    if all.is_empty() {
        return Ok(None);
    }
    let by_whom = match (&all[0], &head) {
        (SealMismatch::State { .. }, Some(head)) => {
            Some(last_write::describe(job.control, head).await)
        }
        _ => None,
    };
    let why = seal::words(&all);
    Ok(Some(StalePlan { why, by: by_whom }))
}

/// Why a plan is void whose state has changed.
pub(super) async fn head_moved(
    job: &StageJob<'_>,
    plan: &PlanRecord,
) -> Result<StalePlan, Failure> {
    let sealed = &plan.seal;
    let head = head(job).await?;
    let now = Seal {
        head: head.as_ref().map(SealedHead::of),
        ..(**sealed).clone()
    };
    let why = match seal::moved(sealed, &now).as_slice() {
        [] => "the state moved after it was made, and back".to_owned(),
        all => seal::words(all),
    };
    let by = match &head {
        Some(head) => Some(last_write::describe(job.control, head).await),
        None => None,
    };
    Ok(StalePlan { why, by })
}

pub(super) fn lock_file_moved(workspace: &Workspace, plan: &PlanRecord) -> Option<StalePlan> {
    let sealed = &plan.seal;
    let now = Seal {
        lock_file: lock_file(workspace),
        ..(**sealed).clone()
    };
    let all = seal::moved(sealed, &now);
    (!all.is_empty()).then(|| StalePlan::because(seal::words(&all)))
}

/// The digest of the provider lock file that is beside the module now.
pub(super) fn lock_file(workspace: &Workspace) -> Option<String> {
    let bytes = fs::read(workspace.dir.join(".terraform.lock.hcl")).ok()?;
    Some(drivers::snapshot::sha256(&bytes))
}

pub(super) async fn head(job: &StageJob<'_>) -> Result<Option<StateVersion>, Failure> {
    let state = job.control.state_name(&job.spec.stack.state);
    let head = job.control.store.state_head(&state).await;
    head.map_err(|err| Failure::because("could not read the state", &err))
}

/// The version that the engine reports now. The program may have been replaced since the plan was made.
async fn engine(job: &StageJob<'_>) -> Result<String, Failure> {
    let asking = EngineLookup::of(
        job.spec,
        job.control.cache.clone(),
        job.asker.env().get("PATH"),
    );
    let asked = tokio::task::spawn_blocking(move || asking.ask()).await;
    let action = "cannot check the engine";
    asked
        .map_err(|err| Failure::because(action, &err))?
        .map_err(|err| Failure::explained(action, &err))
}

struct EngineLookup {
    requirement: EngineRequirement,
    program: PathBuf,
    cache: PathBuf,
    path: Option<String>,
}

impl EngineLookup {
    fn of(spec: &RunSpec, cache: PathBuf, path: Option<&String>) -> Self {
        Self {
            requirement: EngineRequirement {
                flavor: spec.engine.flavor,
                constraint: None,
            },
            program: PathBuf::from(&spec.engine.program),
            cache,
            path: path.cloned(),
        }
    }

    fn ask(&self) -> Result<String, drivers::engine::LocateError> {
        let search = EngineSearch {
            path: self.path.as_deref().map(OsStr::new),
            cache: Path::new(&self.cache),
            program: Some(&self.program),
        };
        engines::locate(&self.requirement, &search).map(|engine| engine.to_string())
    }
}
