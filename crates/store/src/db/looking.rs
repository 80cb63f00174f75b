//! A database to which nothing can be written, looked at: a copy of it in memory, in which only what is learned from
//! reading may change. What is on the disk is not touched, and whoever wants to write is told that it cannot be.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    let log = file.with_extension("db-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let aside = Aside::new().map_err(OpenDbError::Copy)?;
        let database = aside.0.join("terrane.db");
        fs::copy(file, &database).map_err(OpenDbError::Copy)?;
        fs::copy(&log, aside.0.join("terrane.db-wal")).map_err(OpenDbError::Copy)?;
        let opened = open(&database).map_err(OpenDbError::Connect)?;
        return copy_of(&opened);
    }
    // Without a log nobody writes to it: it is what it is.
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
        OpenDbError::Journal { .. } | OpenDbError::Newer { .. } | OpenDbError::OldSqlite { .. } => {
            false
        }
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
