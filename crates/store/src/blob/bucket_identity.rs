//! Checks that a database and a bucket belong together: both contain the same random id, created when they
//! were first used together. A replica that names another bucket or prefix by mistake would acknowledge
//! writes that no other replica can read.
//!
//! The id is written to the bucket first, where one of several writers wins, and then to the database. After
//! an interruption in between, the next process finds the id in the bucket.
//!
//! Not here: a directory of this machine, which is beside its database.

use crate::blob::bucket::Bucket;
use crate::blob::segments::FrameLocation;
use crate::db::Db;
use crate::{OpenStoreError, StoreError, blocking};

const OBJECT: &str = "home";

/// Refuses a bucket that does not belong to this database. On first use, binds the two.
pub(crate) async fn check(db: &Db, bucket: &Bucket) -> Result<(), OpenStoreError> {
    let failed = OpenStoreError::Compare;
    let found = bucket.find(OBJECT).await.map_err(failed)?;
    let other = || OpenStoreError::OtherBlobs {
        place: bucket.path(""),
    };
    match (word(db).await.map_err(failed)?, found) {
        (Some(known), Some(found)) if known.as_bytes() == found => Ok(()),
        (Some(_), _) => Err(other()),
        (None, found) => {
            // A new database, or one from before these ids existed.
            if !holds_newest(db, bucket).await.map_err(failed)? {
                return Err(other());
            }
            let found = match found {
                Some(found) => found,
                None => put_word(bucket).await.map_err(failed)?,
            };
            let bound = bind(db, &String::from_utf8_lossy(&found)).await;
            let is_ours = bound.map_err(failed)?.as_bytes() == found;
            is_ours.then_some(()).ok_or_else(other)
        }
    }
}

async fn word(db: &Db) -> Result<Option<String>, StoreError> {
    const WORD: &str = "SELECT word FROM blob_home WHERE id = 1";
    let row = db.fetch_optional(WORD, &[]).await?;
    Ok(row.map(|row| row.text(0).map(str::to_owned)).transpose()?)
}

/// Writes a new id to the bucket unless it has one, and returns the id that is there.
async fn put_word(bucket: &Bucket) -> Result<Vec<u8>, StoreError> {
    let bucket = bucket.clone();
    blocking(move || {
        let word = uuid::Uuid::new_v4().simple().to_string();
        bucket.write_new(OBJECT, word.into_bytes())?;
        bucket.read(OBJECT)
    })
    .await
}

/// Stores the id in the database unless it has one, and returns the id that is there.
async fn bind(db: &Db, found: &str) -> Result<String, StoreError> {
    const BIND: &str =
        "INSERT INTO blob_home (id, word) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
    db.execute(BIND, &[found.into()]).await?;
    Ok(word(db).await?.unwrap_or_default())
}

/// Whether the bucket holds the database's newest version; true if there are no versions.
async fn holds_newest(db: &Db, bucket: &Bucket) -> Result<bool, StoreError> {
    const NEWEST: &str = "SELECT blob FROM state_version ORDER BY created_at DESC LIMIT 1";
    let Some(row) = db.fetch_optional(NEWEST, &[]).await? else {
        return Ok(true);
    };
    let place = FrameLocation::parse(row.text(0)?)?;
    bucket.has(&place.object).await
}
