//! The exact texts for changes.

use jiff::Timestamp;

use super::*;

fn seal() -> Seal {
    Seal {
        source: "3f9c1e2aaaa".to_owned(),
        head: Some(head(9, 17, "a1b2c3d4-0000")),
        inputs: "one".to_owned(),
        each_input: each("1", Some("2")),
        engine: "tofu 1.11.4".to_owned(),
        lock_file: Some("0123456789".to_owned()),
    }
}

fn each(x: &str, y: Option<&str>) -> BTreeMap<String, String> {
    let both = [("x", Some(x)), ("y", y)].into_iter();
    both.filter_map(|(name, it)| Some((name.to_owned(), it?.to_owned())))
        .collect()
}

fn head(version: i64, serial: i64, lineage: &str) -> SealedHead {
    SealedHead {
        version,
        serial,
        lineage: lineage.to_owned(),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Seal), expected: &str) {
    let mut now = seal();
    change(&mut now);
    assert_eq!(words(&moved(&seal(), &now)), expected);
}

#[test]
fn what_is_as_it_was_has_not_moved() {
    check(|_| {}, "");
}

#[test]
fn each_part_is_named_with_from_and_to() {
    check(
        |now| now.head = Some(head(10, 18, "a1b2c3d4-0000")),
        "the state moved after it was made (serial 17, now 18)",
    );
    check(
        |now| now.head = None,
        "the state moved after it was made (serial 17, now no state)",
    );
    check(
        |now| now.head = Some(head(11, 17, "a1b2c3d4-0000")),
        "the state moved after it was made (version 9, now 11; both serial 17)",
    );
    check(
        |now| now.head = Some(head(10, 1, "ffffffff-0000")),
        "the state was replaced after it was made (lineage a1b2c3d, now fffffff)",
    );
    check(
        |now| now.source = "77ab310bbbb".to_owned(),
        "the source changed after it was made (3f9c1e2, now 77ab310)",
    );
    check(
        |now| {
            now.inputs = "two".to_owned();
            now.each_input = each("7", Some("2"));
        },
        "the value of its input `x` changed after it was made",
    );
    check(
        |now| {
            now.inputs = "two".to_owned();
            now.each_input = each("7", None);
        },
        "the values of its inputs `x`, `y` changed after it was made",
    );
    check(
        |now| now.engine = "tofu 1.11.14".to_owned(),
        "the engine changed after it was made (tofu 1.11.4, now tofu 1.11.14)",
    );
    check(
        |now| now.lock_file = None,
        "the provider lock file changed after it was made (0123456, now none)",
    );
}

#[test]
fn all_that_moved_is_said_at_once() {
    check(
        |now| {
            now.inputs = "two".to_owned();
            now.each_input = each("1", Some("7"));
            now.engine = "tofu 1.11.14".to_owned();
        },
        "the value of its input `y` changed after it was made; \
         the engine changed after it was made (tofu 1.11.4, now tofu 1.11.14)",
    );
}

#[test]
fn who_wrote_is_said_as_far_as_it_is_known() {
    let at = Timestamp::from_second(1_000).unwrap();
    let written = VersionAuthor {
        serial: 18,
        run: Some(RunId(40)),
        commit: Some("77ab310bbbb".to_owned()),
        by: Some(Actor::named("ci")),
        at,
    };
    let check = |written: &VersionAuthor, after: i64, expected: &str| {
        let now = Timestamp::from_second(1_000 + after).unwrap();
        assert_eq!(written.words(now), expected);
    };
    check(
        &written,
        180,
        "serial 18 was written by run r40 (commit 77ab310, requested by `ci`) 3 minutes ago",
    );
    let by_hand = VersionAuthor {
        run: None,
        commit: None,
        ..written.clone()
    };
    check(&by_hand, 3_600, "serial 18 was written by `ci` 1 hour ago");
    let unknown = VersionAuthor {
        by: None,
        ..by_hand.clone()
    };
    check(&unknown, 30, "serial 18 was written less than a minute ago");
}

/// Plans of an older terrane must be readable after an upgrade.
#[test]
fn a_seal_without_a_lock_file_is_read() {
    let old = r#"{"source":"s","head":null,"inputs":"i","engine":"tofu 1.11.4"}"#;
    let seal: Seal = serde_json::from_str(old).unwrap();
    assert_eq!(seal.lock_file, None);
}

/// For a plan that only has a combined digest, the message can only state that inputs changed.
#[test]
fn inputs_that_nobody_can_tell_apart_are_not_named() {
    let old = Seal {
        each_input: BTreeMap::new(),
        ..seal()
    };
    let now = Seal {
        inputs: "two".to_owned(),
        ..seal()
    };
    let said = words(&moved(&old, &now));
    assert_eq!(said, "its input values changed after it was made");
}
