//! Names for uploads, announced in the database before they are needed, so that a write need not commit its intent
//! first. The sweeper removes unused names.
//!
//! Each name is a number, and the database stores the highest: an object with a higher number was announced by a newer
//! database (`state::check::stale_database`). A CLI process announces the one name it needs.
//!
//! Not here: the uploads (`bucket`), removing unused names (`state::sweep`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::blob::segments::DIR;
use crate::db::{Tx, Value};
use crate::{OpenMode, Store, StoreError};

/// How many names a server announces in one commit.
const TOGETHER: u16 = 16;

const ANNOUNCE_ONE: &str = "INSERT INTO blob_intent (object, at) VALUES ($2, $1)";

const ANNOUNCE: &str = "INSERT INTO blob_intent (object, at) VALUES ($2, $1), ($3, $1), ($4, $1), ($5, $1), \
    ($6, $1), ($7, $1), ($8, $1), ($9, $1), ($10, $1), ($11, $1), ($12, $1), ($13, $1), ($14, $1), \
    ($15, $1), ($16, $1), ($17, $1)";

/// Older names are left to the sweeper, which must never meet an upload.
const FRESH: Duration = Duration::from_mins(5);

/// Sorts after the names from before there were numbers.
const NUMBERED: &str = "n";

/// The names that are left.
#[derive(Debug, Default)]
pub(crate) struct UploadIntents(Mutex<VecDeque<(String, Instant)>>);

impl Store {
    /// A name that no other writer uses and that is announced to the sweeper.
    pub(crate) async fn blob_next_name(&self) -> Result<String, StoreError> {
        let count = match self.how {
            OpenMode::Cli => 1,
            OpenMode::Server => TOGETHER,
        };
        // Other callers wait here while more names are announced.
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
    /// Called after a name was gone: a clock that jumped made the sweeper consider the names old.
    pub(crate) async fn forget(&self) {
        self.0.lock().await.clear();
    }
}

/// The last part of an object's name.
pub(crate) fn name_of(number: i64) -> String {
    format!("{NUMBERED}{number:016x}")
}

/// `None` for a name from before there were numbers.
pub(crate) fn number_of(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_prefix(NUMBERED)?, 16).ok()
}
