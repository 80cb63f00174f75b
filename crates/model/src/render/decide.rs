//! What is to be done with each file of a generated tree. Nothing that a person wrote is lost by it.

use std::collections::BTreeMap;

use super::manifest::Manifest;

/// A file as it lies there, or is to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    pub digest: String,
    pub is_executable: bool,
}

/// What was said at the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave {
    /// Only what is there already and agrees becomes ours: nothing is made.
    pub adopt: bool,
    /// What was edited by hand, or is not ours, is replaced; what nothing makes any more is let go.
    pub overwrite: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is as it should be.
    Keep,
    /// It is as it should be, and listed from now on.
    Adopt,
    Create,
    Change,
    /// Nothing makes it any more.
    Remove,
    /// Nothing makes it any more, and it is gone.
    Forget,
    /// Nothing makes it any more, and nothing proves that it was made: it stays, and is listed no more.
    LetGo,
    Refuse(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Changed after it was rendered.
    Edited,
    /// Changed after it was rendered, and nothing makes it any more.
    EditedAndStale,
    /// Nothing makes it any more, and the list that has it was changed since it was written.
    UnprovenAndStale,
    /// It is there, different, and on no list.
    NotOurs,
    /// It is to be taken over, and is not there.
    Missing,
}

impl Why {
    /// Whether it is about a file that nothing makes any more.
    pub fn is_stale(self) -> bool {
        match self {
            Self::EditedAndStale | Self::UnprovenAndStale => true,
            Self::Edited | Self::NotOurs | Self::Missing => false,
        }
    }
}

/// Decides about every file that is to be there, and every one that the manifest lists. `found` has those of them
/// that are there.
pub fn decide(
    manifest: Option<&Manifest>,
    wanted: &BTreeMap<String, FileFacts>,
    found: &BTreeMap<String, FileFacts>,
    leave: Leave,
) -> BTreeMap<String, Deed> {
    let mut deeds = BTreeMap::new();
    for (path, want) in wanted {
        deeds.insert(
            path.clone(),
            about(path, want, found.get(path), manifest, leave),
        );
    }
    for path in manifest.into_iter().flat_map(Manifest::paths) {
        if wanted.contains_key(path) {
            continue;
        }
        let deed = match found.get(path) {
            None => Deed::Forget,
            Some(file) => {
                let is_made = manifest.is_some_and(|known| known.made(path, &file.digest));
                let is_proof = manifest.is_some_and(Manifest::is_as_written);
                match (is_made, is_proof) {
                    (true, true) => Deed::Remove,
                    _ if leave.overwrite => Deed::LetGo,
                    (true, false) => Deed::Refuse(Why::UnprovenAndStale),
                    (false, _) => Deed::Refuse(Why::EditedAndStale),
                }
            }
        };
        deeds.insert(path.to_owned(), deed);
    }
    deeds
}

fn about(
    path: &str,
    want: &FileFacts,
    found: Option<&FileFacts>,
    manifest: Option<&Manifest>,
    leave: Leave,
) -> Deed {
    let is_ours = manifest.is_some_and(|known| known.owns(path));
    let Some(found) = found else {
        return if leave.adopt && !leave.overwrite && !is_ours {
            Deed::Refuse(Why::Missing)
        } else {
            Deed::Create
        };
    };
    if found == want {
        // Nobody loses anything, whoever wrote it.
        return if is_ours { Deed::Keep } else { Deed::Adopt };
    }
    let is_made = manifest.is_some_and(|known| known.made(path, &found.digest));
    if is_made || leave.overwrite || found.digest == want.digest {
        return Deed::Change;
    }
    Deed::Refuse(if is_ours { Why::Edited } else { Why::NotOurs })
}
