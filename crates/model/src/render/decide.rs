//! Decides what happens to each file of a generated tree, so that no manual change is lost.

use std::collections::BTreeMap;

use super::manifest::RenderManifest;

/// An existing or expected file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    pub digest: String,
    pub is_executable: bool,
}

/// The options given on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverwriteOptions {
    /// Only takes over existing files that are identical. Generates nothing.
    pub adopt: bool,
    /// Replaces files that were edited or are not ours, and forgets files that are no longer generated.
    pub overwrite: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// The file is up to date.
    Keep,
    /// The file is up to date and is added to the manifest.
    Adopt,
    Create,
    Change,
    /// The file is no longer generated.
    Remove,
    /// The file is no longer generated and does not exist any more.
    Forget,
    /// The file is no longer generated, and nothing proves that it ever was. It stays, but leaves the manifest.
    LetGo,
    Refuse(FileRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileRefusal {
    /// Changed after it was rendered.
    Edited,
    /// Changed after it was rendered, and no longer generated.
    EditedAndStale,
    /// No longer generated, but the manifest that lists it was changed by others.
    UnprovenAndStale,
    /// It exists with other content and is not in the manifest.
    NotOurs,
    /// It is to be taken over but does not exist.
    Missing,
}

impl FileRefusal {
    /// Whether it concerns a file that is no longer generated.
    pub fn is_stale(self) -> bool {
        match self {
            Self::EditedAndStale | Self::UnprovenAndStale => true,
            Self::Edited | Self::NotOurs | Self::Missing => false,
        }
    }
}

/// Decides about every expected file and every file in the manifest. `found` contains those that exist.
pub fn decide(
    manifest: Option<&RenderManifest>,
    wanted: &BTreeMap<String, FileFacts>,
    found: &BTreeMap<String, FileFacts>,
    leave: OverwriteOptions,
) -> BTreeMap<String, FileAction> {
    let mut actions = BTreeMap::new();
    for (path, want) in wanted {
        actions.insert(
            path.clone(),
            about(path, want, found.get(path), manifest, leave),
        );
    }
    for path in manifest.into_iter().flat_map(RenderManifest::paths) {
        if wanted.contains_key(path) {
            continue;
        }
        let action = match found.get(path) {
            None => FileAction::Forget,
            Some(file) => {
                let is_made = manifest.is_some_and(|known| known.made(path, &file.digest));
                let is_proof = manifest.is_some_and(RenderManifest::is_as_written);
                match (is_made, is_proof) {
                    (true, true) => FileAction::Remove,
                    _ if leave.overwrite => FileAction::LetGo,
                    (true, false) => FileAction::Refuse(FileRefusal::UnprovenAndStale),
                    (false, _) => FileAction::Refuse(FileRefusal::EditedAndStale),
                }
            }
        };
        actions.insert(path.to_owned(), action);
    }
    actions
}

fn about(
    path: &str,
    want: &FileFacts,
    found: Option<&FileFacts>,
    manifest: Option<&RenderManifest>,
    leave: OverwriteOptions,
) -> FileAction {
    let is_ours = manifest.is_some_and(|known| known.owns(path));
    let Some(found) = found else {
        return if leave.adopt && !leave.overwrite && !is_ours {
            FileAction::Refuse(FileRefusal::Missing)
        } else {
            FileAction::Create
        };
    };
    if found == want {
        // The content is identical, so nothing is lost.
        return if is_ours {
            FileAction::Keep
        } else {
            FileAction::Adopt
        };
    }
    let is_made = manifest.is_some_and(|known| known.made(path, &found.digest));
    if is_made || leave.overwrite || found.digest == want.digest {
        return FileAction::Change;
    }
    FileAction::Refuse(if is_ours {
        FileRefusal::Edited
    } else {
        FileRefusal::NotOurs
    })
}
