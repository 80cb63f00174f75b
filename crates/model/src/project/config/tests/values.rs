//! The values of expressions, during loading and later.

use super::*;
use crate::base::ids::StackName;
use crate::base::secret::Secret;
use crate::hcl::expression::Input;
use crate::hcl::stored_expression::{EvaluateError, Values, evaluate, known_words};
use crate::project::Backend;
use crate::project::context::for_stack;

/// A host with fixed values.
pub(in crate::project::config::tests) struct Fixed;

impl Values for Fixed {
    fn output(&self, stack: &StackName, key: &str) -> Option<(Value, bool)> {
        match (stack.as_str(), key) {
            ("up", "id") => Some((json!("net-1"), false)),
            ("up", "key") => Some((json!("hush"), true)),
            ("up", "map") => Some((json!({ "a": [1, 2] }), false)),
            _ => None,
        }
    }

    fn env(&self, name: &str) -> Option<String> {
        (name == "LATER").then(|| "later".to_owned())
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        (reference == "file:key").then(|| Secret::new("s3cret"))
    }
}

const UP: &str = r#"
stack "up" {
  path = "up"
  target = "t"
  layer = "low"
}
== up/main.tf
output "id" { value = 1 }
output "key" { value = 1 }
output "map" { value = 1 }
output "none" { value = 1 }
== m/main.tf
variable "v" { default = null }
== note.txt
noted
"#;

/// One input of a stack: its form after loading, and its later value.
#[track_caller]
fn input(expression: &str) -> String {
    let text = format!(
        "{BASE}stack \"s\" {{\n  path = \"m\"\n  target = \"t\"\n  layer = \"high\"\n  inputs = {{ v = {expression} }}\n}}\n{UP}"
    );
    let loaded = load_tree(&tree(&text));
    if loaded.has_errors() {
        return rendered(&loaded);
    }
    let project = loaded.project.unwrap();
    let input = &project.stacks[&"s".parse::<StackName>().unwrap()].inputs["v"];
    match input {
        Input::Known(value) => value.to_string(),
        Input::Expression(expression) => {
            let worth = match evaluate(input, &Fixed) {
                Ok(evaluated) if evaluated.sensitive => format!("{} (sensitive)", evaluated.value),
                Ok(evaluated) => evaluated.value.to_string(),
                Err(err) => format!("error: {err}"),
            };
            format!(
                "{worth} from {} with {}",
                expression.text,
                json!(expression.names)
            )
        }
    }
}

#[test]
fn known_values() {
    let cases = [
        r#""a-${1 + 2 * 3}-${true}""#,
        r#"upper("x")"#,
        r#"join(",", concat(["a"], split("-", "b-c")))"#,
        r#"format("%s|%03d|%-4s|%.2f|%q|%%", "a", 7, "b", 1.5, "c")"#,
        "merge({ a = 1, b = 1 }, { b = 2 })",
        r#"lookup({ a = 1 }, "z", "none")"#,
        r#"try({}.a, "rescued")"#,
        r#"jsondecode("{\"a\": [1, null]}").a"#,
        r#"yamldecode("a:\n  - 1\n  - ~\n  - \"on\"\n").a"#,
        r#"[for i, x in ["a", "b"] : "${i}${x}" if x != "a"]"#,
        "{ for k, x in { a = 1, b = 2 } : upper(k) => x * 2 }",
        r#"{ for x in ["aa", "ab", "b"] : replace(x, "a", "") => x... }"#,
        "[{ n = 1 }, { n = 2 }][*].n",
        "1 < 2 && !false ? -5 / 2 : 0",
        r#""%{ for x in [1, 2] ~} ${x}, %{ endfor ~} end""#,
        "<<-EOT\n    a\n      b ${1}\n    EOT\n",
        r#"file("note.txt")"#,
        r#"fileexists("none.txt")"#,
        r#""${stack.name} ${stack.state} ${target.name} ${project.name} ${git.branch}""#,
        "10 % 3",
        "9223372036854775807 + 1",
    ];
    let out: String = cases.iter().map(|case| input(case) + "\n").collect();
    insta::assert_snapshot!(out, @r#"
    "a-7-true"
    "X"
    "a,b,c"
    "a|007|b   |1.50|\"c\"|%"
    {"a":1,"b":2}
    "none"
    "rescued"
    [1,null]
    [1,null,"on"]
    ["1b"]
    {"A":2,"B":4}
    {"":["aa"],"b":["ab","b"]}
    [1,2]
    -2.5
    "1, 2, end"
    "a\n  b 1\n"
    "noted\n"
    false
    "s s t p main"
    1
    9.223372036854776e+18
    "#);
}

#[test]
fn values_known_later() {
    let cases = [
        "stack.up.output.id",
        r#""${stack.up.output.id}/${stack.name}""#,
        r#"stack["up"].output.map.a[1]"#,
        "stack.up.output.key",
        "stack.up.output.none",
        r#"env("LATER")"#,
        r#"env("NEVER", "default")"#,
        r#"env("NEVER")"#,
        r#"try(stack.up.output.none, "fallback")"#,
        r#"true ? "plain" : stack.up.output.id"#,
        r#""${git.commit} ${file("note.txt")}${stack.up.output.id}""#,
    ];
    let out: String = cases.iter().map(|case| input(case) + "\n").collect();
    insta::assert_snapshot!(out, @r#"
"net-1" from stack.up.output.id with {}
"net-1/s" from "${stack.up.output.id}/${stack.name}" with {"stack":{"name":"s"}}
2 from stack["up"].output.map.a[1] with {}
"hush" (sensitive) from stack.up.output.key with {}
error: output `none` of stack `up` is not known from stack.up.output.none with {}
"later" from env("LATER") with {}
"default" from env("NEVER", "default") with {}
error: `NEVER` is not set in the environment from env("NEVER") with {}
"fallback" from try(stack.up.output.none, "fallback") with {}
"plain"
"3f9c1e2 noted\nnet-1" from "${git.commit} ${file("note.txt")}${stack.up.output.id}" with {"file":{"note.txt":"noted\n"},"git":{"commit":"3f9c1e2"}}
"#);
}

#[test]
fn inputs_that_are_not_written_out_are_taken_apart() {
    let text = format!(
        "{BASE}stack \"s\" {{\n  path = \"m\"\n  target = \"t\"\n  layer = \"high\"\n  inputs = merge({{ v = stack.up.output.id }}, {{}})\n}}\n{UP}"
    );
    let loaded = load_tree(&tree(&text));
    assert_eq!(rendered(&loaded), "");
    let project = loaded.project.unwrap();
    let stack = &project.stacks[&"s".parse::<StackName>().unwrap()];
    assert_eq!(
        evaluate(&stack.inputs["v"], &Fixed).unwrap().value,
        json!("net-1")
    );
    assert_eq!(stack.edges.len(), 1);
}

#[test]
fn values_that_are_wrong() {
    let cases = [
        "nope",
        "stack.up",
        "stack.up.id",
        "stack.up.output.idd",
        "output.id",
        r#"secret("file:key")"#,
        "uper(1)",
        "upper(1, 2)",
        "1 + \"a\"",
        "[1][5]",
        "each.key",
        "dir.path",
        r#"file("../x")"#,
        r#"file("none.txt")"#,
        r#"yamldecode("a: [")"#,
        r#"jsondecode("{")"#,
        "1 / 0",
        "null.a",
    ];
    let out: String = cases.iter().map(|case| input(case) + "\n").collect();
    insta::assert_snapshot!(out, @"
    error unknown-reference: nothing is called `nope` here
      terrane.hcl:9:18 here
      hint: there are `each`, `dir`, `project`, `target`, `stack` and `git`

    error misplaced-reference: a whole stack is allowed only in `after`
      terrane.hcl:9:18 here
      hint: an output is written as `stack.up.output.KEY`

    error invalid-expression: of a stack only its outputs can be used: `stack.up.output.KEY`
      terrane.hcl:9:18 here

    error unknown-output: stack `up` has no output `idd`
      terrane.hcl:9:18 the module in `up` declares no such output
      hint: did you mean `id`?

    error misplaced-reference: an output of this stack is allowed only in `publish`, `bootstrap` and `gate`
      terrane.hcl:9:18 here

    error misplaced-reference: a secret is allowed only in `env`, `vars`, `files` and `secret` of a context, in `facts`, `bootstrap` and `gate`
      terrane.hcl:9:18 here

    error unknown-function: there is no function `uper`
      terrane.hcl:9:18 here
      hint: did you mean `upper`?

    error invalid-expression: `upper` is called as `upper(TEXT)`
      terrane.hcl:9:18 here

    error invalid-expression: `+` requires two numbers, these are a number and a string
      terrane.hcl:9:18 here

    error invalid-expression: there is no item 5 in a list of 1
      terrane.hcl:9:18 here

    error invalid-expression: `each` is known only beside `for_each`
      terrane.hcl:9:18 here

    error invalid-expression: `dir` is known only in `discover`
      terrane.hcl:9:18 here

    error path-leaves-project: `../x` leaves the project
      terrane.hcl:9:18 here

    error missing-file: there is no file `none.txt`
      terrane.hcl:9:18 here
      hint: paths count from the project's root

    error invalid-expression: this is not YAML: line 2, column 1
      terrane.hcl:9:18 here

    error invalid-expression: this is not JSON: line 1, column 1
      terrane.hcl:9:18 here

    error invalid-expression: this calculation has no finite result
      terrane.hcl:9:18 here

    error invalid-expression: null has no parts
      terrane.hcl:9:18 here
    ");
}

#[test]
fn backends_and_contexts_are_bound_to_a_stack() {
    let text = format!(
        r#"project "p" {{}}
layer "low" {{ order = 0 }}
target "t" {{
  writers = ["anyone"]
  backend "s3" {{
    bucket = env("LATER")
    key    = "${{stack.state}}.tfstate"
    lock   = true
  }}
}}
context "c" {{
  autoattach = ["target:t"]
  env        = {{ A = "plain", B = secret("file:key"), C = "x-${{stack.name}}", D = env("LATER"), E = env("LATER", "x"), F = try(env("LATER"), "x") }}
}}
{UP}"#
    );
    let loaded = load_tree(&tree(&text));
    assert_eq!(rendered(&loaded), "");
    let project = loaded.project.unwrap();
    let stack = &project.stacks[&"up".parse::<StackName>().unwrap()];
    let Backend::Engine { settings, .. } = &project.targets["t"].backend else {
        panic!("an engine's backend")
    };
    let mut out = String::new();
    for (name, input) in settings.iter().chain(&project.contexts["c"].env) {
        let stored = serde_json::to_string(input).unwrap();
        let worth = evaluate(&for_stack(input, stack), &Fixed);
        _ = writeln!(out, "{name}: {stored} -> {worth:?}");
    }
    insta::assert_snapshot!(out, @r#"
bucket: {"expression":{"text":"env(\"LATER\")","names":{},"needs":{"outputs":[],"env":["LATER"],"secrets":[]}}} -> Ok("later")
key: {"expression":{"text":"\"${stack.state}.tfstate\"","names":{},"needs":{"outputs":[],"env":[],"secrets":[]}}} -> Ok("up.tfstate")
lock: {"known":true} -> Ok(true)
A: {"known":"plain"} -> Ok("plain")
B: {"expression":{"text":"secret(\"file:key\")","names":{},"needs":{"outputs":[],"env":[],"secrets":["file:key"]}}} -> Ok([sensitive])
C: {"expression":{"text":"\"x-${stack.name}\"","names":{},"needs":{"outputs":[],"env":[],"secrets":[]}}} -> Ok("x-up")
D: {"expression":{"text":"env(\"LATER\")","names":{},"needs":{"outputs":[],"env":["LATER"],"secrets":[]}}} -> Ok("later")
E: {"expression":{"text":"env(\"LATER\", \"x\")","names":{},"needs":{"outputs":[],"env":[],"env_if_set":["LATER"],"secrets":[]}}} -> Ok("later")
F: {"expression":{"text":"try(env(\"LATER\"), \"x\")","names":{},"needs":{"outputs":[],"env":[],"env_if_set":["LATER"],"secrets":[]}}} -> Ok("later")
"#);
}

/// Programs and files count as source wherever they are known, whatever is next to them.
#[test]
fn words_are_known_one_by_one() {
    let check = |text: &str, expected: &[Option<&str>]| {
        let expression = crate::hcl::expression::Expression {
            text: text.to_owned(),
            names: BTreeMap::from([("dir".to_owned(), json!("tools"))]),
            needs: crate::hcl::expression::Needs::default(),
        };
        let words = known_words(&Input::Expression(expression));
        let words: Vec<_> = words.iter().map(Option::as_deref).collect();
        assert_eq!(words, expected, "{text}");
    };
    let login = Some("./login.sh");
    check(r#"["./login.sh", env("REGION")]"#, &[login, None]);
    check(r#"["./login.sh", each.value]"#, &[login, None]);
    check(
        r#"["${dir}/login.sh", output.ip]"#,
        &[Some("tools/login.sh"), None],
    );
    check(
        r#"concat(["./login.sh"], [secret("env:X")])"#,
        &[login, None],
    );
    check(r#"env("PROGRAM")"#, &[]);
}

#[test]
fn an_error_says_what_is_missing_and_shows_no_value() {
    let needs = crate::hcl::expression::Needs::default();
    let expression = crate::hcl::expression::Expression {
        text: "stack.up.output.key + 1".to_owned(),
        names: BTreeMap::new(),
        needs,
    };
    let err = evaluate(&Input::Expression(expression), &Fixed).unwrap_err();
    assert_eq!(
        err,
        EvaluateError::Invalid {
            text: "stack.up.output.key + 1".to_owned(),
            why: "it does not fit the values that were given".to_owned()
        }
    );
}
