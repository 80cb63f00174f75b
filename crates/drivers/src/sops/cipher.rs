//! One encrypted value: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.
//!
//! Not here: which values are encrypted, and what binds them to their path (`crypt`).

use std::collections::HashMap;
use std::fmt;

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{AesGcm, aes::Aes256};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use model::base::secret::Secret;

use super::tree::{Comment, Kind, Leaf, Scalar};

const IV: usize = 32;
const TAG: usize = 16;

/// The key that encrypts a file's values.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DataKey([u8; 32]);

impl DataKey {
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for DataKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from removing the write as dead code.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[data key]")
    }
}

/// Why a value cannot be decrypted. It never contains the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error("it is not encrypted")]
    NotEncrypted,
    #[error("it is damaged: `{part}` cannot be read")]
    Damaged { part: &'static str },
    #[error("it is of an unknown type")]
    UnknownType,
    #[error("it was modified, or moved from another path")]
    NotAuthentic,
    #[error("the decrypted value does not match its type")]
    WrongType,
    #[error("cannot get random bytes from the system")]
    NoRandom,
}

/// Encrypts and decrypts values. It remembers decrypted values, so that the same value at the same path gets the
/// same ciphertext again.
#[derive(Clone)]
pub(super) struct Cipher {
    gcm: AesGcm<Aes256, U32>,
    key: DataKey,
    opened: HashMap<[u8; 32], String>,
}

impl Cipher {
    pub(super) fn new(key: DataKey) -> Self {
        let gcm = AesGcm::<Aes256, U32>::new(key.expose().into());
        Self {
            gcm,
            key,
            opened: HashMap::new(),
        }
    }

    pub(super) fn key(&self) -> &DataKey {
        &self.key
    }

    pub(super) fn remembers(&self) -> &HashMap<[u8; 32], String> {
        &self.opened
    }

    pub(super) fn remember(&mut self, earlier: &HashMap<[u8; 32], String>) {
        self.opened.clone_from(earlier);
    }

    /// The encrypted form; an empty value stays empty.
    pub(super) fn encrypt(&self, leaf: &Leaf, place: &str) -> Result<String, CipherError> {
        let (kind, text) = match leaf {
            Leaf::Scalar(scalar) => (name(scalar.kind), &scalar.text),
            Leaf::Comment(comment) => ("comment", &comment.text),
        };
        if text.expose().is_empty() {
            return Ok(String::new());
        }
        if let Some(same) = self.opened.get(&fingerprint(kind, text, place)) {
            return Ok(same.clone());
        }
        let mut iv = [0; IV];
        getrandom::fill(&mut iv).map_err(|_| CipherError::NoRandom)?;
        let payload = Payload {
            msg: text.expose().as_bytes(),
            aad: place.as_bytes(),
        };
        let sealed = self
            .gcm
            .encrypt((&iv).into(), payload)
            .map_err(|_| CipherError::NotAuthentic)?;
        let (data, tag) = sealed.split_at(sealed.len() - TAG);
        Ok(format!(
            "ENC[AES256_GCM,data:{},iv:{},tag:{},type:{kind}]",
            BASE64_STANDARD.encode(data),
            BASE64_STANDARD.encode(iv),
            BASE64_STANDARD.encode(tag),
        ))
    }

    pub(super) fn decrypt(&mut self, text: &str, place: &str) -> Result<Leaf, CipherError> {
        if text.is_empty() {
            return Ok(Leaf::Scalar(Scalar::text("")));
        }
        let parts = Parts::read(text)?;
        let mut sealed = parts.data;
        sealed.extend_from_slice(&parts.tag);
        let payload = Payload {
            msg: &sealed,
            aad: place.as_bytes(),
        };
        let plain = self
            .gcm
            .decrypt((&parts.iv).into(), payload)
            .map_err(|_| CipherError::NotAuthentic)?;
        let plain = String::from_utf8(plain).map_err(|_| CipherError::WrongType)?;
        let leaf = read_value(parts.kind, plain)?;
        let secret = match &leaf {
            Leaf::Scalar(scalar) => &scalar.text,
            Leaf::Comment(comment) => &comment.text,
        };
        self.opened
            .insert(fingerprint(parts.kind, secret, place), text.to_owned());
        Ok(leaf)
    }
}

struct Parts<'a> {
    data: Vec<u8>,
    iv: [u8; IV],
    tag: Vec<u8>,
    kind: &'a str,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Result<Self, CipherError> {
        let inner = text
            .strip_prefix("ENC[AES256_GCM,")
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or(CipherError::NotEncrypted)?;
        let mut fields = inner.split(',');
        let mut field = |name: &'static str| {
            fields
                .next()
                .and_then(|field| field.strip_prefix(name))
                .and_then(|field| field.strip_prefix(':'))
                .ok_or(CipherError::Damaged { part: name })
        };
        let bytes = |text: &str, part| {
            BASE64_STANDARD
                .decode(text)
                .map_err(|_| CipherError::Damaged { part })
        };
        Ok(Self {
            data: bytes(field("data")?, "data")?,
            iv: bytes(field("iv")?, "iv")?
                .try_into()
                .map_err(|_| CipherError::Damaged { part: "iv" })?,
            tag: bytes(field("tag")?, "tag")?,
            kind: field("type")?,
        })
    }
}

pub(super) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "str",
        Kind::Int => "int",
        Kind::Float => "float",
        Kind::Bool => "bool",
        Kind::Time => "time",
    }
}

fn read_value(kind: &str, plain: String) -> Result<Leaf, CipherError> {
    let wrong = CipherError::WrongType;
    Ok(match kind {
        "str" | "bytes" => Leaf::Scalar(Scalar::text(plain)),
        "int" => Leaf::Scalar(Scalar::int(plain.parse().map_err(|_| wrong)?)),
        "float" => Leaf::Scalar(Scalar::float(plain.parse().map_err(|_| wrong)?)),
        "bool" => Leaf::Scalar(Scalar::bool(match plain.as_str() {
            "True" | "true" | "TRUE" | "1" | "t" | "T" => true,
            "False" | "false" | "FALSE" | "0" | "f" | "F" => false,
            _ => return Err(wrong),
        })),
        "time" => Leaf::Scalar(Scalar::new(Kind::Time, plain)),
        "comment" => Leaf::Comment(Comment::new(plain, false)),
        _ => return Err(CipherError::UnknownType),
    })
}

/// Identifies a plain value at a path without containing it.
fn fingerprint(kind: &str, text: &Secret, place: &str) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [kind, place, text.expose()] {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    let mut print = [0; 32];
    print.copy_from_slice(context.finish().as_ref());
    print
}
