//! The contents of a bundle: named parts, one after another.
//!
//! Not here: sealing it (`store::run::bundles`), and what the parts are (`control::changeset::bundle`).

use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const HEAD: &[u8] = b"terrane parts 1\n";

/// Input with more parts or longer names is not a valid bundle.
const MOST_PARTS: usize = 100_000;
const LONGEST_NAME: usize = 1024;

/// By name.
pub type BundleParts = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackPartsError {
    #[error("the header is not that of a bundle")]
    Head,
    #[error("the bundle is truncated")]
    Short,
    #[error("the names of its parts are invalid or not sorted")]
    Order,
    #[error("the bundle has too many parts, or the name of a part is too long")]
    TooMuch,
}

pub fn pack(parts: &BundleParts) -> Vec<u8> {
    let mut bytes = HEAD.to_vec();
    for (name, body) in parts {
        for length in [name.len(), body.len()] {
            bytes.extend_from_slice(&(length as u64).to_le_bytes());
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Treats the input as untrusted: each length is compared with the rest of the input before use.
pub fn unpack(bytes: &[u8]) -> Result<BundleParts, UnpackPartsError> {
    let mut rest = bytes.strip_prefix(HEAD).ok_or(UnpackPartsError::Head)?;
    let mut parts = BundleParts::new();
    while !rest.is_empty() {
        let name_length = length(&mut rest)?;
        let body_length = length(&mut rest)?;
        if name_length > LONGEST_NAME || parts.len() == MOST_PARTS {
            return Err(UnpackPartsError::TooMuch);
        }
        let name = take(&mut rest, name_length)?;
        let name = std::str::from_utf8(name).map_err(|_| UnpackPartsError::Order)?;
        let body = take(&mut rest, body_length)?;
        if parts
            .last_key_value()
            .is_some_and(|(last, _)| last.as_str() >= name)
        {
            return Err(UnpackPartsError::Order);
        }
        parts.insert(name.to_owned(), body.to_vec());
    }
    Ok(parts)
}

fn length(rest: &mut &[u8]) -> Result<usize, UnpackPartsError> {
    let bytes = take(rest, size_of::<u64>())?;
    let bytes = bytes.try_into().map_err(|_| UnpackPartsError::Short)?;
    usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| UnpackPartsError::Short)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], UnpackPartsError> {
    let (taken, after) = rest
        .split_at_checked(length)
        .ok_or(UnpackPartsError::Short)?;
    *rest = after;
    Ok(taken)
}
