//! Which states that were not uploaded are adopted.

use super::*;

fn state(serial: u64, lineage: &str, resources: &str) -> String {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"{lineage}","resources":[{resources}]}}"#)
}

#[track_caller]
fn check(head: Option<&str>, file: &str, expected: &str) {
    let seen = match adoption(head.map(str::as_bytes), file.as_bytes(), "new", false) {
        Adoption::Adopt(body) => String::from_utf8(body).unwrap(),
        Adoption::Nothing => "nothing".to_owned(),
        Adoption::KeepAside(why) => format!("aside: {why}"),
    };
    assert_eq!(seen, expected);
}

#[test]
fn nothing_is_known_yet() {
    check(None, &state(3, "l", "1"), &state(1, "l", "1"));
    check(None, &state(0, "", "1"), &state(1, "new", "1"));
}

#[test]
fn an_empty_head_accepts_any_lineage() {
    let head = state(4, "l", "");
    check(Some(&head), &state(1, "m", "1"), &state(5, "m", "1"));
    check(Some(&head), &state(0, "", "1"), &state(5, "new", "1"));
}

#[test]
fn a_newer_state_of_the_same_lineage() {
    let head = state(4, "l", "1");
    check(Some(&head), &state(9, "l", "2"), &state(9, "l", "2"));
    check(
        Some(&head),
        &state(4, "l", "2"),
        "aside: its serial 4 is not after the head's 4",
    );
    check(
        Some(&head),
        &state(9, "m", "2"),
        "aside: its lineage `m` is not the head's `l`",
    );
    check(
        Some(&head),
        &state(9, "l", ""),
        "aside: it has no resources, but the plan does not remove them all",
    );
}

#[test]
fn twice_is_once() {
    let head = state(4, "l", "1");
    check(Some(&head), &head, "nothing");
    let first = state(0, "", "1");
    check(Some(&state(1, "new", "1")), &first, "nothing");
}

#[test]
fn what_cannot_be_compared() {
    let sealed = r#"{"serial":9,"lineage":"l","encrypted_data":"eA==","encryption_version":"v0"}"#;
    check(
        Some(&state(4, "l", "1")),
        sealed,
        "aside: it is encrypted by the engine, so it cannot be compared with the head",
    );
    check(None, "", "aside: it is not a state: this is not JSON");
}

#[test]
fn a_plan_that_takes_everything_away_may() {
    let (head, file) = (state(4, "l", "1"), state(5, "l", ""));
    let seen = adoption(Some(head.as_bytes()), file.as_bytes(), "new", true);
    assert_eq!(seen, Adoption::Adopt(file.into_bytes()));
}
