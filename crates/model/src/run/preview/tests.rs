//! Modules before and after rewriting, and plans of the rewritten ones.

use proptest::prelude::*;

use super::*;
use crate::base::tree::MemoryTree;

fn unknowns(names: &[&str]) -> UnknownVariables {
    let stack: StackName = "network".parse().unwrap();
    let all = names
        .iter()
        .map(|name| ((*name).to_owned(), BTreeSet::from([stack.clone()])));
    all.collect()
}

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    files
        .iter()
        .map(|(path, text)| (format!("m/{path}"), *text))
        .collect()
}

fn rewritten(files: &[(&str, &str)], names: &[&str]) -> Result<RewrittenModule, RewriteError> {
    rewrite(
        &tree(files),
        "m",
        Flavor::Tofu,
        &unknowns(names),
        &PartialValues::new(),
    )
}

#[track_caller]
fn check_expression(before: &str, after: &str) {
    let file = |expression: &str| format!("output \"o\" {{\n  value = {expression}\n}}\n");
    let done = rewritten(&[("main.tf", &file(before))], &["a"]).unwrap();
    let text = done.files.get("main.tf").cloned();
    assert_eq!(text.unwrap_or_else(|| file(before)), file(after));
}

#[test]
fn a_variable_is_replaced_where_it_stands() {
    check_expression("var.a", "local.terrane_preview_a");
    check_expression("var.ab", "var.ab");
    check_expression("var . a", "local.terrane_preview_a");
    check_expression("var.a.b[0]", "local.terrane_preview_a.b[0]");
    check_expression("var.a[*].id", "local.terrane_preview_a[*].id");
    check_expression("x[var.a]", "x[local.terrane_preview_a]");
    check_expression(
        "\"${var.a}-$${var.a}\"",
        "\"${local.terrane_preview_a}-$${var.a}\"",
    );
    check_expression(
        "\"é ${upper(\"${var.a}\")}\"",
        "\"é ${upper(\"${local.terrane_preview_a}\")}\"",
    );
    check_expression(
        "<<-EOT\n    é ${var.a}\n      %{ for x in var.a ~}${x}${var.a}%{ endfor }\n  EOT",
        "<<-EOT\n    é ${local.terrane_preview_a}\n      %{ for x in local.terrane_preview_a ~}${x}${local.terrane_preview_a}%{ endfor }\n  EOT",
    );
    check_expression(
        "{ var = var.a, (var.a) = 1 }",
        "{ var = local.terrane_preview_a, (local.terrane_preview_a) = 1 }",
    );
    check_expression(
        "var.a ? -var.a : !(var.a) # var.a",
        "local.terrane_preview_a ? -local.terrane_preview_a : !(local.terrane_preview_a) # var.a",
    );
}

#[test]
fn a_for_may_give_the_name_to_something_else() {
    check_expression(
        "[for var in var.a : var.a if var.a]",
        "[for var in local.terrane_preview_a : var.a if var.a]",
    );
    check_expression(
        "{for k, v in var.a : k => var.a...}",
        "{for k, v in local.terrane_preview_a : k => local.terrane_preview_a...}",
    );
    check_expression(
        "\"%{ for var in var.a }${var.a}%{ endfor }${var.a}\"",
        "\"%{ for var in local.terrane_preview_a }${var.a}%{ endfor }${local.terrane_preview_a}\"",
    );
}

#[test]
fn the_variable_asks_for_nothing_any_more_and_lines_stay() {
    let done = rewritten(
        &[
            (
                "main.tf",
                r#"variable "a" {
  type = object({ id = string, sizes = optional(list(number), []) })
  validation {
    condition     = var.a.id != ""
    error_message = "no id"
  }
} # the one
variable "b" {
  sensitive = true
}
variable "c" {
  type = string
  validation {
    condition     = var.c != var.b
    error_message = "equal"
  }
}
resource "terraform_data" "x" {
  input      = [var.a, var.b, var.c]
  depends_on = [var.a]
}
"#,
            ),
            ("other.tf", "# terrane_preview\nlocals { d = 1 }\n"),
        ],
        &["a", "b"],
    )
    .unwrap();
    insta::assert_snapshot!(done.files["main.tf"], @r#"
    variable "a" { default = null }





     # the one
    variable "b" { default = null }


    variable "c" {
      type = string
      



    }
    resource "terraform_data" "x" {
      input      = [local.terrane_preview2_a, local.terrane_preview2_b, var.c]
      depends_on = [local.terrane_preview2_a]
    }
    "#);
    insta::assert_snapshot!(done.files["terrane_preview2.tf"], @r#"
    resource "terraform_data" "terrane_preview2" {
      input = {
        a = { "id" = "", "sizes" = tolist([0]) }
      }
    }

    locals {
      terrane_preview2_a = terraform_data.terrane_preview2.output.a
      terrane_preview2_b = sensitive(jsondecode(terraform_data.terrane_preview2.id))
    }
    "#);
    assert_eq!(done.files.len(), 2);
    assert_eq!(
        done.in_words_of_source("`local.terrane_preview2_a` is not known"),
        "`var.a` is not known"
    );
}

#[test]
fn json_is_rewritten_inside_of_its_strings() {
    let done = rewritten(
        &[(
            "main.tf.json",
            r#"{
  "//": "${var.a}",
  "variable": { "a": { "type": "string", "validation": {} }, "b": { "validation": [{ "condition": "${var.a}" }] } },
  "locals": [{ "l": "${var.a}" }],
  "resource": { "terraform_data": { "x": {
    "input": ["${var.a}", "var.a", { "k${var.a}": 1 }, "${"],
    "depends_on": ["var.a", "terraform_data.y"]
  } } }
}"#,
        )],
        &["a"],
    )
    .unwrap();
    insta::assert_snapshot!(done.files["main.tf.json"], @r#"
    {
      "//": "${var.a}",
      "variable": {
        "a": {
          "default": null
        },
        "b": {}
      },
      "locals": [
        {
          "l": "${local.terrane_preview_a}"
        }
      ],
      "resource": {
        "terraform_data": {
          "x": {
            "input": [
              "${local.terrane_preview_a}",
              "var.a",
              {
                "k${local.terrane_preview_a}": 1
              },
              "${"
            ],
            "depends_on": [
              "local.terrane_preview_a",
              "terraform_data.y"
            ]
          }
        }
      }
    }
    "#);
}

#[test]
fn what_must_be_known_early_cannot_be_replaced() {
    let say = |text| {
        rewritten(&[("main.tf", text)], &["a"])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        say("module \"m\" {\n  source = \"./${var.a}\"\n}\n"),
        "`var.a` determines the source of module `m`, which must be known before planning"
    );
    assert_eq!(
        say("terraform {\n  backend \"local\" {\n    path = var.a\n  }\n}\n"),
        "`var.a` determines a setting of the engine, which must be known before planning"
    );
    let json = r#"{ "module": { "m": { "source": "${var.a}" } } }"#;
    assert!(rewritten(&[("main.tf.json", json)], &["a"]).is_err());
    assert!(say("a = {").contains("syntax error"));
}

#[test]
fn a_type_has_a_sample_unless_the_value_decides_it() {
    let say = |declared| {
        unknown_type::sample(declared).unwrap_or_else(|| unknown_type::of_any(Some(declared), "r"))
    };
    let types = [
        "string",
        "number",
        "bool",
        "any",
        "list(string)",
        "set(bool)",
        "map(list(number))",
        "list(any)",
        "map",
        "tuple([string, number])",
        "object({})",
        "object({ a = optional(string, \"x\"), \"b-c\" = set(object({ d = bool })) })",
        "object({ a = any })",
        "\"string\"",
    ];
    let all: Vec<String> = types
        .iter()
        .map(|declared| format!("{declared}: {}", say(declared)))
        .collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    string: ""
    number: 0
    bool: false
    any: jsondecode(terraform_data.r.id)
    list(string): tolist([""])
    set(bool): toset([false])
    map(list(number)): tomap({ key = tolist([0]) })
    list(any): tolist(jsondecode(terraform_data.r.id))
    map: tomap(jsondecode(terraform_data.r.id))
    tuple([string, number]): ["", 0]
    object({}): {  }
    object({ a = optional(string, "x"), "b-c" = set(object({ d = bool })) }): { "a" = "", "b-c" = toset([{ "d" = false }]) }
    object({ a = any }): jsondecode(terraform_data.r.id)
    "string": ""
    "#);
}

/// Expressions that contain `var.a`, and others that only seem to.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("var.a".to_owned()),
        Just("var.b".to_owned()),
        Just("\"var.a\"".to_owned()),
        Just("\"$${var.a} ü\"".to_owned()),
        Just("local.a".to_owned()),
        Just("x.var.a".to_owned()),
        Just("null /* var.a */".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("f({a}, {b})")),
            inner.clone().prop_map(|a| format!("\"é${{{a}}}\"")),
            inner
                .clone()
                .prop_map(|a| format!("[for v in {a} : v.var]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[for var in {a} : [{b}]]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{ a = {a}, ({b}) = 1 }}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a}) ? ({b})[0] : var.a[*].x")),
        ]
    })
}

proptest! {
    /// The result is valid HCL without a use of the variable, and is otherwise unchanged.
    #[test]
    fn a_rewritten_module_says_the_same(expressions in proptest::collection::vec(expression(), 1..4)) {
        let mut text = String::new();
        for (number, expression) in expressions.iter().enumerate() {
            _ = write!(text, "output \"o{number}\" {{\n  value = {expression}\n}}\n");
        }
        let done = rewritten(&[("main.tf", &text)], &["a"]).unwrap();
        let after = done.files.get("main.tf").unwrap_or(&text);
        prop_assert_eq!(after.replace("local.terrane_preview_a", "var.a"), text.clone());
        let again = rewrite(&tree(&[("main.tf", after)]), "m", Flavor::Tofu, &unknowns(&["a"]), &PartialValues::new()).unwrap();
        prop_assert!(!again.files.contains_key("main.tf"), "{after}");
    }
}
