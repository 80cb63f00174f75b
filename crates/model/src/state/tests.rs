//! What is read from a state, and what stays unchanged.

use super::*;

#[track_caller]
fn check(body: &str, expected: &str) {
    let seen = match StateFacts::read(body.as_bytes()) {
        Ok(facts) => format!(
            "{} {:?} {}",
            facts.serial,
            facts.lineage,
            facts.contents.as_str()
        ),
        Err(err) => format!("error: {err}"),
    };
    assert_eq!(seen, expected);
}

#[test]
fn what_a_state_says() {
    check(
        r#"{"version":4,"serial":7,"lineage":"l","outputs":{},"resources":[{"x":1e400}]}"#,
        r#"7 "l" resources"#,
    );
    check(
        r#"{"version":4,"serial":7,"lineage":"l","resources":[ ]}"#,
        r#"7 "l" nothing"#,
    );
    check(
        r#"{"version":4,"serial":7,"lineage":"l","resources":null}"#,
        r#"7 "l" nothing"#,
    );
    check(
        r#"{"version":4,"lineage":"\u0041","outputs":{"a":1}}"#,
        r#"0 "A" outputs_only"#,
    );
    check(
        r#"{"serial":7,"lineage":"l","meta":{},"encrypted_data":"eA==","encryption_version":"v0"}"#,
        r#"7 "l" encrypted"#,
    );
}

#[test]
fn what_is_not_a_state() {
    check("", "error: this is not JSON");
    check(r#"{"version":4"#, "error: this is not JSON");
    check("<html>", "error: this is not a JSON object");
    check("[4]", "error: this is not a JSON object");
    check(
        "{}",
        "error: this has neither `version` nor `encryption_version`, so it is no state",
    );
    check(
        r#"{"ID":"1","Operation":"OperationTypeApply","Version":"1.11.4"}"#,
        "error: this is a lock's description, not a state: check the backend's update and lock methods",
    );
    check(
        r#"{"version":"1.11.4"}"#,
        "error: `version` is not a number",
    );
    let serial = "error: `serial` is not a number from 0 to 9223372036854775807";
    check(r#"{"version":4,"serial":-1}"#, serial);
    check(r#"{"version":4,"serial":9223372036854775808}"#, serial);
    check(r#"{"version":4,"serial":1.5}"#, serial);
    check(
        r#"{"version":4,"lineage":7}"#,
        "error: `lineage` is not a string, or has a NUL in it",
    );
    check(
        r#"{"version":4,"resources":{}}"#,
        "error: `resources` is not a list",
    );
    check(
        r#"{"version":4,"outputs":[]}"#,
        "error: `outputs` is not an object of outputs",
    );
}

#[test]
fn deep_nesting_costs_nothing() {
    let deep = format!(
        r#"{{"version":4,"resources":{}{}}}"#,
        "[".repeat(9000),
        "]".repeat(9000)
    );
    check(&deep, r#"0 "" resources"#);
}

#[test]
fn outputs_keep_their_text_and_their_secrets() {
    let body = br#"{"version":4,"outputs":{
        "big":{"value":123456789012345678901234567890,"type":"number"},
        "key":{"value":"hunter2","type":"string","sensitive":true}}}"#;
    insta::assert_snapshot!(format!("{:#?}", outputs(body).unwrap()), @r#"
    {
        "big": Output("number": 123456789012345678901234567890),
        "key": Output("string": [secret]),
    }
    "#);
    assert_eq!(outputs(body).unwrap()["key"].value.get(), r#""hunter2""#);
    assert!(outputs(br#"{"version":4}"#).unwrap().is_empty());
}

#[test]
fn only_the_identity_changes() {
    let check = |body: &str, expected: &str| {
        let seen = with_identity(body.as_bytes(), 8, "new").unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), expected);
    };
    check(
        r#"{ "version": 4, "serial": 1234567, "lineage": "", "resources": [1.50] }"#,
        r#"{ "version": 4, "serial": 8, "lineage": "new", "resources": [1.50] }"#,
    );
    check(
        r#"{"lineage":"l","version":4,"serial":1}"#,
        r#"{"lineage":"new","version":4,"serial":8}"#,
    );
    check(
        r#"{"version":4}"#,
        r#"{"serial":8,"lineage":"new","version":4}"#,
    );
}
