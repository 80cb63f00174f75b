//! The database by itself: opening, racing, refusing.

use model::lock::LockEpoch;
use model::state::ExpectedHead;
use rusqlite::Connection;

use super::*;
use crate::testing::{lock_info, network};
use crate::{AcquireLockError, BlobsAt, Keyring, LockRelease, Store, TablesAt};

async fn open(home: &Path) -> Db {
    Db::open_sqlite(&home.join("terrane.db"), OpenMode::Cli)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    let home = tempfile::tempdir().unwrap();
    let db = open(home.path()).await;
    let args = [
        Value::from(7),
        Value::from("text"),
        Value::from(vec![0, 1]),
        Value::Int(None),
    ];
    let row = db
        .fetch_optional("SELECT $2, $1, $3, $4", &args)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.text(0).unwrap(), "text");
    assert_eq!(row.int(1).unwrap(), 7);
    assert_eq!(row.bytes(2).unwrap(), [0, 1]);
    assert_eq!(row.opt_int(3).unwrap(), None);
    assert_eq!(row.opt_text(3).unwrap(), None);
    assert_eq!(
        row.int(3).unwrap_err().to_string(),
        "column 3 of an answer is not an integer"
    );
    assert_eq!(
        row.text(1).unwrap_err().to_string(),
        "column 1 of an answer is not text"
    );
    assert_eq!(
        row.int(4).unwrap_err().to_string(),
        "column 4 of an answer is not an integer"
    );
}

#[tokio::test]
async fn a_dropped_transaction_never_happened() {
    const INSERT: &str =
        "INSERT INTO state (project, name, created_at) VALUES ('', $1, 1) RETURNING id";
    let home = tempfile::tempdir().unwrap();
    let db = open(home.path()).await;
    let mut tx = db.begin_write().await.unwrap();
    assert!(
        tx.fetch_optional(INSERT, &["dropped".into()])
            .await
            .unwrap()
            .is_some()
    );
    drop(tx);
    // A handle of its own, as another process has: one in a transaction keeps its connection.
    let other = open(home.path()).await;
    let mut tx = db.begin_write().await.unwrap();
    assert!(
        tx.fetch_optional(INSERT, &["kept".into()])
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        other
            .fetch_all("SELECT name FROM state", &[])
            .await
            .unwrap()
            .is_empty()
    );
    tx.commit().await.unwrap();
    let rows = db.fetch_all("SELECT name FROM state", &[]).await.unwrap();
    let names: Vec<_> = rows.iter().map(|row| row.text(0).unwrap()).collect();
    assert_eq!(names, ["kept"]);
}

#[tokio::test]
async fn settings_that_durability_rests_on() {
    let home = tempfile::tempdir().unwrap();
    let db = open(home.path()).await;
    let settings = "SELECT (SELECT journal_mode FROM pragma_journal_mode), \
        (SELECT synchronous FROM pragma_synchronous), \
        (SELECT foreign_keys FROM pragma_foreign_keys), \
        (SELECT timeout FROM pragma_busy_timeout)";
    let mut tx = db.begin_write().await.unwrap();
    let row = tx.fetch_optional(settings, &[]).await.unwrap().unwrap();
    let seen = (
        row.text(0).unwrap(),
        row.int(1).unwrap(),
        row.int(2).unwrap(),
        row.int(3).unwrap(),
    );
    assert_eq!(seen, ("wal", 2, 1, 0));
}

/// Whoever writes after what need not last waits for the disk as ever.
#[tokio::test]
async fn what_need_not_last_leaves_no_trace_in_what_must() {
    const WAITS: &str = "SELECT synchronous FROM pragma_synchronous";
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    let home = tempfile::tempdir().unwrap();
    let db = open(home.path()).await;
    let waits = async |durability| {
        let write = db.write_for(durability, move |tx| {
            Box::pin(async move { tx.fetch_optional(WAITS, &[]).await })
        });
        write.await.unwrap().unwrap().int(0).unwrap()
    };
    assert_eq!(waits(Durability::NoSync).await, NORMAL);
    assert_eq!(waits(Durability::Sync).await, FULL);
    assert_eq!(waits(Durability::NoSync).await, NORMAL);
    let mut tx = db.begin_write().await.unwrap();
    let row = tx.fetch_optional(WAITS, &[]).await.unwrap().unwrap();
    assert_eq!(row.int(0).unwrap(), FULL);
    drop(tx);
    assert_eq!(waits(Durability::NoSync).await, NORMAL);
    let row = db.execute("UPDATE state SET head = head", &[]).await;
    row.unwrap();
    let row = db.fetch_optional(WAITS, &[]).await.unwrap().unwrap();
    assert_eq!(row.int(0).unwrap(), FULL);
}

/// As processes would: each with its own runtime and connections, none waiting for another.
#[test]
fn many_may_open_a_new_database_at_once() {
    let home = tempfile::tempdir().unwrap();
    let open_and_write = &|number: i64| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let db = open(home.path()).await;
            let args = [Value::from(format!("state-{number}"))];
            db.execute(
                "INSERT INTO state (project, name, created_at) VALUES ('', $1, 1)",
                &args,
            )
            .await
            .unwrap();
            db.fetch_all("SELECT name FROM state", &[])
                .await
                .unwrap()
                .len()
        })
    };
    let seen: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|number| scope.spawn(move || open_and_write(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(seen.into_iter().max(), Some(16));
}

#[tokio::test]
async fn a_newer_layout_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    open(home.path())
        .await
        .execute("PRAGMA user_version = 99", &[])
        .await
        .unwrap();
    let err = Db::open_sqlite(&home.path().join("terrane.db"), OpenMode::Cli)
        .await
        .unwrap_err();
    assert_eq!(
        err.to_string(),
        format!(
            "the database was written by a newer terrane (layout 99, this one knows {})",
            set_up::MIGRATIONS.len()
        )
    );
}

#[tokio::test]
async fn locks_of_an_older_layout_are_held_and_remembered_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("terrane.db");
    let older = Connection::open(&file).unwrap();
    for migration in &set_up::MIGRATIONS[..13] {
        older.execute_batch(migration).unwrap();
    }
    let holder = r#"{"ID":"held","Operation":"","Info":"","Who":"me@here","Version":"","Created":"","Path":""}"#;
    older
        .execute_batch(&format!(
            "INSERT INTO state (project, name, created_at, lock_id, lock_info, lock_since, lock_epoch) \
                 VALUES ('p', 'network', 1, 'held', '{holder}', 1, 2); \
             INSERT INTO lock_ended (state, epoch, lock_id, how, at) VALUES (1, 1, 'ended', 'released', 1); \
             PRAGMA user_version = 13"
        ))
        .unwrap();
    drop(older);

    let keyring = Keyring::open_or_create(&dir.path().join("master.key")).unwrap();
    let (tables, blobs) = (TablesAt::File(&file), BlobsAt::Directory(dir.path()));
    let store = Store::open_with(tables, blobs, keyring, OpenMode::Cli).await;
    let (store, state) = (store.unwrap(), network());
    let info = lock_info("held");
    let again = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
    assert_eq!(again.await.unwrap(), LockEpoch(2));
    let now = store.lock_release(&state, "held").await.unwrap();
    assert_eq!(now, LockRelease::Now);
    for late in ["held", "ended"] {
        let before = store.lock_release(&state, late).await.unwrap();
        assert_eq!(before, LockRelease::Before, "{late}");
        let info = lock_info(late);
        let lock = store.lock_acquire(&state, &info, None, ExpectedHead::Any);
        let refused = lock.await.unwrap_err();
        assert!(matches!(refused, AcquireLockError::Ended { .. }), "{late}");
    }
}
