//! Compression of a body, on its own or as a difference to another one.
//!
//! A difference is an ordinary zstd frame whose window begins in the other body: one format, and one limit on the
//! decompressed size.

use std::cell::RefCell;
use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, compress_bound, get_error_name};

/// Level 3 is the best trade-off: a state shrinks to a twentieth in about the time of its digest.
const LEVEL: i32 = 3;

/// Above this size zstd's long-distance matcher searches the base. It leaves so little that the cheapest level
/// suffices, in less than half the time of level 3.
const LONG: usize = 64 * 1024;
const LONG_LEVEL: i32 = 1;

/// The largest window that a decoder accepts by default; beyond it, both sides must set it.
const USUAL_WINDOW_LOG: u32 = 27;
const LARGEST_WINDOW_LOG: u32 = 30;

thread_local! {
    /// Created once per thread: for small bodies, creating it is half of the work.
    static SMALL: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}

pub(crate) fn compress(body: &[u8], base: Option<&[u8]>) -> io::Result<Vec<u8>> {
    let size = body.len() + base.map_or(0, <[u8]>::len);
    if size <= LONG {
        return SMALL.with_borrow_mut(|context| compress_small(context, body, base));
    }
    let Some(base) = base else {
        return Compressor::new(LEVEL)?.compress(body);
    };
    let is_long = base.len() > LONG;
    let mut compressor = Compressor::new(if is_long { LONG_LEVEL } else { LEVEL })?;
    // The window must cover the whole base, or its beginning is not found.
    let window = window_log(base.len() + body.len());
    compressor.set_parameter(CParameter::WindowLog(window))?;
    compressor.set_parameter(CParameter::EnableLongDistanceMatching(is_long))?;
    compressor
        .context_mut()
        .ref_prefix(base)
        .map_err(|code| io::Error::other(get_error_name(code)))?;
    compressor.compress(body)
}

fn compress_small(
    context: &mut CCtx<'static>,
    body: &[u8],
    base: Option<&[u8]>,
) -> io::Result<Vec<u8>> {
    let mut packed = Vec::with_capacity(compress_bound(body.len()));
    let done = match base {
        Some(base) => context.compress_using_dict(&mut packed, body, base, LEVEL),
        None => context.compress(&mut packed, body, LEVEL),
    };
    done.map_err(|code| io::Error::other(get_error_name(code)))?;
    Ok(packed)
}

/// `None` if `compress` did not make these bytes from a body of this size with this base.
pub(crate) fn decompress(packed: &[u8], base: Option<&[u8]>, size: usize) -> Option<Vec<u8>> {
    let mut context = DCtx::create();
    let mut body = Vec::with_capacity(size);
    if let Some(base) = base {
        let window = window_log(base.len() + size);
        if window > USUAL_WINDOW_LOG {
            let limit = DParameter::WindowLogMax(window);
            context.set_parameter(limit).ok()?;
        }
        context.ref_prefix(base).ok()?;
    }
    context.decompress(&mut body, packed).ok()?;
    (body.len() == size).then_some(body)
}

fn window_log(bytes: usize) -> u32 {
    let log = bytes.max(1).next_power_of_two().trailing_zeros();
    log.clamp(10, LARGEST_WINDOW_LOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize, changed: usize) -> Vec<u8> {
        let line = |n: usize| {
            format!(
                "resource {} is {}\n",
                n,
                if n == changed { n } else { n * 7919 }
            )
        };
        (0..count).map(line).collect::<String>().into_bytes()
    }

    #[track_caller]
    fn check(body: &[u8], base: Option<&[u8]>) -> usize {
        let packed = compress(body, base).unwrap();
        assert_eq!(decompress(&packed, base, body.len()).unwrap(), body);
        assert!(decompress(&packed, base, body.len() + 1).is_none());
        packed.len()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let (old, new) = (lines(20_000, 0), lines(20_000, 3));
        let whole = check(&new, None);
        let delta = check(&new, Some(&old));
        assert!(delta * 50 < whole, "{delta} of {whole}");
        check(b"", None);
        check(b"", Some(&old));
        check(&new, Some(b""));
    }

    #[test]
    fn a_base_of_many_megabytes_is_found_again() {
        let (old, new) = (lines(400_000, 0), lines(400_000, 3));
        assert!(old.len() > 8_000_000);
        let delta = check(&new, Some(&old));
        assert!(delta * 500 < new.len(), "{delta} of {}", new.len());
    }

    #[test]
    fn another_base_does_not_do() {
        let (old, new) = (lines(2_000, 0), lines(2_000, 3));
        let packed = compress(&new, Some(&old)).unwrap();
        let other = lines(2_000, 7);
        assert_ne!(
            decompress(&packed, Some(&other), new.len()),
            Some(new.clone())
        );
        assert_eq!(decompress(&packed, None, new.len()), None);
    }
}
