//! Creating directories durably, and errors about files.
//!
//! Not here: writing files (`disk`).

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Creates a directory and its parents with mode 0700. All of them are durable when this returns.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    for parent in begin_dir(dir, &mut |_| Ok(()))? {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Creates a directory and its parents with mode 0700. Returns the directories that must be synced to make them durable,
/// the innermost first.
pub(crate) fn begin_dir(
    dir: &Path,
    before: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<Vec<PathBuf>> {
    if dir.is_dir() {
        return Ok(Vec::new());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let above = parent.map_or(Ok(Vec::new()), |parent| begin_dir(parent, before))?;
    before(dir)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
        _ => {}
    }
    let own = parent.unwrap_or(Path::new(".")).to_owned();
    Ok([vec![own], above].concat())
}

/// An error about a file, with what we were doing.
pub(crate) fn file_error(action: &'static str, path: PathBuf, source: io::Error) -> StoreError {
    StoreError::File {
        action,
        path,
        source,
    }
}
