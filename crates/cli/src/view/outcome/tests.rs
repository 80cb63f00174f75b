//! Ends of change sets as they are seen, whole.

use super::*;
use crate::view::color_tags::tagged;
use crate::view::diagnostics::DiagnosticSource;

fn stack(name: &str, result: StackResult) -> StackOutcome {
    StackOutcome {
        stack: name.to_owned(),
        result,
    }
}

fn outcome(stacks: Vec<StackOutcome>) -> OutcomeReport {
    OutcomeReport {
        change_set: "c42".to_owned(),
        action: ReportedAction::Apply,
        elapsed: Duration::from_secs(252),
        stacks,
    }
}

fn failure() -> StackFailure {
    StackFailure {
        stage: "applying".to_owned(),
        after: Duration::from_secs(3),
        lines: Vec::new(),
        diagnostics: vec![DiagnosticView {
            summary: "subnet is in use".to_owned(),
            address: Some("azurerm_subnet.nodes".to_owned()),
            source: Some(DiagnosticSource {
                file: "infra/azure/network/main.tf".to_owned(),
                line: 12,
                code: None,
            }),
            ..DiagnosticView::default()
        }],
        kept: Some(SavedState {
            serial: 18,
            changed: 2,
            begun: 0,
        }),
        made_by: None,
    }
}

fn skipped_because_of(by: &str, through: &[&str]) -> StackResult {
    StackResult::UpstreamFailed {
        by: by.to_owned(),
        through: through.iter().map(|&stack| stack.to_owned()).collect(),
    }
}

#[test]
fn all_went_well() {
    let set = outcome(vec![
        stack("network", StackResult::Changed),
        stack("k8s-prod", StackResult::Changed),
        stack("k8s-dev", StackResult::Unchanged),
        stack("dns", StackResult::Untouched),
    ]);
    assert_eq!(
        render(&set, ViewOptions::plain(80)),
        "Done: 2 stacks applied, 1 unchanged, 1 untouched in 4 m 12 s.\n",
    );
}

#[test]
fn nothing_had_to_be_done() {
    let set = outcome(vec![
        stack("network", StackResult::Unchanged),
        stack("dns", StackResult::Unchanged),
    ]);
    assert_eq!(
        render(&set, ViewOptions::plain(80)),
        "Done: 2 stacks unchanged in 4 m 12 s.\n"
    );
    assert_eq!(
        render(&outcome(Vec::new()), ViewOptions::plain(80)),
        "Done: there was nothing to do.\n"
    );
}

fn one_failed() -> OutcomeReport {
    outcome(vec![
        stack("network", StackResult::Failed(failure())),
        stack("k8s-prod", skipped_because_of("network", &[])),
        stack("dns", skipped_because_of("network", &["k8s-prod"])),
        stack("k8s-dev", StackResult::Unchanged),
    ])
}

#[test]
fn a_stack_fails() {
    insta::assert_snapshot!(render(&one_failed(), ViewOptions::plain(100)), @"
    ✗ network    failed while applying, after 3 s
        Error: subnet is in use
          with azurerm_subnet.nodes, on infra/azure/network/main.tf line 12
        state kept: serial 18 (2 resources changed before the failure)
      k8s-prod   skipped: `network` did not succeed
      dns        skipped: `network` did not succeed (through `k8s-prod`)

    error: change set c42 stopped: 1 failed, 2 skipped, 1 unchanged
    hint: fix the cause, then `terrane apply --resume c42` runs what is left
    ");
}

/// Who goes on at once would have it made a second time.
#[test]
fn a_stack_fails_whose_engine_made_what_no_state_knows() {
    let lost = StackFailure {
        made_by: Some("r44".to_owned()),
        ..failure()
    };
    let set = outcome(vec![stack("network", StackResult::Failed(lost))]);
    insta::assert_snapshot!(render(&set, ViewOptions::plain(100)), @"
    ✗ network   failed while applying, after 3 s
        Error: subnet is in use
          with azurerm_subnet.nodes, on infra/azure/network/main.tf line 12
        state kept: serial 18 (2 resources changed before the failure)

    error: change set c42 stopped: 1 failed
    hint: fix the cause and import what `terrane run imports r44` names, then
          `terrane apply --resume c42` runs what is left
    ");
}

#[test]
fn a_plan_that_somebody_stopped_is_made_afresh_and_never_resumed() {
    let stopped = StackFailure {
        stage: "planning".to_owned(),
        kept: None,
        diagnostics: Vec::new(),
        ..failure()
    };
    let set = OutcomeReport {
        action: ReportedAction::Plan,
        ..outcome(vec![stack("network", StackResult::Interrupted(stopped))])
    };
    insta::assert_snapshot!(render(&set, ViewOptions::plain(100)), @"
    ✗ network   interrupted while planning, after 3 s

    error: change set c42 stopped: 1 interrupted
    hint: `terrane plan` plans again
    ");
}

#[test]
fn a_stack_fails_in_colour() {
    let look = ViewOptions {
        color: true,
        ..ViewOptions::plain(100)
    };
    insta::assert_snapshot!(tagged(&render(&one_failed(), look)), @"
    <bold red>✗</> network    failed while applying, after 3 s
        <bold red>Error:</> <bold>subnet is in use</>
          with azurerm_subnet.nodes, on infra/azure/network/main.tf line 12
        state kept: serial 18 (2 resources changed before the failure)
      k8s-prod   skipped: `network` did not succeed
      dns        skipped: `network` did not succeed (through `k8s-prod`)

    <bold red>error:</> change set c42 stopped: 1 failed, 2 skipped, 1 unchanged
    <bold cyan>hint:</> fix the cause, then `terrane apply --resume c42` runs what is left
    ");
}

#[test]
fn interrupted_by_a_person() {
    let kept = Some(SavedState {
        serial: 19,
        changed: 0,
        begun: 1,
    });
    let interrupted = StackFailure {
        diagnostics: Vec::new(),
        kept,
        ..failure()
    };
    let mut set = outcome(vec![
        stack("network", StackResult::Changed),
        stack("k8s-prod", StackResult::Interrupted(interrupted)),
        stack("dns", skipped_because_of("k8s-prod", &[])),
    ]);
    set.action = ReportedAction::Destroy;
    insta::assert_snapshot!(render(&set, ViewOptions::ascii(100)), @"
    x k8s-prod   interrupted while applying, after 3 s
        state kept: serial 19 (1 resource begun, none finished before the interruption)
      dns        skipped: `k8s-prod` did not succeed

    error: change set c42 stopped: 1 interrupted, 1 skipped, 1 destroyed
    hint: the same command again destroys what is left
    ");
}

#[test]
fn a_runner_was_lost() {
    let lost = StackFailure {
        diagnostics: Vec::new(),
        lines: vec![
            "the machine stopped; nothing newer than serial 18 was written here".to_owned(),
        ],
        ..failure()
    };
    let set = outcome(vec![stack("dns", StackResult::Unknown(lost))]);
    insta::assert_snapshot!(render(&set, ViewOptions::plain(100)), @"
    ? dns   unknown: lost while applying, after 3 s
        the machine stopped; nothing newer than serial 18 was written here
        state kept: serial 18 (2 resources changed before it was lost)

    error: change set c42 stopped: 1 unknown
    hint: `terrane plan dns` shows what is left to do in `dns`
    ");
}

#[test]
fn what_was_applied_before_is_not_counted_again() {
    let set = outcome(vec![
        stack("network", StackResult::Before),
        stack("dns", StackResult::Before),
        stack("k8s-prod", StackResult::Changed),
    ]);
    insta::assert_snapshot!(render(&set, ViewOptions::plain(100)), @"Done: 1 stack applied, 2 applied before in 4 m 12 s.");
}
