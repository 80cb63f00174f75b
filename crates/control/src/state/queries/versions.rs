//! The versions of a state: when, by whom, and what each changed.

use std::collections::BTreeMap;

use model::state::{StateName, StateVersion};
use store::VersionSummary;

use super::author::{Author, AuthorCache};
use super::version::{AskStateError, ValueDigests, store_failed};
use super::{ReadStateError, index};
use crate::Control;

#[derive(Clone, Debug)]
pub struct VersionLine {
    pub version: StateVersion,
    pub author: Author,
    /// What it changed; `None` if it could not be read.
    pub did: Option<VersionSummary>,
}

/// All stored versions, oldest first.
pub async fn versions(
    control: &Control,
    state: &StateName,
) -> Result<Vec<VersionLine>, AskStateError> {
    let failed = &store_failed("list the versions of", state);
    let versions = control.store.state_version_list(state).await;
    let versions = versions.map_err(failed)?;
    if versions.is_empty() {
        let state = state.clone();
        return Err(ReadStateError::NoState { state }.into());
    }
    let digests = ValueDigests::of(control).await?;
    // A version that cannot be read is still listed, without its changes.
    drop(index::update(&control.store, state, &digests).await);
    let summaries = control.store.state_index_versions(state).await;
    let mut summaries: BTreeMap<i64, VersionSummary> = summaries
        .map_err(failed)?
        .into_iter()
        .map(|summary| (summary.version, summary))
        .collect();
    let mut authors = AuthorCache::new(control);
    let mut lines = Vec::new();
    for version in versions {
        lines.push(VersionLine {
            author: authors.of(&version).await?,
            did: summaries.remove(&version.version),
            version,
        });
    }
    Ok(lines)
}
