//! States as engines write them, and malformed ones.

use serde_json::json;

use super::*;

const WHOLE: &str = r#"{
  "version": 4,
  "terraform_version": "1.11.14",
  "serial": 7,
  "lineage": "2d2b",
  "outputs": {
    "name": {"value": "x", "type": "string"},
    "key": {"value": "k", "type": "string", "sensitive": true},
    "api_token": {"value": "t", "type": "string"}
  },
  "resources": [
    {
      "mode": "data", "type": "local_file", "name": "it", "provider": "provider[\"p\"]",
      "instances": [{"schema_version": 0, "attributes": {"id": "f"}}]
    },
    {
      "module": "module.a[\"k\"]", "mode": "managed", "type": "aws_vpc", "name": "main", "each": "list",
      "instances": [
        {"index_key": 0, "attributes": {"id": "v0", "big": 123456789012345678901234567890, "f": 0.10, "exp": 1e3}},
        {"index_key": "b", "status": "tainted", "deposed": "0a1b2c3d", "attributes": null, "unheard_of": [1]},
        {"attributes_flat": {"id": "v1", "tags.%": "0"}, "dependencies": ["data.local_file.it"],
         "sensitive_attributes": [[{"type": "get_attr", "value": "id"}]]}
      ]
    }
  ],
  "check_results": null,
  "new_field": {}
}"#;

#[test]
fn a_state_is_read() {
    let document = StateDocument::read(WHOLE.as_bytes()).unwrap();
    let seen: Vec<String> = document
        .instances
        .iter()
        .map(|it| {
            let tainted = if it.is_tainted { " tainted" } else { "" };
            format!("{}{tainted} {} {}", it.address, it.attributes, it.sensitive)
        })
        .collect();
    assert_eq!(
        seen,
        [
            r#"data.local_file.it {"id":"f"} null"#,
            r#"module.a["k"].aws_vpc.main[0] {"id":"v0","big":"123456789012345678901234567890","f":0.1,"exp":1000.0} null"#,
            r#"module.a["k"].aws_vpc.main["b"] (deposed 0a1b2c3d) tainted null null"#,
            r#"module.a["k"].aws_vpc.main {"id":"v1","tags.%":"0"} {"id":true}"#,
        ]
    );
    assert_eq!(document.resource_count(), 3);
    assert_eq!(document.outputs["name"].sensitive, Value::Null);
    assert_eq!(document.outputs["key"].sensitive, json!(true));
    assert_eq!(document.outputs["api_token"].sensitive, json!(true));
}

#[test]
fn values_that_know_their_own_type_are_bare() {
    let check = |value: Value, built_in: bool, expected: Value| {
        assert_eq!(bare(value, built_in), expected);
    };
    let object = json!({"input": {"value": {"a": "x"}, "type": ["object", {"a": "string"}]}});
    check(object, false, json!({"input": {"a": "x"}}));
    let text = json!({"input": {"value": "x", "type": "string"}});
    check(text.clone(), true, json!({"input": "x"}));
    check(text.clone(), false, text);
    let record = json!([{"value": "192.0.2.1", "type": "A"}]);
    check(record.clone(), true, record);
    let pair = json!({"value": 1, "type": ["list", "number"]});
    check(pair, false, json!(1));
}

#[track_caller]
fn check_opaque(body: &str, expected: &str) {
    let seen = StateDocument::read(body.as_bytes())
        .unwrap_err()
        .to_string();
    assert_eq!(seen, expected);
}

#[test]
fn what_cannot_be_known_says_why() {
    check_opaque(
        r#"{"serial":1,"lineage":"l","meta":{},"encrypted_data":"x","encryption_version":"v0"}"#,
        "it is encrypted by the engine, and only the engine has the key",
    );
    check_opaque(
        r#"{"version":3,"serial":1,"modules":[]}"#,
        "it has the old format 3, which engines read and never write",
    );
    check_opaque(
        r#"{"version":5}"#,
        "it has format 5, which is newer than this terrane",
    );
    check_opaque(
        r#"{"version":4,"resources":[1]}"#,
        "`resources` cannot be read: invalid type: integer `1`, expected struct RawResource at line 1 column 2",
    );
    let deep = format!(
        r#"{{"version":4,"outputs":{{"a":{{"value":{}{}}}}}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    check_opaque(&deep, "a value is nested more than 100 levels deep");
}

#[test]
fn numbers_keep_their_digits() {
    let check = |text: &str, expected: Value| {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(exact_value(&raw, 0).unwrap(), expected, "{text}");
    };
    check("0", json!(0));
    check("-0", json!(-0.0));
    check("18446744073709551615", json!(u64::MAX));
    check("18446744073709551616", json!("18446744073709551616"));
    check("0.1", json!(0.1));
    check("1.50", json!(1.5));
    check("1E+2", json!(100.0));
    check("0.12345678901234567890", json!("0.12345678901234567890"));
    check("1e400", json!("1e400"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in ".{0,200}") {
        drop(StateDocument::read(body.as_bytes()));
        drop(StateDocument::read(format!("{{\"version\":4,\"resources\":{body}}}").as_bytes()));
        drop(StateDocument::read(format!("{{\"version\":4,\"outputs\":{{\"a\":{{\"value\":{body}}}}}}}").as_bytes()));
    }
}
