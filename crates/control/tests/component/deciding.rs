//! What people decide, for tests: approvals, refusals, holds; and projects with rules about them.

use model::base::actor::Actor;
use std::fmt::Write as _;
use std::time::Duration;

use control::changeset::explain::{self, ChangeSetDetails};
use control::changeset::holds::{self, ReleaseError};
use control::changeset::prepare::{ChangeSetRequest, PrepareError};
use control::decision::approve::{self, ApproveOutcome, ApproveRequest};
use control::decision::confirm::ConfirmResult;
use control::decision::release::{self, Waiter};
use control::decision::{DecidingUser, DecisionError, stop};
use control::state::redact_reason::BreakGlassReason;
use jiff::SignedDuration;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::Action;
use model::run::hold::{Hold, HoldOn};
use serde_json::json;

use crate::world::{World, stack};

/// A project file whose target `local` has these lines.
pub(crate) fn project_file(target: &str, stacks: &[(&str, &str)]) -> String {
    let mut file = String::from(
        "project \"demo\" {\n  id = \"demo\"\n  engine \"tofu\" { version = \"~> 1.11\" }\n}\n\
         layer \"base\" { order = 0 }\n",
    );
    let writers = if target.contains("writers") {
        ""
    } else {
        "writers = [\"anyone\"]"
    };
    writeln!(file, "target \"local\" {{\n  {writers}\n  {target}\n}}").unwrap();
    for (name, lines) in stacks {
        file += &stack(name, lines);
    }
    file
}

/// Stacks that depend on nothing, each with these lines and one resource. The target has lines of its own.
pub(crate) async fn world_of(target: &str, stacks: &[(&str, &str)]) -> World {
    let world = World::with_file(&project_file(target, stacks)).await;
    for (name, _) in stacks {
        world.set_resource(name, "1");
    }
    world
}

/// One stack `a`, on a target with this `approval` block.
pub(crate) async fn approved_by(rule: &str) -> World {
    world_of(&format!("approval {{\n{rule}\n}}"), &[("a", "")]).await
}

pub(crate) fn approval(set: ChangeSetId) -> ApproveRequest {
    ApproveRequest {
        set,
        run: None,
        role: None,
        comment: None,
        plan: None,
    }
}

/// ``Refused: change set `c1` may not be confirmed yet``, as a command shows it.
pub(crate) fn refusal<T>(result: Result<T, DecisionError>) -> String {
    let Err(err) = result else {
        return "no refusal".to_owned();
    };
    if let DecisionError::Advance(failed) = &err
        && let Some(heard) = failed.heard()
    {
        return format!("{:?}: {heard}", heard.kind());
    }
    format!("{:?}: {err}", err.kind())
}

/// The same for a request that cannot be prepared.
pub(crate) fn no_start<T>(result: Result<T, PrepareError>) -> String {
    match result {
        Ok(_) => "no refusal".to_owned(),
        Err(err) => format!("{:?}: {err}", err.kind()),
    }
}

/// ``0 of 1 approval; not the author (target `local`)``
pub(crate) fn missing(outcome: &ApproveOutcome) -> String {
    let all = outcome.missing.iter();
    let all: Vec<String> = all
        .map(|one| format!("{} ({})", one.words(), one.by))
        .collect();
    all.join(", ")
}

fn reason() -> BreakGlassReason {
    BreakGlassReason {
        actor: Actor::named("bob"),
        text: "not today".to_owned(),
    }
}

impl World {
    /// Gives the resource of a stack this value.
    pub(crate) fn set_resource(&self, stack: &str, value: &str) {
        self.script(stack, &json!({"resources": {"r": value}}));
    }

    pub(crate) fn pass(&self, hours: i64) {
        self.clock.advance(SignedDuration::from_hours(hours));
    }

    /// A request that is confirmed in advance.
    pub(crate) fn auto_request(&self, action: Action, stacks: &[&str]) -> ChangeSetRequest {
        ChangeSetRequest {
            auto_approve: true,
            ..self.request(action, stacks)
        }
    }

    pub(crate) async fn approve(
        &mut self,
        set: ChangeSetId,
        person: &str,
    ) -> Result<ApproveOutcome, DecisionError> {
        self.approve_with(person, approval(set)).await
    }

    pub(crate) async fn approve_run(
        &mut self,
        set: ChangeSetId,
        run: RunId,
        person: &str,
    ) -> Result<ApproveOutcome, DecisionError> {
        let run = Some(run);
        let request = ApproveRequest {
            run,
            ..approval(set)
        };
        self.approve_with(person, request).await
    }

    /// Approves, and carries out what follows.
    pub(crate) async fn approve_with(
        &mut self,
        person: &str,
        request: ApproveRequest,
    ) -> Result<ApproveOutcome, DecisionError> {
        self.clock.advance(SignedDuration::from_secs(1));
        let (_, project) = self.open();
        let decider = DecidingUser {
            actor: &Actor::named(person),
            env: &self.env,
            project: &project,
        };
        let outcome = approve::approve(&self.control, decider, request).await;
        self.carry_out().await;
        outcome
    }

    /// Confirms, without carrying out what follows: the change set holds its lanes, if it got them.
    pub(crate) async fn confirm_only(
        &self,
        set: ChangeSetId,
    ) -> Result<ConfirmResult, DecisionError> {
        self.clock.advance(SignedDuration::from_secs(1));
        self.wait_for_locks(set).await;
        let confirmed = self.confirm_as(set, "alice").await;
        confirmed.map(|outcome| outcome.result)
    }

    pub(crate) async fn reject(&mut self, set: ChangeSetId) -> Result<String, DecisionError> {
        stop::reject(&self.control, set, reason()).await
    }

    pub(crate) async fn discard(&mut self, set: ChangeSetId) -> Result<String, DecisionError> {
        stop::discard(&self.control, set, reason()).await
    }

    pub(crate) fn hold_on(&self, word: &str) -> HoldOn {
        let (_, project) = self.open();
        holds::find(&project, word).unwrap()
    }

    /// Holds a stack or a target for one hour, as `ops`.
    pub(crate) async fn hold(&self, word: &str) -> Hold {
        let (on, term) = (self.hold_on(word), Duration::from_hours(1));
        let added = holds::add(&self.control, &on, &Actor::named("ops"), "migration", term).await;
        added.unwrap()
    }

    /// Releases the holds of `ops`, and carries out what waited for them.
    pub(crate) async fn release(&mut self, word: &str) -> Result<Vec<Waiter>, ReleaseError> {
        let on = self.hold_on(word);
        holds::release(&self.control, &on, &Actor::named("ops"), false).await?;
        let (open, project) = self.open();
        let decider = DecidingUser {
            actor: &Actor::named("ops"),
            env: &self.env,
            project: &project,
        };
        let waiters = release::continue_waiters(&self.control, decider, &open, &on).await;
        self.carry_out().await;
        Ok(waiters.unwrap())
    }

    pub(crate) async fn details(&self, set: ChangeSetId) -> ChangeSetDetails {
        explain::explain(&self.control, set).await.unwrap()
    }

    /// Why a change set does not continue.
    pub(crate) async fn why(&self, set: ChangeSetId) -> String {
        self.details(set).await.why().unwrap_or_default()
    }

    /// Why a run is as it is.
    pub(crate) async fn why_run(&self, set: ChangeSetId, stack: &str) -> String {
        let (details, run) = (self.details(set).await, self.run(set, stack).await);
        details.why_run(&run).unwrap_or_default()
    }
}
