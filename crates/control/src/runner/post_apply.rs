//! The stages after an apply: publishing, bootstrapping, verifying. Each can be repeated at any time. Each
//! leaves a report of what it found and did.
//!
//! Not here: what they do (`stage::facts`, `stage::bootstrap`, `stage::gates`), where their values come from
//! (`stage::values`).

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use drivers::process::{Environment, engine_environment};
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::project::Backend;
use model::run::{RunEvent, Stage};
use model::stage::facts::FactsBranch;
use model::stage::{ResolvedBlock, StageBlock};
use model::state::break_glass::BreakGlassAction;
use serde_json::{Value, json};
use store::{NewBreakGlass, StoreError};

use super::inputs::{check_short, for_hooks};
use super::workspace::Workspace;
use super::{Failure, StageJob, failed, hooks};
use crate::changeset::staleness;
use crate::stage::facts::reaches_clusters;
use crate::stage::values::{CallerContext, StackValues, StageValuesError};

mod bootstrapping;
mod draining;
mod publishing;
mod verifying;

pub(super) use draining::before_destroy;

pub(super) async fn carry_out(job: &StageJob<'_>, stage: Stage) -> RunEvent {
    let mut mask = Mask::default();
    // Programs, manifests, contracts and `.sops.yaml` come from the planned source, not from the user's
    // working directory.
    let reads_source = stage != Stage::Publishing
        || publishing::reads_source(job.spec)
        || job.spec.has_hooks(stage, None);
    let mut workspace = None;
    if reads_source {
        match Workspace::prepare(job).await {
            Ok(prepared) => workspace = Some(prepared),
            Err(failure) => return failed(failure, stage, None, &mask),
        }
    }
    let source = workspace.as_ref().map(|it| it.tree().to_owned());
    let work = async {
        let mut interrupts = job.interrupts.lock().await;
        if interrupts.came().await {
            Err(Failure::interrupted())
        } else {
            tokio::select! {
                ended = stage_of(job, stage, source.as_deref(), &mut mask) => ended,
                () = interrupts.next() => Err(Failure::interrupted()),
            }
        }
    };
    let ended = hooks::around_part(job, stage, workspace.as_mut(), Box::pin(work)).await;
    match ended {
        Ok(report) => {
            let later = |next: &&Stage| **next > stage;
            let stages = job.spec.stages_after();
            RunEvent::StageFinished {
                part: stage,
                changed: report.changed,
                report: json!(report),
                then: stages.iter().find(later).copied(),
            }
        }
        Err(failure) => failed(failure, stage, None, &mask),
    }
}

/// The type of a log line that reports what a stage still waits for.
pub const STILL: &str = "still";

/// What a stage reports to users.
#[derive(Debug, serde::Serialize)]
struct StageReport {
    summary: String,
    details: Value,
    /// Whether the stage changed anything; none if that is not known.
    #[serde(skip)]
    changed: Option<bool>,
}

/// Everything that a stage after the apply needs.
struct StageWork<'a> {
    job: &'a StageJob<'a>,
    /// The project's root.
    root: &'a Path,
    /// The environment of programs. `hidden` contains the values that must not be shown.
    env: Environment,
    hidden: Vec<Secret>,
    /// The environment of programs that fetch secrets. It contains nothing from contexts.
    base: Environment,
    values: StackValues,
    log: StageLog,
}

impl StageWork<'_> {
    /// Fills in the values of the blocks. It fetches nothing.
    fn resolve(&self, blocks: &[StageBlock]) -> Result<Vec<ResolvedBlock>, Failure> {
        let resolved = self.values.resolve(blocks);
        resolved.map_err(|err| Failure::because("could not evaluate its blocks", &err))
    }
}

async fn stage_of(
    job: &StageJob<'_>,
    stage: Stage,
    source: Option<&Path>,
    mask: &mut Mask,
) -> Result<StageReport, Failure> {
    let stages = &job.spec.stack.stages;
    let gates = stages.gates_when(job.spec.destroy);
    let blocks: &[StageBlock] = match stage {
        Stage::Verifying => &gates,
        Stage::Publishing => &stages.publish,
        _ if job.spec.destroy => &[],
        Stage::Bootstrapping => &stages.bootstrap,
        Stage::Preparing | Stage::Planning | Stage::Applying => &[],
    };
    check_state(job).await?;
    let part = part_of(job, stage, blocks).await?;
    *mask = part.values.mask(&part.hidden);
    let source = source.unwrap_or(part.root);
    match stage {
        Stage::Publishing => publishing::publish(&part, source, blocks).await,
        Stage::Bootstrapping => bootstrapping::bootstrap(&part, source, blocks).await,
        Stage::Verifying => verifying::verify(part, source, blocks).await,
        Stage::Preparing | Stage::Planning | Stage::Applying => {
            Err(Failure::new("this stage does not follow an apply"))
        }
    }
}

/// Refuses if the state has changed since the run. The stage is about the state that the run left, and may
/// have waited for a person meanwhile.
async fn check_state(job: &StageJob<'_>) -> Result<(), Failure> {
    let state = job.control.state_name(&job.spec.stack.state);
    match staleness::moved(job.control, job.run, &job.spec.stack.name, &state).await {
        Ok(None) => Ok(()),
        Ok(Some(moved)) => Err(Failure::new(moved.to_string()).explain(&moved)),
        Err(err) => Err(Failure::because("could not read the state", &err)),
    }
}

/// Records a break-glass action, only once even if the stage starts several times.
async fn record_act(
    job: &StageJob<'_>,
    act: BreakGlassAction,
    detail: String,
) -> Result<(), Failure> {
    let failed = |err: &StoreError| Failure::because("could not record a break-glass action", err);
    let Some(exceptions) = &job.set.request.exceptions else {
        return Ok(());
    };
    let state = job.control.state_name(&job.spec.stack.state);
    let store = &job.control.store;
    let known = store.break_glass_list(&state).await;
    let mut known = known.map_err(|err| failed(&err))?.into_iter();
    if known.any(|one| one.closed_at.is_none() && one.act == act && one.detail == detail) {
        return Ok(());
    }
    let record = NewBreakGlass {
        act,
        state: &state,
        actor: &job.set.request.actor(),
        reason: Some(&exceptions.reason),
        detail,
    };
    let opened = store.break_glass_open(&record).await;
    opened.map(drop).map_err(|err| failed(&err))
}

/// Prepares the stage, with the values that these blocks may need.
async fn part_of<'a>(
    job: &'a StageJob<'a>,
    stage: Stage,
    blocks: &[StageBlock],
) -> Result<StageWork<'a>, Failure> {
    let base = engine_environment(job.asker.env(), job.spec.target.is_open());
    let root = Path::new(&job.spec.root);
    let side = CallerContext {
        asker: job.asker,
        root,
        env: &base,
    };
    // A stage that changes or checks the cluster may need the values that the engine needed to create it.
    let needs_contexts =
        stage != Stage::Publishing || reaches_clusters(blocks, &job.spec.fact_locations);
    let (env, hidden) = if needs_contexts {
        let values = for_hooks(job).await?;
        (values.environment, values.hidden)
    } else {
        (base.clone(), Vec::new())
    };
    let is_ours = job.spec.target.backend == Backend::Terrane;
    let failed = |err: StageValuesError| Failure::because("could not get its values", &err);
    let (control, stack) = (job.control, &job.spec.stack);
    let is_after = matches!(stage, Stage::Publishing | Stage::Verifying);
    let gathered = if job.spec.destroy && is_after {
        StackValues::gather_before_destroy(control, stack, is_ours, blocks, &side).await
    } else {
        StackValues::gather(control, stack, is_ours, blocks, &side).await
    };
    let mut values = gathered.map_err(failed)?;
    if stage == Stage::Publishing {
        let inputs = job.spec.facts.values().flat_map(FactsBranch::inputs);
        values.add_secrets(inputs, &side).await.map_err(failed)?;
    }
    // Secrets that the requester supplied were checked before anything was applied.
    let elsewhere = |reference: &&str| job.asker.at_hand(reference).is_none();
    let short: Vec<String> = values
        .short()
        .filter(elsewhere)
        .map(str::to_owned)
        .collect();
    check_short(job, &short, "its log")?;
    Ok(StageWork {
        job,
        root,
        log: StageLog::open(job, stage, values.mask(&hidden))?,
        values,
        env,
        hidden,
        base,
    })
}

/// The log of a running stage, for attached clients and for later. It contains no secrets.
struct StageLog {
    file: File,
    mask: Mask,
}

impl StageLog {
    fn open(job: &StageJob<'_>, stage: Stage, mask: Mask) -> Result<Self, Failure> {
        let path = job.control.home.engine_events(job.run, stage);
        let mut options = File::options();
        let options = options.create(true).append(true).mode(0o600);
        let file = options
            .open(path)
            .map_err(|err| Failure::because("could not write the run's log", &err))?;
        Ok(Self { file, mask })
    }

    /// Writes one line in the format of the engines' logs.
    fn say(&self, words: &str) {
        self.line("log", words);
    }

    /// Writes what is still missing, for clients without a live view.
    fn still(&self, words: &str) {
        self.line(STILL, words);
    }

    fn line(&self, kind: &str, words: &str) {
        let line = json!({
            "@level": "info",
            "@message": self.mask.mask_text(words),
            "@timestamp": jiff::Timestamp::now().to_string(),
            "type": kind,
        });
        // A log line that cannot be written does not fail the stage.
        drop(writeln!(&self.file, "{line}"));
    }
}

/// A count with its noun.
fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
