//! Blocks of a small project, resolved with fixed values.

use serde_json::{Value, json};

use super::*;
use crate::base::tree::MemoryTree;
use crate::project::Stack;
use crate::project::config::{LoadEnvironment, load};

struct World {
    answers: Vec<(ExternalQuery, Value)>,
}

impl StageValues for World {
    fn output(&self, key: &str) -> Option<(Value, bool)> {
        match key {
            "address" => Some((json!("203.0.113.7"), false)),
            "zones" => Some((
                json!({ "dev": "203.0.113.8", "prod": "203.0.113.9" }),
                false,
            )),
            "kubeconfig" => Some((json!("apiVersion: v1"), true)),
            _ => None,
        }
    }

    fn resource(&self, address: &str) -> Option<(Value, bool)> {
        (address == "aws_eip.gateway").then(|| (json!({ "public_ip": "203.0.113.7" }), false))
    }

    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        (reference == "env:AGE").then(|| Secret::new("AGE-SECRET-KEY-1".to_owned()))
    }

    fn answer(&self, ask: &ExternalQuery) -> Option<Value> {
        let mut answers = self.answers.iter();
        answers.find_map(|(asked, value)| (asked == ask).then(|| value.clone()))
    }
}

fn stack(blocks: &str) -> Stack {
    let text = format!(
        r#"
project "p" {{}}
layer "base" {{
  order = 1
}}
target "local" {{
  writers = ["anyone"]
}}
facts "runtime" {{
  repository = "../facts.git"
  branch     = "facts"
}}
stack "edge" {{
  path   = "edge"
  target = "local"
  layer  = "base"
{blocks}
}}
"#
    );
    let module = r#"
output "address" { value = "" }
output "zones" { value = {} }
output "kubeconfig" { value = "" }
"#;
    let files = [("terrane.hcl", text.as_str()), ("edge/main.tf", module)];
    let tree: MemoryTree = files.into_iter().collect();
    let around = LoadEnvironment {
        env: &|_| None,
        git_commit: None,
        git_branch: None,
    };
    let loaded = load(&tree, &around);
    let errors: Vec<_> = loaded
        .findings
        .iter()
        .filter(|finding| finding.severity == crate::base::diagnostic::Severity::Error)
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let project = loaded.project.unwrap();
    project.stacks.into_values().next().unwrap()
}

const NOTHING_ASKED: World = World {
    answers: Vec::new(),
};

#[test]
fn a_gate_for_each_entry_of_an_output() {
    let stack = stack(
        r#"
  gate "dns" "wildcard" {
    for_each = output.zones
    names    = ["*.${each.key}.example.io"]
    expect   = each.value
    timeout  = "10m"
  }
"#,
    );
    let gates = resolve(&stack.stages.gates[0], &NOTHING_ASKED).unwrap();
    let shown: Vec<(&str, Value)> = gates
        .iter()
        .map(|gate| (gate.name.as_str(), Value::Object(gate.attrs.clone())))
        .collect();
    assert_eq!(
        shown,
        [
            (
                "wildcard-dev",
                json!({"expect": "203.0.113.8", "names": ["*.dev.example.io"], "timeout": "10m"})
            ),
            (
                "wildcard-prod",
                json!({"expect": "203.0.113.9", "names": ["*.prod.example.io"], "timeout": "10m"})
            ),
        ]
    );
}

#[test]
fn what_the_world_says_is_asked_first() {
    let stack = stack(
        r#"
  publish "runtime" {
    path   = "clusters/prod.yaml"
    values = { azure = { address = output.address } }
  }
  gate "equal" "reserved" {
    values = [
      fact.runtime["clusters/prod.yaml"].azure.address,
      resource["aws_eip.gateway"].public_ip,
      dns("*.example.io"),
    ]
  }
"#,
    );
    let gate = &stack.stages.gates[0];
    let fact = ExternalQuery::Fact {
        facts: "runtime".to_owned(),
        path: "clusters/prod.yaml".to_owned(),
    };
    let dns = ExternalQuery::Dns {
        name: "*.example.io".to_owned(),
        record: "A".to_owned(),
    };
    assert_eq!(
        resolve(gate, &NOTHING_ASKED).unwrap_err(),
        ResolveError::Asks {
            asks: vec![fact.clone(), dns.clone()]
        }
    );
    let world = World {
        answers: vec![
            (fact, json!({ "azure": { "address": "203.0.113.7" } })),
            (dns, json!("203.0.113.7")),
        ],
    };
    let gates = resolve(gate, &world).unwrap();
    let all = json!(["203.0.113.7", "203.0.113.7", "203.0.113.7"]);
    assert_eq!(gates[0].attrs["values"], all);
}

#[test]
fn secrets_and_sensitive_outputs_are_marked_and_not_shown() {
    let stack = stack(
        r#"
  bootstrap "flux" {
    kubeconfig = output.kubeconfig
    version    = "2.9.5"
    secret "sops-age" {
      namespace = "flux-system"
      data      = { "age.agekey" = secret("env:AGE") }
    }
  }
"#,
    );
    let blocks = resolve(&stack.stages.bootstrap[0], &NOTHING_ASKED).unwrap();
    let inner = &blocks[0].blocks[0];
    assert_eq!(
        inner.attrs["data"],
        json!({ "age.agekey": "AGE-SECRET-KEY-1" })
    );
    assert_eq!(
        (inner.kind.as_str(), inner.name.as_str()),
        ("secret", "sops-age")
    );
    let shown = format!("{blocks:?}");
    assert!(
        !shown.contains("AGE-SECRET") && !shown.contains("apiVersion"),
        "{shown}"
    );
}

#[test]
fn keys_of_a_for_each_are_no_secrets() {
    for each in [
        "{ (output.kubeconfig) = 1 }",
        "[output.kubeconfig]",
        "{ a = output.kubeconfig }",
    ] {
        let gate = format!(
            "gate \"tcp\" \"api\" {{\n    for_each = {each}\n    address = \"127.0.0.1:1\"\n  }}"
        );
        let err = resolve(&stack(&gate).stages.gates[0], &NOTHING_ASKED).unwrap_err();
        let said = err.to_string();
        assert!(
            said.contains(
                "uses a sensitive output or a secret, but its keys are visible to everyone"
            ),
            "{said}"
        );
    }
}

#[test]
fn a_missing_output_is_named_with_its_place() {
    let stack = stack(
        r#"
  gate "tcp" "api" {
    address = "${output.address}:${resource["aws_eip.other"].public_ip}"
  }
"#,
    );
    let err = resolve(&stack.stages.gates[0], &NOTHING_ASKED).unwrap_err();
    let ResolveError::Value { source, .. } = &err else {
        panic!("{err:?}");
    };
    assert_eq!(
        format!("{err}: {source}"),
        "`address` of `tcp api` (terrane.hcl:18) has no value: there is no resource `aws_eip.other` in the stack's state"
    );
}
