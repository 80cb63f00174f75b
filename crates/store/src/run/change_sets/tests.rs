//! Long random lives of several change sets that share lanes: whatever happens in whatever order, the
//! promises hold after every commit.

use model::base::actor::Actor;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::plan::PlanCounts;
use model::project::engine::EngineRequirement;
use model::project::{ApprovalRule, ApprovalScope};
use model::project::{Backend, ConfirmMode, LaneScope, Stack, Target, WaitFor};
use model::run::approval::{Approval, ApprovalRequirement};
use model::run::changeset::{
    self, Action, DecisionContext, Reopen, Request, Status, Trigger, UserCommand,
};
use model::run::hold::HoldOn;
use model::run::seal::Seal;
use model::run::{
    AwaitedOutputs, EnginePin, Outcome, PlanRecord, Preview, Run, RunEvent, RunProblem, RunSpec,
    RunState, SkipReason, Stage, Upstream,
};
use testkit::{SeededRng, seed};

use crate::testing::TestHome;
use crate::{ChangeSetError, ChangeSetStep, NewHold, Store};

mod runners;
mod words;

const START: Timestamp = Timestamp::UNIX_EPOCH;

/// Everything a test knows besides the store.
struct World {
    store: Store,
    onlooker: Store,
    dice: SeededRng,
    now: Timestamp,
    sets: Vec<ChangeSetId>,
    /// Runs whose process lives: those that were claimed and have not ended.
    alive: BTreeSet<RunId>,
}

fn stack(name: &str) -> StackName {
    name.parse().unwrap()
}

fn spec(name: &str, upstreams: &[&str]) -> RunSpec {
    let target = Target {
        name: "local".to_owned(),
        writers: vec!["anyone".to_owned()],
        lane: LaneScope::Target,
        providers: Vec::new(),
        no_providers: false,
        backend: Backend::Terrane,
        approval: None,
    };
    RunSpec {
        review: false,
        strict_secrets: false,
        asked_with: None,
        facts: BTreeMap::new(),
        fact_locations: Vec::new(),
        relied: model::stage::fact_readers::Reliance::default(),
        exec: None,
        policies: Vec::new(),
        stack: Stack {
            name: stack(name),
            path: name.to_owned(),
            target: "local".to_owned(),
            layer: String::new(),
            labels: BTreeSet::new(),
            state: name.to_owned(),
            engine: EngineRequirement::default(),
            inputs: BTreeMap::new(),
            var_files: Vec::new(),
            edges: Vec::new(),
            contexts: Vec::new(),
            wait: WaitFor::Applied,
            confirm: ConfirmMode::Manual,
            protected: false,
            watch: Vec::new(),
            include: Vec::new(),
            artifacts: Vec::new(),
            render: None,
            timeout_plan: None,
            timeout_apply: None,
            approval: None,
            stages: model::stage::Stages::default(),
            declared_at: model::base::diagnostic::Location::default(),
            inputs_at: BTreeMap::new(),
        },
        target,
        contexts: Vec::new(),
        upstreams: upstreams
            .iter()
            .map(|name| Upstream {
                stack: stack(name),
                outputs: BTreeSet::from(["x".to_owned()]),
                wait: WaitFor::Verified,
            })
            .collect(),
        output_states: BTreeMap::new(),
        order_states: BTreeSet::new(),
        engine: EnginePin {
            flavor: model::project::engine::Flavor::Tofu,
            version: "1.11.0".to_owned(),
            program: "tofu".to_owned(),
        },
        slot: "_local".to_owned(),
        source: String::new(),
        root: String::new(),
        init_inputs: String::new(),
        needs_providers: false,
        has_unstable_paths: false,
        own_backend: None,
        variables: BTreeMap::new(),
        outputs: BTreeSet::new(),
        own_source: String::new(),
        settled: false,
        stands_on: BTreeSet::new(),
        destroy: false,
        refresh_only: false,
        pinned: None,
        no_state: false,
    }
}

fn specs() -> Vec<RunSpec> {
    vec![
        spec("a", &[]),
        spec("b", &["a"]),
        spec("c", &["b"]),
        spec("d", &[]),
    ]
}

fn plan(now: Timestamp, destroys: bool) -> PlanRecord {
    PlanRecord {
        policy: model::policy::Verdict::default(),
        policy_since: BTreeMap::new(),
        difference: None,
        counts: PlanCounts::default(),
        destroys,
        outputs: BTreeSet::from(["x".to_owned()]),
        seal: Box::new(Seal {
            source: String::new(),
            head: None,
            inputs: String::new(),
            each_input: BTreeMap::new(),
            engine: String::new(),
            lock_file: None,
        }),
        preview: false,
        since: Some(now),
        consumed: Some("consumed".to_owned()),
        came_after: None,
    }
}

fn previewed(on: &[AwaitedOutputs], preview: Preview) -> RunEvent {
    RunEvent::Previewed {
        on: on.to_vec(),
        preview,
        review: false,
        new: Vec::new(),
    }
}

impl World {
    fn request(&mut self) -> Request {
        let lanes = match self.dice.roll(3) {
            0 => vec!["azure".to_owned()],
            1 => vec!["local".to_owned()],
            _ => vec!["azure".to_owned(), "local".to_owned()],
        };
        let approvals = (self.dice.roll(3) == 0).then(|| ApprovalRequirement {
            by: "target `local`".to_owned(),
            rule: ApprovalRule {
                count: 1,
                role: None,
                author: false,
                expires: None,
                scope: if self.dice.roll(2) == 0 {
                    ApprovalScope::Stack
                } else {
                    ApprovalScope::ChangeSet
                },
            },
            stacks: BTreeSet::from([stack("a"), stack("d")]),
        });
        Request {
            identity: None,
            exec: None,
            dependents: Vec::new(),
            policy_override: None,
            project: "p".to_owned(),
            machine: String::new(),
            action: Action::Apply,
            stacks: specs().into_iter().map(|spec| spec.stack.name).collect(),
            auto_approve: self.dice.roll(2) == 0,
            parallelism: 2,
            lanes,
            source: String::new(),
            commit: None,
            subject: None,
            dirty: false,
            keeps_plans: false,
            earlier_askers: Vec::new(),
            exceptions: None,
            goes_on_with_stages: false,
            unasked: BTreeSet::new(),
            bundle: None,
            asker: Some(Actor::named("ada")),
            asked_with: None,
            origin: if self.dice.roll(3) == 0 {
                Trigger::Push {
                    branch: "main".to_owned(),
                }
            } else {
                Trigger::Person
            },
            approvals: approvals.into_iter().collect(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let count = u64::try_from(from.len()).unwrap();
        (count > 0).then(|| from[usize::try_from(self.dice.roll(count)).unwrap()])
    }

    async fn turn(
        &mut self,
        set: ChangeSetId,
        say: Option<UserCommand>,
        own: Option<(RunId, RunEvent)>,
    ) {
        let alive = self.alive.clone();
        let mut claim = |run: RunId| !alive.contains(&run);
        let done = self
            .store
            .change_set_advance(set, say, own, self.now, &mut claim)
            .await;
        match done {
            Ok(turn) => {
                self.alive.extend(turn.starts.iter().map(|(run, _)| *run));
                self.is_explained(&turn).await;
            }
            // People say things at the wrong moment; nothing of it may have happened.
            Err(ChangeSetError::Heard(_)) => {}
            Err(err) => panic!("{err:?}"),
        }
    }

    /// After a look, whatever is at rest says why.
    async fn is_explained(&self, turn: &ChangeSetStep) {
        let ChangeSetStep { set, runs, .. } = turn;
        let holds = self.store.hold_list_active("p", self.now).await.unwrap();
        let approvals = self.store.approval_list(set.id).await.unwrap();
        let around = DecisionContext {
            holds: &holds,
            approvals: &approvals,
            now: self.now,
        };
        let front = turn.front.as_ref();
        let is_at_work = runs.iter().any(|run| run.state.is_running());
        let goes_on = match set.status {
            Status::Planning | Status::Confirmed | Status::Interrupting => is_at_work,
            Status::Finished => true,
            Status::AwaitingConfirm
            | Status::Waiting
            | Status::Stopped { .. }
            | Status::Superseded { .. } => {
                changeset::why_set(set, runs, &around, front).is_some_and(|why| !why.is_empty())
            }
        };
        assert!(
            goes_on,
            "{} is {:?}, and nobody knows why",
            set.id, set.status
        );
        for run in runs {
            let is_well = match &run.state {
                RunState::Finished { outcome, .. } => outcome.is_good(),
                state => state.is_running(),
            };
            let why = changeset::why(set, runs, run, &around, front);
            let is_said = why.is_some_and(|why| !why.is_empty());
            assert!(
                is_well || is_said,
                "{} is {:?}, and nobody knows why",
                run.id,
                run.state
            );
        }
    }

    async fn step(&mut self) {
        self.now += SignedDuration::from_secs(30);
        let sets = self.sets.clone();
        let Some(set) = self.pick(&sets) else {
            return self.begin().await;
        };
        match self.dice.roll(16) {
            0 if sets.len() < 5 => self.begin().await,
            0..6 => self.run_ends().await,
            6 => {
                self.turn(
                    set,
                    Some(UserCommand::Confirm {
                        by: Actor::named("eve"),
                    }),
                    None,
                )
                .await;
            }
            7 => self.approve(set).await,
            8 => {
                let by = "eve".to_owned();
                let say = match self.dice.roll(4) {
                    0 => UserCommand::Interrupt {
                        by: Actor::named(by),
                    },
                    1 => UserCommand::Discard {
                        by: Actor::named(by),
                        reason: None,
                    },
                    2 => UserCommand::Reject {
                        by: Actor::named(by),
                        reason: "no".to_owned(),
                    },
                    _ => return,
                };
                self.turn(set, Some(say), None).await;
            }
            9 => self.hold().await,
            10 => self.reopen(set).await,
            // Its worker is lost together with everything it knew: whoever looks next goes on.
            11 => self.lose(),
            12 => self.cancel(set).await,
            13 => self.ask_policies(set).await,
            _ => self.turn(set, None, None).await,
        }
    }

    async fn begin(&mut self) {
        let request = self.request();
        let id = self
            .store
            .change_set_insert(&request, &specs(), self.now)
            .await
            .unwrap();
        self.sets.push(id);
    }

    /// A process ends its stage, one way or the other; sometimes it says so twice.
    async fn run_ends(&mut self) {
        let alive: Vec<RunId> = self.alive.iter().copied().collect();
        let Some(id) = self.pick(&alive) else {
            return;
        };
        let run = self.store.run_get(id).await.unwrap().unwrap();
        let event = self.ending(&run.state);
        self.alive.remove(&id);
        let Some(event) = event else {
            return;
        };
        if self.dice.roll(8) == 0 {
            // An event that was committed and is sent again is refused as a whole.
            self.turn(run.change_set, None, Some((id, event.clone())))
                .await;
            if !self.alive.contains(&id) {
                let mut none = |_| false;
                let again = self.store.change_set_advance(
                    run.change_set,
                    None,
                    Some((id, event)),
                    self.now,
                    &mut none,
                );
                assert!(again.await.is_err(), "an event happened twice");
            }
            return;
        }
        self.turn(run.change_set, None, Some((id, event))).await;
    }

    fn ending(&mut self, state: &RunState) -> Option<RunEvent> {
        let problem = RunProblem::new(Stage::Planning, "no");
        let how = self.dice.roll(6);
        match state {
            RunState::Planning { awaits, .. } if !awaits.is_empty() => Some(match how {
                0 => RunEvent::Failed { problem },
                1 => RunEvent::RunnerLost {
                    kept: None,
                    left: None,
                },
                2 => previewed(awaits, Preview::Unchanged),
                3 => previewed(awaits, Preview::Impossible { why: String::new() }),
                _ => {
                    let plan = Box::new(plan(self.now, false));
                    previewed(awaits, Preview::Planned { plan })
                }
            }),
            RunState::Planning { .. } => Some(match how {
                0 => RunEvent::NothingToChange {
                    consumed: Some("consumed".to_owned()),
                    came_after: None,
                    serial: Some(1),
                    lineage: None,
                    then: None,
                },
                1 => RunEvent::Failed { problem },
                2 => RunEvent::RunnerLost {
                    kept: None,
                    left: None,
                },
                _ => RunEvent::PlanFinished {
                    plan: plan(self.now, how == 3),
                    confirmed: how == 4,
                    review: false,
                    reason: None,
                    is_equal: None,
                    new: Vec::new(),
                },
            }),
            RunState::Applying { .. } => Some(match how {
                0 => RunEvent::Failed { problem },
                1 => RunEvent::RunnerLost {
                    kept: None,
                    left: None,
                },
                2 => RunEvent::PlanVoided {
                    why: "it moved".to_owned(),
                },
                5 => RunEvent::ApplyPutOff {
                    said: words::wants(2),
                },
                _ => RunEvent::ApplyFinished {
                    counts: PlanCounts::default(),
                    serial: Some(2),
                    lineage: None,
                    then: (how == 3).then_some(Stage::Publishing),
                },
            }),
            RunState::Completing { part, .. } => Some(match how {
                0 => RunEvent::Failed { problem },
                1 => RunEvent::RunnerLost {
                    kept: None,
                    left: None,
                },
                _ => RunEvent::StageFinished {
                    part: *part,
                    changed: None,
                    report: serde_json::Value::Null,
                    then: (*part == Stage::Publishing).then_some(Stage::Verifying),
                },
            }),
            RunState::Queued
            | RunState::Deferred { .. }
            | RunState::Planned { .. }
            | RunState::Applied { .. }
            | RunState::Finished { .. } => None,
        }
    }

    /// Processes die without a word, and are found dead.
    fn lose(&mut self) {
        let alive: Vec<RunId> = self.alive.iter().copied().collect();
        if let Some(run) = self.pick(&alive) {
            self.alive.remove(&run);
        }
    }

    async fn find_dead(&mut self) {
        for set in self.sets.clone() {
            for run in self.store.run_list(set).await.unwrap() {
                if run.state.is_running() && !self.alive.contains(&run.id) {
                    let lost = RunEvent::RunnerLost {
                        kept: None,
                        left: None,
                    };
                    self.store.run_record(run.id, lost, self.now).await.unwrap();
                }
            }
        }
    }

    async fn approve(&mut self, set: ChangeSetId) {
        let runs = self.store.run_list(set).await.unwrap();
        let runs: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        let run = if self.dice.roll(2) == 0 {
            self.pick(&runs)
        } else {
            None
        };
        let approval = Approval {
            change_set: set,
            run,
            person: Actor::named("eve"),
            role: None,
            verified: false,
            comment: None,
            at: self.now,
        };
        self.store.approval_insert(&approval, None).await.unwrap();
    }

    async fn hold(&mut self) {
        let on = if self.dice.roll(2) == 0 {
            HoldOn::Stack(stack("a"))
        } else {
            HoldOn::Lane("azure".to_owned())
        };
        if self.dice.roll(2) == 0 {
            let until = self.now + SignedDuration::from_mins(5);
            let new = NewHold {
                project: "p",
                on: &on,
                person: &Actor::named("ops"),
                reason: "migration",
                since: self.now,
                until,
            };
            self.store.hold_insert(&new).await.unwrap();
        } else {
            // Nothing may be held there.
            drop(
                self.store
                    .hold_release("p", &on, &Actor::named("ops"), self.now)
                    .await,
            );
        }
    }

    async fn reopen(&mut self, id: ChangeSetId) {
        let set = self.store.change_set_get(id).await.unwrap();
        let before = self.store.run_list(id).await.unwrap();
        let ids: Vec<RunId> = before.iter().map(|run| run.id).collect();
        let names = ["a", "b", "c", "d"];
        let what = match self.dice.roll(3) {
            0 => Reopen::rest(),
            1 => Reopen::Rest {
                moved: self.pick(&names).into_iter().map(stack).collect(),
            },
            _ => Reopen::Run(self.pick(&ids).unwrap()),
        };
        let again = self
            .store
            .change_set_reopen(
                id,
                &what,
                &set.request,
                &specs(),
                &Actor::named("eve"),
                self.now,
            )
            .await;
        match (again, &what) {
            (Ok(_), Reopen::Run(run)) => self.opened_exactly(*run, &before).await,
            (Ok(_) | Err(ChangeSetError::Reopen(_)), _) => {}
            (Err(err), _) => panic!("{err:?}"),
        }
    }

    /// A retry opens the run itself and those that it poisoned, and nobody else.
    async fn opened_exactly(&self, id: RunId, before: &[Run]) {
        let own = before.iter().find(|run| run.id == id).unwrap();
        let is_poisoned = |run: &Run| match &run.state {
            RunState::Finished {
                outcome:
                    Outcome::Skipped {
                        because: SkipReason::UpstreamFailed { by, .. },
                    },
                ..
            } => *by == own.stack,
            _ => false,
        };
        for run in before {
            let now = self.store.run_get(run.id).await.unwrap().unwrap();
            let is_wanted = run.id == id || is_poisoned(run);
            assert_eq!(now.state != run.state, is_wanted, "{run:?}");
        }
    }

    /// What must hold after every commit.
    async fn check(&self) {
        let mut lanes: BTreeMap<String, ChangeSetId> = BTreeMap::new();
        for id in &self.sets {
            let set = self.store.change_set_get(*id).await.unwrap();
            let runs = self.store.run_list(*id).await.unwrap();
            let applying = runs
                .iter()
                .filter(|run| matches!(run.state, RunState::Applying { .. }))
                .count();
            if applying > 0 {
                assert!(set.status.holds_lanes(), "{id} applies without its lanes");
                for lane in &set.request.lanes {
                    let other = lanes.insert(lane.clone(), *id);
                    assert_eq!(other, None, "two change sets apply on lane `{lane}`");
                }
            }
            let held = self.lanes_of(*id).await;
            let wanted = if set.status.holds_lanes() && set.status != Status::Interrupting {
                set.request.lanes.len()
            } else {
                held.len()
            };
            assert_eq!(held.len(), wanted, "{id} is {:?}", set.status);
            if !set.status.holds_lanes() {
                assert!(
                    held.is_empty(),
                    "{id} is {:?} and holds {held:?}",
                    set.status
                );
            }
            if set.status == Status::Finished {
                assert!(runs.iter().all(|run| run.state.is_finished()));
            }
            self.replay(*id).await;
        }
        self.look_on().await;
    }

    /// Another process, which reads only what moved since it looked last, sees what is stored.
    async fn look_on(&self) {
        let Some(newest) = self.sets.last() else {
            return;
        };
        for run in self.onlooker.run_list(*newest).await.unwrap() {
            let stored = self.store.run_get(run.id).await.unwrap();
            assert_eq!(Some(run), stored);
        }
    }

    async fn lanes_of(&self, set: ChangeSetId) -> Vec<String> {
        let sql = "SELECT name FROM lane WHERE change_set = $1";
        let rows = self.store.db.fetch_all(sql, &[set.into()]).await.unwrap();
        rows.iter()
            .map(|row| row.text(0).unwrap().to_owned())
            .collect()
    }

    /// The stored events give the stored state.
    async fn replay(&self, id: ChangeSetId) {
        let mut status = Status::Planning;
        for (_, event) in self.store.change_set_events(id).await.unwrap() {
            status = changeset::advance(&status, &event).unwrap();
        }
        let stored = self.store.change_set_get(id).await.unwrap().status;
        assert_eq!(status, stored, "{id}");
        for run in self.store.run_list(id).await.unwrap() {
            let mut state = RunState::Queued;
            for (at, event) in self.store.run_events(run.id).await.unwrap() {
                state = model::run::advance(&state, event, at).unwrap();
            }
            assert_eq!(state, run.state, "{}", run.id);
        }
    }

    /// Whoever looks long enough brings everything to rest: nothing is stuck without a reason.
    async fn comes_to_rest(&mut self) {
        self.now += SignedDuration::from_hours(1);
        self.alive.clear();
        for _ in 0..40 {
            self.find_dead().await;
            self.alive.clear();
            for set in self.sets.clone() {
                self.turn(set, None, None).await;
            }
            for run in self.alive.clone() {
                let found = self.store.run_get(run).await.unwrap().unwrap();
                let event = match found.state {
                    RunState::Planning { awaits, .. } if !awaits.is_empty() => {
                        previewed(&awaits, Preview::Unchanged)
                    }
                    RunState::Planning { .. } => RunEvent::NothingToChange {
                        consumed: None,
                        came_after: None,
                        serial: None,
                        lineage: None,
                        then: None,
                    },
                    RunState::Applying { .. } => RunEvent::ApplyFinished {
                        counts: PlanCounts::default(),
                        serial: None,
                        lineage: None,
                        then: None,
                    },
                    RunState::Completing { part, .. } => RunEvent::StageFinished {
                        part,
                        changed: None,
                        report: serde_json::Value::Null,
                        then: None,
                    },
                    RunState::Queued
                    | RunState::Deferred { .. }
                    | RunState::Planned { .. }
                    | RunState::Applied { .. }
                    | RunState::Finished { .. } => {
                        continue;
                    }
                };
                self.alive.remove(&run);
                self.turn(found.change_set, None, Some((run, event))).await;
            }
            self.check().await;
        }
        for id in &self.sets {
            let set = self.store.change_set_get(*id).await.unwrap();
            assert!(
                set.status.is_over() || set.status == Status::AwaitingConfirm,
                "{id} is stuck: {:?}",
                set.status
            );
        }
    }
}

#[tokio::test]
async fn whatever_happens_the_promises_hold() {
    let home = TestHome::new();
    let mut world = World {
        store: home.open().await,
        onlooker: home.open().await,
        dice: SeededRng::new(seed()),
        now: START + SignedDuration::from_hours(1),
        sets: Vec::new(),
        alive: BTreeSet::new(),
    };
    for _ in 0..12 {
        for _ in 0..40 {
            world.step().await;
            world.check().await;
        }
        world.find_dead().await;
        world.comes_to_rest().await;
        // The next five live beside what the last ones left behind.
        let waiting = world.sets.clone();
        for set in waiting {
            let by = "ops".to_owned();
            world
                .turn(
                    set,
                    Some(UserCommand::Interrupt {
                        by: Actor::named(by),
                    }),
                    None,
                )
                .await;
        }
        world.comes_to_rest().await;
        world.sets.clear();
    }
}
