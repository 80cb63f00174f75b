//! Segments: append-only files that hold frames one after the other. Several processes append to the newest one, each
//! under its file lock; at 64 MB a new one is created.
//!
//! Not here: what a frame is (`frame`), and which frames are in use (the database decides).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::StoreError;
use crate::blob::durability::{SyncStep, SyncWatch};
use crate::blob::files::make_dir;
use crate::db::SyncedFile;

pub(crate) mod frame;
pub(crate) mod shared;

pub(crate) const DIR: &str = "segments";

/// A segment of this size is full.
const FULL: u64 = 64 * 1024 * 1024;

/// Where a frame is stored: `segments/3@1234+567`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameLocation {
    pub(crate) object: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Frames that are durable but not named by a row yet.
#[derive(Debug)]
pub(crate) struct Staged {
    /// One for each frame.
    pub(crate) places: Vec<FrameLocation>,
}

/// The segments of one home on disk.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    watch: SyncWatch,
    full: u64,
    current: Mutex<Option<Arc<Segment>>>,
    /// Whether the directory must exist: if it is missing, it is not created again.
    expected: AtomicBool,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    name: String,
    file: File,
    watch: SyncWatch,
}

impl Segments {
    pub(crate) fn new(home: &Path, watch: SyncWatch) -> Self {
        Self {
            dir: home.join(DIR),
            watch,
            full: FULL,
            current: Mutex::new(None),
            expected: AtomicBool::new(false),
        }
    }

    /// Call this once versions were found here: a directory that vanishes from now on is a loss, and must not be
    /// replaced by a new one.
    pub(crate) fn expect_some(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn with_full(self, full: u64) -> Self {
        Self { full, ..self }
    }

    /// Appends frames to the newest segment, side by side. They are not durable before `sync`.
    pub(crate) fn append(
        &self,
        frames: &[&[u8]],
    ) -> io::Result<(Arc<Segment>, Vec<FrameLocation>)> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let segment = match current.take() {
                Some(segment) => segment,
                None => Arc::new(self.newest()?),
            };
            flock(&segment.file, FlockOperation::LockExclusive)?;
            let place = self.append_locked(&segment, frames);
            flock(&segment.file, FlockOperation::Unlock)?;
            if let Some(places) = place? {
                *current = Some(Arc::clone(&segment));
                return Ok((segment, places));
            }
        }
    }

    /// The numbers of all segments, oldest first.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".seg"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number}.seg"))
    }

    /// `None` if the segment is full, or was removed meanwhile.
    fn append_locked(
        &self,
        segment: &Segment,
        frames: &[&[u8]],
    ) -> io::Result<Option<Vec<FrameLocation>>> {
        let metadata = segment.file.metadata()?;
        let end = metadata.len();
        if end >= self.full || metadata.nlink() == 0 {
            return Ok(None);
        }
        if end == 0 {
            // The segment's name must be durable before its first byte. Other processes that find bytes in it need not
            // check: those were written after this.
            self.watch.before(SyncStep::SyncDirectory(&self.dir))?;
            File::open(&self.dir)?.sync_all()?;
        }
        self.watch.before(SyncStep::Append(&segment.path))?;
        let written = match frames {
            [frame] => (&segment.file).write_all(frame),
            frames => (&segment.file).write_all(&frames.concat()),
        };
        if let Err(err) = written {
            // A partial frame does no harm; removing it only saves readers some work.
            let _ = segment.file.set_len(end);
            return Err(err);
        }
        let mut offset = end;
        let place = |frame: &&[u8]| {
            let length = frame.len() as u64;
            offset += length;
            FrameLocation {
                object: segment.name.clone(),
                offset: offset - length,
                length,
            }
        };
        Ok(Some(frames.iter().map(place).collect()))
    }

    /// The newest segment that is not full, or a new one.
    fn newest(&self) -> io::Result<Segment> {
        if self.expected.swap(true, Ordering::Relaxed) && !self.dir.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        make_dir(&self.dir)?;
        let newest = self.numbers()?.last().copied();
        let number = match newest {
            None => 1,
            Some(number) => {
                let is_full = fs::metadata(self.path(number))?.len() >= self.full;
                number + u64::from(is_full)
            }
        };
        let path = self.path(number);
        self.watch.before(SyncStep::Name(&path))?;
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(&path)?;
        let name = format!("{DIR}/{number}");
        let watch = self.watch.clone();
        Ok(Segment {
            path,
            name,
            file,
            watch,
        })
    }
}

impl SyncedFile for Segment {
    fn sync(&self) -> io::Result<()> {
        self.watch.before(SyncStep::SyncFile(&self.path))?;
        self.file.sync_data()
    }

    fn before_commit(&self) -> io::Result<()> {
        self.watch.before(SyncStep::Commit)
    }
}

/// Reads the bytes of a frame.
pub(crate) fn read_at(path: &Path, place: &FrameLocation) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // Checked before memory is allocated: the row may be damaged, too.
    let end = place.offset.checked_add(place.length);
    if end.is_none_or(|end| file.metadata().is_ok_and(|file| file.len() < end)) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; usize::try_from(place.length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, place.offset)?;
    Ok(bytes)
}

impl fmt::Display for FrameLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}+{}", self.object, self.offset, self.length)
    }
}

impl FrameLocation {
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let parsed = || {
            let (object, range) = text.rsplit_once('@')?;
            let (offset, length) = range.split_once('+')?;
            Some(Self {
                object: object.to_owned(),
                offset: offset.parse().ok()?,
                length: length.parse().ok()?,
            })
        };
        parsed().ok_or_else(|| StoreError::Row {
            found: text.to_owned(),
            expected: "a place of a frame",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(home: &Path) -> Segments {
        Segments::new(home, SyncWatch::default()).with_full(100)
    }

    fn append(segments: &Segments, text: &str) -> String {
        let (_, places) = segments.append(&[text.as_bytes()]).unwrap();
        places[0].to_string()
    }

    #[test]
    fn a_full_segment_is_followed_by_another_in_every_process() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (segments(home.path()), segments(home.path()));
        assert_eq!(append(&one, &"a".repeat(60)), "segments/1@0+60");
        assert_eq!(append(&two, &"b".repeat(60)), "segments/1@60+60");
        assert_eq!(append(&one, "c"), "segments/2@0+1");
        assert_eq!(append(&two, "d"), "segments/2@1+1");
        assert_eq!(one.numbers().unwrap(), [1, 2]);
        let place = FrameLocation::parse("segments/1@60+60").unwrap();
        assert_eq!(
            read_at(&one.path(1), &place).unwrap(),
            "b".repeat(60).as_bytes()
        );
    }

    #[test]
    fn a_segment_that_was_removed_is_not_written_to() {
        let home = tempfile::tempdir().unwrap();
        let segments = segments(home.path());
        append(&segments, "a");
        fs::remove_file(segments.path(1)).unwrap();
        assert_eq!(append(&segments, "b"), "segments/1@0+1");
        assert_eq!(fs::read(segments.path(1)).unwrap(), b"b");
    }

    #[test]
    fn places_of_threads_never_overlap() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let segments = Segments::new(home.path(), SyncWatch::default());
                scope.spawn(move || {
                    for number in 0..50 {
                        let text = format!("{thread}:{number}");
                        let (_, places) = segments.append(&[text.as_bytes(), b"-"]).unwrap();
                        let read = read_at(&segments.path(1), &places[0]).unwrap();
                        assert_eq!(read, text.as_bytes());
                    }
                });
            }
        });
    }
}
