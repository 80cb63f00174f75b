//! Mistakes and their findings.

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
    insta::assert_snapshot!(out, @r#"
error missing-project: there is no `terrane.hcl` here
  hint: `terrane init` proposes one
error missing-project: there is no `project` block
  hint: add `project "NAME" { … }` to `terrane.hcl`
error empty-project: this project has no stacks
  hint: add a `stack` or a `discover` block
error empty-project: this project has no stacks
  terrane.hcl:1:9 nothing to do here
  hint: add a `stack` or a `discover` block
error empty-project: this project has no stacks
  terrane.hcl:1:9 nothing to do here
  hint: switched off by `enabled = false`: `s`
"#);
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
    )), @r#"
    error unknown-block: there is no block `stak`
      terrane.hcl:10:1 unknown block
      hint: did you mean `stack`?
    error unknown-attribute: `retries` is outside of any block
      terrane.hcl:11:1 attributes belong into blocks
    error unknown-attribute: `layer` has no attribute `colour`
      terrane.hcl:14:3 unknown attribute
      hint: there is `order`
    error unknown-attribute: `stack` has no attribute `paht`
      terrane.hcl:17:3 unknown attribute
      hint: did you mean `path`?
    error wrong-shape: `timeout` is a block, not an attribute
      terrane.hcl:20:3 written as an attribute
      hint: write `timeout { … }`
    error wrong-shape: `labels` is an attribute, not a block
      terrane.hcl:21:3 written as a block
      hint: write `labels = …`
    error unknown-block: `stack` has no block `gatte`
      terrane.hcl:22:3 unknown block
      hint: did you mean `gate`?
    error unknown-kind: there is no gate `dsn`
      terrane.hcl:23:8 unknown
      hint: did you mean `dns`?
    error missing-attribute: gate `y` has no `address`
      terrane.hcl:24:3 `address` is required
      hint: add `address = …`: `host:port`
    error unknown-attribute: `gate` has no attribute `url`
      terrane.hcl:24:20 unknown attribute
      hint: it belongs to `gate "http"`
    error wrong-labels: `stack` is written as `stack "NAME" { … }`
      terrane.hcl:26:1 0 labels here
    error missing-attribute: `stack` has no `path`
      terrane.hcl:26:1 `path` is required
      hint: add `path = …`: directory of the root module; in a `stack.hcl` its own directory
    error missing-attribute: `stack` has no `target`
      terrane.hcl:26:1 `target` is required
      hint: add `target = …`: the target it is deployed to
    error missing-attribute: `stack` has no `layer`
      terrane.hcl:26:1 `layer` is required
      hint: add `layer = …`: the layer it belongs to
    "#);
}

#[test]
fn a_misspelt_attribute_is_one_mistake() {
    insta::assert_snapshot!(check("stack \"s\" {\n  path = \"s\"\n  target = \"t\"\n  layr = \"l\"\n}\n"), @r#"
    error missing-project: there is no `project` block
      hint: add `project "NAME" { … }` to `terrane.hcl`
    error missing-directory: there is no directory `s`
      terrane.hcl:2:10 stack `s` should be here
      hint: paths count from the project's root; `enabled = false` allows it to be missing
    error unknown-name: there is no target `t`
      terrane.hcl:3:12 not defined
      hint: add `target "t" { … }`
    error unknown-attribute: `stack` has no attribute `layr`
      terrane.hcl:4:3 unknown attribute
      hint: did you mean `layer`?
    "#);
}

#[test]
fn limits_that_nothing_could_keep() {
    insta::assert_snapshot!(check(&format!(
        r#"project "p" {{
  parallelism = 0
  engine "tofu" {{ version = "~> 1.11" }}
}}
layer "low" {{ order = 0 }}
target "t" {{
  writers = ["anyone"]
  approval {{
    role    = ""
    expires = "0s"
  }}
}}
stack "s" {{
  path   = "m"
  target = "t"
  layer  = "low"
  timeout {{
    plan  = "0s"
    apply = "0m"
  }}
}}
{MODULE}"#
    )), @r#"
error invalid-value: `0` is not a whole number from 1
  terrane.hcl:2:17 `parallelism` must be a whole number from 1
error invalid-value: this is empty
  terrane.hcl:9:15 `role` must be a string that is not empty
error invalid-value: `0s` is no time at all
  terrane.hcl:10:15 `expires` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`
error invalid-value: `0s` is no time at all
  terrane.hcl:18:13 `plan` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`
error invalid-value: `0m` is no time at all
  terrane.hcl:19:13 `apply` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`
"#);
}

#[test]
fn limits_may_be_shorter_than_a_second() {
    let findings = check(&format!(
        r#"project "p" {{
  engine "tofu" {{ version = "~> 1.11" }}
}}
layer "low" {{ order = 0 }}
target "t" {{ writers = ["anyone"] }}
context "c" {{
  autoattach = ["*"]
  hook "before" "plan" {{
    run     = ["true"]
    timeout = "800ms"
  }}
}}
stack "s" {{
  path   = "m"
  target = "t"
  layer  = "low"
  timeout {{ plan = "1500ms" }}
  gate "tcp" "up" {{
    address  = "localhost:22"
    interval = "500ms"
  }}
}}
{MODULE}"#
    ));
    assert_eq!(findings, "", "a duration in milliseconds was refused");
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
    )), @r#"
error wrong-type: `parallelism` must be a whole number from 1
  terrane.hcl:2:17 this is a string
error invalid-value: `latest` is not a version constraint
  terrane.hcl:3:29 `version` must be a version constraint such as `~> 1.11`
error wrong-type: `order` must be a whole number
  terrane.hcl:5:23 this is a string
error wrong-type: `writers` must be a list of strings
  terrane.hcl:7:13 this is a string
error invalid-value: `stac` is none of `target` and `stack`
  terrane.hcl:8:13 `lane` must be `"target"` or `"stack"`
  hint: did you mean `stack`?
error wrong-type: `labels` must be a list of strings
  terrane.hcl:14:15 this is a string
error wrong-type: `protected` must be a bool
  terrane.hcl:15:15 this is a string
error wrong-type: `inputs` must be an object
  terrane.hcl:16:15 this is a list
error wrong-type: a string is not a stack
  terrane.hcl:17:15 `after` must be a list of stacks such as `[stack.NAME]`
  hint: write `stack.NAME` or `stack["NAME"]`
error invalid-value: `a[` is not a glob: unclosed character class; missing ']'
  terrane.hcl:18:15 `watch` must be a list of globs
error wrong-type: `wait` must be `"verified"` or `"applied"`
  terrane.hcl:19:15 this is a number
error invalid-value: `10 minutes` is not a duration
  terrane.hcl:21:12 `plan` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`
error invalid-value: `every day` is not a schedule
  terrane.hcl:24:16 `schedule` must be a schedule of five fields such as `0 6 * * *`
note not-yet-effective: not yet effective: `drift` blocks
  terrane.hcl:23:3 checked, but it does nothing so far
"#);
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
    )), @r#"
error duplicate-name: layer `low` is defined twice
  more.terrane.hcl:1:7 again here
  terrane.hcl:2:7 first here
error duplicate-name: there are two `project` blocks
  more.terrane.hcl:2:9 again here
  terrane.hcl:1:9 first here
error duplicate-name: stack `s` is defined twice
  terrane.hcl:10:7 again here
  terrane.hcl:5:7 first here
error invalid-name: `state` is reserved: `name` and `state` are keywords of the project file
  terrane.hcl:15:7 the name of this stack
error invalid-name: `Bad--name` is not a valid name: use a letter first, then lower case letters, digits and single dashes
  terrane.hcl:20:7 this name
error invalid-name: `e-C` is not a valid name: use a letter first, then lower case letters, digits and single dashes
  terrane.hcl:25:7 the name of this stack
error duplicate-name: `for_each` holds `x` twice
  terrane.hcl:26:14 in this list
"#);
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
    )), @r#"
error missing-directory: module `a` has no source: there is no module in `none`
  calls/main.tf:1:23 called here
error path-leaves-project: `../../outside` leaves the project
  calls/main.tf:2:23 the source of this module
  hint: only what lies in the project is there when the engine runs
error missing-directory: there is no directory `mm`
  terrane.hcl:6:12 stack `a` should be here
  hint: did you mean `m`?
error path-leaves-project: `m/../../x` leaves the project
  terrane.hcl:11:12 only what lies in the project is there
error path-leaves-project: `/etc` is an absolute path: paths must be relative to the project's root
  terrane.hcl:16:12 only what lies in the project is there
error no-module: `empty` holds no `.tf` or `.tofu` file
  terrane.hcl:21:15 the directory is there
error missing-file: there is no file `none.tfvars`
  terrane.hcl:24:15 neither in `empty` nor at the project's root
"#);
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
writer "github" {{
  issuer = "https://example.io"
  claims = {{ repository = "example/infra" }}
}}
== n/main.tf
variable "v" {{}}
variable "w" {{}}
{MODULE}"#
    )), @r#"
error unknown-name: there is no target `tt`
  terrane.hcl:12:14 not defined
  hint: did you mean `t`?
error unknown-name: there is no layer `lwo`
  terrane.hcl:13:14 not defined
  hint: did you mean `low`?
error unknown-name: there is no context `creds`
  terrane.hcl:14:14 not defined
  hint: did you mean `cred`?
error unknown-name: there is no render `home`
  terrane.hcl:15:14 not defined
  hint: add `render "home" { … }`
error unknown-output: stack `s` has no output `oo`
  terrane.hcl:16:20 the module in `m` declares no such output
  hint: did you mean `o`?
error unknown-stack: there is no stack `nope`
  terrane.hcl:16:43 not defined
  hint: there are `b` and `s`
error self-reference: stack `b` refers to itself
  terrane.hcl:17:15 this is the stack itself
error unknown-stack: there is no stack `off`
  terrane.hcl:17:24 not defined
  hint: stack `off` is switched off by `enabled = false`
error unknown-stack: there is no stack `t`
  terrane.hcl:17:35 not defined
  hint: there are `b` and `s`
error unknown-name: no `facts` block is called `facts`
  terrane.hcl:18:11 not defined
  hint: add `facts "facts" { … }`
error invalid-value: `a.txt` ends neither in `.yaml` nor in `.json`
  terrane.hcl:19:14 facts are YAML or JSON
error unknown-output: stack `b` has no output `none`
  terrane.hcl:20:20 the module in `n` declares no such output
  hint: it declares no outputs
error unknown-name: there is no target `x`
  terrane.hcl:30:16 not defined
  hint: there are `t` and `u`
error invalid-selector: `lable:x` is not a selector of stacks
  terrane.hcl:30:16 in this list
  hint: did you mean `label`?
error unknown-name: there is no stack `sss`
  terrane.hcl:30:16 not defined
  hint: there are `b` and `s`
error unknown-name: there is no writer `githb`
  terrane.hcl:32:24 not defined
  hint: did you mean `github`?
"#);
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
    ), @r#"
error dependency-cycle: stacks depend on each other in a circle
  terrane.hcl:9:18 `dns` needs an output of `gateway`
  terrane.hcl:15:18 `gateway` needs an output of `cluster`
  terrane.hcl:21:13 `cluster` waits for `dns`
"#);
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
    )), @r#"
error invalid-secret: there is no source of secrets `vualt`
  terrane.hcl:6:66 this reference
  hint: did you mean `vault`?
error invalid-secret: a `sops` secret is written as `sops:FILE#KEY.PATH`
  terrane.hcl:6:93 this reference
error invalid-secret: this is not a secret reference
  terrane.hcl:6:115 this reference
  hint: references begin with `env`, `file`, `command`, `sops`, `dotenv`, `vault`, `azure-keyvault`, `aws-secretsmanager` and `aws-ssm`
error wrong-type: `credential` must be a secret such as `secret("file:PATH")`
  terrane.hcl:8:26 this is a string
error invalid-value: `cluster` is not a contract
  terrane.hcl:15:16 `contract` must be a contract such as `cluster/v1`
error shared-fact: `x.yaml` is published twice to `f`
  terrane.hcl:17:24 again here
  terrane.hcl:14:16 first here
error missing-attribute: bootstrap `argocd` has no `version`
  terrane.hcl:18:3 `version` is required
  hint: add `version = …`: version to install
error unknown-attribute: `bootstrap` has no attribute `run`
  terrane.hcl:20:5 unknown attribute
  hint: it belongs to `bootstrap "command"`
error missing-attribute: gate `a` has nothing to compare with
  terrane.hcl:22:3 it requires `expect` or `absent`
error duplicate-name: gate `a` is defined twice in stack `s`
  terrane.hcl:23:14 again here
  terrane.hcl:22:14 first here
error unknown-output: stack `s` has no output `none`
  terrane.hcl:24:13 the module in `m` declares no such output
  hint: there is `o`
error unknown-gate: there is no gate `b` in stack `s`
  terrane.hcl:25:13 in this list
  hint: there are `a`, `c` and `d`
error unknown-name: no `facts` block is called `g`
  terrane.hcl:27:32 not defined
  hint: there is `f`
error wrong-type: `status` must be a whole number from 0
  terrane.hcl:31:16 this is a string
"#);
}

#[test]
fn syntax_errors_point_and_do_not_hide_other_files() {
    insta::assert_snapshot!(check(
        "project \"p\" { id = \"a\" parallelism = 3 }\n== other.terrane.hcl\nlayr \"x\" {}\n== m/main.tf\nvariable \"x\" {\n  default = [1,\n}\n== m/stack.hcl\nstack \"s\" {\n  target = \"t\n}\n"
    ), @r#"
error syntax: syntax error: this string is not closed
  m/stack.hcl:2:12 opened here
error unknown-block: there is no block `layr`
  other.terrane.hcl:1:1 unknown block
  hint: did you mean `layer`?
error syntax: syntax error: invalid block body; expected `}`, newline or identifier
  terrane.hcl:1:24 here
  hint: a block on one line holds at most one argument
"#);
}

#[test]
fn what_is_left_open_is_pointed_at() {
    let mut out = String::new();
    for text in [
        "project \"p\" {\n  platforms = [\"a\",\n}\n",
        "project \"p\" {\n  id = upper(\"a\"\n}\n",
        "project \"p\" {\n  id = \"${upper(\"a\")\"\n}\n",
        "project \"p\" {\n  id = \"a\"\n",
        "project \"p\" {\n  id = <<EOT\n  a\n}\n",
        "project \"p\" {\n  id = 1 +\n}\n",
        "project \"p\" {\n  id = \"a\"\n  id = \"b\"\n}\n",
        "project p\" {}\n",
    ] {
        out += &check(text);
    }
    insta::assert_snapshot!(out, @r#"
error syntax: syntax error: expected a value
  terrane.hcl:3:1 here
  terrane.hcl:2:15 this `[` is closed by `}`
error syntax: syntax error: expected `)` or expression
  terrane.hcl:3:1 here
  terrane.hcl:2:13 this `(` is closed by `}`
error syntax: syntax error: expected `}`
  terrane.hcl:2:21 here
error syntax: syntax error: this `{` is not closed
  terrane.hcl:1:13 opened here
error syntax: syntax error: this text has no end
  terrane.hcl:2:8 opened here
error syntax: syntax error: expected a value
  terrane.hcl:2:11 here
error duplicate-name: `id` is set twice in one block
  terrane.hcl:3:3 again here
  hint: remove one of them
error syntax: syntax error: expected `{`
  terrane.hcl:1:10 here
"#);
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
== data/terrane.db
a home
== data/work/x/stack.hcl
stack "copied" {{}}
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
    insta::assert_snapshot!(out, @r#"
beside beside low {} []
env-dev m low {} []
env-prod m low {} ["env-dev"]
exp-one exp/one/infra high {"exp/one/infra"} []
own exp/two/infra low {"exp/two/infra"} []
written exp/three/infra low {} []
"#);
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
    )), @r#"
error unset-variable: `UNSET` is not set in the environment
  terrane.hcl:7:13 needed here
  hint: set it, or give a default: `env("UNSET", "…")`
"#);
}

#[test]
fn modules_that_depend_on_where_they_run() {
    insta::assert_snapshot!(check_with_base(&format!(
        "{STACK}== m/main.tf\nlocals {{\n  a = path.cwd\n  b = abspath(\"x\")\n}}\n"
    )), @r#"
warning unstable-path: `path.cwd` gives another path in each run
  m/main.tf:2:7 the source is copied before it is run
  hint: use `path.module` or `path.root`
warning unstable-path: `abspath()` gives another path in each run
  m/main.tf:3:7 the source is copied before it is run
  hint: use `path.module` or `path.root`
"#);
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
    let page = include_str!("../../../../../../docs/reference/project-file.md");
    assert!(
        reference::render() == page,
        "docs/reference/project-file.md differs from the tables: write it anew from `reference::render()`"
    );
}

#[test]
fn files_by_paths_that_only_the_engine_knows() {
    insta::assert_snapshot!(check_with_base(
        r#"stack "a" {
  path   = "m"
  target = "t"
  layer  = "low"
}
stack "b" {
  path   = "m"
  target = "t"
  layer  = "low"
}
stack "says" {
  path   = "m"
  target = "t"
  layer  = "low"
  watch  = ["conf/**"]
}
== m/main.tf
locals {
  own     = [for name in fileset(path.module, "*.txt") : file("${path.module}/${name}")]
  beside  = templatefile("${path.module}/../conf/${terraform.workspace}.tpl", {})
  any     = file(local.own[0])
  climbs  = filesha256("${path.module}/${local.any}/../../x")
  outside = file("/etc/hostname")
}
"#
    ), @r#"
warning unwatched-file: the path that `templatefile` reads here is known only to the engine
  m/main.tf:3:13 every change below `conf` counts as one of stack `a` and 1 more
  hint: `watch = ["conf/…"]` in the stack names the files it may be
warning unwatched-file: the path that `file` reads here is known only to the engine
  m/main.tf:4:13 every change in the project counts as one of stack `a` and 1 more
  hint: `watch = ["…"]` in the stack names the files it may be
warning unwatched-file: the path that `filesha256` reads here is known only to the engine
  m/main.tf:5:13 every change in the project counts as one of stack `a` and 1 more
  hint: `watch = ["…"]` in the stack names the files it may be
warning unwatched-file: the path that `file` reads here is known only to the engine
  m/main.tf:6:13 its changes go unseen: planned every time by stack `a` and 2 more
  hint: bring the file into the project, or hand its contents over as an input
"#);
}

/// A text that names no provider would silently allow none.
#[test]
fn providers_that_are_none() {
    let project = BASE.replace(
        "target \"t\" { writers = [\"anyone\"] }",
        "target \"t\" {\n  writers   = [\"anyone\"]\n  providers = [\"*/*\", \"hashicorp/random\", \"\"]\n}",
    );
    assert_ne!(project, BASE);
    insta::assert_snapshot!(check(&format!("{project}{STACK}{MODULE}")), @"
error provider-address: `*/*` names no provider
  terrane.hcl:6:15 in this list
  hint: write `namespace/type`, such as `hashicorp/random`
error provider-address: `` names no provider
  terrane.hcl:6:15 in this list
  hint: write `namespace/type`, such as `hashicorp/random`
");
}
