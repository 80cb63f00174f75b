//! `gate "dns"`: names resolve as required, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::settings::Reader;
use super::{CheckResult, Evidence, GateMismatch, quoted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsGate {
    /// `*.NAME` is queried with a random label.
    pub names: Vec<String>,
    /// Addresses, or names that are replaced by their addresses. All must be present, and for address records
    /// no others.
    pub expect: Vec<String>,
    pub record: RecordKind,
    /// `host[:port]`; the system's resolvers if not set.
    pub resolver: Option<String>,
    pub authoritative: bool,
    pub absent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordKind {
    A,
    Aaaa,
    Cname,
    Txt,
}

/// All queries, and the response of each server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsEvidence {
    pub record: RecordKind,
    pub names: Vec<DnsNameEvidence>,
    /// Addresses of the expected names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsNameEvidence {
    /// As configured in the gate.
    pub name: String,
    /// As sent in the query.
    pub asked: String,
    pub answers: Vec<DnsAnswer>,
}

/// The response of one server for one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsAnswer {
    /// `ns1.example.io (192.0.2.53)`, or only the address.
    pub server: String,
    /// `NOERROR`, `NXDOMAIN`, `REFUSED`, …; none without a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why there is no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    pub values: Vec<String>,
    /// The aliases that were followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

impl DnsGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let names = reader.texts("names");
        if names.is_empty() {
            reader.wrong("names", "requires at least one name");
        }
        for name in &names {
            if let Some(why) = unlike_a_name(name) {
                let message = format!("{} is no name: {why}", reader.shown("names", name));
                reader.wrong("names", &message);
            }
        }
        let expect = reader.texts("expect");
        if expect.is_empty() && reader.value("expect").is_some() {
            reader.wrong("expect", "is empty: any answer would do");
        }
        let absent = reader.flag("absent");
        if absent && !expect.is_empty() {
            reader.wrong("absent", "and `expect` exclude each other");
        }
        let record = match reader.text("record") {
            Some(word) => RecordKind::read(&word).unwrap_or_else(|| {
                let shown = reader.shown("record", &word);
                let message = format!("must be `A`, `AAAA`, `CNAME` or `TXT`, not {shown}");
                reader.wrong("record", &message);
                RecordKind::A
            }),
            None if expect.iter().any(|text| is_v6(text)) => RecordKind::Aaaa,
            None => RecordKind::A,
        };
        for text in expect.iter().filter(|_| record != RecordKind::Txt) {
            if text.parse::<IpAddr>().is_err() && is_meant_as_address(text) {
                let message = format!("{} is no address", reader.shown("expect", text));
                reader.wrong("expect", &message);
            } else if text.parse::<IpAddr>().is_err()
                && let Some(why) = unlike_a_name(text)
            {
                let shown = reader.shown("expect", text);
                let message = format!("{shown} is neither an address nor a name: {why}");
                reader.wrong("expect", &message);
            }
        }
        for text in &expect {
            let fits = match record {
                RecordKind::A => !is_v6(text),
                RecordKind::Aaaa => text.parse::<IpAddr>().is_err() || is_v6(text),
                RecordKind::Cname => text.parse::<IpAddr>().is_err(),
                RecordKind::Txt => true,
            };
            if !fits {
                let message = format!(
                    "{} cannot be in a record of type `{}`",
                    reader.shown("expect", text),
                    record.word()
                );
                reader.wrong("expect", &message);
            }
        }
        Self {
            names,
            expect,
            record,
            resolver: reader.text("resolver"),
            authoritative: reader.flag("authoritative"),
            absent,
        }
    }

    /// The expected entries that are names whose addresses count.
    pub fn expected_names(&self) -> impl Iterator<Item = &str> {
        let by_address = matches!(self.record, RecordKind::A | RecordKind::Aaaa);
        self.expect
            .iter()
            .filter(move |text| by_address && text.parse::<IpAddr>().is_err())
            .map(String::as_str)
    }

    pub fn judge(&self, seen: DnsEvidence) -> CheckResult {
        let mut answers = seen.names.iter().flat_map(|name| &name.answers);
        if let Some(first) = seen.names.iter().flat_map(|name| &name.answers).next()
            && answers.all(|answer| answer.silent.is_some())
        {
            let why = first.silent.clone().unwrap_or_default();
            let mut look =
                CheckResult::impossible(format!("no answer from {}: {why}", first.server));
            look.evidence = Some(Evidence::Dns(seen));
            return look;
        }
        let misses = seen.names.iter().filter_map(|name| self.miss(name, &seen));
        let misses = misses.collect();
        CheckResult::judged(Evidence::Dns(seen), misses)
    }

    fn miss(&self, name: &DnsNameEvidence, seen: &DnsEvidence) -> Option<GateMismatch> {
        let (good, bad): (Vec<&DnsAnswer>, Vec<&DnsAnswer>) = name
            .answers
            .iter()
            .partition(|answer| self.is_good(answer, seen));
        if bad.is_empty() && !good.is_empty() {
            return None;
        }
        let mut miss = GateMismatch::new(&name.name, self.expected(), said_by(&bad));
        // A server that is queried for two record types does not contradict itself.
        let says_no = |server: &str| bad.iter().any(|answer| answer.server == server);
        let agree = good.iter().map(|answer| answer.server.as_str());
        let agree: BTreeSet<&str> = agree.filter(|server| !says_no(server)).collect();
        miss.also = if good.is_empty() {
            self.parent_is_good(name, seen).then(|| {
                let parent = name.name.trim_start_matches("*.");
                format!("`{parent}` answers as expected: only the wildcard does not")
            })
        } else {
            (!agree.is_empty()).then(|| {
                let servers = joined(agree.into_iter().map(str::to_owned));
                format!("{servers} said what is expected: the name servers do not agree")
            })
        };
        Some(miss)
    }

    fn is_good(&self, answer: &DnsAnswer, seen: &DnsEvidence) -> bool {
        let status = answer.status.as_deref();
        if self.absent {
            // An alias without a target is a record too.
            let is_none = answer.values.is_empty() && answer.via.is_empty();
            return is_none && matches!(status, Some("NOERROR" | "NXDOMAIN"));
        }
        if self.expect.is_empty() {
            return !answer.values.is_empty();
        }
        let values: BTreeSet<String> = answer.values.iter().map(|text| folded(text)).collect();
        let mut via = answer.via.iter().map(|text| folded(text));
        if let [only] = self.expect.as_slice()
            && seen.record != RecordKind::Txt
            && via.any(|name| name == folded(only))
        {
            // It points to the expected name. The addresses of that name do not matter here.
            return true;
        }
        let mut wanted = BTreeSet::new();
        for text in self.expect.iter().map(|text| folded(text)) {
            match seen.expected.get(&text) {
                Some(addresses) => wanted.extend(addresses.iter().map(|text| folded(text))),
                None => drop(wanted.insert(text)),
            }
        }
        if values.is_empty() {
            return false;
        }
        match seen.record {
            RecordKind::A | RecordKind::Aaaa | RecordKind::Cname => values == wanted,
            // Others may have TXT records there too.
            RecordKind::Txt => wanted.is_subset(&values),
        }
    }

    fn parent_is_good(&self, name: &DnsNameEvidence, seen: &DnsEvidence) -> bool {
        let Some(parent) = name.name.strip_prefix("*.") else {
            return false;
        };
        let mut names = seen.names.iter();
        names.any(|other| {
            let mut answers = other.answers.iter();
            other.name == parent && answers.all(|answer| self.is_good(answer, seen))
        })
    }

    fn expected(&self) -> String {
        if self.absent {
            return "no record".to_owned();
        }
        if self.expect.is_empty() {
            return format!("a record of type {}", self.record.word());
        }
        joined(self.expect.iter().cloned())
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let resolver = self.resolver.as_ref().map(|server| {
            let (host, port) = split_port(server);
            let port = port.map(|port| format!(" -p {port}")).unwrap_or_default();
            format!(" @{}{port}", quoted(host))
        });
        let resolver = resolver.unwrap_or_default();
        let how = if self.authoritative { " +nssearch" } else { "" };
        let name = |name: &String| {
            let asked = name.replacen("*.", "any-label.", 1);
            let kind = self.record.word();
            if self.authoritative {
                let zone = name.trim_start_matches("*.");
                return format!("dig{resolver}{how} {}", quoted(zone));
            }
            let asked = quoted(&asked);
            // Absence is checked for addresses of both versions.
            let more = if self.absent && self.record == RecordKind::A {
                format!(" {asked} AAAA")
            } else {
                String::new()
            };
            format!("dig{resolver} {asked} {kind}{more}")
        };
        self.names.iter().take(3).map(name).collect()
    }
}

impl RecordKind {
    pub fn read(word: &str) -> Option<Self> {
        match word.to_ascii_uppercase().as_str() {
            "A" => Some(Self::A),
            "AAAA" => Some(Self::Aaaa),
            "CNAME" => Some(Self::Cname),
            "TXT" => Some(Self::Txt),
            _ => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Cname => "CNAME",
            Self::Txt => "TXT",
        }
    }
}

/// Splits `host:port`. An IPv6 address with a port is in brackets.
pub(super) fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[')
        && let Some((host, port)) = rest.split_once(']')
    {
        return (host, port.strip_prefix(':'));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// The responses, grouped by equal content: `198.51.100.4 from ns1 and ns2, TTL 3600`.
fn said_by(answers: &[&DnsAnswer]) -> String {
    let mut said: Vec<(String, Vec<String>, Option<u32>)> = Vec::new();
    for answer in answers {
        let words = answer.words();
        match said.iter_mut().find(|(known, _, _)| *known == words) {
            Some((_, servers, _)) => servers.push(answer.server.clone()),
            None => said.push((words, vec![answer.server.clone()], answer.ttl)),
        }
    }
    let said = said.into_iter().map(|(words, servers, ttl)| {
        let ttl = ttl.map(|ttl| format!(", TTL {ttl}")).unwrap_or_default();
        format!("{words} from {}{ttl}", joined(servers.into_iter()))
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        return "no name server to query".to_owned();
    }
    said.join("; ")
}

impl DnsAnswer {
    fn words(&self) -> String {
        if let Some(why) = &self.silent {
            return format!("no answer ({why})");
        }
        let via = if self.via.is_empty() {
            String::new()
        } else {
            format!(" through {}", joined(self.via.iter().cloned()))
        };
        match self.status.as_deref() {
            _ if !self.values.is_empty() => {
                format!("{}{via}", joined(self.values.iter().cloned()))
            }
            Some("NOERROR") | None => format!("no such record{via}"),
            Some("NXDOMAIN") => format!("no such name (NXDOMAIN){via}"),
            Some(other) => format!("`{other}`{via}"),
        }
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Normalises a name (case, trailing dot) or an address.
pub(super) fn folded(text: &str) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return address.to_string();
    }
    text.strip_suffix('.').unwrap_or(text).to_lowercase()
}

fn is_v6(text: &str) -> bool {
    matches!(text.parse(), Ok(IpAddr::V6(_)))
}

/// Whether the text can only be an address: digits and dots, or colons.
fn is_meant_as_address(text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    !text.is_empty() && (text.chars().all(digits) || text.contains(':') && !text.contains('/'))
}

fn unlike_a_name(name: &str) -> Option<&'static str> {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let rest = rest.strip_suffix('.').unwrap_or(rest);
    if rest.len() > 253 {
        return Some("it is too long");
    }
    if rest.contains('*') {
        return Some("`*` is allowed only as the first label");
    }
    if rest.parse::<IpAddr>().is_ok() {
        return Some("it is an address");
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.contains(|c: char| c.is_whitespace() || "/:@".contains(c))
    };
    (!rest.split('.').all(label)).then_some("write it as `www.example.io`")
}
