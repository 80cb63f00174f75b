//! Checks of data that a schema cannot express: duplicate addresses, overlapping networks, undefined nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::data::{Data, Node};
use super::select::Select;
use crate::base::diagnostic::Finding;
use crate::base::masking::MASKED;

/// A `check` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub kind: CheckKind,
    pub paths: Vec<Select>,
    /// The values that `paths` are compared with.
    pub of: Vec<Select>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// IP addresses.
    Address,
    /// Networks such as `10.0.0.0/16`.
    Cidr,
    Mac,
    /// No duplicate values.
    Unique,
    /// No overlapping networks.
    Separate,
    /// Addresses or networks inside one of those in `of`.
    Inside,
    /// Values that are among those in `of`.
    Known,
}

impl CheckKind {
    pub const WORDS: [&'static str; 7] = [
        "address", "cidr", "mac", "unique", "separate", "inside", "known",
    ];

    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "address" => Self::Address,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "unique" => Self::Unique,
            "separate" => Self::Separate,
            "inside" => Self::Inside,
            "known" => Self::Known,
            _ => return None,
        })
    }

    /// Whether it compares values with others.
    pub fn wants_of(self) -> bool {
        match self {
            Self::Inside | Self::Known => true,
            Self::Address | Self::Cidr | Self::Mac | Self::Unique | Self::Separate => false,
        }
    }
}

/// All findings of all checks.
pub fn check(checks: &[Check], data: &Node) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for check in checks {
        for finding in one(check, data) {
            // Two checks may find the same problem.
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

struct SelectedNode<'n> {
    path: String,
    node: &'n Node,
}

impl SelectedNode<'_> {
    /// The value, hidden if it is secret.
    fn shown(&self) -> String {
        match &self.node.data {
            Data::Secret(_) => MASKED.to_owned(),
            data => text(data).unwrap_or_default(),
        }
    }

    fn text(&self) -> Option<String> {
        match &self.node.data {
            Data::Secret(secret) => text(&Node::revealed(secret)),
            data => text(data),
        }
    }
}

fn text(data: &Data) -> Option<String> {
    Some(match data {
        Data::Text(text) | Data::Moment(text) => text.clone(),
        Data::Int(number) => number.to_string(),
        Data::Float(number) => number.to_string(),
        Data::Bool(value) => value.to_string(),
        Data::Null | Data::List(_) | Data::Map(_) | Data::Secret(_) => return None,
    })
}

/// The scalars at some paths. A list is replaced by its items.
fn find<'n>(paths: &[Select], data: &'n Node) -> Vec<SelectedNode<'n>> {
    let mut all = Vec::new();
    for (path, node) in paths.iter().flat_map(|path| path.find(data)) {
        match &node.data {
            Data::List(items) => {
                all.extend(items.iter().enumerate().map(|(index, item)| SelectedNode {
                    path: format!("{path}[{index}]"),
                    node: item,
                }));
            }
            Data::Null => {}
            _ => all.push(SelectedNode { path, node }),
        }
    }
    all
}

fn one(check: &Check, data: &Node) -> Vec<Finding> {
    let found = find(&check.paths, data);
    match check.kind {
        CheckKind::Address => form(&found, "an IP address", "10.0.0.10", |text| {
            text.parse::<IpAddr>().is_ok()
        }),
        CheckKind::Cidr => form(&found, "a network", "10.0.0.0/16", |text| {
            Net::of(text).is_some()
        }),
        CheckKind::Mac => form(&found, "a MAC address", "bc:24:11:00:00:01", is_mac),
        CheckKind::Unique => unique(&found),
        CheckKind::Separate => separate(&found),
        CheckKind::Inside => inside(&found, &find(&check.of, data)),
        CheckKind::Known => known(&found, &find(&check.of, data), &check.of),
    }
}

fn form(
    found: &[SelectedNode<'_>],
    what: &str,
    such: &str,
    is_it: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    found
        .iter()
        .filter(|one| !one.text().is_some_and(|text| is_it(&text)))
        .map(|one| {
            let message = format!("`{}` is not {what}: `{}`", one.path, one.shown());
            Finding::error("not-an-address", message)
                .at(one.node.at.clone(), format!("expected {what}"))
                .hint(format!("such as `{such}`"))
        })
        .collect()
}

fn unique(found: &[SelectedNode<'_>]) -> Vec<Finding> {
    let mut by_value: BTreeMap<String, Vec<&SelectedNode<'_>>> = BTreeMap::new();
    for one in found {
        if let Some(text) = one.text() {
            by_value.entry(same(&text)).or_default().push(one);
        }
    }
    let twice = by_value.into_values().filter(|ones| ones.len() > 1);
    twice
        .map(|ones| {
            let times = if ones.len() == 2 {
                "twice".to_owned()
            } else {
                format!("{} times", ones.len())
            };
            let message = format!("`{}` occurs {times}", ones[0].shown());
            let finding = Finding::error("duplicate-value", message);
            ones.iter().fold(finding, |finding, one| {
                finding.at(one.node.at.clone(), format!("`{}`", one.path))
            })
        })
        .collect()
}

/// A canonical form, since addresses and MACs have several notations.
fn same(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) if is_mac(text) => text.to_ascii_lowercase().replace('-', ":"),
        Err(_) => text.to_owned(),
    }
}

fn separate(found: &[SelectedNode<'_>]) -> Vec<Finding> {
    let nets: Vec<(&SelectedNode<'_>, Net)> = found
        .iter()
        .filter_map(|one| Some((one, Net::of(&one.text()?)?)))
        .collect();
    let mut findings = form(found, "a network", "10.0.0.0/16", |text| {
        Net::of(text).is_some()
    });
    for (index, (one, net)) in nets.iter().enumerate() {
        for (other, other_net) in &nets[index + 1..] {
            if net.contains(other_net) || other_net.contains(net) {
                let message = format!("`{}` and `{}` overlap", one.shown(), other.shown());
                findings.push(
                    Finding::error("overlapping-networks", message)
                        .at(one.node.at.clone(), format!("`{}`", one.path))
                        .at(other.node.at.clone(), format!("`{}`", other.path)),
                );
            }
        }
    }
    findings
}

fn inside(found: &[SelectedNode<'_>], of: &[SelectedNode<'_>]) -> Vec<Finding> {
    let nets: Vec<(&SelectedNode<'_>, Net)> = of
        .iter()
        .filter_map(|one| Some((one, Net::of(&one.text()?)?)))
        .collect();
    let mut findings = form(of, "a network", "10.0.0.0/16", |text| {
        Net::of(text).is_some()
    });
    for one in found {
        let Some(own) = one.text().as_deref().and_then(Net::of) else {
            findings.extend(form(
                std::slice::from_ref(one),
                "an IP address",
                "10.0.0.10",
                |_| false,
            ));
            continue;
        };
        if !nets.is_empty() && !nets.iter().any(|(_, net)| net.contains(&own)) {
            let (first, _) = &nets[0];
            let message = format!(
                "`{}` (`{}`) is not inside `{}`",
                one.path,
                one.shown(),
                nets.iter()
                    .map(|(net, _)| net.shown())
                    .collect::<Vec<_>>()
                    .join("`, `")
            );
            findings.push(
                Finding::error("outside-network", message)
                    .at(one.node.at.clone(), "this address")
                    .at(first.node.at.clone(), format!("`{}`", first.path)),
            );
        }
    }
    findings
}

fn known(found: &[SelectedNode<'_>], of: &[SelectedNode<'_>], names: &[Select]) -> Vec<Finding> {
    let values: Vec<String> = of.iter().filter_map(SelectedNode::text).collect();
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let unknown = found
        .iter()
        .filter(|one| one.text().is_none_or(|text| !values.contains(&text)));
    unknown
        .map(|one| {
            let mut shown: Vec<String> =
                of.iter().map(|one| format!("`{}`", one.shown())).collect();
            let mut seen = BTreeSet::new();
            shown.retain(|one| seen.insert(one.clone()));
            let message = format!(
                "`{}` names `{}`, which is none of {}",
                one.path,
                one.shown(),
                names.join(", ")
            );
            let finding =
                Finding::error("unknown-value", message).at(one.node.at.clone(), "not known");
            match shown.len() {
                0 => finding.hint("there are none"),
                1..=12 => finding.hint(format!("known are {}", shown.join(", "))),
                _ => finding,
            }
        })
        .collect()
}

pub(super) fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    parts.len() == 6
        && parts
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A network. A single address is the smallest network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    /// The significant bits; the rest are zero.
    bits: u128,
    prefix: u32,
    is_v6: bool,
}

impl Net {
    pub(super) fn of(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => {
                let is_number = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
                (
                    address,
                    Some(is_number.then(|| prefix.parse::<u32>().ok())??),
                )
            }
            None => (text, None),
        };
        let (bits, length, is_v6) = match address.parse().ok()? {
            IpAddr::V4(address) => (u128::from(Ipv4Addr::to_bits(address)), 32, false),
            IpAddr::V6(address) => (Ipv6Addr::to_bits(address), 128, true),
        };
        let prefix = prefix.unwrap_or(length);
        if prefix > length {
            return None;
        }
        let host = length - prefix;
        let bits = match host {
            128 => 0,
            host => (bits >> host) << host,
        };
        Some(Self {
            bits,
            prefix,
            is_v6,
        })
    }

    fn contains(&self, other: &Self) -> bool {
        if self.is_v6 != other.is_v6 || self.prefix > other.prefix {
            return false;
        }
        let length = if self.is_v6 { 128 } else { 32 };
        match length - self.prefix {
            128 => true,
            host => self.bits >> host == other.bits >> host,
        }
    }
}
