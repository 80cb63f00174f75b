//! What expressions are worth, while loading and later.

use super::*;
use crate::config::eval::{EvaluateError, Values, evaluate, for_stack};
use crate::ids::StackName;
use crate::project::{Backend, Input};
use crate::secret::Secret;

/// The same values for everybody.
pub(in crate::config::tests) struct Fixed;

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

/// One input of a stack: what it is after loading, and what it is worth later.
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
        r#"merge({ a = 1, b = 1 }, { b = 2 })"#,
        r#"lookup({ a = 1 }, "z", "none")"#,
        r#"try({}.a, "rescued")"#,
        r#"jsondecode("{\"a\": [1, null]}").a"#,
        r#"[for i, x in ["a", "b"] : "${i}${x}" if x != "a"]"#,
        r#"{ for k, x in { a = 1, b = 2 } : upper(k) => x * 2 }"#,
        r#"{ for x in ["aa", "ab", "b"] : replace(x, "a", "") => x... }"#,
        r#"[{ n = 1 }, { n = 2 }][*].n"#,
        r#"1 < 2 && !false ? -5 / 2 : 0"#,
        r#""%{ for x in [1, 2] ~} ${x}, %{ endfor ~} end""#,
        "<<-EOT\n    a\n      b ${1}\n    EOT\n",
        r#"file("note.txt")"#,
        r#"fileexists("none.txt")"#,
        r#""${stack.name} ${stack.state} ${target.name} ${project.name} ${git.branch}""#,
        r#"10 % 3"#,
        r#"9223372036854775807 + 1"#,
    ];
    let out: String = cases.iter().map(|case| input(case) + "\n").collect();
    insta::assert_snapshot!(out, @"");
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
    insta::assert_snapshot!(out, @"");
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
        r#"yamldecode("a: 1")"#,
        r#"jsondecode("{")"#,
        "1 / 0",
        "null.a",
    ];
    let out: String = cases.iter().map(|case| input(case) + "\n").collect();
    insta::assert_snapshot!(out, @"");
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
  env        = {{ A = "plain", B = secret("file:key"), C = "x-${{stack.name}}", D = env("LATER") }}
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
    insta::assert_snapshot!(out, @"");
}

#[test]
fn an_error_says_what_is_missing_and_shows_no_value() {
    let needs = crate::project::Needs::default();
    let expression = crate::project::Expression {
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
