//! That a database and a bucket belong together: a word that was made when they first met stands in both. A replica that
//! names another bucket or prefix by mistake would acknowledge writes that nobody else can read.
//!
//! The word is written to the bucket first, where one of many writers wins, then to the tables: whoever was interrupted in
//! between is followed by somebody who finds it there.
//!
//! Not here: a directory of this machine, which lies beside its database.

use std::time::Duration;

use crate::bucket::Bucket;
use crate::db::Db;
use crate::segments::Place;
use crate::{OpenStoreError, StoreError, blocking};

const OBJECT: &str = "home";

/// A bucket that does not answer keeps nobody from what the tables alone know; what needs it says so then.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Refuses a bucket that is not this database's; binds the two if they have just met. False if that is not known yet.
pub(crate) async fn check(db: &Db, bucket: &Bucket) -> Result<bool, OpenStoreError> {
    let Ok(Ok(found)) = tokio::time::timeout(LONGEST_WAIT, bucket.find(OBJECT)).await else {
        return Ok(false);
    };
    let failed = OpenStoreError::Compare;
    let other = || OpenStoreError::OtherBlobs {
        place: bucket.path(""),
    };
    match (word(db).await.map_err(failed)?, found) {
        (Some(known), Some(found)) if known.as_bytes() == found => Ok(true),
        (Some(_), _) => Err(other()),
        (None, found) => {
            // A database from before there were words.
            if !holds_newest(db, bucket).await.map_err(failed)? {
                return Err(other());
            }
            let found = match found {
                Some(found) => found,
                None => put_word(bucket).await.map_err(failed)?,
            };
            let bound = bind(db, &String::from_utf8_lossy(&found)).await;
            let is_ours = bound.map_err(failed)?.as_bytes() == found;
            is_ours.then_some(true).ok_or_else(other)
        }
    }
}

async fn word(db: &Db) -> Result<Option<String>, StoreError> {
    const WORD: &str = "SELECT word FROM blob_home WHERE id = 1";
    let row = db.fetch_optional(WORD, &[]).await?;
    Ok(row.map(|row| row.text(0).map(str::to_owned)).transpose()?)
}

/// Writes a word down, unless somebody was first; says which one is there.
async fn put_word(bucket: &Bucket) -> Result<Vec<u8>, StoreError> {
    let bucket = bucket.clone();
    blocking(move || {
        let word = uuid::Uuid::new_v4().simple().to_string();
        bucket.write_new(OBJECT, word.into_bytes())?;
        bucket.read(OBJECT)
    })
    .await
}

/// The word of the database from now on: this one, unless somebody was first.
async fn bind(db: &Db, found: &str) -> Result<String, StoreError> {
    const BIND: &str =
        "INSERT INTO blob_home (id, word) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
    db.execute(BIND, &[found.into()]).await?;
    Ok(word(db).await?.unwrap_or_default())
}

/// Whether what the database knows as the newest version is in the bucket; it is, if it knows none.
async fn holds_newest(db: &Db, bucket: &Bucket) -> Result<bool, StoreError> {
    const NEWEST: &str = "SELECT blob FROM state_version ORDER BY created_at DESC LIMIT 1";
    let Some(row) = db.fetch_optional(NEWEST, &[]).await? else {
        return Ok(true);
    };
    let place = Place::parse(row.text(0)?)?;
    bucket.has(&place.object).await
}
