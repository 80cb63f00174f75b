//! Where in a state a secret of a run stands, and a state in which these places are hidden. The engine marks only
//! what the module calls sensitive; who holds the secrets knows more.
//!
//! A place is a name, never a value: where a secret is part of an address, it is cut out of it.
//!
//! Not here: marks of the engine, and names that speak for themselves (`sensitivity`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::resources::Document;
use super::sensitivity::mark_below;
use super::summary::Summary;
use crate::masking::{MASKED, Mask};
use crate::plan::diff::{Segment, render_path};
use crate::secret::Secret;

/// Something in a state that holds a secret. Stored: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// A resource's address, or `output.NAME`; `(secret)` stands where a secret is part of it.
    pub entry: String,
    /// Below that; none if it is the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Place {
    pub fn value(entry: &str, path: &str) -> Self {
        Self {
            entry: entry.to_owned(),
            path: Some(path.to_owned()),
        }
    }

    /// Whatever stands in a state: nobody knows any more which of it is secret.
    pub fn everything() -> Self {
        Self::value(MASKED, "")
    }

    fn address(entry: &str) -> Self {
        Self {
            entry: entry.to_owned(),
            path: None,
        }
    }

    /// Whether a part of this output is meant.
    pub fn is_of_output(&self, name: &str) -> bool {
        self.entry.strip_prefix("output.") == Some(name) || *self == Self::everything()
    }
}

impl Document {
    /// Where the secrets stand that a mask knows.
    pub fn places(&self, mask: &Mask) -> BTreeSet<Place> {
        let mut found = BTreeSet::new();
        for (entry, value) in self.values() {
            let masked = mask.mask_text(&entry);
            if masked != entry {
                found.insert(Place::address(&masked));
            }
            let mut paths = Vec::new();
            seek(value, mask, &mut Vec::new(), &mut paths);
            found.extend(paths.iter().map(|path| Place::value(&masked, path)));
        }
        found
    }

    /// What stands at a place, whatever is in it; several addresses may fit one from which a secret was cut out.
    pub fn at(&self, place: &Place) -> Vec<&Value> {
        let Some(path) = &place.path else {
            return Vec::new();
        };
        let fitting = self.values().filter(|(entry, _)| fits(&place.entry, entry));
        fitting
            .filter_map(|(_, value)| below(value, path, &mut Vec::new()))
            .collect()
    }

    /// What stands at these places, and what was cut out of addresses: the secrets themselves, or values that hold them.
    pub fn standing_at(&self, places: &BTreeSet<Place>) -> Vec<Secret> {
        let mut found = Vec::new();
        for place in places {
            for value in self.at(place) {
                leaves(value, &mut found);
            }
            for (entry, _) in self.values() {
                let cut = cut_out(&place.entry, &entry).unwrap_or_default();
                found.extend(cut.into_iter().map(Secret::new));
            }
        }
        found
    }

    /// Whether an object has an address that fits.
    pub fn has_entry(&self, place: &Place) -> bool {
        self.values().any(|(entry, _)| fits(&place.entry, &entry))
    }

    /// The same with these places marked as sensitive, and addresses without their secrets.
    #[must_use]
    pub fn hiding(mut self, places: &BTreeSet<Place>) -> Self {
        if places.is_empty() {
            return self;
        }
        for instance in &mut self.instances {
            let paths = paths_of(places, &instance.address);
            instance.sensitive = hide(
                &instance.attributes,
                &instance.sensitive,
                &paths,
                &mut Vec::new(),
            );
            if let Some(entry) = without_secrets(&instance.address, places) {
                entry.clone_into(&mut instance.address);
                // Nobody can tell which part of it is the module's.
                instance.module = String::new();
            }
        }
        for (name, output) in &mut self.outputs {
            let paths = paths_of(places, &format!("output.{name}"));
            output.sensitive = hide(&output.value, &output.sensitive, &paths, &mut Vec::new());
        }
        self
    }

    /// The same with addresses without values that are sensitive in it.
    #[must_use]
    pub fn hiding_names(mut self) -> Self {
        let mask = self.mask();
        if mask.is_empty() {
            return self;
        }
        for instance in &mut self.instances {
            let own = [
                &mut instance.address,
                &mut instance.module,
                &mut instance.provider,
            ];
            for name in own.into_iter().chain(&mut instance.dependencies) {
                *name = mask.mask_text(name);
            }
        }
        let outputs = std::mem::take(&mut self.outputs);
        let outputs = outputs.into_iter();
        let masked = outputs.map(|(name, output)| (mask.mask_text(&name), output));
        self.outputs = told_apart(masked).collect();
        self
    }

    fn values(&self) -> impl Iterator<Item = (String, &Value)> {
        let resources = self.instances.iter();
        let resources = resources.map(|it| (it.address.clone(), &it.attributes));
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|(name, output)| (format!("output.{name}"), &output.value));
        resources.chain(outputs)
    }
}

impl Summary {
    /// The same with names without these secrets.
    #[must_use]
    pub fn masked(mut self, mask: &Mask) -> Self {
        let changed = self.changed.iter_mut();
        let changed =
            changed.flat_map(|it| std::iter::once(&mut it.address).chain(&mut it.attributes));
        let others = self.added.iter_mut().chain(&mut self.removed);
        for name in changed.chain(others).chain(&mut self.outputs) {
            *name = mask.mask_text(name);
        }
        self
    }

    /// The same with addresses without their secrets.
    #[must_use]
    pub fn hiding(mut self, places: &BTreeSet<Place>) -> Self {
        let changed = self.changed.iter_mut().map(|changed| &mut changed.address);
        let others = self.added.iter_mut().chain(&mut self.removed);
        for address in changed.chain(others) {
            if let Some(entry) = without_secrets(address, places) {
                entry.clone_into(address);
            }
        }
        self
    }
}

/// Names that are the same without their secrets, with a number from the second on: none stands for two.
pub fn told_apart<T>(
    named: impl IntoIterator<Item = (String, T)>,
) -> impl Iterator<Item = (String, T)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    named.into_iter().map(move |(name, value)| {
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        let name = match *count {
            1 => name,
            count => format!("{name} ({count})"),
        };
        (name, value)
    })
}

/// An address as it is shown.
pub fn shown_address(address: &str, places: &BTreeSet<Place>, mask: &Mask) -> String {
    mask.mask_text(without_secrets(address, places).unwrap_or(address))
}

/// The same, if a secret was cut out of it.
fn without_secrets<'p>(address: &str, places: &'p BTreeSet<Place>) -> Option<&'p str> {
    let mut cut = places.iter().filter(|place| place.path.is_none());
    let place = cut.find(|place| fits(&place.entry, address))?;
    Some(&place.entry)
}

fn paths_of<'a>(places: &'a BTreeSet<Place>, entry: &str) -> BTreeSet<&'a str> {
    let fitting = places.iter().filter(|place| fits(&place.entry, entry));
    fitting.filter_map(|place| place.path.as_deref()).collect()
}

/// Whether a text is a pattern, with anything where secrets were cut out.
fn fits(pattern: &str, text: &str) -> bool {
    cut_out(pattern, text).is_some()
}

/// What stands in a text where secrets were cut out of the pattern; nothing if it does not fit.
fn cut_out<'t>(pattern: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut parts = pattern.split(MASKED);
    let mut rest = text.strip_prefix(parts.next()?)?;
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty().then(Vec::new);
    };
    let mut cut = Vec::new();
    for part in between {
        let at = rest.find(part)?;
        cut.push(&rest[..at]);
        rest = &rest[at + part.len()..];
    }
    cut.push(rest.strip_suffix(last)?);
    Some(cut)
}

/// The values that hold a secret. A name of a field that holds one hides the whole object.
fn seek(value: &Value, mask: &Mask, path: &mut Vec<Segment>, found: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Object(fields) if fields.keys().any(|key| mask.finds_in(key)) => {
            found.push(render_path(path));
        }
        Value::Number(_) | Value::String(_) => {
            if mask.finds_in_value(value) {
                found.push(render_path(path));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Segment::Index(index));
                seek(item, mask, path, found);
                path.pop();
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                path.push(Segment::Key(key.clone()));
                seek(field, mask, path, found);
                path.pop();
            }
        }
    }
}

fn below<'a>(value: &'a Value, wanted: &str, path: &mut Vec<Segment>) -> Option<&'a Value> {
    let here = render_path(path);
    if here == wanted {
        return Some(value);
    }
    if !wanted.starts_with(&here) {
        return None;
    }
    let mut descend = |segment, inner| {
        path.push(segment);
        let found = below(inner, wanted, path);
        path.pop();
        found
    };
    match value {
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| descend(Segment::Index(index), item))
        }
        Value::Object(fields) => fields
            .iter()
            .find_map(|(key, field)| descend(Segment::Key(key.clone()), field)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Every text and number of a value, and the names of its fields: one of them may be why it is hidden.
fn leaves(value: &Value, found: &mut Vec<Secret>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => found.push(Secret::new(number.to_string())),
        Value::String(text) => found.push(Secret::new(text)),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        Value::Object(fields) => {
            for (key, field) in fields {
                found.push(Secret::new(key));
                leaves(field, found);
            }
        }
    }
}

/// The marks of a value, with these paths hidden, too.
fn hide(value: &Value, marks: &Value, paths: &BTreeSet<&str>, path: &mut Vec<Segment>) -> Value {
    if paths.is_empty() || marks == &Value::Bool(true) {
        return marks.clone();
    }
    if paths.contains(render_path(path).as_str()) {
        return Value::Bool(true);
    }
    match value {
        Value::Array(items) => {
            let mut all = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                path.push(Segment::Index(index));
                all.push(hide(item, mark_below(marks, marks.get(index)), paths, path));
                path.pop();
            }
            if all.iter().all(Value::is_null) {
                return Value::Null;
            }
            Value::Array(all)
        }
        Value::Object(fields) => {
            let mut all = Map::new();
            for (key, field) in fields {
                path.push(Segment::Key(key.clone()));
                let mark = hide(field, mark_below(marks, marks.get(key)), paths, path);
                path.pop();
                if !mark.is_null() {
                    all.insert(key.clone(), mark);
                }
            }
            if all.is_empty() {
                return Value::Null;
            }
            Value::Object(all)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => marks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(secret: &str) -> Document {
        let state = json!({
            "version": 4, "serial": 1, "lineage": "l",
            "outputs": {
                "url": {"value": format!("https://{secret}@host"), "type": "string"},
                "sizes": {"value": [1, 2], "type": ["list", "number"]},
            },
            "resources": [{
                "mode": "managed", "type": "t", "name": "a", "provider": "p",
                "instances": [
                    {"index_key": format!("k-{secret}"), "attributes": {"id": "1", "tags": {"x": secret}}},
                    {"index_key": "plain", "attributes": {"id": "2", "map": {secret: 1}, "list": ["a", secret]}},
                ],
            }],
        });
        Document::read(state.to_string().as_bytes()).unwrap()
    }

    fn shown(document: &Document) -> Vec<String> {
        let entries = document.entries().into_iter();
        entries
            .flat_map(|entry| {
                let leaves = entry.leaves.into_iter();
                leaves.map(move |leaf| {
                    let value = if leaf.is_sensitive {
                        "hidden".to_owned()
                    } else {
                        leaf.value.to_string()
                    };
                    format!("{} {} {value}", entry.address, leaf.path)
                })
            })
            .collect()
    }

    #[test]
    fn what_a_mask_finds_is_hidden_from_who_has_no_mask() {
        let mask = Mask::new(&[Secret::new("hunter2-hunter2")]);
        let places = document("hunter2-hunter2").places(&mask);
        let stored = serde_json::to_string(&places).unwrap();
        assert!(!stored.contains("hunter2"), "{stored}");
        insta::assert_snapshot!(
            shown(&document("hunter2-hunter2").hiding(&places)).join("\n"),
            @r#"
            t.a["k-(secret)"] id "1"
            t.a["k-(secret)"] tags.x hidden
            t.a["plain"] id "2"
            t.a["plain"] map hidden
            t.a["plain"] list[0] "a"
            t.a["plain"] list[1] hidden
            output.sizes [0] 1
            output.sizes [1] 2
            output.url  hidden
            "#
        );
    }

    #[test]
    fn what_stands_at_a_place() {
        let document = document("hunter2-hunter2");
        let value = |entry: &str, path: &str| document.at(&Place::value(entry, path));
        assert_eq!(value("output.sizes", "[1]"), [&json!(2)]);
        assert_eq!(value(r#"t.a["k-(secret)"]"#, "id"), [&json!("1")]);
        assert!(value("t.gone", "id").is_empty());
    }

    #[test]
    fn what_was_secret_is_found_in_names_of_fields_too() {
        let secret = "hunter2-hunter2";
        let places = document(secret).places(&Mask::new(&[Secret::new(secret)]));
        let standing = document(secret).standing_at(&places);
        let texts: BTreeSet<&str> = standing.iter().map(Secret::expose).collect();
        let url = format!("https://{secret}@host");
        assert_eq!(texts, BTreeSet::from(["1", secret, &url]));
        // Its `map` is hidden for the name of a field.
        let map = BTreeSet::from([Place::value(r#"t.a["plain"]"#, "map")]);
        let standing = document(secret).standing_at(&map);
        assert!(standing.contains(&Secret::new(secret)));
    }

    #[test]
    fn a_pattern_fits_with_anything_in_its_gaps() {
        assert!(fits("a.b", "a.b"));
        assert!(!fits("a.b", "a.bc"));
        assert!(fits(r#"a["(secret)"].c["(secret)"]"#, r#"a["x"].c["y"]"#));
        assert!(!fits(r#"a["(secret)"].c"#, r#"a["x"].d"#));
    }
}
