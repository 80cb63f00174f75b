//! Pairs of states and their expected differences.

use serde_json::json;

use super::*;

fn document(resources: &Value, outputs: &Value) -> StateDocument {
    let state = json!({"version": 4, "serial": 1, "resources": resources, "outputs": outputs});
    StateDocument::read(state.to_string().as_bytes()).unwrap()
}

fn vm(name: &str, attributes: &Value) -> Value {
    json!({"mode": "managed", "type": "vm", "name": name, "instances": [{"attributes": attributes}]})
}

/// One line per change. Digests are the lengths of the values.
fn said(before: &StateDocument, after: &StateDocument) -> String {
    let digest = |value: &Value| value.to_string().len().to_string();
    let diff = diff(before, after, SensitiveDisplay::Masked(&digest));
    let mut lines = Vec::new();
    for change in &diff.changes {
        lines.push(format!("{:?} {}", change.action, change.address));
        for it in &change.attributes {
            lines.push(format!("  {} {:?} {:?}", it.path, it.before, it.after));
        }
    }
    for (name, output) in &diff.outputs {
        lines.push(format!("{name} {:?} {:?}", output.before, output.after));
    }
    lines.join("\n")
}

#[test]
fn what_differs() {
    let before = document(
        &json!([
            vm("a", &json!({"id": "1", "size": 1, "password": "old"})),
            vm("b", &json!({"id": "2"})),
            vm("c", &json!({"id": "3"})),
            vm("same", &json!({"id": "4", "note": null})),
        ]),
        &json!({"x": {"value": 1}, "gone": {"value": 1}}),
    );
    let after = document(
        &json!([
            vm(
                "a",
                &json!({"id": "1", "size": 2, "password": "longer", "cmd": "run --with=longer"})
            ),
            vm("b", &json!({"id": "20"})),
            vm("d", &json!({"id": "5"})),
            vm("same", &json!({"id": "4"})),
        ]),
        &json!({"x": {"value": 1}, "new": {"value": "s", "sensitive": true}}),
    );
    insta::assert_snapshot!(said(&before, &after), @r#"
    Update vm.a
      cmd Absent Sensitive
      password Masked { digest: "5" } Masked { digest: "8" }
      size Known(Number(1)) Known(Number(2))
    DeleteCreate vm.b
      id Known(String("2")) Known(String("20"))
    Create vm.d
      id Absent Known(String("5"))
    Delete vm.c
      id Known(String("3")) Absent
    gone Known(Number(1)) Absent
    new Absent Masked { digest: "3" }
    "#);
    assert_eq!(said(&after, &after), "");
}
