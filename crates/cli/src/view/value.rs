//! Values in HCL notation: `{ port = 80, hosts = ["a"] }`.

use model::base::exact_number::digits;
use model::plan::placeholders::words;
use serde_json::{Map, Value};

use super::text::{quote, width};

/// A value on one line, however long.
pub(crate) fn one_line(value: &Value) -> String {
    if let Some(bare) = digits(value).or_else(|| words(value)) {
        return bare.to_owned();
    }
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{} = {}", key(name), one_line(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

/// A value in as few lines as fit in `columns`; parts that cannot be broken may be longer.
pub(crate) fn lines(value: &Value, columns: usize) -> Vec<String> {
    let flat = one_line(value);
    if width(&flat) <= columns {
        return vec![flat];
    }
    let inner = columns.saturating_sub(2);
    match value {
        value if digits(value).or_else(|| words(value)).is_some() => vec![flat],
        Value::Array(items) if !items.is_empty() => {
            let items = items.iter().map(|item| with_comma(lines(item, inner)));
            enclose("[", items.flatten(), "]")
        }
        Value::Object(fields) if !fields.is_empty() => {
            enclose("{", object_lines(fields, inner).into_iter(), "}")
        }
        _ => vec![flat],
    }
}

fn object_lines(fields: &Map<String, Value>, columns: usize) -> Vec<String> {
    let names: Vec<String> = fields.keys().map(|name| key(name)).collect();
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let mut all = Vec::new();
    for (name, value) in names.iter().zip(fields.values()) {
        let start = format!("{} = ", super::text::pad(name, widest));
        let mut value = lines(value, columns.saturating_sub(width(&start))).into_iter();
        all.push(format!("{start}{}", value.next().unwrap_or_default()));
        all.extend(value);
    }
    all
}

/// A name as written before `=`: without quotes if HCL allows it.
pub(crate) fn key(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare { name.to_owned() } else { quote(name) }
}

fn with_comma(mut lines: Vec<String>) -> Vec<String> {
    if let Some(last) = lines.last_mut() {
        last.push(',');
    }
    lines
}

fn enclose(open: &str, inner: impl Iterator<Item = String>, close: &str) -> Vec<String> {
    let mut all = vec![open.to_owned()];
    all.extend(inner.map(|line| format!("  {line}")));
    all.push(close.to_owned());
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, columns: usize, expected: &[&str]) {
        assert_eq!(lines(value, columns), expected);
    }

    #[test]
    fn short_values_take_one_line() {
        check(&json!(null), 80, &["null"]);
        check(&json!([]), 80, &["[]"]);
        check(&json!({}), 80, &["{}"]);
        check(
            &json!({"port": 80, "a.b": [true, 1.5, "x\ny"]}),
            80,
            &[r#"{ port = 80, "a.b" = [true, 1.5, "x\ny"] }"#],
        );
    }

    #[test]
    fn long_values_are_broken_where_they_have_parts() {
        check(
            &json!([{"port": 80, "hosts": ["one.example.io", "two.example.io"]}, {"port": 443}]),
            36,
            &[
                "[",
                "  {",
                "    port  = 80",
                "    hosts = [",
                r#"      "one.example.io","#,
                r#"      "two.example.io","#,
                "    ]",
                "  },",
                "  { port = 443 },",
                "]",
            ],
        );
    }
}
