//! Policies of each dialect, and their errors.

use std::time::Duration;

use model::policy::{
    ActorFacts, PolicyInput, PolicyPhase, PolicySource, RunFacts, SourceFacts, StackFacts,
};
use serde_json::json;

use super::*;

fn source(path: &str, text: &str) -> PolicySource {
    PolicySource {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn document() -> PolicyInput {
    PolicyInput {
        plan: json!({ "resource_changes": [
            { "address": "terraform_data.db", "type": "terraform_data", "change": { "actions": ["delete"] } },
            { "address": "terraform_data.web", "type": "terraform_data", "change": { "actions": ["create"] } },
        ] }),
        run: RunFacts {
            id: "r1".to_owned(),
            change_set: "c1".to_owned(),
            action: "apply".to_owned(),
            phase: PolicyPhase::Plan,
            destroy: false,
            auto_approve: false,
            preview: false,
        },
        actor: ActorFacts::default(),
        approvals: Vec::new(),
        stack: StackFacts {
            name: "db".to_owned(),
            path: "db".to_owned(),
            layer: "base".to_owned(),
            target: "local".to_owned(),
            labels: ["stateful".to_owned()].into(),
            state: "db".to_owned(),
            protected: false,
        },
        upstreams: Vec::new(),
        source: SourceFacts {
            commit: None,
            subject: None,
            dirty: false,
            digest: String::new(),
        },
        time: jiff::Timestamp::UNIX_EPOCH.into(),
    }
}

fn ask(text: &str) -> String {
    let mut rego = match Rego::compile(&[source("p.rego", text)]) {
        Ok(rego) => rego,
        Err(err) => {
            let place = err
                .place
                .map(|it| format!("{}:{}:{} ", it.file, it.line, it.column));
            return format!("{}{}", place.unwrap_or_default(), err.message);
        }
    };
    match rego.ask(&document(), Duration::from_secs(20)) {
        Ok((answers, left_off)) => {
            let mut said: Vec<String> = answers
                .iter()
                .map(|it| {
                    let about = it.resource.as_deref().unwrap_or("-");
                    format!("{} {} [{about}]", it.rule.as_str(), it.message)
                })
                .collect();
            if left_off > 0 {
                said.push(format!("{left_off} more"));
            }
            said.join("; ")
        }
        Err(err) => err.to_string(),
    }
}

#[test]
fn rules_of_all_dialects_are_asked() {
    let terrane = r#"package terrane
        deny contains msg if {
            some change in input.plan.resource_changes
            "delete" in change.change.actions
            msg := sprintf("%s is deleted", [change.address])
        }
        warn contains {"msg": "labelled", "resource": "x.y"} if "stateful" in input.stack.labels
        require_approval contains {"msg": "look", "count": 2} if input.run.phase == "plan""#;
    assert_eq!(
        ask(terrane),
        "deny terraform_data.db is deleted [terraform_data.db]; warn labelled [x.y]; require_approval look [-]"
    );
    let conftest = r#"package main
        violation[{"msg": msg}] { input.resource_changes[_].change.actions[_] == "delete"; msg := "gone" }"#;
    assert_eq!(ask(conftest), "violation gone [-]");
    let spacelift = r#"package spacelift
        warn["careful"] { input.spacelift.run.changes[_].action == "deleted" }
        approve { count(input.reviews.current.approvals) > 0 }"#;
    assert_eq!(
        ask(spacelift),
        "warn careful [-]; approve it is not approved yet [-]"
    );
}

#[test]
fn old_syntax_is_read_and_noted() {
    let old = source("old.rego", "package main\ndeny[msg] { msg := \"no\" }\n");
    let new = source(
        "new.rego",
        "package terrane\ndeny contains \"no\" if true\n",
    );
    assert_eq!(Rego::compile(&[old, new]).unwrap().old, ["old.rego"]);
}

#[test]
fn mistakes_have_a_place() {
    let said = ask("package terrane\n\ndeny contains msg if {\n  msg = = 1\n}\n");
    assert!(said.starts_with("p.rego:4:9 "), "{said}");
    let said = ask("package terrane\ndeny contains msg if { msg := nowhere }\n");
    assert!(
        said.contains("nowhere") && said.ends_with(" at p.rego:2:31"),
        "{said}"
    );
    let said = ask("package terrane\ndeny contains r if { r := http.send({\"url\": \"x\"}) }\n");
    assert!(said.contains("http.send"), "{said}");
}

#[test]
fn a_policy_that_says_nothing_is_a_mistake() {
    assert_eq!(
        ask("# mine\npackage elsewhere\ndeny contains \"no\" if true\n"),
        "p.rego:2:1 it defines no rule that is read"
    );
    assert_eq!(
        ask("package terrane\napprove if true\n"),
        "p.rego:2:1 rule `approve` is not read in `package terrane`"
    );
}

#[test]
fn a_value_that_is_no_message_is_an_error() {
    assert_eq!(
        ask("package terrane\ndeny contains 3 if true\n"),
        "rule `deny` returns a number, not messages"
    );
}

#[test]
fn time_is_limited() {
    let text = "package terrane\ndeny contains \"no\" if { some i in numbers.range(1, 3000); \
        some j in numbers.range(1, 3000); some k in numbers.range(1, 3000); i + j + k < 0 }\n";
    let mut rego = Rego::compile(&[source("p.rego", text)]).unwrap();
    let limit = Duration::from_millis(200);
    let err = rego.ask(&document(), limit).unwrap_err();
    assert!(matches!(err, EvaluatePolicyError::TimedOut { .. }), "{err}");
}

#[test]
fn output_is_bounded() {
    let said = ask(
        "package terrane\ndeny contains msg if { some i in numbers.range(1, 2000); msg := sprintf(\"no %d\", [i]) }\n",
    );
    assert!(said.ends_with("; 1900 more"), "{said}");
}

#[test]
fn builtins_that_regorus_lacks_are_there() {
    let text = r#"package terrane
        warn contains msg if msg := crypto.sha256("a")
        warn contains "flat" if array.flatten([1, [2, 3]]) == [1, 2, 3]
        warn contains "cross" if net.cidr_intersects("10.0.0.0/8", "10.1.0.0/16")
        warn contains "wrong" if net.cidr_intersects("10.0.0.0/8", "11.1.0.0/16")"#;
    assert_eq!(
        ask(text),
        "warn ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb [-]; warn cross [-]; warn flat [-]"
    );
}

/// A text that would take forever to parse is refused before parsing.
#[test]
fn brackets_are_not_read_however_deep_they_stand() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let text = format!(
            "package terrane\ndeny contains \"[[\\\"[\" if {{ # [[[\n  x := {open}1{close}\n  false\n}}\n"
        );
        let compiled = Rego::compile(&[source("p.rego", &text)]);
        compiled
            .err()
            .map(|err| err.to_string())
            .unwrap_or_default()
    };
    assert_eq!(nested(15), "");
    assert_eq!(
        nested(100),
        "brackets stand more than 16 deep in each other at p.rego:3:23"
    );
}

#[test]
fn who_reads_a_policy_does_not_wait_for_ever() {
    let (held, is_held) = mpsc::channel::<()>();
    let read = Rego::read_within(Duration::from_secs(1), move || {
        let _ = is_held.recv();
        Rego::compile(&[])
    });
    assert_eq!(
        read.map(drop).unwrap_err().message,
        "it is not read within 1 s"
    );
    drop(held);
}
