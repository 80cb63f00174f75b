//! What an engine says, kept for people: masked as it is written, so that whoever reads along sees no secret.
//!
//! The engine writes to a file that only we read; the copy that people read grows behind it. Both outlive
//! us: if this process dies the engine goes on writing, and whoever finds the run makes the rest of the copy.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::engine_event::{EngineEvent, EventReader};
use model::ids::RunId;
use model::masking::{Mask, MaskStream};
use model::run::Stage;

use super::{Failure, Job};
use crate::home::{COMPLAINTS, Home, log_name, make_private};
use crate::run::logs::{earlier_attempts, hidden_in};

/// A file that an engine writes, and its copy without secrets.
pub(super) struct LogCopy {
    raw: PathBuf,
    copy: PathBuf,
    /// Made when there is something to copy: most engines have no complaints.
    open: Option<File>,
    /// What the engine writes: where it began, and how far it was read.
    source: Option<File>,
    begin: u64,
    read: u64,
    stream: MaskStream,
    /// Of an apply: what was done must be known even if the machine dies.
    is_durable: bool,
    synced: Instant,
}

/// How often the log of an apply is made durable, at most.
const SYNC: Duration = Duration::from_secs(1);
/// What is copied at a time, and how long at most.
const CHUNK: u64 = 64 * 1024;
const MOMENT: Duration = Duration::from_millis(20);

impl LogCopy {
    /// Of what an engine says in a stage.
    pub(super) fn of_events(
        raw: PathBuf,
        copy: &Path,
        mask: Mask,
        is_durable: bool,
    ) -> io::Result<Self> {
        let open = Some(open_copy(copy)?); // who reads along waits for it
        let log = Self::new(raw, copy, mask)?;
        Ok(Self {
            open,
            is_durable,
            ..log
        })
    }

    /// What comes now goes behind what earlier calls of the same attempt said.
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

    /// Copies what is new, as far as that goes in a moment: state requests and interrupts wait meanwhile.
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

    /// The engine is gone: all of what it wrote, as it wrote it.
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

/// Of what is not there yet: none.
fn length(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(0),
        found => Ok(found?.len()),
    }
}

/// A run that is planned anew begins its logs anew; those of the attempt before stay.
pub(super) fn begin_attempt(job: &Job<'_>) -> Result<(), Failure> {
    let kept = keep_earlier(&job.control.home, job.run);
    kept.map_err(|err| Failure::because("could not keep the logs of the attempt before", &err))
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

/// What is known of a stage that nobody finished: its events, masked.
pub(crate) fn lost_events(home: &Home, run: RunId, stage: Stage) -> Vec<EngineEvent> {
    let bytes = fs::read(home.engine_events(run, stage)).unwrap_or_default();
    EventReader::read_all(&bytes)
}

/// Makes the rest of the copies for a runner that was lost. What it had to hide lies beside its inputs; without
/// that nobody knows what to look for, and only what it copied itself stays.
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
            // What cannot be written now is lost to people only: the engine's state is elsewhere.
            drop(complete(&copy, &bytes, mask));
        }
        drop(fs::remove_file(raw));
    }
    // What a hook said is copied line by line while it runs.
    drop(fs::remove_file(home.hook_output(run)));
}

fn complete(copy: &Path, raw: &[u8], mask: &Mask) -> io::Result<()> {
    let mut stream = MaskStream::new(mask.clone());
    let mut whole = stream.push(raw);
    whole.extend(stream.finish());
    let have = fs::read(copy).unwrap_or_default();
    open_copy(copy)?.write_all(missing(&have, &whole))
}

/// What of `whole` is not at the end of `have` already. All of it may be there with more behind it: hooks speak after the
/// engine.
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
    use model::secret::Secret;

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
