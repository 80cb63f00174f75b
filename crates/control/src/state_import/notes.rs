//! What goes with a state to another home, so that its secrets stay hidden there: where they stand, never what they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use model::state::hidden::Place;
use model::state::passages::Passage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ImportError, LIST, read_file};
use crate::state_export::Entry;

/// Of one version. Written to files: fields are only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Where secrets of runs stand in it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hidden: BTreeSet<Place>,
    /// Where values stand that were sensitive only in earlier versions: in these very bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Passage>,
}

/// Beside a state's file. The list alone is how it was written first.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Beside {
    Places(BTreeSet<Place>),
    Notes {
        sha256: String,
        #[serde(flatten)]
        notes: Notes,
    },
}

impl Notes {
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.earlier.is_empty()
    }

    /// The file beside that of a state.
    pub(crate) fn beside(self, body: &[u8]) -> Vec<u8> {
        let beside = Beside::Notes {
            sha256: sha256(body),
            notes: self,
        };
        serde_json::to_vec_pretty(&beside).unwrap_or_default()
    }

    /// Those of a state's file, which lie beside it or in the list of all; none if they do not.
    pub(super) fn of(path: &Path, body: &[u8]) -> Result<Self, ImportError> {
        let beside = notes_beside(path);
        let list = path.with_file_name(LIST);
        let (place, of, notes) = if beside.exists() {
            match read(&beside)? {
                Beside::Places(hidden) => {
                    let earlier = Vec::new();
                    return Ok(Self { hidden, earlier });
                }
                Beside::Notes { sha256, notes } => (beside, sha256, notes),
            }
        } else if list.exists() {
            let entries: Vec<Entry> = read(&list)?;
            let is_its = |entry: &Entry| path.file_name() == Some(OsStr::new(&entry.file));
            match entries.into_iter().find(is_its) {
                Some(entry) => (list, entry.sha256, entry.notes),
                None => return Ok(Self::default()),
            }
        } else {
            return Ok(Self::default());
        };
        // In other bytes nobody knows where they stand.
        if !notes.earlier.is_empty() && of != sha256(body) {
            return Err(ImportError::OtherNotes {
                path: path.to_owned(),
                notes: place,
            });
        }
        Ok(notes)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ImportError> {
    serde_json::from_slice(&read_file(path)?).map_err(|err| ImportError::File {
        path: path.to_owned(),
        source: err.into(),
    })
}

pub(crate) fn notes_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".hidden.json");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an earlier version of this program wrote.
    #[test]
    fn a_list_of_places_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tfstate");
        let list = r#"[{"entry":"output.url","path":"a"}]"#;
        std::fs::write(notes_beside(&path), list).unwrap();
        let notes = Notes::of(&path, b"{}").unwrap();
        let expected = BTreeSet::from([Place::value("output.url", "a")]);
        assert_eq!((notes.hidden, notes.earlier), (expected, Vec::new()));
    }

    #[test]
    fn positions_are_those_of_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tfstate");
        let earlier = vec![Passage {
            at: 6,
            from: 0,
            to: 2,
        }];
        let notes = Notes {
            hidden: BTreeSet::new(),
            earlier,
        };
        let body = br#"{"a": "xyz"}"#;
        std::fs::write(notes_beside(&path), notes.clone().beside(body)).unwrap();
        assert_eq!(Notes::of(&path, body).unwrap(), notes);
        let other = Notes::of(&path, br#"{"b": 1, "a": "xyz"}"#);
        assert!(matches!(other, Err(ImportError::OtherNotes { .. })));
    }
}
