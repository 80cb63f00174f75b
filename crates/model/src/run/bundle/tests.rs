//! The format of a bundle, and what is refused.

use proptest::prelude::*;

use super::*;

fn parts() -> impl Strategy<Value = BundleParts> {
    let body = prop::collection::vec(any::<u8>(), 0..64);
    prop::collection::btree_map("[a-z ]{0,12}", body, 0..6)
}

proptest! {
    #[test]
    fn what_was_packed_is_unpacked(parts in parts()) {
        prop_assert_eq!(unpack(&pack(&parts)), Ok(parts));
    }

    #[test]
    fn cut_short_it_is_never_taken_for_the_whole(parts in parts(), at in any::<prop::sample::Index>()) {
        let bytes = pack(&parts);
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert_ne!(unpack(cut), Ok(parts));
    }

    #[test]
    fn no_bytes_make_it_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        drop(unpack(&bytes));
        let mut begun = HEAD.to_vec();
        begun.extend(bytes);
        drop(unpack(&begun));
    }
}

#[test]
fn a_length_is_not_believed() {
    let mut bytes = HEAD.to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.push(b'a');
    assert_eq!(unpack(&bytes), Err(UnpackPartsError::Short));
    let mut bytes = HEAD.to_vec();
    bytes.extend((LONGEST_NAME as u64 + 1).to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    assert_eq!(unpack(&bytes), Err(UnpackPartsError::TooMuch));
}

#[test]
fn a_part_stands_once() {
    let mut bytes = HEAD.to_vec();
    for _ in 0..2 {
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.push(b'a');
    }
    assert_eq!(unpack(&bytes), Err(UnpackPartsError::Order));
}
