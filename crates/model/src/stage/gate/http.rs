//! `gate "http"`: an HTTP endpoint responds as required.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::redact::shown_address;
use super::settings::{Reader, cut, plain};
use super::{CheckResult, Evidence, GateMismatch, quoted};
use crate::base::exact_number;
use crate::base::masking;
use crate::base::secret::Secret;

/// The maximum size of a body that is read.
pub const BODY_LIMIT: usize = 1 << 20;
/// The maximum number of characters that are kept.
const EXCERPT: usize = 500;
const MOST_HEADERS: usize = 40;

#[derive(Clone, Debug)]
pub struct HttpGate {
    pub url: String,
    pub method: String,
    pub headers: BTreeMap<String, Secret>,
    /// None: 200, or any redirect if `redirect` is set.
    pub status: Option<u16>,
    pub expect_headers: BTreeMap<String, String>,
    pub redirect: Option<String>,
    pub body: Option<Regex>,
    pub json: BTreeMap<String, Value>,
    pub ca: Option<String>,
}

/// The complete response.
#[derive(Clone, Debug, Default)]
pub struct HttpReply {
    pub peer: Option<String>,
    pub took_ms: u64,
    pub version: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body was longer than [`BODY_LIMIT`].
    pub cut: bool,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unanswered", content = "why", rename_all = "kebab-case")]
pub enum HttpFailure {
    NoListener(String),
    /// The certificate or the handshake is invalid.
    Untrusted(String),
    TooSlow(String),
    Broken(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpEvidence {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<HttpFailure>,
    /// Cookies and similar headers without their values.
    pub headers: Vec<(String, String)>,
    pub body_bytes: usize,
    /// Its beginning, as text.
    pub body: String,
}

impl HttpGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let url = reader.url("url").unwrap_or_default();
        if reader.value("url").is_none() {
            reader.wrong("url", "has no value: an output that is null, or not there");
        }
        let method = reader.text("method").unwrap_or_else(|| "GET".to_owned());
        let method = method.to_ascii_uppercase();
        if !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            reader.wrong("method", "must be a method such as `GET`");
        }
        let status = reader.count("status");
        let small = status.and_then(|status| u16::try_from(status).ok());
        if status.is_some() && !small.is_some_and(|status| (100..600).contains(&status)) {
            reader.wrong("status", "must be an HTTP status, from 100 to 599");
        }
        let body = reader.text("body").and_then(|pattern| {
            // Both the pattern and the page are untrusted input.
            let built = RegexBuilder::new(&pattern).size_limit(1 << 20).build();
            if built.is_err() {
                let message = format!("{} is not a pattern", reader.shown("body", &pattern));
                reader.wrong("body", &message);
            }
            built.ok()
        });
        let headers = reader.text_map("headers");
        let json = reader.map("json");
        for path in json.keys() {
            if steps(path).is_none() {
                let message = format!("`{path}` is not a path such as `items[0].name`");
                reader.wrong("json", &message);
            }
        }
        Self {
            url,
            method,
            headers: headers
                .into_iter()
                .map(|(name, value)| (name, Secret::new(value)))
                .collect(),
            status: small,
            expect_headers: reader.text_map("expect_headers"),
            redirect: reader.text("redirect"),
            body,
            json,
            ca: reader.pem("ca"),
        }
    }

    /// Whether the body is checked, so that all of it must be read.
    pub fn wants_body(&self) -> bool {
        self.body.is_some() || !self.json.is_empty()
    }

    pub fn judge_failure(&self, why: HttpFailure) -> CheckResult {
        let miss = GateMismatch::new(
            shown_address(&self.url),
            self.expected_status(),
            why.words(),
        );
        let seen = HttpEvidence {
            url: shown_address(&self.url),
            peer: None,
            took_ms: None,
            version: None,
            status: None,
            failed: Some(why),
            headers: Vec::new(),
            body_bytes: 0,
            body: String::new(),
        };
        CheckResult::judged(Evidence::Http(seen), vec![miss])
    }

    /// `target`: the absolute URL of its `location`.
    pub fn judge(&self, answer: &HttpReply, target: Option<&str>) -> CheckResult {
        let mut misses = Vec::new();
        let text = excerpt(&answer.body);
        if !self.is_good_status(answer.status) {
            let mut miss =
                GateMismatch::new("status", self.expected_status(), answer.status.to_string());
            if let Some(target) = target.filter(|_| self.redirect.is_none()) {
                miss = miss.also(format!("it redirects to {target}; none is followed"));
            } else if !text.is_empty() && answer.status >= 400 {
                miss = miss.also(format!("the page says: {}", first_line(&text)));
            }
            misses.push(miss);
        }
        if let Some(wanted) = &self.redirect
            && !target.is_some_and(|target| leads_to(target, wanted))
        {
            let seen = target.map_or("no redirect".to_owned(), str::to_owned);
            misses.push(GateMismatch::new("redirect", wanted, seen));
        }
        for (name, wanted) in &self.expect_headers {
            let values = answer.header(name);
            if !values.iter().any(|value| value == wanted) {
                let seen = if values.is_empty() {
                    "not there".to_owned()
                } else if is_private(name) {
                    "another value".to_owned()
                } else {
                    cut(&values.join(", "))
                };
                misses.push(GateMismatch::new(format!("header `{name}`"), wanted, seen));
            }
        }
        misses.extend(self.body_miss(answer, &text));
        misses.extend(self.json_misses(answer, &text));
        let seen = HttpEvidence {
            url: shown_address(&self.url),
            peer: answer.peer.clone(),
            took_ms: Some(answer.took_ms),
            version: Some(answer.version.clone()),
            status: Some(answer.status),
            failed: None,
            headers: shown_headers(&answer.headers),
            body_bytes: answer.body.len(),
            body: text,
        };
        CheckResult::judged(Evidence::Http(seen), misses)
    }

    fn body_miss(&self, answer: &HttpReply, text: &str) -> Option<GateMismatch> {
        let pattern = self.body.as_ref()?;
        let body = String::from_utf8_lossy(&answer.body);
        if pattern.is_match(&body) {
            return None;
        }
        let expected = format!("a match of `{pattern}`");
        let miss = GateMismatch::new("body", expected, beginning(text, answer.body.len()));
        Some(if answer.cut {
            miss.also(format!("only its first {} kB were read", BODY_LIMIT >> 10))
        } else {
            miss
        })
    }

    fn json_misses(&self, answer: &HttpReply, text: &str) -> Vec<GateMismatch> {
        if self.json.is_empty() {
            return Vec::new();
        }
        let body = std::str::from_utf8(&answer.body).ok();
        let Some(document) = body.and_then(|text| exact_number::read(text).ok()) else {
            let seen = beginning(text, answer.body.len());
            return vec![GateMismatch::new("body", "JSON", seen)];
        };
        let miss = |(path, wanted): (&String, &Value)| {
            let found = find(&document, &steps(path)?);
            let is_good = found.is_some_and(|found| is_same(found, wanted));
            let seen = found.map_or("not there".to_owned(), |found| {
                cut(&exact_number::write(found))
            });
            (!is_good).then(|| {
                GateMismatch::new(format!("json `{path}`"), exact_number::write(wanted), seen)
            })
        };
        self.json.iter().filter_map(miss).collect()
    }

    fn is_good_status(&self, status: u16) -> bool {
        match self.status {
            Some(wanted) => status == wanted,
            None if self.redirect.is_some() => (300..400).contains(&status),
            None => status == 200,
        }
    }

    fn expected_status(&self) -> String {
        match self.status {
            Some(wanted) => wanted.to_string(),
            None if self.redirect.is_some() => "a redirect".to_owned(),
            None => "200".to_owned(),
        }
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let method = match self.method.as_str() {
            "GET" => String::new(),
            "HEAD" => " --head".to_owned(),
            other => format!(" --request {other}"),
        };
        let headers = self.headers.keys().map(|name| {
            let header = format!("{name}: …");
            format!(" --header {}", quoted(&header))
        });
        let headers: String = headers.collect();
        vec![format!(
            "curl --include{method}{headers} {}",
            quoted(&shown_address(&self.url))
        )]
    }
}

impl HttpReply {
    pub fn header(&self, name: &str) -> Vec<&str> {
        let headers = self.headers.iter();
        headers
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

impl HttpFailure {
    pub fn words(&self) -> String {
        match self {
            Self::NoListener(why) => format!("no listener ({why})"),
            Self::Untrusted(why) => format!("no trusted connection: {why}"),
            Self::TooSlow(why) => why.clone(),
            Self::Broken(why) => format!("no answer of HTTP: {why}"),
        }
    }
}

/// The beginning of a body as printable text.
pub fn excerpt(body: &[u8]) -> String {
    // Truncation is marked, since it may be inside a secret. An incomplete character at the end is removed.
    let head = body.get(..EXCERPT * 4).unwrap_or(body);
    let mut text = String::from_utf8_lossy(head).into_owned();
    if head.len() < body.len() {
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
        text.push('…');
    }
    let shown = text
        .chars()
        .filter(|c| !c.is_control() || "\n\t".contains(*c));
    masking::cut(shown.collect::<String>().trim(), EXCERPT)
}

fn beginning(text: &str, bytes: usize) -> String {
    if bytes == 0 {
        return "nothing".to_owned();
    }
    format!("{bytes} bytes that begin: {}", first_line(text))
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    cut(line.unwrap_or("(no text)"))
}

fn shown_headers(headers: &[(String, String)]) -> Vec<(String, String)> {
    let shown = headers.iter().take(MOST_HEADERS).map(|(name, value)| {
        let value = if is_private(name) {
            "(withheld)".to_owned()
        } else if name.eq_ignore_ascii_case("location") {
            cut(&super::oidc::withheld_query(value))
        } else {
            cut(value)
        };
        (name.clone(), value)
    });
    shown.collect()
}

/// Headers that contain credentials.
fn is_private(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "cookie", "token", "secret", "authoriz", "api-key", "session",
    ]
    .iter()
    .any(|word| name.contains(word))
}

/// Whether the URLs are equal. If `wanted` has no query, any query is accepted.
pub(super) fn leads_to(target: &str, wanted: &str) -> bool {
    if target == wanted {
        return true;
    }
    let bare = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
    let same = |left: &str, right: &str| left.trim_end_matches('/') == right.trim_end_matches('/');
    !wanted.contains(['?', '#']) && same(&bare(target), wanted)
}

enum PathSegment {
    Field(String),
    Item(usize),
}

/// `items[0].name`, `metadata['app.kubernetes.io/name']`, also with `"`; may start with `$.`.
fn steps(path: &str) -> Option<Vec<PathSegment>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            if let Some(quote) = inner.chars().next().filter(|c| ['"', '\''].contains(c)) {
                let (field, after) = inner[1..].split_once(&format!("{quote}]"))?;
                steps.push(PathSegment::Field(field.to_owned()));
                rest = after;
            } else {
                let (number, after) = inner.split_once(']')?;
                steps.push(PathSegment::Item(number.parse().ok()?));
                rest = after;
            }
            continue;
        }
        let word = rest.strip_prefix('.').unwrap_or(rest);
        let end = word.find(['.', '[']).unwrap_or(word.len());
        let (field, after) = word.split_at(end);
        if field.is_empty() {
            return None;
        }
        steps.push(PathSegment::Field(field.to_owned()));
        rest = after;
    }
    (!steps.is_empty()).then_some(steps)
}

fn find<'a>(document: &'a Value, steps: &[PathSegment]) -> Option<&'a Value> {
    steps.iter().try_fold(document, |value, step| match step {
        PathSegment::Field(name) => value.get(name),
        PathSegment::Item(at) => value.get(at),
    })
}

/// `8080` equals `"8080"`, as in a project file, and `1` equals `1.0`.
fn alike(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) if found.as_f64() == wanted.as_f64() => true,
        (Value::Array(found), Value::Array(wanted)) => {
            let mut pairs = found.iter().zip(wanted);
            found.len() == wanted.len() && pairs.all(|(found, wanted)| is_same(found, wanted))
        }
        (Value::Object(fields), Value::Object(wanted)) if exact_number::digits(found).is_none() => {
            fields.len() == wanted.len()
                && wanted
                    .iter()
                    .all(|(key, wanted)| fields.get(key).is_some_and(|it| is_same(it, wanted)))
        }
        _ => match (plain(found), plain(wanted)) {
            (Some(found), Some(wanted)) => found == wanted,
            _ => false,
        },
    }
}

fn is_same(found: &Value, wanted: &Value) -> bool {
    found == wanted || alike(found, wanted)
}
