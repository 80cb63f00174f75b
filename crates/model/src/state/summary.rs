//! The differences between two versions of a state, as addresses and attribute names. It contains no values and
//! therefore no secrets.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::spans::{ReadResourcesError, resources};
use super::{InvalidState, outputs};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateChangeSummary {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<ChangedResource>,
    /// Names of changed outputs.
    pub outputs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedResource {
    pub address: String,
    /// The changed attributes. Empty if only something else changed, such as a mark.
    pub attributes: Vec<String>,
}

impl StateChangeSummary {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares `before` with `after`. Without `before`, the earlier state is empty.
pub fn summary(
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<StateChangeSummary, ReadResourcesError> {
    let old = before.map_or_else(|| Ok(BTreeMap::new()), instances)?;
    let new = instances(after)?;
    let only = |these: &BTreeMap<String, &str>, those: &BTreeMap<String, &str>| {
        let missing = these.keys().filter(|address| !those.contains_key(*address));
        missing.cloned().collect::<Vec<_>>()
    };
    let mut changed = Vec::new();
    for (address, after) in &new {
        let Some(before) = old.get(address) else {
            continue;
        };
        if compact(before) != compact(after) {
            changed.push(ChangedResource {
                address: address.clone(),
                attributes: differing(&attributes(before), &attributes(after)),
            });
        }
    }
    let told = |body: &[u8]| -> Result<BTreeMap<String, String>, InvalidState> {
        let all = outputs(body)?.into_iter();
        Ok(all
            .map(|(name, output)| (name, compact(output.value.get())))
            .collect())
    };
    let old_outputs = before.map_or_else(|| Ok(BTreeMap::new()), told)?;
    let new_outputs = told(after)?;
    let old_outputs = old_outputs.iter().map(|(k, v)| (k.clone(), v.as_str()));
    let new_outputs = new_outputs.iter().map(|(k, v)| (k.clone(), v.as_str()));
    Ok(StateChangeSummary {
        added: only(&new, &old),
        removed: only(&old, &new),
        changed,
        outputs: differing(&old_outputs.collect(), &new_outputs.collect()),
    })
}

fn instances(body: &[u8]) -> Result<BTreeMap<String, &str>, ReadResourcesError> {
    let mut found = BTreeMap::new();
    for resource in resources(body)? {
        for instance in resource.instances {
            let address = match instance.deposed {
                Some(key) => format!("{} (deposed {key})", instance.address),
                None => instance.address,
            };
            found.insert(address, instance.text);
        }
    }
    Ok(found)
}

fn attributes(instance: &str) -> BTreeMap<String, &str> {
    #[derive(Deserialize)]
    struct Instance<'a> {
        #[serde(borrow, default)]
        attributes: Option<BTreeMap<String, &'a RawValue>>,
    }
    let read: Result<Instance<'_>, _> = serde_json::from_str(instance);
    let attributes = read.ok().and_then(|instance| instance.attributes);
    let attributes = attributes.unwrap_or_default().into_iter();
    attributes.map(|(name, raw)| (name, raw.get())).collect()
}

/// Names whose values differ, or that only one side has.
fn differing(old: &BTreeMap<String, &str>, new: &BTreeMap<String, &str>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&&String| {
        let (old, new) = (old.get(**name), new.get(**name));
        old.map(|text| compact(text)) != new.map(|text| compact(text))
    };
    names.iter().filter(differs).map(|n| (*n).clone()).collect()
}

/// JSON without insignificant whitespace, since engines and people indent it differently.
fn compact(json: &str) -> String {
    let (mut text, mut quoted, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        if quoted || !c.is_ascii_whitespace() {
            text.push(c);
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && c == '\\' && !escaped;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(resources: &str, outputs: &str) -> Vec<u8> {
        format!(
            r#"{{"version":4,"serial":1,"lineage":"l","outputs":{{{outputs}}},"resources":[{resources}]}}"#
        )
        .into_bytes()
    }

    fn resource(name: &str, attributes: &str) -> String {
        format!(
            r#"{{"mode":"managed","type":"t","name":"{name}","instances":[{{"attributes":{{{attributes}}}}}]}}"#
        )
    }

    #[test]
    fn names_and_no_values() {
        let before = [
            resource("a", r#""id": "1", "password": "x \" y""#),
            resource("b", ""),
            resource("same", r#""n" : 1"#),
        ];
        let after = [
            resource("a", r#""id":"1","password":"z","more":1"#),
            resource("c", ""),
            resource("same", r#""n":1"#),
        ];
        let before = state(&before.join(","), r#""o":{"value":1,"type":"number"}"#);
        let after = state(&after.join(","), r#""o":{"value":2,"type":"number"}"#);
        let seen = summary(Some(&before), &after).unwrap();
        let expected = StateChangeSummary {
            added: vec!["t.c".to_owned()],
            removed: vec!["t.b".to_owned()],
            changed: vec![ChangedResource {
                address: "t.a".to_owned(),
                attributes: vec!["more".to_owned(), "password".to_owned()],
            }],
            outputs: vec!["o".to_owned()],
        };
        assert_eq!(seen, expected);
        assert!(summary(Some(&after), &after).unwrap().is_empty());
        assert_eq!(summary(None, &after).unwrap().added.len(), 3);
    }
}
