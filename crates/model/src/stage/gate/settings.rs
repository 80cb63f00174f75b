//! Reads a gate with typed settings from a block whose values are known. Reports all problems at once.
//!
//! Not here: what the file allows (`config`). Values from outputs are checked here for the first time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::redact;
use super::{
    AgentGate, CommandGate, DnsGate, EqualGate, Gate, HttpGate, KubernetesGate, OidcGate, Probe,
    Schedule, TcpGate, TlsGate,
};
use crate::base::diagnostic::Location;
use crate::base::duration::{self, EXAMPLES};
use crate::base::exact_number;
use crate::base::masking;
use crate::base::secret::Secret;
use crate::hcl::expression::Input;
use crate::hcl::suggest;
use crate::stage::{ResolvedBlock, StageBlock};

/// An error in the settings of a gate. Never contains a sensitive value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gate `{gate}`: {message}")]
pub struct GateSettingError {
    pub gate: String,
    pub message: String,
    pub hint: Option<String>,
    /// The attribute concerned, if there is one.
    pub attribute: Option<String>,
    pub at: Location,
}

impl GateSettingError {
    pub(super) fn new(gate: &Gate, message: impl Into<String>) -> Self {
        Self {
            gate: gate.name.clone(),
            message: message.into(),
            hint: None,
            attribute: None,
            at: gate.at.clone(),
        }
    }
}

pub(super) const KINDS: [&str; 10] = [
    "dns",
    "tls",
    "tcp",
    "http",
    "oidc",
    "kubernetes",
    "argocd",
    "flux",
    "equal",
    "command",
];

pub(super) fn read(block: &ResolvedBlock) -> Result<Gate, Vec<GateSettingError>> {
    let mut reader = Reader {
        block,
        wrong: Vec::new(),
    };
    let schedule = schedule(&mut reader);
    let after = reader.texts("after");
    let probe = match block.kind.as_str() {
        "dns" => Some(Probe::Dns(DnsGate::read(&mut reader))),
        "tls" => Some(Probe::Tls(TlsGate::read(&mut reader))),
        "tcp" => Some(Probe::Tcp(TcpGate::read(&mut reader))),
        "http" => Some(Probe::Http(HttpGate::read(&mut reader))),
        "oidc" => Some(Probe::Oidc(OidcGate::read(&mut reader))),
        "kubernetes" => Some(Probe::Kubernetes(KubernetesGate::read(&mut reader))),
        "argocd" => Some(Probe::Argocd(AgentGate::read(&mut reader))),
        "flux" => Some(Probe::Flux(AgentGate::read(&mut reader))),
        "equal" => Some(Probe::Equal(EqualGate::read(&mut reader))),
        "command" => Some(Probe::Command(CommandGate::read(&mut reader))),
        other => {
            reader.refuse(
                format!("there is no kind of gate `{other}`"),
                suggest::hint(other, KINDS),
            );
            None
        }
    };
    match probe {
        Some(probe) if reader.wrong.is_empty() => Ok(Gate {
            name: block.name.clone(),
            group: group(block),
            probe,
            schedule,
            after,
            mask: redact::mask_of(block),
            unmaskable: redact::is_unmaskable(block),
            at: block.at.clone(),
        }),
        _ => Err(reader.wrong),
    }
}

/// Attributes that only have a meaning with another one, which may not be known yet.
const PAIRED: [&str; 5] = ["field", "expect", "condition", "listener", "client_id"];

/// Errors that are visible in the block itself, whatever the later values are.
pub(super) fn check_known(block: &StageBlock) -> Vec<GateSettingError> {
    let known = block.attrs.iter().filter_map(|(name, input)| match input {
        Input::Known(value) => Some((name.clone(), value.clone())),
        Input::Expression(_) => None,
    });
    let resolved = ResolvedBlock {
        kind: block.kind.clone(),
        name: block.name.clone(),
        each: None,
        attrs: known.collect(),
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: block.at.clone(),
    };
    let mut wrong = read(&resolved).err().unwrap_or_default();
    let is_whole = resolved.attrs.len() == block.attrs.len();
    let pairs = matches!(block.kind.as_str(), "kubernetes" | "oidc");
    wrong.retain(|error| {
        let about = error.attribute.as_deref();
        about.is_some_and(|name| {
            resolved.attrs.contains_key(name) && (is_whole || !pairs || !PAIRED.contains(&name))
        })
    });
    wrong
}

pub(super) fn group(block: &ResolvedBlock) -> String {
    let key = block.each.as_ref().map(|key| format!("-{key}"));
    let base = key.and_then(|key| block.name.strip_suffix(&key));
    base.unwrap_or(&block.name).to_owned()
}

fn schedule(reader: &mut Reader<'_>) -> Schedule {
    let usual = Schedule::default();
    let interval = reader.duration("interval").unwrap_or(usual.interval);
    let timeout = reader.duration("timeout").unwrap_or(usual.timeout);
    let failures = reader.count("failures");
    if interval.is_zero() {
        reader.wrong("interval", "must be at least `1s`");
    }
    if timeout.is_zero() {
        reader.wrong("timeout", "must be at least `1s`");
    }
    if failures == Some(0) {
        reader.wrong("failures", "must be at least 1");
    }
    Schedule {
        interval,
        timeout,
        failures,
    }
}

/// Reads attributes by name and type, and collects errors.
pub(super) struct Reader<'a> {
    block: &'a ResolvedBlock,
    wrong: Vec<GateSettingError>,
}

impl Reader<'_> {
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.block.attrs.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn is_sensitive(&self, name: &str) -> bool {
        self.block.sensitive.contains(name)
    }

    /// An attribute's value, masked if it is sensitive.
    pub(super) fn shown(&self, name: &str, value: &str) -> String {
        if self.is_sensitive(name) {
            "the sensitive value".to_owned()
        } else {
            format!("`{}`", cut(value))
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let seen = match self.value(name)? {
            Value::String(text) if !text.trim().is_empty() => return Some(text.trim().to_owned()),
            Value::String(_) => "an empty text",
            other => what(other),
        };
        self.wrong(name, &format!("must be a text, not {seen}"));
        None
    }

    pub(super) fn required_text(&mut self, name: &str) -> String {
        if self.value(name).is_none() {
            self.wrong(name, "has no value: an output that is null, or not there");
        }
        self.text(name).unwrap_or_default()
    }

    /// A document: a text, or an object that is serialised.
    pub(super) fn document(&mut self, name: &str) -> Option<Secret> {
        match self.value(name) {
            Some(object @ Value::Object(_)) => Some(Secret::new(exact_number::write(object))),
            _ => self.text(name).map(Secret::new),
        }
    }

    pub(super) fn required_document(&mut self, name: &str) -> Secret {
        if self.value(name).is_none() {
            self.wrong(name, "has no value: an output that is null, or not there");
        }
        self.document(name).unwrap_or_else(|| Secret::new(""))
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.value(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                let message = format!("must be true or false, not {}", what(other));
                self.wrong(name, &message);
                false
            }
        }
    }

    pub(super) fn count(&mut self, name: &str) -> Option<u32> {
        let seen = match self.value(name)? {
            Value::Number(number) => match number.as_u64().and_then(|n| u32::try_from(n).ok()) {
                Some(count) => return Some(count),
                None => "another number",
            },
            // Outputs are often strings.
            Value::String(text) => match text.parse() {
                Ok(count) => return Some(count),
                Err(_) => "a text",
            },
            other => what(other),
        };
        self.wrong(
            name,
            &format!("must be a whole number from 0, this is {seen}"),
        );
        None
    }

    pub(super) fn port(&mut self, name: &str) -> Option<u16> {
        let count = self.count(name)?;
        let port = u16::try_from(count).ok().filter(|port| *port > 0);
        if port.is_none() {
            self.wrong(name, "must be a port, from 1 to 65535");
        }
        port
    }

    pub(super) fn duration(&mut self, name: &str) -> Option<Duration> {
        let text = self.text(name)?;
        let read = duration::parse(&text);
        if read.is_none() {
            let message = format!(
                "{} is not a duration such as {EXAMPLES}",
                self.shown(name, &text)
            );
            self.wrong(name, &message);
        }
        read
    }

    /// A list of texts. A single text is a list of one.
    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let items: Vec<Value> = match value {
            Value::Array(items) => items.clone(),
            single => vec![single.clone()],
        };
        let mut texts = Vec::new();
        for item in &items {
            if let Some(text) = plain(item) {
                texts.push(text);
            } else {
                let message = format!("must be texts, not {}", what(item));
                self.wrong(name, &message);
            }
        }
        texts
    }

    /// A map of texts. Numbers and booleans are converted to text.
    pub(super) fn text_map(&mut self, name: &str) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for (key, value) in self.map(name) {
            if let Some(text) = plain(&value) {
                map.insert(key, text);
            } else {
                let message = format!("`{key}` must be a text, not {}", what(&value));
                self.wrong(name, &message);
            }
        }
        map
    }

    pub(super) fn map(&mut self, name: &str) -> BTreeMap<String, Value> {
        match self.value(name) {
            None => BTreeMap::new(),
            Some(Value::Object(map)) => map.clone().into_iter().collect(),
            Some(other) => {
                let message = format!("must be an object, not {}", what(other));
                self.wrong(name, &message);
                BTreeMap::new()
            }
        }
    }

    /// Certificates, as PEM.
    pub(super) fn pem(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        if text.contains("-----BEGIN CERTIFICATE-----") {
            return Some(text);
        }
        let message = "must be certificates in PEM: `-----BEGIN CERTIFICATE-----` and so on";
        self.wrong(name, message);
        None
    }

    /// An HTTP URL, with the parts that matter.
    pub(super) fn url(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        let host = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
            .map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        match host {
            Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => Some(text),
            _ => {
                let message = format!(
                    "must be `https://HOST/…` or `http://HOST/…`, not {}",
                    self.shown(name, &text)
                );
                self.wrong(name, &message);
                None
            }
        }
    }

    pub(super) fn wrong(&mut self, attribute: &str, message: &str) {
        self.refuse(format!("`{attribute}` {message}"), None);
        if let Some(last) = self.wrong.last_mut() {
            last.attribute = Some(attribute.to_owned());
        }
    }

    pub(super) fn refuse(&mut self, message: String, hint: Option<String>) {
        self.wrong.push(GateSettingError {
            gate: self.block.name.clone(),
            message,
            hint,
            attribute: None,
            at: self.block.at.clone(),
        });
    }
}

/// A scalar value as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    if let Some(digits) = exact_number::digits(value) {
        return Some(digits.to_owned());
    }
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Truncates long values.
pub(super) fn cut(text: &str) -> String {
    masking::cut(text, 200)
}
