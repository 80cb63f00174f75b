//! Facts as a file of the project, for who reads no Git. Replaced as a whole, and only if it differs.

use std::io::Write as _;
use std::path::Path;

use model::facts::{Encrypt, FactFile, Format, render};

use super::{Publication, PublishFactsError};

/// Writes one file's values to another path below the root. `sealed` are its bytes where something in it is encrypted.
pub(super) fn write(
    publication: &Publication<'_>,
    file: &FactFile,
    sealed: &[u8],
    path: &str,
    header: &str,
) -> Result<(), PublishFactsError> {
    let bytes = match (&file.encrypt, Format::of(path)) {
        (Encrypt::Nothing, format) => {
            render(format.unwrap_or(file.format), &file.values, Some(header))
        }
        (Encrypt::Leaves(_) | Encrypt::All, _) => sealed.to_vec(),
    };
    let to = publication.root.join(path);
    replace(&to, &bytes).map_err(|source| PublishFactsError::File { path: to, source })
}

fn replace(to: &Path, bytes: &[u8]) -> std::io::Result<()> {
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
