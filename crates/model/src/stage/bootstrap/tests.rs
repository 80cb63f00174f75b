//! How a block is read, the resulting steps, and how they are reported.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;
use crate::stage::ResolvedBlock;

fn block(kind: &str, attrs: Value) -> ResolvedBlock {
    let Value::Object(attrs) = attrs else {
        panic!("no object");
    };
    ResolvedBlock {
        kind: kind.to_owned(),
        name: String::new(),
        each: None,
        attrs,
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: Location::default(),
    }
}

fn kubeconfig() -> Value {
    json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://a"}}],
        "users": [{"name": "a", "user": {"token": "marked-secret"}}],
    })
}

#[test]
fn steps_follow_from_what_is_said() {
    let mut argocd = block(
        "argocd",
        json!({"kubeconfig": kubeconfig(), "version": "v3.5.6", "manifests": ["argocd/install.yaml"],
            "digest": "sha256:00", "root": ["argocd/root"], "timeout": "90s"}),
    );
    argocd.blocks.push(ResolvedBlock {
        name: "sops-age".to_owned(),
        ..block(
            "secret",
            json!({"namespace": "sops", "data": {"age.agekey": "marked-secret"}, "labels": {"a": "b"}}),
        )
    });
    let read = Bootstrap::read(&argocd).unwrap();
    let titles: Vec<&str> = read.steps().iter().map(|step| step.title()).collect();
    assert_eq!(
        titles,
        [
            "wait for the API",
            "create namespaces",
            "put secrets",
            "install",
            "wait for the agent",
            "apply the root manifests",
            "wait for the root objects",
        ]
    );
    assert_eq!(read.namespaces(), ["argocd", "sops"]);
    assert_eq!(read.limit(BootstrapStep::Install), Duration::from_secs(90));
    assert!(!format!("{read:?}").contains("marked-secret"));
    let manifest = read.secrets[0].manifest(|text| format!("<{text}>"));
    assert_eq!(manifest["data"], json!({"age.agekey": "<marked-secret>"}));
    assert_eq!(manifest["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn a_command_needs_no_cluster() {
    let command = block(
        "command",
        json!({"run": ["./talos.sh"], "env": {"NODES": ["a", "b"], "N": 3}}),
    );
    let read = Bootstrap::read(&command).unwrap();
    assert_eq!(read.steps(), [BootstrapStep::Command]);
    let BootstrapAction::Command(step) = &read.action else {
        panic!("no command");
    };
    assert_eq!(step.env["NODES"].expose(), r#"["a","b"]"#);
    assert_eq!(step.env["N"].expose(), "3");
}

#[test]
fn what_is_wrong_is_said_without_the_value() {
    let refused = |kind: &str, attrs: Value| {
        let err = Bootstrap::read(&block(kind, attrs)).unwrap_err();
        (err.to_string(), err.hint)
    };
    let (message, hint) = refused("flux", json!({"version": "v2"}));
    assert_eq!(message, "bootstrap `flux`: `kubeconfig` has no value");
    assert!(hint.is_some());
    let (message, _) = refused(
        "flux",
        json!({"version": "v2", "kubeconfig": "marked-secret: ["}),
    );
    assert_eq!(
        message,
        "bootstrap `flux`: cannot parse the kubeconfig as YAML or JSON"
    );
    let (message, _) = refused(
        "argocd",
        json!({"version": "v3", "kubeconfig": kubeconfig(), "timeout": "soon"}),
    );
    assert_eq!(
        message,
        "bootstrap `argocd`: `timeout` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`"
    );
    let (message, _) = refused("command", Value::Object(Map::new()));
    assert_eq!(message, "bootstrap `command`: `run` names no program");
}

#[test]
fn a_step_is_told_in_one_line() {
    let object = |outcome| ObjectReport {
        object: crate::stage::kubernetes::ObjectRef {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("a".to_owned()),
            name: "b".to_owned(),
        },
        outcome,
    };
    let handed = ObjectOutcome::HandedOver {
        managers: vec!["argocd-controller".to_owned()],
        fields: vec![
            "data.a".to_owned(),
            "b".to_owned(),
            "c".to_owned(),
            "d".to_owned(),
        ],
    };
    assert_eq!(
        handed.to_string(),
        "handed over to argocd-controller, which holds `data.a`, `b`, `c` and 1 more"
    );
    let report = StepReport {
        title: "install".to_owned(),
        end: StepEnd::Done,
        took_ms: 1,
        objects: vec![object(ObjectOutcome::Created), object(handed)],
        same: 4,
        notes: Vec::new(),
    };
    assert_eq!(report.brief(), "1 created, 1 handed over, 4 as they were");
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<StepReport>(&text).unwrap(), report);
}

#[test]
fn controllers_keep_what_they_hold() {
    let cases = [
        ("helm", true),
        ("Terraform", true),
        ("kubectl-client-side-apply", true),
        ("argocd-controller", false),
        ("kustomize-controller", false),
        ("kube-controller-manager", false),
        ("cert-manager-cainjector", false),
        ("terrane", false),
    ];
    for (manager, expected) in cases {
        assert_eq!(is_adoptable(manager), expected, "{manager}");
    }
}
