//! Whether a bucket has what its tables do not know. Names of objects are numbers that the tables give out: an object
//! with a higher one was announced by newer tables. What these tables announced and did not use may have been used by
//! newer ones. Only such objects are read, and of them only first lines.
//!
//! What was found is written down, and with it that the numbers are taken: the next look costs a listing of nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use model::state::StateName;

use super::{Behind, Heard, hear, known};
use crate::StoreError;
use crate::blobs::{name_of, number_of};
use crate::bucket::Bucket;
use crate::db::{Db, Tx};
use crate::sealing::header_line;
use crate::segments::frame::{PREFIX, peek};
use crate::segments::{DIR, Place};
use crate::state_versions::blob::Line;

/// What was announced and not used this far back is found by the listing; what is older is asked for by its name.
const LISTED_BACK: i64 = 1000;

/// So many objects are read at a time,
const AT_ONCE: usize = 32;
/// and so much of each with one request.
const PART: u64 = 64 * 1024;

/// What the tables gave out.
struct Given {
    /// The highest; none before there were numbers.
    number: Option<i64>,
    /// Those of which no version came.
    open: BTreeSet<String>,
}

/// The states of which the bucket has newer versions.
pub(super) async fn look(
    db: &Db,
    bucket: &Bucket,
) -> Result<BTreeMap<StateName, Behind>, StoreError> {
    let before = Given::read(db).await?;
    let listed = bucket.list_after(DIR, &before.floor()).await?;
    // After the listing: whatever it shows was announced by now.
    let given = Given::read(db).await?;
    let suspects = match given.number {
        Some(number) => given.suspects(&listed, number),
        None => unnamed(db, listed.clone()).await?,
    };
    let highest = listed.iter().filter_map(|name| number_of(name)).max();
    let highest = highest.unwrap_or_default();
    let is_older = given.number.is_some_and(|number| number < highest);
    let heard = listen(bucket, suspects).await?;
    let mut news = Vec::new();
    for (state, heard) in heard {
        let known = known(db, &state).await?;
        // Where other tables went on, nobody but them knows what they acknowledged last: they may have died before they
        // said so. Whatever they wrote counts.
        let written = heard.written.last_key_value().map(|(version, _)| *version);
        let last = written.filter(|_| is_older).unwrap_or_default();
        let acknowledged = heard.acknowledged.max(last);
        if acknowledged > known {
            let since = heard.written.range(known + 1..).next().map(|(_, at)| *at);
            news.push((state, acknowledged, since));
        }
    }
    if !news.is_empty() || is_older || given.number.is_none() {
        let mut tx = db.begin_write().await?;
        tx.blob_number_raise(highest).await?;
        for (state, acknowledged, since) in news {
            tx.state_behind_note(&state, acknowledged, since).await?;
        }
        tx.commit().await?;
    }
    noted(db).await
}

impl Given {
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

    /// What the listing begins behind.
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

/// Of a home from before there were numbers: what no version names. Once.
async fn unnamed(db: &Db, listed: Vec<String>) -> Result<BTreeSet<String>, StoreError> {
    const ALL: &str = "SELECT blob FROM state_version";
    let mut unnamed: BTreeSet<String> = listed.into_iter().collect();
    for row in db.fetch_all(ALL, &[]).await? {
        let Place { object, .. } = Place::parse(row.text(0)?)?;
        unnamed.remove(object.rsplit('/').next().unwrap_or(&object));
    }
    Ok(unnamed)
}

async fn listen(
    bucket: &Bucket,
    names: BTreeSet<String>,
) -> Result<BTreeMap<StateName, Heard>, StoreError> {
    let heard = |name: String| async move {
        let mut heard = BTreeMap::new();
        first_lines(bucket, &format!("{DIR}/{name}"), |line| {
            hear(&mut heard, line);
        })
        .await?;
        Ok::<_, StoreError>(heard)
    };
    let all = stream::iter(names).map(heard).buffer_unordered(AT_ONCE);
    all.try_fold(BTreeMap::<StateName, Heard>::new(), async |mut all, one| {
        for (state, heard) in one {
            all.entry(state).or_default().join(heard);
        }
        Ok(all)
    })
    .await
}

/// Steps from frame to frame; most objects are read with one request.
async fn first_lines(
    bucket: &Bucket,
    object: &str,
    mut each: impl FnMut(Line<'_>),
) -> Result<(), StoreError> {
    let mut offset = 0;
    while let Some((part, size)) = bucket.find_part(object, offset, PART).await? {
        let mut at = 0;
        while let Some(rest) = part.get(at..).filter(|rest| !rest.is_empty()) {
            let line = rest.get(PREFIX..).and_then(|rest| header_line(rest).ok());
            let (Some(length), Some(line)) = (peek(rest), line) else {
                break;
            };
            Line::parse(line).into_iter().for_each(&mut each);
            at = at.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        }
        offset = offset.saturating_add(at as u64);
        if at == 0 || offset >= size {
            break;
        }
    }
    Ok(())
}

/// What was written down and the tables do not know by now.
async fn noted(db: &Db) -> Result<BTreeMap<StateName, Behind>, StoreError> {
    const NOTED: &str = "SELECT b.project, b.name, b.acknowledged, b.since, COALESCE(MAX(v.version), 0) \
        FROM state_behind AS b LEFT JOIN state AS s ON s.project = b.project AND s.name = b.name \
        LEFT JOIN state_version AS v ON v.state = s.id \
        GROUP BY b.project, b.name, b.acknowledged, b.since";
    let mut noted = BTreeMap::new();
    for row in db.fetch_all(NOTED, &[]).await? {
        let since = row.opt_int(3)?;
        let since = since.and_then(|at| Timestamp::from_microsecond(at).ok());
        let (acknowledged, known) = (row.int(2)?, row.int(4)?);
        if acknowledged > known {
            let behind = Behind {
                known,
                acknowledged,
                since,
            };
            noted.insert(StateName::new(row.text(0)?, row.text(1)?), behind);
        }
    }
    Ok(noted)
}

impl Tx {
    /// Numbers up to this one are taken.
    pub(crate) async fn blob_number_raise(&mut self, highest: i64) -> Result<(), StoreError> {
        const RAISE: &str = "INSERT INTO blob_number (id, number) VALUES (1, $1) ON CONFLICT (id) \
            DO UPDATE SET number = $1 WHERE blob_number.number < $1";
        self.execute(RAISE, &[highest.into()]).await?;
        Ok(())
    }

    pub(crate) async fn state_behind_forget(&mut self) -> Result<(), StoreError> {
        self.execute("DELETE FROM state_behind", &[]).await?;
        Ok(())
    }

    pub(crate) async fn state_behind_note(
        &mut self,
        state: &StateName,
        acknowledged: i64,
        since: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        const NOTE: &str = "INSERT INTO state_behind (project, name, acknowledged, since) \
            VALUES ($1, $2, $3, $4) ON CONFLICT (project, name) \
            DO UPDATE SET acknowledged = $3, since = $4 WHERE state_behind.acknowledged < $3";
        let [project, name] = crate::states::name_args(state);
        let since = since.map(Timestamp::as_microsecond);
        let args = [project, name, acknowledged.into(), since.into()];
        self.execute(NOTE, &args).await?;
        Ok(())
    }
}
