//! The comparison for a bucket. The database numbers the names of objects: an object with a higher number than the
//! database gave out was written for a newer database. Names that this database announced and did not use may also have
//! been used by a newer one. Only such objects are read, and of them only the first lines of their frames.
//!
//! Stale states are stored, together with the highest number found: the next comparison lists nothing again.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use model::state::StateName;

use super::{FrameSummary, StaleState, StaleStates, add_line, known};
use crate::StoreError;
use crate::blob::bucket::Bucket;
use crate::blob::segments::frame::{PREFIX, peek};
use crate::blob::segments::{DIR, FrameLocation};
use crate::blob::{name_of, number_of};
use crate::crypto::header_line;
use crate::db::{Db, Tx};
use crate::state::versions::blob::FrameLine;

/// Unused names among the last so many numbers are found by listing; older ones are requested by name.
const LISTED_BACK: i64 = 1000;

/// Objects read at the same time.
const AT_ONCE: usize = 32;

/// Bytes read of an object with one request.
const PART: u64 = 64 * 1024;

/// The names that the database gave out.
struct IssuedNames {
    /// The highest number; `None` in a home from before names were numbered.
    number: Option<i64>,
    /// Names that no version uses.
    open: BTreeSet<String>,
}

/// The states of which the bucket has newer versions than the database.
pub(super) async fn compare(db: &Db, bucket: &Bucket) -> Result<StaleStates, StoreError> {
    let before = IssuedNames::read(db).await?;
    let listed = bucket.list_after(DIR, &before.floor()).await?;
    // Read after the listing: every listed name of this database has been announced by now.
    let given = IssuedNames::read(db).await?;
    let suspects = match given.number {
        Some(number) => given.suspects(&listed, number),
        None => unnamed(db, listed.clone()).await?,
    };
    let highest = listed.iter().filter_map(|name| number_of(name)).max();
    let highest = highest.unwrap_or_default();
    let is_older = given.number.is_some_and(|number| number < highest);
    let found = summarize(bucket, suspects).await?;
    let mut news = Vec::new();
    for (state, found) in found {
        let known = known(db, &state).await?;
        // A newer database may have died before it marked its last versions as acknowledged: all of them count.
        let written = found.written.last_key_value().map(|(version, _)| *version);
        let last = written.filter(|_| is_older).unwrap_or_default();
        let acknowledged = found.acknowledged.max(last);
        if acknowledged > known {
            let since = found.written.range(known + 1..).next().map(|(_, at)| *at);
            news.push((state, acknowledged, since));
        }
    }
    if !news.is_empty() || is_older || given.number.is_none() {
        let mut tx = db.begin_write().await?;
        tx.blob_number_raise(highest).await?;
        for (state, acknowledged, since) in news {
            tx.state_stale_note(&state, acknowledged, since).await?;
        }
        tx.commit().await?;
    }
    noted(db).await
}

impl IssuedNames {
    async fn read(db: &Db) -> Result<Self, StoreError> {
        const NUMBER: &str = "SELECT number FROM blob_number WHERE id = 1";
        const OPEN: &str = "SELECT object FROM blob_intent WHERE object LIKE 'segments/%'";
        let open = db.fetch_all(OPEN, &[]).await?;
        let open = open.iter().map(|row| {
            let object = row.text(0)?;
            let name = object.rsplit('/').next().unwrap_or(object);
            Ok(name.to_owned())
        });
        let open = open.collect::<Result<_, StoreError>>()?;
        let number = db.fetch_optional(NUMBER, &[]).await?;
        let number = number.map(|row| row.int(0)).transpose()?;
        Ok(Self { number, open })
    }

    /// The listing begins after this name.
    fn floor(&self) -> String {
        let Some(number) = self.number else {
            return "0".to_owned(); // before every name
        };
        let open = self.open.iter().filter_map(|name| number_of(name));
        let lowest = open.filter(|open| *open > number - LISTED_BACK).min();
        name_of(lowest.map_or(number, |lowest| lowest - 1))
    }

    fn suspects(&self, listed: &[String], number: i64) -> BTreeSet<String> {
        let is_open = |name: &String| self.open.contains(name);
        let is_newer = |name: &String| number_of(name).is_some_and(|found| found > number);
        let listed = listed.iter().filter(|name| is_open(name) || is_newer(name));
        let is_older = |name: &&String| number_of(name).is_none_or(|it| it <= number - LISTED_BACK);
        let older = self.open.iter().filter(is_older);
        listed.chain(older).cloned().collect()
    }
}

/// In a home from before names were numbered: the objects that no version names.
async fn unnamed(db: &Db, listed: Vec<String>) -> Result<BTreeSet<String>, StoreError> {
    const ALL: &str = "SELECT blob FROM state_version";
    let mut unnamed: BTreeSet<String> = listed.into_iter().collect();
    for row in db.fetch_all(ALL, &[]).await? {
        let FrameLocation { object, .. } = FrameLocation::parse(row.text(0)?)?;
        unnamed.remove(object.rsplit('/').next().unwrap_or(&object));
    }
    Ok(unnamed)
}

async fn summarize(
    bucket: &Bucket,
    names: BTreeSet<String>,
) -> Result<BTreeMap<StateName, FrameSummary>, StoreError> {
    let of_object = |name: String| async move {
        let mut found = BTreeMap::new();
        first_lines(bucket, &format!("{DIR}/{name}"), |line| {
            add_line(&mut found, line);
        })
        .await?;
        Ok::<_, StoreError>(found)
    };
    let all = stream::iter(names).map(of_object).buffer_unordered(AT_ONCE);
    all.try_fold(
        BTreeMap::<StateName, FrameSummary>::new(),
        async |mut all, one| {
            for (state, found) in one {
                all.entry(state).or_default().join(found);
            }
            Ok(all)
        },
    )
    .await
}

/// Visits the first line of each frame; most objects are read with one request.
async fn first_lines(
    bucket: &Bucket,
    object: &str,
    mut each: impl FnMut(FrameLine<'_>),
) -> Result<(), StoreError> {
    let mut offset = 0;
    while let Some((part, size)) = bucket.find_part(object, offset, PART).await? {
        let mut at = 0;
        while let Some(rest) = part.get(at..).filter(|rest| !rest.is_empty()) {
            let line = rest.get(PREFIX..).and_then(|rest| header_line(rest).ok());
            let (Some(length), Some(line)) = (peek(rest), line) else {
                break;
            };
            FrameLine::parse(line).into_iter().for_each(&mut each);
            at = at.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        }
        offset = offset.saturating_add(at as u64);
        if at == 0 || offset >= size {
            break;
        }
    }
    Ok(())
}

/// The stored stale states, without those that the database has caught up with.
async fn noted(db: &Db) -> Result<StaleStates, StoreError> {
    const NOTED: &str = "SELECT b.project, b.name, b.acknowledged, b.since, COALESCE(MAX(v.version), 0) \
        FROM state_behind AS b LEFT JOIN state AS s ON s.project = b.project AND s.name = b.name \
        LEFT JOIN state_version AS v ON v.state = s.id \
        GROUP BY b.project, b.name, b.acknowledged, b.since";
    let mut noted = StaleStates::new();
    for row in db.fetch_all(NOTED, &[]).await? {
        let since = row.opt_int(3)?;
        let since = since.and_then(|at| Timestamp::from_microsecond(at).ok());
        let (acknowledged, known) = (row.int(2)?, row.int(4)?);
        if acknowledged > known {
            let stale = StaleState {
                known,
                acknowledged,
                since,
            };
            noted.insert(StateName::new(row.text(0)?, row.text(1)?), stale);
        }
    }
    Ok(noted)
}

impl Tx {
    /// Marks all numbers up to this one as given out.
    pub(crate) async fn blob_number_raise(&mut self, highest: i64) -> Result<(), StoreError> {
        const RAISE: &str = "INSERT INTO blob_number (id, number) VALUES (1, $1) ON CONFLICT (id) \
            DO UPDATE SET number = $1 WHERE blob_number.number < $1";
        self.execute(RAISE, &[highest.into()]).await?;
        Ok(())
    }

    pub(crate) async fn state_stale_forget(&mut self) -> Result<(), StoreError> {
        self.execute("DELETE FROM state_behind", &[]).await?;
        Ok(())
    }

    pub(crate) async fn state_stale_note(
        &mut self,
        state: &StateName,
        acknowledged: i64,
        since: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        const NOTE: &str = "INSERT INTO state_behind (project, name, acknowledged, since) \
            VALUES ($1, $2, $3, $4) ON CONFLICT (project, name) \
            DO UPDATE SET acknowledged = $3, since = $4 WHERE state_behind.acknowledged < $3";
        let [project, name] = crate::db::name_args(state);
        let since = since.map(Timestamp::as_microsecond);
        let args = [project, name, acknowledged.into(), since.into()];
        self.execute(NOTE, &args).await?;
        Ok(())
    }
}
