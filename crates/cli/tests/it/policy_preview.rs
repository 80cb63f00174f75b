//! What policies say of a plan that has to wait for its upstreams: it is heard before anything is applied.

use insta::assert_snapshot;
use serde_json::Value;

use crate::story::Story;

const NETWORK: &str = r#"
variable "zones" {
  type = set(string)
}
resource "terraform_data" "subnet" {
  for_each         = var.zones
  triggers_replace = var.zones
}
output "subnets" {
  value = [for zone, subnet in terraform_data.subnet : { zone = zone, id = subnet.id }]
}
"#;

const CLUSTER: &str = r#"
variable "subnets" {
  type = list(object({
    zone = string
    id   = string
  }))
}
resource "terraform_data" "pool" {
  for_each = { for subnet in var.subnets : subnet.zone => subnet.id }
  input    = each.value
}
"#;

/// Says what it was shown, too: nothing of how a preview is made.
const STATEFUL: &str = r#"package terrane

deny contains sprintf("%s is deleted", [change.address]) if {
	some change in input.plan.resource_changes
	change.change.actions == ["delete"]
}

warn contains sprintf("preview %v, variables %v, resources %v, modules %v", [
	input.run.preview,
	object.keys(input.plan.variables),
	[change.address | some change in input.plan.resource_changes],
	object.keys(object.get(input.plan.configuration.root_module, "module_calls", {})),
])

require_approval contains "somebody looks" if input.run.preview
"#;

fn story() -> Story {
    let story = Story::new("tofu")
        .stack("network", "inputs = { zones = [\"a\", \"b\"] }", NETWORK)
        .stack(
            "cluster",
            "labels = [\"stateful\"]\n  inputs = { subnets = stack.network.output.subnets }",
            CLUSTER,
        );
    story.write("stateful.rego", STATEFUL);
    story.block(
        "policy \"stateful\" {\n  path   = \"stateful.rego\"\n  stacks = [\"label:stateful\"]\n}",
    )
}

/// What the last part of an apply would be refused for is known before its first part is applied.
#[test]
fn a_denial_that_will_come_is_shown_before_anything_is_applied() {
    let story = story();
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let project = story.read("terrane.hcl");
    story.write("terrane.hcl", &project.replace("[\"a\", \"b\"]", "[\"a\"]"));
    let plan = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
    let lines = plan.stdout.lines();
    let said = lines.filter(|line| {
        let starts = ["cluster", "policy", "  w", "  d", "Plan:"];
        starts.iter().any(|start| line.starts_with(start))
    });
    assert_snapshot!(said.collect::<Vec<_>>().join("\n"), @r#"
    cluster  ~ 1 change, - 1 destroy
      deferred: `subnets` is known after `network`; policy would deny it
    policy   1 denial to come, 1 approval condition to come, 1 warning
      would deny  stateful  cluster: terraform_data.pool["b"] is deleted
      would want  stateful  cluster: somebody looks; needs 1 approval
      warn        stateful  cluster: preview true, variables {}, resources
    Plan: 0 to add, 1 to change, 1 to replace, 2 to destroy, in 2 of 2 stacks; 1 would be denied.
    "#);
    let plan = story.cli(&["plan", "--json"]).expect(0);
    let events = plan.stdout.lines();
    let events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cluster = events.filter(|event| event["event"] == "plan" && event["stack"] == "cluster");
    let cluster: Vec<Value> = cluster.collect();
    assert_eq!(cluster[0]["status"], "deferred");
    assert_eq!(
        cluster[0]["policy"]["denials"][0]["message"],
        "terraform_data.pool[\"b\"] is deleted"
    );
    let warned = cluster[0]["policy"]["warnings"][0]["message"].as_str();
    assert_snapshot!(warned.unwrap_or_default(), @r#"preview true, variables {}, resources ["terraform_data.pool[\"a\"]", "terraform_data.pool[\"b\"]"], modules {}"#);
    let shown = story.cli(&["run", "show", "c2"]).expect(0);
    assert!(shown.stdout.contains("would deny  stateful"), "{shown}");

    // Who is asked reads it, and can say no.
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("would deny  stateful");
    terminal.wait_for("Type `yes`");
    terminal.type_line("no");
    let _ = terminal.wait();
}

/// A policy that cannot be asked does not agree, before as after.
#[test]
fn one_that_cannot_be_asked_about_a_preview_does_not_agree() {
    let story = story();
    story.write(
        "stateful.rego",
        "package terrane\nrequire_approval contains {\"msg\": \"look\", \"role\": [\"dba\"]}\n",
    );
    let plan = story.cli(&["plan"]).expect(0);
    let (_, said) = plan.stdout.split_once("\npolicy").unwrap();
    assert_snapshot!(said, @r#"
       1 denial to come
      would deny  stateful  cluster: it could not be evaluated: rule `require_approval` requires
                            approvals by `["dba"]`: `role` must be the name of one role

    Plan: 4 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks; 1 would be denied.
    "#);
}
