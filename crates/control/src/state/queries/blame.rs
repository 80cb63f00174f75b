//! For each value of an object: the version that set it, and who wrote that version.

use std::collections::BTreeMap;

use model::plan::PlanValue;
use model::state::diff::{SensitiveDisplay, leaf_values};
use model::state::leaves::StateEntry;
use model::state::version_ref::VersionRef;
use model::state::{StateName, StateVersion};

use super::author::{Author, AuthorCache};
use super::index;
use super::version::{self, AskStateError, ValueDigests, VersionDocument, is_at, store_failed};
use crate::Control;

#[derive(Clone, Debug)]
pub struct Blame {
    pub asked: VersionDocument,
    pub objects: Vec<BlamedObject>,
}

#[derive(Clone, Debug)]
pub struct BlamedObject {
    pub address: String,
    pub lines: Vec<BlameLine>,
}

#[derive(Clone, Debug)]
pub struct BlameLine {
    pub path: String,
    pub value: PlanValue,
    /// The version that set the value.
    pub since: i64,
    /// That version, if it is still stored.
    pub version: Option<StateVersion>,
    pub author: Author,
}

/// Covers one object or output of a version, with all attributes or those below one.
pub async fn blame(
    control: &Control,
    state: &StateName,
    which: VersionRef,
    address: &str,
    attribute: Option<&str>,
    reveal: bool,
) -> Result<Blame, AskStateError> {
    let failed = &store_failed("look through the versions of", state);
    let asked = version::document(control, state, which).await?;
    let digests = ValueDigests::of(control).await?;
    index::update(&control.store, state, &digests).await?;
    let versions = control.store.state_version_list(state).await;
    let versions: BTreeMap<i64, StateVersion> = versions
        .map_err(failed)?
        .into_iter()
        .map(|version| (version.version, version))
        .collect();
    let short = |value: &serde_json::Value| digests.short(value);
    let showing = if reveal {
        SensitiveDisplay::Revealed
    } else {
        SensitiveDisplay::Masked(&short)
    };
    let mask = asked.document.mask();
    let mut authors = AuthorCache::new(control);
    let mut objects = Vec::new();
    for entry in entries_at(&asked, address)? {
        let changes =
            control
                .store
                .state_index_last_changes(state, &entry.address, asked.version.version);
        let since: BTreeMap<String, i64> = changes
            .await
            .map_err(failed)?
            .into_iter()
            .map(|change| (change.path, change.version))
            .collect();
        let mut lines = Vec::new();
        let values = leaf_values(&entry.leaves, &mask, showing);
        for (leaf, (path, value)) in entry.leaves.iter().zip(values) {
            let is_meant =
                |attribute| is_below(&path, attribute) || is_below(&leaf.path, attribute);
            if !attribute.is_none_or(is_meant) {
                continue;
            }
            // A concurrent write may be missing in the index; fall back to the version that was read.
            let number = since.get(&leaf.path).copied();
            let number = number.unwrap_or(asked.version.version);
            let version = versions.get(&number).cloned();
            let author = match &version {
                Some(version) => authors.of(version).await?,
                None => Author::default(),
            };
            lines.push(BlameLine {
                path,
                value,
                since: number,
                version,
                author,
            });
        }
        if lines.is_empty() && attribute.is_some() {
            let paths = entry.leaves.iter().map(|leaf| mask.mask_text(&leaf.path));
            let mut near: Vec<String> = paths.collect();
            near.truncate(12);
            return Err(AskStateError::NoAttribute {
                address: mask.mask_text(&entry.address),
                attribute: attribute.unwrap_or_default().to_owned(),
                near,
            });
        }
        objects.push(BlamedObject {
            address: match showing {
                SensitiveDisplay::Revealed => entry.address,
                SensitiveDisplay::Masked(_) => mask.mask_text(&entry.address),
            },
            lines,
        });
    }
    Ok(Blame { asked, objects })
}

fn entries_at<'a>(
    asked: &'a VersionDocument,
    address: &str,
) -> Result<Vec<StateEntry<'a>>, AskStateError> {
    let all = asked.document.entries().into_iter();
    let mask = asked.document.mask();
    let found: Vec<StateEntry<'a>> = all
        .filter(|entry| is_at(&entry.address, address, &mask))
        .collect();
    if found.is_empty() {
        return Err(asked.no_address(address));
    }
    Ok(found)
}

/// Whether a path is the attribute, or a part of it.
fn is_below(path: &str, attribute: &str) -> bool {
    path.strip_prefix(attribute)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
