//! Finds a text in all states: in addresses, and in the values that may be seen. A sensitive value is found
//! only by who knows all of it.

use std::collections::HashMap;

use jiff::Timestamp;
use model::masking::{MASKED, Mask};
use model::plan::PlanValue;
use model::secret::Secret;
use model::state::glob::Glob;
use model::state::leaves::Leaf;
use model::state::pick::Pick;
use model::state::resources::Document;
use model::state::{StateName, StateVersion};
use serde_json::Value;

use super::ask::{AskStateError, Digests, look_into, store_failed};
use super::deleted::is_deleted_by;
use super::index;
use crate::Control;

#[derive(Clone, Debug, Default)]
pub struct Query {
    pub text: String,
    pub types: Option<Glob>,
    /// What was the head at that time, instead of now.
    pub at: Option<Timestamp>,
    pub all_versions: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Found {
    pub hits: Vec<Hit>,
    /// States of which nothing can be known, and why.
    pub opaque: Vec<(StateName, i64, String)>,
    pub states: usize,
    pub versions: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub state: StateName,
    pub address: String,
    /// Where in it; nothing if the address itself was found.
    pub value: Option<(String, PlanValue)>,
    /// From which version on; that of the look, if only one was looked at.
    pub first: i64,
    /// Up to which version; nothing if it is in the newest.
    pub last: Option<i64>,
}

pub async fn search(control: &Control, query: &Query) -> Result<Found, AskStateError> {
    // Nothing found where not everything was looked at is no answer.
    let store = &control.store;
    store
        .state_check_all_current()
        .await
        .map_err(AskStateError::List)?;
    let seeker = Seeker::new(control, query).await?;
    let mut found = Found::default();
    for row in control
        .store
        .state_list()
        .await
        .map_err(AskStateError::List)?
    {
        let versions = control.store.state_version_list(&row.name).await;
        let versions = versions.map_err(store_failed("search", &row.name))?;
        if query.all_versions {
            seeker
                .through_time(&row.name, &versions, &mut found)
                .await?;
            continue;
        }
        let pick = query.at.map_or(Pick::Head, Pick::At);
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

struct Seeker<'a> {
    control: &'a Control,
    digests: Digests,
    text: String,
    lower: String,
    types: Option<Glob>,
}

impl<'a> Seeker<'a> {
    async fn new(control: &'a Control, query: &Query) -> Result<Self, AskStateError> {
        Ok(Self {
            control,
            digests: Digests::of(&control.store).await?,
            text: query.text.clone(),
            lower: query.text.to_lowercase(),
            types: query.types.clone(),
        })
    }

    async fn in_one(
        &self,
        version: &StateVersion,
        is_newest: bool,
        found: &mut Found,
    ) -> Result<(), AskStateError> {
        let Some(mut document) = self.open(version, found).await? else {
            return Ok(());
        };
        found.states += 1;
        if self.finds_something(&document) {
            document.elsewhere = self.secrets(&version.state).await?;
        }
        let mask = document.mask();
        let last = (!is_newest).then_some(version.version);
        for entry in document.entries() {
            if !self.fits(entry.type_name) {
                continue;
            }
            let hit = |value| Hit {
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

    /// Each place once for every span of versions in which it has a value that fits.
    async fn through_time(
        &self,
        state: &StateName,
        versions: &[StateVersion],
        found: &mut Found,
    ) -> Result<(), AskStateError> {
        // All versions were read for them: what is sensitive in any is in it.
        let mask = Mask::new(&self.secrets(state).await?);
        let store = &self.control.store;
        let failed = &store_failed("search", state);
        let mut hits = Vec::new();
        for entry in store.state_index_entries(state).await.map_err(failed)? {
            if self.fits(&entry.type_name) && self.is_in_name(&entry.address, &mask) {
                hits.push(Hit {
                    state: state.clone(),
                    address: mask.mask_text(&entry.address),
                    value: None,
                    first: entry.first_version,
                    last: entry.last_version,
                });
            }
        }
        for version in versions {
            // Only what a version changed can be new in it.
            let spans = store.state_index_spans(state, version.version).await;
            let spans: HashMap<(String, String), Option<i64>> = spans
                .map_err(failed)?
                .into_iter()
                .map(|(address, path, last)| ((address, path), last))
                .collect();
            if spans.is_empty() && version.contents != model::state::Contents::Encrypted {
                found.versions += 1;
                continue;
            }
            let Some(document) = self.open(version, found).await? else {
                continue;
            };
            for entry in document.entries() {
                if !self.fits(entry.type_name) {
                    continue;
                }
                for leaf in &entry.leaves {
                    let place = (entry.address.clone(), leaf.path.clone());
                    let Some(last) = spans.get(&place) else {
                        continue;
                    };
                    if let Some(value) = self.value(leaf, &mask) {
                        hits.push(Hit {
                            state: state.clone(),
                            address: mask.mask_text(&place.0),
                            value: Some((mask.mask_text(&place.1), value)),
                            first: version.version,
                            last: *last,
                        });
                    }
                }
            }
        }
        found.states += usize::from(!versions.is_empty());
        let path = |hit: &Hit| hit.value.as_ref().map(|value| value.0.clone());
        hits.sort_by_key(|hit| (hit.address.clone(), path(hit), hit.first));
        found.hits.extend(hits);
        Ok(())
    }

    async fn secrets(&self, state: &StateName) -> Result<Vec<Secret>, AskStateError> {
        index::secrets(&self.control.store, state, &self.digests).await
    }

    /// Whether something would be shown, so that all has to be known that must not be.
    fn finds_something(&self, document: &Document) -> bool {
        let nothing = Mask::default();
        let entries = document.entries();
        let mut fitting = entries.iter().filter(|entry| self.fits(entry.type_name));
        fitting.any(|entry| {
            let mut leaves = entry.leaves.iter();
            self.is_in(&entry.address) || leaves.any(|leaf| self.value(leaf, &nothing).is_some())
        })
    }

    async fn open(
        &self,
        version: &StateVersion,
        found: &mut Found,
    ) -> Result<Option<Document>, AskStateError> {
        match look_into(&self.control.store, version).await? {
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

    /// Whether an address fits. One that holds a secret is found by its other parts, and by who knows all of the secret.
    fn is_in_name(&self, address: &str, mask: &Mask) -> bool {
        let shown = mask.mask_text(address).replace(MASKED, "\0");
        self.is_in(&shown) || (self.is_secret(mask) && address.contains(&self.text))
    }

    /// Whether the text that is looked for is a whole secret: who knows it may know where it stands.
    fn is_secret(&self, mask: &Mask) -> bool {
        let mut text = Value::from(self.text.as_str());
        mask.mask_value(&mut text);
        text == MASKED
    }

    /// The value as it may be shown, if it fits.
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
        if leaf.is_sensitive {
            return masked(any_text(leaf.value, &is_known));
        }
        let text = text_of(leaf.value)?;
        let mut shown = PlanValue::Known(leaf.value.clone());
        mask.mask_plan_value(&mut shown);
        match &shown {
            PlanValue::Known(_) => self.is_in(&text).then_some(shown),
            // A secret inside of another text must not be found letter by letter.
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

/// Whether this is so of any text in a branch that is hidden as a whole.
fn any_text(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| any_text(item, is_it)),
        Value::Object(fields) => fields.values().any(|field| any_text(field, is_it)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text_of(value).is_some_and(|text| is_it(&text))
        }
    }
}
