//! A bundle opens only whole, unchanged, with its key, in its project.

use proptest::prelude::*;

use super::*;

fn keyring() -> Keyring {
    Keyring::generate().unwrap()
}

#[test]
fn it_opens_with_the_master_key_alone() {
    let keys = keyring();
    let sealed = seal(&keys, "shop", "b-1", b"plans").unwrap();
    assert!(is_bundle(&sealed));
    let (id, plain) = open(&keys, "shop", sealed).unwrap();
    assert_eq!((id.as_str(), plain.as_slice()), ("b-1", &b"plans"[..]));
}

#[test]
fn an_older_master_key_still_opens_it() {
    let old = keyring();
    let sealed = seal(&old, "shop", "b-1", b"plans").unwrap();
    let new = keyring().followed_by(&old);
    assert!(open(&new, "shop", sealed).is_ok());
}

#[test]
fn each_refusal_says_what_is_wrong() {
    let keys = keyring();
    let sealed = seal(&keys, "shop", "b-1", b"plans").unwrap();
    let check = |keys: &Keyring, project: &str, bytes: &[u8], expected: &str| {
        let err = open(keys, project, bytes.to_vec()).unwrap_err();
        assert_eq!(err.to_string(), expected);
    };
    check(
        &keys,
        "other",
        &sealed,
        "the bundle belongs to the project with the id `shop`, but this project has the id `other`",
    );
    let stranger = keyring();
    check(
        &stranger,
        "shop",
        &sealed,
        &format!(
            "the bundle was sealed with master key `{}`; the current one is `{}`",
            keys.id(),
            stranger.id()
        ),
    );
    check(
        &keys,
        "shop",
        b"",
        "the file is not a bundle, or it is truncated",
    );
    check(
        &keys,
        "shop",
        &sealed[..40],
        "the file is not a bundle, or it is truncated",
    );
    check(
        &keys,
        "shop",
        &sealed[..sealed.len() - 1],
        "the bundle was modified or truncated",
    );
    let later = String::from_utf8_lossy(&sealed).replacen("\"format\":1", "\"format\":2", 1);
    check(
        &keys,
        "shop",
        later.as_bytes(),
        "the bundle has format 2, but this terrane reads format 1",
    );
}

/// Another project's bundle does not become ours by another name in its first line.
#[test]
fn the_first_line_is_not_believed() {
    let keys = keyring();
    let sealed = seal(&keys, "shop", "b-1", b"plans").unwrap();
    let at = sealed
        .windows(4)
        .position(|bytes| bytes == b"shop")
        .unwrap();
    let mut forged = sealed;
    forged[at..at + 4].copy_from_slice(b"shed");
    let err = open(&keys, "shed", forged).unwrap_err();
    assert_eq!(err.to_string(), "the bundle was modified or truncated");
}

proptest! {
    #[test]
    fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), other in 1..=255_u8) {
        let keys = keyring();
        let mut sealed = seal(&keys, "shop", "b-1", b"plans of the shop").unwrap();
        let at = at.index(sealed.len());
        sealed[at] ^= other;
        prop_assert!(open(&keys, "shop", sealed).is_err());
    }

    #[test]
    fn a_cut_is_noticed(at in any::<prop::sample::Index>()) {
        let keys = keyring();
        let sealed = seal(&keys, "shop", "b-1", b"plans of the shop").unwrap();
        let cut = sealed[..at.index(sealed.len())].to_vec();
        prop_assert!(open(&keys, "shop", cut).is_err());
    }

    #[test]
    fn no_bytes_make_it_fall_over(rest in prop::collection::vec(any::<u8>(), 0..256)) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(rest);
        prop_assert!(open(&keyring(), "shop", bytes).is_err());
    }
}
