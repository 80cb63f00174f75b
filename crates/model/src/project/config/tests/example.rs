//! The complete example of the design loads with the expected result.

use super::*;

fn example() -> MemoryTree {
    let mut tree = tree(
        r#"== infra/azure/dns/main.tf
output "zone" { value = "z" }
== infra/azure/network/main.tf
output "subnet_id" { value = "s" }
== infra/azure/cluster/main.tf
variable "subnet_id" { type = string }
variable "nodes" { type = number }
variable "region" { type = string }
output "gateway_address" { value = "g" }
output "env_gateway_public_addresses" { value = {} }
output "cluster_name" { value = "c" }
output "kubeconfig" {
  value     = "k"
  sensitive = true
}
== infra/azure/environment/main.tf
variable "environment" {}
variable "cluster" {}
== experiments/one/infra/main.tofu
output "x" { value = 1 }
== experiments/two/infra/main.tf.json
{"output": {"y": {"value": 2}}}
== env/prod.tfvars
region = "westeurope"
== certs/ca.pem
PEM
== scripts/login.sh
#!/bin/sh
== templates/config/a.yaml.j2
a: 1
== cluster.yaml
a: 1
== nodes.yaml
a: 1
"#,
    );
    tree.insert("terrane.hcl", include_str!("example.hcl"));
    tree
}

#[test]
fn the_example_has_nothing_wrong() {
    insta::assert_snapshot!(rendered(&load_tree(&example())), @"
    note not-yet-effective: not yet effective: `history` blocks
      terrane.hcl:5:3 checked, but it does nothing so far
    note not-yet-effective: not yet effective: `trigger` of a `stack`
      terrane.hcl:87:3 checked, but it does nothing so far
    note not-yet-effective: not yet effective: `boundary` of a `stack`
      terrane.hcl:91:3 checked, but it does nothing so far
    note not-yet-effective: not yet effective: `drift` blocks
      terrane.hcl:133:3 checked, but it does nothing so far
    ");
}

#[test]
fn the_example_becomes_stacks() {
    let loaded = load_tree(&example());
    let project = loaded.project.unwrap();
    let mut out = String::new();
    for stack in project.stacks.values() {
        _ = writeln!(
            out,
            "{} {} {} {} contexts={:?} var_files={:?}",
            stack.name, stack.path, stack.layer, stack.state, stack.contexts, stack.var_files
        );
        for (name, input) in &stack.inputs {
            match input {
                Input::Known(value) => _ = writeln!(out, "  {name} = {value}"),
                Input::Expression(expression) => {
                    _ = writeln!(
                        out,
                        "  {name} = {} needs {:?}",
                        expression.text, expression.needs.outputs
                    );
                }
            }
        }
        for edge in &stack.edges {
            _ = writeln!(out, "  after {} {:?}", edge.upstream, edge.kind);
        }
    }
    insta::assert_snapshot!(out, @r#"
dns infra/azure/dns hypervisors dns contexts=["azure-credentials"] var_files=[]
env-dev infra/azure/environment platforms env-dev contexts=["azure-credentials"] var_files=[]
  cluster = stack.k8s-prod.output.cluster_name needs {(StackName("k8s-prod"), "cluster_name")}
  environment = "dev"
  after k8s-prod Output { output: "cluster_name", input: "cluster" }
env-prod infra/azure/environment platforms env-prod contexts=["azure-credentials"] var_files=[]
  cluster = stack.k8s-prod.output.cluster_name needs {(StackName("k8s-prod"), "cluster_name")}
  environment = "prod"
  after k8s-prod Output { output: "cluster_name", input: "cluster" }
  after env-staging Order
env-staging infra/azure/environment platforms env-staging contexts=["azure-credentials"] var_files=[]
  cluster = stack.k8s-prod.output.cluster_name needs {(StackName("k8s-prod"), "cluster_name")}
  environment = "staging"
  after k8s-prod Output { output: "cluster_name", input: "cluster" }
  after env-dev Order
exp-one experiments/one/infra platforms exp-one contexts=[] var_files=[]
exp-two experiments/two/infra platforms exp-two contexts=[] var_files=[]
k8s-prod infra/azure/cluster platforms k8s-prod contexts=["azure-credentials"] var_files=["env/prod.tfvars"]
  nodes = 3
  subnet_id = stack.network.output.subnet_id needs {(StackName("network"), "subnet_id")}
  after network Output { output: "subnet_id", input: "subnet_id" }
  after dns Order
network infra/azure/network hypervisors network contexts=["azure-credentials"] var_files=[]
"#);
}

use crate::hcl::expression::Input;
