//! Which approvals count, and which are missing.

use jiff::SignedDuration;

use super::*;
use crate::plan::PlanCounts;
use crate::project::ApprovalBlock;
use crate::run::changeset::{Action, Request, Status, Trigger};
use crate::run::seal::Seal;
use crate::run::{PlanRecord, RunEvent, advance};

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn at(minutes: i64) -> Timestamp {
    START + SignedDuration::from_mins(minutes)
}

/// A change set requested by `ada`. The plans of its stacks were made in minute 10.
fn set(rule: ApprovalRule) -> (ChangeSet, Vec<Run>) {
    let stacks: Vec<StackName> = ["a", "b"].map(|name| name.parse().unwrap()).to_vec();
    let request = Request {
        policy_override: None,
        project: "p".to_owned(),
        machine: String::new(),
        action: Action::Apply,
        stacks: stacks.clone(),
        auto_approve: false,
        parallelism: 1,
        lanes: Vec::new(),
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
        identity: None,
        exec: None,
        dependents: Vec::new(),
        origin: Trigger::Person,
        approvals: vec![ApprovalRequirement {
            by: "target `azure`".to_owned(),
            rule,
            stacks: stacks.iter().cloned().collect(),
        }],
    };
    let plan = PlanRecord {
        policy: policy::Verdict::default(),
        policy_since: BTreeMap::new(),
        difference: None,
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
        since: Some(at(10)),
        consumed: None,
        came_after: None,
    };
    let runs = (1..).zip(stacks).map(|(number, stack)| Run {
        id: RunId(number),
        change_set: ChangeSetId(1),
        stack,
        state: RunState::Planned {
            plan: plan.clone(),
            confirmed: false,
        },
        upstreams: Vec::new(),
        is_settled: false,
        stages: Vec::new(),
    });
    let set = ChangeSet {
        id: ChangeSetId(1),
        request,
        status: Status::AwaitingConfirm,
        created_at: START,
    };
    (set, runs.collect())
}

fn rule(count: u32) -> ApprovalRule {
    ApprovalRule {
        count,
        role: None,
        author: false,
        expires: None,
        scope: ApprovalScope::ChangeSet,
    }
}

fn yes(person: &str, minute: i64) -> Approval {
    Approval {
        change_set: ChangeSetId(1),
        run: None,
        person: Actor::named(person),
        role: None,
        verified: false,
        comment: None,
        at: at(minute),
    }
}

fn words(rule: ApprovalRule, approvals: &[Approval], minute: i64) -> String {
    let (set, runs) = set(rule);
    let missing = missing_approvals(&set, &runs, approvals, at(minute));
    let words: Vec<String> = missing.iter().map(MissingApproval::words).collect();
    words.join(" | ")
}

#[test]
fn so_many_different_people_other_than_who_asked() {
    assert_eq!(words(rule(2), &[], 11), "0 of 2 approvals; not the author");
    assert_eq!(
        words(rule(2), &[yes("eve", 11), yes("eve", 12)], 13),
        "1 of 2 approvals; not the author",
        "one person counts once"
    );
    assert_eq!(
        words(rule(2), &[yes("eve", 11), yes("ada", 12)], 13),
        "1 of 2 approvals; not the author; `ada` asked for it"
    );
    assert_eq!(words(rule(2), &[yes("eve", 11), yes("bob", 12)], 13), "");
    let with_author = ApprovalRule {
        author: true,
        ..rule(1)
    };
    assert_eq!(words(with_author, &[yes("ada", 11)], 12), "");
}

#[test]
fn a_role_a_term_and_the_plan_that_was_seen() {
    let role = ApprovalRule {
        role: Some("approver".to_owned()),
        ..rule(1)
    };
    assert_eq!(
        words(role.clone(), &[yes("eve", 11)], 12),
        "0 of 1 approval; role `approver`, not the author; `eve` has another role"
    );
    let with_role = Approval {
        role: Some("approver".to_owned()),
        ..yes("eve", 11)
    };
    assert_eq!(words(role, &[with_role], 12), "");
    let short = ApprovalRule {
        expires: Some(Duration::from_mins(10)),
        ..rule(1)
    };
    assert_eq!(words(short.clone(), &[yes("eve", 11)], 20), "");
    assert_eq!(
        words(short, &[yes("eve", 11)], 21),
        "0 of 1 approval; not the author; `eve` said so too long ago"
    );
    assert_eq!(
        words(rule(1), &[yes("eve", 9)], 11),
        "0 of 1 approval; not the author; `eve` approved another plan"
    );
}

#[test]
fn a_stack_by_itself_is_approved_by_itself() {
    let own = ApprovalRule {
        scope: ApprovalScope::Stack,
        ..rule(1)
    };
    let for_a = Approval {
        run: Some(RunId(1)),
        ..yes("eve", 11)
    };
    let (set, runs) = set(own);
    let left = missing_approvals(&set, &runs, &[yes("eve", 11), for_a], at(12));
    assert_eq!(
        left.len(),
        1,
        "a yes for the change set is none for a stack"
    );
    assert_eq!(left[0].run, Some(RunId(2)));
    assert!(is_free(&left, &runs[0]));
    assert!(!is_free(&left, &runs[1]));
}

#[test]
fn a_stacks_block_inherits_from_its_targets() {
    let target = ApprovalBlock {
        count: Some(2),
        role: Some("approver".to_owned()),
        expires: Some(Duration::from_mins(1)),
        ..ApprovalBlock::default()
    };
    let stack = ApprovalBlock {
        scope: Some(ApprovalScope::Stack),
        count: Some(1),
        ..ApprovalBlock::default()
    };
    assert_eq!(ApprovalBlock::rule(None, None), None);
    assert_eq!(
        ApprovalBlock::rule(Some(&target), Some(&stack)),
        Some(ApprovalRule {
            count: 1,
            role: Some("approver".to_owned()),
            author: false,
            expires: Some(Duration::from_mins(1)),
            scope: ApprovalScope::Stack,
        })
    );
}

/// At every evaluation point it counts like an `approval` block, also just before the apply starts.
#[test]
fn what_a_policy_wants_counts_people_by_role_and_not_the_author() {
    let (set, mut runs) = set(rule(1));
    let mut run = runs.remove(0);
    if let RunState::Planned { plan, .. } = run.state {
        run.state = RunState::Applying {
            plan,
            since: at(12),
        };
    }
    let wanted = wanted(1, "late", Some("dba"));
    let dba = |person: &str, minute| Approval {
        role: Some("dba".to_owned()),
        ..yes(person, minute)
    };
    let lacks = |given: &[Approval]| {
        missing_policy_approvals(&set, &run, &wanted, given, at(13)).map(|missing| missing.given)
    };
    assert_eq!(lacks(&[dba("ada", 11), yes("alan", 11)]), Some(0));
    assert_eq!(lacks(&[dba("eve", 9)]), Some(0), "of another plan");
    assert_eq!(lacks(&[dba("eve", 11)]), None);
}

fn wanted(count: u32, message: &str, role: Option<&str>) -> policy::RequiredApproval {
    policy::RequiredApproval {
        remark: policy::Remark {
            policy: "p".to_owned(),
            rule: "require_approval".to_owned(),
            message: message.to_owned(),
            resource: None,
        },
        count,
        role: role.map(str::to_owned),
    }
}

/// A policy may require more approvals for the confirmation than for the plan. Those are missing until the next
/// evaluation replaces them.
#[test]
fn what_is_wanted_of_a_yes_is_owed_until_it_is_asked_about_again() {
    let (mut set, mut runs) = set(rule(1));
    set.request.approvals.clear();
    runs.truncate(1);
    let RunState::Planned { plan, .. } = &mut runs[0].state else {
        panic!("a plan lies ready");
    };
    plan.policy.approvals = vec![wanted(1, "early", None)];
    let mut asked = |count: Option<u32>| {
        let said = policy::Verdict {
            approvals: count
                .map(|it| wanted(it, "late", None))
                .into_iter()
                .collect(),
            ..policy::Verdict::default()
        };
        let event = RunEvent::PolicyAsked {
            at: policy::PolicyPhase::Approval,
            by: None,
            said,
        };
        runs[0].state = advance(&runs[0].state, event, at(12)).unwrap();
        let missing = missing_approvals(&set, &runs, &[yes("eve", 11)], at(13));
        missing
            .iter()
            .map(MissingApproval::words)
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(Some(2)), ["1 of 2 approvals; not the author"]);
    assert_eq!(asked(None), Vec::<String>::new());
}

/// A rule for `b` alone also blocks `a` until something has started. After that it only concerns `b`.
#[test]
fn what_is_asked_once_for_everything_is_asked_before_anything_begins() {
    let (mut set, mut runs) = set(rule(1));
    set.request.approvals[0].stacks = BTreeSet::from([runs[1].stack.clone()]);
    let free = |set: &ChangeSet, runs: &[Run], approvals: &[Approval]| {
        let missing = missing_approvals(set, runs, approvals, at(20));
        let free = runs.iter().filter(|run| is_free(&missing, run));
        free.map(|run| run.stack.to_string()).collect::<String>()
    };
    assert_eq!(free(&set, &runs, &[]), "");
    assert_eq!(free(&set, &runs, &[yes("bob", 15)]), "ab");
    // Also while only a preview is possible.
    let planned = runs[1].state.clone();
    runs[1].state = RunState::Deferred {
        on: Vec::new(),
        preview: Preview::default(),
    };
    assert_eq!(free(&set, &runs, &[]), "");
    assert_eq!(free(&set, &runs, &[yes("bob", 15)]), "ab");
    let applied = Outcome::Applied {
        counts: PlanCounts::default(),
        serial: Some(1),
        outputs: BTreeSet::new(),
        warnings: Vec::new(),
    };
    let finished = RunState::Finished {
        outcome: applied,
        at: at(16),
        published: None,
    };
    runs[0].state = finished;
    runs[1].state = planned;
    assert_eq!(free(&set, &runs, &[]), "a");
    set.request.approvals[0].rule.scope = ApprovalScope::Stack;
    assert_eq!(free(&set, &runs, &[]), "a");
}

/// With a scope of its own, the other stacks go first.
#[test]
fn what_is_asked_for_one_stack_keeps_no_other_back() {
    let (mut set, runs) = set(ApprovalRule {
        scope: ApprovalScope::Stack,
        ..rule(1)
    });
    set.request.approvals[0].stacks = BTreeSet::from([runs[1].stack.clone()]);
    let missing = missing_approvals(&set, &runs, &[], at(20));
    assert!(is_free(&missing, &runs[0]) && !is_free(&missing, &runs[1]));
}

/// A neighbour with a new plan needs an approval of its own and invalidates no other.
#[test]
fn what_is_new_in_one_plan_is_asked_of_that_one() {
    let rule = ApprovalBlock::rule(Some(&ApprovalBlock::default()), None).unwrap();
    let (set, mut runs) = set(rule);
    let RunState::Planned { plan, .. } = &mut runs[1].state else {
        panic!("a plan")
    };
    plan.since = Some(at(30));
    let word = Approval {
        change_set: set.id,
        run: None,
        person: Actor::named("eve"),
        role: None,
        verified: false,
        comment: None,
        at: at(20),
    };
    let missing = missing_approvals(&set, &runs, &[word], at(40));
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].stacks, [runs[1].stack.clone()]);
}

/// An approval that names a plan covers no other plan, although earlier approvals cover both.
#[test]
fn another_plan_has_another_mark() {
    let rule = ApprovalBlock::rule(Some(&ApprovalBlock::default()), None).unwrap();
    let (_, runs) = set(rule);
    let mark = |runs: &[Run]| shown(runs, None).unwrap().mark;
    let changed = |change: &dyn Fn(&mut PlanRecord)| {
        let mut runs = runs.clone();
        let RunState::Planned { plan, .. } = &mut runs[1].state else {
            panic!("a plan")
        };
        change(plan);
        runs
    };
    assert_eq!(mark(&runs), mark(&changed(&|_| {})));
    assert_ne!(mark(&runs), mark(&changed(&|plan| plan.since = None)));
    let other = |plan: &mut PlanRecord| plan.seal.inputs = "other".to_owned();
    assert_ne!(mark(&runs), mark(&changed(&other)));
    let other = |plan: &mut PlanRecord| plan.seal.source = "other".to_owned();
    assert_ne!(mark(&runs), mark(&changed(&other)));
}

/// At confirmation, the project may require more than was fulfilled, in any part of the rule.
#[test]
fn a_rule_that_became_stricter_asks_for_more() {
    let block = |text: &str| match text {
        "count" => ApprovalBlock {
            count: Some(2),
            ..ApprovalBlock::default()
        },
        "role" => ApprovalBlock {
            role: Some("dba".to_owned()),
            ..ApprovalBlock::default()
        },
        "scope" => ApprovalBlock {
            scope: Some(ApprovalScope::Stack),
            ..ApprovalBlock::default()
        },
        "expires" => ApprovalBlock {
            expires: Some(Duration::from_secs(1)),
            ..ApprovalBlock::default()
        },
        _ => ApprovalBlock::default(),
    };
    let rule = |text: &str| ApprovalBlock::rule(Some(&block(text)), None).unwrap();
    let plain = rule("");
    for text in ["count", "role", "scope", "expires"] {
        assert!(!plain.asks_as_much_as(&rule(text)), "{text}");
        assert!(rule(text).asks_as_much_as(&plain), "{text}");
        assert!(rule(text).asks_as_much_as(&rule(text)), "{text}");
    }
}

/// For a new plan of run 1, only approvals for that run and since that plan count.
#[test]
fn a_new_plan_lacks_approvals_until_they_are_given_for_it() {
    let own = ApprovalRule {
        scope: ApprovalScope::Stack,
        ..rule(1)
    };
    let for_run = |run| Approval {
        run: Some(RunId(run)),
        ..yes("eve", 11)
    };
    let (a, other): (StackName, StackName) = ("a".parse().unwrap(), "z".parse().unwrap());
    for (rule, stack, since, approvals, expected) in [
        (rule(1), &a, Some(at(10)), vec![], true),
        (rule(1), &a, Some(at(10)), vec![yes("eve", 11)], false),
        (rule(1), &a, Some(at(12)), vec![yes("eve", 11)], true),
        (rule(1), &a, None, vec![yes("eve", 1)], false),
        (rule(2), &a, Some(at(10)), vec![yes("eve", 11)], true),
        (rule(1), &a, Some(at(10)), vec![yes("ada", 11)], true),
        (rule(1), &other, Some(at(10)), vec![], false),
        (own.clone(), &a, Some(at(10)), vec![yes("eve", 11)], true),
        (own.clone(), &a, Some(at(10)), vec![for_run(1)], false),
        (own, &a, Some(at(10)), vec![for_run(2)], true),
    ] {
        let (set, _) = set(rule);
        let lacks = lacks_rule_approvals(&set, (RunId(1), stack), since, &approvals, at(13));
        assert_eq!(lacks, expected, "{stack} {since:?} {approvals:?}");
    }
}
