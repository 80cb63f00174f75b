//! AES-256-GCM with a random nonce for each piece, and digests. A sealed file is one line of plain,
//! authenticated JSON, then nonce, ciphertext and tag. The line identifies the file without a key, and the
//! file cannot be substituted for another one.
//!
//! Not here: where keys come from and what they seal (`key`), where files are stored (`blob`).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

const NONCE: usize = 12;
const TAG: usize = 16;
pub(crate) const DIGEST: usize = 32;

pub(crate) type Digest = [u8; DIGEST];

/// The longest first line that counts as a header.
const LONGEST_HEADER: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error("it is truncated")]
    Short,
    #[error("it was changed, or sealed for something else")]
    Changed,
    #[error("its header cannot be read")]
    Header,
    #[error("it is {found}, not {expected}")]
    Other { found: String, expected: String },
    #[error("it has the older format {found}, which this terrane does not read")]
    Format { found: u32 },
    #[error("its content is not what was stored")]
    Content,
    #[error("there is no complete frame at its location")]
    Frame,
    #[error("no complete frame of it exists any more")]
    Gone,
    #[error("it does not name the version before it as its parent")]
    Parent,
    #[error("it builds on version {base}, which cannot be read")]
    Base { base: i64 },
}

/// 32 secret bytes.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

/// Random bytes from the kernel. The crypto library's own generator first gathers entropy for tens of milliseconds, which
/// is too long for a short-lived process.
fn random(bytes: &mut [u8]) -> Option<()> {
    getrandom::fill(bytes).ok()
}

impl Key {
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        random(&mut bytes)?;
        Some(Self(bytes))
    }

    pub(crate) fn from_base64(encoded: &str) -> Option<Self> {
        Self::from_bytes(BASE64.decode(encoded).ok()?)
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn aead(&self) -> Option<LessSafeKey> {
        Some(LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, &self.0).ok()?,
        ))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Header line, nonce, ciphertext, tag. `None` if the system has no randomness.
pub(crate) fn seal_file(key: &Key, header: &impl Serialize, plain: &[u8]) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    seal_into(&mut file, key, header, plain)?;
    Some(file)
}

/// The same, appended to `out`.
pub(crate) fn seal_into(
    out: &mut Vec<u8>,
    key: &Key,
    header: &impl Serialize,
    plain: &[u8],
) -> Option<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, header).ok()?;
    out.push(b'\n');
    let line = out.len() - start;
    out.reserve(NONCE + plain.len() + 2 * TAG);
    out.extend_from_slice(&[0; NONCE]);
    out.extend_from_slice(plain);
    let (context, rest) = out[start..].split_at_mut(line);
    let tag = seal_in_place(key, context, rest)?;
    out.extend_from_slice(tag.as_ref());
    Some(())
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

/// The first line of a sealed file. It is authenticated only when the file is opened.
pub(crate) fn header_line(file: &[u8]) -> Result<&[u8], UnsealError> {
    let mut start = file.iter().take(LONGEST_HEADER);
    let end = start.position(|byte| *byte == b'\n');
    Ok(&file[..=end.ok_or(UnsealError::Header)?])
}

/// Nonce, ciphertext, tag; bound to `context`. `None` if the system has no randomness.
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
