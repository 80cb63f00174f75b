//! The preview of a stack whose inputs do not all exist yet. It is made in a separate tree from a rewritten
//! copy of the source, and never stored as a plan.
//!
//! Not here: the rewriting (`model::run::preview`), which runs are previewed and when (`model::run::changeset`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use drivers::engine::{EngineCall, PlanCall};
use drivers::tree::DirTree;
use model::base::ids::StackName;
use model::base::masking::Mask;
use model::plan::Plan;
use model::plan::coverage::Coverage;
use model::policy::{Verdict, redact};
use model::project::EdgeKind;
use model::project::context::HookStage;
use model::run::preview::{RewrittenModule, rewrite};
use model::run::seal::{Seal, SealedHead};
use model::run::{AwaitedOutputs, PlanRecord, Preview, RunEvent, Stage};

use super::deadline::Deadline;
use super::engine::EngineSession;
use super::hooks::Hooks;
use super::inputs::Inputs;
use super::plan::{EngineFiles, changing_outputs, initialise, keep_view, mode, read_state, show};
use super::planned_outputs;
use super::seal::lock_file;
use super::workspace::{ScratchDir, Workspace};
use super::{Failure, StageJob, check, coverage, failed, inputs, logs};
use crate::values::PlannedOutputs;

/// Previews a run that waits for its upstreams: the part of its plan that is already known.
pub(super) async fn preview(job: &StageJob<'_>, awaits: &[AwaitedOutputs]) -> RunEvent {
    let mut mask = Mask::default();
    let looked = look(job, awaits, &mut mask, &mut BTreeSet::new()).await;
    let (on, preview, new) = match looked {
        Ok(looked) if looked.plan.is_empty() => (looked.on, Preview::Unchanged, Vec::new()),
        Ok(looked) => {
            let plan = Box::new(looked.record);
            (looked.on, Preview::Planned { plan }, looked.new)
        }
        Err(failure) if failure.interrupted || failure.refused => {
            return failed(failure, Stage::Planning, None, &mask);
        }
        // A failed preview neither fails the run nor skips others: the plan may work with the real values.
        Err(failure) => {
            let why = mask.mask_text(&reason(job, &failure));
            (awaits.to_vec(), Preview::Impossible { why }, Vec::new())
        }
    };
    RunEvent::Previewed {
        on,
        preview,
        review: job.review,
        new,
    }
}

/// Plans for a review that cannot read a state: what would be created if nothing existed.
pub(super) async fn without_state(job: &StageJob<'_>) -> RunEvent {
    let mut mask = Mask::default();
    let mut unknown = BTreeSet::new();
    let looked = look(job, &[], &mut mask, &mut unknown).await;
    match looked {
        // Never `unchanged`: existing resources were not checked.
        Ok(looked) => RunEvent::PlanFinished {
            plan: looked.record,
            confirmed: false,
            review: true,
            reason: None,
            is_equal: None,
            new: Vec::new(),
        },
        // As with any preview, the plan may work with the real values.
        Err(failure) if !unknown.is_empty() && !failure.interrupted && !failure.refused => {
            let on = unknown.into_iter().map(|stack| AwaitedOutputs {
                outputs: outputs_of(job, &stack),
                stack,
            });
            RunEvent::Previewed {
                on: on.collect(),
                preview: Preview::Impossible {
                    why: mask.mask_text(&reason(job, &failure)),
                },
                review: true,
                new: Vec::new(),
            }
        }
        Err(failure) => failed(failure, Stage::Planning, None, &mask),
    }
}

/// The outputs that a run takes from a stack.
fn outputs_of(job: &StageJob<'_>, stack: &StackName) -> Vec<String> {
    let edges = job.spec.stack.edges.iter();
    let own = edges.filter(|edge| edge.upstream == *stack);
    let outputs = own.filter_map(|edge| match &edge.kind {
        EdgeKind::Output { output, .. } => Some(output.clone()),
        EdgeKind::Order => None,
    });
    outputs.collect()
}

struct PreviewedPlan {
    /// The outputs that were not known.
    on: Vec<AwaitedOutputs>,
    plan: Plan,
    record: PlanRecord,
    /// What is new since people agreed to an earlier plan.
    new: Vec<String>,
}

/// Makes the preview. Sets `mask`, and adds the stacks whose outputs are missing to `unknown`, even if it
/// fails.
async fn look(
    job: &StageJob<'_>,
    awaits: &[AwaitedOutputs],
    mask: &mut Mask,
    unknown: &mut BTreeSet<StackName>,
) -> Result<PreviewedPlan, Failure> {
    logs::begin_attempt(job)?;
    job.take_place().await?;
    let access = read_state(job).await?;
    let head = access.pinned().cloned();
    let ahead = PlannedOutputs::of(job, awaits).await?;
    let limit = Deadline::from_now("plan", job.spec.stack.timeout_plan);
    let inputs = inputs::gather_ahead(job, &ahead, limit).await?;
    *mask = inputs.log_mask.clone();
    unknown.extend(inputs.unknown.values().flatten().cloned());
    let mut workspace = Workspace::prepare_apart(job).await?;
    workspace.mount(&inputs.files)?;
    let rewritten = rewrite_source(job, &mut workspace, &inputs)?;
    let workspace = workspace;
    let caller = EngineSession::new(job, &workspace, &inputs, access).await?;
    let planned = plan_once(job, &caller, &workspace, &inputs, limit).await;
    let (mut plan, json) =
        planned.map_err(|failure| in_words_of_source(failure, rewritten.as_ref()))?;
    if let Some(rewritten) = &rewritten {
        let explained = rewritten.origins.explain(&mut plan, &json);
        explained.map_err(|err| Failure::because("could not understand the plan", &err))?;
    }
    let policy = ask_policies(
        job,
        &plan,
        &json,
        &workspace,
        &inputs.mask,
        rewritten.as_ref(),
    )
    .await?;
    keep_view(job, &plan).await?;
    planned_outputs::keep(job, &json, &inputs.mask).await?;
    // The user has seen this preview when confirming, or when reviewing a bundle. The real plan is compared with it.
    let compared = coverage::compare(job, &json, &inputs, rewritten.as_ref()).await?;
    let is_equal = compared.coverage == Coverage::Equal;
    let record = PlanRecord {
        counts: plan.counts(),
        destroys: plan.destroys(),
        outputs: changing_outputs(job.spec, &plan, head.is_none()),
        seal: Box::new(Seal {
            source: job.spec.source.clone(),
            head: head.as_ref().map(SealedHead::of),
            inputs: inputs.digest.clone(),
            each_input: inputs.each.clone(),
            engine: caller.engine().to_string(),
            lock_file: lock_file(&workspace),
        }),
        preview: true,
        difference: compared.keep(job).await?,
        since: compared.approvals_since(job, is_equal, &policy),
        policy,
        policy_since: BTreeMap::new(),
        consumed: None,
        came_after: None,
    };
    Ok(PreviewedPlan {
        on: ahead.unknown(awaits),
        plan,
        record,
        new: compared.coverage.into_new(),
    })
}

/// Runs the engine. The plan file is removed at once, so that it cannot be applied.
async fn plan_once(
    job: &StageJob<'_>,
    caller: &EngineSession<'_>,
    workspace: &Workspace,
    inputs: &Inputs,
    limit: Option<Deadline>,
) -> Result<(Plan, Vec<u8>), Failure> {
    let scratch = ScratchDir::open(job)?;
    scratch.hand_over(job, inputs)?;
    let var_files = workspace.var_files(job, &scratch);
    let (mask, file) = (&inputs.log_mask, scratch.plan());
    let hooks = Hooks::of(job, workspace, inputs, mask, Some(file.clone()), limit);
    let planned = hooks.around(HookStage::Plan, async {
        let files = EngineFiles {
            workspace,
            inputs,
            var_files: &var_files,
        };
        initialise(job, caller, files, limit, &hooks).await?;
        let call = EngineCall::Plan(PlanCall {
            out: &file,
            mode: mode(job.spec),
            var_files: &var_files,
        });
        let ended = caller.call(&call, Stage::Planning, limit).await?;
        if !matches!(ended.exit.code(), Some(0 | 2)) {
            return Err(ended.failure("could not plan"));
        }
        show(caller, &scratch, &var_files, mask, limit).await
    });
    let planned = planned.await;
    scratch.remove();
    planned
}

/// The policies' verdict on the preview.
async fn ask_policies(
    job: &StageJob<'_>,
    plan: &Plan,
    json: &[u8],
    workspace: &Workspace,
    mask: &Mask,
    rewritten: Option<&RewrittenModule>,
) -> Result<Verdict, Failure> {
    if plan.is_empty() || job.spec.no_state {
        return Ok(Verdict::default());
    }
    let understood = redact(json, mask);
    let mut shown =
        understood.map_err(|err| Failure::because("could not understand the plan", &err))?;
    if let Some(rewritten) = rewritten {
        rewritten.take_out(&mut shown);
    }
    check::at_preview(job, shown, workspace).await
}

/// Rewrites the source so that missing values are unknown to the engine. If all values are known, the source
/// stays as it is.
fn rewrite_source(
    job: &StageJob<'_>,
    workspace: &mut Workspace,
    inputs: &Inputs,
) -> Result<Option<RewrittenModule>, Failure> {
    let (unknown, partly) = (&inputs.unknown, &inputs.partly);
    if unknown.is_empty() {
        return Ok(None);
    }
    let failed = |err: &dyn std::error::Error| {
        Failure::because("could not write a copy without the missing values", err)
    };
    let tree = DirTree::new(workspace.tree()).map_err(|err| failed(&err))?;
    let path = &job.spec.stack.path;
    let rewritten = rewrite(&tree, path, job.spec.engine.flavor, unknown, partly);
    let rewritten = rewritten.map_err(|err| Failure::new(err.to_string()))?;
    for (name, text) in &rewritten.files {
        replace(&workspace.dir.join(name), text).map_err(|err| failed(&err))?;
    }
    if rewritten.has_module {
        workspace
            .requirements
            .push_str("\nand the preview's own module");
    }
    Ok(Some(rewritten))
}

/// Never writes through a link: its target is part of the source too.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text)
}

fn in_words_of_source(mut failure: Failure, rewritten: Option<&RewrittenModule>) -> Failure {
    if let Some(rewritten) = rewritten {
        let say = |text: &mut String| *text = rewritten.in_words_of_source(text);
        say(&mut failure.message);
        for diagnostic in &mut failure.diagnostics {
            say(&mut diagnostic.summary);
            say(&mut diagnostic.detail);
            // Users cannot find a position that their source does not have.
            if diagnostic
                .file
                .as_ref()
                .is_some_and(|file| rewritten.is_added(file))
            {
                (diagnostic.file, diagnostic.line) = (None, None);
            }
        }
    }
    failure
}

/// Why the engine could not plan, on one line.
fn reason(job: &StageJob<'_>, failure: &Failure) -> String {
    let Some(first) = failure.diagnostics.first() else {
        return failure.message.clone();
    };
    let at = match (&first.file, first.line) {
        (Some(file), Some(line)) if job.spec.stack.path.is_empty() => format!(" ({file}:{line})"),
        (Some(file), Some(line)) => format!(" ({}/{file}:{line})", job.spec.stack.path),
        _ => String::new(),
    };
    let summary = first.summary.lines().next().unwrap_or_default();
    let mut letters = summary.chars();
    let summary: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_lowercase)
        .chain(letters)
        .collect();
    format!("{summary}{at}")
}
