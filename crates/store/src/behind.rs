//! Tables that know less than the files: a database from an older backup, or a new one beside old versions. What was
//! acknowledged since must not be taken for something that never was, so its states are not served until the tables
//! know it again (`rebuild`).
//!
//! Looked at when a home is opened, and cheap: of the segments only the frames that came since the last look, and of
//! those only their first lines. How that is known of a bucket: `bucket`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use model::state::StateName;

use crate::binding;
use crate::blobs::{Blobs, Disk, file_error};
use crate::db::{Db, Tx};
use crate::sealing::header_line;
use crate::segments::frame::{PREFIX, peek, scan};
use crate::segments::{DIR, Segments};
use crate::state_versions::Stored;
use crate::state_versions::blob::Line;
use crate::{OpenStoreError, Store, StoreError, Use, blocking};
use tokio::sync::Mutex;

mod bucket;

/// A server looks at its bucket again after so long: its database may be put back to an older one under it.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// A bucket that did not answer is asked again after so long.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Where something was found.
const MENDED_AFTER: Duration = Duration::from_secs(5);

/// So much of the segments is looked at again and again before the tables remember that it was.
const REMEMBERED_AFTER: u64 = 16 * 1024;

/// Enough for a frame's first line, as a rule.
const FIRST_LINE: usize = 2048;

/// A state of which the files know more than the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The newest version in the tables.
    pub known: i64,
    /// The newest one that was acknowledged.
    pub acknowledged: i64,
    /// When the first one was written that the tables do not know.
    pub since: Option<Timestamp>,
}

/// A place in the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    segment: u64,
    length: u64,
}

/// What frames say of one state.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) acknowledged: i64,
    pub(crate) written: BTreeMap<i64, Timestamp>,
    /// The highest serial.
    pub(crate) serial: u64,
}

/// What is known of it, and since when.
#[derive(Debug, Default)]
pub(crate) struct Known {
    states: RwLock<BTreeMap<StateName, Behind>>,
    looked: RwLock<Looked>,
    /// What this process acknowledged last: tables that say less were put back while it was at work.
    own: RwLock<BTreeMap<StateName, Own>>,
    /// Held by who looks again.
    looking: Mutex<()>,
}

/// A version, and when it was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Own {
    version: i64,
    at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
enum Looked {
    /// Whoever opened it does not ask.
    #[default]
    Never,
    At(Instant),
    /// The bucket did not answer.
    Failed(Instant),
}

impl Known {
    /// Nothing if the bucket did not answer.
    pub(crate) fn new(found: Option<BTreeMap<StateName, Behind>>) -> Self {
        let now = Instant::now();
        let (states, looked) = match found {
            Some(states) => (states, Looked::At(now)),
            None => (BTreeMap::new(), Looked::Failed(now)),
        };
        Self {
            states: RwLock::new(states),
            looked: RwLock::new(looked),
            own: RwLock::default(),
            looking: Mutex::default(),
        }
    }

    fn states(&self) -> BTreeMap<StateName, Behind> {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        states.clone()
    }

    fn get(&self, state: &StateName) -> Option<Behind> {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        states.get(state).cloned()
    }

    fn is_sound(&self) -> bool {
        let states = self.states.read().unwrap_or_else(PoisonError::into_inner);
        states.is_empty()
    }

    fn own(&self, state: &StateName) -> Option<Own> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.get(state).copied()
    }

    fn looked(&self) -> Looked {
        *self.looked.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, looked: Looked, states: Option<BTreeMap<StateName, Behind>>) {
        if let Some(states) = states {
            *self.states.write().unwrap_or_else(PoisonError::into_inner) = states;
        }
        *self.looked.write().unwrap_or_else(PoisonError::into_inner) = looked;
    }
}

impl Heard {
    fn join(&mut self, other: Self) {
        self.acknowledged = self.acknowledged.max(other.acknowledged);
        self.serial = self.serial.max(other.serial);
        self.written.extend(other.written);
    }
}

impl Store {
    /// Refuses if there is any state of which the tables know too little: for who wants all of them.
    pub async fn state_check_all_current(&self) -> Result<(), StoreError> {
        self.behind_look_if_due().await;
        let behind = self.behind.states();
        match behind.into_iter().next() {
            None => Ok(()),
            Some((state, behind)) => Err(StoreError::Behind { state, behind }),
        }
    }

    /// Whether it is known if the tables are an older copy: a bucket that did not answer says nothing.
    pub fn is_compared(&self) -> bool {
        !matches!(self.behind.looked(), Looked::Failed(_))
    }

    /// The states of which the tables know too little; the tables may not have heard of one at all.
    pub fn state_list_behind(&self) -> Vec<(StateName, StoreError)> {
        let refused = |(state, behind): (StateName, Behind)| {
            let own = state.clone();
            (own, StoreError::Behind { state, behind })
        };
        self.behind.states().into_iter().map(refused).collect()
    }

    /// Refuses a state of which the tables know too little.
    pub(crate) async fn check_current(&self, state: &StateName) -> Result<(), StoreError> {
        self.behind_look_if_due().await;
        match self.behind.get(state) {
            None => Ok(()),
            Some(behind) => Err(StoreError::Behind {
                state: state.clone(),
                behind,
            }),
        }
    }

    /// Remembers what is acknowledged now, for as long as this process serves.
    pub(crate) fn acknowledges(&self, state: &StateName, version: i64) {
        if self.how == Use::Serving {
            let at = Timestamp::now();
            let own = self.behind.own.write();
            let mut own = own.unwrap_or_else(PoisonError::into_inner);
            let last = own.entry(state.clone()).or_insert(Own { version, at });
            if version >= last.version {
                *last = Own { version, at };
            }
        }
    }

    /// Refuses a head that is older than what this process acknowledged itself, unless a person decided so since. A state
    /// that was deleted has none, and its versions are known still.
    pub(crate) async fn check_head(
        &self,
        state: &StateName,
        head: Option<&Stored>,
    ) -> Result<(), StoreError> {
        let Some(own) = self.behind.own(state) else {
            return Ok(());
        };
        if head.is_some_and(|head| head.version.version >= own.version) {
            return Ok(());
        }
        Box::pin(self.check_own(state, own)).await
    }

    async fn check_own(&self, state: &StateName, own: Own) -> Result<(), StoreError> {
        // It may have moved since it was read.
        let known = known(&self.db, state).await?;
        if known >= own.version {
            return Ok(());
        }
        let settles = |one: &Stored| one.version.settles() && one.version.created_at > own.at;
        if self.stored_all(state).await?.iter().any(settles) {
            let own = self.behind.own.write();
            own.unwrap_or_else(PoisonError::into_inner).remove(state);
            return Ok(());
        }
        Err(StoreError::Behind {
            state: state.clone(),
            behind: Behind {
                known,
                acknowledged: own.version,
                since: None,
            },
        })
    }

    /// Before anything is written to a bucket it must have been looked at.
    pub(crate) async fn behind_look_before_writing(&self) -> Result<(), StoreError> {
        match self.behind.looked() {
            Looked::Failed(_) => self.behind_look_again().await,
            Looked::Never | Looked::At(_) => Ok(()),
        }
    }

    /// A bucket that does not answer keeps nobody from what the tables alone know.
    async fn behind_look_if_due(&self) {
        let is_due = match self.behind.looked() {
            Looked::Never => false,
            Looked::Failed(at) => at.elapsed() > TRIED_AGAIN_AFTER,
            Looked::At(at) => {
                // Somebody may be mending what was found.
                let after = if self.behind.is_sound() {
                    AGAIN_AFTER
                } else {
                    MENDED_AFTER
                };
                self.how == Use::Serving && at.elapsed() > after
            }
        };
        if is_due && let Ok(_turn) = self.behind.looking.try_lock() {
            drop(self.behind_look_now().await);
        }
    }

    /// As when it was opened. Segments of this machine lie beside their tables: nobody puts only one of them back while
    /// they are used, and they are looked at again only for what was found before.
    pub(crate) async fn behind_look_again(&self) -> Result<(), StoreError> {
        let _turn = self.behind.looking.lock().await;
        self.behind_look_now().await
    }

    async fn segments_look(&self, disk: &Disk) -> Result<BTreeMap<StateName, Behind>, StoreError> {
        match Reach::of(&self.blobs) {
            Ok(Reach(Some(end))) => look_at_segments(&self.db, disk, end).await,
            Ok(Reach(None)) => Ok(BTreeMap::new()),
            Err(_) => Ok(self.behind.states()), // as it was found, until it can be read
        }
    }

    async fn behind_look_now(&self) -> Result<(), StoreError> {
        if let Looked::Never = self.behind.looked() {
            return Ok(());
        }
        let found = match &self.blobs {
            Blobs::Disk(_) if self.behind.is_sound() => return Ok(()),
            Blobs::Disk(disk) => self.segments_look(disk).await,
            Blobs::Bucket(bucket) => bucket::look(&self.db, bucket).await,
        };
        match found {
            Ok(states) => {
                self.behind.set(Looked::At(Instant::now()), Some(states));
                Ok(())
            }
            Err(err) => {
                self.behind.set(Looked::Failed(Instant::now()), None);
                Err(err)
            }
        }
    }
}

/// How far the segments reach; none if there are none, or none that are ours to look at.
#[derive(Debug)]
pub(crate) struct Reach(Option<Seen>);

impl Reach {
    /// To be had before the tables are: what is committed later, they need not know.
    pub(crate) fn of(blobs: &Blobs) -> Result<Self, OpenStoreError> {
        let Blobs::Disk(disk) = blobs else {
            return Ok(Self(None));
        };
        let numbers = disk.segments.numbers();
        let numbers = numbers.map_err(|err| file_error("list", disk.path(DIR), err));
        let reach = numbers.and_then(|numbers| {
            let newest = numbers.last().copied();
            let end = newest.map(|segment| {
                let length = length(&disk.segments, segment)?;
                Ok(Seen { segment, length })
            });
            end.transpose()
        });
        reach.map(Self).map_err(OpenStoreError::Compare)
    }
}

/// The states that are not to be served; nothing if a bucket does not answer. An error if tables and blobs cannot belong
/// together.
pub(crate) async fn look(
    db: &Db,
    blobs: &Blobs,
    reach: &Reach,
) -> Result<Option<BTreeMap<StateName, Behind>>, OpenStoreError> {
    let failed = OpenStoreError::Compare;
    match blobs {
        Blobs::Disk(disk) => {
            let Some(end) = reach.0 else {
                // The first ones may have come since. Asked in this order: what a row names was there before the row.
                if knows_a_version(db).await? && matches!(Reach::of(blobs)?, Reach(None)) {
                    let place = disk.path(DIR);
                    return Err(OpenStoreError::BlobsGone { place });
                }
                return Ok(Some(BTreeMap::new()));
            };
            disk.segments.expect_some();
            let found = look_at_segments(db, disk, end).await.map_err(failed)?;
            Ok(Some(found))
        }
        Blobs::Bucket(bucket) => {
            let knows_none = !knows_a_state(db).await?;
            // To list it costs: only where it may tell something.
            if bucket.is_directory() || knows_none {
                let place = bucket.path(DIR);
                let is_empty = async || {
                    let own = bucket.clone();
                    let objects = blocking(move || own.list(DIR)).await;
                    objects.map(|objects| objects.is_empty()).map_err(failed)
                };
                if !is_empty().await? {
                    // A state has its row before anything of it is uploaded.
                    if knows_none && !knows_a_state(db).await? {
                        return Err(OpenStoreError::TablesEmpty { place });
                    }
                } else if knows_a_version(db).await? && is_empty().await? {
                    return Err(OpenStoreError::BlobsGone { place });
                }
            }
            if !binding::check(db, bucket).await? {
                return Ok(None);
            }
            match bucket::look(db, bucket).await {
                // Its word was read a moment ago: who asks is known there, and may not list.
                Err(StoreError::Object { source, .. }) if source.is_refused() => {
                    let place = bucket.path(DIR);
                    Err(OpenStoreError::NotListed { place, source })
                }
                Err(StoreError::Object { .. }) => Ok(None),
                found => found.map(Some).map_err(failed),
            }
        }
    }
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

async fn look_at_segments(
    db: &Db,
    disk: &Disk,
    end: Seen,
) -> Result<BTreeMap<StateName, Behind>, StoreError> {
    const SEEN: &str = "SELECT segment, length FROM segment_seen";
    let seen = match db.fetch_optional(SEEN, &[]).await? {
        None => Seen::default(),
        Some(row) => Seen {
            segment: u64::try_from(row.int(0)?).unwrap_or_default(),
            length: u64::try_from(row.int(1)?).unwrap_or_default(),
        },
    };
    if seen >= end {
        return Ok(BTreeMap::new());
    }
    let (heard, read) = listen(disk, seen, end)?;
    let mut behind = BTreeMap::new();
    for (state, heard) in heard {
        let known = known(db, &state).await?;
        if heard.acknowledged > known {
            let mut unknown = heard.written.range(known + 1..);
            behind.insert(
                state,
                Behind {
                    known,
                    acknowledged: heard.acknowledged,
                    since: unknown.next().map(|(_, at)| *at),
                },
            );
        }
    }
    if behind.is_empty() && read > REMEMBERED_AFTER {
        // It only saves the next look: on a full disk, or one that is only read, others go on reading.
        drop(remember(db, disk).await);
    }
    Ok(behind)
}

/// As the only writer: no frame lies there whose version is still to be committed.
async fn remember(db: &Db, disk: &Disk) -> Result<(), StoreError> {
    let mut tx = db.begin_write().await?;
    let numbers = disk.segments.numbers();
    let numbers = numbers.map_err(|err| file_error("list", disk.path(DIR), err))?;
    if let Some(segment) = numbers.last().copied() {
        let length = length(&disk.segments, segment)?;
        tx.segment_seen(Seen { segment, length }).await?;
    }
    tx.commit().await?;
    Ok(())
}

impl Tx {
    async fn segment_seen(&mut self, seen: Seen) -> Result<(), StoreError> {
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
        .fetch_optional(KNOWN, &crate::states::name_args(state))
        .await?;
    Ok(row.map_or(Ok(0), |row| row.int(0))?)
}

fn length(segments: &Segments, number: u64) -> Result<u64, StoreError> {
    let path = segments.path(number);
    let metadata = std::fs::metadata(&path).map_err(|err| file_error("look at", path, err))?;
    Ok(metadata.len())
}

/// What the frames between `seen` and `end` say, and how many bytes they are.
fn listen(
    disk: &Disk,
    seen: Seen,
    end: Seen,
) -> Result<(BTreeMap<StateName, Heard>, u64), StoreError> {
    let (mut heard, mut read) = (BTreeMap::new(), 0);
    let numbers = disk.segments.numbers();
    let mut numbers = numbers.map_err(|err| file_error("list", disk.path(DIR), err))?;
    numbers.retain(|number| (seen.segment..=end.segment).contains(number));
    for number in numbers {
        let from = if number == seen.segment {
            seen.length
        } else {
            0
        };
        let to = if number == end.segment {
            end.length
        } else {
            u64::MAX
        };
        let path = disk.segments.path(number);
        let each = |line: Line<'_>| hear(&mut heard, line);
        read += first_lines(&path, from, to, each).map_err(|err| file_error("read", path, err))?;
    }
    Ok((heard, read))
}

pub(crate) fn hear(heard: &mut BTreeMap<StateName, Heard>, line: Line<'_>) {
    let acknowledged = if line.is_marker() {
        line.version
    } else {
        // Whoever wrote it had seen the one before as the newest.
        line.parent.unwrap_or_default()
    };
    let state = heard.entry(line.state).or_default();
    state.acknowledged = state.acknowledged.max(acknowledged);
    state.serial = state.serial.max(line.serial.unwrap_or_default());
    if let Some(at) = line.created_at {
        state.written.insert(line.version, at);
    }
}

/// Steps from frame to frame without reading what they hold.
fn first_lines(
    path: &std::path::Path,
    from: u64,
    to: u64,
    mut each: impl FnMut(Line<'_>),
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
            // Torn or damaged, here or where the step to here began, or a line that is longer.
            let mut rest = vec![0; usize::try_from(end - before).map_err(io::Error::other)?];
            file.read_exact_at(&mut rest, before)?;
            let lines = scan(&rest).filter_map(|found| header_line(found.sealed).ok());
            lines.filter_map(Line::parse).for_each(each);
            break;
        };
        Line::parse(line).into_iter().for_each(&mut each);
        (before, offset) = (offset, offset + length);
    }
    Ok(end.saturating_sub(from))
}

#[cfg(test)]
mod tests;
