//! The file of one version: a header that says whose and which it is, bound to a body that is
//! compressed, then sealed. Enough to rebuild the tables from the files and the keys.

use model::state::StateVersion;
use serde::{Deserialize, Serialize};

use super::Stored;
use crate::StoreError;
use crate::blobs::{Disk, state_dir};
use crate::keys::{Keys, Scope};
use crate::sealing::{UnsealError, open_file, seal_file, sha256};

/// Level 3 is the knee: a state shrinks to a twentieth in about the time of its digest.
const COMPRESSION: i32 = 3;

/// Plain to read, impossible to change. Old files outlive old code: fields are only added.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BlobHeader {
    terrane: String,
    format: u32,
    key: u32,
    /// The digest of the file before, so that the chain can be walked without a database.
    parent_digest: Option<String>,
    #[serde(flatten)]
    version: StateVersion,
}

/// A file that no row names yet.
pub(super) struct NewBlob {
    pub(super) blob: String,
    pub(super) digest: Vec<u8>,
}

impl BlobHeader {
    pub(super) fn new(version: &StateVersion, parent_digest: Option<String>) -> Self {
        let (terrane, format) = ("state version".to_owned(), 1);
        Self {
            terrane,
            format,
            key: 0,
            parent_digest,
            version: version.clone(),
        }
    }
}

/// Durable when this returns. Each attempt has a file of its own: two writers that race for one
/// version never touch each other's.
pub(super) fn write(
    keys: &Keys,
    disk: &Disk,
    mut header: BlobHeader,
    body: &[u8],
) -> Result<NewBlob, StoreError> {
    let state = &header.version.state;
    let random = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("{}-{}.blob", header.version.version, &random[..8]);
    let blob = format!("states/{}/{name}", state_dir(state));
    let key = keys.get_or_create(&Scope::State(state.clone()))?;
    header.key = key.generation;
    let compressed =
        zstd::bulk::compress(body, COMPRESSION).map_err(|source| StoreError::File {
            deed: "compress",
            path: disk.path(&blob),
            source,
        })?;
    let file = seal_file(&key.key, &header, &compressed)?;
    disk.write(&blob, &file)?;
    Ok(NewBlob {
        blob,
        digest: sha256(&file),
    })
}

/// The body, if the file is the one that was written for this version.
pub(super) fn read(keys: &Keys, disk: &Disk, stored: &Stored) -> Result<Vec<u8>, StoreError> {
    let file = disk.read(&stored.blob)?;
    let key = keys.get(&Scope::State(stored.version.state.clone()))?;
    let damaged = |source| StoreError::Unseal {
        path: disk.path(&stored.blob),
        source,
    };
    let whole = sha256(&file) == stored.blob_digest;
    let (header, compressed) = open_file::<BlobHeader>(&key.key, file).map_err(damaged)?;
    if header.version != stored.version {
        let name = |version: &StateVersion| {
            format!("version {} of state `{}`", version.version, version.state)
        };
        let (found, expected) = (name(&header.version), name(&stored.version));
        return Err(damaged(UnsealError::Other { found, expected }));
    }
    let size = usize::try_from(stored.version.size).unwrap_or(usize::MAX);
    let body =
        zstd::bulk::decompress(&compressed, size).map_err(|_| damaged(UnsealError::Content))?;
    let same = keys.keyed_digest("state", &body)? == stored.version.content;
    if whole && same {
        Ok(body)
    } else {
        Err(damaged(UnsealError::Content))
    }
}
