//! The planning stage: prepares a slot, initialises it if needed, plans against one pinned version of the
//! state, and stores the sealed plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use drivers::engine::{
    self, EngineCall, InitCall, InitInputs, LockFileMode, PlanCall, PlanMode, PluginCache,
};
use model::base::masking::Mask;
use model::plan::Plan;
use model::policy::{PolicyPhase, Verdict};
use model::project::Backend;
use model::project::context::HookStage;
use model::project::engine::Flavor;
use model::project::providers;
use model::run::confirmation::Confirmation;
use model::run::engine_event::nothing_changes;
use model::run::seal::{Seal, SealedHead};
use model::run::{PlanRecord, RunEvent, RunSpec, Stage};
use model::state::{Contents, StateVersion};
use store::KeyScope;

use super::apply::{ReadAfter, keep_copy};
use super::confirmation::{PlanDecision, confirmation};
use super::coverage::{self, PlanComparison};
use super::deadline::Deadline;
use super::engine::{EngineResult, EngineSession};
use super::hooks::Hooks;
use super::inputs::{self, Inputs};
use super::workspace::{ScratchDir, Workspace};
use super::{
    Failure, RetainedWorkspace, StageJob, check, deadline, failed, logs, planned_outputs, seal,
};
use crate::changeset::up_to_date;
use crate::home::write_private;
use crate::state::run_access::StateAccess;

pub(super) async fn plan(job: &StageJob<'_>) -> RunEvent {
    let mut mask = Mask::default();
    let planned = try_plan(job, &mut mask).await;
    match planned {
        Ok(event) => event,
        Err(failure) => failed(failure, Stage::Planning, None, &mask),
    }
}

async fn try_plan(job: &StageJob<'_>, mask: &mut Mask) -> Result<RunEvent, Failure> {
    logs::begin_attempt(job)?;
    job.take_place().await?;
    let access = read_state(job).await?;
    let base = PlanBase::of(job, access.pinned().cloned()).await;
    if base.has_nothing_to_destroy(job) {
        return Ok(RunEvent::NothingToChange {
            consumed: None,
            came_after: None,
            serial: None,
            lineage: None,
            then: job.after_nothing().await?,
        });
    }
    let mut setup = Setup::prepare(job, mask).await?;
    let caller = EngineSession::new(job, &setup.workspace, &setup.inputs, access).await?;
    let shown = run_and_show(job, &base, &setup, &caller, mask).await;
    let engine = caller.engine().to_string();
    drop(caller);
    let made = match shown {
        Ok(Some(shown)) => judge(job, &mut setup, shown, mask).await,
        Ok(None) => {
            setup.scratch.remove();
            check::of_nothing(job, &setup.workspace).await?;
            return base.nothing(job, &setup.inputs).await;
        }
        Err(failure) => Err(failure),
    };
    match made {
        Ok(made) => finish(job, base, setup, engine, made).await,
        Err(failure) => {
            setup.scratch.remove();
            Err(failure)
        }
    }
}

/// What a plan is made from.
struct PlanBase {
    head: Option<StateVersion>,
    /// Whether terrane stores the state.
    is_ours: bool,
    /// Only a complete plan from the newest state shows that a stack matches its source.
    is_whole: bool,
    came_after: Option<BTreeMap<String, String>>,
}

impl PlanBase {
    /// Read before planning, so that later changes count as changes since the plan.
    async fn of(job: &StageJob<'_>, head: Option<StateVersion>) -> Self {
        let spec = job.spec;
        let is_whole = !spec.destroy && !spec.refresh_only && spec.pinned.is_none();
        let came_after = if is_whole {
            up_to_date::came_after(job.control, spec).await
        } else {
            None
        };
        Self {
            head,
            is_ours: spec.target.backend == Backend::Terrane,
            is_whole,
            came_after,
        }
    }

    /// Whether the stack is to be destroyed and its state is missing or empty.
    fn has_nothing_to_destroy(&self, job: &StageJob<'_>) -> bool {
        let head = self.head.as_ref();
        let is_empty = head.is_none_or(|head| head.contents == Contents::Nothing);
        job.spec.destroy && self.is_ours && is_empty
    }

    fn consumed(&self, inputs: &Inputs) -> Option<String> {
        self.is_whole.then(|| inputs.consumed.clone())
    }

    async fn nothing(&self, job: &StageJob<'_>, inputs: &Inputs) -> Result<RunEvent, Failure> {
        let head = self.head.as_ref().filter(|_| self.is_ours);
        Ok(RunEvent::NothingToChange {
            consumed: self.consumed(inputs),
            came_after: self.came_after.clone(),
            serial: head.map(|head| SealedHead::of(head).serial),
            lineage: head.map(|head| head.lineage.clone()),
            then: job.after_nothing().await?,
        })
    }
}

/// Where a plan is made, and with which values.
struct Setup {
    inputs: Inputs,
    workspace: Workspace,
    scratch: ScratchDir,
    var_files: Vec<PathBuf>,
    limit: Option<Deadline>,
}

impl Setup {
    async fn prepare(job: &StageJob<'_>, mask: &mut Mask) -> Result<Self, Failure> {
        let mut limit = Deadline::from_now("plan", job.spec.stack.timeout_plan);
        let inputs = inputs::gather(job, limit).await?;
        *mask = inputs.log_mask.clone();
        inputs.check_short(job)?;
        let mut workspace = deadline::apart_from(&mut limit, Workspace::prepare(job)).await?;
        let scratch = ScratchDir::open(job)?;
        scratch.hand_over(job, &inputs)?;
        workspace.mount(&inputs.files)?;
        let var_files = workspace.var_files(job, &scratch);
        Ok(Self {
            inputs,
            workspace,
            scratch,
            var_files,
            limit,
        })
    }

    fn engine_files(&self) -> EngineFiles<'_> {
        EngineFiles {
            workspace: &self.workspace,
            inputs: &self.inputs,
            var_files: &self.var_files,
        }
    }
}

/// A plan with changes, and the engine's JSON of it.
type PlanWithJson = (Plan, Vec<u8>);

/// Runs the engine and reads its plan; none if nothing changes.
async fn run_and_show(
    job: &StageJob<'_>,
    base: &PlanBase,
    setup: &Setup,
    caller: &EngineSession<'_>,
    mask: &Mask,
) -> Result<Option<PlanWithJson>, Failure> {
    let ended = run_engine(job, base, setup, caller, mask).await?;
    if nothing_changes(&ended.events(), ended.exit.code(), job.spec.refresh_only) {
        return Ok(None);
    }
    let shown = show(caller, &setup.scratch, &setup.var_files, mask, setup.limit).await?;
    Ok(Some(shown).filter(|(plan, _)| !plan.is_empty()))
}

/// A plan with changes, after the comparison and the decision.
struct DecidedPlan {
    shown: PlanWithJson,
    policy: Verdict,
    compared: PlanComparison,
    decided: PlanDecision,
}

async fn judge(
    job: &StageJob<'_>,
    setup: &mut Setup,
    shown: PlanWithJson,
    mask: &mut Mask,
) -> Result<DecidedPlan, Failure> {
    let (plan, json) = &shown;
    let inputs = &mut setup.inputs;
    inputs.hide_outputs(planned_outputs::sensitive(json)?, &job.token);
    *mask = inputs.log_mask.clone();
    setup.scratch.hide(job, inputs)?;
    keep_view(job, plan).await?;
    let policy = check::at_plan(job, json, &inputs.mask, &setup.workspace).await?;
    let compared = coverage::compare(job, json, inputs, None).await?;
    let decided = confirmation(job, plan, &policy, &compared).await?;
    Ok(DecidedPlan {
        shown,
        policy,
        compared,
        decided,
    })
}

async fn run_engine(
    job: &StageJob<'_>,
    base: &PlanBase,
    setup: &Setup,
    caller: &EngineSession<'_>,
    mask: &Mask,
) -> Result<EngineResult, Failure> {
    let Setup {
        inputs,
        workspace,
        scratch,
        var_files,
        limit,
    } = setup;
    let limit = *limit;
    let hooks = Hooks::of(job, workspace, inputs, mask, Some(scratch.plan()), limit);
    let planned = hooks.around(HookStage::Plan, async {
        initialise(job, caller, setup.engine_files(), limit, &hooks).await?;
        let call = EngineCall::Plan(PlanCall {
            out: &scratch.plan(),
            mode: mode(job.spec),
            var_files,
        });
        // The key of a new state is created while the engine works. If that fails here, it fails again later.
        let prepare = async {
            if base.head.is_none() {
                let scope = KeyScope::State(job.control.state_name(&job.spec.stack.state));
                drop(job.control.store.seal_prepare(&scope).await);
            }
        };
        let (ended, ()) = tokio::join!(caller.call(&call, Stage::Planning, limit), prepare);
        let ended = ended?;
        if !matches!(ended.exit.code(), Some(0 | 2)) {
            return Err(ended.failure("could not plan"));
        }
        keep_copy(job, caller, scratch, var_files, ReadAfter::Planned, limit).await?;
        Ok(ended)
    });
    planned.await
}

/// Records a plan with changes. The same process then applies it, if it may; otherwise the plan file is
/// stored.
async fn finish(
    job: &StageJob<'_>,
    base: PlanBase,
    setup: Setup,
    engine: String,
    made: DecidedPlan,
) -> Result<RunEvent, Failure> {
    let DecidedPlan {
        shown: (plan, json),
        policy,
        compared,
        decided,
    } = made;
    let PlanDecision {
        confirmation,
        since,
        of_yes,
    } = decided;
    let inputs = &setup.inputs;
    let is_first = base.head.is_none() && base.is_ours;
    let mut record = PlanRecord {
        counts: plan.counts(),
        destroys: plan.destroys(),
        outputs: changing_outputs(job.spec, &plan, is_first),
        seal: Box::new(Seal {
            source: job.spec.source.clone(),
            head: base.head.as_ref().map(SealedHead::of),
            inputs: inputs.digest.clone(),
            each_input: inputs.each.clone(),
            engine,
            lock_file: seal::lock_file(&setup.workspace),
        }),
        preview: !setup.workspace.is_first,
        policy,
        policy_since: BTreeMap::new(),
        difference: compared.keep(job).await?,
        since,
        consumed: base.consumed(inputs),
        came_after: base.came_after,
    };
    if record.is_news(PolicyPhase::Approval, &of_yes) {
        record.policy_since.insert(PolicyPhase::Approval, of_yes);
    }
    leave(job, setup, confirmation, &json).await?;
    Ok(RunEvent::PlanFinished {
        plan: record,
        confirmed: confirmation.is_confirmed(),
        review: job.review,
        reason: confirmation.reason().filter(|_| !job.review),
        is_equal: compared.coverage.is_equal(),
        new: compared.coverage.into_new(),
    })
}

async fn leave(
    job: &StageJob<'_>,
    setup: Setup,
    confirmation: Confirmation,
    json: &[u8],
) -> Result<(), Failure> {
    let Setup {
        inputs,
        workspace,
        scratch,
        ..
    } = setup;
    if job.goes_on && confirmation == Confirmation::ApplyNow {
        let carried = RetainedWorkspace {
            inputs,
            workspace,
            scratch,
        };
        *job.carried.lock().await = Some(carried);
        return Ok(());
    }
    if !job.review || job.keeps_plan() {
        keep_plan_file(job, &scratch.plan()).await?;
    }
    planned_outputs::keep(job, json, &inputs.mask).await?;
    scratch.remove();
    Ok(())
}

/// The state that a plan is made from: one fixed version.
pub(super) async fn read_state(job: &StageJob<'_>) -> Result<StateAccess, Failure> {
    let store = &job.control.store;
    let state = job.control.state_name(&job.spec.stack.state);
    if job.spec.no_state {
        let store = store.clone();
        return Ok(StateAccess::for_plan_of_nothing(store, state, job.run));
    }
    let access = match job.spec.pinned {
        None => StateAccess::for_plan(store.clone(), state, job.run).await,
        Some(older) => StateAccess::for_plan_from(store.clone(), state, job.run, older).await,
    };
    let access = access.map_err(|err| Failure::because("could not read the state", &err))?;
    let is_ours = job.spec.target.backend == Backend::Terrane;
    if is_ours && access.pinned().is_some_and(StateVersion::is_copy) {
        let stack = &job.spec.stack.name;
        return Err(Failure::new(
            "its state is in a backend of the engine; the state here is a copy",
        )
        .hint(format!(
            "`terrane state import {stack} --from …` imports it, `--from copy` imports the last copy of it"
        ))
        .refused());
    }
    Ok(access)
}

pub(super) fn mode(spec: &RunSpec) -> PlanMode {
    if spec.no_state {
        return PlanMode::NoRefresh;
    }
    match (spec.destroy, spec.refresh_only) {
        (true, _) => PlanMode::Destroy,
        (false, true) => PlanMode::RefreshOnly,
        (false, false) => PlanMode::Normal,
    }
}

/// The outputs that will differ. Before the first apply these are all outputs: one that will be null is not
/// in the plan, but is still unknown.
pub(super) fn changing_outputs(spec: &RunSpec, plan: &Plan, is_first: bool) -> BTreeSet<String> {
    let mut outputs: BTreeSet<String> = plan.outputs.keys().cloned().collect();
    if is_first {
        outputs.extend(spec.outputs.iter().cloned());
    }
    outputs
}

/// What `init` needs.
#[derive(Clone, Copy)]
pub(super) struct EngineFiles<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) inputs: &'a Inputs,
    pub(super) var_files: &'a [PathBuf],
}

/// Runs `init`, unless nothing it depends on has changed since it last succeeded in this slot.
pub(super) async fn initialise(
    job: &StageJob<'_>,
    caller: &EngineSession<'_>,
    files: EngineFiles<'_>,
    limit: Option<Deadline>,
    hooks: &Hooks<'_>,
) -> Result<(), Failure> {
    let workspace = files.workspace;
    let settings = files.inputs.backend.iter();
    let backend_config: Vec<(String, String)> = settings
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let lock_path = workspace.dir.join(".terraform.lock.hcl");
    let lock_before = fs::read(&lock_path).ok();
    let print = |lock_file: Option<&[u8]>| {
        engine::fingerprint(&InitInputs {
            engine: caller.engine(),
            lock_file,
            requirements: &workspace.requirements,
            backend: &format!("{:?} {backend_config:?}", job.spec.target.backend),
        })
    };
    check_providers(job, lock_before.as_deref())?;
    if engine::is_initialised(&workspace.dir, &print(lock_before.as_deref())) {
        return Ok(());
    }
    let is_open = job.spec.target.is_open();
    if job.spec.needs_providers && lock_before.is_none() && !is_open {
        return Err(
            Failure::new("the provider lock file `.terraform.lock.hcl` is missing")
                .hint("run `terrane engine lock` and commit what it writes")
                .refused(),
        );
    }
    let call = EngineCall::Init(InitCall {
        lock_file: if is_open || lock_before.is_none() {
            LockFileMode::Completed
        } else {
            LockFileMode::Readonly
        },
        backend_config: &backend_config,
        var_files: files.var_files,
        backend: true,
    });
    run_init(job, caller, &call, limit, hooks).await?;
    let lock_after = fs::read(&lock_path).ok();
    check_providers(job, lock_after.as_deref())?;
    // A destroy does not change the source. Its module may already be gone from there.
    if is_open
        && !job.spec.destroy
        && lock_after != lock_before
        && let Some(bytes) = &lock_after
        && let Err(err) = write_back(job, bytes)
    {
        let stack = &job.spec.stack.name;
        job.warn(&format!(
            "the provider lock file of `{stack}` could not be written back: {err}"
        ));
    }
    engine::mark_initialised(&workspace.dir, &print(lock_after.as_deref()))
        .map_err(|err| Failure::because("could not record the initialisation", &err))
}

async fn run_init(
    job: &StageJob<'_>,
    caller: &EngineSession<'_>,
    call: &EngineCall<'_>,
    limit: Option<Deadline>,
    hooks: &Hooks<'_>,
) -> Result<(), Failure> {
    let mut environment = caller.environment();
    let cache = if job.spec.needs_providers {
        let cache = shared_providers(job, caller.engine().flavor).await?;
        cache.add_to(&mut environment);
        Some(cache)
    } else {
        None
    };
    let initialised = hooks.around(HookStage::Init, async {
        let ended = caller
            .call_logged(call, Stage::Preparing, &environment, limit)
            .await?;
        if ended.exit.success() {
            return Ok(());
        }
        let failure = ended.failure("could not initialise");
        let is_far = job.spec.target.backend != Backend::Terrane && !job.spec.no_state;
        if job.review && is_far && failure.hint.is_none() && ended.timed_out.is_none() {
            return Err(failure.hint(
                "pass the environment variables that it needs with `pass_env` of a context; if its backend cannot be read from here, `terrane plan --no-state` plans without the state",
            ));
        }
        Err(failure)
    });
    initialised.await?;
    drop(cache);
    Ok(())
}

/// Refuses providers that the target does not list. The providers of external modules are known only here.
fn check_providers(job: &StageJob<'_>, lock_file: Option<&[u8]>) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(lock_file.unwrap_or_default());
    let path = providers::lock_file(&job.spec.stack.path);
    let target = &job.spec.target;
    for (address, _) in providers::locked(&path, &text) {
        if !providers::is_allowed(target, &address) {
            let (provider, name) = (providers::short(&address), &target.name);
            return Err(Failure::new(format!(
                "the provider `{provider}`, which `{path}` names, is not listed by target `{name}`"
            ))
            .hint(format!(
                "add it to `providers` of target `{name}`, if its stacks may use it"
            ))
            .refused());
        }
    }
    Ok(())
}

/// The engines' own cache is not safe under parallel `init`, so its lock is held meanwhile. Others may
/// download for minutes. The endpoint and Ctrl-C must not wait for that, so another thread takes the lock.
async fn shared_providers(job: &StageJob<'_>, flavor: Flavor) -> Result<PluginCache, Failure> {
    let cache = job.control.cache.clone();
    let work = tokio::task::spawn_blocking(move || PluginCache::acquire(&cache, flavor));
    let mut interrupts = job.interrupts.lock().await;
    let taken = tokio::select! {
        () = interrupts.next() => return Err(Failure::interrupted()),
        taken = work => taken,
    };
    let failed =
        |err: &dyn std::error::Error| Failure::because("could not use the shared providers", err);
    taken
        .map_err(|err| failed(&err))?
        .map_err(|err| failed(&err))
}

/// Writes the lock file from `init` back beside the module, where users commit it. The file is replaced as a
/// whole, and never through a link.
fn write_back(job: &StageJob<'_>, bytes: &[u8]) -> io::Result<()> {
    let root = Path::new(&job.spec.root).canonicalize()?;
    let dir = root.join(&job.spec.stack.path).canonicalize()?;
    let path = dir.join(".terraform.lock.hcl");
    let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    if is_link || !dir.starts_with(&root) {
        return Err(io::Error::other("it is a link, and was not changed"));
    }
    let mut file = tempfile::NamedTempFile::new_in(&dir)?;
    file.write_all(bytes)?;
    let mode = fs::metadata(&path).map_or(0o644, |found| found.mode() & 0o777);
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

/// The plan as users may see it, and the engine's own JSON, which they may not see.
pub(super) async fn show(
    caller: &EngineSession<'_>,
    scratch: &ScratchDir,
    var_files: &[PathBuf],
    mask: &Mask,
    limit: Option<Deadline>,
) -> Result<(Plan, Vec<u8>), Failure> {
    let call = EngineCall::Show {
        plan: &scratch.plan(),
        var_files,
    };
    let ended = caller.call_to(&call, &scratch.shown(), limit).await?;
    if !ended.exit.success() {
        return Err(ended.failure("could not read the plan"));
    }
    let mut plan = model::plan::parse(&ended.output)
        .map_err(|err| Failure::because("could not understand the plan", &err))?;
    plan.refresh_only = caller.spec().refresh_only;
    mask.mask_plan(&mut plan);
    if plan.errored {
        return Err(Failure::new("the engine could not finish the plan"));
    }
    Ok((plan, ended.output))
}

/// Stores the plan as users see it, for attached clients and for later.
pub(super) async fn keep_view(job: &StageJob<'_>, plan: &Plan) -> Result<(), Failure> {
    let failed = |err: &dyn std::error::Error| Failure::because("could not keep the plan", err);
    let bytes = serde_json::to_vec(plan).map_err(|err| failed(&err))?;
    let sealed = sealed(job, "plan-view", bytes).await?;
    let kept = job.control.store.plan_view_keep(job.run, &sealed).await;
    kept.map_err(|err| failed(&err))?;
    let path = job.control.home.plan_view(job.run);
    write_private(&path, &sealed).map_err(|err| failed(&err))
}

async fn keep_plan_file(job: &StageJob<'_>, path: &Path) -> Result<(), Failure> {
    let bytes = fs::read(path).map_err(|err| Failure::because("could not keep the plan", &err))?;
    seal_to(
        job,
        "plan-file",
        bytes,
        &job.control.home.plan_file(job.run),
    )
    .await
}

pub(super) async fn seal_to(
    job: &StageJob<'_>,
    purpose: &str,
    bytes: Vec<u8>,
    path: &Path,
) -> Result<(), Failure> {
    let sealed = sealed(job, purpose, bytes).await?;
    write_private(path, &sealed).map_err(|err| Failure::because("could not keep the plan", &err))
}

async fn sealed(job: &StageJob<'_>, purpose: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let scope = KeyScope::State(job.control.state_name(&job.spec.stack.state));
    let purpose = format!("{purpose} {}", job.run);
    let sealed = job.control.store.seal(scope, &purpose, bytes).await;
    sealed.map_err(|err| Failure::because("could not keep the plan", &err))
}
