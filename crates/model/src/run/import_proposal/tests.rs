//! Streams of dead engines, and the resulting proposals.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::run::engine_event::EventReader;

fn hook(kind: &str, second: u32, address: &str, action: &str, id: Option<&str>) -> String {
    let resource_type = address.rsplit('.').nth(1).unwrap();
    let mut event = json!({
        "@level": "info",
        "@message": format!("{address}: {kind}"),
        "@timestamp": format!("2026-03-01T10:00:{second:02}.000000Z"),
        "type": kind,
        "hook": {
            "resource": { "addr": address, "module": "", "resource_type": resource_type },
            "action": action,
        },
    });
    if let Some(id) = id {
        event["hook"]["id_key"] = json!("id");
        event["hook"]["id_value"] = json!(id);
    }
    format!("{event}\n")
}

fn done(second: u32, address: &str, action: &str, id: Option<&str>) -> String {
    hook("apply_start", second, address, action, None)
        + &hook("apply_complete", second, address, action, id)
}

fn document(objects: &[(&str, &str)]) -> StateDocument {
    let resources: Vec<Value> = objects
        .iter()
        .map(|(address, id)| {
            let (kind, name) = address.split_once('.').unwrap();
            json!({
                "mode": "managed", "type": kind, "name": name,
                "instances": [{ "attributes": { "id": id } }],
            })
        })
        .collect();
    let state = json!({ "version": 4, "serial": 3, "lineage": "a", "resources": resources });
    StateDocument::read(state.to_string().as_bytes()).unwrap()
}

fn seen(stream: &[String], stored: StateAfterRun<'_>, died: bool) -> String {
    let events = EventReader::read_all(stream.concat().as_bytes());
    left(&events, stored, died).map_or_else(
        || "nothing".to_owned(),
        |left| serde_json::to_string_pretty(&left).unwrap(),
    )
}

#[test]
fn what_no_state_knows_is_imported_by_its_id() {
    let stream = [
        done(1, "thing_file.stored", "create", Some("one")),
        done(2, "thing_file.late", "create", Some("two")),
        done(3, "random_pet.name", "create", Some("calm-fox")),
        done(4, "terraform_data.note", "create", Some("77ab")),
        done(5, "thing_file.nameless", "create", None),
        done(5, "thing_file.private", "create", Some("files/(secret)")),
        hook("apply_start", 6, "thing_file.slow", "create", None),
    ];
    let document = document(&[("thing_file.stored", "one")]);
    let stored = StateAfterRun {
        serial: Some(3),
        document: Some(&document),
        ..StateAfterRun::default()
    };
    let events = EventReader::read_all(stream.concat().as_bytes());
    let left = left(&events, stored, true).unwrap();
    assert_eq!(left.importable().len(), 2);
    assert_snapshot!(left.blocks(), @r#"
    # id from the event stream, check the provider's import format

    # cannot be imported: random_pet.name

    # cannot be imported: terraform_data.note

    import {
      to = thing_file.late
      id = "two"
    }

    # the stream names no id: thing_file.nameless

    # its id holds a secret: put it in
    # import {
    #   to = thing_file.private
    #   id = ""
    # }
    "#);
    let underway: Vec<&str> = left.underway.iter().map(|it| it.address.as_str()).collect();
    assert_eq!(underway, ["thing_file.slow"]);
}

#[test]
fn what_was_destroyed_goes_out_of_the_state() {
    let stream = [
        done(1, "thing_file.old", "delete", None),
        done(1, "thing_file.moved", "delete", None),
        done(2, "thing_file.moved", "create", Some("new")),
        done(3, "thing_file.forgotten", "delete", None),
    ];
    let document = document(&[("thing_file.old", "a"), ("thing_file.moved", "was")]);
    let stored = StateAfterRun {
        serial: Some(3),
        document: Some(&document),
        ..StateAfterRun::default()
    };
    assert_snapshot!(seen(&stream, stored, false), @r#"
    {
      "serial": 3,
      "made": [
        {
          "address": "thing_file.moved",
          "import": {
            "how": "by_id",
            "id": "new"
          },
          "replaces": true
        }
      ],
      "changed": [],
      "gone": [
        "thing_file.old"
      ],
      "underway": [],
      "kept_aside": false
    }
    "#);
}

#[test]
fn a_state_that_says_it_all_leaves_nothing() {
    let stream = [
        done(1, "thing_file.a", "create", Some("one")),
        done(1, "thing_file.b", "update", Some("two")),
        hook("apply_start", 2, "thing_file.c", "create", None),
        hook("apply_errored", 2, "thing_file.c", "create", None),
    ];
    let document = document(&[("thing_file.a", "one"), ("thing_file.b", "two")]);
    let stored = StateAfterRun {
        document: Some(&document),
        ..StateAfterRun::default()
    };
    assert_snapshot!(seen(&stream, stored, false), @"nothing");
}

#[test]
fn of_an_encrypted_state_the_moment_tells() {
    let stream = [
        done(1, "thing_file.before", "create", Some("one")),
        done(8, "thing_file.after", "create", Some("two")),
        done(8, "thing_file.changed", "update", Some("three")),
        done(1, "thing_file.gone", "delete", None),
    ];
    let stored = StateAfterRun {
        at: Some("2026-03-01T10:00:05Z".parse().unwrap()),
        is_opaque: true,
        ..StateAfterRun::default()
    };
    let events = EventReader::read_all(stream.concat().as_bytes());
    let left = left(&events, stored, true).unwrap();
    let made: Vec<&str> = left.made.iter().map(|it| it.address.as_str()).collect();
    assert_eq!(made, ["thing_file.after"]);
    assert_eq!(left.changed, ["thing_file.changed"]);
    assert_eq!(left.gone, Vec::<String>::new());
}

#[test]
fn an_id_is_written_as_the_text_it_is() {
    #[track_caller]
    fn check(id: &str, written: &str) {
        assert_eq!(quoted(id), written);
        let body: hcl_edit::structure::Body = format!("id = {written}\n").parse().unwrap();
        let value = &body.get_attribute("id").unwrap().value;
        assert_eq!(value.as_str(), Some(id));
    }
    check("plain/id", r#""plain/id""#);
    check(r#"a "b" \c"#, r#""a \"b\" \\c""#);
    check("$100 and 5%", r#""$100 and 5%""#);
    assert_eq!(quoted("${a} %{b}"), r#""$${a} %%{b}""#);
    assert_eq!(quoted("a\nb"), r#""a\nb""#);
    assert_eq!(quoted("a\u{1b}b"), r#""a\u001bb""#);
}
