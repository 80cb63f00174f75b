//! Scenarios of post-apply stages.

use super::*;

#[test]
fn applied_is_not_done() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    set.request.auto_approve = true;
    set.status = Status::Confirmed;
    assert_eq!(settle(&mut set, &mut runs), ["plan a"]);
    happen(&mut runs, "a", said(&["x"]));
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
    happen(&mut runs, "a", applied_before(Stage::Publishing));
    assert_eq!(settle(&mut set, &mut runs), ["publishing a"]);
    happen(
        &mut runs,
        "a",
        staged(Stage::Publishing, Some(Stage::Verifying)),
    );
    assert_eq!(settle(&mut set, &mut runs), ["verifying a"]);
    // Its runner dies. A gate can be checked any number of times.
    let lost = RunEvent::RunnerLost {
        kept: None,
        left: None,
    };
    happen(&mut runs, "a", lost);
    assert_eq!(settle(&mut set, &mut runs), ["verifying a"]);
    let failed = RunEvent::Failed { problem: problem() };
    happen(&mut runs, "a", failed);
    assert_eq!(settle(&mut set, &mut runs), [""; 0] as [&str; 0]);
    assert_eq!(words(&runs), "a not verified, b skipped");
    assert!(matches!(set.status, Status::Stopped { .. }));

    // A retry continues with the gate and includes the runs that waited for it.
    let again = changeset::reopen(&set, &runs, &Reopen::Run(RunId(1))).unwrap();
    let again: Vec<RunId> = again.iter().map(|it| it.run).collect();
    assert_eq!(again, [RunId(1), RunId(2)]);
    for stack in ["a", "b"] {
        happen(&mut runs, stack, RunEvent::Reopened { moved: false });
    }
    set.status = Status::Confirmed;
    assert_eq!(settle(&mut set, &mut runs), ["verifying a"]);
    happen(&mut runs, "a", staged(Stage::Verifying, None));
    assert_eq!(settle(&mut set, &mut runs), ["plan b"]);
}

#[test]
fn a_stage_that_takes_every_runner_with_it_ends() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a"]);
    set.request.auto_approve = true;
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&["x"]));
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", applied_before(Stage::Verifying));
    for _ in 0..3 {
        assert_eq!(settle(&mut set, &mut runs), ["verifying a"]);
        let lost = RunEvent::RunnerLost {
            kept: None,
            left: None,
        };
        happen(&mut runs, "a", lost);
    }
    settle(&mut set, &mut runs);
    assert_eq!(words(&runs), "a not verified");
}

#[test]
fn who_waits_for_the_apply_alone_does_not_wait_for_gates() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    runs[1].upstreams[0].wait = WaitFor::Applied;
    set.request.auto_approve = true;
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&["x"]));
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", applied_before(Stage::Verifying));
    assert_eq!(settle(&mut set, &mut runs), ["verifying a", "plan b"]);
    let failed = RunEvent::Failed { problem: problem() };
    happen(&mut runs, "a", failed);
    happen(&mut runs, "b", said(&[]));
    assert_eq!(settle(&mut set, &mut runs), ["apply b"]);
    happen(&mut runs, "b", applied());
    settle(&mut set, &mut runs);
    assert_eq!(words(&runs), "a not verified, b applied");
}

#[test]
fn facts_and_gates_of_what_did_not_change_need_nobodys_word() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a"]);
    assert_eq!(settle(&mut set, &mut runs), ["plan a"]);
    let nothing = RunEvent::NothingToChange {
        consumed: None,
        came_after: None,
        serial: None,
        lineage: None,
        then: Some(Stage::Verifying),
    };
    happen(&mut runs, "a", nothing);
    assert_eq!(settle(&mut set, &mut runs), ["verifying a"]);
    assert!(set.status.holds_lanes());
    happen(&mut runs, "a", staged(Stage::Verifying, None));
    settle(&mut set, &mut runs);
    assert_eq!(words(&runs), "a unchanged");
    assert_eq!(set.status, Status::Finished);
}

#[test]
fn a_hold_keeps_stages_that_write_and_lets_gates_be_looked_at() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a"]);
    set.request.auto_approve = true;
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&[]));
    settle(&mut set, &mut runs);
    let holds = [held("a")];
    let around = DecisionContext {
        holds: &holds,
        ..AROUND
    };
    for (stage, starts) in [
        (Stage::Publishing, false),
        (Stage::Bootstrapping, false),
        (Stage::Verifying, true),
    ] {
        let mut runs = runs.clone();
        let mut set = set.clone();
        happen(&mut runs, "a", applied_before(stage));
        let steps = next(&set, &runs, &around);
        if starts {
            assert_eq!(steps, [Transition::StartStage(RunId(1), stage)]);
            continue;
        }
        assert_eq!(steps, [Transition::Move(SetEvent::CameToRest)]);
        set.status = Status::AwaitingConfirm;
        assert_eq!(next(&set, &runs, &around), []);
        let by = "me".to_owned();
        let refused = changeset::apply_command(
            &set,
            &runs,
            &around,
            UserCommand::Confirm {
                by: Actor::named(by),
            },
        );
        assert!(
            matches!(refused, Err(UserCommandError::Held { .. })),
            "{refused:?}"
        );
        let why = changeset::why_set(&set, &runs, &around, None).unwrap();
        assert!(why.starts_with("stack `a` is held by"), "{why}");
        // When it ends, no confirmation is needed.
        let confirmed = SetEvent::Confirmed { by: None };
        assert_eq!(next(&set, &runs, &AROUND), [Transition::Move(confirmed)]);
    }
}
