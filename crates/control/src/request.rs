//! What users request: plan, apply, destroy, an engine command, the apply of a bundle, and resuming what was stopped. Each use
//! case identifies the caller, finds the engines, and returns the stored change set, or an equal one that is under way.
//!
//! Not here: preparing and checking a change set (`changeset::prepare`), carrying it out (`schedule`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;

use drivers::engine::Engine;
use model::base::ids::{ChangeSetId, StackName};
use model::run::changeset::{Action, ChangeSet, Status};
use model::run::exec::ExecKind;

use crate::Control;
use crate::access::writers::{self, Caller};
use crate::changeset::bundle::Bundle;
use crate::changeset::prepare::{
    self, BeginBundleError, BundleInputs, ChangeSetRequest, PrepareError, PrepareInputs,
    ResumeRequest, StartedChangeSet,
};
use crate::project::engines;
use crate::project::open::ProjectContext;
use crate::run::client_presence;
use crate::secrets::caller_env::CallerEnv;

/// The change set that does what was requested.
pub enum Requested {
    New(StartedChangeSet),
    UnderWay(AttachedChangeSet),
}

/// An equal change set that is under way already.
pub struct AttachedChangeSet {
    pub id: ChangeSetId,
    /// The values that the change set needs; none if some are missing here. Then this client can only watch.
    pub caller: Option<CallerEnv>,
    /// Held while a client is attached.
    pub watch: File,
}

/// Plans, applies or destroys stacks, or runs a command of the engine.
pub async fn start(
    control: &Control,
    context: ProjectContext<'_>,
    request: ChangeSetRequest,
) -> Result<Requested, PrepareError> {
    let request = context.identified(request).await?;
    if matches!(request.action, Action::Apply | Action::Destroy)
        && let Some(set) =
            prepare::find_same(control, context.open, context.project, &request).await?
        && let Some(attached) = context.attach_to_equal(control, &set).await?
    {
        return Ok(Requested::UnderWay(attached));
    }
    let engines = context.engines(control, &request.stacks)?;
    let inputs = context.inputs(control, &engines, &request);
    Ok(Requested::New(prepare::begin(inputs).await?))
}

/// Applies a bundle, or attaches to the change set that applies it here.
pub async fn start_bundle(
    control: &Control,
    context: ProjectContext<'_>,
    bundle: &Bundle,
    request: ChangeSetRequest,
) -> Result<Requested, BeginBundleError> {
    let request = context.identified(request).await?;
    let found = prepare::find_bundled(control, bundle, &request).await?;
    let (here, elsewhere) = match found {
        Some(set) if set.request.machine == control.home.machine() => (Some(set), None),
        elsewhere => (None, elsewhere),
    };
    if let Some(set) = here {
        let caller = prepare::gather_again(control, context.open, context.env, set.id).await;
        let caller = caller.map_err(PrepareError::from)?;
        if let Some(attached) = attach(control, set.id, caller).await? {
            return Ok(Requested::UnderWay(attached));
        }
    }
    let begun = prepare::begin_bundled(BundleInputs {
        control,
        open: context.open,
        project: context.project,
        env: context.env,
        bundle,
        wanted: &request,
        begun: elsewhere.as_ref(),
    });
    Ok(Requested::New(begun.await?))
}

/// Reopens runs of a stopped change set.
pub async fn resume(
    control: &Control,
    context: ProjectContext<'_>,
    mut resumed: ResumeRequest,
) -> Result<StartedChangeSet, PrepareError> {
    let stacks = &resumed.wanted.stacks;
    resumed.wanted.who = context.identify(&resumed.wanted.who, stacks).await;
    let engines = context.engines(control, &resumed.wanted.stacks)?;
    let inputs = context.inputs(control, &engines, &resumed.wanted);
    prepare::resume(inputs, &resumed).await
}

impl<'a> ProjectContext<'a> {
    fn inputs(
        self,
        control: &'a Control,
        engines: &'a BTreeMap<StackName, Engine>,
        wanted: &'a ChangeSetRequest,
    ) -> PrepareInputs<'a> {
        PrepareInputs {
            control,
            open: self.open,
            project: self.project,
            engines,
            env: self.env,
            wanted,
        }
    }
}

impl ProjectContext<'_> {
    /// The request with the identified caller. Refused if the caller may not change the targets.
    async fn identified(self, request: ChangeSetRequest) -> Result<ChangeSetRequest, PrepareError> {
        let kind = request.exec.as_ref().map(|exec| exec.kind);
        if kind == Some(ExecKind::Read) {
            return Ok(request);
        }
        // Stacks that this project does not have are refused later, with the other checks.
        let stacks = request.stacks.iter();
        let known = stacks.filter(|stack| self.project.stacks.contains_key(*stack));
        let known: BTreeSet<StackName> = known.cloned().collect();
        let who = self.identify(&request.who, &known).await;
        if request.changes() {
            who.check_all(self.project, &known)?;
        }
        Ok(ChangeSetRequest { who, ..request })
    }

    async fn identify(self, who: &Caller, stacks: &BTreeSet<StackName>) -> Caller {
        writers::identify(self.project, stacks, self.env, &who.actor()).await
    }

    fn engines(
        self,
        control: &Control,
        stacks: &BTreeSet<StackName>,
    ) -> Result<BTreeMap<StackName, Engine>, PrepareError> {
        let wishes = prepare::requirements(self.project, stacks);
        let path = self.env.get("PATH").map(OsStr::new);
        Ok(engines::find(wishes, path, &control.cache)?)
    }

    /// Attaches to a change set that does the same, if the values are the same. A queued one is only attached to with
    /// the values that it needs to start.
    async fn attach_to_equal(
        self,
        control: &Control,
        set: &ChangeSet,
    ) -> Result<Option<AttachedChangeSet>, PrepareError> {
        let caller = prepare::gather_again(control, self.open, self.env, set.id).await?;
        let is_equal = prepare::is_same_request(control, set, caller.as_ref()).await;
        let is_equal = is_equal.map_err(PrepareError::Digest)?;
        if !is_equal || (caller.is_none() && set.status == Status::Waiting) {
            return Ok(None);
        }
        attach(control, set.id, caller).await
    }
}

/// Attaches, unless the change set has ended in the meantime, perhaps because no client was attached.
async fn attach(
    control: &Control,
    id: ChangeSetId,
    caller: Option<CallerEnv>,
) -> Result<Option<AttachedChangeSet>, PrepareError> {
    let watch = client_presence::attach(control, id).map_err(|source| PrepareError::Keep {
        path: client_presence::path(control, id),
        source,
    })?;
    let is_over = control.store.change_set_get(id).await?.status.is_over();
    Ok((!is_over).then_some(AttachedChangeSet { id, caller, watch }))
}
