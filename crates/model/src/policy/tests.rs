//! The document that policies read, and what their answers mean.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::base::masking::Mask;
use crate::plan::PlanCounts;

fn plan() -> Value {
    json!({
        "format_version": "1.2",
        "terraform_version": "1.11.14",
        "variables": { "password": { "value": "hunter2-hunter2" }, "size": { "value": 3 } },
        "planned_values": {
            "outputs": { "token": { "sensitive": true, "value": "hunter2-hunter2" } },
            "root_module": { "resources": [{
                "address": "terraform_data.db",
                "values": { "input": { "password": "hunter2-hunter2", "size": 3 } },
                "sensitive_values": { "input": { "password": true } },
            }] },
        },
        "resource_changes": [
            {
                "address": "terraform_data.db", "mode": "managed", "type": "terraform_data", "name": "db",
                "change": {
                    "actions": ["delete", "create"],
                    "before": { "id": "1", "input": { "password": "hunter1-hunter1" } },
                    "after": { "input": { "password": "hunter2-hunter2", "size": 3 } },
                    "after_unknown": { "id": true },
                    "before_sensitive": { "input": { "password": true } },
                    "after_sensitive": { "input": { "password": true } },
                },
            },
            {
                "address": "terraform_data.db[\"copy\"]", "mode": "managed", "type": "terraform_data",
                "name": "db", "change": { "actions": ["create"], "before": null,
                    "after": { "note": "of hunter2-hunter2" } },
            },
        ],
        "output_changes": { "token": { "actions": ["update"], "before": "old-token-1", "after": "hunter2-hunter2",
            "before_sensitive": true, "after_sensitive": true } },
        "configuration": { "root_module": { "variables": { "password": { "sensitive": true,
            "default": "hunter0-hunter0" }, "size": {} } } },
    })
}

fn document() -> PolicyInput {
    PolicyInput {
        plan: redact(plan().to_string().as_bytes(), &Mask::default()).unwrap(),
        run: RunFacts {
            id: "r44".to_owned(),
            change_set: "c42".to_owned(),
            action: "apply".to_owned(),
            phase: PolicyPhase::Approval,
            destroy: false,
            auto_approve: false,
            preview: false,
        },
        actor: ActorFacts {
            name: "ada".to_owned(),
            kind: "person".to_owned(),
            verified: false,
            claims: BTreeMap::new(),
        },
        approvals: vec![ApprovalFacts {
            person: "grace".to_owned(),
            role: Some("approver".to_owned()),
            verified: false,
            verdict: "approve".to_owned(),
            comment: Some("the copy is enough".to_owned()),
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
        }],
        stack: StackFacts {
            name: "database".to_owned(),
            path: "infra/database".to_owned(),
            layer: "platforms".to_owned(),
            target: "azure".to_owned(),
            labels: BTreeSet::from(["stateful".to_owned()]),
            state: "database".to_owned(),
            protected: true,
        },
        upstreams: vec![UpstreamFacts {
            stack: "network".to_owned(),
            status: "applied".to_owned(),
            outputs: BTreeSet::from(["subnet_id".to_owned()]),
            counts: PlanCounts {
                update: 1,
                ..PlanCounts::default()
            },
        }],
        source: SourceFacts {
            commit: Some("3f9c1e2".to_owned()),
            subject: Some("database: a larger disk".to_owned()),
            dirty: false,
            digest: "9c1d07e4".to_owned(),
        },
        time: "2026-01-02T03:05:00Z"
            .parse::<jiff::Timestamp>()
            .unwrap()
            .into(),
    }
}

/// The file is part of the documentation, on which policies rely.
#[test]
fn the_document_is_as_documented() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/policy-input.json"
    );
    let documented: Value =
        serde_json::from_str(include_str!("../../../../docs/reference/policy-input.json")).unwrap();
    let now = document().for_dialect(Dialect::Terrane);
    assert_eq!(
        now,
        documented,
        "{path} should be:\n{}",
        serde_json::to_string_pretty(&now).unwrap()
    );
}

#[test]
fn nothing_sensitive_is_in_it() {
    for dialect in [Dialect::Terrane, Dialect::Spacelift, Dialect::Conftest] {
        let text = document().for_dialect(dialect).to_string();
        assert!(!text.contains("hunter"), "{text}");
        assert!(!text.contains("old-token"), "{text}");
    }
    let mask = Mask::new(&[crate::base::secret::Secret::new("1.11.14")]);
    let plan = redact(plan().to_string().as_bytes(), &mask).unwrap();
    assert_eq!(plan["terraform_version"], "(secret)");
}

#[test]
fn foreign_dialects_find_what_they_look_for() {
    let main = document().for_dialect(Dialect::Conftest);
    assert_eq!(main["resource_changes"][0]["address"], "terraform_data.db");
    assert_eq!(main["terrane"]["stack"]["name"], "database");
    assert!(main["terrane"].get("plan").is_none());
    let spacelift = document().for_dialect(Dialect::Spacelift);
    assert_eq!(
        spacelift["terraform"]["resource_changes"][0]["type"],
        "terraform_data"
    );
    assert_eq!(
        spacelift["spacelift"]["run"]["changes"][0]["action"],
        "destroy-Before-create-replaced"
    );
    assert_eq!(
        spacelift["reviews"]["current"]["approvals"][0]["author"],
        "grace"
    );
}

#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "each case writes its value in place"
)]
fn check(rule: RuleKind, value: Value, expected: &str) {
    let mentions = AddressFinder::of(&plan());
    let said = match rule.answers(Some(&value), &mentions, 1) {
        Ok((answers, left_off)) => {
            let lines = answers.iter().map(|it| {
                let about = it.resource.as_deref().unwrap_or("-");
                let role = it.role.as_deref().unwrap_or("-");
                format!("{} [{about}] {} {role}", it.message, it.count)
            });
            let mut lines: Vec<String> = lines.collect();
            if left_off > 0 {
                lines.push(format!("{left_off} more"));
            }
            lines.join("; ")
        }
        Err(err) => err.to_string(),
    };
    assert_eq!(said, expected);
}

#[test]
fn values_of_rules_are_read_in_every_known_way() {
    check(RuleKind::Deny, json!(false), "");
    check(RuleKind::Deny, json!([]), "");
    check(RuleKind::Deny, json!(true), "it gives no reason [-] 1 -");
    check(RuleKind::Deny, json!("no"), "no [-] 1 -");
    check(RuleKind::Warn, json!(["a", "b"]), "a [-] 1 -; b [-] 1 -");
    check(
        RuleKind::Deny,
        json!(["terraform_data.db[\"copy\"] is new"]),
        "terraform_data.db[\"copy\"] is new [terraform_data.db[\"copy\"]] 1 -",
    );
    check(
        RuleKind::Violation,
        json!([{ "msg": "no\n  really", "details": {}, "resource": "x.y" }]),
        "no really [x.y] 1 -",
    );
    check(RuleKind::Deny, json!({ "a": true }), "a [-] 1 -");
    check(
        RuleKind::RequireApproval,
        json!([{ "msg": "look", "count": 2, "role": "dba" }]),
        "look [-] 2 dba",
    );
    check(RuleKind::Approve, json!(true), "");
    check(
        RuleKind::Approve,
        json!(false),
        "it is not approved yet [-] 2 -",
    );
}

#[test]
fn what_is_no_answer_is_an_error() {
    check(
        RuleKind::Deny,
        json!([1]),
        "rule `deny` returns a number, not messages",
    );
    check(
        RuleKind::Deny,
        json!([{ "why": "no" }]),
        "rule `deny` returns an object without `msg`",
    );
    check(
        RuleKind::RequireApproval,
        json!([{ "msg": "look", "count": 0 }]),
        "rule `require_approval` requires `0` approvals: `count` must be a whole number from 1 to 100",
    );
    check(
        RuleKind::RequireApproval,
        json!([{ "msg": "look", "role": ["dba", "sre"] }]),
        "rule `require_approval` requires approvals by `[\"dba\",\"sre\"]`: `role` must be the name of one role",
    );
    check(
        RuleKind::RequireApproval,
        json!([{ "msg": "look", "cuont": 2 }]),
        "rule `require_approval` returns the unknown field `cuont`: the fields are `msg`, `resource`, `count` and `role`",
    );
}

#[test]
fn answers_are_bounded() {
    let long = "x".repeat(10_000);
    let many: Vec<String> = (0..5000).map(|n| format!("{n} {long}")).collect();
    let mentions = AddressFinder::of(&Value::Null);
    let (answers, left_off) = RuleKind::Deny
        .answers(Some(&json!(many)), &mentions, 0)
        .unwrap();
    assert_eq!((answers.len(), left_off), (100, 4900));
    assert!(answers.iter().all(|it| it.message.chars().count() == 401));
    let mut verdict = Verdict::default();
    for name in ["a", "b", "c"] {
        verdict.add(name, true, answers.clone(), 0);
    }
    assert_eq!((verdict.denials.len(), verdict.left_off), (100, 200));
}

fn answer(rule: RuleKind, count: u32, role: Option<&str>) -> RuleResult {
    RuleResult {
        rule,
        message: "because".to_owned(),
        resource: Some("x.y".to_owned()),
        count,
        role: role.map(str::to_owned),
    }
}

#[test]
fn what_is_not_enforced_only_warns() {
    let said = vec![
        answer(RuleKind::Deny, 1, None),
        answer(RuleKind::RequireApproval, 2, None),
        answer(RuleKind::Warn, 1, None),
    ];
    let mut verdict = Verdict::default();
    verdict.add("strict", true, said.clone(), 0);
    verdict.add("trial", false, said, 0);
    let words =
        |remarks: &[Remark]| -> Vec<String> { remarks.iter().map(ToString::to_string).collect() };
    assert_eq!(words(&verdict.denials), ["`strict`: because (x.y)"]);
    assert_eq!(
        words(&verdict.warnings),
        [
            "`strict`: because (x.y)",
            "`trial`: because (not enforced) (x.y)",
            "`trial`, rule `require_approval`: because (not enforced) (x.y)",
            "`trial`: because (x.y)",
        ]
    );
    assert_eq!(verdict.approvals.len(), 1);
}

#[test]
fn what_is_wanted_is_said_in_words() {
    let mut verdict = Verdict::default();
    let wanted = answer(RuleKind::RequireApproval, 2, Some("dba"));
    verdict.add("p", true, vec![wanted], 0);
    verdict.want(verdict.approvals[0].clone());
    assert_eq!(verdict.approvals.len(), 1);
    assert_eq!(verdict.approvals[0].wants(), "2 approvals by role `dba`");
}
