//! Writes a partly known value as HCL. Known parts are literals, so that known keys of a `for_each` are known. Each
//! unknown part is an unknown value of its declared type. The engine converts the known parts to the declared type.

use std::fmt::Write as _;

use hcl_edit::expr::{Expression, FuncCall, ObjectKey};
use serde_json::Value;

use super::unknown_type;
use crate::base::exact_number::digits;
use crate::plan::placeholders::words;

pub(super) struct PartialValue {
    pub(super) text: String,
    /// Lines of the added resource's input, for the unknown parts.
    pub(super) samples: String,
}

/// None if it cannot be written exactly. Then the whole value counts as unknown.
pub(super) fn write(
    value: &Value,
    declared: Option<&str>,
    name: &str,
    prefix: &str,
) -> Option<PartialValue> {
    let declared = declared.and_then(|text| hcl_edit::parser::parse_expr(text).ok());
    let mut writer = Writer {
        name,
        prefix,
        samples: String::new(),
        count: 0,
    };
    let text = writer.value(value, declared.as_ref())?;
    Some(PartialValue {
        text,
        samples: writer.samples,
    })
}

struct Writer<'a> {
    name: &'a str,
    prefix: &'a str,
    samples: String,
    /// The number of unknown values so far.
    count: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, declared: Option<&Expression>) -> Option<String> {
        let declared = declared.map(without_optional);
        if words(value).is_some() {
            return Some(self.unknown(declared));
        }
        if let Some(digits) = digits(value) {
            return Some(digits.to_owned());
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::String(text) => quoted(text),
            Value::Array(items) => self.items(items, declared),
            Value::Object(fields) => {
                let call = declared.and_then(Expression::as_func_call);
                let inner = |key: &str| field_type(call?, key);
                let mut written = Vec::new();
                for (key, field) in fields {
                    let field = self.value(field, inner(key))?;
                    written.push(format!("{} = {field}", quoted(key)?));
                }
                Some(format!("{{ {} }}", written.join(", ")))
            }
        }
    }

    fn items(&mut self, items: &[Value], declared: Option<&Expression>) -> Option<String> {
        let call = declared.and_then(Expression::as_func_call);
        let kind = call.map_or("", |call| call.name.name.as_str());
        let inner = call.and_then(|call| call.args.get(0));
        let mut written = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let declared = match kind {
                "list" | "set" => inner,
                "tuple" => inner.and_then(|types| types.as_array()?.get(at)),
                _ => None,
            };
            written.push(self.value(item, declared)?);
        }
        Some(format!("[{}]", written.join(", ")))
    }

    fn unknown(&mut self, declared: Option<&Expression>) -> String {
        let prefix = self.prefix;
        let Some(sample) = declared.and_then(unknown_type::of_type) else {
            return unknown_type::of_any(None, prefix);
        };
        self.count += 1;
        let name = format!("{}_{}", self.name, self.count);
        _ = writeln!(self.samples, "    {name} = {sample}");
        format!("terraform_data.{prefix}.output.{name}")
    }
}

/// The declared type of one field of a `map` or an `object`.
fn field_type<'e>(call: &'e FuncCall, key: &str) -> Option<&'e Expression> {
    let inner = call.args.get(0)?;
    if call.name.name.as_str() == "map" {
        return Some(inner);
    }
    let mut fields = inner.as_object()?.iter();
    let found = fields.find(|(name, _)| match name {
        ObjectKey::Ident(name) => name.as_str() == key,
        ObjectKey::Expression(Expression::Variable(name)) => name.as_str() == key,
        ObjectKey::Expression(expr) => expr.as_str() == Some(key),
    });
    found.map(|(_, value)| value.expr())
}

/// `optional(string)` is a string if it is set.
fn without_optional(declared: &Expression) -> &Expression {
    let call = declared.as_func_call();
    let call = call.filter(|call| call.name.name.as_str() == "optional");
    call.and_then(|call| call.args.get(0)).unwrap_or(declared)
}

/// A literal without templates.
fn quoted(text: &str) -> Option<String> {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    let quoted = Value::from(text).to_string();
    let quoted = quoted.replace("${", "$${").replace("%{", "%%{");
    text.chars().all(is_plain).then_some(quoted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::placeholders;

    #[track_caller]
    fn check(value: &Value, declared: Option<&str>, text: &str, samples: &str) {
        let written = write(value, declared, "v", "p").unwrap();
        assert_eq!(
            (written.text.as_str(), written.samples.as_str()),
            (text, samples)
        );
    }

    #[test]
    fn what_is_known_stands_there_and_the_rest_has_its_type() {
        let later = placeholders::of("(known after apply)");
        check(
            &json!([{ "zone": "a", "name": later, "nodes": later }]),
            Some("list(object({ zone = string, name = optional(string), nodes = number }))"),
            "[{ \"zone\" = \"a\", \"name\" = terraform_data.p.output.v_1, \"nodes\" = terraform_data.p.output.v_2 }]",
            "    v_1 = \"\"\n    v_2 = 0\n",
        );
        check(
            &json!({ "${a}": later, "b": "50%{x}" }),
            Some("map(string)"),
            "{ \"$${a}\" = terraform_data.p.output.v_1, \"b\" = \"50%%{x}\" }",
            "    v_1 = \"\"\n",
        );
        check(
            &json!([1, later, null]),
            None,
            "[1, jsondecode(terraform_data.p.id), null]",
            "",
        );
        assert!(write(&json!(["\u{7}"]), None, "v", "p").is_none());
    }
}
