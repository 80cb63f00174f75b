//! Finds states whose newest acknowledged versions are missing in the database: the database was restored from an older
//! backup, or a new one was put beside old versions. Such a state is neither served nor written, so that an acknowledged
//! version is never overwritten.
//!
//! The comparison is made once, when a home is opened. It is cheap: only frames written since the last comparison are
//! visited, and of those only their first lines are read. `state verify` compares everything (`rebuild`).
//!
//! Not here: bringing the database up to date (`rebuild`), the same comparison for a bucket (`bucket`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use jiff::Timestamp;
use model::state::StateName;

use crate::blob::bucket::Bucket;
use crate::blob::bucket_identity;
use crate::blob::files::file_error;
use crate::blob::segments::DIR;
use crate::blob::segments::frame::{PREFIX, peek, scan};
use crate::blob::{Blobs, Disk};
use crate::crypto::header_line;
use crate::db::{Db, Tx};
use crate::state::versions::blob::FrameLine;
use crate::{OpenStoreError, Store, StoreError, blocking};

mod bucket;

/// The end of the last comparison is stored once at least this many bytes were compared again.
const REMEMBERED_AFTER: u64 = 16 * 1024;

/// Bytes read of each frame; its first line is rarely longer.
const FIRST_LINE: usize = 2048;

/// A state whose newest acknowledged versions are missing in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleState {
    /// The newest version in the database.
    pub known: i64,
    /// The newest version that was acknowledged.
    pub acknowledged: i64,
    /// When the first missing version was written.
    pub since: Option<Timestamp>,
}

/// The states that were found stale when the home was opened.
pub(crate) type StaleStates = BTreeMap<StateName, StaleState>;

/// A position in the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    segment: u64,
    length: u64,
}

/// The contents of the first lines of one state's frames.
#[derive(Debug, Default)]
pub(crate) struct FrameSummary {
    pub(crate) acknowledged: i64,
    pub(crate) written: BTreeMap<i64, Timestamp>,
    /// The highest serial.
    pub(crate) serial: u64,
}

impl FrameSummary {
    fn join(&mut self, other: Self) {
        self.acknowledged = self.acknowledged.max(other.acknowledged);
        self.serial = self.serial.max(other.serial);
        self.written.extend(other.written);
    }
}

impl Store {
    /// Refuses if any state is stale: for operations that cover all states.
    pub fn state_check_all_current(&self) -> Result<(), StoreError> {
        match self.state_list_stale().into_iter().next() {
            None => Ok(()),
            Some((_, stale)) => Err(stale),
        }
    }

    /// The stale states, each with the error for its use. Such a state may be missing in the database.
    pub fn state_list_stale(&self) -> Vec<(StateName, StoreError)> {
        let refused = |state: &StateName| Some((state.clone(), self.check_current(state).err()?));
        self.stale.keys().filter_map(refused).collect()
    }

    /// Refuses a stale state.
    pub(crate) fn check_current(&self, state: &StateName) -> Result<(), StoreError> {
        match self.stale.get(state) {
            None => Ok(()),
            Some(stale) => Err(StoreError::Stale {
                state: state.clone(),
                stale: stale.clone(),
            }),
        }
    }
}

/// Compares the database with the stored versions and returns the stale states. An error if the two cannot belong
/// together, or if the bucket does not answer.
pub(crate) async fn compare(db: &Db, blobs: &Blobs) -> Result<StaleStates, OpenStoreError> {
    match blobs {
        Blobs::Disk(disk) => {
            // Read before the database: versions that are committed later need not be in it.
            let Some(end) = end_of(disk).map_err(OpenStoreError::Compare)? else {
                // Another process may have written the first version since. Rows are read first: a row is committed
                // after the segment it names.
                if knows_a_version(db).await?
                    && end_of(disk).map_err(OpenStoreError::Compare)?.is_none()
                {
                    let place = disk.path(DIR);
                    return Err(OpenStoreError::BlobsGone { place });
                }
                return Ok(StaleStates::new());
            };
            disk.segments.expect_some();
            let stale = compare_segments(db, disk, end).await;
            stale.map_err(OpenStoreError::Compare)
        }
        Blobs::Bucket(bucket) => {
            refuse_empty_side(db, bucket).await?;
            bucket_identity::check(db, bucket).await?;
            match bucket::compare(db, bucket).await {
                // The bucket's identity was read a moment ago, so the credentials are valid but may not list.
                Err(StoreError::Object { source, .. }) if source.is_refused() => {
                    let place = bucket.path(DIR);
                    Err(OpenStoreError::NotListed { place, source })
                }
                stale => stale.map_err(OpenStoreError::Compare),
            }
        }
    }
}

/// Refuses an empty database beside a bucket with versions, and the reverse.
async fn refuse_empty_side(db: &Db, bucket: &Bucket) -> Result<(), OpenStoreError> {
    let knows_none = !knows_a_state(db).await?;
    // Listing a whole bucket is slow: only where the result can matter.
    if !bucket.is_directory() && !knows_none {
        return Ok(());
    }
    let place = bucket.path(DIR);
    let is_empty = async || {
        let own = bucket.clone();
        let objects = blocking(move || own.list(DIR)).await;
        objects
            .map(|objects| objects.is_empty())
            .map_err(OpenStoreError::Compare)
    };
    if !is_empty().await? {
        // A state has its row before its first upload.
        if knows_none && !knows_a_state(db).await? {
            return Err(OpenStoreError::TablesEmpty { place });
        }
    } else if knows_a_version(db).await? && is_empty().await? {
        return Err(OpenStoreError::BlobsGone { place });
    }
    Ok(())
}

async fn knows_a_version(db: &Db) -> Result<bool, OpenStoreError> {
    const ANY: &str = "SELECT 1 FROM state_version LIMIT 1";
    let found = db.fetch_optional(ANY, &[]).await;
    let found = found.map_err(|err| OpenStoreError::Compare(err.into()))?;
    Ok(found.is_some())
}

async fn knows_a_state(db: &Db) -> Result<bool, OpenStoreError> {
    const ANY: &str = "SELECT 1 FROM state LIMIT 1";
    let found = db.fetch_optional(ANY, &[]).await;
    let found = found.map_err(|err| OpenStoreError::Compare(err.into()))?;
    Ok(found.is_some())
}

async fn compare_segments(db: &Db, disk: &Disk, end: Position) -> Result<StaleStates, StoreError> {
    const SEEN: &str = "SELECT segment, length FROM segment_seen";
    let start = match db.fetch_optional(SEEN, &[]).await? {
        None => Position::default(),
        Some(row) => Position {
            segment: u64::try_from(row.int(0)?).unwrap_or_default(),
            length: u64::try_from(row.int(1)?).unwrap_or_default(),
        },
    };
    if start >= end {
        return Ok(StaleStates::new());
    }
    let (found, read) = summarize(disk, start, end)?;
    let mut stale = StaleStates::new();
    for (state, summary) in found {
        let known = known(db, &state).await?;
        if summary.acknowledged > known {
            let mut missing = summary.written.range(known + 1..);
            let since = missing.next().map(|(_, at)| *at);
            let found = StaleState {
                known,
                acknowledged: summary.acknowledged,
                since,
            };
            stale.insert(state, found);
        }
    }
    if stale.is_empty() && read > REMEMBERED_AFTER {
        // It only saves the next comparison some work: a home on a full or read-only disk can still be read.
        drop(remember(db, disk).await);
    }
    Ok(stale)
}

/// Stores the present end of the segments. The transaction makes this the only writer, so every frame before that end
/// has been committed.
async fn remember(db: &Db, disk: &Disk) -> Result<(), StoreError> {
    let mut tx = db.begin_write().await?;
    if let Some(end) = end_of(disk)? {
        tx.segment_seen(end).await?;
    }
    tx.commit().await?;
    Ok(())
}

impl Tx {
    async fn segment_seen(&mut self, seen: Position) -> Result<(), StoreError> {
        const REMEMBER: &str = "INSERT INTO segment_seen (id, segment, length) VALUES (1, $1, $2) \
            ON CONFLICT (id) DO UPDATE SET segment = $1, length = $2";
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let args = [number(seen.segment).into(), number(seen.length).into()];
        self.execute(REMEMBER, &args).await?;
        Ok(())
    }
}

async fn known(db: &Db, state: &StateName) -> Result<i64, StoreError> {
    const KNOWN: &str = "SELECT COALESCE(MAX(v.version), 0) FROM state AS s \
        JOIN state_version AS v ON v.state = s.id WHERE s.project = $1 AND s.name = $2";
    let row = db
        .fetch_optional(KNOWN, &crate::db::name_args(state))
        .await?;
    Ok(row.map_or(Ok(0), |row| row.int(0))?)
}

/// Where the segments end; `None` if there are none.
fn end_of(disk: &Disk) -> Result<Option<Position>, StoreError> {
    let numbers = disk.segments.numbers();
    let numbers = numbers.map_err(|err| file_error("list", disk.path(DIR), err))?;
    let Some(segment) = numbers.last().copied() else {
        return Ok(None);
    };
    let path = disk.segments.path(segment);
    let metadata = std::fs::metadata(&path).map_err(|err| file_error("read", path, err))?;
    let length = metadata.len();
    Ok(Some(Position { segment, length }))
}

/// Summarizes the frames between two positions, and counts their bytes.
fn summarize(
    disk: &Disk,
    start: Position,
    end: Position,
) -> Result<(BTreeMap<StateName, FrameSummary>, u64), StoreError> {
    let (mut found, mut read) = (BTreeMap::new(), 0);
    let numbers = disk.segments.numbers();
    let mut numbers = numbers.map_err(|err| file_error("list", disk.path(DIR), err))?;
    numbers.retain(|number| (start.segment..=end.segment).contains(number));
    for number in numbers {
        let from = if number == start.segment {
            start.length
        } else {
            0
        };
        let to = if number == end.segment {
            end.length
        } else {
            u64::MAX
        };
        let path = disk.segments.path(number);
        let each = |line: FrameLine<'_>| add_line(&mut found, line);
        read += first_lines(&path, from, to, each).map_err(|err| file_error("read", path, err))?;
    }
    Ok((found, read))
}

/// Adds a frame's first line to the summary of its state.
pub(crate) fn add_line(found: &mut BTreeMap<StateName, FrameSummary>, line: FrameLine<'_>) {
    let acknowledged = if line.is_marker() {
        line.version
    } else {
        // The writer saw its parent as the newest version, so the parent had been acknowledged.
        line.parent.unwrap_or_default()
    };
    let state = found.entry(line.state).or_default();
    state.acknowledged = state.acknowledged.max(acknowledged);
    state.serial = state.serial.max(line.serial.unwrap_or_default());
    if let Some(at) = line.created_at {
        state.written.insert(line.version, at);
    }
}

/// Visits the first line of each frame without reading the frames' contents.
fn first_lines(
    path: &std::path::Path,
    from: u64,
    to: u64,
    mut each: impl FnMut(FrameLine<'_>),
) -> io::Result<u64> {
    let file = File::open(path)?;
    let end = file.metadata()?.len().min(to);
    let (mut offset, mut before) = (from, from);
    let mut start = [0; FIRST_LINE];
    while offset < end {
        let wanted = usize::try_from(end - offset).unwrap_or(FIRST_LINE);
        let start = &mut start[..wanted.min(FIRST_LINE)];
        file.read_exact_at(start, offset)?;
        let line = start.get(PREFIX..).and_then(|rest| header_line(rest).ok());
        let length = peek(start).filter(|length| offset + length <= end);
        let (Some(length), Some(line)) = (length, line) else {
            // This frame or the one before it is torn or damaged, or its first line is longer: scan the rest.
            let mut rest = vec![0; usize::try_from(end - before).map_err(io::Error::other)?];
            file.read_exact_at(&mut rest, before)?;
            let lines = scan(&rest).filter_map(|found| header_line(found.sealed).ok());
            lines.filter_map(FrameLine::parse).for_each(each);
            break;
        };
        FrameLine::parse(line).into_iter().for_each(&mut each);
        (before, offset) = (offset, offset + length);
    }
    Ok(end.saturating_sub(from))
}

#[cfg(test)]
mod tests;
