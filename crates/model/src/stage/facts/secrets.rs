//! Finds secrets among facts: values of sensitive outputs, and values that look like secrets.
//!
//! A sensitive output is found by content, even if `values` moved it elsewhere. A value that looks like a secret by its
//! form is refused and never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::{Outputs, field_name};
use crate::base::exact_number;

/// Shorter values occur by chance inside other texts.
const SHORTEST_INSIDE: usize = 6;

/// Leaves of the named fields, each with its output: `name` or `name#/a/b`.
pub(super) fn leaves_of(
    values: &Map<String, Value>,
    names: &BTreeSet<String>,
) -> BTreeMap<String, Option<String>> {
    let mut hidden = BTreeMap::new();
    for (name, value) in values.iter().filter(|(name, _)| names.contains(*name)) {
        let top = format!("/{}", escape(name));
        each_leaf(value, &mut String::new(), &mut |inside, _| {
            hidden.insert(format!("{top}{inside}"), Some(origin(name, inside)));
        });
    }
    hidden
}

/// Whether a public text contains a sensitive output.
pub(super) fn shows(text: &str, outputs: Outputs<'_>) -> bool {
    let secrets = sensitive_texts(outputs);
    let mut long = secrets
        .iter()
        .filter(|(secret, _)| secret.len() >= SHORTEST_INSIDE);
    long.any(|(secret, _)| text.contains(secret.as_str()))
}

/// All texts in sensitive outputs, each with its output.
fn sensitive_texts(outputs: Outputs<'_>) -> Vec<(String, String)> {
    let mut secrets = Vec::new();
    for (name, value) in outputs.values {
        if outputs.sensitive.contains(name) {
            each_leaf(value, &mut String::new(), &mut |inside, text| {
                secrets.push((text, origin(name, inside)));
            });
        }
    }
    secrets
}

/// Leaves of mapped values that contain a sensitive output. `marked`: the values are known to contain something
/// sensitive, so every leaf counts that is not a public output.
pub(super) fn sensitive_leaves(
    values: &Map<String, Value>,
    outputs: Outputs<'_>,
    marked: bool,
) -> BTreeMap<String, Option<String>> {
    let secrets = sensitive_texts(outputs);
    let whole = Value::Object(values.clone());
    let mut hidden = BTreeMap::new();
    each_leaf(&whole, &mut String::new(), &mut |at, text| {
        let is_long = |secret: &str| secret.len() >= SHORTEST_INSIDE;
        let same = secrets
            .iter()
            .find(|(secret, _)| *secret == text && (marked || is_long(secret)));
        let inside = secrets
            .iter()
            .any(|(secret, _)| is_long(secret) && text.contains(secret.as_str()));
        if let Some((_, origin)) = same {
            hidden.insert(at.to_owned(), Some(origin.clone()));
        } else if inside {
            hidden.insert(at.to_owned(), None);
        }
    });
    if !marked {
        return hidden;
    }
    // Some value was computed from a secret and may no longer look like one. Only public outputs stay in clear text.
    let mut plain = BTreeSet::new();
    for (name, value) in outputs.values {
        if !outputs.sensitive.contains(name) {
            each_leaf(value, &mut String::new(), &mut |_, text| {
                plain.insert(text);
            });
        }
    }
    each_leaf(&whole, &mut String::new(), &mut |at, text| {
        if !plain.contains(&text) && !hidden.contains_key(at) {
            hidden.insert(at.to_owned(), None);
        }
    });
    hidden
}

/// Names of clear-text fields that look like a secret, except those declared not to be.
pub(super) fn look_secret(
    values: &Map<String, Value>,
    hidden: &BTreeMap<String, Option<String>>,
    plain: &[String],
) -> Vec<String> {
    let mut fields = Vec::new();
    each_leaf(
        &Value::Object(values.clone()),
        &mut String::new(),
        &mut |at, text| {
            let field = field_name(at);
            if !hidden.contains_key(at) && !plain.contains(&field) && looks_secret(&field, &text) {
                fields.push(field);
            }
        },
    );
    fields
}

/// The objects in which a field name is a secret or looks like one. Field names stay in clear text even if values are
/// encrypted.
pub(super) fn secret_keys(
    values: &Map<String, Value>,
    outputs: Outputs<'_>,
    plain: &[String],
) -> Vec<String> {
    let mut fields = Vec::new();
    let is_secret = |key: &str| has_shape(key) || is_chance(key) || shows(key, outputs);
    each_object(values, &mut String::new(), &mut |at, key| {
        let field = field_name(&format!("{at}/{}", escape(key)));
        if !plain.contains(&field) && is_secret(key) {
            fields.push(field_name(at));
        }
    });
    fields.sort();
    fields.dedup();
    fields
}

/// Every field name, with the pointer of its object.
fn each_object(fields: &Map<String, Value>, at: &mut String, found: &mut impl FnMut(&str, &str)) {
    for (key, value) in fields {
        found(at, key);
        let length = at.len();
        at.push('/');
        at.push_str(&escape(key));
        each_inside(value, at, found);
        at.truncate(length);
    }
}

fn each_inside(value: &Value, at: &mut String, found: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(fields) if exact_number::digits(value).is_none() => {
            each_object(fields, at, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let length = at.len();
                at.push('/');
                at.push_str(&index.to_string());
                each_inside(item, at, found);
                at.truncate(length);
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY          # PEM
        | AGE-SECRET-KEY-1[0-9A-Z]{20}
        | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b           # AWS
        | \bgh[pousr]_[0-9A-Za-z]{30}             # GitHub
        | \bgithub_pat_[0-9A-Za-z_]{30}
        | \bglpat-[0-9A-Za-z_-]{18}               # GitLab
        | \bxox[abeoprs]-[0-9A-Za-z-]{10}         # Slack
        | \b(?:sk|rk)_live_[0-9A-Za-z]{16}        # Stripe
        | \bhv[sb]\.[0-9A-Za-z_-]{20}             # Vault
        | \beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\. # JWT
        | AccountKey=[0-9A-Za-z+/]{20}            # Azure
        | SharedAccessKey=[0-9A-Za-z+/]{20}
        | [?&;]sig=[0-9A-Za-z%+/]{20}             # the signature of a SAS
        | [a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:[^/\s:@]+@ # a password in a URL
        ",
    )
    .ok()
});

/// Whether a text in this field looks like a secret: a known format, random characters, a telling field name, or nested
/// fields that look like secrets.
pub fn looks_secret(field: &str, text: &str) -> bool {
    has_shape(text)
        || is_chance(text)
        || (is_secret_name(field) && is_opaque(text))
        || holds_secret(text)
}

fn has_shape(text: &str) -> bool {
    SHAPES.as_ref().is_some_and(|shapes| shapes.is_match(text))
}

/// Whether a text is JSON, a kubeconfig, settings or a query string with a field that looks like a secret.
fn holds_secret(text: &str) -> bool {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text)
    {
        let mut found = false;
        each_leaf(&inner, &mut String::new(), &mut |at, text| {
            found = found || looks_secret(&field_name(at), &text);
        });
        return found;
    }
    let is_kubeconfig = text.contains("kind: Config") && text.contains("users:");
    let parts = text.split(['\n', ';', '&', '?']);
    let mut fields = parts.filter_map(|part| {
        let (name, value) = part.split_once([':', '='])?;
        let name = name.trim_start_matches("export ");
        let clean = |text: &str| {
            let is_mark = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '-');
            text.trim_matches(is_mark).to_owned()
        };
        Some((clean(name), clean(value)))
    });
    fields.any(|(name, value)| {
        let is_key = matches!(
            name.as_str(),
            "token" | "password" | "client-key-data" | "id-token" | "refresh-token"
        );
        let is_word = !name.contains(char::is_whitespace);
        (is_kubeconfig && is_key && !value.is_empty())
            || (is_word && is_secret_name(&name) && is_opaque(&value))
    })
}

/// One long word of mixed letters and digits, as from a random generator. Certificates, digests and ids do not count.
fn is_chance(text: &str) -> bool {
    let text = text.trim();
    let body = text.trim_end_matches('=');
    let is_token = (32..=512).contains(&text.len())
        && body
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-'));
    let has = |is: fn(&u8) -> bool| body.bytes().any(|byte| is(&byte));
    // A name may end with a number; random texts have scattered digits.
    let digits = body.bytes().filter(u8::is_ascii_digit).count();
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && digits >= 3;
    // Certificates as base64 DER or PEM. Paths and names have words between their separators.
    let is_certificate = text.starts_with("MII") || text.starts_with("LS0tLS1CRUdJTiBDRVJ");
    let longest = body.split(['/', '-', '_']).map(str::len).max();
    is_token
        && is_mixed
        && !is_certificate
        && longest.is_some_and(|longest| longest >= 20)
        && entropy(body) > 4.2
}

/// Bits per character.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    let share = |count: &u32| {
        let share = f64::from(*count) / total;
        -share * share.log2()
    };
    counts.iter().filter(|count| **count > 0).map(share).sum()
}

/// Whether the last word of a field name indicates a secret. `token_url` and `secret_name` do not.
fn is_secret_name(field: &str) -> bool {
    let last = field.rsplit('.').next().unwrap_or(field);
    let is_loud = !last.bytes().any(|byte| byte.is_ascii_lowercase());
    let mut words = String::new();
    for c in last.chars() {
        if c.is_ascii_uppercase() && !is_loud {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    let words: Vec<&str> = words
        .split(['_', '-'])
        .filter(|word| !word.is_empty())
        .collect();
    matches!(
        words[..],
        [
            ..,
            "password" | "passwd" | "passphrase" | "secret" | "token",
        ] | [.., "private" | "api" | "access" | "secret", "key"]
    )
}

/// Not a name, a number, a path, an address or a variable.
fn is_opaque(text: &str) -> bool {
    text.len() >= 8
        && !text.contains([' ', '/', ':'])
        && !text.starts_with(['$', '<', '{'])
        && text
            .bytes()
            .any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

fn origin(name: &str, inside: &str) -> String {
    if inside.is_empty() {
        name.to_owned()
    } else {
        format!("{name}#{inside}")
    }
}

/// Every string, number and boolean in a value, with its pointer.
fn each_leaf(value: &Value, at: &mut String, found: &mut impl FnMut(&str, String)) {
    let mut below = |name: &str, value: &Value, found: &mut _| {
        let length = at.len();
        at.push('/');
        at.push_str(name);
        each_leaf(value, at, found);
        at.truncate(length);
    };
    match value {
        Value::Object(fields) => match exact_number::digits(value) {
            Some(digits) => found(at, digits.to_owned()),
            None => fields
                .iter()
                .for_each(|(name, value)| below(&escape(name), value, found)),
        },
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| below(&index.to_string(), value, found)),
        Value::String(text) => found(at, text.clone()),
        Value::Number(_) | Value::Bool(_) => found(at, value.to_string()),
        Value::Null => {}
    }
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
