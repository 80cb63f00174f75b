//! Removes resources from a state by cutting them out of its bytes. Everything else stays unchanged.

use std::collections::BTreeSet;

use super::spans::{ReadResourcesError, ResourceSpan, list, resources};
use super::{InvalidState, StateFacts, TopLevel, splice, with_identity};
use crate::base::masking::{MASKED, Mask};

#[derive(Debug)]
pub struct Removal {
    /// The remaining state, with the requested serial.
    pub body: Vec<u8>,
    /// The removed instances, in the state's order.
    pub removed: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("the state has no object `{address}`")]
    Unknown { address: String, near: Vec<String> },
    #[error("`{address}` is ambiguous: {count} objects in the state have this address")]
    Ambiguous { address: String, count: usize },
    #[error("the state has the old format {format}, which terrane cannot read")]
    OldFormat { format: u64 },
    #[error("could not read the state's resources")]
    Read(#[from] ReadResourcesError),
    #[error("this is not a state")]
    Invalid(#[from] InvalidState),
}

impl RemoveError {
    /// Removes these secrets from the reported names.
    #[must_use]
    pub fn masked(self, mask: &Mask) -> Self {
        match self {
            Self::Unknown { address, near } => Self::Unknown {
                address,
                near: near.iter().map(|name| mask.mask_text(name)).collect(),
            },
            Self::Ambiguous { .. } | Self::OldFormat { .. } | Self::Read(_) | Self::Invalid(_) => {
                self
            }
        }
    }
}

/// The same message with the real addresses where a secret is hidden: `aws_subnet.a["(secret)"]`.
pub fn as_written(
    body: &[u8],
    words: &[String],
    shown: impl Fn(&str) -> String,
) -> Result<Vec<String>, RemoveError> {
    if words.iter().all(|word| !word.contains(MASKED)) {
        return Ok(words.to_vec());
    }
    let all = resources(body)?;
    let mut addresses = BTreeSet::new();
    for resource in &all {
        let instances = resource.instances.iter().map(|one| one.address.as_str());
        addresses.extend(instances.chain([resource.address.as_str()]));
        let module = resource.module.as_str();
        let inner = module
            .match_indices(".module.")
            .map(|(at, _)| &module[..at]);
        addresses.extend(inner.chain([module]));
    }
    let true_one = |word: &String| {
        let is_shown_so = |address: &&&str| word.contains(MASKED) && shown(address) == **word;
        let fitting: Vec<&&str> = addresses.iter().filter(is_shown_so).collect();
        match fitting[..] {
            [] => Ok(word.clone()),
            [only] => Ok((*only).to_owned()),
            _ => Err(RemoveError::Ambiguous {
                address: word.clone(),
                count: fitting.len(),
            }),
        }
    };
    words.iter().map(true_one).collect()
}

/// Removes instances (`aws_subnet.a[0]`), resources with all instances (`aws_subnet.a`) and modules with all their
/// resources (`module.net`). `serial` is the serial of the result.
pub fn remove(body: &[u8], addresses: &[String], serial: u64) -> Result<Removal, RemoveError> {
    let all = resources(body)?;
    if let Some(format) = old_format(body)? {
        return Err(RemoveError::OldFormat { format });
    }
    let mut unused: BTreeSet<&str> = addresses.iter().map(String::as_str).collect();
    let mut removed = Vec::new();
    let mut kept_resources = Vec::new();
    let mut cuts = Vec::new();
    for (number, resource) in all.iter().enumerate() {
        let mut kept = Vec::new();
        for (at, instance) in resource.instances.iter().enumerate() {
            let hits: Vec<&String> = addresses
                .iter()
                .filter(|word| is_meant(word, resource, &instance.address))
                .collect();
            for hit in &hits {
                unused.remove(hit.as_str());
            }
            if hits.is_empty() {
                kept.push(at);
            } else {
                removed.push(instance.address.clone());
            }
        }
        if kept.is_empty() && !resource.instances.is_empty() {
            continue;
        }
        kept_resources.push(number);
        if kept.len() < resource.instances.len() {
            let parts: Vec<&str> = resource.instances.iter().map(|one| one.text).collect();
            cuts.push((resource.list, without(resource.list, &parts, &kept)));
        }
    }
    if let Some(address) = unused.first() {
        return Err(RemoveError::Unknown {
            address: (*address).to_owned(),
            near: near(address, &all),
        });
    }
    let smaller = cut(body, &all, &kept_resources, cuts)?;
    let facts = StateFacts::read(body)?;
    let body = with_identity(&smaller, serial, &facts.lineage)?;
    Ok(Removal { body, removed })
}

/// The format version, if that format does not store its resources in the list that is read here.
fn old_format(body: &[u8]) -> Result<Option<u64>, InvalidState> {
    let version = TopLevel::read(body)?.version;
    let format = version.and_then(|version| version.get().parse::<u64>().ok());
    Ok(format.filter(|format| *format < 4))
}

fn is_meant(word: &str, resource: &ResourceSpan<'_>, instance: &str) -> bool {
    let inside = |outer: &str| {
        let rest = resource.module.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    word == instance || word == resource.address || (word.starts_with("module.") && inside(word))
}

/// Cuts instances first, then whole resources: the second cut works on the result of the first.
fn cut(
    body: &[u8],
    all: &[ResourceSpan<'_>],
    kept: &[usize],
    cuts: Vec<(&str, String)>,
) -> Result<Vec<u8>, RemoveError> {
    let place = |part: &str| {
        // The parts are slices of the body, so the pointer distance is their position.
        let start = part.as_ptr().addr() - body.as_ptr().addr();
        start..start + part.len()
    };
    let body = splice(
        body,
        cuts.into_iter()
            .map(|(part, text)| (place(part), text))
            .collect(),
    );
    if kept.len() == all.len() {
        return Ok(body);
    }
    let all = resources(&body)?;
    let parts: Vec<&str> = all.iter().map(|resource| resource.text).collect();
    let text = list(&body)?;
    let start = text.as_ptr().addr() - body.as_ptr().addr();
    let range = start..start + text.len();
    let change = (range, without(text, &parts, kept));
    Ok(splice(&body, vec![change]))
}

/// The list with only these elements, each followed by its original whitespace and comma.
fn without(list: &str, parts: &[&str], kept: &[usize]) -> String {
    let offset = |part: &str| part.as_ptr().addr() - list.as_ptr().addr();
    let (Some(first), Some(last), Some(last_kept)) = (parts.first(), parts.last(), kept.last())
    else {
        return "[]".to_owned();
    };
    let mut text = list[..offset(first)].to_owned();
    for at in kept {
        text.push_str(parts[*at]);
        if at != last_kept {
            let end = offset(parts[*at]) + parts[*at].len();
            text.push_str(&list[end..offset(parts[at + 1])]);
        }
    }
    text.push_str(&list[offset(last) + last.len()..]);
    text
}

/// Addresses with the same last name as the requested one.
fn near(address: &str, all: &[ResourceSpan<'_>]) -> Vec<String> {
    const MOST: usize = 3;
    let last = |text: &str| {
        // Without the key at its end. A key in the middle belongs to a module.
        let bare = match text.rfind('[') {
            Some(at) if text.ends_with(']') => &text[..at],
            _ => text,
        };
        bare.rsplit('.').next().unwrap_or(bare).to_owned()
    };
    let wanted = last(address);
    let hits = all
        .iter()
        .filter(|resource| last(&resource.address) == wanted);
    hits.map(|resource| resource.address.clone())
        .take(MOST)
        .collect()
}

#[cfg(test)]
mod tests;
