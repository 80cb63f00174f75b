//! Finds a text in all states: in addresses, and in values that may be shown. A sensitive value is found only
//! by its complete text.

use std::collections::HashMap;

use jiff::Timestamp;
use model::base::masking::{MASKED, Mask};
use model::plan::PlanValue;
use model::state::glob::Glob;
use model::state::history;
use model::state::leaves::Leaf;
use model::state::resources::StateDocument;
use model::state::version_ref::VersionRef;
use model::state::{StateName, StateVersion};
use serde_json::Value;
use store::StateRow;

use super::deleted::is_deleted_by;
use super::index;
use super::version::{AskStateError, ValueDigests, read_document, store_failed};
use crate::Control;

#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    pub text: String,
    pub types: Option<Glob>,
    /// Search the heads at that time, instead of the current ones.
    pub at: Option<Timestamp>,
    pub all_versions: bool,
}

#[derive(Clone, Debug, Default)]
pub struct SearchResult {
    pub hits: Vec<SearchHit>,
    /// States that could not be read, and why.
    pub opaque: Vec<(StateName, i64, String)>,
    pub states: usize,
    pub versions: usize,
    /// States in a backend of the engine, of which copies were searched.
    pub copies: Vec<StateName>,
    /// Whether all versions were searched, so that each hit has a range of versions.
    pub through_time: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SearchHit {
    pub state: StateName,
    pub address: String,
    /// The path and the value; `None` if the address itself matches.
    pub value: Option<(String, PlanValue)>,
    /// The first version with the hit; the searched version, if only one was searched.
    pub first: i64,
    /// The last version with the hit; `None` if the current state contains it.
    pub last: Option<i64>,
}

pub async fn search(control: &Control, query: &SearchQuery) -> Result<SearchResult, AskStateError> {
    // An empty result is meaningful only if all states were searched.
    let store = &control.store;
    store
        .state_check_all_current()
        .map_err(AskStateError::List)?;
    let seeker = Searcher::new(control, query).await?;
    let mut found = SearchResult {
        through_time: query.all_versions,
        ..SearchResult::default()
    };
    for row in control
        .store
        .state_list()
        .await
        .map_err(AskStateError::List)?
    {
        let versions = control.store.state_version_list(&row.name).await;
        let versions = versions.map_err(store_failed("search", &row.name))?;
        if versions.last().is_some_and(StateVersion::is_copy) {
            found.copies.push(row.name.clone());
        }
        if query.all_versions {
            let looked = seeker.through_time(&row, &versions, &mut found);
            looked.await?;
            continue;
        }
        let pick = query.at.map_or(VersionRef::Head, VersionRef::At);
        if is_deleted_by(&row, pick) {
            continue;
        }
        let Some(version) = pick.find(&versions) else {
            continue;
        };
        let is_newest = versions.last() == Some(version);
        seeker.in_one(version, is_newest, &mut found).await?;
    }
    Ok(found)
}

struct Searcher<'a> {
    control: &'a Control,
    digests: ValueDigests,
    text: String,
    lower: String,
    types: Option<Glob>,
}

impl<'a> Searcher<'a> {
    async fn new(control: &'a Control, query: &SearchQuery) -> Result<Self, AskStateError> {
        Ok(Self {
            control,
            digests: ValueDigests::of(control).await?,
            text: query.text.clone(),
            lower: query.text.to_lowercase(),
            types: query.types.clone(),
        })
    }

    async fn in_one(
        &self,
        version: &StateVersion,
        is_newest: bool,
        found: &mut SearchResult,
    ) -> Result<(), AskStateError> {
        let Some(document) = self.open(version, found).await? else {
            return Ok(());
        };
        found.states += 1;
        let mask = document.mask();
        let last = (!is_newest).then_some(version.version);
        for entry in document.entries() {
            if !self.fits(entry.type_name) {
                continue;
            }
            let hit = |value| SearchHit {
                state: version.state.clone(),
                address: mask.mask_text(&entry.address),
                value,
                first: version.version,
                last,
            };
            if self.is_in_name(&entry.address, &mask) {
                found.hits.push(hit(None));
            }
            for leaf in &entry.leaves {
                if let Some(value) = self.value(leaf, &mask) {
                    found
                        .hits
                        .push(hit(Some((mask.mask_text(&leaf.path), value))));
                }
            }
        }
        Ok(())
    }

    /// Returns each place once for every range of versions in which it has a matching value. Only versions
    /// that are stored and readable are named.
    async fn through_time(
        &self,
        row: &StateRow,
        versions: &[StateVersion],
        found: &mut SearchResult,
    ) -> Result<(), AskStateError> {
        let state = &row.name;
        let store = &self.control.store;
        index::update(store, state, &self.digests).await?;
        let failed = &store_failed("search", state);
        let summaries = store.state_index_versions(state).await.map_err(failed)?;
        let opaque: HashMap<i64, String> = summaries
            .into_iter()
            .filter_map(|summary| Some((summary.version, summary.opaque?)))
            .collect();
        let known: Vec<i64> = versions
            .iter()
            .map(|version| version.version)
            .filter(|version| !opaque.contains_key(version))
            .collect();
        let seen = |first, last| history::seen(first, last, &known, row.head);
        let (mut hits, mut secrets) = (Vec::<SearchHit>::new(), Vec::new());
        let mut done = 0;
        for version in versions {
            if let Some(why) = opaque.get(&version.version) {
                let unknown = (state.clone(), version.version, why.clone());
                found.opaque.push(unknown);
                continue;
            }
            // Only entries since the last readable version can be new in this one.
            let spans = store.state_index_spans(state, done, version.version).await;
            done = version.version;
            let spans: HashMap<(String, String), Option<i64>> = spans
                .map_err(failed)?
                .into_iter()
                .map(|(address, path, last)| ((address, path), last))
                .collect();
            if spans.is_empty() {
                found.versions += 1;
                continue;
            }
            let Some(document) = self.open(version, found).await? else {
                continue;
            };
            let mask = document.mask();
            secrets.extend(document.sensitive_values());
            for entry in document.entries() {
                if !self.fits(entry.type_name) {
                    continue;
                }
                for leaf in &entry.leaves {
                    let place = (entry.address.clone(), leaf.path.clone());
                    let span = spans.get(&place);
                    let span = span.and_then(|last| seen(version.version, *last));
                    let Some((first, last)) = span else {
                        continue;
                    };
                    if let Some(value) = self.value(leaf, &mask) {
                        hits.push(SearchHit {
                            state: state.clone(),
                            address: mask.mask_text(&place.0),
                            value: Some((mask.mask_text(&place.1), value)),
                            first,
                            last,
                        });
                    }
                }
            }
        }
        // A value that is sensitive in one version is masked in the hits of all versions.
        let mask = Mask::new(&secrets);
        for hit in &mut hits {
            hit.address = mask.mask_text(&hit.address);
            if let Some((path, value)) = &mut hit.value {
                *path = mask.mask_text(path);
                mask.mask_plan_value(value);
            }
        }
        for entry in store.state_index_entries(state).await.map_err(failed)? {
            let Some((first, last)) = seen(entry.first_version, entry.last_version) else {
                continue;
            };
            if self.fits(&entry.type_name) && self.is_in_name(&entry.address, &mask) {
                hits.push(SearchHit {
                    state: state.clone(),
                    address: mask.mask_text(&entry.address),
                    value: None,
                    first,
                    last,
                });
            }
        }
        found.states += usize::from(!versions.is_empty());
        let path = |hit: &SearchHit| hit.value.as_ref().map(|value| value.0.clone());
        hits.sort_by_key(|hit| (hit.address.clone(), path(hit), hit.first));
        found.hits.extend(hits);
        Ok(())
    }

    async fn open(
        &self,
        version: &StateVersion,
        found: &mut SearchResult,
    ) -> Result<Option<StateDocument>, AskStateError> {
        match read_document(&self.control.store, version).await? {
            Ok(document) => {
                found.versions += 1;
                Ok(Some(document))
            }
            Err(opaque) => {
                let unknown = (version.state.clone(), version.version, opaque.to_string());
                found.opaque.push(unknown);
                Ok(None)
            }
        }
    }

    fn fits(&self, type_name: &str) -> bool {
        let types = self.types.as_ref();
        types.is_none_or(|glob| glob.fits(type_name))
    }

    fn is_in(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.lower)
    }

    /// Whether an address matches. An address that contains a secret is found by its other parts, as it is
    /// shown, or by the complete secret.
    fn is_in_name(&self, address: &str, mask: &Mask) -> bool {
        let mut shown = mask.mask_text(address);
        if !self.text.contains(MASKED) {
            shown = shown.replace(MASKED, "\0");
        }
        self.is_in(&shown)
            || address == self.text
            || (self.is_secret(mask) && address.contains(&self.text))
    }

    /// Whether a field name contains the secret that is searched; other field names are not searched.
    fn is_in_key(&self, name: &str, mask: &Mask) -> bool {
        name.contains(&self.text) && self.is_secret(mask)
    }

    /// Whether the search text is a complete secret: a user who knows it may learn where it is.
    fn is_secret(&self, mask: &Mask) -> bool {
        let mut text = Value::from(self.text.as_str());
        mask.mask_value(&mut text);
        text == MASKED
    }

    /// The value as it may be shown, if it matches.
    fn value(&self, leaf: &Leaf<'_>, mask: &Mask) -> Option<PlanValue> {
        if self.text.is_empty() {
            return None;
        }
        let masked = |is_found: bool| {
            is_found.then(|| PlanValue::Masked {
                digest: self.digests.short(leaf.value),
            })
        };
        let is_known =
            |text: &str| text == self.text || (text.contains(&self.text) && self.is_secret(mask));
        let is_in_path = self.is_in_key(&leaf.path, mask);
        if leaf.is_sensitive {
            let is_in_key = |name: &str| self.is_in_key(name, mask);
            return masked(is_in_path || any_text(leaf.value, &is_known, &is_in_key));
        }
        let mut shown = PlanValue::Known(leaf.value.clone());
        mask.mask_plan_value(&mut shown);
        if is_in_path {
            return Some(shown);
        }
        let text = text_of(leaf.value)?;
        match &shown {
            PlanValue::Known(_) => self.is_in(&text).then_some(shown),
            // A secret inside another text must not be discoverable letter by letter.
            PlanValue::Sensitive | PlanValue::Masked { .. } => masked(is_known(&text)),
            PlanValue::Absent | PlanValue::Unknown | PlanValue::KnownAfter { .. } => None,
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether any text or key matches in a branch that is hidden as a whole.
fn any_text(value: &Value, is_it: &dyn Fn(&str) -> bool, is_key: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| any_text(item, is_it, is_key)),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, field)| is_key(key) || any_text(field, is_it, is_key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text_of(value).is_some_and(|text| is_it(&text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::surgery::tests::{Place, full, network};
    use model::base::actor::Actor;

    async fn spans(place: &Place, text: &str) -> Vec<(String, i64, Option<i64>)> {
        let query = SearchQuery {
            text: text.to_owned(),
            all_versions: true,
            ..SearchQuery::default()
        };
        let found = search(&place.control, &query).await.unwrap();
        let hits = found.hits.into_iter();
        hits.map(|hit| {
            let path = hit.value.map_or(String::new(), |(path, _)| path);
            (path, hit.first, hit.last)
        })
        .collect()
    }

    #[tokio::test]
    async fn only_versions_that_are_kept_are_named() {
        let place = Place::new().await;
        for serial in 1..=20 {
            let value = if serial < 3 { "early" } else { "lasting" };
            place.write_body(full(serial, value)).await;
        }
        let name = |first| (String::new(), first, None);
        assert_eq!(spans(&place, "x.y").await, [name(1)]);
        let first = *place.let_go_of_all_but_one().await.first().unwrap();
        assert!(first > 3, "{first}");
        assert_eq!(spans(&place, "x.y").await, [name(first)]);
        // The version that set it is gone, but the value is still there.
        assert_eq!(
            spans(&place, "lasting").await,
            [("a".to_owned(), first, None)]
        );
        assert_eq!(spans(&place, "early").await, []);
        let store = &place.control.store;
        store
            .state_delete(&network(), None, &Actor::named("ci"))
            .await
            .unwrap();
        assert_eq!(spans(&place, "x.y").await[0].2, Some(20));
    }
}
