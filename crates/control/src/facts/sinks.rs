//! Facts as a file of the project, for who reads no Git. Replaced as a whole, and only if it differs.

use std::io::{self, Write as _};
use std::path::Path;

use model::facts::{Encrypt, FactFile, Format, render};

use super::PublishFactsError;

/// One file's values as another path below the root wants them. `sealed` are its bytes where something in it is
/// encrypted.
pub(super) fn bytes(file: &FactFile, sealed: &[u8], path: &str, header: &str) -> Vec<u8> {
    match (&file.encrypt, Format::of(path)) {
        (Encrypt::Nothing, format) => {
            render(format.unwrap_or(file.format), &file.values, Some(header))
        }
        (Encrypt::Leaves(_) | Encrypt::All, _) => sealed.to_vec(),
    }
}

pub(super) fn write(root: &Path, path: &str, bytes: &[u8]) -> Result<(), PublishFactsError> {
    let to = root.join(path);
    let above = Path::new(path).ancestors();
    let mut above = above.filter(|part| !part.as_os_str().is_empty());
    if above.any(|part| root.join(part).is_symlink()) {
        let path = path.to_owned();
        return Err(PublishFactsError::Link { path });
    }
    replace(&to, bytes).map_err(|source| PublishFactsError::File { path: to, source })
}

fn replace(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let dir = to.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut aside = tempfile::NamedTempFile::new_in(dir)?;
    aside.write_all(bytes)?;
    aside.persist(to)?;
    Ok(())
}

/// What is there now.
pub(super) fn read(root: &Path, path: &str) -> Result<Option<Vec<u8>>, PublishFactsError> {
    let from = root.join(path);
    match std::fs::read(&from) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PublishFactsError::File { path: from, source }),
    }
}

pub(super) fn remove(root: &Path, path: &str) -> Result<(), PublishFactsError> {
    let at = root.join(path);
    match std::fs::remove_file(&at) {
        Ok(()) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(PublishFactsError::File { path: at, source }),
    }
}
