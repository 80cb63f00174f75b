//! From a request to a change set: collects what each run needs, stores the source, names the lanes, and
//! stores the change set. From then on it proceeds by itself.
//!
//! Not here: what happens next (`schedule`), user interaction (`cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use drivers::engine::Engine;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, StackName};
use model::base::masking::Mask;
use model::graph::Graph;
use model::plan::Plan;
use model::project::engine::EngineRequirement;
use model::project::{ConfirmMode, LaneScope, Project};
use model::run::changeset::{
    Action, ChangeSet, Reopen, Request, SetEvent, Status, Trigger, reopen,
};
use model::run::exception::Exceptions;
use model::run::exec::{Exec, ExecKind};
use model::run::{Run, RunSpec};
use store::{ChangeSetError, KeyScope, StoreError};

use crate::Control;
use crate::access::writers::Caller;
use crate::changeset::backends::{CopyFreshness, UnreadState};
use crate::changeset::up_to_date::{self, KnownOutputs};
use crate::changeset::{backends, exec_args};
use crate::project::open::OpenProject;
use crate::project::{changed, providers};
use crate::run::client_presence;
use crate::secrets::caller_env::{self, CallerEnv, MissingValuesError};
use crate::state::{quarantine, redact_reason};
use approvals::approvals;
use source::ChangeSetSource;

mod approvals;
mod checks;
mod from_bundle;
mod prepare_error;
mod source;
mod spec;
mod stale_stacks;

pub use approvals::requires_more_approvals;
pub use from_bundle::{BeginBundleError, BundleInputs, begin_bundled, find_bundled};
pub use prepare_error::PrepareError;
use spec::SpecInputs;
pub(crate) use spec::spec_alone;
pub use stale_stacks::StaleReason;

/// A request for a change set, not checked yet.
#[derive(Clone, Debug)]
pub struct ChangeSetRequest {
    pub action: Action,
    pub stacks: BTreeSet<StackName>,
    /// The stacks that are planned even if nothing that they consume changed.
    pub in_any_case: BTreeSet<StackName>,
    pub auto_approve: bool,
    pub parallelism: usize,
    /// Set by `plan --destroy`; the action `destroy` implies it.
    pub destroy: bool,
    pub refresh_only: bool,
    /// For a plan from an older version of the state.
    pub pinned: Option<i64>,
    /// For a plan that reads no state.
    pub no_state: bool,
    /// The plans are written into a bundle when they are made.
    pub keeps_plans: bool,
    /// The requester, and which targets they may change.
    pub who: Caller,
    /// For an engine command.
    pub exec: Option<Exec>,
    /// Whether states may be stored here: a home was named, or the machine keeps its disk.
    pub may_keep_state: bool,
    /// The reason to apply although policies deny it.
    pub policy_override: Option<String>,
    /// Rules of stages after the apply that this request ignores.
    pub exceptions: Option<Exceptions>,
}

impl ChangeSetRequest {
    /// Whether it may change anything, as opposed to only reading.
    pub fn changes(&self) -> bool {
        let exec = self.exec.as_ref().map(|exec| exec.kind);
        self.action != Action::Plan && exec != Some(ExecKind::Read)
    }
}

/// A stored change set, and the values that its runners get from the requester.
pub struct StartedChangeSet {
    pub id: ChangeSetId,
    pub asker: CallerEnv,
    /// Held while a client is attached.
    pub watch: File,
    /// Links that lead out of the project, and so are not part of its source.
    pub left_out: Vec<String>,
    /// Upstreams whose backends could not be read.
    pub unseen: Vec<UnreadState>,
    /// For a plan: why its apply would be refused.
    pub foreseen: Option<PrepareError>,
    /// Stacks that were applied before and are planned again, with the reason.
    pub moved: BTreeMap<StackName, StaleReason>,
}

/// Prepares a change set and stores it.
pub async fn begin(inputs: PrepareInputs<'_>) -> Result<StartedChangeSet, PrepareError> {
    let control = inputs.control;
    let prepared = inputs.prepare(&BTreeSet::new()).await?;
    let id = control
        .store
        .change_set_insert(&prepared.request, &prepared.specs, control.now())
        .await?;
    prepared.begun(control, id)
}

/// Opens runs of a stopped change set again, on the source as it is now.
pub async fn resume(
    inputs: PrepareInputs<'_>,
    resumed: &ResumeRequest,
) -> Result<StartedChangeSet, PrepareError> {
    let (control, wanted) = (inputs.control, inputs.wanted);
    let free = checks::free_of_holds(control, resumed).await?;
    let prepared = inputs.prepare(&free).await?;
    let ChangeSetDraft { request, specs, .. } = &prepared;
    let request = &Request {
        bundle: resumed.set.request.bundle.clone(),
        ..request.clone()
    };
    let (what, moved) = match &resumed.what {
        Reopen::Run(run) => (Reopen::Run(*run), BTreeMap::new()),
        Reopen::Rest { .. } => {
            let found = stale_stacks::find(control, resumed, specs).await?;
            let moved = found.keys().cloned().collect();
            (Reopen::Rest { moved }, found)
        }
    };
    let set = control
        .store
        .change_set_reopen(
            resumed.set.id,
            &what,
            request,
            specs,
            &wanted.who.actor(),
            control.now(),
        )
        .await
        .map_err(|err| match err {
            // Another client was faster.
            ChangeSetError::Reopen(err) => PrepareError::Reopen(err),
            err => PrepareError::Store(err),
        })?;
    let begun = prepared.begun(control, set.id)?;
    Ok(StartedChangeSet { moved, ..begun })
}

/// What to reopen, and the request for it.
#[derive(Clone, Debug)]
pub struct ResumeRequest {
    pub set: ChangeSet,
    pub what: Reopen,
    pub wanted: ChangeSetRequest,
}

/// A change set that is prepared and checked, but not stored.
struct ChangeSetDraft {
    request: Request,
    specs: Vec<RunSpec>,
    asker: CallerEnv,
    left_out: Vec<String>,
    unseen: Vec<UnreadState>,
    foreseen: Option<PrepareError>,
    /// Keeps its source from being removed as unused before the change set is stored.
    _kept: File,
}

impl ChangeSetDraft {
    fn begun(self, control: &Control, id: ChangeSetId) -> Result<StartedChangeSet, PrepareError> {
        let watch = client_presence::attach(control, id).map_err(|source| PrepareError::Keep {
            path: client_presence::path(control, id),
            source,
        })?;
        if self.request.keeps_plans {
            crate::changeset::bundle::mark_plans_kept(control, id).map_err(|source| {
                PrepareError::Keep {
                    path: control.home.kept_plans(),
                    source,
                }
            })?;
        }
        Ok(StartedChangeSet {
            id,
            asker: self.asker,
            watch,
            left_out: self.left_out,
            unseen: self.unseen,
            foreseen: self.foreseen,
            moved: BTreeMap::new(),
        })
    }
}

/// What a change set is prepared from.
#[derive(Clone, Copy, Debug)]
pub struct PrepareInputs<'a> {
    pub control: &'a Control,
    pub open: &'a OpenProject,
    pub project: &'a Project,
    pub engines: &'a BTreeMap<StackName, Engine>,
    pub env: &'a BTreeMap<String, String>,
    pub wanted: &'a ChangeSetRequest,
}

impl PrepareInputs<'_> {
    async fn prepare(self, free: &BTreeSet<StackName>) -> Result<ChangeSetDraft, PrepareError> {
        let Self {
            control,
            open,
            project,
            env,
            wanted,
            ..
        } = self;
        let graph = Graph::new(project);
        checks::check_holds(control, project, wanted, free).await?;
        checks::check_exceptions(project, wanted)?;
        checks::are_rendered(open, project, wanted)?;
        for name in &wanted.stacks {
            self.check_stack(name).await?;
        }
        checks::reserve_for_runs(control, project, wanted).await?;
        let unseen = self.check_upstreams().await?;
        let dependents = checks::check_downstreams(control, open, project, &graph, wanted).await;
        let (dependents, foreseen) = match dependents {
            // A plan of what would be destroyed is harmless.
            Err(refused) if wanted.action == Action::Plan && refused.is_refused() => {
                (Vec::new(), Some(refused))
            }
            dependents => (dependents?, None),
        };
        let kept = source::hold_snapshots(control)?;
        let snapshot = source::keep_source(control, open, project).await?;
        checks::is_in_the_source(open, project, &snapshot, wanted)?;
        checks::no_file_twice(project, &snapshot, wanted)?;
        let source = ChangeSetSource {
            own: changed::own_sources(open, project, &snapshot),
            slots: spec::slots(&open.root, project),
            digest: snapshot.digest,
        };
        let mut specs = self.specs(&graph, &source).await?;
        let asker = CallerEnv::gather(env, &open.root, &specs, &open.loaded.secrets)?;
        let mut request = self.request(source.digest, &asker, &mut specs).await?;
        request.dependents = dependents;
        Ok(ChangeSetDraft {
            request,
            specs,
            asker,
            left_out: snapshot.left_out,
            unseen,
            foreseen,
            _kept: kept,
        })
    }

    /// Checks one stack: rights, providers, quarantined states, and a state outside this home.
    async fn check_stack(self, name: &StackName) -> Result<(), PrepareError> {
        let (control, project, wanted) = (self.control, self.project, self.wanted);
        let stack = &project.stacks[name];
        checks::may(project, stack, wanted)?;
        if let Some(one) = providers::unlisted(self.open, project, name)
            .into_iter()
            .next()
        {
            return Err(PrepareError::Provider {
                stack: name.clone(),
                target: stack.target.clone(),
                provider: one.provider,
                at: format!("{}:{}", one.at.file, one.at.line),
            });
        }
        if wanted.changes() {
            let state = control.state_name(&stack.state);
            let checked = quarantine::check(control, &state).await;
            checked.map_err(|source| PrepareError::KeptAside {
                stack: name.clone(),
                source: Box::new(source),
            })?;
        }
        let looks = match wanted.action {
            Action::Plan | Action::Apply => !wanted.no_state,
            Action::Destroy => !project.is_on_terrane_backend(name),
            Action::Exec => false,
        };
        if looks {
            checks::check_earlier_state(control, self.open, project, name).await?;
        }
        Ok(())
    }

    /// Reads the states of upstreams again, and checks that they are applied and done.
    async fn check_upstreams(self) -> Result<Vec<UnreadState>, PrepareError> {
        let (control, project, wanted) = (self.control, self.project, self.wanted);
        let mut unseen = Vec::new();
        if !wanted.no_state {
            let elsewhere = checks::upstreams_elsewhere(project, wanted);
            let copies = match wanted.action {
                Action::Plan | Action::Apply => CopyFreshness::Fresh,
                Action::Destroy | Action::Exec => CopyFreshness::Any,
            };
            let (open, env) = (self.open, self.env);
            unseen = backends::look_again(control, open, project, env, &elsewhere, copies).await?;
            checks::check_upstreams(control, project, wanted).await?;
        }
        checks::check_upstreams_done(control, project, wanted).await?;
        Ok(unseen)
    }

    /// The runs, in the order in which they may start.
    async fn specs(
        self,
        graph: &Graph,
        source: &ChangeSetSource,
    ) -> Result<Vec<RunSpec>, PrepareError> {
        let (control, open, project, wanted) = (self.control, self.open, self.project, self.wanted);
        let mut waves = graph.waves(&wanted.stacks);
        if wanted.action == Action::Destroy {
            waves.reverse();
        }
        let inputs = SpecInputs {
            open,
            project,
            graph,
            engines: self.engines,
            source,
            wanted,
        };
        let mut specs = waves
            .into_iter()
            .flatten()
            .map(|name| spec::spec(inputs, &name))
            .collect::<Result<Vec<_>, _>>()?;
        let mut known = KnownOutputs::default();
        let located = crate::stage::facts::add_locations(control, project, &mut specs).await;
        located.map_err(PrepareError::FactLocations)?;
        for spec in &mut specs {
            // A stack without an upstream here was requested directly.
            let name = &spec.stack.name;
            let may_be =
                !wanted.in_any_case.contains(name) && !changed::reads_beyond(open, project, name);
            if !spec.upstreams.is_empty()
                && may_be
                && crate::stage::facts::are_on_named_branches(spec)
            {
                spec.settled = up_to_date::is_settled(control, spec, &mut known).await;
            }
        }
        Ok(specs)
    }

    /// The request as it is stored, without its dependents. Signs the runs with the requester's values.
    async fn request(
        self,
        source: String,
        asker: &CallerEnv,
        specs: &mut [RunSpec],
    ) -> Result<Request, PrepareError> {
        let (control, open, project, wanted) = (self.control, self.open, self.project, self.wanted);
        let git = open.git.as_ref().filter(|_| open.commit.is_none());
        let commit = match &open.commit {
            Some(from) => Some((from.id.clone(), from.subject.clone())),
            None => git.and_then(|git| git.head_commit().ok().flatten()),
        };
        let (exceptions, policy_override) = {
            let (exceptions, past) = (wanted.exceptions.clone(), wanted.policy_override.clone());
            redact_reason::redact_exceptions(control, asker, specs, exceptions, past).await
        };
        let asked_with = asker.digest(&control.store).await;
        let asked_with = asked_with.map_err(PrepareError::Digest)?;
        let signed = asker.sign(&control.store, specs).await;
        signed.map_err(PrepareError::Digest)?;
        let exec = match &wanted.exec {
            Some(exec) => {
                let mask = Mask::new(&asker.secrets(specs));
                let sealed = exec_args::sealed(control, exec, &mask).await;
                Some(sealed.map_err(PrepareError::Seal)?)
            }
            None => None,
        };
        for spec in specs {
            spec.exec.clone_from(&exec);
        }
        Ok(Request {
            project: control.home.project().to_owned(),
            machine: control.home.machine().to_owned(),
            action: wanted.action,
            stacks: wanted.stacks.iter().cloned().collect(),
            auto_approve: wanted.auto_approve && wanted.action != Action::Plan,
            parallelism: wanted.parallelism.max(1),
            lanes: lanes(project, wanted),
            source,
            commit: commit.as_ref().map(|(id, _)| id.clone()),
            subject: commit.map(|(_, subject)| subject),
            asker: Some(wanted.who.actor()),
            asked_with,
            identity: Some(wanted.who.identity.clone()),
            exec,
            keeps_plans: wanted.keeps_plans,
            earlier_askers: Vec::new(),
            exceptions,
            goes_on_with_stages: false,
            unasked: unasked(project, wanted),
            bundle: None,
            dirty: git.is_some_and(|git| git.is_dirty().unwrap_or(true)),
            origin: Trigger::Person,
            approvals: approvals(project, wanted),
            policy_override,
            dependents: Vec::new(),
        })
    }
}

/// The stacks that are applied without a confirmation. A destroy always requires one.
fn unasked(project: &Project, wanted: &ChangeSetRequest) -> BTreeSet<StackName> {
    let is_unasked = |name: &&StackName| {
        wanted.action == Action::Apply && project.stacks[*name].confirm == ConfirmMode::Auto
    };
    wanted.stacks.iter().filter(is_unasked).cloned().collect()
}

/// A stopped change set, and what to reopen of it.
#[derive(Clone, Debug)]
pub struct ResumeCandidate {
    pub set: ChangeSet,
    pub what: Reopen,
    /// Its stacks that the project still has.
    pub stacks: BTreeSet<StackName>,
    /// The stacks whose runs are reopened.
    pub left: BTreeSet<StackName>,
}

/// Reports a missing change set by its name.
fn named(err: ChangeSetError) -> PrepareError {
    match err {
        ChangeSetError::Missing(id) => PrepareError::Unknown { id },
        err => err.into(),
    }
}

/// Finds a stopped change set and checks that it can be reopened in the current project.
pub async fn find_stopped(
    control: &Control,
    project: &Project,
    id: Option<ChangeSetId>,
    what: Reopen,
) -> Result<ResumeCandidate, PrepareError> {
    let set = match id {
        Some(id) => control.store.change_set_get(id).await.map_err(named)?,
        None => newest_stopped(control).await?,
    };
    if set.request.action == Action::Exec {
        return Err(PrepareError::ExecAgain { set: set.id });
    }
    if set.request.project != control.home.project() {
        return Err(PrepareError::Unknown { id: set.id });
    }
    let runs = control.store.run_list(set.id).await?;
    let is_bundle = set.request.bundle.is_some();
    if set.request.action == Action::Destroy || is_bundle && !plans_nothing(&runs, &what) {
        return Err(PrepareError::NotResumed {
            set: set.id,
            is_bundle,
        });
    }
    if let Some(SetEvent::Rejected { by, reason }) = refused(control, set.id).await? {
        return Err(PrepareError::Rejected {
            set: set.id,
            by,
            reason,
        });
    }
    let again = reopen(&set, &runs, &what)?;
    let mut left = BTreeSet::new();
    let all = runs.iter();
    for run in all.filter(|run| again.iter().any(|it| it.run == run.id)) {
        if run.state.is_untouched() && !project.stacks.contains_key(&run.stack) {
            continue; // it was not changed, and will not be
        }
        left.insert(run.stack.clone());
        if !project.stacks.contains_key(&run.stack) {
            return Err(PrepareError::Gone {
                stack: run.stack.clone(),
            });
        }
        // If the whole rest is resumed, changed stacks are planned again instead.
        if let Reopen::Run(_) = what {
            checks::check_state(control, project, run).await?;
        }
    }
    let stacks = set.request.stacks.iter();
    let stacks = stacks.filter(|stack| project.stacks.contains_key(*stack));
    Ok(ResumeCandidate {
        stacks: stacks.cloned().collect(),
        left,
        what,
        set,
    })
}

/// Whether everything that is reopened is already applied: only later stages are left.
fn plans_nothing(runs: &[Run], what: &Reopen) -> bool {
    let Reopen::Run(id) = what else {
        return false;
    };
    runs.iter()
        .any(|run| run.id == *id && run.state.is_not_done())
}

/// The newest change set that is not a plan, if it stopped and `apply --resume` continues it.
pub async fn last_stopped(control: &Control) -> Result<Option<ChangeSet>, PrepareError> {
    let project = control.home.project();
    let newest = control.store.change_set_list_newest(project, 50).await?;
    let mut acts = newest.into_iter();
    let Some(set) = acts.find(|set| set.request.action != Action::Plan) else {
        return Ok(None);
    };
    let is_meant = set.request.action == Action::Apply && set.request.bundle.is_none();
    let is_stopped = is_meant && matches!(set.status, Status::Stopped { .. });
    let goes_on = is_stopped && refused(control, set.id).await?.is_none();
    Ok(goes_on.then_some(set))
}

/// The change set to resume if none is named. A newer one that awaits confirmation may be the one that was
/// resumed last. In that case the older one is not chosen.
async fn newest_stopped(control: &Control) -> Result<ChangeSet, PrepareError> {
    let project = control.home.project();
    let newest = control.store.change_set_list_newest(project, 200).await?;
    let mut waits = None;
    for set in newest {
        let is_meant = set.request.action == Action::Apply && set.request.bundle.is_none();
        if is_meant && set.status == Status::AwaitingConfirm {
            waits = waits.or(Some(set.id));
        }
        let is_stopped = is_meant && matches!(set.status, Status::Stopped { .. });
        // Rejected and discarded change sets are resumed only by name.
        if is_stopped && refused(control, set.id).await?.is_none() {
            return match waits {
                None => Ok(set),
                Some(waits) => Err(PrepareError::NewerWaits {
                    waits,
                    stopped: set.id,
                }),
            };
        }
    }
    Err(waits.map_or(PrepareError::NothingStopped, |waits| {
        PrepareError::OnlyWaits { waits }
    }))
}

/// The rejection or discard that ended a change set, if there was one.
async fn refused(control: &Control, set: ChangeSetId) -> Result<Option<SetEvent>, ChangeSetError> {
    let mut events = control.store.change_set_events(set).await?;
    let last = events.pop().map(|(_, event)| event);
    Ok(last.filter(|event| {
        matches!(
            event,
            SetEvent::Rejected { .. } | SetEvent::Discarded { .. }
        )
    }))
}

/// An open change set that does exactly what is requested. Repeating the command attaches to it.
pub async fn find_same(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    wanted: &ChangeSetRequest,
) -> Result<Option<ChangeSet>, PrepareError> {
    let mut sets = control
        .store
        .change_set_list_open(control.home.project())
        .await?;
    sets.retain(|set| {
        set.request.action == wanted.action
            && set.request.policy_override == wanted.policy_override
            && set.request.exceptions == wanted.exceptions
            && matches!(
                set.status,
                Status::Waiting | Status::Confirmed | Status::Interrupting
            )
            && set.request.stacks.iter().eq(&wanted.stacks)
    });
    let Some(set) = sets.pop() else {
        return Ok(None);
    };
    // After an edit it is another request, with its own place in the queue.
    let (now, _) = source::look(open, project)?;
    Ok((now.digest == set.request.source).then_some(set))
}

/// Earlier change sets of the same person that await confirmation of the same request. They are only
/// reported: requests of a person are never superseded.
pub async fn find_alike(
    control: &Control,
    set: &ChangeSet,
) -> Result<Vec<ChangeSetId>, ChangeSetError> {
    let project = control.home.project();
    let mut open = control.store.change_set_list_open(project).await?;
    open.retain(|other| {
        let (own, other_request) = (&set.request, &other.request);
        other.id < set.id
            && other.status == Status::AwaitingConfirm
            && other_request.action == own.action
            && other_request.actor().name == own.actor().name
            && other_request.stacks == own.stacks
    });
    Ok(open.into_iter().map(|other| other.id).collect())
}

/// The values of a client that attaches and may have to continue in place of the requester. None if values
/// are missing here: the client can then only watch.
pub async fn gather_again(
    control: &Control,
    open: &OpenProject,
    env: &BTreeMap<String, String>,
    id: ChangeSetId,
) -> Result<Option<CallerEnv>, ChangeSetError> {
    Ok(gather_for(control, open, env, id).await?.ok())
}

/// Like [`gather_again`], but also returns what is missing.
pub async fn gather_for(
    control: &Control,
    open: &OpenProject,
    env: &BTreeMap<String, String>,
    id: ChangeSetId,
) -> Result<Result<CallerEnv, MissingValuesError>, ChangeSetError> {
    let specs = specs(control, id).await?;
    Ok(CallerEnv::gather(
        env,
        &open.root,
        &specs,
        &open.loaded.secrets,
    ))
}

/// Whether a client's values are those of the request. A client that lacks values may watch.
pub async fn is_same_request(
    control: &Control,
    set: &ChangeSet,
    asker: Option<&CallerEnv>,
) -> Result<bool, StoreError> {
    match asker {
        None => Ok(true),
        Some(asker) => Ok(asker.digest(&control.store).await? == set.request.asked_with),
    }
}

/// Whether a client's values differ from the requester's, so that other plans would result.
pub async fn overrides_values(
    control: &Control,
    id: ChangeSetId,
    asker: &CallerEnv,
) -> Result<bool, PrepareError> {
    for spec in specs(control, id).await? {
        let brought = asker.digest_for(&control.store, &spec).await;
        if brought.map_err(PrepareError::Digest)? != spec.asked_with {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether some of its values can come only from the requester.
pub async fn needs_caller_env(control: &Control, id: ChangeSetId) -> Result<bool, ChangeSetError> {
    let specs = specs(control, id).await?;
    Ok(caller_env::wants(&specs).is_some())
}

/// Which users can continue a change set that needs no further confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinuableBy {
    Anyone,
    /// Not every user may apply it.
    Writers,
    /// Some of its values can come only from the requester.
    Asker,
}

pub async fn hands(control: &Control, id: ChangeSetId) -> Result<ContinuableBy, ChangeSetError> {
    let specs = specs(control, id).await?;
    Ok(if !specs.iter().all(|spec| spec.target.is_open()) {
        ContinuableBy::Writers
    } else if caller_env::wants(&specs).is_some() {
        ContinuableBy::Asker
    } else {
        ContinuableBy::Anyone
    })
}

/// The specs of all runs of a change set.
pub(crate) async fn specs(
    control: &Control,
    id: ChangeSetId,
) -> Result<Vec<RunSpec>, ChangeSetError> {
    let mut specs = Vec::new();
    for run in control.store.run_list(id).await? {
        specs.push(control.store.run_spec(run.id).await?);
    }
    Ok(specs)
}

/// The plan of a run as users see it, if this machine or one that shares the home stored it.
pub async fn plan_view(control: &Control, run: &Run) -> Option<Plan> {
    let sealed = match std::fs::read(control.home.plan_view(run.id)) {
        Ok(sealed) => sealed,
        Err(_) => control.store.plan_view_get(run.id).await.ok()??,
    };
    let spec = control.store.run_spec(run.id).await.ok()?;
    let purpose = format!("plan-view {}", run.id);
    let scope = KeyScope::State(control.state_name(&spec.stack.state));
    let plain = control.store.unseal(scope, &purpose, sealed).await.ok()?;
    serde_json::from_slice(&plain).ok()
}

fn lanes(project: &Project, wanted: &ChangeSetRequest) -> Vec<String> {
    let lane = |name: &StackName| {
        let target = &project.targets[&project.stacks[name].target];
        match target.lane {
            LaneScope::Target => target.name.clone(),
            LaneScope::Stack => format!("{}/{name}", target.name),
        }
    };
    let all: BTreeSet<String> = wanted.stacks.iter().map(lane).collect();
    all.into_iter().collect()
}

/// The engine that each of these stacks requires.
pub fn requirements<'a>(
    project: &'a Project,
    stacks: &'a BTreeSet<StackName>,
) -> impl Iterator<Item = (&'a StackName, &'a EngineRequirement)> {
    stacks
        .iter()
        .map(|name| (name, &project.stacks[name].engine))
}
