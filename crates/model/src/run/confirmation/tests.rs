//! The truth table of the decision, its invariant, and how a run's events are read.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::plan::PlanCounts;
use crate::policy::{Remark, Verdict};
use crate::run::RunProblem;
use crate::run::seal::Seal;
use crate::run::{SkipReason, Stage};

/// Facts from words. Every fact that is not named is false.
fn facts(words: &str) -> ConfirmationFacts {
    let has = |word: &str| words.split_whitespace().any(|it| it == word);
    ConfirmationFacts {
        is_review: has("review"),
        is_empty: has("empty"),
        auto_approve: has("--auto-approve"),
        applies_by_itself: has("auto-stack"),
        is_bundled: has("bundle"),
        ended_unknown: has("unknown"),
        has_own_approval: has("own"),
        coverage: match (has("equal"), has("different")) {
            (true, _) => Coverage::Equal,
            (false, true) => Coverage::Different { new: Vec::new() },
            (false, false) => Coverage::NothingReviewed,
        },
        was_confirmed: has("confirmed"),
        lacks_approvals: has("lacks"),
        lacks_policy_approvals: has("lacks-policy"),
    }
}

const APPLY: Confirmation = Confirmation::ApplyNow;
const APPROVALS: Confirmation = Confirmation::NeedsApprovals;
const fn ask(reason: ConfirmationReason) -> Confirmation {
    Confirmation::NeedsConfirmation(reason)
}
const NOT_CONFIRMED: Confirmation = ask(ConfirmationReason::NotConfirmed);
const DIFFERENT: Confirmation = ask(ConfirmationReason::Different);
const OWN: Confirmation = ask(ConfirmationReason::OwnApproval);
const POLICY: Confirmation = ask(ConfirmationReason::PolicyApproval);
const UNKNOWN: Confirmation = ask(ConfirmationReason::EndedUnknown);
const REVIEW: Confirmation = ask(ConfirmationReason::Review);

#[track_caller]
fn check(rows: &[(&str, Confirmation)]) {
    for (words, expected) in rows {
        assert_eq!(decide(&facts(words)), *expected, "{words}");
    }
}

#[test]
fn a_first_plan_asks_unless_it_was_approved_beforehand() {
    check(&[
        ("", NOT_CONFIRMED),
        ("lacks", NOT_CONFIRMED),
        ("lacks-policy", NOT_CONFIRMED),
        ("lacks lacks-policy", NOT_CONFIRMED),
        ("own", OWN),
        ("own lacks", OWN),
        ("--auto-approve", APPLY),
        ("--auto-approve lacks", APPROVALS),
        ("--auto-approve lacks-policy", APPROVALS),
        ("--auto-approve lacks lacks-policy", APPROVALS),
        ("--auto-approve own", APPLY),
        ("--auto-approve own lacks", APPROVALS),
        ("auto-stack", APPLY),
        ("auto-stack lacks", APPROVALS),
        ("auto-stack lacks-policy", APPROVALS),
        ("auto-stack own", APPLY),
        ("auto-stack own lacks", APPROVALS),
        ("auto-stack --auto-approve", APPLY),
        ("auto-stack --auto-approve lacks", APPROVALS),
    ]);
}

#[test]
fn a_confirmation_covers_an_equal_plan_and_no_other() {
    check(&[
        ("confirmed equal", APPLY),
        ("confirmed equal lacks", APPROVALS),
        ("confirmed equal lacks-policy", POLICY),
        ("confirmed equal lacks lacks-policy", POLICY),
        ("confirmed equal own", OWN),
        ("confirmed equal own lacks", OWN),
        ("confirmed different", DIFFERENT),
        ("confirmed different lacks", DIFFERENT),
        ("confirmed different own", DIFFERENT),
        // It was confirmed with its change set, but no preview was possible.
        ("confirmed", NOT_CONFIRMED),
        ("confirmed lacks", NOT_CONFIRMED),
        ("confirmed own", OWN),
        // It was approved but not confirmed.
        ("equal", NOT_CONFIRMED),
        ("equal lacks", NOT_CONFIRMED),
        ("equal lacks-policy", NOT_CONFIRMED),
        ("equal own", OWN),
        ("different", DIFFERENT),
        ("different lacks", DIFFERENT),
    ]);
}

#[test]
fn an_approval_beforehand_is_for_the_outcome() {
    check(&[
        ("--auto-approve equal", APPLY),
        ("--auto-approve different", APPLY),
        ("--auto-approve different lacks", APPROVALS),
        ("--auto-approve different lacks-policy", APPROVALS),
        ("--auto-approve confirmed equal", APPLY),
        ("--auto-approve confirmed equal lacks-policy", APPROVALS),
        ("--auto-approve confirmed different", APPLY),
        ("auto-stack different", APPLY),
        ("auto-stack different lacks", APPROVALS),
        ("auto-stack confirmed equal lacks-policy", APPROVALS),
    ]);
}

#[test]
fn a_bundle_is_approved_beforehand_only_as_it_was_reviewed() {
    check(&[
        ("bundle", NOT_CONFIRMED),
        ("bundle equal", NOT_CONFIRMED),
        ("bundle confirmed equal", APPLY),
        ("bundle confirmed different", DIFFERENT),
        ("bundle --auto-approve equal", APPLY),
        ("bundle --auto-approve equal lacks", APPROVALS),
        ("bundle --auto-approve equal lacks-policy", APPROVALS),
        ("bundle --auto-approve different", DIFFERENT),
        ("bundle --auto-approve different lacks", DIFFERENT),
        // The bundle contains no plan of it.
        ("bundle --auto-approve", NOT_CONFIRMED),
        ("bundle --auto-approve own", OWN),
        ("bundle --auto-approve equal own", APPLY),
        ("bundle auto-stack", APPLY),
        ("bundle auto-stack different", APPLY),
        ("bundle auto-stack different lacks", APPROVALS),
    ]);
}

#[test]
fn after_an_unknown_end_a_person_is_always_asked() {
    check(&[
        ("unknown", UNKNOWN),
        ("unknown --auto-approve", UNKNOWN),
        ("unknown auto-stack", UNKNOWN),
        ("unknown confirmed equal", UNKNOWN),
        ("unknown --auto-approve auto-stack confirmed equal", UNKNOWN),
        ("unknown bundle --auto-approve equal", UNKNOWN),
        ("unknown lacks-policy --auto-approve", UNKNOWN),
        ("unknown own", UNKNOWN),
        ("unknown different", UNKNOWN),
        ("unknown empty", APPLY),
    ]);
}

#[test]
fn a_review_applies_nothing_and_an_empty_plan_asks_nobody() {
    check(&[
        ("review", REVIEW),
        ("review empty", REVIEW),
        ("review --auto-approve", REVIEW),
        ("review auto-stack", REVIEW),
        ("review unknown", REVIEW),
        ("review confirmed equal", REVIEW),
        ("empty", APPLY),
        ("empty lacks", APPLY),
        ("empty different", APPLY),
        ("empty bundle", APPLY),
    ]);
}

fn any_facts() -> impl Strategy<Value = ConfirmationFacts> {
    let coverage = prop_oneof![
        Just(Coverage::NothingReviewed),
        Just(Coverage::Equal),
        Just(Coverage::Different { new: Vec::new() }),
    ];
    (any::<[bool; 10]>(), coverage).prop_map(|(is, coverage)| ConfirmationFacts {
        is_review: is[0],
        is_empty: is[1],
        auto_approve: is[2],
        applies_by_itself: is[3],
        is_bundled: is[4],
        ended_unknown: is[5],
        has_own_approval: is[6],
        coverage,
        was_confirmed: is[7],
        lacks_approvals: is[8],
        lacks_policy_approvals: is[9],
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_is_applied_without_asking_that_nobody_agreed_to(facts in any_facts()) {
        let decided = decide(&facts);
        if decided == Confirmation::ApplyNow {
            let confirmed = facts.was_confirmed && facts.coverage == Coverage::Equal;
            let beforehand = facts.auto_approve || facts.applies_by_itself;
            let lacks = facts.lacks_approvals || facts.lacks_policy_approvals;
            prop_assert!(facts.is_empty || (confirmed || beforehand) && !lacks);
            prop_assert!(facts.is_empty || !facts.ended_unknown);
            prop_assert!(!facts.is_review);
        }
        if facts.ended_unknown && !facts.is_empty {
            prop_assert!(!decided.is_confirmed());
        }
    }
}

const THEN: Timestamp = Timestamp::UNIX_EPOCH;

fn record(digest: &str) -> PlanRecord {
    PlanRecord {
        counts: PlanCounts::default(),
        destroys: false,
        outputs: BTreeSet::new(),
        seal: Box::new(Seal {
            source: String::new(),
            head: None,
            inputs: String::new(),
            each_input: BTreeMap::new(),
            engine: String::new(),
            lock_file: None,
        }),
        preview: false,
        policy: Verdict::default(),
        policy_since: BTreeMap::new(),
        since: Some(THEN),
        difference: Some(digest.to_owned()),
        consumed: None,
        came_after: None,
    }
}

fn planned(digest: &str, confirmed: bool, is_equal: Option<bool>) -> RunEvent {
    RunEvent::PlanFinished {
        plan: record(digest),
        confirmed,
        review: false,
        reason: None,
        is_equal,
        new: Vec::new(),
    }
}

fn previewed(preview: Preview) -> RunEvent {
    RunEvent::Previewed {
        on: Vec::new(),
        preview,
        review: false,
        new: Vec::new(),
    }
}

fn seen(digest: &str) -> RunEvent {
    let plan = Box::new(record(digest));
    previewed(Preview::Planned { plan })
}

fn applied() -> RunEvent {
    RunEvent::ApplyFinished {
        counts: PlanCounts::default(),
        serial: None,
        lineage: None,
        then: None,
    }
}

fn lost() -> RunEvent {
    RunEvent::RunnerLost {
        kept: None,
        left: None,
    }
}

fn failed() -> RunEvent {
    RunEvent::Failed {
        problem: RunProblem::new(Stage::Applying, "no"),
    }
}

const REOPENED: RunEvent = RunEvent::Reopened { moved: false };

/// The last plan shown, whether it was confirmed, and whether an apply ended `unknown`.
#[track_caller]
fn history(
    events: &[RunEvent],
    last: Option<&str>,
    confirmed: ConfirmationScope,
    ended_unknown: bool,
) {
    let history = ReviewHistory::of(events);
    let digest = history.last.and_then(|last| last.digest);
    let found = (digest.as_deref(), history.confirmed, history.ended_unknown);
    assert_eq!(found, (last, confirmed, ended_unknown), "{events:?}");
}

#[test]
fn the_last_plan_that_people_saw_counts() {
    use ConfirmationScope::{No, WithChangeSet, Yes};
    use RunEvent::{ApplyStarted, Confirmed as Said};
    history(&[], None, No, false);
    history(&[planned("a", false, None)], Some("a"), No, false);
    history(&[planned("a", false, None), Said], Some("a"), Yes, false);
    history(&[seen("a")], Some("a"), WithChangeSet, false);
    let why = "no".to_owned();
    let unseen = previewed(Preview::Impossible { why });
    history(&[seen("a"), unseen], None, No, false);
    let again = |confirmed, is_equal| {
        let voided = RunEvent::PlanVoided { why: String::new() };
        let first = [planned("a", false, None), Said, ApplyStarted, voided];
        [&first[..], &[planned("b", confirmed, is_equal)]].concat()
    };
    history(&again(true, Some(true)), Some("b"), Yes, false);
    history(&again(false, Some(false)), Some("b"), No, false);
    // `--auto-approve` covers a different plan; it was not confirmed.
    history(&again(true, Some(false)), Some("b"), No, false);
    history(
        &[planned("a", true, None), ApplyStarted, applied()],
        None,
        No,
        false,
    );
}

#[test]
fn a_resume_takes_the_confirmation_back_and_keeps_the_approvals() {
    use RunEvent::{ApplyStarted, Confirmed as Said};
    let confirmed = [planned("a", false, None), Said, ApplyStarted, failed()];
    let resumed = [&confirmed[..], &[REOPENED]].concat();
    history(&resumed, Some("a"), ConfirmationScope::No, false);
    let because = SkipReason::NotConfirmed;
    let discarded = [seen("a"), RunEvent::Skipped { because }, REOPENED];
    history(&discarded, Some("a"), ConfirmationScope::No, false);
}

#[test]
fn an_unknown_end_lasts_until_somebody_confirms_a_plan_after_it() {
    use RunEvent::{ApplyStarted, Confirmed as Said};
    let unknown = [
        planned("a", true, None),
        Said,
        ApplyStarted,
        lost(),
        REOPENED,
    ];
    history(&unknown, None, ConfirmationScope::No, true);
    let then = |more: &[RunEvent]| [&unknown[..], more].concat();
    let plan = planned("b", false, None);
    history(
        &then(std::slice::from_ref(&plan)),
        Some("b"),
        ConfirmationScope::No,
        true,
    );
    let failed_again = then(&[plan.clone(), failed(), REOPENED]);
    history(&failed_again, Some("b"), ConfirmationScope::No, true);
    history(
        &then(&[plan.clone(), Said]),
        Some("b"),
        ConfirmationScope::Yes,
        false,
    );
    history(&then(&[lost()]), None, ConfirmationScope::No, true);
    let nothing = RunEvent::NothingToChange {
        consumed: None,
        came_after: None,
        serial: None,
        lineage: None,
        then: None,
    };
    history(&then(&[nothing]), None, ConfirmationScope::No, false);
    // A runner that is lost during planning, or after the apply, leaves no unknown result.
    history(
        &[RunEvent::PlanStarted, lost()],
        None,
        ConfirmationScope::No,
        false,
    );
    let after = [planned("a", true, None), ApplyStarted, applied(), lost()];
    history(&after, None, ConfirmationScope::No, false);
    // A policy evaluation before the apply does not end the apply.
    let asked = RunEvent::PolicyAsked {
        at: PolicyPhase::Approval,
        by: None,
        said: Verdict::default(),
    };
    let lost_later = [planned("a", true, None), ApplyStarted, asked, lost()];
    history(&lost_later, None, ConfirmationScope::No, true);
}

#[test]
fn approvals_that_policies_require_are_known_once_they_were_shown() {
    let requirement = |count| RequiredApproval {
        count,
        role: None,
        remark: Remark {
            policy: "owners".to_owned(),
            rule: "require_approval".to_owned(),
            message: "two look at it".to_owned(),
            resource: None,
        },
    };
    let asked = RunEvent::PolicyAsked {
        at: PolicyPhase::Approval,
        by: None,
        said: Verdict {
            approvals: vec![requirement(1)],
            ..Verdict::default()
        },
    };
    let history = ReviewHistory::of(&[planned("a", false, None), asked]);
    assert!(history.knew_of(&requirement(1)));
    assert!(!history.knew_of(&requirement(2)));
}
