//! Keys and signatures made by `gpg` (`fixtures/release/make.sh`).

use crate::engine::openpgp::{VerifyError, verify};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../fixtures/release/", $name)) as &[u8]
    };
}

const SUMS: &[u8] = fixture!("SHA256SUMS");

fn fingerprint(raw: &[u8]) -> &str {
    std::str::from_utf8(raw).unwrap().trim()
}

#[test]
fn a_key_and_a_subkey_may_sign() {
    let release = fingerprint(fixture!("release.fingerprint"));
    let subkey = fingerprint(fixture!("subkey.fingerprint"));
    assert_eq!(
        verify(
            fixture!("release.asc"),
            release,
            SUMS,
            fixture!("SHA256SUMS.release.sig")
        ),
        Ok(())
    );
    assert_eq!(
        verify(
            fixture!("subkey.asc"),
            subkey,
            SUMS,
            fixture!("SHA256SUMS.subkey.sig")
        ),
        Ok(())
    );
    let ring = [fixture!("other.asc"), fixture!("release.asc")]
        .map(dearmored)
        .concat();
    assert_eq!(
        verify(&ring, release, SUMS, fixture!("SHA256SUMS.release.sig")),
        Ok(())
    );
}

#[test]
fn anything_else_is_refused() {
    let release = fingerprint(fixture!("release.fingerprint"));
    let key = fixture!("release.asc");
    let signature = fixture!("SHA256SUMS.release.sig");
    let not_signed = || {
        Err(VerifyError::NotSigned {
            fingerprint: release.to_owned(),
        })
    };

    let mut other_data = SUMS.to_vec();
    other_data[0] ^= 1;
    assert_eq!(verify(key, release, &other_data, signature), not_signed());
    assert_eq!(
        verify(key, release, &[SUMS, b"\n"].concat(), signature),
        not_signed()
    );
    assert_eq!(
        verify(key, release, SUMS, fixture!("SHA256SUMS.other.sig")),
        not_signed()
    );
    assert_eq!(verify(key, release, SUMS, b""), not_signed());

    let wrong = verify(
        fixture!("other.asc"),
        release,
        SUMS,
        fixture!("SHA256SUMS.other.sig"),
    );
    assert!(
        matches!(wrong, Err(VerifyError::WrongKey { .. })),
        "{wrong:?}"
    );

    // The subkey of one key, attached to another key that never signed it.
    let (own, foreign) = (dearmored(key), dearmored(fixture!("subkey.asc")));
    let grafted = [own.as_slice(), after_first_packet(&foreign)].concat();
    assert_eq!(
        verify(&grafted, release, SUMS, fixture!("SHA256SUMS.subkey.sig")),
        not_signed()
    );
}

#[test]
fn every_torn_or_bent_signature_is_refused() {
    let release = fingerprint(fixture!("release.fingerprint"));
    let (key, signature) = (fixture!("release.asc"), fixture!("SHA256SUMS.release.sig"));
    for length in 0..signature.len() {
        assert!(
            verify(key, release, SUMS, &signature[..length]).is_err(),
            "{length} bytes"
        );
    }
    let bare = dearmored(key);
    for length in (0..bare.len()).step_by(7) {
        // Must not panic; the key packet alone is enough to verify.
        let _ = verify(&bare[..length], release, SUMS, signature);
    }
    // A change to any signed bit, or to the signature, must be detected; the other bytes are hints.
    for at in 3..9 {
        let mut bent = signature.to_vec();
        bent[at] ^= 0x10;
        assert!(verify(key, release, SUMS, &bent).is_err(), "byte {at}");
    }
}

fn dearmored(armored: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    let text = std::str::from_utf8(armored).unwrap();
    let coded: String = text
        .lines()
        .filter(|line| !line.starts_with(['-', '=']) && !line.is_empty())
        .collect();
    base64::engine::general_purpose::STANDARD
        .decode(coded)
        .unwrap()
}

/// `gpg` writes a key of this size with a length of two bytes.
fn after_first_packet(packets: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([packets[1], packets[2]]));
    &packets[3 + length..]
}
