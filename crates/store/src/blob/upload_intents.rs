//! Names under which a server may upload, announced in the tables before anybody asks for one: a write does not wait for
//! a commit of its own to say what it is about to do. Names that nobody used go with the sweeper, who finds nothing there.
//!
//! Each is a number, and the tables remember the highest: an object with a higher one was announced by newer tables
//! (`stale_database`). A brief process announces the one name it needs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::blob::segments::DIR;
use crate::db::{Tx, Value};
use crate::{OpenMode, Store, StoreError};

/// So many at once, in one commit.
const TOGETHER: u16 = 16;

const ANNOUNCE_ONE: &str = "INSERT INTO blob_intent (object, at) VALUES ($2, $1)";

const ANNOUNCE: &str = "INSERT INTO blob_intent (object, at) VALUES ($2, $1), ($3, $1), ($4, $1), ($5, $1), \
    ($6, $1), ($7, $1), ($8, $1), ($9, $1), ($10, $1), ($11, $1), ($12, $1), ($13, $1), ($14, $1), \
    ($15, $1), ($16, $1), ($17, $1)";

/// An older one is left to the sweeper, who must never meet an upload.
const FRESH: Duration = Duration::from_mins(5);

/// Sorts behind the names that were made before there were numbers.
const NUMBERED: &str = "n";

/// Those that are left.
#[derive(Debug, Default)]
pub(crate) struct UploadIntents(Mutex<VecDeque<(String, Instant)>>);

impl Store {
    /// A name that nobody else uploads under, and that the sweeper knows of.
    pub(crate) async fn blob_next_name(&self) -> Result<String, StoreError> {
        let count = match self.how {
            OpenMode::Cli => 1,
            OpenMode::Server => TOGETHER,
        };
        // Who comes while more are announced waits for them.
        let mut left = self.upload_intents.0.lock().await;
        left.retain(|(_, since)| since.elapsed() < FRESH);
        if left.is_empty() {
            let since = Instant::now();
            let given = self
                .db
                .write(move |tx| Box::pin(async move { tx.upload_intents_insert(count).await }));
            let names = given.await?;
            left.extend(names.into_iter().map(|name| (name, since)));
        }
        let (name, _) = left.pop_front().ok_or(StoreError::Interrupted)?;
        Ok(name)
    }
}

impl Tx {
    async fn upload_intents_insert(&mut self, count: u16) -> Result<Vec<String>, StoreError> {
        const GIVE: &str = "INSERT INTO blob_number (id, number) VALUES (1, $1) \
            ON CONFLICT (id) DO UPDATE SET number = blob_number.number + $1 RETURNING number";
        let (count, now) = (i64::from(count), Timestamp::now());
        let given = self.fetch_optional(GIVE, &[count.into()]).await?;
        let last = given.ok_or(StoreError::Interrupted)?.int(0)?;
        let names: Vec<String> = (last - count + 1..=last)
            .map(|number| format!("{DIR}/{}", name_of(number)))
            .collect();
        let mut args: Vec<Value> = vec![now.into()];
        args.extend(names.iter().map(|name| Value::from(name.as_str())));
        let announce = if count == 1 { ANNOUNCE_ONE } else { ANNOUNCE };
        self.execute(announce, &args).await?;
        Ok(names)
    }
}

impl UploadIntents {
    /// After one of them was gone: a clock that jumped made the sweeper take them for old.
    pub(crate) async fn forget(&self) {
        self.0.lock().await.clear();
    }
}

/// The last word of an object's name.
pub(crate) fn name_of(number: i64) -> String {
    format!("{NUMBERED}{number:016x}")
}

/// Nothing if it was made before there were numbers.
pub(crate) fn number_of(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_prefix(NUMBERED)?, 16).ok()
}
