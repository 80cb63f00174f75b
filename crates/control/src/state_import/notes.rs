//! What goes with a state to another home, so that its secrets stay hidden there: where they stand, never what they are.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use drivers::snapshot::sha256;
use model::state::StateName;
use model::state::hidden::Place;
use model::state::passages::Passage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ImportError, LIST, file_in_directory, read_file};
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
        let (place, of, notes) = if beside.exists() {
            let found = read(&beside).map_err(|err| match err {
                ImportError::File { path, source } if source.kind() == ErrorKind::InvalidData => {
                    ImportError::NoNotes { path }
                }
                other => other,
            });
            match found? {
                Beside::Places(hidden) => {
                    let earlier = Vec::new();
                    return Ok(Self { hidden, earlier });
                }
                Beside::Notes { sha256, notes } => (beside, sha256, notes),
            }
        } else if let Some((list, entry)) = listed(path)? {
            if entry.notes.earlier.is_empty() && entry.sha256 != sha256(body) {
                let path = path.to_owned();
                return Err(ImportError::Changed { path });
            }
            (list, entry.sha256, entry.notes)
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

/// A file's entry in the list of all, and the list: beside it, or above, where states of other projects lie below.
fn listed(path: &Path) -> Result<Option<(PathBuf, Entry)>, ImportError> {
    // However it was named.
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for top in whole.ancestors().skip(1).take(3) {
        let (list, Ok(below)) = (top.join(LIST), whole.strip_prefix(top)) else {
            continue;
        };
        if !list.exists() {
            continue;
        }
        let mut entries = entries(&list)?.into_iter();
        if let Some(entry) = entries.find(|entry| Path::new(&entry.file) == below) {
            return Ok(Some((list, entry)));
        }
    }
    Ok(None)
}

/// Where a directory has the file of a state: where its list says, if it has one that knows the state.
pub(super) fn file_in(dir: &Path, state: &StateName) -> Result<PathBuf, ImportError> {
    let list = dir.join(LIST);
    let entries = if list.exists() {
        entries(&list)?
    } else {
        Vec::new()
    };
    let is_its = |entry: &&Entry| entry.project == state.project && entry.state == state.name;
    let file = match entries.iter().find(is_its) {
        Some(entry) => entry.file.clone(),
        None => file_in_directory(&state.name),
    };
    Ok(dir.join(file))
}

/// None if the file is whole and of somebody else, who gave it the same name.
fn entries(list: &Path) -> Result<Vec<Entry>, ImportError> {
    let found: serde_json::Value = read(list)?;
    if found.is_array() {
        read(list)
    } else {
        Ok(Vec::new())
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

    /// As the export of a server's home has it.
    #[test]
    fn a_state_of_another_project_is_listed_above() {
        let dir = tempfile::tempdir().unwrap();
        let (state, body) = (StateName::new("shop", "app"), br#"{"a": "xyz"}"#);
        let hidden = BTreeSet::from([Place::value("output.url", "a")]);
        let entry = Entry {
            project: state.project.clone(),
            state: state.name.clone(),
            file: "other/shop/app.tfstate".to_owned(),
            version: 1,
            serial: 1,
            lineage: "l".to_owned(),
            copy: false,
            runs_only: false,
            sha256: sha256(body),
            notes: Notes {
                hidden,
                earlier: Vec::new(),
            },
        };
        let below = dir.path().join("other/shop");
        std::fs::create_dir_all(&below).unwrap();
        let list = serde_json::to_vec(&[&entry]).unwrap();
        std::fs::write(dir.path().join(LIST), list).unwrap();
        let path = below.join("app.tfstate");
        std::fs::write(&path, body).unwrap();

        assert_eq!(file_in(dir.path(), &state).unwrap(), path);
        assert_eq!(file_in(&below, &state).unwrap(), path);
        assert_eq!(Notes::of(&path, body).unwrap(), entry.notes);
        let edited = Notes::of(&path, b"{}");
        assert!(matches!(edited, Err(ImportError::Changed { .. })));
        // What only has the same name is not what was exported.
        let other = dir.path().join("app.tfstate");
        std::fs::write(&other, b"{}").unwrap();
        assert_eq!(Notes::of(&other, b"{}").unwrap(), Notes::default());
        std::fs::write(below.join(LIST), r#"{"of": "somebody else"}"#).unwrap();
        assert_eq!(Notes::of(&path, body).unwrap(), entry.notes);
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

    #[test]
    fn what_is_no_note_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tfstate");
        std::fs::write(notes_beside(&path), "{}").unwrap();
        let said = Notes::of(&path, b"{}").unwrap_err().to_string();
        let end = "does not say where secrets stand, as an export writes it";
        assert!(said.ends_with(end), "{said}");
    }
}
