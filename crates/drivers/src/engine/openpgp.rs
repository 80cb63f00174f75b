//! The part of `OpenPGP` needed to check a release: version 4 RSA keys and signatures (RFC 4880), a key identified
//! by its fingerprint alone, and its signing subkeys.
//!
//! Not here: trust, expiry, other algorithms. Expiry is left out on purpose: an old release stays valid when its
//! key expires. A revoked key is refused.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents,
};
use base64::Engine as _;

use crate::snapshot::hex;

/// Checks a detached signature over `data`, made by the key with this fingerprint (40 hex digits) or by
/// one of its signing subkeys. `keys` and `signature` may be armored or not.
pub(super) fn verify(
    keys: &[u8],
    fingerprint: &str,
    data: &[u8],
    signature: &[u8],
) -> Result<(), VerifyError> {
    let keys = unarmor(keys).ok_or(VerifyError::Malformed("key"))?;
    let signers = signers(&keys, fingerprint)?;
    let signature = unarmor(signature).ok_or(VerifyError::Malformed("signature"))?;
    let malformed = VerifyError::Malformed("signature");
    for packet in packets(&signature).ok_or(malformed)? {
        let Some(signature) = (packet.tag == TAG_SIGNATURE)
            .then(|| Signature::parse(packet.body))
            .flatten()
        else {
            continue;
        };
        let of_a_document = signature.kind == KIND_DOCUMENT;
        if of_a_document && signers.iter().any(|key| key.verifies(&signature, data)) {
            return Ok(());
        }
    }
    Err(VerifyError::NotSigned {
        fingerprint: fingerprint.to_owned(),
    })
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VerifyError {
    #[error("the {0} is not in OpenPGP format")]
    Malformed(&'static str),
    #[error("the key has the fingerprint {found}, not {fingerprint}")]
    WrongKey { fingerprint: String, found: String },
    #[error("the key {fingerprint} was revoked")]
    Revoked { fingerprint: String },
    #[error("the file is not signed by the key {fingerprint}")]
    NotSigned { fingerprint: String },
}

const TAG_SIGNATURE: u8 = 2;
const TAG_PUBLIC_KEY: u8 = 6;
const TAG_SUBKEY: u8 = 14;

const KIND_DOCUMENT: u8 = 0x00;
const KIND_SUBKEY_BINDING: u8 = 0x18;
const KIND_KEY_REVOCATION: u8 = 0x20;
const KIND_SUBKEY_REVOCATION: u8 = 0x28;

const FLAG_SIGNS_DATA: u8 = 0x02;

/// The key with the fingerprint, and its subkeys that may sign.
fn signers<'a>(keys: &'a [u8], fingerprint: &str) -> Result<Vec<Key<'a>>, VerifyError> {
    let packets = packets(keys).ok_or(VerifyError::Malformed("key"))?;
    let mut found = Vec::new();
    let mut rest = packets.as_slice();
    while let Some(start) = rest.iter().position(|packet| packet.tag == TAG_PUBLIC_KEY) {
        let (Some(primary), Some(after)) = (rest.get(start), rest.get(start + 1..)) else {
            break;
        };
        let end = after
            .iter()
            .position(|packet| packet.tag == TAG_PUBLIC_KEY)
            .unwrap_or(after.len());
        let (own, others) = after.split_at(end);
        if let Some(key) = Key::parse(primary.body) {
            let seen = key.fingerprint();
            if seen.eq_ignore_ascii_case(fingerprint) {
                return usable(key, own, fingerprint);
            }
            found.push(seen);
        }
        rest = others;
    }
    Err(VerifyError::WrongKey {
        fingerprint: fingerprint.to_owned(),
        found: if found.is_empty() {
            "no RSA key".to_owned()
        } else {
            found.join(", ")
        },
    })
}

fn usable<'a>(
    primary: Key<'a>,
    own: &[Packet<'a>],
    fingerprint: &str,
) -> Result<Vec<Key<'a>>, VerifyError> {
    let mut signers: Vec<Key<'a>> = Vec::new();
    let mut subkey: Option<(Key<'a>, bool)> = None;
    for packet in own {
        match packet.tag {
            TAG_SUBKEY => {
                signers.extend(
                    subkey
                        .take()
                        .filter(|(_, signs)| *signs)
                        .map(|(key, _)| key),
                );
                subkey = Key::parse(packet.body).map(|key| (key, false));
            }
            TAG_SIGNATURE => {
                let Some(signature) = Signature::parse(packet.body) else {
                    continue;
                };
                let Some((key, signs)) = &mut subkey else {
                    let revoked = signature.kind == KIND_KEY_REVOCATION
                        && primary.verifies(&signature, &primary.framed());
                    if revoked {
                        return Err(VerifyError::Revoked {
                            fingerprint: fingerprint.to_owned(),
                        });
                    }
                    continue;
                };
                let vouched =
                    || primary.verifies(&signature, &[primary.framed(), key.framed()].concat());
                match signature.kind {
                    KIND_SUBKEY_BINDING if signature.may_sign_data() && vouched() => *signs = true,
                    KIND_SUBKEY_REVOCATION if vouched() => {
                        subkey = None;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    signers.extend(subkey.filter(|(_, signs)| *signs).map(|(key, _)| key));
    signers.push(primary);
    Ok(signers)
}

#[derive(Clone, Copy)]
struct Key<'a> {
    body: &'a [u8],
    modulus: &'a [u8],
    exponent: &'a [u8],
}

impl<'a> Key<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let (head, rest) = body.split_at_checked(6)?;
        let (is_v4, is_rsa) = (head[0] == 4, matches!(head[5], 1 | 3));
        let (modulus, rest) = number(rest)?;
        let (exponent, _) = number(rest)?;
        (is_v4 && is_rsa).then_some(Self {
            body,
            modulus,
            exponent,
        })
    }

    /// The form that is hashed.
    fn framed(&self) -> Vec<u8> {
        let length = u16::try_from(self.body.len()).unwrap_or(u16::MAX);
        [&[0x99][..], &length.to_be_bytes(), self.body].concat()
    }

    fn fingerprint(&self) -> String {
        let sha1 = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &self.framed());
        hex(sha1.as_ref()).to_uppercase()
    }

    fn verifies(&self, signature: &Signature<'_>, data: &[u8]) -> bool {
        // The encoding drops leading zeros of a number; the verification requires them.
        let missing = self.modulus.len().saturating_sub(signature.value.len());
        let value = [&vec![0; missing], signature.value].concat();
        let key = RsaPublicKeyComponents {
            n: self.modulus,
            e: self.exponent,
        };
        let message = [data, signature.hashed, &signature.trailer()].concat();
        key.verify(signature.algorithm, &message, &value).is_ok()
    }
}

struct Signature<'a> {
    kind: u8,
    algorithm: &'static RsaParameters,
    /// The part of the packet that the signature covers.
    hashed: &'a [u8],
    value: &'a [u8],
}

impl<'a> Signature<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let (head, rest) = body.split_at_checked(6)?;
        let &[version, kind, public_key, hash, high, low] = head else {
            return None;
        };
        let algorithm = match hash {
            8 => &RSA_PKCS1_2048_8192_SHA256,
            9 => &RSA_PKCS1_2048_8192_SHA384,
            10 => &RSA_PKCS1_2048_8192_SHA512,
            _ => return None,
        };
        let hashed_length = usize::from(u16::from_be_bytes([high, low]));
        let (_, rest) = rest.split_at_checked(hashed_length)?;
        let (unhashed_length, rest) = rest.split_at_checked(2)?;
        let unhashed_length = usize::from(u16::from_be_bytes(unhashed_length.try_into().ok()?));
        // Two bytes of the digest follow the unhashed part, as a quick check.
        let (_, rest) = rest.split_at_checked(unhashed_length + 2)?;
        let (value, _) = number(rest)?;
        let hashed = body.get(..6 + hashed_length)?;
        let signature = Self {
            kind,
            algorithm,
            hashed,
            value,
        };
        let known = version == 4 && matches!(public_key, 1 | 3) && signature.is_understood();
        known.then_some(signature)
    }

    fn trailer(&self) -> Vec<u8> {
        let length = u32::try_from(self.hashed.len()).unwrap_or(u32::MAX);
        [&[4, 0xff][..], &length.to_be_bytes()].concat()
    }

    fn may_sign_data(&self) -> bool {
        const KEY_FLAGS: u8 = 27;
        self.subpackets()
            .unwrap_or_default()
            .iter()
            .filter(|(kind, _)| kind & 0x7f == KEY_FLAGS)
            .any(|(_, body)| {
                body.first()
                    .is_some_and(|flags| flags & FLAG_SIGNS_DATA != 0)
            })
    }

    /// A critical subpacket of an unknown type invalidates the signature.
    fn is_understood(&self) -> bool {
        const KNOWN: [u8; 20] = [
            2, 3, 4, 5, 7, 9, 11, 12, 16, 20, 21, 22, 23, 24, 25, 27, 28, 30, 32, 33,
        ];
        self.subpackets().is_some_and(|subpackets| {
            subpackets
                .iter()
                .all(|(kind, _)| kind & 0x80 == 0 || KNOWN.contains(&(kind & 0x7f)))
        })
    }

    fn subpackets(&self) -> Option<Vec<(u8, &'a [u8])>> {
        let mut rest = self.hashed.get(6..)?;
        let mut found = Vec::new();
        while let Some(&first) = rest.first() {
            let (length, after) = new_length(first, rest.get(1..)?)?;
            let (body, after) = after.split_at_checked(length)?;
            let (kind, body) = body.split_first()?;
            found.push((*kind, body));
            rest = after;
        }
        Some(found)
    }
}

struct Packet<'a> {
    tag: u8,
    body: &'a [u8],
}

/// `None` unless the bytes are a sequence of complete packets.
fn packets(mut rest: &[u8]) -> Option<Vec<Packet<'_>>> {
    let mut packets = Vec::new();
    while let Some((&head, after)) = rest.split_first() {
        if head & 0x80 == 0 {
            return None;
        }
        let (tag, length, after) = if head & 0x40 == 0 {
            let width = match head & 3 {
                0 => 1,
                1 => 2,
                2 => 4,
                _ => return None,
            };
            let (length, after) = after.split_at_checked(width)?;
            let length = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            ((head >> 2) & 0x0f, length, after)
        } else {
            let (&first, after) = after.split_first()?;
            let (length, after) = new_length(first, after)?;
            (head & 0x3f, length, after)
        };
        let (body, after) = after.split_at_checked(length)?;
        packets.push(Packet { tag, body });
        rest = after;
    }
    Some(packets)
}

/// A length of one, two or five bytes; `first` has already been read.
fn new_length(first: u8, rest: &[u8]) -> Option<(usize, &[u8])> {
    match first {
        0..=191 => Some((usize::from(first), rest)),
        192..=223 => {
            let (&second, rest) = rest.split_first()?;
            Some((
                (usize::from(first) - 192) * 256 + usize::from(second) + 192,
                rest,
            ))
        }
        255 => {
            let (length, rest) = rest.split_at_checked(4)?;
            let length = u32::from_be_bytes(length.try_into().ok()?);
            Some((usize::try_from(length).ok()?, rest))
        }
        224..=254 => None,
    }
}

/// A number that is preceded by its length in bits.
fn number(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bits, rest) = bytes.split_at_checked(2)?;
    let bits = usize::from(u16::from_be_bytes(bits.try_into().ok()?));
    rest.split_at_checked(bits.div_ceil(8))
}

/// The decoded content of an armor, or the bytes themselves.
fn unarmor(raw: &[u8]) -> Option<Vec<u8>> {
    let Some(text) = std::str::from_utf8(raw)
        .ok()
        .filter(|text| text.contains("-----BEGIN PGP "))
    else {
        return Some(raw.to_vec());
    };
    let inside = text
        .lines()
        .skip_while(|line| !line.starts_with("-----BEGIN PGP "))
        .skip(1)
        .take_while(|line| !line.starts_with("-----END PGP "));
    let coded: String = inside
        .map(str::trim)
        .skip_while(|line| line.contains(": "))
        .take_while(|line| !line.starts_with('='))
        .collect();
    base64::engine::general_purpose::STANDARD.decode(coded).ok()
}
