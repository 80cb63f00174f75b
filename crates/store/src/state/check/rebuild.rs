//! Writes into the database what only the files hold: everything if the database is lost, the newer versions if it is
//! an older copy. Only versions that were provably acknowledged are restored.
//!
//! What is in no file is not restored: locks, runs, tokens, refusals, and deletions of states.
//!
//! Not here: reading bodies without a database (`recover`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use model::state::{RivalVersion, StateName, StateVersion};

use crate::blob::segments::frame::{FramePiece, pieces};
use crate::blob::segments::{DIR, FrameLocation};
use crate::blob::{Blobs, number_of};
use crate::crypto::Digest;
use crate::crypto::{UnsealError, header_line, hex, open_file};
use crate::db::Tx;
use crate::key::data_keys::{KeyScope, Keys};
use crate::state::check::stale_database::{FrameSummary, StaleState, add_line};
use crate::state::versions::blob::{self, Encoding, FrameLine, Header, MarkerHeader, OpenedBlob};
use crate::state::versions::{NewVersion, StoredVersion};
use crate::{KeyError, Store, StoreError, blocking};

/// The result of a rebuild.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// States that got versions which were missing in the database.
    pub states: Vec<StateName>,
    pub versions: usize,
    /// How many states got their newest version as head again.
    pub heads: u64,
    /// How many states got their artifacts back.
    pub artifacts: usize,
    /// Later versions without proof that they were acknowledged: they stay files.
    pub unproven: Vec<StateVersion>,
    /// Acknowledged versions that build on a missing one.
    pub broken: Vec<StateVersion>,
    /// States that cannot be served yet: newer versions were acknowledged and cannot be read.
    pub lost: Vec<LostVersion>,
    /// Acknowledged versions whose number the database has for another one.
    pub rivals: Vec<RivalVersion>,
    /// Earlier acknowledged versions that cannot be read; the state continues without them.
    pub unread: Vec<(StateName, i64, StoreError)>,
}

/// A version that was acknowledged, is newer than all that can be restored, and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "version {acknowledged} of state `{state}` was acknowledged, but {}",
    if *.readable == 0 { "no version of it is readable".to_owned() } else { format!("the newest readable one is version {}", .readable) }
)]
pub struct LostVersion {
    pub state: StateName,
    pub acknowledged: i64,
    /// The newest version in the database; 0 if there is none.
    pub readable: i64,
    /// A serial that no lost version had, as far as the files show.
    pub serial: u64,
    pub source: StoreError,
}

impl LostVersion {
    /// Nothing is lost: another master key is needed.
    pub fn is_of_the_key(&self) -> bool {
        matches!(self.source, StoreError::Key(KeyError::OtherMaster { .. }))
    }
}

/// A version's stored frame.
struct StoredFrame {
    version: StateVersion,
    place: FrameLocation,
    digest: Digest,
    encoding: Encoding,
    parent: Option<String>,
}

/// All authentic frames of versions, and those that were acknowledged.
#[derive(Default)]
struct StoredFiles {
    written: BTreeMap<StateName, Vec<StoredFrame>>,
    proven: HashSet<String>,
    /// The contents of the first lines of all frames, authentic or not.
    heard: BTreeMap<StateName, FrameSummary>,
    /// The highest number of an object in a bucket.
    number: i64,
    /// Where damaged frames may have been markers, by state; `None` if the state is unknown.
    unmarked: BTreeMap<Option<StateName>, PathBuf>,
    /// Versions whose frames cannot be read.
    unread: BTreeMap<StateName, BTreeMap<i64, StoreError>>,
}

impl Store {
    /// Adds missing versions to the database and moves heads to the newest. It can be repeated.
    pub async fn rebuild(&self) -> Result<RebuildReport, StoreError> {
        let mut files = self.files_read().await?;
        let mut rebuilt = RebuildReport::default();
        for (state, written) in &mut files.written {
            let row = self.state_ensure(state).await?;
            let mut tx = self.db.begin_write().await?;
            let before = rebuilt.versions;
            // Of two versions with the same number, take the one that the newest descends from.
            let line = line_of_newest(written, &files.proven);
            written.sort_by_key(|one| (one.version.version, !line.contains(&hex(&one.digest))));
            tx.state_rebuild(row.id, written, &files.proven, &mut rebuilt)
                .await?;
            tx.commit().await?;
            if rebuilt.versions > before {
                rebuilt.states.push(state.clone());
            }
        }
        rebuilt.artifacts = self.artifacts_rebuild().await?;
        let states: Vec<StateName> = files.heard.keys().cloned().collect();
        for state in states {
            let known = self.stored_all(&state).await?;
            let numbers: HashSet<i64> = known.iter().map(|one| one.version.version).collect();
            let newest = known.last().map(|one| &one.version);
            rebuilt.rivals.extend(files.rivals(&state, &known));
            if let Some(newest) = known.last().filter(|newest| files.is_unproven(newest)) {
                self.mark_again(newest).await?;
            }
            let lost = files.lost(&self.blobs, &state, newest);
            let readable = newest.map_or(0, |newest| newest.version);
            // An older version that the database lacks may have been removed by retention.
            if rebuilt.states.contains(&state) {
                let unread = files.unread.remove(&state).unwrap_or_default();
                let unread = unread.into_iter();
                let earlier =
                    unread.filter(|(number, _)| *number < readable && !numbers.contains(number));
                let earlier = earlier.map(|(number, error)| (state.clone(), number, error));
                rebuilt.unread.extend(earlier);
            }
            rebuilt.lost.extend(lost);
        }
        if let Blobs::Bucket(_) = &self.blobs {
            let mut tx = self.db.begin_write().await?;
            tx.blob_number_raise(files.number).await?;
            // Proven versions are in the database now; the caller reports the others.
            tx.state_stale_forget().await?;
            for lost in &rebuilt.lost {
                tx.state_stale_note(&lost.state, lost.acknowledged, None)
                    .await?;
            }
            tx.commit().await?;
        }
        Ok(rebuilt)
    }

    /// Gives a state of which no version can be read a new key, if its key is lost, so that it can be written again.
    pub async fn state_replace_lost_key(&self, state: &StateName) -> Result<(), StoreError> {
        let (keys, scope) = (self.keys.clone(), KeyScope::State(state.clone()));
        blocking(move || keys.replace_lost(&scope)).await.map(drop)
    }

    /// What the files contain of states and the database does not, found by reading all files.
    pub(crate) async fn files_compare(&self) -> Result<Vec<(StateName, StoreError)>, StoreError> {
        let mut files = self.files_read().await?;
        let mut missing = Vec::new();
        for state in files.heard.keys().cloned().collect::<Vec<_>>() {
            let stored = self.stored_all(&state).await?;
            for rival in files.rivals(&state, &stored) {
                missing.push((state.clone(), StoreError::Rival(Box::new(rival))));
            }
            if let Some(newest) = stored.last()
                && let Some(path) = files.unmarked(newest)
            {
                let (version, path) = (newest.version.version, path.clone());
                missing.push((state.clone(), StoreError::Unmarked { version, path }));
            }
            let newest = stored.last().map(|stored| &stored.version);
            let known = newest.map_or(0, |newest| newest.version);
            let written = files.written.get(&state).into_iter().flatten();
            let mut news: Vec<&StateVersion> = written
                .filter(|one| files.proven.contains(&hex(&one.digest)))
                .map(|one| &one.version)
                .filter(|version| version.version > known)
                .collect();
            news.sort_by_key(|version| version.version);
            let ends = news.first().zip(news.last());
            let ends = ends.map(|(first, last)| (first.created_at, last.version));
            if let Some(lost) = files.lost(&self.blobs, &state, newest) {
                missing.push((state, StoreError::Lost(Box::new(lost))));
            } else if let Some((since, acknowledged)) = ends {
                let stale = StaleState {
                    known,
                    acknowledged,
                    since: Some(since),
                };
                let error = StoreError::Stale {
                    state: state.clone(),
                    stale,
                };
                missing.push((state, error));
            }
        }
        Ok(missing)
    }

    /// Writes a marker for a version whose acknowledgement only the database records. Durable when this
    /// returns.
    async fn mark_again(&self, newest: &StoredVersion) -> Result<(), StoreError> {
        let (keys, scope) = (
            self.keys.clone(),
            KeyScope::State(newest.version.state.clone()),
        );
        let Ok(key) = blocking(move || keys.get(&scope)).await else {
            return Ok(()); // the unusable key is the greater problem, and is reported
        };
        let marker = blob::marker(&key, &newest.version, &newest.blob_digest)?;
        if let Blobs::Disk(_) = &self.blobs {
            self.blobs_stage(vec![Arc::new(marker)]).await?;
            return Ok(());
        }
        self.blobs.mark(marker);
        self.blobs_settle().await
    }

    async fn files_read(&self) -> Result<StoredFiles, StoreError> {
        self.blobs_settle().await?;
        let (keys, blobs) = (self.keys.clone(), self.blobs.clone());
        blocking(move || StoredFiles::read(&blobs, &keys)).await
    }
}

impl StoredFiles {
    fn read(blobs: &Blobs, keys: &Keys) -> Result<Self, StoreError> {
        let mut files = Self::default();
        for name in blobs.list(DIR)? {
            files.number = files.number.max(number_of(&name).unwrap_or_default());
            let bytes = blobs.read(&format!("{DIR}/{name}"))?;
            let object = format!("{DIR}/{}", name.strip_suffix(".seg").unwrap_or(&name));
            let damaged = |source| StoreError::Unseal {
                path: blobs.path(&format!("{DIR}/{name}")),
                source,
            };
            for piece in pieces(&bytes) {
                let sealed = match &piece {
                    FramePiece::Whole(found) => found.sealed,
                    FramePiece::Damaged(sealed) | FramePiece::Torn(sealed) => sealed,
                };
                let line = header_line(sealed).ok();
                let said = line.and_then(FrameLine::parse);
                match (&piece, &said) {
                    (FramePiece::Damaged(_) | FramePiece::Torn(_), Some(line))
                        if !line.is_marker() =>
                    {
                        let error = damaged(UnsealError::Frame);
                        files.unread(&line.state, line.version, error);
                    }
                    (FramePiece::Damaged(_), marker) => {
                        let state = marker.as_ref().map(|line| line.state.clone());
                        let path = blobs.path(&format!("{DIR}/{name}"));
                        files.unmarked.insert(state, path);
                    }
                    // Nothing waits for a marker to be durable: a crash may leave an incomplete one.
                    (FramePiece::Torn(_) | FramePiece::Whole(_), _) => {}
                }
                if let Some(said) = said {
                    add_line(&mut files.heard, said);
                }
                let (FramePiece::Whole(found), Some(line)) = (piece, line) else {
                    continue;
                };
                match Header::parse(line) {
                    Some(Header::Version(header)) => {
                        let StateVersion { state, version, .. } = &header.version;
                        let opened = keys.get(&KeyScope::State(state.clone())).and_then(|key| {
                            OpenedBlob::open(&key, found.sealed.to_vec()).map_err(damaged)
                        });
                        let header = match opened {
                            Ok(opened) => opened.header,
                            Err(error) => {
                                files.unread(state, *version, error);
                                continue;
                            }
                        };
                        // The writer saw its parent as the newest version, so the parent had been acknowledged.
                        files.proven.extend(header.parent_digest.clone());
                        let written = StoredFrame {
                            place: FrameLocation {
                                object: object.clone(),
                                offset: found.offset as u64,
                                length: found.length as u64,
                            },
                            digest: found.digest,
                            encoding: header.encoding,
                            parent: header.parent_digest,
                            version: header.version,
                        };
                        let state = written.version.state.clone();
                        files.written.entry(state).or_default().push(written);
                    }
                    Some(Header::Marker(marker)) => {
                        let scope = KeyScope::State(marker.state.clone());
                        let opened = keys.get(&scope).ok().is_some_and(|key| {
                            open_file::<MarkerHeader>(&key.key, found.sealed.to_vec()).is_ok()
                        });
                        if opened {
                            files.proven.insert(marker.digest);
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(files)
    }

    fn unread(&mut self, state: &StateName, version: i64, error: StoreError) {
        let of_it = self.unread.entry(state.clone()).or_default();
        of_it.insert(version, error);
    }

    /// Acknowledged versions beside those in the database, about which no person has decided since. Equal
    /// content is not a loss.
    fn rivals(&self, state: &StateName, known: &[StoredVersion]) -> Vec<RivalVersion> {
        let Some(newest) = known.last() else {
            return Vec::new();
        };
        let settling = known.iter().rev().find(|one| one.version.settles());
        let settled = settling.map_or(0, |one| one.version.version);
        let is_rival = |one: &&StoredFrame| {
            let number = one.version.version;
            let same = known.iter().find(|known| known.version.version == number);
            number > settled
                && same.is_some_and(|same| same.version.content != one.version.content)
                && self.proven.contains(&hex(&one.digest))
        };
        let written = self.written.get(state).into_iter().flatten();
        let rivals = written.filter(is_rival).map(|one| RivalVersion {
            version: one.version.clone(),
            newest: newest.version.clone(),
        });
        rivals.collect()
    }

    /// Whether no file proves that this version was acknowledged.
    fn is_unproven(&self, newest: &StoredVersion) -> bool {
        !self.proven.contains(&hex(&newest.blob_digest[..]))
    }

    /// Where the marker of a state's newest version may have been damaged, if nothing else proves that it was
    /// acknowledged.
    fn unmarked(&self, newest: &StoredVersion) -> Option<&PathBuf> {
        let state = Some(newest.version.state.clone());
        let place = self
            .unmarked
            .get(&state)
            .or_else(|| self.unmarked.get(&None));
        place.filter(|_| self.is_unproven(newest))
    }

    /// What is lost of a state whose newest version in the database is this one. Call it once: it takes the cause out.
    fn lost(
        &mut self,
        blobs: &Blobs,
        state: &StateName,
        newest: Option<&StateVersion>,
    ) -> Option<LostVersion> {
        let heard = self.heard.get(state)?;
        let readable = newest.map_or(0, |newest| newest.version);
        if heard.acknowledged <= readable {
            return None;
        }
        let opens = |number: i64| {
            let written = self.written.get(state).into_iter().flatten();
            let mut of_it = written.filter(|one| one.version.version == number);
            of_it.any(|one| self.proven.contains(&hex(&one.digest)))
        };
        let opens_newest = opens(heard.acknowledged);
        let unread = self.unread.get(state).into_iter();
        let mut unread = unread.flat_map(|unread| unread.range(readable + 1..=heard.acknowledged));
        // An incomplete frame may have been written again.
        let first = unread.find(|(number, _)| !opens(**number));
        let first = first.map(|(number, _)| *number);
        let serial = newest.map_or(0, |newest| newest.serial);
        let passed = u64::try_from(heard.acknowledged - readable).unwrap_or_default();
        let serial = heard.serial.max(serial.saturating_add(passed)) + 1;
        let first = first.and_then(|number| self.unread.get_mut(state)?.remove(&number));
        let gone = || StoreError::Unseal {
            path: blobs.path(DIR),
            source: UnsealError::Gone,
        };
        let source = match first {
            Some(error) => error,
            None if opens_newest => return None,
            None => gone(),
        };
        Some(LostVersion {
            state: state.clone(),
            acknowledged: heard.acknowledged,
            readable,
            serial,
            source,
        })
    }
}

/// The digests of the newest acknowledged version and all its ancestors.
fn line_of_newest(written: &[StoredFrame], proven: &HashSet<String>) -> HashSet<String> {
    let by_digest: HashMap<String, &StoredFrame> =
        written.iter().map(|one| (hex(&one.digest), one)).collect();
    let acknowledged = by_digest
        .iter()
        .filter(|(digest, _)| proven.contains(*digest));
    let newest = acknowledged.max_by_key(|(_, one)| (one.version.version, one.version.created_at));
    let mut line = HashSet::new();
    let mut next = newest.map(|(digest, _)| digest.clone());
    while let Some(digest) = next {
        next = by_digest.get(&digest).and_then(|one| one.parent.clone());
        if !line.insert(digest) {
            break;
        }
    }
    line
}

impl Tx {
    async fn state_rebuild(
        &mut self,
        state: i64,
        written: &[StoredFrame],
        proven: &HashSet<String>,
        rebuilt: &mut RebuildReport,
    ) -> Result<(), StoreError> {
        const KNOWN: &str = "SELECT version, blob_digest, depth FROM state_version WHERE state = $1 ORDER BY version";
        // The lock stays: its holder checks the head before it writes.
        const MOVE: &str = "UPDATE state SET head = $2 WHERE id = $1";
        // A deleted state has no head.
        const RAISE: &str = "UPDATE state SET head = $2 WHERE id = $1 \
            AND (head < $2 OR (head IS NULL AND deleted_at IS NULL AND $2 > 0))";
        let mut newest = 0;
        // By digest: the version, and how many differences lead to a complete one.
        let mut known: HashMap<String, (i64, i64)> = HashMap::new();
        for row in self.fetch_all(KNOWN, &[state.into()]).await? {
            newest = row.int(0)?;
            known.insert(hex(row.bytes(1)?), (newest, row.int(2)?));
        }
        let (last_known, mut unproven) = (newest, Vec::new());
        for one in written {
            let digest = hex(&one.digest);
            if one.version.version <= newest || known.contains_key(&digest) {
                continue;
            }
            if !proven.contains(&digest) {
                unproven.push(one.version.clone());
                continue;
            }
            let base = one.parent.as_ref().and_then(|parent| known.get(parent));
            let (base, depth) = match (one.encoding, base) {
                (Encoding::Whole, _) => (None, 0),
                (Encoding::Delta, Some((base, depth))) => (Some(*base), depth + 1),
                (Encoding::Delta, None) => {
                    rebuilt.broken.push(one.version.clone());
                    continue;
                }
            };
            let row = NewVersion {
                state,
                version: &one.version,
                place: &one.place,
                digest: &one.digest,
                lock_id: None,
                base,
                depth,
            };
            self.version_insert(&row).await?;
            // An older copy of the database may still list it as an unfinished upload.
            self.blob_intent_take(&one.place.object).await?;
            newest = one.version.version;
            known.insert(digest, (newest, depth));
            rebuilt.versions += 1;
        }
        // A version before the newest was not acknowledged: another one of its number was, or none.
        unproven.retain(|version: &StateVersion| version.version > newest);
        rebuilt.unproven.append(&mut unproven);
        if newest > last_known {
            self.execute(MOVE, &[state.into(), newest.into()]).await?;
        } else {
            let moved = self.execute(RAISE, &[state.into(), newest.into()]).await?;
            rebuilt.heads += moved;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
