//! An engine's output, stored for users. It is masked as it is written, so that clients that follow it see no
//! secret.
//!
//! The engine writes to a file that only terrane reads, and users read a copy that grows behind it. If this
//! process dies, the engine continues to write, and recovery completes the copy.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::base::ids::RunId;
use model::base::masking::{Mask, MaskStream};
use model::run::Stage;
use model::run::engine_event::{EngineEvent, EventReader};

use super::{Failure, StageJob};
use crate::home::{COMPLAINTS, Home, log_name, make_private};
use crate::run::logs::{earlier_attempts, hidden_in};

/// A file that an engine writes, and its copy without secrets.
pub(super) struct LogCopy {
    raw: PathBuf,
    copy: PathBuf,
    /// Created when there is something to copy: most engines write nothing to standard error.
    open: Option<File>,
    /// The engine's file. `begin` is its length before the call, `read` how far it was read.
    source: Option<File>,
    begin: u64,
    read: u64,
    stream: MaskStream,
    /// Set for an apply: its log must survive a crash of the machine.
    is_durable: bool,
    synced: Instant,
}

/// How often the log of an apply is synced, at most.
const SYNC: Duration = Duration::from_secs(1);
/// How many bytes are copied at a time, and how long one copy may take.
const CHUNK: u64 = 64 * 1024;
const MOMENT: Duration = Duration::from_millis(20);

impl LogCopy {
    /// A log of the engine's events in a stage.
    pub(super) fn of_events(
        raw: PathBuf,
        copy: &Path,
        mask: Mask,
        is_durable: bool,
    ) -> io::Result<Self> {
        let open = Some(open_copy(copy)?); // clients that follow the log wait for it
        let log = Self::new(raw, copy, mask)?;
        Ok(Self {
            open,
            is_durable,
            ..log
        })
    }

    /// New output is appended to the output of earlier calls in the same attempt.
    pub(super) fn new(raw: PathBuf, copy: &Path, mask: Mask) -> io::Result<Self> {
        let begin = length(&raw)?;
        Ok(Self {
            raw,
            copy: copy.to_owned(),
            open: None,
            source: None,
            begin,
            read: begin,
            stream: MaskStream::new(mask),
            is_durable: false,
            synced: Instant::now(),
        })
    }

    /// Where the engine writes.
    pub(super) fn raw(&self) -> &Path {
        &self.raw
    }

    /// Copies new output, only for a short time: state requests and interrupts wait meanwhile.
    pub(super) fn follow(&mut self) -> io::Result<()> {
        let (begun, from) = (Instant::now(), self.read);
        loop {
            let new = self.read_from(self.read, CHUNK)?;
            if new.is_empty() {
                break;
            }
            self.read += new.len() as u64;
            let masked = self.stream.push(&new);
            self.write(&masked)?;
            if begun.elapsed() > MOMENT {
                break;
            }
        }
        if self.read > from && self.synced.elapsed() > SYNC {
            self.sync()?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    fn read_from(&mut self, place: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if length(&self.raw)? <= place {
            return Ok(bytes);
        }
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(File::open(&self.raw)?),
        };
        source.seek(SeekFrom::Start(place))?;
        source.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&mut self, masked: &[u8]) -> io::Result<()> {
        if masked.is_empty() {
            return Ok(());
        }
        let copy = match &mut self.open {
            Some(copy) => copy,
            none => none.insert(open_copy(&self.copy)?),
        };
        copy.write_all(masked)
    }

    fn sync(&self) -> io::Result<()> {
        match &self.open {
            Some(copy) if self.is_durable => copy.sync_data(),
            _ => Ok(()),
        }
    }

    /// The engine has exited. Completes the copy, and returns all of the output unmasked.
    pub(super) fn finish(mut self) -> io::Result<Vec<u8>> {
        let bytes = self.read_from(self.begin, u64::MAX)?;
        let copied = usize::try_from(self.read - self.begin).unwrap_or(usize::MAX);
        let mut masked = self.stream.push(bytes.get(copied..).unwrap_or_default());
        let stream = std::mem::replace(&mut self.stream, MaskStream::new(Mask::default()));
        masked.extend(stream.finish());
        self.write(&masked)?;
        self.sync()?;
        Ok(bytes)
    }
}

/// The length of a file; 0 if it does not exist.
fn length(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(0),
        found => Ok(found?.len()),
    }
}

/// Starts new logs for a run that is planned again. The logs of the earlier attempt are kept.
pub(super) fn begin_attempt(job: &StageJob<'_>) -> Result<(), Failure> {
    let kept = keep_earlier(&job.control.home, job.run);
    kept.map_err(|err| Failure::because("could not keep the logs of the previous attempt", &err))
}

fn keep_earlier(home: &Home, run: RunId) -> io::Result<()> {
    let dir = home.run_dir(run);
    let names = Stage::ALL.map(log_name).into_iter().chain([COMPLAINTS]);
    let names: Vec<&str> = names.filter(|name| dir.join(name).exists()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let to = home.attempt(run, earlier_attempts(home, run) + 1);
    make_private(&to)?;
    for name in names {
        fs::rename(dir.join(name), to.join(name))?;
    }
    Ok(())
}

fn open_copy(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path)
}

/// The masked events that a stage has logged so far.
pub(crate) fn lost_events(home: &Home, run: RunId, stage: Stage) -> Vec<EngineEvent> {
    let bytes = fs::read(home.engine_events(run, stage)).unwrap_or_default();
    EventReader::read_all(&bytes)
}

/// Completes the copies for a lost runner. Its secrets are stored beside its inputs. Without them nothing can
/// be masked, and only what the runner copied itself is kept.
pub(crate) fn finish_lost(home: &Home, run: RunId) {
    let mask = hidden_in(home, run);
    let stages = [Stage::Preparing, Stage::Planning, Stage::Applying];
    let events = stages.map(|stage| {
        (
            home.engine_output(run, stage),
            home.engine_events(run, stage),
        )
    });
    let complaints = (home.engine_complaints_raw(run), home.engine_complaints(run));
    for (raw, copy) in events.into_iter().chain([complaints]) {
        if let (Ok(bytes), Some(mask)) = (fs::read(&raw), &mask) {
            // If the copy cannot be written, only the log is lost: the engine's state is stored elsewhere.
            drop(complete(&copy, &bytes, mask));
        }
        drop(fs::remove_file(raw));
    }
    // A hook's output is copied line by line while it runs.
    drop(fs::remove_file(home.hook_output(run)));
}

fn complete(copy: &Path, raw: &[u8], mask: &Mask) -> io::Result<()> {
    let mut stream = MaskStream::new(mask.clone());
    let mut whole = stream.push(raw);
    whole.extend(stream.finish());
    let have = fs::read(copy).unwrap_or_default();
    open_copy(copy)?.write_all(missing(&have, &whole))
}

/// The part of `whole` that is not yet at the end of `have`. `have` may contain all of it with more output
/// after it, because hooks write after the engine.
fn missing<'a>(have: &[u8], whole: &'a [u8]) -> &'a [u8] {
    if !whole.is_empty() && have.windows(whole.len()).any(|part| part == whole) {
        return &[];
    }
    let most = have.len().min(whole.len());
    let shared = (0..=most)
        .rev()
        .find(|length| have.ends_with(&whole[..*length]));
    &whole[shared.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use model::base::secret::Secret;

    use super::*;

    #[test]
    fn a_copy_goes_on_where_it_ended() {
        assert_eq!(missing(b"", b"abc"), b"abc");
        assert_eq!(missing(b"ab", b"abc"), b"c");
        assert_eq!(missing(b"earlier\nab", b"abc"), b"c");
        assert_eq!(missing(b"earlier\n", b"abc"), b"abc");
        assert_eq!(missing(b"abc", b"abc"), b"");
        assert_eq!(missing(b"abc\nhook", b"abc"), b"");
    }

    #[test]
    fn a_copy_holds_no_secret_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, copy) = (dir.path().join("raw"), dir.path().join("copy"));
        let mask = Mask::new(&[Secret::new("hunter2!")]);
        let mut log = LogCopy::of_events(raw.clone(), &copy, mask.clone(), true).unwrap();
        let mut engine = open_copy(&raw).unwrap();
        let mut seen = Vec::new();
        for letter in b"it is hunter2!\nhunter2!" {
            engine.write_all(&[*letter]).unwrap();
            log.follow().unwrap();
            seen = fs::read(&copy).unwrap();
            assert!(!String::from_utf8_lossy(&seen).contains("hunter"));
        }
        assert_eq!(seen, b"it is (secret)\n");
        // As after a crash of who copied.
        complete(&copy, &fs::read(&raw).unwrap(), &mask).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), b"it is (secret)\n(secret)");
    }
}
