//! What is cut out of a state, and what remains.

use super::*;

const STATE: &str = r#"{
  "version": 4,
  "serial": 7,
  "lineage": "l",
  "big": 123456789012345678901234567890.50,
  "resources": [
    {
      "mode": "managed",
      "type": "a",
      "name": "one",
      "instances": [
        { "index_key": 0, "attributes": { "n": 1e400 } },
        { "index_key": 1, "attributes": { "n": 2 } }
      ]
    },
    {
      "module": "module.net[\"x\"]",
      "mode": "managed",
      "type": "a",
      "name": "two",
      "instances": [ { "attributes": { "s": "[{,}]" } } ]
    },
    {
      "mode": "data",
      "type": "b",
      "name": "three",
      "instances": [
        { "index_key": "k", "attributes": {} }
      ]
    }
  ],
  "check_results": null
}
"#;

#[track_caller]
fn check(addresses: &[&str], removed: &[&str], cut: &[&str]) {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let removal = remove(STATE.as_bytes(), &addresses, 8).unwrap();
    assert_eq!(removal.removed, removed);
    let mut expected = STATE.replace("\"serial\": 7", "\"serial\": 8");
    for part in cut {
        assert!(expected.contains(part), "{part} is not in {expected}");
        expected = expected.replace(part, "");
    }
    assert_eq!(String::from_utf8(removal.body).unwrap(), expected);
}

const FIRST: &str = r#"{ "index_key": 0, "attributes": { "n": 1e400 } },
        "#;
const TWO: &str = r#"{
      "module": "module.net[\"x\"]",
      "mode": "managed",
      "type": "a",
      "name": "two",
      "instances": [ { "attributes": { "s": "[{,}]" } } ]
    },
    "#;
const LAST: &str = r#",
    {
      "mode": "data",
      "type": "b",
      "name": "three",
      "instances": [
        { "index_key": "k", "attributes": {} }
      ]
    }"#;

#[test]
fn the_rest_stays_byte_for_byte() {
    check(&["a.one[0]"], &["a.one[0]"], &[FIRST]);
    check(
        &["a.one[1]"],
        &["a.one[1]"],
        &[",\n        { \"index_key\": 1, \"attributes\": { \"n\": 2 } }"],
    );
    let two = r#"module.net["x"].a.two"#;
    check(&[two], &[two], &[TWO]);
    check(&["module.net"], &[two], &[TWO]);
    check(&["data.b.three"], &[r#"data.b.three["k"]"#], &[LAST]);
    check(
        &["a.one[0]", r#"data.b.three["k"]"#],
        &["a.one[0]", r#"data.b.three["k"]"#],
        &[FIRST, LAST],
    );
}

#[test]
fn nothing_is_left_of_an_emptied_list() {
    let all = ["a.one", "module.net", "data.b.three"].map(str::to_owned);
    let removal = remove(STATE.as_bytes(), &all, 8).unwrap();
    let text = String::from_utf8(removal.body).unwrap();
    assert!(text.contains("\"resources\": [],\n"), "{text}");
}

#[test]
fn an_unknown_address_removes_nothing() {
    let words = ["a.one".to_owned(), "module.a.two".to_owned()];
    let err = remove(STATE.as_bytes(), &words, 8).unwrap_err();
    let RemoveError::Unknown { address, near } = err else {
        panic!("{err}");
    };
    assert_eq!(address, "module.a.two");
    assert_eq!(near, [r#"module.net["x"].a.two"#]);
    // A module whose name only has the same beginning is another module.
    assert!(remove(STATE.as_bytes(), &["module.ne".to_owned()], 8).is_err());
}

#[test]
fn an_encrypted_state_is_left_alone() {
    let body =
        br#"{"serial":7,"lineage":"l","meta":{},"encrypted_data":"x","encryption_version":"v0"}"#;
    let err = remove(body, &["a.one".to_owned()], 8).unwrap_err();
    assert!(matches!(
        err,
        RemoveError::Read(ReadResourcesError::Encrypted)
    ));
}

#[test]
fn a_state_of_an_old_format_is_not_said_to_be_without_it() {
    let body = br#"{"version":3,"serial":7,"lineage":"l","modules":[{"path":["root"],"outputs":{},"resources":{"a.one":{"type":"a"}}}]}"#;
    let err = remove(body, &["a.one".to_owned()], 8).unwrap_err();
    assert!(
        matches!(err, RemoveError::OldFormat { format: 3 }),
        "{err:?}"
    );
}

#[test]
fn the_serial_is_the_one_that_was_asked_for() {
    let removal = remove(STATE.as_bytes(), &["module.net".to_owned()], 12).unwrap();
    assert_eq!(StateFacts::read(&removal.body).unwrap().serial, 12);
}

#[test]
fn what_is_shown_without_its_secret_is_named_so() {
    let shown = |address: &str| {
        address
            .replace("\"x\"", "\"(secret)\"")
            .replace("one[1]", "one[(secret)]")
    };
    let named = |word: &str| as_written(STATE.as_bytes(), &[word.to_owned()], shown).unwrap();
    assert_eq!(named("module.net[\"(secret)\"]"), ["module.net[\"x\"]"]);
    assert_eq!(
        named("module.net[\"(secret)\"].a.two"),
        ["module.net[\"x\"].a.two"]
    );
    assert_eq!(named("a.one[(secret)]"), ["a.one[1]"]);
    assert_eq!(named("a.one"), ["a.one"]);
    assert_eq!(named("b.(secret)"), ["b.(secret)"]);
    // It is ambiguous which of them is meant.
    let same = |address: &str| address.replace(['0', '1'], "(secret)");
    let word = "a.one[(secret)]".to_owned();
    let err = as_written(STATE.as_bytes(), &[word], same).unwrap_err();
    let said = "`a.one[(secret)]` is ambiguous: 2 objects in the state have this address";
    assert_eq!(err.to_string(), said);
}
