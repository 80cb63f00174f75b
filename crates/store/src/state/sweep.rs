//! The sweeper: removes bytes that no row names, and only those that are provably unused.
//!
//! Not here: which rows are removed (`retention`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::SystemTime;

use jiff::Timestamp;
use model::state::StateName;

use crate::blob::files::file_error;
use crate::blob::segments::frame::scan;
use crate::blob::segments::{DIR, FrameLocation};
use crate::blob::{Blobs, Disk};
use crate::crypto::{header_line, hex};
use crate::db::Tx;
use crate::state::versions::blob::{BlobHeader, Header, MarkerHeader};
use crate::{OpenMode, Store, StoreError, blocking};

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Objects, refused bodies and whole segments that were removed.
    pub removed: usize,
    /// Unused bytes in segments; they are removed with the last version beside them.
    pub dead_bytes: u64,
}

/// The frames that rows name.
#[derive(Debug, Default)]
struct LiveFrames {
    /// Per segment or object.
    bytes: BTreeMap<String, u64>,
    digests: BTreeSet<String>,
    /// The digest of each known version.
    versions: BTreeMap<StateName, BTreeMap<i64, String>>,
}

impl Store {
    /// Removes uploads that were not finished, and objects that were marked for removal, before `cutoff`. An upload
    /// that takes longer than that is refused when its version is to be committed.
    pub async fn blobs_sweep(&self, cutoff: Timestamp) -> Result<SweepReport, StoreError> {
        const OLD: &str = "SELECT object FROM blob_intent WHERE at <= $1 ORDER BY at, object";
        self.blobs_settle().await?;
        let mut swept = SweepReport::default();
        let old = self.db.fetch_all(OLD, &[cutoff.into()]).await?;
        let live = if old.is_empty() || matches!(self.blobs, Blobs::Disk(_)) {
            LiveFrames::default()
        } else {
            let mut tx = self.db.begin_write().await?;
            tx.frames_live().await?
        };
        for row in old {
            let object = row.text(0)?;
            if !self.is_acknowledged(object, &live).await? {
                swept.removed += usize::from(self.blob_sweep(object).await?);
            }
        }
        if let Blobs::Disk(disk) = &self.blobs {
            // The transaction makes this the only writer: no frame is committed as a version meanwhile.
            let mut tx = self.db.begin_write().await?;
            let live = tx.frames_live().await?;
            let disk = disk.clone();
            let segments = blocking(move || sweep_segments(&disk, &live, cutoff)).await?;
            swept.removed += segments.removed;
            swept.dead_bytes = segments.dead_bytes;
        }
        Ok(swept)
    }

    /// Removes the refused bodies that were marked for removal. A home without a server has no other sweeper,
    /// and one with a server may fill up before the next sweep.
    pub(crate) async fn refused_sweep(&self) -> Result<(), StoreError> {
        const CONDEMNED: &str = "SELECT object FROM blob_intent WHERE at <= $1 \
            AND object LIKE 'refused/%' ORDER BY object";
        let args = [Timestamp::UNIX_EPOCH.into()];
        for row in self.db.fetch_all(CONDEMNED, &args).await? {
            self.blob_sweep(row.text(0)?).await?;
        }
        Ok(())
    }

    /// Whether an object of a bucket may hold a version that a newer database acknowledged: then this database is an
    /// older copy. A complete version that was never committed looks the same, and stays until its number is removed.
    /// Markers of known versions are removed with the object.
    async fn is_acknowledged(&self, object: &str, live: &LiveFrames) -> Result<bool, StoreError> {
        if matches!(self.blobs, Blobs::Disk(_)) || !object.starts_with(DIR) {
            return Ok(false);
        }
        let (blobs, object) = (self.blobs.clone(), object.to_owned());
        let held = blocking(move || blobs.read_optional(&object)).await?;
        Ok(held.is_some_and(|held| headers(&held).any(|it| live.never_knew(&it))))
    }

    /// False if another process was first.
    async fn blob_sweep(&self, object: &str) -> Result<bool, StoreError> {
        // The intent is removed first: from here on no version can be made of the object.
        let mut tx = self.db.begin_write().await?;
        let ours = tx.blob_intent_take(object).await?;
        tx.commit().await?;
        if ours {
            let (blobs, object) = (self.blobs.clone(), object.to_owned());
            blocking(move || blobs.remove(&object)).await?;
        }
        Ok(ours)
    }

    /// The same for a CLI process: when it releases a lock, it has written everything.
    pub(crate) async fn blobs_settle_cli(&self) {
        if self.how == OpenMode::Cli {
            // The versions are stored and acknowledged in any case.
            drop(self.blobs_settle().await);
        }
    }

    /// Writes pending markers of acknowledged versions.
    pub async fn blobs_settle(&self) -> Result<(), StoreError> {
        match &self.blobs {
            Blobs::Disk(disk) => {
                if let Some(appends) = disk.appends() {
                    appends.settle().await;
                }
                Ok(())
            }
            Blobs::Bucket(bucket) => {
                if !bucket.has_markers() {
                    return Ok(());
                }
                let object = self.blob_next_name().await?;
                let (bucket, own) = (bucket.clone(), object.clone());
                blocking(move || bucket.put_markers(&own)).await?;
                self.db
                    .write(move |tx| {
                        Box::pin(async move { tx.blob_intent_take(&object).await.map(drop) })
                    })
                    .await
            }
        }
    }
}

impl Tx {
    async fn frames_live(&mut self) -> Result<LiveFrames, StoreError> {
        const ALL: &str = "SELECT s.project, s.name, v.version, v.blob, v.blob_digest \
            FROM state AS s JOIN state_version AS v ON v.state = s.id";
        let mut live = LiveFrames::default();
        for row in self.fetch_all(ALL, &[]).await? {
            let place = FrameLocation::parse(row.text(3)?)?;
            *live.bytes.entry(place.object).or_default() += place.length;
            let digest = hex(row.bytes(4)?);
            live.digests.insert(digest.clone());
            let state = StateName::new(row.text(0)?, row.text(1)?);
            let versions = live.versions.entry(state).or_default();
            versions.insert(row.int(2)?, digest);
        }
        Ok(live)
    }
}

fn sweep_segments(
    disk: &Disk,
    live: &LiveFrames,
    cutoff: Timestamp,
) -> Result<SweepReport, StoreError> {
    let failed = |source| file_error("sweep", disk.path(DIR), source);
    let numbers = disk.segments.numbers().map_err(failed)?;
    let newest = numbers.last().copied();
    let mut swept = SweepReport::default();
    for number in numbers {
        let path = disk.segments.path(number);
        let metadata = fs::metadata(&path).map_err(failed)?;
        let used = live.bytes.get(&format!("{DIR}/{number}")).copied();
        let old = metadata.modified().map_err(failed)? < SystemTime::from(cutoff);
        let goes = used.is_none() && old && Some(number) != newest;
        if goes && !is_needed(&fs::read(&path).map_err(failed)?, live) {
            fs::remove_file(&path).map_err(failed)?;
            swept.removed += 1;
        } else {
            swept.dead_bytes += metadata.len().saturating_sub(used.unwrap_or_default());
        }
    }
    Ok(swept)
}

/// Whether these bytes contain a marker of an existing version, or a version that this database never
/// removed: an older or new database does not record what was acknowledged since.
fn is_needed(segment: &[u8], live: &LiveFrames) -> bool {
    headers(segment).any(|it| match &it {
        FrameKind::Marker(marker) if live.digests.contains(&marker.digest) => true,
        FrameKind::Marker(_) | FrameKind::Version(..) => live.never_knew(&it),
    })
}

/// A frame, by its first line.
enum FrameKind {
    /// With the digest of its frame.
    Version(Box<BlobHeader>, String),
    Marker(MarkerHeader),
}

fn headers(segment: &[u8]) -> impl Iterator<Item = FrameKind> {
    scan(segment).filter_map(|found| {
        let line = header_line(found.sealed).ok()?;
        Some(match Header::parse(line)? {
            Header::Version(header) => FrameKind::Version(header, hex(&found.digest)),
            Header::Marker(marker) => FrameKind::Marker(marker),
        })
    })
}

impl LiveFrames {
    /// Whether it is of a version that this database never removed: a later one, or another one of its number.
    fn never_knew(&self, named: &FrameKind) -> bool {
        let (state, version, digest) = match named {
            FrameKind::Version(header, digest) => {
                (&header.version.state, header.version.version, digest)
            }
            FrameKind::Marker(marker) => (&marker.state, marker.version, &marker.digest),
        };
        let Some(versions) = self.versions.get(state) else {
            return true;
        };
        match versions.get(&version) {
            Some(known) => known != digest,
            None => versions
                .keys()
                .next_back()
                .is_none_or(|newest| version > *newest),
        }
    }
}

#[cfg(test)]
mod tests;
