//! A change set whose plans were made elsewhere: prepared from a bundle, and checked like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, StackName};
use model::plan::coverage::Coverage;
use model::project::engine::{Constraint, EngineRequirement};
use model::project::{Backend, Project};
use model::run::changeset::{Action, ChangeSet, Request, Trigger};
use model::run::confirmation::{Confirmation, ConfirmationFacts, decide};
use model::run::exception::Exceptions;
use model::run::seal::{self, Seal, SealedHead};
use model::run::{Outcome, Run, RunEvent, RunSpec, RunState};
use store::{BundleInsertion, KeyScope};

use super::{ChangeSetRequest, PrepareError, StartedChangeSet, approvals, checks, source};
use crate::Control;
use crate::changeset::backends::{self, CopyFreshness, UnreadState};
use crate::changeset::bundle::{Bundle, BundledRun, LayOutBundleError};
use crate::home::make_private;
use crate::policy::{PolicyError, missing_policies};
use crate::project::engines::{self, EngineSearch};
use crate::project::open::OpenProject;
use crate::run::client_presence;
use crate::secrets::caller_env::CallerEnv;
use crate::state::{last_write, quarantine, redact_reason};

#[derive(Debug, thiserror::Error)]
pub enum BeginBundleError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("the bundle changes stack `{stack}`, which this project does not have")]
    NoStack { stack: StackName },
    #[error("the plan of stack `{stack}` was made with `{made_with}`, which is not available")]
    Engine {
        stack: StackName,
        made_with: String,
        source: Box<drivers::engine::LocateError>,
    },
    #[error("the plan of stack `{stack}` may no longer be applied: {why}")]
    Moved { stack: StackName, why: String },
    #[error("this bundle was applied already, as change set {set}")]
    Applied { set: String },
    #[error("this bundle is being applied already, as change set {set}, under the usual rules")]
    UnderRules { set: ChangeSetId },
    #[error("this bundle is being applied already, as change set {set}")]
    Meanwhile { set: ChangeSetId },
    #[error("this bundle is being applied by another machine, as change set {set}")]
    Elsewhere { set: String },
    #[error("cannot store the contents of the bundle")]
    LayOut(#[from] LayOutBundleError),
    #[error("cannot store the policies that are evaluated here")]
    Policies(#[from] PolicyError),
}

impl Explain for BeginBundleError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Prepare(err) => err.kind(),
            Self::NoStack { .. }
            | Self::Engine { .. }
            | Self::Moved { .. }
            | Self::Applied { .. }
            | Self::UnderRules { .. }
            | Self::Meanwhile { .. }
            | Self::Elsewhere { .. } => ErrorKind::Refused,
            Self::LayOut(_) | Self::Policies(_) => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let plan = command("plan --out FILE", "makes a new one");
        match self {
            Self::Prepare(err) => err.next_steps(),
            Self::NoStack { .. } => vec![advice("check out the commit that it was made from")],
            Self::Engine { made_with, .. } => vec![command(
                format!("engine install {made_with}"),
                "installs it",
            )],
            Self::Moved { .. } => vec![plan],
            Self::Applied { set } => {
                vec![
                    plan,
                    command(format!("run show {set}"), "shows its outcome"),
                ]
            }
            Self::UnderRules { set } => vec![
                command(format!("run discard {set} --reason \"…\""), "drops it"),
                advice("then repeat this command"),
            ],
            Self::Meanwhile { .. } => vec![advice("repeat the command to attach to it")],
            Self::Elsewhere { .. } => {
                vec![advice("repeat the command on that machine to attach to it")]
            }
            Self::LayOut(_) | Self::Policies(_) => Vec::new(),
        }
    }
}

/// An open change set that applies this bundle. Repeating the command attaches to it. A bundle that changed
/// something, or may have, is not applied again. A request with an override or an exception does not attach
/// to a change set without it.
pub async fn find_bundled(
    control: &Control,
    bundle: &Bundle,
    wanted: &ChangeSetRequest,
) -> Result<Option<ChangeSet>, BeginBundleError> {
    let sets = control
        .store
        .change_set_list_of_bundle(&bundle.origin.id)
        .await;
    for set in sets.map_err(PrepareError::from)? {
        let name = set.id.to_string();
        if !set.status.is_over() {
            let (request, set_id) = (&set.request, set.id);
            let lacks_override = wanted.policy_override.is_some()
                && request.policy_override != wanted.policy_override;
            let lacks_exception =
                wanted.exceptions.is_some() && request.exceptions != wanted.exceptions;
            if lacks_override || lacks_exception {
                return Err(BeginBundleError::UnderRules { set: set_id });
            }
            return Ok(Some(set));
        }
        let runs = control.store.run_list(set.id).await;
        if runs.map_err(PrepareError::from)?.iter().any(was_applied) {
            return Err(BeginBundleError::Applied { set: name });
        }
    }
    Ok(None)
}

/// Whether the run's engine may have changed something.
fn was_applied(run: &Run) -> bool {
    let RunState::Finished { outcome, .. } = &run.state else {
        return true;
    };
    match outcome {
        Outcome::Applied { .. } | Outcome::NotDone { .. } | Outcome::Unknown { .. } => true,
        // A run that was refused, or failed before the apply, changed nothing.
        Outcome::Failed { problem } => {
            problem.stage == model::run::Stage::Applying && !problem.refused
        }
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Skipped { .. } => false,
    }
}

/// What a change set is prepared from, if it applies a bundle.
#[derive(Clone, Copy)]
pub struct BundleInputs<'a> {
    pub control: &'a Control,
    pub open: &'a OpenProject,
    pub project: &'a Project,
    pub env: &'a BTreeMap<String, String>,
    pub bundle: &'a Bundle,
    pub wanted: &'a ChangeSetRequest,
    /// The change set of this bundle that was begun on another machine.
    pub begun: Option<&'a ChangeSet>,
}

async fn check(inputs: BundleInputs<'_>) -> Result<(), BeginBundleError> {
    let BundleInputs {
        control,
        open,
        project,
        bundle,
        wanted,
        begun,
        ..
    } = inputs;
    let unknown = |name: &&StackName| !project.stacks.contains_key(*name);
    if let Some(stack) = wanted.stacks.iter().find(unknown) {
        let stack = stack.clone();
        return Err(BeginBundleError::NoStack { stack });
    }
    checks::check_holds(control, project, wanted, &BTreeSet::new()).await?;
    checks::check_exceptions(project, wanted)?;
    checks::check_upstreams_done(control, project, wanted).await?;
    for name in &wanted.stacks {
        let stack = &project.stacks[name];
        checks::may(project, stack, wanted)?;
        let state = control.state_name(&stack.state);
        let checked = quarantine::check(control, &state).await;
        checked.map_err(|source| PrepareError::KeptAside {
            stack: name.clone(),
            source: Box::new(source),
        })?;
        checks::check_earlier_state(control, open, project, name).await?;
    }
    if begun.is_none() {
        are_as_planned(control, bundle).await?;
    }
    checks::reserve_for_runs(control, project, wanted).await?;
    Ok(())
}

/// Prepares a change set from a bundle and stores it, with its plans as if they had been made here. A change
/// set that was `begun` on another machine and waits for a person continues here, with everything that was
/// recorded for it.
pub async fn begin_bundled(inputs: BundleInputs<'_>) -> Result<StartedChangeSet, BeginBundleError> {
    let BundleInputs {
        control,
        open,
        project,
        env,
        bundle,
        wanted,
        begun,
    } = inputs;
    check(inputs).await?;
    let path = env.get("PATH").map(OsStr::new);
    let search = EngineSearch::new(path, &control.cache);
    let specs = bundle.runs.iter();
    let specs = specs.map(|run| here(&run.spec, open, &search));
    let mut specs: Vec<RunSpec> = specs.collect::<Result<_, _>>()?;
    let lacking: Vec<_> = specs
        .iter()
        .map(|it| missing_policies::lacking(project, it))
        .collect();
    for (spec, lacking) in specs.iter_mut().zip(&lacking) {
        spec.policies.extend(lacking.iter().cloned());
    }
    // Only the home that publishes facts has their locations.
    let located = crate::stage::facts::add_locations(control, project, &mut specs).await;
    located.map_err(PrepareError::FactLocations)?;
    let asker = CallerEnv::gather(env, &open.root, &specs, &open.loaded.secrets);
    let asker = asker.map_err(PrepareError::from)?;
    let signed = asker.sign(&control.store, &mut specs).await;
    signed.map_err(PrepareError::Digest)?;
    let later = bundle.later();
    let told = bundle.runs.iter().zip(&specs).map(|(run, spec)| {
        let events = if later.contains(&spec.stack.name) {
            Vec::new() // it has not begun
        } else {
            events(run, spec, confirmation(wanted))
        };
        (spec.clone(), events)
    });
    let planned: Vec<_> = told.collect();
    let unseen = see_outputs(control, open, project, env, bundle).await?;
    // Keeps its source from being removed as unused before the change set is stored.
    let _kept = source::hold_snapshots(control)?;
    keep_source(control, bundle).await?;
    let id = if let Some(set) = begun {
        take_over(control, set, &specs).await?
    } else {
        let kept = {
            let (exceptions, past) = (wanted.exceptions.clone(), wanted.policy_override.clone());
            redact_reason::redact_exceptions(control, &asker, &specs, exceptions, past).await
        };
        insert(control, project, bundle, wanted, kept, planned).await?
    };
    let watch = client_presence::attach(control, id).map_err(|source| PrepareError::Keep {
        path: client_presence::path(control, id),
        source,
    })?;
    let runs = control.store.run_list(id).await;
    let runs = runs.map_err(PrepareError::from)?;
    for ((run, spec), lacking) in runs.iter().zip(&specs).zip(&lacking) {
        bundle.lay_out(control, run.id, spec).await?;
        missing_policies::add(control, run.id, spec, lacking).await?;
    }
    Ok(StartedChangeSet {
        moved: BTreeMap::new(),
        id,
        asker,
        watch,
        left_out: Vec::new(),
        unseen,
        foreseen: None,
    })
}

/// Refuses outdated plans before any user is asked to approve them. Everything is checked again under the
/// lock.
async fn are_as_planned(control: &Control, bundle: &Bundle) -> Result<(), BeginBundleError> {
    let later = bundle.later();
    for BundledRun { spec, outcome, .. } in &bundle.runs {
        let Outcome::Planned { plan } = outcome else {
            continue;
        };
        if later.contains(&spec.stack.name) {
            continue; // it is planned again and compared with what the bundle shows
        }
        if spec.target.backend != Backend::Terrane {
            continue; // the engine compares the plan with its backend itself
        }
        let head = control
            .store
            .state_head(&control.state_name(&spec.stack.state))
            .await;
        let head = head.map_err(PrepareError::Reserve)?;
        let now = Seal {
            head: head.as_ref().map(SealedHead::of),
            ..(*plan.seal).clone()
        };
        let moved = seal::moved(&plan.seal, &now);
        if !moved.is_empty() {
            let (stack, mut why) = (spec.stack.name.clone(), seal::words(&moved));
            if let Some(head) = &head {
                why = format!("{why}; {}", last_write::describe(control, head).await);
            }
            return Err(BeginBundleError::Moved { stack, why });
        }
    }
    Ok(())
}

async fn insert(
    control: &Control,
    project: &Project,
    bundle: &Bundle,
    wanted: &ChangeSetRequest,
    (exceptions, policy_override): (Option<Exceptions>, Option<String>),
    planned: Vec<(RunSpec, Vec<RunEvent>)>,
) -> Result<ChangeSetId, BeginBundleError> {
    let request = Request {
        machine: control.home.machine().to_owned(),
        action: Action::Apply,
        auto_approve: wanted.auto_approve,
        parallelism: wanted.parallelism.max(1),
        asker: Some(wanted.who.actor()),
        asked_with: None,
        // The person who planned it is also an author.
        earlier_askers: bundle
            .request
            .earlier_askers
            .iter()
            .chain(&bundle.request.asker)
            .filter(|actor| actor.name != wanted.who.actor().name)
            .cloned()
            .collect(),
        identity: Some(wanted.who.identity.clone()),
        exec: None,
        keeps_plans: false,
        bundle: Some(bundle.origin.clone()),
        exceptions,
        policy_override,
        origin: Trigger::Person,
        approvals: approvals(project, wanted),
        ..bundle.request.clone()
    };
    let stored = control
        .store
        .change_set_insert_planned(&request, planned, control.now())
        .await;
    match stored.map_err(PrepareError::from)? {
        BundleInsertion::Now(id) => Ok(id),
        BundleInsertion::Before(set) => Err(BeginBundleError::Meanwhile { set }),
    }
}

async fn take_over(
    control: &Control,
    set: &ChangeSet,
    specs: &[RunSpec],
) -> Result<ChangeSetId, BeginBundleError> {
    let machine = control.home.machine();
    let store = &control.store;
    let taken = store.change_set_take_over(set.id, machine, specs).await;
    if taken.map_err(PrepareError::from)? {
        return Ok(set.id);
    }
    Err(BeginBundleError::Elsewhere {
        set: set.id.to_string(),
    })
}

/// The spec of a run on this machine: with the local paths of the same engine and of the project.
fn here(
    spec: &RunSpec,
    open: &OpenProject,
    search: &EngineSearch<'_>,
) -> Result<RunSpec, BeginBundleError> {
    let pin = &spec.engine;
    let constraint = pin.version.parse::<Constraint>().ok();
    let requirement = EngineRequirement {
        flavor: pin.flavor,
        constraint,
    };
    let engine =
        engines::locate(&requirement, search).map_err(|source| BeginBundleError::Engine {
            stack: spec.stack.name.clone(),
            made_with: format!("{} {}", pin.flavor, pin.version),
            source: Box::new(source),
        })?;
    let mut spec = spec.clone();
    spec.engine.program = engine.program.to_string_lossy().into_owned();
    spec.root = open.root.to_string_lossy().into_owned();
    // It was planned for review, and is applied now, with all later stages.
    spec.review = false;
    Ok(spec)
}

/// A plan of a bundle is applied as it was reviewed. Its approvals are counted before it starts.
fn confirmation(wanted: &ChangeSetRequest) -> Confirmation {
    decide(&ConfirmationFacts {
        auto_approve: wanted.auto_approve,
        is_bundled: true,
        coverage: Coverage::Equal,
        ..ConfirmationFacts::default()
    })
}

/// The events of a run from where it was planned, to be recorded here.
fn events(planned: &BundledRun, spec: &RunSpec, confirmation: Confirmation) -> Vec<RunEvent> {
    // Facts and gates are checked again, changed or not.
    let then = spec.stages_after().first().copied();
    match &planned.outcome {
        Outcome::Planned { plan } => vec![
            RunEvent::PlanStarted,
            RunEvent::PlanFinished {
                plan: plan.clone(),
                confirmed: confirmation.is_confirmed(),
                review: false,
                reason: confirmation.reason(),
                is_equal: None,
                new: Vec::new(),
            },
        ],
        Outcome::Unchanged => vec![
            RunEvent::PlanStarted,
            RunEvent::NothingToChange {
                consumed: None,
                came_after: None,
                serial: planned.unchanged.as_ref().and_then(|it| it.serial),
                lineage: planned.unchanged.as_ref().and_then(|it| it.lineage.clone()),
                then,
            },
        ],
        Outcome::Untouched => vec![RunEvent::NothingConsumed { then }],
        Outcome::Deferred { .. }
        | Outcome::Applied { .. }
        | Outcome::Failed { .. }
        | Outcome::NotDone { .. }
        | Outcome::Skipped { .. }
        | Outcome::Unknown { .. } => Vec::new(),
    }
}

/// Reads outputs that others consume from the engines' backends. They may have been applied from elsewhere
/// since the plans were made; the seal shows whether they changed. Stacks that this bundle applies provide
/// their outputs later; until then any copy suffices.
async fn see_outputs(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    bundle: &Bundle,
) -> Result<Vec<UnreadState>, PrepareError> {
    let needed = bundle.runs.iter();
    let needed = needed.flat_map(|run| run.spec.output_states.keys());
    let is_elsewhere = |stack: &&StackName| {
        project.stacks.contains_key(*stack) && !project.is_on_terrane_backend(stack)
    };
    let needed: BTreeSet<StackName> = needed.filter(is_elsewhere).cloned().collect();
    let changing = bundle.changing();
    let (applied, rest): (BTreeSet<StackName>, BTreeSet<StackName>) = needed
        .into_iter()
        .partition(|stack| changing.contains(stack));
    let mut unseen = Vec::new();
    for (stacks, copies) in [(rest, CopyFreshness::Fresh), (applied, CopyFreshness::Any)] {
        let looked = backends::look_again(control, open, project, env, &stacks, copies).await?;
        unseen.extend(looked);
    }
    Ok(unseen)
}

async fn keep_source(control: &Control, bundle: &Bundle) -> Result<(), PrepareError> {
    let digest = &bundle.request.source;
    let path = control.home.snapshot(digest);
    if path.exists() {
        return Ok(());
    }
    let keep = |source| PrepareError::Keep {
        path: path.clone(),
        source,
    };
    let purpose = format!("snapshot {digest}");
    let plain = bundle.source().to_vec();
    let sealed = control.store.seal(KeyScope::Project, &purpose, plain).await;
    let sealed = sealed.map_err(PrepareError::Seal)?;
    if let Some(dir) = path.parent() {
        make_private(dir).map_err(keep)?;
    }
    let temporary = path.with_extension(format!("{}", std::process::id()));
    std::fs::write(&temporary, sealed).map_err(keep)?;
    std::fs::rename(&temporary, &path).map_err(keep)
}
