//! One frame of a segment: a magic number, a length with its own check, a sealed file, and its digest.
//! Readers skip incomplete frames that a crash left.
//!
//! Not here: what the sealed file contains (`state::versions::blob`).

use serde::Serialize;

use crate::crypto::{DIGEST, Digest, Key, UnsealError, seal_into, sha256};

/// Not valid UTF-8, so it occurs in no text.
const MAGIC: [u8; 8] = *b"\xF7terran\xE9";
const LENGTH: usize = 8;
const CHECK: usize = 4;
pub(crate) const PREFIX: usize = MAGIC.len() + LENGTH + CHECK;

/// A frame that is ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
}

/// A frame as it was found.
#[derive(Debug)]
pub(crate) struct FoundFrame<'a> {
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) sealed: &'a [u8],
    pub(crate) digest: Digest,
}

impl Frame {
    /// `None` if the system has no randomness.
    pub(crate) fn seal(key: &Key, header: &impl Serialize, plain: &[u8]) -> Option<Self> {
        let mut bytes = vec![0; PREFIX];
        seal_into(&mut bytes, key, header, plain)?;
        let prefix = prefix(bytes.len() - PREFIX);
        bytes[..PREFIX].copy_from_slice(&prefix);
        let digest = sha256(&bytes[PREFIX..]);
        bytes.extend_from_slice(&digest);
        Some(Self { bytes, digest })
    }
}

#[cfg(test)]
pub(crate) fn wrap(sealed: &[u8]) -> Vec<u8> {
    [&prefix(sealed.len())[..], sealed, &sha256(sealed)].concat()
}

/// The sealed file in a frame; the frame must be all of `bytes`.
pub(crate) fn open(mut bytes: Vec<u8>) -> Result<(Vec<u8>, Digest), UnsealError> {
    let found = at(&bytes, 0).ok_or(UnsealError::Frame)?;
    if found.length != bytes.len() {
        return Err(UnsealError::Frame);
    }
    let digest = found.digest;
    bytes.truncate(bytes.len() - DIGEST);
    bytes.drain(..PREFIX);
    Ok((bytes, digest))
}

/// What was found where a frame begins.
#[derive(Debug)]
pub(crate) enum FramePiece<'a> {
    Whole(FoundFrame<'a>),
    /// The frame is complete, but its content was changed.
    Damaged(&'a [u8]),
    /// A crash left it incomplete: the next frame begins in it, or it ends in zeros or with the file.
    Torn(&'a [u8]),
}

/// All complete frames, in order.
pub(crate) fn scan(bytes: &[u8]) -> impl Iterator<Item = FoundFrame<'_>> {
    pieces(bytes).filter_map(|piece| match piece {
        FramePiece::Whole(found) => Some(found),
        FramePiece::Damaged(_) | FramePiece::Torn(_) => None,
    })
}

/// The same, with damaged ones whose length is known.
pub(crate) fn pieces(bytes: &[u8]) -> impl Iterator<Item = FramePiece<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        while next < bytes.len() {
            if let Some(found) = at(bytes, next) {
                next += found.length;
                return Some(FramePiece::Whole(found));
            }
            let here = bytes.get(next..)?;
            let length = peek(here).and_then(|length| usize::try_from(length).ok());
            let damaged = length.and_then(|length| here.get(PREFIX..length - DIGEST));
            // The next frame begins at the next magic number.
            let mut words = here.get(1..)?.windows(MAGIC.len());
            let step = words.position(|word| word == MAGIC).map(|step| step + 1);
            next = step.map_or(bytes.len(), |step| next + step);
            if let Some(damaged) = damaged {
                let last = length.and_then(|length| here.get(length - 1));
                let is_torn =
                    last.is_none_or(|last| *last == 0) || (step.is_some() && step < length);
                return Some(if is_torn {
                    FramePiece::Torn(damaged)
                } else {
                    FramePiece::Damaged(damaged)
                });
            }
        }
        None
    })
}

/// The length of the frame that begins here, read from its prefix.
pub(crate) fn peek(bytes: &[u8]) -> Option<u64> {
    let (length, _) = bytes.get(MAGIC.len()..)?.split_first_chunk::<LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let is_frame = bytes.get(..PREFIX)? == prefix(length);
    let whole = length.checked_add(PREFIX + DIGEST)?;
    is_frame.then_some(whole as u64)
}

fn at(bytes: &[u8], offset: usize) -> Option<FoundFrame<'_>> {
    let rest = bytes.get(offset..)?;
    let (length, _) = rest.get(MAGIC.len()..)?.split_first_chunk::<LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    if rest.get(..PREFIX)? != prefix(length) {
        return None;
    }
    let sealed = rest.get(PREFIX..PREFIX.checked_add(length)?)?;
    let (digest, _) = rest.get(PREFIX + length..)?.split_first_chunk::<DIGEST>()?;
    (sha256(sealed) == *digest).then_some(FoundFrame {
        offset,
        length: PREFIX + length + DIGEST,
        sealed,
        digest: *digest,
    })
}

fn prefix(length: usize) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..MAGIC.len()].copy_from_slice(&MAGIC);
    prefix[MAGIC.len()..PREFIX - CHECK].copy_from_slice(&(length as u64).to_le_bytes());
    let check = sha256(&prefix[..PREFIX - CHECK]);
    prefix[PREFIX - CHECK..].copy_from_slice(&check[..CHECK]);
    prefix
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        wrap(text.as_bytes())
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        scan(bytes)
            .map(|found| String::from_utf8_lossy(found.sealed).into_owned())
            .collect()
    }

    #[test]
    fn a_torn_frame_hides_none_behind_it() {
        let whole = frame("first");
        for cut in 0..whole.len() {
            let bytes = [&whole[..], &whole[..cut], &frame("second")].concat();
            assert_eq!(texts(&bytes), ["first", "second"], "cut at {cut}");
        }
        assert_eq!(
            texts(&[&whole[..], &[0; 4096], &whole].concat()),
            ["first", "first"]
        );
    }

    #[test]
    fn a_frame_with_another_bit_is_no_frame() {
        let whole = frame("text");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(texts(&changed).is_empty(), "byte {at}");
            assert!(open(changed).is_err());
        }
        assert!(open([&whole[..], b"x"].concat()).is_err());
        assert_eq!(open(whole).unwrap().0, b"text");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..56_usize) {
            let whole = frame("text");
            let torn = &whole[..cut.min(whole.len() - 1)];
            let mixed = [&bytes[..], torn, &bytes, &whole].concat();
            // By chance the bytes equal what was torn off: then the frame is complete.
            prop_assume!(!mixed[bytes.len()..].starts_with(&whole));
            prop_assert_eq!(texts(&mixed), ["text"]);
        }
    }
}
