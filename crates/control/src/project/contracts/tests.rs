//! What a plan would take away, and from whom: with real files of a GitOps repository beside the project.

use std::fs;

use model::stage::contract::planned;
use serde_json::json;

use super::*;
use crate::project::fact_readers::reliance;

const PROJECT: &str = r#"
project "platform" {
  engine "tofu" {
    version = "~> 1.11"
  }
  gitops {
    paths = ["../gitops/**/*.yaml"]
  }
}
layer "base" {
  order = 0
}
target "local" {
  writers = ["anyone"]
}
facts "runtime" {
  repository = "../facts.git"
}
stack "network" {
  path   = "network"
  target = "local"
  layer  = "base"
  publish "runtime" {
    path     = "globals.yaml"
    contract = "edge/v1"
    values   = { azure = { envoyPublicIpAddress = output.gateway } }
  }
}
stack "apps" {
  path   = "apps"
  target = "local"
  layer  = "base"
  inputs = { gateway = stack.network.output.gateway }
}
"#;

fn world() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("infra");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("terrane.hcl", PROJECT);
    write(
        "network/main.tf",
        "output \"gateway\" {\n  value = \"10.0.0.1\"\n}\n",
    );
    write(
        "apps/main.tf",
        "variable \"gateway\" {\n  type = string\n}\n",
    );
    write(
        "contracts/edge/v1.json",
        r#"{"required": ["gateway", "zone"], "properties": {"gateway": {"format": "address"}}}"#,
    );
    write(
        "../gitops/charts/edge/gateway.yaml",
        "spec:\n  address: {{ .Values.azure.envoyPublicIpAddress }}\n",
    );
    // Published by ourselves: it names the field, and does not use it.
    write(
        "../gitops/charts/edge/values.yaml",
        "# Written by terrane: stack `network` of project `p`. Edits are not kept.\nazure:\n  envoyPublicIpAddress: 10.0.0.1\n",
    );
    write("../gitops/other.txt", "azure.envoyPublicIpAddress\n");
    (dir, root)
}

#[test]
fn an_output_that_is_not_declared_is_found_in_the_source() {
    let (_dir, root) = world();
    let mut open = crate::project::open::open(&root, &BTreeMap::new()).unwrap();
    crate::validation::check_stages(&mut open);
    let found = open
        .loaded
        .findings
        .iter()
        .find(|finding| finding.code == "contract-output");
    let found = found.unwrap();
    insta::assert_snapshot!(found.message, @"stack `network` declares no output `zone`, which the contract `edge/v1` requires");
    assert_eq!(found.places[0].at.line, 23);
    fs::remove_file(root.join("contracts/edge/v1.json")).unwrap();
    let mut open = crate::project::open::open(&root, &BTreeMap::new()).unwrap();
    crate::validation::check_stages(&mut open);
    let found = open
        .loaded
        .findings
        .iter()
        .find(|finding| finding.code == "contract");
    insta::assert_snapshot!(found.unwrap().message, @"there is no contract `edge/v1`");
}

#[test]
fn a_plan_that_takes_a_used_output_away_lists_who_uses_it() {
    let (_dir, root) = world();
    let open = crate::project::open::open(&root, &BTreeMap::new()).unwrap();
    let project = open.loaded.project.unwrap();
    let plan = json!({"output_changes": {
        "gateway": {"actions": ["delete"], "before": "10.0.0.1", "after": null, "after_unknown": false},
        "zone": {"actions": ["create"], "after_unknown": true},
        "unused": {"actions": ["delete"], "before": "x", "after": null, "after_unknown": false},
    }});
    let planned = planned(plan.to_string().as_bytes()).unwrap();
    let before = json!({"gateway": "10.0.0.1", "unused": "x"});
    let stack = "network".parse().unwrap();
    let (relied, before) = (reliance(&project, &stack), before.as_object().unwrap());
    let blocks = &project.stacks[&stack].stages.publish;
    let breaks = check_plan(PlanCheck {
        source: &root,
        root: &root,
        blocks,
        relied: &relied,
        locations: &[],
        before,
        planned: &planned,
        env: &BTreeMap::new(),
    })
    .unwrap();
    insta::assert_snapshot!(breaks.lines().join("\n"), @r"
    contract `edge/v1`: `gateway` is missing, expected a value
    `gateway` is gone, was a text, and is still read:
      ../gitops/charts/edge/gateway.yaml:2: address: {{ .Values.azure.envoyPublicIpAddress }}
      terrane.hcl:33: input `gateway` of stack `apps`
    ");
}

/// What would be said if the stack published `before` and its block were now this one.
fn taken_away(before: &Value, publish: &str) -> String {
    let (_dir, root) = world();
    fs::write(
        root.join("../gitops/app.yaml"),
        "valueFiles:\n  - $facts/globals.yaml\n",
    )
    .unwrap();
    let later = "output \"later\" {\n  value = timestamp()\n}\n";
    fs::write(root.join("network/later.tf"), later).unwrap();
    let strict = root.join("contracts/strict/v1.json");
    fs::create_dir_all(strict.parent().unwrap()).unwrap();
    fs::write(strict, r#"{"required": ["port"]}"#).unwrap();
    let start = PROJECT.find("  publish").unwrap();
    let end = PROJECT.find("stack \"apps\"").unwrap();
    let text = format!("{}{publish}}}\n{}", &PROJECT[..start], &PROJECT[end..]);
    fs::write(root.join("terrane.hcl"), text).unwrap();
    let open = crate::project::open::open(&root, &BTreeMap::new()).unwrap();
    let project = open.loaded.project.unwrap();
    let stack = "network".parse().unwrap();
    let location = FactLocation::Branch {
        key: "facts.git#facts".to_owned(),
        place: Box::new(project.facts["runtime"].clone()),
        files: BTreeMap::from([(
            "globals.yaml".to_owned(),
            before.as_object().unwrap().clone(),
        )]),
    };
    let outputs = json!({"gateway": "10.0.0.1", "zone": "b"});
    let outputs = outputs.as_object().unwrap();
    let breaks = check_plan(PlanCheck {
        source: &root,
        root: &root,
        blocks: &project.stacks[&stack].stages.publish,
        relied: &reliance(&project, &stack),
        locations: &[location],
        before: outputs,
        planned: &PlannedFields::known(outputs.clone()),
        env: &BTreeMap::new(),
    });
    breaks.unwrap().lines().join("\n")
}

#[test]
fn what_is_published_no_more_is_missed_by_those_who_use_it() {
    let before = json!({"azure": {"envoyPublicIpAddress": "", "unused": ""}});
    let block = |path: &str, values: &str| {
        format!("  publish \"runtime\" {{\n    path   = {path}\n    values = {values}\n  }}\n")
    };
    let same = "{ azure = { envoyPublicIpAddress = output.gateway } }";
    assert_eq!(taken_away(&before, &block("\"globals.yaml\"", same)), "");
    insta::assert_snapshot!(taken_away(&before, &block("\"globals.yaml\"", "{ azure = {} }")), @r"
    `azure.envoyPublicIpAddress` is no longer published, but still read:
      ../gitops/charts/edge/gateway.yaml:2: address: {{ .Values.azure.envoyPublicIpAddress }}
    ");
    insta::assert_snapshot!(taken_away(&before, &block("\"globals.yaml\"", "{ azure = { envoyPublicIpAddress = 5 } }")), @r"
    `azure.envoyPublicIpAddress` is published as a number, was a text, and is still read:
      ../gitops/charts/edge/gateway.yaml:2: address: {{ .Values.azure.envoyPublicIpAddress }}
    ");
    insta::assert_snapshot!(taken_away(&before, &block("\"other.yaml\"", same)), @r"
    file `globals.yaml` is withdrawn, but still read:
      ../gitops/app.yaml:2: - $facts/globals.yaml
    ");
    insta::assert_snapshot!(taken_away(&before, ""), @r"
    `azure` is no longer published, but still read:
      ../gitops/charts/edge/gateway.yaml:2: address: {{ .Values.azure.envoyPublicIpAddress }}
    file `globals.yaml` is withdrawn, but still read:
      ../gitops/app.yaml:2: - $facts/globals.yaml
    ");
    // What is not known yet takes nothing away.
    let unknown = block("\"${output.later}.yaml\"", "{ azure = output.later }");
    assert_eq!(taken_away(&before, &unknown), "");
}

#[test]
fn a_directory_that_flux_applies_uses_the_variables_in_it() {
    const FLUX: &str = "\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: gateway, namespace: flux-system }
spec:
  path: ./apps/gateway
  postBuild:
    substituteFrom:
      - { kind: ConfigMap, name: cluster-facts }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: facts, namespace: flux-system }
spec:
  path: ./flux/prod
";
    let (_dir, root) = world();
    let project = PROJECT.replace("../gitops/**/*.yaml", "../gitops/clusters/*.yaml");
    fs::write(root.join("terrane.hcl"), project).unwrap();
    let write = |path: &str, text: &str| {
        let path = root.join("../gitops").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("clusters/prod.yaml", FLUX);
    write(
        "apps/gateway/service.yaml",
        "spec:\n  loadBalancerIP: ${gateway_address}\n  # ${gateway_address}\n",
    );
    write("apps/other/service.yaml", "address: ${gateway_address}\n");
    write("clusters/other.yaml", "kind: ConfigMap\ndata: {}\n");
    let open = crate::project::open::open(&root, &BTreeMap::new()).unwrap();
    let project = open.loaded.project.unwrap();
    let stack = "network".parse().unwrap();
    let shape = json!({"apiVersion": "", "kind": "", "data": {"gateway_address": ""}});
    let location = FactLocation::Branch {
        key: "facts.git#facts".to_owned(),
        place: Box::new(project.facts["runtime"].clone()),
        files: BTreeMap::from([(
            "flux/prod/facts.yaml".to_owned(),
            shape.as_object().unwrap().clone(),
        )]),
    };
    let outputs = json!({"gateway": "10.0.0.1", "zone": "b"});
    let outputs = outputs.as_object().unwrap();
    let breaks = check_plan(PlanCheck {
        source: &root,
        root: &root,
        blocks: &project.stacks[&stack].stages.publish,
        relied: &reliance(&project, &stack),
        locations: &[location],
        before: outputs,
        planned: &PlannedFields::known(outputs.clone()),
        env: &BTreeMap::new(),
    });
    insta::assert_snapshot!(breaks.unwrap().lines().join("\n"), @r"
    `data.gateway_address` is no longer published, but still read:
      ../gitops/apps/gateway/service.yaml:2: loadBalancerIP: ${gateway_address}
    file `flux/prod/facts.yaml` is withdrawn, but still read:
      ../gitops/clusters/prod.yaml:14: path: ./flux/prod
    ");
}

#[test]
fn a_contract_that_a_plan_tells_is_checked_in_the_plan() {
    let block = "  publish \"runtime\" {\n    for_each = [\"strict\"]\n    path     = \"globals.yaml\"\n    contract = \"${each.value}/v1\"\n  }\n";
    insta::assert_snapshot!(taken_away(&json!({}), block), @"contract `strict/v1`: `port` is missing, expected a value");
}
