//! The path of a field in an object: `status.loadBalancer.ingress[0].ip`, `status.conditions[type=Ready].status`,
//! `metadata.annotations["example.io/a"]`, `spec.listeners[*].port`.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// Steps from an object to a field. A leading dot and the braces of a JSON path are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    steps: Vec<PathSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathSegment {
    Key(String),
    Index(usize),
    All,
    Where { key: String, value: String },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid field path: {why}")]
pub struct FieldPathError {
    text: String,
    why: &'static str,
}

impl FieldPath {
    /// The values at this path: several if a step selects several, none if there is nothing.
    pub fn find<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| take(step, value))
                .collect();
        }
        found
    }
}

fn take<'v>(step: &PathSegment, value: &'v Value) -> Vec<&'v Value> {
    let entries = || value.as_array().into_iter().flatten();
    match step {
        PathSegment::Key(key) => value.get(key).into_iter().collect(),
        PathSegment::Index(index) => value.get(index).into_iter().collect(),
        PathSegment::All => match value {
            Value::Object(map) => map.values().collect(),
            _ => entries().collect(),
        },
        PathSegment::Where { key, value } => entries()
            .filter(|entry| entry.get(key).is_some_and(|found| is(found, value)))
            .collect(),
    }
}

/// A condition writes its value without quotes, whatever its type.
fn is(found: &Value, text: &str) -> bool {
    match found {
        Value::String(found) => found == text,
        other => serde_json::from_str::<Value>(text).is_ok_and(|text| text == *other),
    }
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, FieldPathError> {
        let failed = |why| FieldPathError {
            text: text.to_owned(),
            why,
        };
        let trimmed = text.trim();
        let inner = trimmed
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(trimmed);
        let mut rest = inner.strip_prefix('.').unwrap_or(inner);
        if rest.is_empty() {
            return Err(failed("it is empty"));
        }
        let mut steps = Vec::new();
        // Whether a key is allowed here without a preceding dot.
        let mut begins = true;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (step, after) = bracket(after).map_err(failed)?;
                steps.push(step);
                rest = after;
            } else {
                let key = match rest.strip_prefix('.') {
                    Some(key) if !begins => key,
                    None if begins => rest,
                    _ => return Err(failed("a name is missing, or the dot before it")),
                };
                let end = key.find(['.', '[']).unwrap_or(key.len());
                if end == 0 {
                    return Err(failed("a name is missing"));
                }
                steps.push(PathSegment::Key(key[..end].to_owned()));
                rest = &key[end..];
            }
            begins = false;
        }
        Ok(Self {
            text: inner.to_owned(),
            steps,
        })
    }
}

/// The step inside brackets, and the rest of the text.
fn bracket(text: &str) -> Result<(PathSegment, &str), &'static str> {
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let (key, after) = quoted.split_once(quote).ok_or("a quote is not closed")?;
            let after = after.strip_prefix(']').ok_or("a bracket is not closed")?;
            return Ok((PathSegment::Key(key.to_owned()), after));
        }
    }
    let (inner, after) = text.split_once(']').ok_or("a bracket is not closed")?;
    let step = if inner == "*" {
        PathSegment::All
    } else if let Some((key, value)) = inner.split_once('=') {
        PathSegment::Where {
            key: key.to_owned(),
            value: value.trim_matches(['"', '\'']).to_owned(),
        }
    } else {
        let index = inner.parse();
        PathSegment::Index(
            index.map_err(|_| "brackets hold a number, `*`, `KEY=VALUE` or a quoted name")?,
        )
    };
    Ok((step, after))
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_where_they_are() {
        let object = json!({
            "metadata": {"annotations": {"example.io/a": "x"}},
            "spec": {"listeners": [{"name": "web", "port": 80}, {"name": "tls", "port": 443}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let cases = [
            ("status.conditions[type=Ready].status", "[\"True\"]"),
            ("{.status.conditions[0].type}", "[\"Ready\"]"),
            (".spec.listeners[*].port", "[80,443]"),
            ("spec.listeners[port=443].name", "[\"tls\"]"),
            ("metadata.annotations[\"example.io/a\"]", "[\"x\"]"),
            ("metadata.annotations['example.io/a']", "[\"x\"]"),
            ("status.nothing[3].here", "[]"),
        ];
        for (path, expected) in cases {
            let path: FieldPath = path.parse().unwrap();
            let found = serde_json::to_string(&path.find(&object)).unwrap();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_none_says_why() {
        let cases = [
            ("", "it is empty"),
            ("a..b", "a name is missing"),
            ("a[", "a bracket is not closed"),
            (
                "a[x]",
                "brackets hold a number, `*`, `KEY=VALUE` or a quoted name",
            ),
            ("a[\"x]", "a quote is not closed"),
            ("a[0]b", "a name is missing, or the dot before it"),
        ];
        for (path, why) in cases {
            let err = path.parse::<FieldPath>().unwrap_err();
            assert_eq!(
                err.to_string(),
                format!("`{path}` is not a valid field path: {why}")
            );
        }
    }
}
