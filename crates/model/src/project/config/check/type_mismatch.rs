//! Whether a literal value matches the type that a variable declares, by the engines' conversion rules.
//!
//! Not here: values that are only known later, and types that we cannot read. The engine checks those.

use hcl_edit::expr::{Expression, FuncCall, ObjectKey};
use serde_json::Value;

use crate::base::exact_number::digits;

/// Describes a mismatch without the value. None if the value matches or this cannot be determined.
pub(crate) fn type_mismatch(value: &Value, declared: &str) -> Option<String> {
    let declared = hcl_edit::parser::parse_expr(declared).ok()?;
    check(value, &declared)
}

fn check(value: &Value, declared: &Expression) -> Option<String> {
    if value.is_null() {
        return None; // the engine checks whether it may be null
    }
    if digits(value).is_some() {
        return check(&Value::from(0), declared); // checked like any other number
    }
    match declared {
        Expression::Variable(name) => primitive(value, name.as_str()),
        Expression::FuncCall(call) => collection(value, call),
        _ => None,
    }
}

fn primitive(value: &Value, name: &str) -> Option<String> {
    let fits = match (name, value) {
        ("string", Value::String(_) | Value::Number(_) | Value::Bool(_))
        | ("number", Value::Number(_))
        | ("bool", Value::Bool(_)) => true,
        ("number", Value::String(text)) => text.parse::<f64>().is_ok(),
        ("bool", Value::String(text)) => matches!(text.as_str(), "true" | "false" | "1" | "0"),
        ("string" | "number" | "bool", _) => false,
        _ => return None, // `any`, and unknown types
    };
    (!fits).then(|| format!("{}, not {}", what(value), article(name)))
}

fn collection(value: &Value, call: &FuncCall) -> Option<String> {
    let name = call.name.name.as_str();
    let inner = call.args.get(0)?;
    match (name, value) {
        ("optional", _) => check(value, inner),
        ("list" | "set", Value::Array(items)) => items
            .iter()
            .find_map(|item| check(item, inner))
            .map(|why| format!("{} with {why} in it", article(name))),
        ("map", Value::Object(fields)) => fields.iter().find_map(|(key, field)| {
            check(field, inner).map(|why| format!("a map in which `{key}` is {why}"))
        }),
        ("object", Value::Object(fields)) => object(fields, inner),
        ("list" | "set" | "map" | "object", _) => {
            Some(format!("{}, not {}", what(value), article(name)))
        }
        _ => None,
    }
}

fn object(fields: &serde_json::Map<String, Value>, declared: &Expression) -> Option<String> {
    let Expression::Object(declared) = declared else {
        return None;
    };
    declared.iter().find_map(|(key, declared)| {
        let key = match key {
            ObjectKey::Ident(name) => name.as_str(),
            ObjectKey::Expression(Expression::Variable(name)) => name.as_str(),
            ObjectKey::Expression(_) => return None,
        };
        let declared = declared.expr();
        let is_optional =
            matches!(declared, Expression::FuncCall(call) if call.name.name.as_str() == "optional");
        match fields.get(key) {
            Some(field) => {
                check(field, declared).map(|why| format!("an object in which `{key}` is {why}"))
            }
            None if is_optional => None,
            None => Some(format!("an object without `{key}`")),
        }
    })
}

fn article(name: &str) -> String {
    if name == "object" {
        return "an object".to_owned();
    }
    format!("a {name}")
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::type_mismatch;

    #[track_caller]
    fn check(value: &str, declared: &str, expected: &str) {
        let value = crate::base::exact_number::read(value).unwrap();
        assert_eq!(
            type_mismatch(&value, declared).unwrap_or_default(),
            expected
        );
    }

    #[test]
    fn engines_convert_between_primitives_where_they_can() {
        check("123456789012345678901234", "number", "");
        check("123456789012345678901234", "bool", "a number, not a bool");
        check("\"a\"", "string", "");
        check("3", "string", "");
        check("\"3\"", "number", "");
        check("\"three\"", "number", "a string, not a number");
        check("\"true\"", "bool", "");
        check("1", "bool", "a number, not a bool");
        check("[]", "string", "a list, not a string");
        check("null", "number", "");
        check("{}", "any", "");
    }

    #[test]
    fn collections_are_looked_into() {
        check("[1, \"2\"]", "list(number)", "");
        check(
            "[1, \"x\"]",
            "set(number)",
            "a set with a string, not a number in it",
        );
        check("\"a\"", "list(string)", "a string, not a list");
        check(
            "{\"a\": []}",
            "map(string)",
            "a map in which `a` is a list, not a string",
        );
        check(
            "{\"a\": 1}",
            "object({ a = number, b = optional(string) })",
            "",
        );
        check(
            "{\"a\": 1}",
            "object({ a = number, b = string })",
            "an object without `b`",
        );
        check("[1]", "object({})", "a list, not an object");
        check("[1]", "tuple([string])", "");
        check("[1]", "no type at all", "");
    }
}
