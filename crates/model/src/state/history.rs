//! The content of each state version as places and keyed digests, without values. Two of them show what a version
//! changed.
//!
//! Not here: reading versions (`control::state::queries`), storing the result (`store::state::index`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::leaves::EntryKind;
use super::resources::StateDocument;

/// Everything that a version contains, by address.
pub type IndexedObjects = BTreeMap<String, IndexedObject>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedObject {
    pub kind: EntryKind,
    pub type_name: String,
    /// The digest of each leaf, by path.
    pub leaves: BTreeMap<String, String>,
}

/// What a version changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionChange {
    pub counts: Counts,
    pub appeared: Vec<String>,
    pub gone: Vec<String>,
    pub changes: Vec<ValueChange>,
}

/// What a version changed, as numbers of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of resources now.
    pub resources: usize,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    /// Outputs and data sources that changed.
    pub others: usize,
}

/// A changed value, as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueChange {
    pub address: String,
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The content of a document.
pub fn holdings(document: &StateDocument, digest: impl Fn(&Value) -> String) -> IndexedObjects {
    let entries = document.entries().into_iter();
    entries
        .map(|entry| {
            let leaves = entry.leaves.iter();
            let holding = IndexedObject {
                kind: entry.kind,
                type_name: entry.type_name.to_owned(),
                leaves: leaves
                    .map(|leaf| (leaf.path.clone(), digest(leaf.value)))
                    .collect(),
            };
            (entry.address, holding)
        })
        .collect()
}

/// The changes from one version to the next.
pub fn step(before: &IndexedObjects, after: &IndexedObjects) -> VersionChange {
    let mut step = VersionChange::default();
    for (address, new) in after {
        let old = before.get(address);
        if old.is_none() {
            step.appeared.push(address.clone());
        }
        let changes = step.changes.len();
        compare(address, old, Some(new), &mut step.changes);
        let differs = step.changes.len() > changes;
        let counts = &mut step.counts;
        match (new.kind, old) {
            (EntryKind::Resource, None) => counts.added += 1,
            (EntryKind::Resource, Some(_)) => counts.changed += usize::from(differs),
            (EntryKind::Data | EntryKind::Output, None) => counts.others += 1,
            (EntryKind::Data | EntryKind::Output, Some(_)) => {
                counts.others += usize::from(differs);
            }
        }
        counts.resources += usize::from(new.kind == EntryKind::Resource);
    }
    for (address, old) in before.iter().filter(|it| !after.contains_key(it.0)) {
        step.gone.push(address.clone());
        compare(address, Some(old), None, &mut step.changes);
        match old.kind {
            EntryKind::Resource => step.counts.removed += 1,
            EntryKind::Data | EntryKind::Output => step.counts.others += 1,
        }
    }
    step
}

/// The part of a version range that can be read, with its ends among `known`: the readable versions, oldest first. An
/// open range stays open if it reaches `newest`, the current version of the state.
pub fn seen(
    first: i64,
    last: Option<i64>,
    known: &[i64],
    newest: Option<i64>,
) -> Option<(i64, Option<i64>)> {
    let within = |version: &&i64| **version >= first && last.is_none_or(|last| **version <= last);
    let from = *known.iter().find(within)?;
    let to = *known.iter().rfind(within)?;
    let is_open = last.is_none() && newest == Some(to);
    Some((from, (!is_open).then_some(to)))
}

fn compare(
    address: &str,
    old: Option<&IndexedObject>,
    new: Option<&IndexedObject>,
    changes: &mut Vec<ValueChange>,
) {
    let none = BTreeMap::new();
    let old = old.map_or(&none, |holding| &holding.leaves);
    let new = new.map_or(&none, |holding| &holding.leaves);
    let mut add = |path: &str, before: Option<&String>, after: Option<&String>| {
        if before != after {
            changes.push(ValueChange {
                address: address.to_owned(),
                path: path.to_owned(),
                before: before.cloned(),
                after: after.cloned(),
            });
        }
    };
    for (path, digest) in new {
        add(path, old.get(path), Some(digest));
    }
    for (path, digest) in old.iter().filter(|it| !new.contains_key(it.0)) {
        add(path, Some(digest), None);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(value: &Value) -> IndexedObjects {
        let document = StateDocument::read(value.to_string().as_bytes()).unwrap();
        holdings(&document, Value::to_string)
    }

    #[track_caller]
    fn check_seen(span: (i64, Option<i64>), expected: Option<(i64, Option<i64>)>) {
        // 1 to 3 are gone, 6 cannot be read, 9 is the newest.
        assert_eq!(seen(span.0, span.1, &[4, 5, 7, 8, 9], Some(9)), expected);
    }

    #[test]
    fn a_span_names_versions_that_can_be_looked_at() {
        check_seen((1, None), Some((4, None)));
        check_seen((8, None), Some((8, None)));
        check_seen((1, Some(3)), None);
        check_seen((2, Some(4)), Some((4, Some(4))));
        check_seen((5, Some(6)), Some((5, Some(5))));
        check_seen((6, Some(6)), None);
        // The newest version cannot be read, or the state was deleted, so the value is not known to exist now.
        assert_eq!(seen(1, None, &[4, 5], Some(6)), Some((4, Some(5))));
        assert_eq!(seen(1, None, &[4, 5], None), Some((4, Some(5))));
    }

    #[test]
    fn what_a_version_did() {
        let vm = |name: &str, attributes: Value| json!({"mode": "managed", "type": "vm", "name": name, "instances": [{"attributes": attributes}]});
        let before = state(&json!({
            "version": 4,
            "resources": [vm("a", json!({"size": 1, "old": 1})), vm("b", json!({"size": 1})), vm("c", json!({}))],
            "outputs": {"x": {"value": 1}},
        }));
        let after = state(&json!({
            "version": 4,
            "resources": [vm("a", json!({"size": 2})), vm("c", json!({})), vm("d", json!({"size": 1}))],
            "outputs": {"x": {"value": 2}},
        }));
        let seen = step(&before, &after);
        let counts = Counts {
            resources: 3,
            added: 1,
            changed: 1,
            removed: 1,
            others: 1,
        };
        assert_eq!(seen.counts, counts);
        let words: Vec<String> = seen
            .changes
            .iter()
            .map(|it| format!("{} {} {:?} {:?}", it.address, it.path, it.before, it.after))
            .collect();
        assert_eq!(
            words,
            [
                "output.x  Some(\"1\") Some(\"2\")",
                "vm.a size Some(\"1\") Some(\"2\")",
                "vm.a old Some(\"1\") None",
                "vm.d size None Some(\"1\")",
                "vm.b size Some(\"1\") None",
            ]
        );
        assert_eq!(
            (seen.appeared, seen.gone),
            (vec!["vm.d".to_owned()], vec!["vm.b".to_owned()])
        );
        let idle = step(&after, &after);
        assert_eq!(idle.changes, []);
        assert_eq!(idle.counts.resources, 3);
    }
}
