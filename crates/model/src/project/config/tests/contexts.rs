//! Contexts: invalid files and hooks, priorities, and the sources of values.

use super::*;
use crate::hcl::expression::Input;
use crate::project::context::{ValueOrigins, ValueSource};

const STACK: &str = "stack \"s\" {\n  path   = \"m\"\n  target = \"t\"\n  layer  = \"low\"\n  labels = [\"l\"]\n  inputs = { v = 3 }\n}\n";
const MODULE: &str = "== m/main.tf\nvariable \"v\" {}\n== scripts/login.sh\n#!/bin/sh\n";

#[test]
fn files_that_no_context_may_give() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}
context "c" {{
  autoattach = ["*"]
  files = {{
    "good/ca.pem"         = file("scripts/login.sh")
    "./good//ca.pem"      = "twice"
    "../up"               = "a"
    "a/../b"              = "b"
    "/etc/motd"           = "c"
    "."                   = "d"
    "main.tf"             = "e"
    "x.tofu.json"         = "f"
    ".terraform/x"        = "g"
    "errored.tfstate"     = "h"
    ".terraform.lock.hcl" = "i"
    "list"                = [1]
    "number"              = 1
    "later"               = secret("env:X")
  }}
}}
{MODULE}"#
    )), @"
    error duplicate-name: `./good//ca.pem` is given twice
      terrane.hcl:17:5 this file
    error path-leaves-project: `../up` leaves the stack's directory
      terrane.hcl:18:5 this file
      hint: files of a context count from the directory of the stack that gets it
    error path-leaves-project: `a/../b` leaves the stack's directory
      terrane.hcl:19:5 this file
      hint: files of a context count from the directory of the stack that gets it
    error path-leaves-project: `/etc/motd` is an absolute path: files count from the stack's directory
      terrane.hcl:20:5 this file
    error invalid-name: `.` names no file
      terrane.hcl:21:5 this file
    error reserved-file: a context cannot give the file `main.tf`: it would be a part of the module, which comes from the source alone
      terrane.hcl:22:5 this file
    error reserved-file: a context cannot give the file `x.tofu.json`: it would be a part of the module, which comes from the source alone
      terrane.hcl:23:5 this file
    error reserved-file: a context cannot give the file `.terraform/x`: it is the engine's own
      terrane.hcl:24:5 this file
    error reserved-file: a context cannot give the file `errored.tfstate`: it is the engine's own
      terrane.hcl:25:5 this file
    error reserved-file: a context cannot give the file `.terraform.lock.hcl`: it is the engine's own
      terrane.hcl:26:5 this file
    error wrong-type: a file holds text, `list` is a list
      terrane.hcl:27:5 this file
    error wrong-type: a file holds text, `number` is a number
      terrane.hcl:28:5 this file
    ");
}

#[test]
fn files_in_the_directory_of_another_stack() {
    let inner = STACK
        .replace("\"s\"", "\"inner\"")
        .replace("\"m\"", "\"m/sub\"");
    insta::assert_snapshot!(check_with_base(&format!(
        "{STACK}{inner}context \"c\" {{\n  autoattach = [\"s\"]\n  files      = {{ \"sub/a/b\" = \"x\", \"other/a\" = \"y\" }}\n}}\n{MODULE}== m/sub/main.tf\nvariable \"v\" {{}}\n"
    )), @"
    error foreign-file: the file `sub/a/b` of context `c` would lie in `m/sub`, where another stack is
      terrane.hcl:21:18 this file
      hint: it is attached to stack `s`: attach it to the other one instead
    ");
}

#[test]
fn hooks_that_cannot_run() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}
context "c" {{
  autoattach = ["*"]
  hook "before" "plan" {{
    run     = ["./scripts/login.sh", stack.name, env("NOT_SET")]
    timeout = "soon"
  }}
  hook "before" "destroy" {{ run = ["true"] }}
  hook "during" "plan" {{ run = ["true"] }}
  hook "after" "plan" {{ run = [] }}
  hook "after" "plan" {{ run = ["./scripts/none.sh"] }}
  hook "after" "plan" {{ run = ["../outside.sh"] }}
  hook "after" "apply" {{
    run = ["curl"]
    env = {{ "a b" = "x", B = [1], C = secret("env:C") }}
  }}
  hook "after" "apply" {{}}
}}
{MODULE}"#
    )), @"
    error invalid-value: `soon` is not a duration
      terrane.hcl:17:15 `timeout` must be a duration above zero, such as `500ms`, `90s`, `10m`, `24h`, `30d`
    error unknown-kind: there is no hook `destroy`
      terrane.hcl:19:17 unknown
      hint: there are `init`, `plan`, `apply`, `publish`, `bootstrap` and `verify`
    error unknown-kind: there is no hook `during`
      terrane.hcl:20:8 unknown
      hint: there are `before` and `after`
    error invalid-value: `run` names no program
      terrane.hcl:21:31 an empty list
    error missing-file: there is no program `./scripts/none.sh`
      terrane.hcl:22:31 run here
      hint: a path counts from the project's root: write the program there, and make it executable
    error path-leaves-project: `../outside.sh` leaves the project
      terrane.hcl:23:31 run here
    error invalid-name: `a b` is not the name of an environment variable
      terrane.hcl:26:13 this name
    error wrong-type: the environment holds strings, `B` is a list
      terrane.hcl:26:26 this entry
    error missing-attribute: hook `apply` has no `run`
      terrane.hcl:28:3 `run` is required
      hint: add `run = …`: program and arguments; a program of the project by its path from the root
    ");
}

/// With equal priority, different values are an error: for environment, variables, files, and what is passed through
/// from the caller.
#[test]
fn equal_and_conflicting() {
    let two = |priority: &str| {
        format!(
            r#"{STACK}
context "one" {{
  autoattach = ["*"]
  env        = {{ A = "1", SAME = "x", PASSED = "1" }}
  vars       = {{ v = 1 }}
  files      = {{ "f" = "1" }}
}}
context "two" {{
  autoattach = ["label:l"]
  {priority}
  env        = {{ A = "2", SAME = "x" }}
  vars       = {{ v = 2 }}
  files      = {{ "f" = "2" }}
  pass_env   = ["PASS*"]
}}
{MODULE}"#
        )
    };
    assert_eq!(check_with_base(&two("priority = 1")), "");
    insta::assert_snapshot!(check_with_base(&two("")), @"
    error conflicting-contexts: contexts `two` and `one` set `PASSED` differently
      terrane.hcl:15:39 `one`, priority 0
      terrane.hcl:25:16 `two`, the same priority
      hint: both are attached to stack `s`: give one a higher `priority`
    error conflicting-contexts: contexts `one` and `two` set `A` differently
      terrane.hcl:22:18 `two`, priority 0
      terrane.hcl:15:18 `one`, the same priority
      hint: both are attached to stack `s`: give one a higher `priority`
    error conflicting-contexts: contexts `one` and `two` set `v` differently
      terrane.hcl:23:18 `two`, priority 0
      terrane.hcl:16:18 `one`, the same priority
      hint: both are attached to stack `s`: give one a higher `priority`
    error conflicting-contexts: contexts `one` and `two` set `f` differently
      terrane.hcl:24:18 `two`, priority 0
      terrane.hcl:17:18 `one`, the same priority
      hint: both are attached to stack `s`: give one a higher `priority`
    ");
}

fn matches(pattern: &str, name: &str) -> bool {
    let head = pattern.trim_end_matches('*');
    name == pattern || (head != pattern && name.starts_with(head))
}

#[test]
fn the_strongest_is_taken_and_says_what_it_overrides() {
    let loaded = load_tree(&tree(&format!(
        r#"{BASE}{STACK}
context "weak" {{
  autoattach = ["*"]
  env        = {{ A = "1" }}
  vars       = {{ v = 1, other = 1 }}
  files      = {{ "f" = "text" }}
}}
context "strong" {{
  autoattach = ["label:l", "s"]
  priority   = 5
  env        = {{ A = secret("env:A") }}
  pass_env   = ["B*"]
  vars       = {{ v = 2 }}
  hook "after" "plan" {{ run = ["true"] }}
  hook "before" "plan" {{ run = ["./scripts/login.sh"] }}
}}
{MODULE}"#
    )));
    let project = loaded.project.as_ref().unwrap();
    let stack = project.stacks.values().next().unwrap();
    let caller = ["A", "B1", "C"].map(str::to_owned);
    let module = loaded.modules.get("m");
    let origins = ValueOrigins::of(project, stack, module, &caller, matches);
    let mut out = String::new();
    for context in &origins.contexts {
        let by = &context.written.attached[&stack.name];
        _ = writeln!(
            out,
            "{} by {by:?} at {}",
            context.name, context.written.at.line
        );
    }
    for (title, entries) in [
        ("env", &origins.env),
        ("vars", &origins.vars),
        ("files", &origins.files),
    ] {
        for (name, origin) in entries {
            let all = std::iter::once(&origin.taken).chain(&origin.overrides);
            let all: Vec<String> = all
                .map(|taken| {
                    let from = match taken.source {
                        ValueSource::Inputs => "inputs".to_owned(),
                        ValueSource::Context(context) => context.name.clone(),
                        ValueSource::Passed(context, pattern) => {
                            format!("{} by {pattern}", context.name)
                        }
                    };
                    format!("{} ({from}, line {})", taken.value, taken.at.line)
                })
                .collect();
            let ignored = if origin.is_ignored { ", ignored" } else { "" };
            _ = writeln!(out, "{title} {name}: {}{ignored}", all.join(" over "));
        }
    }
    for (context, hook) in &origins.hooks {
        _ = writeln!(out, "{hook} ({})", context.name);
    }
    insta::assert_snapshot!(out, @r#"
    weak by ["*"] at 13
    strong by ["label:l", "s"] at 19
    env A: secret("env:A") (strong, line 22) over "1" (weak, line 15)
    env B1: (from the caller) (strong by B*, line 23)
    vars other: 1 (weak, line 16), ignored
    vars v: 3 (inputs, line 10) over 2 (strong, line 24) over 1 (weak, line 16)
    files f: 4 bytes (weak, line 17)
    before plan (strong)
    after plan (strong)
    "#);
}

/// Later versions must be able to read a stored context, and locations are not part of it.
#[test]
fn contexts_are_kept_without_their_places() {
    let text = format!(
        "{BASE}{STACK}context \"c\" {{\n  autoattach = [\"*\"]\n  hook \"before\" \"plan\" {{\n    run     = [\"true\"]\n    timeout = \"60s\"\n  }}\n}}\n{MODULE}"
    );
    let context = load_tree(&tree(&text)).project.unwrap().contexts["c"].clone();
    assert!(matches!(context.hooks[0].run, Input::Known(_)));
    let kept = serde_json::to_string(&context).unwrap();
    let read: crate::project::context::Context = serde_json::from_str(&kept).unwrap();
    assert_eq!(read, context.without_places());
    let older = r#"{"name":"c","priority":0,"env":{},"pass_env":[],"vars":{},"files":{}}"#;
    assert!(
        serde_json::from_str::<crate::project::context::Context>(older)
            .unwrap()
            .hooks
            .is_empty()
    );
}

/// A stack that bootstraps two clusters, one of them with a secret of its own. A third block reaches no cluster.
const CLUSTER: &str = r#"
stack "s" {
  path   = "m"
  target = "t"
  layer  = "low"
  bootstrap "flux" {
    kubeconfig = output.kubeconfig
    version    = "v2"
    secret "sops-age" {
      namespace = "flux-system"
      data      = { own = secret("env:OWN") }
    }
  }
  bootstrap "command" {
    kubeconfig = output.kubeconfig
    run        = ["true"]
  }
  bootstrap "command" { run = ["true"] }
}
"#;

#[test]
fn secrets_of_contexts_become_a_part_of_bootstraps_that_reach_a_cluster() {
    let text = format!(
        r#"{BASE}{CLUSTER}
context "weak" {{
  autoattach = ["*"]
  secret "sops-age" {{
    namespace = "flux-system"
    data      = {{ a = secret("env:A") }}
  }}
  secret "repository" {{
    namespace = "flux-system"
    data      = {{ weak = secret("env:W") }}
  }}
}}
context "strong" {{
  autoattach = ["*"]
  priority   = 1
  secret "repository" {{
    namespace = "flux-system"
    data      = {{ strong = secret("env:S"), user = "git" }}
  }}
}}
== m/main.tf
output "kubeconfig" {{ value = "" }}
"#
    );
    let loaded = load_tree(&tree(&text));
    assert_eq!(loaded.findings, []);
    let project = loaded.project.unwrap();
    let stack = &project.stacks[&"s".parse().unwrap()];
    let has = |at: usize| {
        let blocks = stack.stages.bootstrap[at].blocks.iter();
        let blocks = blocks.map(|block| match &block.attrs["data"] {
            Input::Expression(data) => format!("{} {:?}", block.name, data.needs.secrets),
            Input::Known(_) => block.name.clone(),
        });
        blocks.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(has(0), r#"sops-age {"env:OWN"}, repository {"env:S"}"#);
    assert_eq!(has(1), r#"sops-age {"env:A"}, repository {"env:S"}"#);
    assert_eq!(has(2), "");
    let origins = ValueOrigins::of(&project, stack, None, &[], |_, _| false);
    let shown = origins.secrets.iter().map(|(context, secret, unused)| {
        let (keys, references) = (secret.keys.join("+"), secret.references().join("+"));
        format!(
            "{} {} {keys} {references} {unused:?}",
            context.name,
            secret.title()
        )
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(
        shown,
        [
            "weak flux-system/sops-age a env:A None",
            "strong flux-system/repository strong+user env:S None"
        ]
    );
}

#[test]
fn secrets_that_no_context_may_have() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{CLUSTER}
context "one" {{
  autoattach = ["*"]
  secret "twice" {{
    namespace = "a"
    data      = {{ a = secret("env:A") }}
  }}
  secret "twice" {{
    namespace = "a"
    data      = {{ b = secret("env:B") }}
  }}
  secret "twice" {{
    namespace = "b"
    data      = {{ b = output.kubeconfig }}
  }}
  secret "bare" {{ namespase = "a" }}
  secret "so" {{
    namespace = "a b"
    data      = {{ "k k" = secret("env:A") }}
  }}
}}
context "two" {{
  autoattach = ["*"]
  secret "twice" {{
    namespace = "a"
    data      = {{ a = secret("env:C") }}
  }}
}}
== m/main.tf
output "kubeconfig" {{ value = "" }}
"#
    )), @"
    error duplicate-name: secret `a/twice` is defined twice
      terrane.hcl:31:3 again here
      terrane.hcl:27:3 first here
    error misplaced-reference: an output of this stack is allowed only in `publish`, `bootstrap` and `gate`
      terrane.hcl:37:23 here
    error missing-attribute: secret `bare` has no `data`
      terrane.hcl:39:3 `data` is required
      hint: add `data = …`: its entries
    error unknown-attribute: `secret` has no attribute `namespase`
      terrane.hcl:39:19 unknown attribute
      hint: did you mean `namespace`?
    error invalid-name: a namespace cannot be called `a b`
      terrane.hcl:41:17 here
      hint: small letters, digits and `-`: `flux-system`
    error invalid-name: an entry of a Secret cannot be called `k k`
      terrane.hcl:42:17 here
      hint: letters, digits, `-`, `_` and `.`: `age.agekey`
    error conflicting-contexts: contexts `one` and `two` set `a/twice` differently
      terrane.hcl:47:3 `two`, priority 0
      terrane.hcl:27:3 `one`, the same priority
      hint: both are attached to stack `s`: give one a higher `priority`
    ");
}
