//! Keeps secrets out of what a gate leaves behind.

use serde_json::Value;

use super::{Asked, GateReport, Verdict};
use crate::kubernetes::Kubeconfig;
use crate::masking::{MASKED, Mask, is_maskable};
use crate::secret::Secret;
use crate::stage::ResolvedBlock;

/// Attributes whose values are compared with what is seen: too short for a mask, and a report would still
/// give them away.
const COMPARED: [&str; 7] = [
    "expect",
    "values",
    "json",
    "expect_headers",
    "body",
    "redirect",
    "issuer",
];

/// Hides the values of attributes that are marked as sensitive, wherever they turn up, and passwords in addresses.
pub(super) fn mask_of(block: &ResolvedBlock) -> Mask {
    let sensitive = block.sensitive.iter();
    let mut hidden = secrets(block, sensitive.map(String::as_str));
    for value in block.attrs.values().filter_map(Value::as_str) {
        hidden.extend(passwords(value));
    }
    Mask::new(&hidden)
}

/// An address as it may be shown: without the password in it.
pub(super) fn shown_address(url: &str) -> String {
    match userinfo(url).and_then(|(from, info)| Some((from + info.find(':')?, from + info.len()))) {
        Some((from, to)) => format!("{}:…{}", &url[..from], &url[to..]),
        None => url.to_owned(),
    }
}

/// The password of an address, as it stands there and as it is sent.
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

/// `user:password` of an address, and where it begins.
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

/// Whether a mask is not enough, because what is compared is short.
pub(super) fn is_unmaskable(block: &ResolvedBlock) -> bool {
    // Two of them may be one secret in different forms.
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

/// Whether a field of a cluster's Secret is compared.
fn asks_for_a_secret(block: &ResolvedBlock) -> bool {
    let values = match block.attrs.get("values") {
        Some(Value::Array(items)) => items.iter().collect::<Vec<_>>(),
        Some(Value::Object(fields)) => fields.values().collect(),
        _ => Vec::new(),
    };
    values.into_iter().any(|value| match Asked::read(value) {
        Some(Asked::Kubernetes { object, .. }) => object.to_lowercase().starts_with("secret/"),
        Some(Asked::Dns { .. }) | None => false,
    })
}

/// The report without what these masks hide. What cannot be masked for sure is left out.
#[must_use]
pub fn mask_report(report: &GateReport, unmaskable: bool, masks: &[&Mask]) -> GateReport {
    let mut bare = GateReport {
        evidence: None,
        ..report.clone()
    };
    let masked = |value: &mut Value| masks.iter().for_each(|mask| mask.mask_value(value));
    if let Verdict::Failed { misses } = &mut bare.verdict {
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
            // Its words are those of every kubeconfig; what is secret in it, it knows itself.
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

/// An address, a header or a line with a secret in it is marked as a whole; the secret may turn up alone.
fn parts(text: &str) -> impl Iterator<Item = Secret> {
    let own = |c: char| c.is_ascii_alphanumeric() || "-_.~+/".contains(c);
    text.split(move |c| !own(c))
        .filter(move |part| part.len() >= 8 && part.len() < text.len())
        // Hosts and paths are for people to read.
        .filter(|part| !part.starts_with('/') && !part.contains('.'))
        .map(Secret::new)
}
