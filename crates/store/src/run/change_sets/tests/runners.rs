//! What runners say of their runs: all of it counts, or nothing.

use model::base::actor::Actor;
use std::collections::BTreeSet;

use jiff::SignedDuration;
use model::base::ids::RunId;
use model::plan::PlanCounts;
use model::project::ApprovalBlock;
use model::run::approval::{Approval, ApprovalRequirement};
use model::run::changeset::{Reopen, Request, Status, Trigger};
use model::run::{RunEvent, RunState};
use testkit::{SeededRng, seed};

use super::{START, World, plan, spec, stack};
use crate::testing::TestHome;
use crate::{ChangeSetError, Fence, ReportedEvent, Store, ValueOverride};

async fn world(home: &TestHome, store: &Store) -> World {
    World {
        onlooker: home.open().await,
        store: store.clone(),
        dice: SeededRng::new(seed()),
        now: START,
        sets: Vec::new(),
        alive: BTreeSet::new(),
    }
}

#[tokio::test]
async fn who_lost_its_lanes_records_nothing_even_if_they_are_held_again() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut world = world(&home, &store).await;
    let request = Request {
        lanes: vec!["azure".to_owned()],
        auto_approve: true,
        approvals: Vec::new(),
        origin: Trigger::Person,
        ..world.request()
    };
    let specs = [spec("a", &[])];
    let id = store.change_set_insert(&request, &specs, START).await;
    let id = id.unwrap();
    let planned = || RunEvent::PlanFinished {
        plan: plan(START, false),
        confirmed: true,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    let applied = || RunEvent::ApplyFinished {
        counts: PlanCounts::default(),
        serial: Some(1),
        lineage: None,
        then: None,
    };
    let turn = async |fence: Option<&Fence>, happened: Option<(RunId, RunEvent)>| {
        let mut claim = |_| true;
        let happened = happened.map(|(run, event)| ReportedEvent {
            run,
            event,
            brought: None,
        });
        store
            .change_set_advance_fenced(id, fence, None, happened, START, &mut claim)
            .await
    };
    let begun = turn(None, None).await.unwrap();
    let run = begun.starts[0].0;
    let first = store.lane_fence(&begun.set).await.unwrap();
    let first = first.expect("it holds its lanes");
    turn(Some(&first), Some((run, planned()))).await.unwrap();
    // Its processes are gone: it is ended, gives its lanes up, and is tried again.
    let lost = RunEvent::RunnerLost {
        kept: None,
        left: None,
    };
    turn(None, Some((run, lost))).await.unwrap();
    let refused = store.lane_check(&first).await;
    assert!(matches!(refused, Err(ChangeSetError::LaneLost { .. })));
    let rest = Reopen::rest();
    let eve = Actor::named("eve");
    let again = store.change_set_reopen(id, &rest, &request, &specs, &eve, START);
    again.await.unwrap();
    let begun = turn(None, None).await.unwrap();
    let second = store.lane_fence(&begun.set).await.unwrap();
    let second = second.expect("it holds its lanes again");
    turn(Some(&second), Some((run, planned()))).await.unwrap();

    // Whoever was taken for dead says what it did: it may not start an engine, and its word does not count.
    assert!(store.lane_check(&first).await.is_err());
    let refused = turn(Some(&first), Some((run, applied()))).await;
    assert!(matches!(refused, Err(ChangeSetError::LaneLost { .. })));
    let state = store.run_get(run).await.unwrap().unwrap().state;
    assert!(matches!(state, RunState::Applying { .. }), "{state:?}");
    let done = turn(Some(&second), Some((run, applied()))).await.unwrap();
    assert_eq!(done.set.status, Status::Finished);
}

#[tokio::test]
async fn whose_values_a_plan_has_is_kept_with_the_plan_or_not_at_all() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut world = world(&home, &store).await;
    let request = Request {
        lanes: vec!["azure".to_owned()],
        auto_approve: false,
        origin: Trigger::Person,
        ..world.request()
    };
    let specs = [spec("a", &[])];
    let id = store.change_set_insert(&request, &specs, START).await;
    let id = id.unwrap();
    let turn = async |happened| {
        let mut claim = |_| true;
        let turn = store.change_set_advance_fenced(id, None, None, happened, START, &mut claim);
        turn.await
    };
    let run = turn(None).await.unwrap().starts[0].0;
    let brought = |event| ReportedEvent {
        run,
        event,
        brought: Some(ValueOverride {
            values: Some("other".to_owned()),
            by: Actor::named("dan"),
        }),
    };
    // What cannot happen leaves no word of the values: the next one who plans brings them anew.
    turn(Some(brought(RunEvent::Confirmed))).await.unwrap_err();
    assert_eq!(store.run_spec(run).await.unwrap().asked_with, None);
    let set = store.change_set_get(id).await.unwrap();
    assert!(!set.request.is_author("dan"));
    let planned = RunEvent::PlanFinished {
        plan: plan(START, false),
        confirmed: false,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    turn(Some(brought(planned))).await.unwrap();
    let spec = store.run_spec(run).await.unwrap();
    assert_eq!(spec.asked_with.as_deref(), Some("other"));
    let set = store.change_set_get(id).await.unwrap();
    assert!(set.request.is_author("dan"));
}

/// Who speaks while a plan is made speaks of another one.
#[tokio::test]
async fn what_was_said_before_a_plan_was_there_is_not_about_it() {
    let home = TestHome::new();
    let store = home.open().await;
    let mut world = world(&home, &store).await;
    let rule = ApprovalBlock::rule(Some(&ApprovalBlock::default()), None).unwrap();
    let request = Request {
        auto_approve: false,
        approvals: vec![ApprovalRequirement {
            by: "target `local`".to_owned(),
            rule,
            stacks: BTreeSet::from([stack("a")]),
        }],
        origin: Trigger::Person,
        ..world.request()
    };
    let specs = [spec("a", &[])];
    let id = store.change_set_insert(&request, &specs, START).await;
    let id = id.unwrap();
    let mut claim = |_| true;
    let begun = store.change_set_advance(id, None, None, START, &mut claim);
    let run = begun.await.unwrap().starts[0].0;
    let early = Approval {
        change_set: id,
        run: None,
        person: Actor::named("eve"),
        role: None,
        verified: false,
        comment: None,
        at: START + SignedDuration::from_secs(5),
    };
    store.approval_insert(&early, None).await.unwrap();
    let planned = RunEvent::PlanFinished {
        plan: plan(START + SignedDuration::from_secs(3), false),
        confirmed: false,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    let turn = store.change_set_advance(id, None, Some((run, planned)), START, &mut claim);
    let turn = turn.await.unwrap();
    let RunState::Planned { plan, .. } = &turn.runs[0].state else {
        panic!("{:?}", turn.runs[0].state);
    };
    assert!(plan.since > Some(early.at), "{plan:?}");
}
