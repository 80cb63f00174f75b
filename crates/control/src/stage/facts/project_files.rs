//! Facts as a file of the project (`sink "file"`), replaced as a whole, and only if it differs.

use std::io::{self, Write as _};
use std::path::Path;

use model::stage::facts::{Encrypt, FactFile, FactsFormat, encrypted_fields, render};
use serde_json::Value;

use super::PublishFactsError;

/// The bytes for a path, in the format of its name. `sealed` are the published bytes, used if something is encrypted.
pub(super) fn bytes(file: &FactFile, sealed: &[u8], path: &str, header: &str) -> Vec<u8> {
    match (&file.encrypt, FactsFormat::of(path)) {
        (Encrypt::Nothing, format) => {
            render(format.unwrap_or(file.format), &file.values, Some(header))
        }
        (Encrypt::Leaves(_) | Encrypt::All, format) => {
            let other = format.filter(|format| *format != file.format);
            let turned = other.and_then(|format| turned(sealed, format));
            turned.unwrap_or_else(|| sealed.to_vec())
        }
    }
}

/// An encrypted file in the other format: its fields are the same, and its checksum covers only values.
fn turned(sealed: &[u8], format: FactsFormat) -> Option<Vec<u8>> {
    match encrypted_fields(sealed)? {
        Value::Object(fields) => Some(render(format, &fields, None)),
        _ => None,
    }
}

/// Writes the file; false if it was the same already.
pub(super) fn write(root: &Path, path: &str, bytes: &[u8]) -> Result<bool, PublishFactsError> {
    let to = root.join(path);
    let above = Path::new(path).ancestors();
    let mut above = above.filter(|part| !part.as_os_str().is_empty());
    if above.any(|part| root.join(part).is_symlink()) {
        let path = path.to_owned();
        return Err(PublishFactsError::Link { path });
    }
    replace(&to, bytes).map_err(|source| PublishFactsError::File { path: to, source })
}

fn replace(to: &Path, bytes: &[u8]) -> io::Result<bool> {
    if std::fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let dir = to.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut aside = tempfile::NamedTempFile::new_in(dir)?;
    aside.write_all(bytes)?;
    aside.persist(to)?;
    Ok(true)
}

/// The file's bytes; none if it does not exist.
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
