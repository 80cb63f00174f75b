//! The paths in a state that contain secrets of the run that wrote it. The engine marks only what the module
//! declares as sensitive; the run has the list of its secrets. A version's secret paths count as sensitive
//! wherever the version is shown, compared, published or passed to another stack.
//!
//! A path is a name, never a value: if a secret is part of an address, it is cut out of the address.
//!
//! Not here: the engine's marks and the name rules (`sensitivity`), where the paths are stored
//! (`store::state::versions`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::resources::StateDocument;
use super::sensitivity::mark_below;
use super::summary::StateChangeSummary;
use crate::base::masking::{MASKED, Mask};
use crate::base::secret::Secret;
use crate::plan::diff::{PathSegment, render_path};

/// The secret paths of one version. Stored inside its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretPaths(BTreeSet<SecretPath>);

/// One value, or one address, that holds a secret. Stored: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretPath {
    /// A resource's address, or `output.NAME`. `(secret)` replaces a secret that is part of it.
    pub entry: String,
    /// The path below the entry; none if the address itself holds the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl SecretPath {
    pub fn value(entry: &str, path: &str) -> Self {
        Self {
            entry: entry.to_owned(),
            path: Some(path.to_owned()),
        }
    }

    fn address(entry: &str) -> Self {
        Self {
            entry: entry.to_owned(),
            path: None,
        }
    }
}

impl FromIterator<SecretPath> for SecretPaths {
    fn from_iter<T: IntoIterator<Item = SecretPath>>(paths: T) -> Self {
        Self(paths.into_iter().collect())
    }
}

impl SecretPaths {
    /// The paths in a state that contain a secret of the mask; none if the state cannot be read.
    pub fn find(body: &[u8], mask: &Mask) -> Self {
        if !mask.may_be_in(body) {
            return Self::default();
        }
        StateDocument::read(body).map_or_else(|_| Self::default(), |document| document.find(mask))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn is_superset(&self, other: &Self) -> bool {
        self.0.is_superset(&other.0)
    }

    /// Whether any part of this output contains a secret.
    pub fn has_output(&self, name: &str) -> bool {
        let mut entries = self.0.iter().map(|path| &path.entry);
        entries.any(|entry| entry.strip_prefix("output.") == Some(name))
    }

    /// The secret paths that a child inherits from its parent: those with unchanged values, and the new paths
    /// of values that moved.
    #[must_use]
    pub fn inherited(&self, parent: &StateDocument, child: &StateDocument) -> Self {
        let mut inherited = child.find(&Mask::new(&parent.values_at(self)));
        let before: BTreeMap<String, &Value> = parent.values().collect();
        let by_entry = self.by_entry();
        for (entry, after) in child.values() {
            let Some(before) = before.get(&entry) else {
                continue;
            };
            let unchanged = by_entry.of(&entry).filter(|secret| match &secret.path {
                None => true,
                Some(path) => {
                    let value = at_path(before, path);
                    value.is_some() && value == at_path(after, path)
                }
            });
            inherited.0.extend(unchanged.cloned());
        }
        inherited
    }

    /// An address as it is shown.
    pub fn shown_address(&self, address: &str, mask: &Mask) -> String {
        let by_entry = self.by_entry();
        mask.mask_text(by_entry.shown_address(address).unwrap_or(address))
    }

    fn by_entry(&self) -> ByEntry<'_> {
        let mut by_entry = ByEntry::default();
        for path in &self.0 {
            if path.entry.contains(MASKED) {
                by_entry.patterns.push(path);
            } else {
                by_entry.exact.entry(&path.entry).or_default().push(path);
            }
        }
        by_entry
    }
}

/// Secret paths, indexed by their entry.
#[derive(Default)]
struct ByEntry<'a> {
    exact: BTreeMap<&'a str, Vec<&'a SecretPath>>,
    /// Paths with a secret cut out of their entry: several addresses may match one pattern.
    patterns: Vec<&'a SecretPath>,
}

impl<'a> ByEntry<'a> {
    fn of(&self, entry: &str) -> impl Iterator<Item = &'a SecretPath> {
        let exact = self.exact.get(entry).into_iter().flatten();
        let patterns = self.patterns.iter();
        let matching = patterns.filter(move |path| cut_out(&path.entry, entry).is_some());
        exact.chain(matching).copied()
    }

    /// The address without its secret, if it holds one.
    fn shown_address(&self, address: &str) -> Option<&'a str> {
        let mut matching = self.of(address).filter(|path| path.path.is_none());
        matching.next().map(|path| path.entry.as_str())
    }

    fn paths_below(&self, entry: &str) -> BTreeSet<&'a str> {
        let matching = self.of(entry);
        matching.filter_map(|path| path.path.as_deref()).collect()
    }
}

impl StateDocument {
    fn find(&self, mask: &Mask) -> SecretPaths {
        let mut found = BTreeSet::new();
        if !mask.looks_for_something() {
            return SecretPaths(found);
        }
        for (entry, value) in self.values() {
            let masked = mask.mask_text(&entry);
            if masked != entry {
                found.insert(SecretPath::address(&masked));
            }
            let mut paths = Vec::new();
            seek(value, mask, &mut Vec::new(), &mut paths);
            let paths = paths.iter();
            found.extend(paths.map(|path| SecretPath::value(&masked, path)));
        }
        SecretPaths(found)
    }

    /// The values at these paths, and the texts that were cut out of addresses. Each is a secret or contains
    /// one.
    pub fn values_at(&self, paths: &SecretPaths) -> Vec<Secret> {
        let mut found = Vec::new();
        let by_entry = paths.by_entry();
        for (entry, value) in self.values() {
            for path in by_entry.of(&entry) {
                let cut = cut_out(&path.entry, &entry).unwrap_or_default();
                found.extend(cut.into_iter().map(Secret::new));
                let path = path.path.as_deref();
                if let Some(value) = path.and_then(|path| at_path(value, path)) {
                    leaves(value, &mut found);
                }
            }
        }
        found
    }

    /// The same with these paths marked as sensitive, and addresses without their secrets.
    #[must_use]
    pub fn with_secret_paths(mut self, paths: &SecretPaths) -> Self {
        if paths.is_empty() {
            return self;
        }
        let by_entry = paths.by_entry();
        for instance in &mut self.instances {
            let paths = by_entry.paths_below(&instance.address);
            instance.sensitive = mark(
                &instance.attributes,
                &instance.sensitive,
                &paths,
                &mut Vec::new(),
            );
            if let Some(shown) = by_entry.shown_address(&instance.address) {
                shown.clone_into(&mut instance.address);
                // The module's address is part of the address, and may contain the secret.
                instance.module = String::new();
            }
        }
        for (name, output) in &mut self.outputs {
            let paths = by_entry.paths_below(&format!("output.{name}"));
            output.sensitive = mark(&output.value, &output.sensitive, &paths, &mut Vec::new());
        }
        self
    }

    /// The same with the sensitive values of this state masked in addresses and names of outputs.
    #[must_use]
    pub fn with_masked_names(mut self, mask: &Mask) -> Self {
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
        self.outputs = distinct_names(masked).collect();
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

impl StateChangeSummary {
    /// The same with addresses without their secrets, and without what the mask finds.
    #[must_use]
    pub fn masked(mut self, paths: &SecretPaths, mask: &Mask) -> Self {
        let addresses = self.changed.iter_mut().map(|changed| &mut changed.address);
        let others = self.added.iter_mut().chain(&mut self.removed);
        for address in addresses.chain(others) {
            *address = paths.shown_address(address, mask);
        }
        let attributes = self.changed.iter_mut().flat_map(|it| &mut it.attributes);
        for name in attributes.chain(&mut self.outputs) {
            *name = mask.mask_text(name);
        }
        self
    }
}

/// Names that are equal once their secrets are masked get a number, from the second on.
pub fn distinct_names<T>(
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

/// The parts of a text that match the cut-out secrets of a pattern; `None` if the text does not match.
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

/// The paths of values that hold a secret. If the name of a field holds one, that is the path of the whole object.
fn seek(value: &Value, mask: &Mask, path: &mut Vec<PathSegment>, found: &mut Vec<String>) {
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
                path.push(PathSegment::Index(index));
                seek(item, mask, path, found);
                path.pop();
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                path.push(PathSegment::Key(key.clone()));
                seek(field, mask, path, found);
                path.pop();
            }
        }
    }
}

fn at_path<'a>(value: &'a Value, wanted: &str) -> Option<&'a Value> {
    descend(value, wanted, &mut Vec::new())
}

fn descend<'a>(value: &'a Value, wanted: &str, path: &mut Vec<PathSegment>) -> Option<&'a Value> {
    let here = render_path(path);
    if here == wanted {
        return Some(value);
    }
    if !wanted.starts_with(&here) {
        return None;
    }
    let mut within = |segment, inner| {
        path.push(segment);
        let found = descend(inner, wanted, path);
        path.pop();
        found
    };
    match value {
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| within(PathSegment::Index(index), item))
        }
        Value::Object(fields) => fields
            .iter()
            .find_map(|(key, field)| within(PathSegment::Key(key.clone()), field)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Every text and number of a value, and the names of its fields: any of them may be the secret.
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

/// The marks of a value, with these paths marked too.
fn mark(
    value: &Value,
    marks: &Value,
    paths: &BTreeSet<&str>,
    path: &mut Vec<PathSegment>,
) -> Value {
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
                path.push(PathSegment::Index(index));
                all.push(mark(item, mark_below(marks, marks.get(index)), paths, path));
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
                path.push(PathSegment::Key(key.clone()));
                let mark = mark(field, mark_below(marks, marks.get(key)), paths, path);
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

    const SECRET: &str = "hunter2-hunter2";

    fn body(secret: &str) -> Vec<u8> {
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
        state.to_string().into_bytes()
    }

    fn document(secret: &str) -> StateDocument {
        StateDocument::read(&body(secret)).unwrap()
    }

    fn found(secret: &str) -> SecretPaths {
        SecretPaths::find(&body(secret), &Mask::new(&[Secret::new(secret)]))
    }

    fn shown(document: &StateDocument) -> Vec<String> {
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
    fn a_document_is_masked_at_its_secret_paths_without_the_secrets() {
        let stored = serde_json::to_string(&found(SECRET)).unwrap();
        assert!(!stored.contains("hunter2"), "{stored}");
        let paths: SecretPaths = serde_json::from_str(&stored).unwrap();
        insta::assert_snapshot!(
            shown(&document(SECRET).with_secret_paths(&paths)).join("\n"),
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
        assert!(paths.has_output("url") && !paths.has_output("sizes"));
    }

    #[test]
    fn values_at_paths_include_names_of_fields() {
        let texts = |paths: &SecretPaths| -> BTreeSet<String> {
            let values = document(SECRET).values_at(paths);
            values.iter().map(|it| it.expose().to_owned()).collect()
        };
        let url = format!("https://{SECRET}@host");
        let expected = ["1", SECRET, &url].map(str::to_owned);
        assert_eq!(texts(&found(SECRET)), BTreeSet::from(expected));
        let map = SecretPath::value(r#"t.a["plain"]"#, "map");
        assert!(texts(&SecretPaths::from_iter([map])).contains(SECRET));
    }

    /// A state of outputs alone, as pairs of name and value.
    fn outputs(values: &[(&str, &str)]) -> StateDocument {
        let outputs: Map<String, Value> = values
            .iter()
            .map(|(name, value)| {
                (
                    (*name).to_owned(),
                    json!({"value": value, "type": "string"}),
                )
            })
            .collect();
        let state = json!({"version": 4, "serial": 1, "lineage": "l", "outputs": outputs});
        StateDocument::read(state.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_child_inherits_paths_whose_values_did_not_change() {
        let output = |name: &str| SecretPath::value(&format!("output.{name}"), "");
        let paths = SecretPaths::from_iter([output("same"), output("short"), output("other")]);
        let parent = outputs(&[("same", SECRET), ("short", "5"), ("other", "some-secret-2")]);
        let child = outputs(&[
            ("same", SECRET),
            ("short", "5"),
            ("other", "plain"),
            ("moved", "x=some-secret-2"),
            ("new", "5"),
        ]);
        assert_eq!(
            paths.inherited(&parent, &child),
            SecretPaths::from_iter([output("same"), output("short"), output("moved")])
        );
    }

    #[test]
    fn a_child_inherits_addresses_that_it_still_has() {
        let paths = found(SECRET);
        assert_eq!(paths.inherited(&document(SECRET), &document(SECRET)), paths);
        let other = paths.inherited(&document(SECRET), &document("other-instance"));
        assert_eq!(other, SecretPaths::default());
    }

    #[test]
    fn a_pattern_matches_anything_where_a_secret_was_cut_out() {
        let matches = |pattern, text| cut_out(pattern, text).is_some();
        assert!(matches("a.b", "a.b"));
        assert!(!matches("a.b", "a.bc"));
        assert!(matches(
            r#"a["(secret)"].c["(secret)"]"#,
            r#"a["x"].c["y"]"#
        ));
        assert!(!matches(r#"a["(secret)"].c"#, r#"a["x"].d"#));
    }
}
