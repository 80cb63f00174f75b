//! What is said about a run from outside: by people who want it to end, and by policies that are asked again.

use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::policy::{PolicyPhase, Remark, RequiredApproval, Verdict};
use model::run::{Run, RunEvent, RunState};

use super::World;

impl World {
    /// Somebody wants a run to end. Only what comes of that moves it; to one that is over it cannot be said.
    pub(super) async fn cancel(&mut self, set: ChangeSetId) {
        let asked = RunEvent::CancelAsked {
            by: Actor::named("eve"),
            reason: None,
            kill: self.dice.roll(2) == 0,
        };
        let Some((before, is_refused, after)) = self.say(set, asked).await else {
            return;
        };
        assert_eq!(is_refused, before.state.is_finished(), "{before:?}");
        assert_eq!(after.state, before.state);
    }

    /// Policies want more or less of a yes than before. Only of a plan can anything be said, and it stays where it is.
    pub(super) async fn ask_policies(&mut self, set: ChangeSetId) {
        let count = u32::try_from(self.dice.roll(3)).unwrap();
        let asked = RunEvent::PolicyAsked {
            at: PolicyPhase::Approval,
            by: Some(Actor::named("eve")),
            said: wants(count),
        };
        let Some((before, is_refused, after)) = self.say(set, asked).await else {
            return;
        };
        let has_plan = matches!(
            before.state,
            RunState::Planned { .. } | RunState::Applying { .. }
        );
        assert_eq!(is_refused, !has_plan, "{before:?}");
        assert_eq!(after.state.word(), before.state.word());
    }

    /// Says something about one of its runs: how that was, whether it was refused, how it is now.
    async fn say(&mut self, set: ChangeSetId, event: RunEvent) -> Option<(Run, bool, Run)> {
        let runs = self.store.run_list(set).await.unwrap();
        let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        let id = self.pick(&ids)?;
        let before = runs.into_iter().find(|run| run.id == id).unwrap();
        let said = self.store.run_record(id, event, self.now).await;
        let after = self.store.run_get(id).await.unwrap().unwrap();
        Some((before, said.is_err(), after))
    }
}

/// What a policy says that wants so many people to look.
pub(super) fn wants(count: u32) -> Verdict {
    let wanted = (count > 0).then(|| RequiredApproval {
        remark: Remark {
            policy: "p".to_owned(),
            rule: "require_approval".to_owned(),
            message: "somebody looks at it".to_owned(),
            resource: None,
        },
        count,
        role: None,
    });
    Verdict {
        approvals: wanted.into_iter().collect(),
        ..Verdict::default()
    }
}
