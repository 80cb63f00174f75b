//! Keeps secrets out of the reports of a gate.

use serde_json::Value;

use super::{GateReport, GateVerdict, ProbeQuery};
use crate::base::masking::{MASKED, Mask, is_maskable};
use crate::base::secret::Secret;
use crate::stage::ResolvedBlock;
use crate::stage::kubernetes::Kubeconfig;

/// Attributes that are compared with observed values. Short ones cannot be masked, and a report would reveal them.
const COMPARED: [&str; 7] = [
    "expect",
    "values",
    "json",
    "expect_headers",
    "body",
    "redirect",
    "issuer",
];

/// Masks the values of sensitive attributes wherever they occur, and passwords in URLs.
pub(super) fn mask_of(block: &ResolvedBlock) -> Mask {
    let sensitive = block.sensitive.iter();
    let mut hidden = secrets(block, sensitive.map(String::as_str));
    for value in block.attrs.values().filter_map(Value::as_str) {
        hidden.extend(passwords(value));
    }
    Mask::new(&hidden)
}

/// A URL without its password.
pub(super) fn shown_address(url: &str) -> String {
    match userinfo(url).and_then(|(from, info)| Some((from + info.find(':')?, from + info.len()))) {
        Some((from, to)) => format!("{}:…{}", &url[..from], &url[to..]),
        None => url.to_owned(),
    }
}

/// The password of a URL, as written and decoded.
fn passwords(url: &str) -> Vec<Secret> {
    let Some((user, password)) = userinfo(url).and_then(|(_, info)| info.split_once(':')) else {
        return Vec::new();
    };
    let sent = format!("{}:{}", decoded(user), decoded(password));
    vec![
        Secret::new(password),
        Secret::new(decoded(password)),
        Secret::new(sent),
    ]
}

/// `user:password` of a URL, and its position.
fn userinfo(url: &str) -> Option<(usize, &str)> {
    let from = url.find("://")? + 3;
    let rest = &url[from..];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    Some((from, &authority[..authority.rfind('@')?]))
}

/// `%40` is `@`.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let (Some(byte), Some(rest)) = (byte, part.get(2..)) {
            bytes.push(byte);
            bytes.extend(rest.as_bytes());
        } else {
            bytes.push(b'%');
            bytes.extend(part.as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether masking is not enough, because a compared value is short.
pub(super) fn is_unmaskable(block: &ResolvedBlock) -> bool {
    // Two of them may be the same secret in different encodings.
    if block.kind == "equal" && (block.sensitive.contains("values") || asks_for_a_secret(block)) {
        return true;
    }
    let compared = COMPARED.into_iter();
    let compared = secrets(
        block,
        compared.filter(|name| block.sensitive.contains(*name)),
    );
    let mut compared = compared.iter().map(Secret::expose);
    compared.any(|text| !text.is_empty() && !is_maskable(text))
}

/// Whether a field of a Kubernetes Secret is compared.
fn asks_for_a_secret(block: &ResolvedBlock) -> bool {
    let values = match block.attrs.get("values") {
        Some(Value::Array(items)) => items.iter().collect::<Vec<_>>(),
        Some(Value::Object(fields)) => fields.values().collect(),
        _ => Vec::new(),
    };
    values
        .into_iter()
        .any(|value| match ProbeQuery::read(value) {
            Some(ProbeQuery::Kubernetes { object, .. }) => {
                object.to_lowercase().starts_with("secret/")
            }
            Some(ProbeQuery::Dns { .. }) | None => false,
        })
}

/// The report with these masks applied. Parts that cannot be masked reliably are removed.
#[must_use]
pub fn mask_report(report: &GateReport, unmaskable: bool, masks: &[&Mask]) -> GateReport {
    let mut bare = GateReport {
        evidence: None,
        ..report.clone()
    };
    let masked = |value: &mut Value| masks.iter().for_each(|mask| mask.mask_value(value));
    if let GateVerdict::Failed { misses } = &mut bare.verdict {
        for miss in misses {
            if unmaskable {
                MASKED.clone_into(&mut miss.expected);
                MASKED.clone_into(&mut miss.seen);
                miss.also = None;
            }
        }
    }
    if let Ok(mut value) = serde_json::to_value(&bare.verdict) {
        masked(&mut value);
        if let Ok(verdict) = serde_json::from_value(value) {
            bare.verdict = verdict;
        }
    }
    if unmaskable {
        return bare;
    }
    if let Ok(mut value) = serde_json::to_value(&report.evidence) {
        masked(&mut value);
        bare.evidence = serde_json::from_value(value).unwrap_or_default();
    }
    bare
}

fn secrets<'a>(block: &ResolvedBlock, names: impl Iterator<Item = &'a str>) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for name in names {
        match block.attrs.get(name) {
            // Most words of a kubeconfig are not secret; its parser finds those that are.
            Some(value) if name == "kubeconfig" => {
                secrets.extend(value.as_str().map(Secret::new));
                let config = Kubeconfig::from_value(value);
                secrets.extend(config.map(|config| config.hidden()).unwrap_or_default());
            }
            Some(value) => collect(value, &mut secrets),
            None => {}
        }
    }
    secrets
}

fn collect(value: &Value, secrets: &mut Vec<Secret>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => secrets.push(Secret::new(number.to_string())),
        Value::String(text) => {
            secrets.push(Secret::new(text));
            secrets.extend(parts(text));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, secrets)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, secrets)),
    }
}

/// A URL, header or line that contains a secret is marked as a whole, but the secret may occur on its own.
fn parts(text: &str) -> impl Iterator<Item = Secret> {
    let own = |c: char| c.is_ascii_alphanumeric() || "-_.~+/".contains(c);
    text.split(move |c| !own(c))
        .filter(move |part| part.len() >= 8 && part.len() < text.len())
        // Hosts and paths stay readable.
        .filter(|part| !part.starts_with('/') && !part.contains('.'))
        .map(Secret::new)
}
