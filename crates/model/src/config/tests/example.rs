//! The full example of the design loads, and becomes what it says.

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
"#,
    );
    tree.insert("terrane.hcl", include_str!("example.hcl"));
    tree
}

#[test]
fn the_example_has_nothing_wrong() {
    insta::assert_snapshot!(rendered(&load_tree(&example())), @"");
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
                    )
                }
            }
        }
        for edge in &stack.edges {
            _ = writeln!(out, "  after {} {:?}", edge.upstream, edge.kind);
        }
    }
    insta::assert_snapshot!(out, @"");
}

use crate::project::Input;
