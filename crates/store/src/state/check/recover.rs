//! Reads everything from the files and the master key alone: no database, no server. Frames name their state and their
//! parent; markers after them prove which were acknowledged. A copy of a bucket is read the same way.
//!
//! Not here: writing the results to files (`control`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::stage::artifact::ArtifactSet;
use model::state::{StateName, StateVersion};

use crate::StoreError;
use crate::blob::delta::decompress;
use crate::blob::files::file_error;
use crate::blob::segments::frame::{FramePiece, pieces};
use crate::blob::segments::{DIR, FrameLocation, read_at};
use crate::blob::{Blobs, Disk, state_of_dir};
use crate::crypto::{UnsealError, header_line, hex, open_file, unhex};
use crate::key::data_keys::{KeyScope, Keys};
use crate::key::keyring::Keyring;
use crate::key::sealing::open_piece;
use crate::state::artifacts;
use crate::state::check::stale_database::{FrameSummary, add_line};
use crate::state::refusals;
use crate::state::versions::blob::{
    BlobHeader, Encoding, FrameLine, Header, MarkerHeader, OpenedBlob,
};
use crate::state::versions::{BodyCache, Content};

/// One recovered item.
#[derive(Debug)]
pub enum RecoveredItem {
    Version {
        version: Box<StateVersion>,
        /// The digest of its frame: distinguishes versions with the same number.
        digest: String,
        standing: Acknowledgement,
        body: Result<Arc<Vec<u8>>, StoreError>,
    },
    /// A version that was acknowledged but has no complete frame.
    Lost {
        state: StateName,
        version: i64,
        error: StoreError,
    },
    /// A refused write.
    Refused {
        state: StateName,
        /// The name of its file.
        name: String,
        body: Result<Vec<u8>, StoreError>,
    },
    /// The newest artifacts of a state.
    Artifacts {
        state: StateName,
        set: Result<ArtifactSet, StoreError>,
    },
}

/// Whether a version was acknowledged to its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acknowledgement {
    /// A marker or a later version proves it.
    Acknowledged,
    /// Nothing follows it, so this is unknown.
    NotProvable,
    /// Another version with the same number was.
    Superseded,
}

struct FoundVersion {
    path: PathBuf,
    place: FrameLocation,
    header: BlobHeader,
}

struct RecoverScan {
    blobs: Blobs,
    keys: Keys,
    frames: BTreeMap<String, FoundVersion>,
    /// The contents of all frames' first lines, damaged frames included.
    heard: BTreeMap<StateName, FrameSummary>,
    recent: BodyCache,
}

/// Passes every version, every refused body and all artifacts below `home` to `each`: states by name, versions by
/// number.
pub fn recover(
    home: &Path,
    keyring: Keyring,
    mut each: impl FnMut(RecoveredItem),
) -> Result<(), StoreError> {
    let blobs = Blobs::Disk(Disk::new(home));
    let mut search = RecoverScan {
        keys: Keys::new(keyring, blobs.clone()),
        blobs,
        frames: BTreeMap::new(),
        heard: BTreeMap::new(),
        recent: BodyCache::default(),
    };
    let proven = search.walk(home)?;
    let mut order: Vec<(&StateVersion, Acknowledgement, &String)> = search
        .frames
        .iter()
        .map(|(digest, found)| {
            let version = &found.header.version;
            (version, search.standing(version, digest, &proven), digest)
        })
        .collect();
    order.sort_by(|(a, a_standing, _), (b, b_standing, _)| {
        let key = |version: &StateVersion| (version.state.clone(), version.version);
        key(a).cmp(&key(b)).then(a_standing.cmp(b_standing))
    });
    for (version, standing, digest) in order {
        each(RecoveredItem::Version {
            version: Box::new(version.clone()),
            digest: digest.clone(),
            standing,
            body: search.body(digest),
        });
    }
    search.lost(&mut each);
    search.refused(&mut each)?;
    search.artifacts(&mut each)
}

impl RecoverScan {
    /// Finds all frames, and the digests of those that were acknowledged.
    fn walk(&mut self, home: &Path) -> Result<HashSet<String>, StoreError> {
        let mut proven = HashSet::new();
        for name in self.blobs.list(DIR)? {
            let path = home.join(DIR).join(&name);
            let bytes = fs::read(&path).map_err(|err| file_error("read", path.clone(), err))?;
            for piece in pieces(&bytes) {
                let sealed = match &piece {
                    FramePiece::Whole(found) => found.sealed,
                    FramePiece::Damaged(sealed) | FramePiece::Torn(sealed) => sealed,
                };
                let line = header_line(sealed).ok();
                if let Some(line) = line.and_then(FrameLine::parse) {
                    add_line(&mut self.heard, line);
                }
                let FramePiece::Whole(found) = piece else {
                    continue;
                };
                let header = line.and_then(Header::parse);
                match header {
                    Some(Header::Version(header)) => {
                        // The writer saw its parent as the newest version, so the parent had been acknowledged.
                        proven.extend(header.parent_digest.clone());
                        let place = FrameLocation {
                            object: name.clone(),
                            offset: found.offset as u64,
                            length: found.length as u64,
                        };
                        let header = *header;
                        let path = path.clone();
                        let found_at = FoundVersion {
                            path,
                            place,
                            header,
                        };
                        self.frames.insert(hex(&found.digest), found_at);
                    }
                    Some(Header::Marker(marker)) if self.is_genuine(&marker, found.sealed) => {
                        proven.insert(marker.digest);
                    }
                    Some(Header::Marker(_)) | None => {}
                }
            }
        }
        Ok(proven)
    }

    fn is_genuine(&self, marker: &MarkerHeader, sealed: &[u8]) -> bool {
        let key = self.keys.get(&KeyScope::State(marker.state.clone()));
        key.is_ok_and(|key| open_file::<MarkerHeader>(&key.key, sealed.to_vec()).is_ok())
    }

    fn standing(
        &self,
        version: &StateVersion,
        digest: &str,
        proven: &HashSet<String>,
    ) -> Acknowledgement {
        if proven.contains(digest) {
            return Acknowledgement::Acknowledged;
        }
        let is_rival = |(other, found): (&String, &FoundVersion)| {
            let rival = &found.header.version;
            proven.contains(other)
                && rival.version == version.version
                && rival.state == version.state
        };
        if self.frames.iter().any(is_rival) {
            Acknowledgement::Superseded
        } else {
            Acknowledgement::NotProvable
        }
    }

    fn body(&self, digest: &str) -> Result<Arc<Vec<u8>>, StoreError> {
        // From this version down to a complete or cached one.
        let mut chain: Vec<&FoundVersion> = Vec::new();
        let mut below = None;
        let mut next = Some(digest.to_owned());
        let mut seen = HashSet::new();
        while let Some(digest) = next.take() {
            below = unhex(&digest)
                .and_then(|digest| self.recent.get(&digest))
                .map(|content| content.body);
            if below.is_some() || !seen.insert(digest.clone()) {
                break;
            }
            let Some(found) = self.frames.get(&digest) else {
                let path = chain
                    .last()
                    .map_or_else(|| digest.into(), |above| above.path.clone());
                let base = chain.last().and_then(|above| above.header.version.parent);
                let base = base.unwrap_or_default();
                return Err(unseal(path, UnsealError::Base { base }));
            };
            chain.push(found);
            if found.header.encoding == Encoding::Delta {
                next.clone_from(&found.header.parent_digest);
            }
        }
        for found in chain.into_iter().rev() {
            below = Some(Arc::new(self.open(found, below)?));
        }
        let body = below.unwrap_or_default();
        if let Some(digest) = unhex(digest) {
            let content = Content {
                body: Arc::clone(&body),
                secret_paths: Arc::default(),
            };
            self.recent.put(digest, &content);
        }
        Ok(body)
    }

    fn open(
        &self,
        found: &FoundVersion,
        base: Option<Arc<Vec<u8>>>,
    ) -> Result<Vec<u8>, StoreError> {
        let damaged = |source| unseal(found.path.clone(), source);
        let key = self
            .keys
            .get(&KeyScope::State(found.header.version.state.clone()))?;
        let bytes = read_at(&found.path, &found.place)
            .map_err(|err| file_error("read", found.path.clone(), err))?;
        let (sealed, _) = crate::blob::segments::frame::open(bytes).map_err(damaged)?;
        let OpenedBlob { header, packed, .. } = OpenedBlob::open(&key, sealed).map_err(damaged)?;
        let size = usize::try_from(header.version.size).unwrap_or_default();
        let base = match header.encoding {
            Encoding::Whole => None,
            Encoding::Delta => base,
        };
        let body = decompress(&packed, base.as_ref().map(|base| base.as_slice()), size)
            .ok_or_else(|| damaged(UnsealError::Content))?;
        Ok(body)
    }

    fn lost(&self, each: &mut impl FnMut(RecoveredItem)) {
        for (state, heard) in &self.heard {
            let mut numbers: BTreeSet<i64> = heard.written.keys().copied().collect();
            let frames = self.frames.values().map(|found| &found.header.version);
            let found = frames.filter(|version| version.state == *state);
            let found: BTreeSet<i64> = found.map(|version| version.version).collect();
            // An earlier version without any trace may have been removed by retention.
            if found.last().is_none_or(|last| *last < heard.acknowledged) {
                numbers.insert(heard.acknowledged);
            }
            let acknowledged = numbers.range(1..=heard.acknowledged.max(1));
            for number in acknowledged.filter(|number| !found.contains(number)) {
                each(RecoveredItem::Lost {
                    state: state.clone(),
                    version: *number,
                    error: unseal(self.blobs.path(DIR), UnsealError::Gone),
                });
            }
        }
    }

    fn refused(&self, each: &mut impl FnMut(RecoveredItem)) -> Result<(), StoreError> {
        for dir in self.blobs.list(refusals::DIR)? {
            let Some(state) = self.state_named(&dir) else {
                continue;
            };
            let scope = KeyScope::State(state.clone());
            for name in self.blobs.list(&format!("{}/{dir}", refusals::DIR))? {
                let path = format!("{}/{dir}/{name}", refusals::DIR);
                let read = || {
                    let (key, sealed) = (self.keys.get(&scope)?, self.blobs.read(&path)?);
                    let packed = open_piece(&key, &scope, refusals::PURPOSE, sealed)?;
                    refusals::unpack(&packed)
                };
                let (state, body) = (state.clone(), read());
                each(RecoveredItem::Refused { state, name, body });
            }
        }
        Ok(())
    }

    fn artifacts(&self, each: &mut impl FnMut(RecoveredItem)) -> Result<(), StoreError> {
        let states = self.frames.values();
        let states = states.map(|found| found.header.version.state.clone());
        let states: Vec<StateName> = states.collect();
        // Without the database no set is known to be unfinished.
        for found in artifacts::newest(&self.keys, &self.blobs, &states, |_| true)? {
            let (state, set) = (found.state, found.set);
            each(RecoveredItem::Artifacts { state, set });
        }
        Ok(())
    }

    /// The state of a directory. If its name was shortened, a version must name the state.
    fn state_named(&self, dir: &str) -> Option<StateName> {
        let mut known = self
            .frames
            .values()
            .map(|found| &found.header.version.state);
        let known = known.find(|state| KeyScope::State((*state).clone()).dir() == dir);
        known.cloned().or_else(|| state_of_dir(dir))
    }
}

fn unseal(path: PathBuf, source: UnsealError) -> StoreError {
    StoreError::Unseal { path, source }
}

#[cfg(test)]
mod tests;
