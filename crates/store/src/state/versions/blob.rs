//! The frame of one version: a header that names the state and the version, bound to a body that is compressed
//! (complete, or as a difference to the previous version) and sealed. The frames and the keys are enough to rebuild
//! the database.
//!
//! The sealed part ends with a trailer: the version's secret paths.
//!
//! Not here: where frames are stored (`blob`), which of them are in use (the database decides).

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use model::state::secret_paths::SecretPaths;
use model::state::{StateName, StateVersion};
use serde::{Deserialize, Serialize};

use super::{Content, StoredVersion};
use crate::StoreError;
use crate::blob::Blobs;
use crate::blob::delta::{compress, decompress};
use crate::blob::files::file_error;
use crate::blob::segments::frame::{self, Frame};
use crate::crypto::Digest;
use crate::crypto::{UnsealError, hex, open_file};
use crate::key::data_keys::{DataKey, KeyError};

/// How many differences a version may be away from a complete one.
const MOST_STEPS: i64 = 16;
/// How many bytes may be read to get one version.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// A difference this small is not compared with the complete body.
const SURELY_SMALL: usize = 50;

/// Of frames of versions: since format 2 they have a trailer. Older ones are refused.
const FORMAT: u32 = 2;

const VERSION: &str = "state version";
const MARKER: &str = "marker";

/// Readable without a key, but authenticated. Old frames outlive old code: fields are only added.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlobHeader {
    terrane: String,
    format: u32,
    key: u32,
    pub(crate) encoding: Encoding,
    /// The digest of the previous frame, so that the chain can be followed without a database.
    pub(crate) parent_digest: Option<String>,
    #[serde(flatten)]
    pub(crate) version: StateVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    Whole,
    /// A difference to the parent.
    Delta,
}

/// Follows a frame once its version was acknowledged.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MarkerHeader {
    terrane: String,
    format: u32,
    key: u32,
    pub(crate) state: StateName,
    pub(crate) version: i64,
    /// The digest of the frame.
    pub(crate) digest: String,
}

/// The kind of a frame, by its first line.
pub(crate) enum Header {
    Version(Box<BlobHeader>),
    Marker(MarkerHeader),
}

/// The fields of a first line that show what was written and acknowledged.
#[derive(Debug, Deserialize)]
pub(crate) struct FrameLine<'a> {
    terrane: &'a str,
    pub(crate) state: StateName,
    pub(crate) version: i64,
    #[serde(default)]
    pub(crate) parent: Option<i64>,
    /// Only of a version.
    #[serde(default)]
    pub(crate) created_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) serial: Option<u64>,
}

impl<'a> FrameLine<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    pub(crate) fn is_marker(&self) -> bool {
        self.terrane == MARKER
    }
}

/// The previous version, which the next one may be a difference to.
pub(super) struct DeltaBase {
    pub(super) version: i64,
    pub(super) depth: i64,
    pub(super) body: Arc<Vec<u8>>,
}

/// A frame that no row names yet.
pub(super) struct NewBlob {
    pub(super) frame: Arc<Frame>,
    pub(super) base: Option<i64>,
    pub(super) depth: i64,
}

/// A frame of a version, opened.
pub(crate) struct OpenedBlob {
    pub(crate) header: BlobHeader,
    pub(crate) packed: Vec<u8>,
    pub(crate) secret_paths: SecretPaths,
}

impl Header {
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let what: serde_json::Value = serde_json::from_slice(line).ok()?;
        match what.get("terrane")?.as_str()? {
            VERSION => {
                let header = serde_json::from_slice(line).ok()?;
                Some(Self::Version(Box::new(header)))
            }
            MARKER => serde_json::from_slice(line).ok().map(Self::Marker),
            _ => None,
        }
    }
}

/// Whether the next version, of `size` bytes, may be a difference to one at this depth.
pub(super) fn may_build_on(depth: i64, size: u64) -> bool {
    let steps = u64::try_from(depth + 2).unwrap_or(u64::MAX);
    depth < MOST_STEPS && size.saturating_mul(steps) <= MOST_BYTES
}

pub(super) fn encode(
    key: &DataKey,
    version: StateVersion,
    parent_digest: Option<String>,
    content: &Content,
    base: Option<DeltaBase>,
) -> Result<NewBlob, StoreError> {
    let body = content.body.as_slice();
    let name = version.state.name.clone();
    let failed = |source| file_error("compress a version of", name.clone().into(), source);
    let delta = match base {
        None => None,
        Some(base) => {
            let delta = compress(body, Some(&base.body)).map_err(failed)?;
            Some((base.version, base.depth, delta))
        }
    };
    let surely = |delta: &Vec<u8>| delta.len() < body.len() / SURELY_SMALL;
    let (encoding, base, depth, mut packed) = match delta {
        Some((base, depth, delta)) if surely(&delta) => {
            (Encoding::Delta, Some(base), depth + 1, delta)
        }
        delta => {
            let whole = compress(body, None).map_err(failed)?;
            match delta {
                Some((base, depth, delta)) if delta.len() * 10 < whole.len() * 6 => {
                    (Encoding::Delta, Some(base), depth + 1, delta)
                }
                _ => (Encoding::Whole, None, 0, whole),
            }
        }
    };
    let header = BlobHeader {
        terrane: VERSION.to_owned(),
        format: FORMAT,
        key: key.generation,
        encoding,
        parent_digest,
        version,
    };
    append_trailer(&mut packed, &content.secret_paths).map_err(failed)?;
    let frame = Arc::new(Frame::seal(&key.key, &header, &packed).ok_or(KeyError::Random)?);
    Ok(NewBlob { frame, base, depth })
}

pub(crate) fn marker(
    key: &DataKey,
    version: &StateVersion,
    digest: &Digest,
) -> Result<Frame, KeyError> {
    let header = MarkerHeader {
        terrane: MARKER.to_owned(),
        format: 1,
        key: key.generation,
        state: version.state.clone(),
        version: version.version,
        digest: hex(digest),
    };
    Frame::seal(&key.key, &header, b"").ok_or(KeyError::Random)
}

/// The content of the newest version of `chain`, which leads down to a complete one, or to one that builds on `base`.
/// Each frame must be the one that was written for its version.
pub(super) fn read_chain(
    blobs: &Blobs,
    key: &DataKey,
    chain: &[StoredVersion],
    base: Option<Arc<Vec<u8>>>,
) -> Result<Content, StoreError> {
    let mut below: Option<Arc<Vec<u8>>> = base;
    let mut secret_paths = SecretPaths::default();
    for stored in chain.iter().rev() {
        let opened = open(blobs, key, stored)?;
        let base = match (opened.header.encoding, &below) {
            (Encoding::Whole, _) => None,
            (Encoding::Delta, Some(body)) => Some(body.as_slice()),
            (Encoding::Delta, None) => {
                let base = stored.base.unwrap_or_default();
                return Err(stored.damaged(blobs, UnsealError::Base { base }));
            }
        };
        below = Some(Arc::new(stored.unpack(blobs, &opened.packed, base)?));
        secret_paths = opened.secret_paths;
    }
    Ok(Content {
        body: below.unwrap_or_default(),
        secret_paths: Arc::new(secret_paths),
    })
}

/// A frame, if it is the one that was written for this version.
pub(crate) fn open(
    blobs: &Blobs,
    key: &DataKey,
    stored: &StoredVersion,
) -> Result<OpenedBlob, StoreError> {
    let damaged = |source| stored.damaged(blobs, source);
    let bytes = blobs.read_frame(&stored.place)?;
    let (sealed, digest) = frame::open(bytes).map_err(damaged)?;
    let opened = OpenedBlob::open(key, sealed).map_err(damaged)?;
    let header = &opened.header;
    if header.version != stored.version {
        let name = |version: &StateVersion| {
            format!("version {} of state `{}`", version.version, version.state)
        };
        let (found, expected) = (name(&header.version), name(&stored.version));
        return Err(damaged(UnsealError::Other { found, expected }));
    }
    if digest != *stored.blob_digest {
        return Err(damaged(UnsealError::Content));
    }
    Ok(opened)
}

impl OpenedBlob {
    pub(crate) fn open(key: &DataKey, sealed: Vec<u8>) -> Result<Self, UnsealError> {
        let (header, mut packed) = open_file::<BlobHeader>(&key.key, sealed)?;
        if header.format != FORMAT {
            let found = header.format;
            return Err(UnsealError::Format { found });
        }
        let secret_paths = take_trailer(&mut packed).ok_or(UnsealError::Content)?;
        Ok(Self {
            header,
            packed,
            secret_paths,
        })
    }
}

/// Appends the secret paths as compressed JSON, then the sizes of the JSON and of what it was compressed to. Without
/// secret paths both sizes are zero.
fn append_trailer(packed: &mut Vec<u8>, secret_paths: &SecretPaths) -> io::Result<()> {
    let (json, section) = if secret_paths.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let json = serde_json::to_vec(secret_paths)?;
        let section = compress(&json, None)?;
        (json, section)
    };
    packed.extend_from_slice(&section);
    packed.extend_from_slice(&(json.len() as u64).to_le_bytes());
    packed.extend_from_slice(&(section.len() as u64).to_le_bytes());
    Ok(())
}

/// Removes the trailer; `None` if it is not complete.
fn take_trailer(packed: &mut Vec<u8>) -> Option<SecretPaths> {
    let (rest, size) = packed.split_last_chunk::<8>()?;
    let (rest, plain_size) = rest.split_last_chunk::<8>()?;
    let [plain_size, size] = [plain_size, size].map(|size| u64::from_le_bytes(*size));
    let at = rest.len().checked_sub(usize::try_from(size).ok()?)?;
    let secret_paths = if plain_size == 0 {
        SecretPaths::default()
    } else {
        let json = decompress(&rest[at..], None, usize::try_from(plain_size).ok()?)?;
        serde_json::from_slice(&json).ok()?
    };
    packed.truncate(at);
    Some(secret_paths)
}

impl StoredVersion {
    pub(crate) fn unpack(
        &self,
        blobs: &Blobs,
        packed: &[u8],
        base: Option<&[u8]>,
    ) -> Result<Vec<u8>, StoreError> {
        let size = usize::try_from(self.version.size).unwrap_or(usize::MAX);
        decompress(packed, base, size).ok_or_else(|| self.damaged(blobs, UnsealError::Content))
    }

    pub(crate) fn damaged(&self, blobs: &Blobs, source: UnsealError) -> StoreError {
        StoreError::Unseal {
            path: blobs.path(&self.place.to_string()),
            source,
        }
    }
}
