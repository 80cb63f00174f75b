//! Sealing: AES-256-GCM with a random nonce for each piece. A sealed file is one line of plain,
//! authenticated JSON, then nonce, ciphertext and tag: it says what it is without a key, and
//! nothing can be put in the place of another.
//!
//! Not here: where keys come from (`keys`), where files lie (`blobs`).

use std::sync::Arc;

use aws_lc_rs::aead::{Aad, Nonce, Tag};
use aws_lc_rs::{digest, hmac};
use model::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::keys::{DataKey, Key, KeyError, Keys, Scope, random};
use crate::segments::frame::{DIGEST, Digest};
use crate::states::name_args;
use crate::{Store, StoreError};

const NONCE: usize = 12;
const TAG: usize = 16;

/// A header longer than this is no header.
const LONGEST_HEADER: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error("it is cut short")]
    Short,
    #[error("it was changed, or sealed for something else")]
    Changed,
    #[error("its header is not readable")]
    Header,
    #[error("it is {found}, not {expected}")]
    Other { found: String, expected: String },
    #[error("what it holds is not what was stored")]
    Content,
    #[error("there is no whole frame at its place")]
    Frame,
    #[error("there is no whole frame of it any more")]
    Gone,
    #[error("it does not name the version before it as its parent")]
    Parent,
    #[error("it builds on version {base}, which cannot be read")]
    Base { base: i64 },
}

/// Digests that tell whether two things are equal, and nothing to who lacks the key: short secrets
/// cannot be guessed from them.
#[derive(Clone, Debug)]
pub struct KeyedDigester {
    key: hmac::Key,
    own: Secret,
}

/// The first line of a piece that only has a purpose.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PieceHeader {
    terrane: String,
    format: u32,
    scope: String,
    key: u32,
    purpose: String,
}

impl Store {
    /// Seals a piece for `purpose`; it opens for the same scope and purpose only.
    pub async fn seal(
        &self,
        scope: Scope,
        purpose: &str,
        plain: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (key, purpose) = (self.data_key(&scope).await?, purpose.to_owned());
        self.nearby(plain.len(), move || {
            let header = PieceHeader::new(&scope, key.generation, purpose);
            Ok(seal_file(&key.key, &header, &plain)?)
        })
        .await
    }

    pub async fn unseal(
        &self,
        scope: Scope,
        purpose: &str,
        sealed: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (keys, purpose) = (self.keys.clone(), purpose.to_owned());
        self.nearby(sealed.len(), move || {
            let key = keys.get(&scope)?;
            open_piece(&key, &scope, &purpose, sealed)
        })
        .await
    }

    /// Makes the key that pieces of this scope are sealed with, if it is new: whoever seals later waits for no disk.
    pub async fn seal_prepare(&self, scope: &Scope) -> Result<(), StoreError> {
        self.data_key(scope).await.map(drop)
    }

    /// The data key, made if this is its first use. One that is gone although something was sealed with it is
    /// not replaced: that would only hide the loss.
    pub(crate) async fn data_key(&self, scope: &Scope) -> Result<Arc<DataKey>, StoreError> {
        const USED: &str = "SELECT 1 FROM state AS s JOIN state_version AS v ON v.state = s.id \
            WHERE s.project = $1 AND s.name = $2 LIMIT 1";
        if let Some(key) = self.keys.known(scope) {
            return Ok(key);
        }
        let (keys, own) = (self.keys.clone(), scope.clone());
        if let Some(key) = self.nearby(0, move || keys.lookup(&own)).await? {
            return Ok(key);
        }
        let (keys, own) = (self.keys.clone(), scope.clone());
        let used = match scope {
            Scope::Project => false,
            Scope::State(state) => {
                let found = self.db.fetch_optional(USED, &name_args(state)).await?;
                found.is_some()
            }
        };
        if used {
            self.nearby(0, move || keys.get(&own)).await
        } else {
            self.nearby(0, move || keys.get_or_create(&own)).await
        }
    }

    /// One digest by `keyed_digester`.
    pub async fn keyed_digest(&self, purpose: &str, bytes: Vec<u8>) -> Result<String, StoreError> {
        let (keys, purpose, size) = (self.keys.clone(), purpose.to_owned(), bytes.len());
        let digest = move || keys.keyed_digest(&purpose, &bytes);
        self.nearby(size, digest).await
    }

    /// For many digests of one purpose, without waiting for each.
    pub async fn keyed_digester(&self, purpose: &'static str) -> Result<KeyedDigester, StoreError> {
        let keys = self.keys.clone();
        self.nearby(0, move || keys.digester(purpose)).await
    }
}

impl KeyedDigester {
    /// The one that made this text, for who has to compare in another home.
    pub fn from_secret(text: &Secret) -> Option<Self> {
        let own = unhex(text.expose())?;
        Some(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &own),
            own: text.clone(),
        })
    }

    pub fn to_secret(&self) -> &Secret {
        &self.own
    }

    pub fn digest(&self, bytes: &[u8]) -> String {
        hex(hmac::sign(&self.key, bytes).as_ref())
    }
}

impl Keys {
    pub(crate) fn digester(&self, purpose: &str) -> Result<KeyedDigester, StoreError> {
        let project = self.get_or_create(&Scope::Project)?;
        let root = hmac::Key::new(hmac::HMAC_SHA256, project.key.bytes());
        // A key of its own for each purpose: equal things do not look equal across purposes.
        let own = hmac::sign(
            &root,
            format!("terrane keyed digest 1: {purpose}").as_bytes(),
        );
        Ok(KeyedDigester {
            key: hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()),
            own: Secret::new(hex(own.as_ref())),
        })
    }

    pub(crate) fn keyed_digest(&self, purpose: &str, bytes: &[u8]) -> Result<String, StoreError> {
        Ok(self.digester(purpose)?.digest(bytes))
    }
}

impl PieceHeader {
    fn new(scope: &Scope, key: u32, purpose: String) -> Self {
        Self {
            terrane: "piece".to_owned(),
            format: 1,
            scope: scope.dir(),
            key,
            purpose,
        }
    }
}

/// What was sealed for this scope and purpose.
pub(crate) fn open_piece(
    key: &DataKey,
    scope: &Scope,
    purpose: &str,
    sealed: Vec<u8>,
) -> Result<Vec<u8>, StoreError> {
    let expected = PieceHeader::new(scope, key.generation, purpose.to_owned());
    open_file::<PieceHeader>(&key.key, sealed)
        .and_then(|(found, plain)| {
            if found == expected {
                return Ok(plain);
            }
            let (found, expected) = (found.purpose, expected.purpose);
            Err(UnsealError::Other { found, expected })
        })
        .map_err(|source| StoreError::Unseal {
            path: scope.dir().into(),
            source,
        })
}

/// Header line, nonce, ciphertext, tag.
pub(crate) fn seal_file(
    key: &Key,
    header: &impl Serialize,
    plain: &[u8],
) -> Result<Vec<u8>, KeyError> {
    let mut file = Vec::new();
    seal_into(&mut file, key, header, plain)?;
    Ok(file)
}

/// The same, after what `out` holds already.
pub(crate) fn seal_into(
    out: &mut Vec<u8>,
    key: &Key,
    header: &impl Serialize,
    plain: &[u8],
) -> Result<(), KeyError> {
    let start = out.len();
    serde_json::to_writer(&mut *out, header).map_err(|_| KeyError::Random)?;
    out.push(b'\n');
    let line = out.len() - start;
    out.reserve(NONCE + plain.len() + 2 * TAG);
    out.extend_from_slice(&[0; NONCE]);
    out.extend_from_slice(plain);
    let (context, rest) = out[start..].split_at_mut(line);
    let tag = seal_in_place(key, context, rest).ok_or(KeyError::Random)?;
    out.extend_from_slice(tag.as_ref());
    Ok(())
}

pub(crate) fn open_file<H: for<'de> Deserialize<'de>>(
    key: &Key,
    mut file: Vec<u8>,
) -> Result<(H, Vec<u8>), UnsealError> {
    let line = header_line(&file)?.len();
    let sealed = file.split_off(line);
    let plain = open(key, &file, sealed)?;
    let header = serde_json::from_slice(&file).map_err(|_| UnsealError::Header)?;
    Ok((header, plain))
}

/// What a sealed file says about itself. Only who opens it knows whether that is true.
pub(crate) fn header_line(file: &[u8]) -> Result<&[u8], UnsealError> {
    let mut start = file.iter().take(LONGEST_HEADER);
    let end = start.position(|byte| *byte == b'\n');
    Ok(&file[..=end.ok_or(UnsealError::Header)?])
}

/// Nonce, ciphertext, tag; bound to `context`. Nothing if the system has no randomness.
pub(crate) fn seal(key: &Key, context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut sealed = [&[0; NONCE], plain].concat();
    let tag = seal_in_place(key, context, &mut sealed)?;
    sealed.extend_from_slice(tag.as_ref());
    Some(sealed)
}

/// Fills in the nonce that the buffer begins with, and encrypts the rest of it.
fn seal_in_place(key: &Key, context: &[u8], buffer: &mut [u8]) -> Option<Tag> {
    let (place, plain) = buffer.split_first_chunk_mut::<NONCE>()?;
    random(place)?;
    let nonce = Nonce::assume_unique_for_key(*place);
    key.aead()?
        .seal_in_place_separate_tag(nonce, Aad::from(context), plain)
        .ok()
}

pub(crate) fn open(key: &Key, context: &[u8], mut sealed: Vec<u8>) -> Result<Vec<u8>, UnsealError> {
    let (nonce, body) = sealed
        .split_first_chunk_mut::<NONCE>()
        .ok_or(UnsealError::Short)?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let aead = key.aead().ok_or(UnsealError::Changed)?;
    let length = aead
        .open_in_place(nonce, Aad::from(context), body)
        .map_err(|_| UnsealError::Changed)?
        .len();
    sealed.drain(..NONCE);
    sealed.truncate(length);
    Ok(sealed)
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut result = [0; DIGEST];
    result.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    result
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

pub(crate) fn unhex(text: &str) -> Option<Digest> {
    let mut bytes = [0; DIGEST];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 2 * DIGEST).then_some(bytes)
}

#[cfg(test)]
mod tests;
