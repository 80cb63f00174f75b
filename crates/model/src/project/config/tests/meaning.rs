//! Projects that parse but are wrong: layers, states, inputs, contexts.

use super::*;

const STACK: &str = "stack \"s\" {\n  path   = \"m\"\n  target = \"t\"\n  layer  = \"low\"\n}\n";
const MODULE: &str = "== m/main.tf\noutput \"o\" { value = 1 }\n";

#[test]
fn layers_states_inputs_and_variables() {
    insta::assert_snapshot!(check_with_base(
        r#"stack "low" {
  path   = "m"
  target = "t"
  layer  = "low"
  inputs = { subnet = 1, zzz = 2 }
  after  = [stack.high]
}
stack "high" {
  path   = "m"
  target = "t"
  layer  = "high"
  state  = "low"
  inputs = { subnet_id = stack.src.output.secret }
}
stack "src" {
  path   = "src"
  target = "t"
  layer  = "low"
}
stack "b1" {
  path   = "src"
  target = "b"
  layer  = "low"
}
stack "b2" {
  path   = "src"
  target = "b"
  layer  = "low"
}
target "b" {
  writers = ["anyone"]
  backend "s3" {
    bucket = "x"
    key    = "same"
    assume_role {
    }
  }
}
== m/main.tf
variable "subnet_id" { type = string }
variable "nodes" { type = number }
variable "opt" { default = 1 }
== src/main.tf
output "secret" {
  value     = 1
  sensitive = true
}
"#
    ), @r#"
error shared-state: stacks `high` and `low` share one state
  terrane.hcl:5:7 state `low` is also used by `high`
  terrane.hcl:16:12 `high`
  hint: give each a `state` of its own, and use `${stack.state}` in the settings of a backend
error missing-input: stack `low` does not set `nodes`
  terrane.hcl:5:7 the module in `m` requires it
  m/main.tf:2:10 no default here
  hint: add `nodes = …` to `inputs` (number, required)
error unknown-input: stack `low` has no input `subnet`
  terrane.hcl:9:14 the module in `m` declares no such variable
  hint: it declares `subnet_id` (string, required)
error unknown-input: stack `low` has no input `zzz`
  terrane.hcl:9:26 the module in `m` declares no such variable
  hint: it declares `nodes` (number, required), `opt` (any), `subnet_id` (string, required)
error higher-layer: stack `low` in layer `low` depends on stack `high` in the higher layer `high`
  terrane.hcl:10:13 leads upwards
  hint: turn the dependency around, or move one of them to another layer
error missing-input: stack `high` does not set `nodes`
  terrane.hcl:12:7 the module in `m` requires it
  m/main.tf:2:10 no default here
  hint: add `nodes = …` to `inputs` (number, required)
error shared-state: stacks `b1` and `b2` share one state
  terrane.hcl:29:7 this place in backend `s3` is also used by `b1`
  terrane.hcl:24:7 `b1`
  hint: give each a `state` of its own, and use `${stack.state}` in the settings of a backend
error wrong-shape: `backend` holds attributes only
  terrane.hcl:39:5 this is a block
  hint: write `assume_role = { … }`
warning sensitive-input: the sensitive output `secret` of stack `src` goes to variable `subnet_id`, which is not sensitive
  terrane.hcl:17:26 plans would show it in clear
  m/main.tf:1:10 not marked `sensitive`
  hint: add `sensitive = true` to variable `subnet_id`
"#);
}

#[test]
fn variables_set_elsewhere_are_set() {
    assert_eq!(
        check_with_base(
            r#"context "c" {
  autoattach = ["label:x"]
  env        = { TF_VAR_a = "1" }
  pass_env   = ["TF_VAR_b*"]
  vars       = { c = 1, unused = 2 }
}
stack "s" {
  path      = "m"
  target    = "t"
  layer     = "low"
  labels    = ["x"]
  var_files = ["d.tfvars", "vars/e.tfvars.json"]
  inputs    = { h = 1 }
}
== m/main.tf
variable "a" {}
variable "b1" {}
variable "c" {}
variable "d" {}
variable "e" {}
variable "f" {}
variable "g" {}
variable "h" {}
== m/d.tfvars
d = 1
== vars/e.tfvars.json
{"e": 1}
== m/terraform.tfvars
f = 1
== m/x.auto.tfvars.json
{"g": 1}
"#
        ),
        ""
    );
}

#[test]
fn contexts_that_disagree() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}context "one" {{
  autoattach = ["s"]
  env        = {{ A = "1", SAME = "x" }}
}}
context "two" {{
  autoattach = ["target:t"]
  env        = {{ A = "2", SAME = "x", "B-D" = [] }}
}}
context "three" {{
  autoattach = ["layer:low"]
  priority   = 5
  env        = {{ A = "3" }}
}}
{MODULE}"#
    )), @r#"
error conflicting-contexts: contexts `one` and `two` set `A` differently
  terrane.hcl:16:18 `two`, priority 0
  terrane.hcl:12:18 `one`, the same priority
  hint: both are attached to stack `s`: give one a higher `priority`
error invalid-name: `B-D` is not the name of an environment variable
  terrane.hcl:16:39 this name
error wrong-type: the environment holds strings, `B-D` is a list
  terrane.hcl:16:39 this entry
"#);
}

/// If the target's backend is the module's own, the module's settings identify the state.
#[test]
fn states_of_backends_that_modules_bring_along() {
    let stacks = |key: &str| {
        check_with_base(&format!(
            r#"target "b" {{
  writers = ["anyone"]
  backend "s3" {{}}
}}
stack "one" {{
  path   = "one"
  target = "b"
  layer  = "low"
}}
stack "two" {{
  path   = "two"
  target = "b"
  layer  = "low"
}}
== one/main.tf
terraform {{
  backend "s3" {{ key = "one" }}
}}
== two/main.tf
terraform {{
  backend "s3" {{
    key   =   "{key}"
  }}
}}
"#
        ))
    };
    assert_eq!(stacks("two"), "");
    let same = stacks("one");
    assert!(same.starts_with("error shared-state"), "{same}");
}
