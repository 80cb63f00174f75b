//! Where bytes are stored: on the disk of this machine, or in a bucket that several machines share. Keys,
//! frames of versions and refused pieces all go through `Blobs`.
//!
//! Here: files, segments and buckets, their names, compression, durability, and announcing uploads to the
//! sweeper. Calls wait for the disk or the network, except `path` and `mark`; they are made on threads that
//! may block.
//!
//! Not here: what the bytes contain (`key`, `state`), and which of them are in use (the database decides).

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use crate::blob::bucket::Bucket;
use crate::blob::durability::SyncStep;
use crate::blob::files::file_error;
use crate::blob::segments::frame::Frame;
use crate::blob::segments::{DIR, FrameLocation, Staged};
use crate::db::SyncedFile as _;
use crate::db::Tx;
use crate::{Store, StoreError, blocking};

pub(crate) mod bucket;
pub(crate) mod bucket_identity;
pub(crate) mod delta;
mod disk;
pub(crate) mod durability;
pub(crate) mod files;
mod names;
mod readiness;
pub(crate) mod scratch;
pub(crate) mod segments;
mod upload_intents;

pub(crate) use disk::Disk;
pub use names::encode as file_name;
pub(crate) use names::{state_dir, state_of_dir};
pub(crate) use upload_intents::{UploadIntents, name_of, number_of};

#[derive(Clone, Debug)]
pub(crate) enum Blobs {
    Disk(Disk),
    Bucket(Bucket),
}

impl Blobs {
    /// The place, for messages.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Disk(disk) => disk.path(name),
            Self::Bucket(bucket) => bucket.path(name),
        }
    }

    /// Durable when this returns. Keeps an existing file; returns whether it was new.
    pub(crate) fn write_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        match self {
            Self::Disk(disk) => disk.write_new(name, bytes),
            Self::Bucket(bucket) => bucket.write_new(name, bytes.to_vec()),
        }
    }

    /// Durable when this returns. Replaces an existing file: only for a key that is wrapped again, an equal note, and
    /// files that are moved out of the way.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Disk(disk) => disk.write(name, bytes),
            Self::Bucket(bucket) => bucket.write(name, bytes.to_vec()),
        }
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Disk(disk) => disk.read(name),
            Self::Bucket(bucket) => bucket.read(name),
        }
    }

    pub(crate) fn read_optional(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.read(name) {
            Err(err) if err.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// The names in a directory.
    pub(crate) fn list(&self, dir: &str) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Disk(disk) => disk.list(dir),
            Self::Bucket(bucket) => bucket.list(dir),
        }
    }

    /// Not an error if it does not exist.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Disk(disk) => disk.remove(name),
            Self::Bucket(bucket) => bucket.remove(name),
        }
    }

    pub(crate) fn read_frame(&self, place: &FrameLocation) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Disk(disk) => disk.read_frame(place),
            Self::Bucket(bucket) => bucket.read_frame(place),
        }
    }

    /// Records that a frame was acknowledged. Nothing waits for it to be durable; the next frames carry it.
    pub(crate) fn mark(&self, marker: Frame) {
        match self {
            Self::Disk(disk) => match disk.appends() {
                Some(appends) => appends.mark(marker),
                // The version is stored and acknowledged in any case.
                None => drop(disk.segments.append(&[&marker.bytes[..]])),
            },
            Self::Bucket(bucket) => bucket.mark_later(&marker),
        }
    }
}

impl Store {
    /// Makes a frame durable before the transaction that names it. `None` where the transaction itself appends it.
    pub(crate) async fn blob_stage_ahead(
        &self,
        frame: &Arc<Frame>,
    ) -> Result<Option<Staged>, StoreError> {
        match &self.blobs {
            Blobs::Disk(disk) => {
                let Some(appends) = disk.appends() else {
                    return Ok(None);
                };
                let place = appends.append(Arc::clone(frame)).await;
                let place = place.map_err(|err| file_error("write to", disk.path(DIR), err))?;
                let places = vec![place];
                Ok(Some(Staged { places }))
            }
            Blobs::Bucket(_) => self.blobs_stage(vec![Arc::clone(frame)]).await.map(Some),
        }
    }

    /// Makes frames durable, with one sync or as one object.
    pub(crate) async fn blobs_stage(&self, frames: Vec<Arc<Frame>>) -> Result<Staged, StoreError> {
        match &self.blobs {
            Blobs::Disk(disk) => {
                let disk = disk.clone();
                blocking(move || {
                    let bytes: Vec<&[u8]> = frames.iter().map(|frame| &frame.bytes[..]).collect();
                    let staged = disk.segments.append(&bytes).and_then(|(segment, places)| {
                        segment.sync()?;
                        Ok(Staged { places })
                    });
                    staged.map_err(|source| file_error("write to", disk.path(DIR), source))
                })
                .await
            }
            Blobs::Bucket(bucket) => {
                let object = self.blob_next_name().await?;
                let bucket = bucket.clone();
                blocking(move || bucket.put_frames(&object, &frames)).await
            }
        }
    }

    /// Announces an upload: if it fails, the sweeper finds the object by this row.
    pub(crate) async fn blob_intend(&self, object: &str) -> Result<(), StoreError> {
        const INTEND: &str = "INSERT INTO blob_intent (object, at) VALUES ($1, $2)";
        let args = [object.into(), Timestamp::now().into()];
        self.db.execute(INTEND, &args).await?;
        Ok(())
    }
}

impl Tx {
    /// The location of a frame for this transaction's rows. The frame is durable before the transaction
    /// commits. `None` if the staged frame was swept meanwhile.
    pub(crate) async fn frame_place(
        &mut self,
        blobs: &Blobs,
        frame: &Frame,
        staged: Option<&Staged>,
    ) -> Result<Option<FrameLocation>, StoreError> {
        match (blobs, staged) {
            (_, Some(staged)) => {
                let claimed = self.blobs_claim(blobs, staged).await?;
                Ok(staged.places.first().filter(|_| claimed).cloned())
            }
            (Blobs::Disk(disk), None) => {
                let appended = disk.segments.append(&[&frame.bytes[..]]);
                let (segment, places) =
                    appended.map_err(|source| file_error("write to", disk.path(DIR), source))?;
                self.sync_before_commit(segment);
                Ok(places.into_iter().next())
            }
            (Blobs::Bucket(_), None) => Ok(None),
        }
    }

    /// Claims staged frames in the transaction whose rows name them. False if they were swept meanwhile.
    pub(crate) async fn blobs_claim(
        &mut self,
        blobs: &Blobs,
        staged: &Staged,
    ) -> Result<bool, StoreError> {
        let Some(FrameLocation { object, .. }) = staged.places.first() else {
            return Ok(true);
        };
        match blobs {
            // Only the single writer removes segments, and this transaction is that writer now.
            Blobs::Disk(disk) => {
                let may_commit = disk.watch.before(SyncStep::Commit);
                may_commit.map_err(|source| file_error("write to", disk.path(DIR), source))?;
                Ok(disk.path(&format!("{object}.seg")).exists())
            }
            Blobs::Bucket(_) => self.blob_intent_take(object).await,
        }
    }

    pub(crate) async fn blob_intent_take(&mut self, object: &str) -> Result<bool, StoreError> {
        const TAKE: &str = "DELETE FROM blob_intent WHERE object = $1 RETURNING object";
        Ok(self.fetch_optional(TAKE, &[object.into()]).await?.is_some())
    }
}
