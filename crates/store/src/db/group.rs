//! Commits that concurrent writers of a server share: operations that arrive during one commit go into the next one
//! together. Each operation has its own savepoint, so a refused one does not affect the others.
//!
//! Not here: what the operations do. Only a server has enough writers for this.

use std::sync::{Arc, Weak};
use std::thread;

use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::sqlite::begin;
use super::{DbError, Tx, TxFuture};

/// How many operations share one commit at most.
const LARGEST: usize = 256;

/// Runs within the transaction. Returns whether to keep its changes, and how to report that they are durable or lost.
type Operation = Box<dyn FnOnce(&mut Tx, &Handle) -> (bool, Notify) + Send>;
type Notify = Box<dyn FnOnce(Result<(), String>)>;

#[derive(Clone, Debug)]
pub(super) struct Group {
    operations: mpsc::Sender<Operation>,
}

impl Group {
    /// Must be called within a runtime.
    pub(super) fn new(writer: &Arc<Mutex<Connection>>) -> Self {
        let (operations, queue) = mpsc::channel(LARGEST);
        let runtime = Handle::current();
        // The thread ends with the last sender. It holds the writer only during a commit, so dropping the store closes
        // the connection at once.
        let writer = Arc::downgrade(writer);
        thread::spawn(move || commit_all(queue, &writer, &runtime));
        Self { operations }
    }

    pub(super) async fn write<T, E>(
        &self,
        operation: impl for<'t> FnOnce(&'t mut Tx) -> TxFuture<'t, T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let operation: Operation = Box::new(move |tx, runtime| {
            let done = runtime.block_on(operation(tx));
            let told: (bool, Notify) = (
                done.is_ok(),
                Box::new(move |committed| {
                    let lost = |why| E::from(DbError::Group(why));
                    // The caller may be gone.
                    drop(tell.send(done.and_then(|done| committed.map(|()| done).map_err(lost))));
                }),
            );
            told
        });
        let gone = || DbError::Group("the database is closed".to_owned());
        self.operations.send(operation).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

fn commit_all(
    mut queue: mpsc::Receiver<Operation>,
    writer: &Weak<Mutex<Connection>>,
    runtime: &Handle,
) {
    let mut operations = Vec::new();
    while runtime.block_on(queue.recv_many(&mut operations, LARGEST)) > 0 {
        // The store is gone, and with it all callers.
        let Some(writer) = writer.upgrade() else {
            return;
        };
        let mut told = Vec::with_capacity(operations.len());
        let committed = commit(operations.drain(..), &mut told, writer, runtime);
        let committed = committed.map_err(|err| describe(&err));
        for tell in told {
            tell(committed.clone());
        }
    }
}

fn commit(
    operations: impl Iterator<Item = Operation>,
    told: &mut Vec<Notify>,
    writer: Arc<Mutex<Connection>>,
    runtime: &Handle,
) -> Result<(), DbError> {
    let mut tx = Tx::Sqlite(runtime.block_on(begin(writer))?);
    for operation in operations {
        step(&mut tx, "SAVEPOINT operation")?;
        let (keep, tell) = operation(&mut tx, runtime);
        told.push(tell);
        if !keep {
            step(&mut tx, "ROLLBACK TO operation")?;
        }
        step(&mut tx, "RELEASE operation")?;
    }
    runtime.block_on(tx.commit())
}

fn step(tx: &mut Tx, sql: &'static str) -> Result<(), DbError> {
    match tx {
        Tx::Sqlite(tx) => tx.execute(sql, &[]).map(drop),
        Tx::Postgres(_) => Ok(()), // groups commits by itself
    }
}

fn describe(err: &DbError) -> String {
    model::base::error::one_line(err)
}
