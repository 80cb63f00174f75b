//! Mistakes, and what is said about them.

use super::*;

const STACK: &str = "stack \"s\" {\n  path   = \"m\"\n  target = \"t\"\n  layer  = \"low\"\n}\n";
const MODULE: &str = "== m/main.tf\noutput \"o\" { value = 1 }\n";

#[test]
fn nothing_is_wrong_with_a_good_project() {
    assert_eq!(check_with_base(&format!("{STACK}{MODULE}")), "");
}

#[test]
fn projects_that_are_none() {
    let mut out = rendered(&load_tree(&MemoryTree::default()));
    out += &check("# nothing\n");
    out += &check("project \"p\" {}\n");
    out += &check(&format!(
        "{BASE}stack \"s\" {{\n  path = \"none\"\n  target = \"t\"\n  layer = \"low\"\n  enabled = false\n}}\n"
    ));
    insta::assert_snapshot!(out, @"");
}

#[test]
fn words_that_are_unknown() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}stak "x" {{}}
retries = 3
layer "odd" {{
  order = 2
  colour = "blue"
}}
stack "b" {{
  paht   = "m"
  target = "t"
  layer  = "low"
  timeout = "10m"
  labels {{}}
  gatte "dns" "x" {{}}
  gate "dsn" "x" {{}}
  gate "tcp" "y" {{ url = "x" }}
}}
stack {{}}
{MODULE}"#
    )), @"");
}

#[test]
fn values_of_the_wrong_type() {
    insta::assert_snapshot!(check(&format!(
        r#"project "p" {{
  parallelism = "four"
  engine "tofu" {{ version = "latest" }}
}}
layer "low" {{ order = "first" }}
target "t" {{
  writers = "anyone"
  lane    = "stac"
}}
stack "s" {{
  path      = "m"
  target    = "t"
  layer     = "low"
  labels    = "prod"
  protected = "yes"
  inputs    = ["a"]
  after     = ["x"]
  watch     = ["a["]
  wait      = 3
  timeout {{
    plan = "10 minutes"
  }}
  drift {{
    schedule = "every day"
  }}
}}
{MODULE}"#
    )), @"");
}

#[test]
fn names_that_clash_or_are_not_names() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}stack "s" {{
  path   = "m"
  target = "t"
  layer  = "low"
}}
stack "state" {{
  path   = "m"
  target = "t"
  layer  = "low"
}}
stack "Bad--name" {{
  path   = "m"
  target = "t"
  layer  = "low"
}}
stack "e" {{
  for_each = ["x", "x", "C"]
  path     = "m"
  target   = "t"
  layer    = "low"
}}
== more.terrane.hcl
layer "low" {{ order = 5 }}
project "q" {{}}
{MODULE}"#
    )), @"");
}

#[test]
fn directories_and_paths() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"stack "a" {{
  path   = "mm"
  target = "t"
  layer  = "low"
}}
stack "b" {{
  path   = "m/../../x"
  target = "t"
  layer  = "low"
}}
stack "c" {{
  path   = "/etc"
  target = "t"
  layer  = "low"
}}
stack "d" {{
  path      = "empty"
  target    = "t"
  layer     = "low"
  var_files = ["none.tfvars"]
}}
stack "e" {{
  path   = "calls"
  target = "t"
  layer  = "low"
}}
== empty/readme.md
x
== calls/main.tf
module "a" {{ source = "../none" }}
module "b" {{ source = "../../outside" }}
{MODULE}"#
    )), @"");
}

#[test]
fn references_that_lead_nowhere() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}stack "b" {{
  path     = "n"
  target   = "tt"
  layer    = "lwo"
  contexts = ["creds"]
  render   = "home"
  inputs   = {{ v = stack.s.output.oo, w = stack.nope.output.x }}
  after    = [stack.b, stack.off, stack.t]
  publish "facts" {{
    path   = "a.txt"
    values = {{ a = output.none }}
  }}
}}
stack "off" {{
  path    = "gone"
  target  = "t"
  layer   = "low"
  enabled = false
}}
context "cred" {{
  autoattach = ["target:x", "layer:low", "lable:x", "sss", "*"]
}}
target "u" {{ writers = ["githb", "anyone"] }}
writer "github" {{ issuer = "https://example.io" }}
== n/main.tf
variable "v" {{}}
variable "w" {{}}
{MODULE}"#
    )), @"");
}

#[test]
fn a_circle_is_one_finding_with_every_step() {
    insta::assert_snapshot!(check_with_base(
        r#"stack "dns" {
  path   = "m"
  target = "t"
  layer  = "low"
  inputs = { v = stack.gateway.output.o }
}
stack "gateway" {
  path   = "m"
  target = "t"
  layer  = "low"
  inputs = { v = stack.cluster.output.o }
}
stack "cluster" {
  path   = "m"
  target = "t"
  layer  = "low"
  after  = [stack.dns]
  inputs = { v = 1 }
}
stack "outside" {
  path   = "m"
  target = "t"
  layer  = "low"
  after  = [stack.dns]
  inputs = { v = 1 }
}
== m/main.tf
variable "v" {}
output "o" { value = 1 }
"#
    ), @"");
}

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
    ), @"");
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
    )), @"");
}

#[test]
fn secrets_and_later_stages() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"context "c" {{
  env = {{ A = secret("sops:x.yaml#a"), B = secret("file:x"), C = secret("vualt:a/b#c"), D = secret("sops:x"), E = secret("word") }}
}}
facts "f" {{ credential = "plain" }}
stack "s" {{
  path   = "m"
  target = "t"
  layer  = "low"
  publish "f" {{
    path     = "x.yaml"
    contract = "cluster"
  }}
  publish "f" {{ path = "x.yaml" }}
  bootstrap "argocd" {{
    kubeconfig = output.o
    run        = ["x"]
  }}
  gate "dns" "a" {{ names = ["x"] }}
  gate "tls" "a" {{
    host  = output.none
    after = ["b"]
  }}
  gate "equal" "c" {{ values = [fact.g["x"].y, dns("x"), resource["a.b"].c] }}
  gate "http" "d" {{
    for_each = output.o
    url      = "https://${{each.value}}"
    status   = "200"
  }}
}}
{MODULE}"#
    )), @"");
}

#[test]
fn syntax_errors_point_and_do_not_hide_other_files() {
    insta::assert_snapshot!(check(&format!(
        "project \"p\" {{ id = \"a\" parallelism = 3 }}\n== other.terrane.hcl\nlayr \"x\" {{}}\n== m/main.tf\nvariable \"x\" {{\n  default = [1,\n}}\n== m/stack.hcl\nstack \"s\" {{\n  target = \"t\n}}\n"
    )), @"");
}

#[test]
fn stacks_come_from_everywhere() {
    let text = format!(
        r#"{BASE}stack "env" {{
  for_each = {{ dev = [], prod = ["dev"] }}
  path     = "m"
  target   = "t"
  layer    = "low"
  after    = [for name in each.value : stack["env-${{name}}"]]
}}
stack "written" {{
  path   = "exp/three/infra"
  target = "t"
  layer  = "low"
}}
discover "exp" {{
  glob   = "exp/*/infra"
  name   = "exp-${{dir[1]}}"
  target = "t"
  layer  = "high"
  labels = [dir.path]
}}
== exp/one/infra/main.tf
== exp/two/infra/main.tf
== exp/two/infra/stack.hcl
stack "own" {{
  layer = "low"
}}
== exp/three/infra/main.tf
== exp/readme/infra/readme.md
== beside/stack.hcl
stack "beside" {{
  target = env("SET") == "set" ? "t" : "u"
  layer  = "low"
}}
== beside/main.tf
== .terraform/x/stack.hcl
stack "hidden" {{}}
{MODULE}"#
    );
    let text = text
        .replace("main.tf\n==", "main.tf\n# module\n==")
        .replace("readme.md\n==", "readme.md\nx\n==");
    let loaded = load_tree(&tree(&text));
    assert_eq!(rendered(&loaded), "");
    let mut out = String::new();
    for stack in loaded.project.unwrap().stacks.values() {
        let after: Vec<String> = stack
            .edges
            .iter()
            .map(|edge| edge.upstream.to_string())
            .collect();
        _ = writeln!(
            out,
            "{} {} {} {:?} {after:?}",
            stack.name, stack.path, stack.layer, stack.labels
        );
    }
    insta::assert_snapshot!(out, @"");
}

#[test]
fn the_environment_is_needed_only_where_it_is_used() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"stack "s" {{
  path    = "m"
  target  = env("UNSET")
  layer   = env("UNSET", "low")
  labels  = [env("SET")]
  enabled = env("SET") == "set"
}}
context "c" {{ env = {{ A = env("UNSET") }} }}
{MODULE}"#
    )), @"");
}

#[test]
fn modules_that_depend_on_where_they_run() {
    insta::assert_snapshot!(check_with_base(&format!(
        "{STACK}== m/main.tf\nlocals {{\n  a = path.cwd\n  b = abspath(\"x\")\n}}\n"
    )), @"");
}

#[test]
fn the_texts_that_findings_point_into_are_there() {
    let loaded = load_tree(&tree(&format!(
        "{BASE}{STACK}== m/main.tf\nlocals {{ a = path.cwd }}\n"
    )));
    assert!(loaded.texts["m/main.tf"].contains("path.cwd"));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let page = include_str!("../../../../../docs/reference/project-file.md");
    assert!(
        reference::render() == page,
        "docs/reference/project-file.md differs from the tables: write it anew from `reference::render()`"
    );
}
