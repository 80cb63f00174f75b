//! The database by itself: opening, racing, refusing.

use rusqlite::Connection;

use super::*;

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
        "column 3 of a row is not an integer"
    );
    assert_eq!(
        row.text(1).unwrap_err().to_string(),
        "column 1 of a row is not text"
    );
    assert_eq!(
        row.int(4).unwrap_err().to_string(),
        "column 4 of a row is not an integer"
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
            "the database was written by a newer terrane (layout 99; this one supports {})",
            migrate::MIGRATIONS.len()
        )
    );
}

#[tokio::test]
async fn an_older_layout_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("terrane.db");
    let older = Connection::open(&file).unwrap();
    older.execute_batch("PRAGMA user_version = 23").unwrap();
    drop(older);
    let err = Db::open_sqlite(&file, OpenMode::Cli).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "the database was written by an older terrane (layout 23), and this one reads layout 24 and newer: \
         export its states with that terrane, and import them into a new home"
    );
}
