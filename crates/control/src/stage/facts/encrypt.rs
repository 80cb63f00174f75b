//! The bytes of a file of facts: in clear, or encrypted for the recipients in the project's `.sops.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use drivers::sops::{
    self, EncryptError, EncryptionFilter, EncryptionFilterError, Plugins, RuleError, RulesError,
};
use jiff::Timestamp;
use model::base::error::{Explain, NextStep, advice};
use model::stage::facts::{Encrypt, FactFile, FactsFormat, SOPS_RULES as RULES, render};
use serde_json::{Map, Value};

use super::branch::SealedFile;

#[derive(Debug, thiserror::Error)]
pub enum SealFactsError {
    #[error("it would contain a sensitive value in clear")]
    InClear,
    #[error("the project has no `{RULES}`")]
    NoRules,
    #[error("cannot read `{RULES}`")]
    Read(#[source] io::Error),
    #[error("cannot parse `{RULES}`")]
    Rules(#[from] RulesError),
    #[error("cannot find a recipient")]
    Rule(#[from] RuleError),
    #[error("SOPS cannot select fields by these names")]
    Selection(#[from] EncryptionFilterError),
    #[error("SOPS refused it")]
    Encrypt(#[from] EncryptError),
}

impl Explain for SealFactsError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::NoRules => format!(
                "write a `{RULES}` in the project's root with a `creation_rules` entry for the published path"
            ),
            Self::Rule(_) => format!("add a rule for that path to `{RULES}`"),
            Self::InClear => "encrypt the whole destination: `encrypt = \"all\"`".to_owned(),
            Self::Encrypt(err) => return err.next_steps(),
            Self::Read(_) | Self::Rules(_) | Self::Selection(_) => return Vec::new(),
        })]
    }
}

/// `reuse` gets the plaintext and its recipients; it returns their digest, and the bytes that were published for it.
pub(super) fn seal(
    root: &Path,
    asker: &BTreeMap<String, String>,
    file: &FactFile,
    header: &str,
    now: Timestamp,
    reuse: impl FnOnce(&[u8]) -> (String, Option<Vec<u8>>),
) -> Result<SealedFile, SealFactsError> {
    let keys = match &file.encrypt {
        Encrypt::Nothing => {
            return Ok(SealedFile {
                bytes: render(file.format, &file.values, Some(header)),
                plain: None,
            });
        }
        Encrypt::Leaves(pointers) => Some(key_names(&file.values, pointers)),
        Encrypt::All => None,
    };
    let text = match std::fs::read_to_string(root.join(RULES)) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Err(SealFactsError::NoRules),
        Err(err) => return Err(SealFactsError::Read(err)),
    };
    let rule = sops::rules(&text)?.for_path(&file.path)?;
    let selection = match &keys {
        Some(keys) => EncryptionFilter::only(keys.iter().map(String::as_str))?,
        None => EncryptionFilter::default(),
    };
    let rule = rule.selecting(selection);
    // SOPS would encrypt a comment as well.
    let plain = render(file.format, &file.values, None);
    let mut readers: Vec<&str> = rule
        .recipients
        .iter()
        .map(sops::Recipient::as_str)
        .collect();
    readers.sort_unstable();
    let mut whole = plain.clone();
    whole.push(0);
    whole.extend(readers.join("\n").into_bytes());
    whole.push(0);
    whole.extend(format!("{keys:?}").into_bytes());
    let (digest, reused) = reuse(&whole);
    let bytes = if let Some(bytes) = reused {
        bytes
    } else {
        let format = match file.format {
            FactsFormat::Yaml => sops::SopsFormat::Yaml,
            FactsFormat::Json => sops::SopsFormat::Json,
        };
        let plain = String::from_utf8_lossy(&plain);
        let plugins = Plugins::new(asker, None);
        sops::encrypt(&plain, format, &rule, &plugins, None, now)?.into_bytes()
    };
    if let Encrypt::Leaves(pointers) = &file.encrypt
        && is_in_clear(&file.values, pointers, &bytes)
    {
        return Err(SealFactsError::InClear);
    }
    Ok(SealedFile {
        bytes,
        plain: Some(digest),
    })
}

/// SOPS selects by the name of a key: the nearest one above each leaf.
fn key_names(values: &Map<String, Value>, pointers: &BTreeSet<String>) -> BTreeSet<String> {
    let nearest = |pointer: &String| {
        let parts = pointer.split('/').skip(1);
        let mut at = parts.map(|part| part.replace("~1", "/").replace("~0", "~"));
        let first = at.next()?;
        let mut value = values.get(&first)?;
        let mut key = first;
        for part in at {
            // A number is an index of a list, or the name of a key.
            value = match value {
                Value::Object(fields) => {
                    key.clone_from(&part);
                    fields.get(&part)?
                }
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        Some(key)
    };
    pointers.iter().filter_map(nearest).collect()
}

/// Whether the published bytes contain a string that must be encrypted.
fn is_in_clear(values: &Map<String, Value>, pointers: &BTreeSet<String>, sealed: &[u8]) -> bool {
    let whole = Value::Object(values.clone());
    let sealed = String::from_utf8_lossy(sealed);
    let mut hidden = pointers.iter().filter_map(|at| whole.pointer(at)?.as_str());
    hidden.any(|text| text.len() >= 6 && sealed.contains(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_is_a_key_where_the_value_has_one() {
        let values = json!({ "1": "a", "list": [{ "0": "b" }], "plain": ["c"] });
        let Value::Object(values) = values else {
            panic!("an object");
        };
        let pointers = ["/1", "/list/0/0", "/plain/0"].map(str::to_owned);
        let names = key_names(&values, &pointers.into());
        assert_eq!(names, ["0", "1", "plain"].map(str::to_owned).into());
        let hidden = BTreeSet::from(["/word".to_owned()]);
        let word = Map::from_iter([("word".to_owned(), json!("hunter2"))]);
        assert!(is_in_clear(&word, &hidden, b"word: hunter2"));
        assert!(!is_in_clear(&word, &hidden, b"word: ENC[...]"));
    }
}
