//! Names under which a server may upload, announced in the tables before anybody asks for one: a write does not wait for
//! a commit of its own to say what it is about to do. Names that nobody used go with the sweeper, who finds nothing there.
//!
//! A brief process announces the one name it needs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::db::Value;
use crate::segments::DIR;
use crate::{Store, StoreError, Use};

/// So many at once, in one statement.
const TOGETHER: usize = 16;

const ANNOUNCE: &str = "INSERT INTO blob_intent (object, at) VALUES ($2, $1), ($3, $1), ($4, $1), ($5, $1), \
    ($6, $1), ($7, $1), ($8, $1), ($9, $1), ($10, $1), ($11, $1), ($12, $1), ($13, $1), ($14, $1), \
    ($15, $1), ($16, $1), ($17, $1)";

/// An older one is left to the sweeper, who must never meet an upload.
const FRESH: Duration = Duration::from_mins(5);

/// Those that are left.
#[derive(Debug, Default)]
pub(crate) struct Announced(Mutex<VecDeque<(String, Instant)>>);

impl Store {
    /// A name that nobody else uploads under, and that the sweeper knows of.
    pub(super) async fn blob_announced(&self) -> Result<String, StoreError> {
        if self.how == Use::Brief {
            let name = new_name();
            self.blob_intend(&name).await?;
            return Ok(name);
        }
        // Who comes while more are announced waits for them.
        let mut left = self.announced.0.lock().await;
        left.retain(|(_, since)| since.elapsed() < FRESH);
        if left.is_empty() {
            let since = Instant::now();
            let names: Vec<String> = (0..TOGETHER).map(|_| new_name()).collect();
            let mut args: Vec<Value> = vec![Timestamp::now().into()];
            args.extend(names.iter().map(|name| Value::from(name.as_str())));
            self.db.execute(ANNOUNCE, &args).await?;
            left.extend(names.into_iter().map(|name| (name, since)));
        }
        let (name, _) = left.pop_front().ok_or(StoreError::Interrupted)?;
        Ok(name)
    }
}

impl Announced {
    /// After one of them was gone: a clock that jumped made the sweeper take them for old.
    pub(crate) async fn forget(&self) {
        self.0.lock().await.clear();
    }
}

fn new_name() -> String {
    format!("{DIR}/{}", uuid::Uuid::new_v4().simple())
}
