//! A database to which nothing can be written, looked at: a copy of it in memory, in which only what is learned from
//! reading may change. What is on the disk is not touched, and whoever wants to write is told that it cannot be.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::backup::Backup;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, OpenFlags};

use super::DbError;
use super::set_up::{OpenDbError, migrate, open};
use super::sqlite::prepare_connection;

/// Tables that hold nothing but what was learned from reading versions begin so.
const LEARNED: &str = "state_index";

/// A file system in memory, where there is one.
const MEMORY: &str = "/dev/shm";

/// The log's header: its salts are others after each new beginning.
const LOG_HEADER: usize = 32;

/// So often a log may begin anew before nobody goes on trying.
const TRIES: usize = 20;

/// A copy of what a connection sees.
pub(super) fn copy_of(source: &Connection) -> Result<Connection, OpenDbError> {
    let mut copy = Connection::open_in_memory().map_err(OpenDbError::Connect)?;
    Backup::new(source, &mut copy)
        .and_then(|backup| backup.run_to_completion(i32::MAX, Duration::ZERO, None))
        .map_err(OpenDbError::Connect)?;
    prepare_connection(&copy).map_err(OpenDbError::Connect)?;
    migrate(&mut copy)?;
    copy.authorizer(Some(judge)).map_err(OpenDbError::Connect)?;
    Ok(copy)
}

/// A copy of a database that cannot be opened where it is: its log would have to be written to.
pub(super) fn copy_of_file(file: &Path) -> Result<Connection, OpenDbError> {
    copy_meanwhile(file, || {})
}

/// The same while something happens after the database was read, and before its log is.
fn copy_meanwhile(file: &Path, mut meanwhile: impl FnMut()) -> Result<Connection, OpenDbError> {
    for _ in 0..TRIES {
        let before = Standing::of(file).map_err(OpenDbError::Copy)?;
        let copy = copy_once(file, before.log.is_some(), &mut meanwhile);
        if Standing::of(file).map_err(OpenDbError::Copy)? == before {
            return copy;
        }
    }
    Err(OpenDbError::Moving)
}

/// What is the same for as long as the log holds every page that gets into the database: then a copy of the database and
/// one of the log, made one after the other, are whole together, though others go on writing.
#[derive(PartialEq, Eq)]
struct Standing {
    /// Which file the database is.
    file: u64,
    /// The log's first bytes: with every new beginning they are others. None if there is no log.
    log: Option<[u8; LOG_HEADER]>,
    /// How the database looks, if it stands for itself: nobody writes to it without a log.
    alone: Option<(SystemTime, u64)>,
}

impl Standing {
    fn of(file: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(file)?;
        let mut header = [0; LOG_HEADER];
        let read = File::open(log_of(file)).and_then(|mut log| log.read_exact(&mut header));
        let log = read.ok().map(|()| header);
        let alone = (metadata.modified()?, metadata.len());
        Ok(Self {
            file: metadata.ino(),
            alone: log.is_none().then_some(alone),
            log,
        })
    }
}

fn log_of(file: &Path) -> PathBuf {
    file.with_extension("db-wal")
}

fn copy_once(
    file: &Path,
    has_log: bool,
    meanwhile: &mut impl FnMut(),
) -> Result<Connection, OpenDbError> {
    if has_log {
        let aside = Aside::new().map_err(OpenDbError::Copy)?;
        let database = aside.0.join("terrane.db");
        fs::copy(file, &database).map_err(OpenDbError::Copy)?;
        meanwhile();
        fs::copy(log_of(file), log_of(&database)).map_err(OpenDbError::Copy)?;
        let opened = open(&database).map_err(OpenDbError::Connect)?;
        return copy_of(&opened);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let path: String = file
        .to_string_lossy()
        .chars()
        .flat_map(|c| match c {
            '?' => vec!['%', '3', 'f'],
            '#' => vec!['%', '2', '3'],
            '%' => vec!['%', '2', '5'],
            _ => vec![c],
        })
        .collect();
    let address = format!("file:{path}?immutable=1");
    let opened = Connection::open_with_flags(address, flags).map_err(OpenDbError::Connect)?;
    meanwhile();
    copy_of(&opened)
}

/// Whether a failure to open may be one to write.
pub(super) fn may_be_unwritable(err: &OpenDbError) -> bool {
    use rusqlite::ErrorCode as Code;
    match err {
        OpenDbError::Connect(err) | OpenDbError::Migrate { source: err, .. } => matches!(
            err.sqlite_error_code(),
            Some(Code::CannotOpen | Code::ReadOnly | Code::DiskFull | Code::SystemIoFailure)
        ),
        OpenDbError::Queue(err) | OpenDbError::Place(err) | OpenDbError::Copy(err) => {
            matches!(
                err.kind(),
                io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::StorageFull
                    | io::ErrorKind::PermissionDenied
            )
        }
        OpenDbError::Unwritable(_) => true,
        OpenDbError::Moving
        | OpenDbError::Journal { .. }
        | OpenDbError::Newer { .. }
        | OpenDbError::OldSqlite { .. } => false,
    }
}

/// Why nothing can be written where a database is, if that is so.
pub(super) fn why(file: &Path) -> Option<OpenDbError> {
    let dir = file.parent()?;
    if rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err() {
        return Some(OpenDbError::Unwritable(DbError::ReadOnly));
    }
    let is_full = rustix::fs::statvfs(dir).is_ok_and(|room| room.f_bavail == 0);
    is_full.then_some(OpenDbError::Unwritable(DbError::NoRoom))
}

fn judge(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }
            if !table_name.starts_with(LEARNED) =>
        {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

/// A directory that goes when this does.
struct Aside(PathBuf);

impl Aside {
    fn new() -> io::Result<Self> {
        let memory = Path::new(MEMORY);
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let dir = parent.join(format!("terrane-{}", uuid::Uuid::new_v4().simple()));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::set_up::connect;
    use super::*;

    struct Home {
        dir: tempfile::TempDir,
        writer: Connection,
    }

    impl Home {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let writer = connect(&dir.path().join("terrane.db")).await.unwrap();
            Self { dir, writer }
        }

        fn write(&self) {
            let sql = "INSERT INTO state (project, name, created_at) \
                SELECT '', COUNT(*), 1 FROM state";
            self.writer.execute(sql, []).unwrap();
        }

        /// All that is in the log goes into the database, and the next write begins the log anew.
        fn checkpoint(&self) {
            let sql = "PRAGMA wal_checkpoint(RESTART)";
            self.writer.query_row(sql, [], |_| Ok(())).unwrap();
        }

        fn states_in_copy(&self, meanwhile: impl FnMut()) -> Result<i64, OpenDbError> {
            let copy = copy_meanwhile(&self.dir.path().join("terrane.db"), meanwhile)?;
            let count = copy.query_row("SELECT COUNT(*) FROM state", [], |row| row.get(0));
            Ok(count.unwrap())
        }
    }

    #[tokio::test]
    async fn what_was_committed_is_in_the_copy_though_the_log_begins_anew() {
        let home = Home::new().await;
        home.write();
        let mut is_first = true;
        let found = home.states_in_copy(|| {
            if std::mem::take(&mut is_first) {
                home.write();
                home.checkpoint();
                home.write();
            }
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_writer_that_only_adds_keeps_nobody_from_reading() {
        let home = Home::new().await;
        home.write();
        let found = home.states_in_copy(|| home.write());
        assert_eq!(found.unwrap(), 2);
    }

    #[tokio::test]
    async fn one_that_never_holds_still_is_not_called_damaged() {
        let home = Home::new().await;
        home.write();
        let found = home.states_in_copy(|| {
            home.checkpoint();
            home.write();
        });
        insta::assert_snapshot!(
            found.unwrap_err(),
            @"the database is being written to meanwhile, and this process may not lock it: try again, or ask where it is written"
        );
    }
}
