//! Plans recorded from real engines, parsed into our types.

use serde_json::json;

use super::*;

macro_rules! of_each_engine {
    ($story:literal) => {
        [
            include_str!(concat!(
                "../../fixtures/plan/tofu-1.11.14.",
                $story,
                ".json"
            )),
            include_str!(concat!(
                "../../fixtures/plan/terraform-1.11.4.",
                $story,
                ".json"
            )),
            include_str!(concat!(
                "../../fixtures/plan/terraform-1.15.5.",
                $story,
                ".json"
            )),
        ]
    };
}

/// The plan as lines, comparable with the fixture's source.
fn outline(json: &str) -> String {
    let plan = parse(json.as_bytes()).unwrap();
    let mut lines = Vec::new();
    for change in plan.changes.iter().chain(&plan.drift) {
        lines.push(format!("{:?} {}", change.action, change.address));
        for (label, value) in [
            ("moved from", &change.moved_from),
            ("importing", &change.importing),
            ("reason", &change.reason),
        ] {
            lines.extend(value.iter().map(|value| format!("  {label} {value}")));
        }
        lines.extend(
            change
                .replace_because
                .iter()
                .map(|path| format!("  because of {path}")),
        );
        for attribute in &change.attributes {
            lines.push(format!(
                "    {}: {} -> {}{}",
                attribute.path,
                show(&attribute.before),
                show(&attribute.after),
                if attribute.forces_replacement {
                    " !"
                } else {
                    ""
                },
            ));
        }
        lines.push(format!("    ({} unchanged)", change.unchanged));
    }
    for (name, output) in &plan.outputs {
        let (before, after) = (show(&output.before), show(&output.after));
        lines.push(format!(
            "output {name} {:?}: {before} -> {after}",
            output.action
        ));
    }
    lines.push(format!("{:?}", plan.counts()));
    lines.join("\n")
}

fn show(value: &PlanValue) -> String {
    match value {
        PlanValue::Absent => "-".to_owned(),
        PlanValue::Unknown => "?".to_owned(),
        PlanValue::Sensitive => "***".to_owned(),
        // Ids differ between recordings.
        PlanValue::Known(Value::String(text)) if text.len() == 36 => "ID".to_owned(),
        PlanValue::Masked { digest } => format!("#{digest}"),
        PlanValue::Known(value) => crate::base::exact_number::write(value),
        PlanValue::KnownAfter { stacks } => format!("known after {stacks:?}"),
    }
}

#[test]
fn creation() {
    for json in of_each_engine!("create") {
        insta::allow_duplicates! { insta::assert_snapshot!(outline(json), @r#"
        Create terraform_data.before
            id: - -> ?
            triggers_replace: - -> 1
            (0 unchanged)
        Create terraform_data.deleted
            id: - -> ?
            input: - -> "goes"
            output: - -> ?
            (0 unchanged)
        Create terraform_data.forgotten
            id: - -> ?
            input: - -> "left alone"
            output: - -> ?
            (0 unchanged)
        Create terraform_data.old_name
            id: - -> ?
            input: - -> "moves"
            output: - -> ?
            (0 unchanged)
        Create terraform_data.replaced
            id: - -> ?
            input: - -> "stays"
            output: - -> ?
            triggers_replace.version: - -> 1
            (0 unchanged)
        Create terraform_data.same
            id: - -> ?
            input: - -> "same"
            output: - -> ?
            (0 unchanged)
        Create terraform_data.server
            id: - -> ?
            input.motd: - -> "hello\nfirst line\nbye\n"
            input.name: - -> "a"
            input.password: - -> ***
            input.ports[0]: - -> 80
            input.ports[1]: - -> 443
            input.ports[2]: - -> 8080
            input.size: - -> 1
            input.tags["a.b/c"]: - -> "x"
            input.tags.env: - -> "dev"
            output: - -> ?
            (0 unchanged)
        Create module.network.module.subnet["a"].terraform_data.subnet
            id: - -> ?
            input.name: - -> "a"
            output: - -> ?
            (0 unchanged)
        Create module.network.module.subnet["b"].terraform_data.subnet
            id: - -> ?
            input.name: - -> "b"
            output: - -> ?
            (0 unchanged)
        output dropped Create: - -> "was here"
        output id Create: - -> ?
        output name Create: - -> ?
        output password Create: - -> ***
        PlanCounts { create: 9, update: 0, replace: 0, delete: 0, import: 0, moved: 0, forget: 0, outputs: 4, drift: 0 }
        "#); }
    }
}

#[test]
fn all_kinds_of_change() {
    for json in of_each_engine!("change") {
        insta::allow_duplicates! { insta::assert_snapshot!(outline(json), @r#"
        CreateDelete terraform_data.before
          reason replace_because_cannot_update
          because of triggers_replace
            id: ID -> ?
            triggers_replace: 1 -> 2 !
            (0 unchanged)
        Delete terraform_data.deleted
          reason delete_because_no_resource_config
            id: ID -> -
            input: "goes" -> -
            output: "goes" -> -
            (0 unchanged)
        Forget terraform_data.forgotten
          reason delete_because_no_resource_config
            (3 unchanged)
        NoOp terraform_data.imported
          importing an-id
            (1 unchanged)
        NoOp terraform_data.new_name
          moved from terraform_data.old_name
            (3 unchanged)
        DeleteCreate terraform_data.replaced
          reason replace_because_cannot_update
          because of triggers_replace
            id: ID -> ?
            output: "stays" -> ?
            triggers_replace.version: 1 -> 2 !
            (1 unchanged)
        Update terraform_data.server
            input.motd: "hello\nfirst line\nbye\n" -> "hello\nsecond line\nbye\n"
            input.password: *** -> ***
            input.ports[0]: - -> 22
            input.size: 1 -> 2
            input.tags["a.b/c"]: "x" -> "y"
            input.tags.env: "dev" -> "prod"
            input.tags.new: - -> "n"
            output: {"gone":null,"motd":"hello\nfirst line\nbye\n","name":"a","password":"(secret)","ports":[80,443,8080],"size":1,"tags":{"a.b/c":"x","env":"dev"}} -> ?
            (5 unchanged)
        Delete module.network.module.subnet["b"].terraform_data.subnet
          reason delete_because_no_module
            id: ID -> -
            input.name: "b" -> -
            output.name: "b" -> -
            (0 unchanged)
        Create module.network.module.subnet["c"].terraform_data.subnet
            id: - -> ?
            input.name: - -> "c"
            output: - -> ?
            (0 unchanged)
        output added Create: - -> ["x"]
        output dropped Delete: "was here" -> -
        output id Update: ID -> ?
        output name Update: "a" -> ?
        output password Update: *** -> ***
        PlanCounts { create: 1, update: 1, replace: 2, delete: 2, import: 1, moved: 1, forget: 1, outputs: 5, drift: 0 }
        "#); }
    }
}

#[test]
fn destruction() {
    for json in of_each_engine!("destroy") {
        insta::allow_duplicates! { insta::assert_snapshot!(outline(json), @r#"
        Delete terraform_data.before
            id: ID -> -
            triggers_replace: 1 -> -
            (0 unchanged)
        Delete terraform_data.deleted
            id: ID -> -
            input: "goes" -> -
            output: "goes" -> -
            (0 unchanged)
        Delete terraform_data.forgotten
            id: ID -> -
            input: "left alone" -> -
            output: "left alone" -> -
            (0 unchanged)
        Delete terraform_data.old_name
            id: ID -> -
            input: "moves" -> -
            output: "moves" -> -
            (0 unchanged)
        Delete terraform_data.replaced
            id: ID -> -
            input: "stays" -> -
            output: "stays" -> -
            triggers_replace.version: 1 -> -
            (0 unchanged)
        Delete terraform_data.same
            id: ID -> -
            input: "same" -> -
            output: "same" -> -
            (0 unchanged)
        Delete terraform_data.server
            id: ID -> -
            input.motd: "hello\nfirst line\nbye\n" -> -
            input.name: "a" -> -
            input.password: *** -> -
            input.ports[0]: 80 -> -
            input.ports[1]: 443 -> -
            input.ports[2]: 8080 -> -
            input.size: 1 -> -
            input.tags["a.b/c"]: "x" -> -
            input.tags.env: "dev" -> -
            output.motd: "hello\nfirst line\nbye\n" -> -
            output.name: "a" -> -
            output.password: *** -> -
            output.ports[0]: 80 -> -
            output.ports[1]: 443 -> -
            output.ports[2]: 8080 -> -
            output.size: 1 -> -
            output.tags["a.b/c"]: "x" -> -
            output.tags.env: "dev" -> -
            (0 unchanged)
        Delete module.network.module.subnet["a"].terraform_data.subnet
            id: ID -> -
            input.name: "a" -> -
            output.name: "a" -> -
            (0 unchanged)
        Delete module.network.module.subnet["b"].terraform_data.subnet
            id: ID -> -
            input.name: "b" -> -
            output.name: "b" -> -
            (0 unchanged)
        output dropped Delete: "was here" -> -
        output id Delete: ID -> -
        output name Delete: "a" -> -
        output password Delete: *** -> -
        PlanCounts { create: 0, update: 0, replace: 0, delete: 9, import: 0, moved: 0, forget: 0, outputs: 4, drift: 0 }
        "#); }
    }
}

#[test]
fn no_sensitive_value_gets_into_a_plan() {
    for json in of_each_engine!("change") {
        assert!(json.contains("correct-horse") && json.contains("battery-staple"));
        let plan = serde_json::to_string(&parse(json.as_bytes()).unwrap()).unwrap();
        assert!(!plan.contains("correct-horse") && !plan.contains("battery-staple"));
    }
}

/// One resource's change from these values and marks, as `path: before -> after` lines.
#[track_caller]
fn check(delta: &Value, expected: &str) {
    let plan = json!({"format_version": "1.2", "resource_changes": [
        {"address": "a.b", "mode": "managed", "type": "a", "change": delta},
    ]});
    let plan = parse(plan.to_string().as_bytes()).unwrap();
    let lines: Vec<String> = plan.changes[0]
        .attributes
        .iter()
        .map(|it| format!("{}: {} -> {}", it.path, show(&it.before), show(&it.after)))
        .collect();
    assert_eq!(lines.join("\n"), expected);
}

fn update(before: &Value, after: &Value) -> Value {
    json!({"actions": ["update"], "before": before, "after": after})
}

#[test]
fn lists_are_aligned() {
    check(
        &update(&json!({"a": [1, 2, 3]}), &json!({"a": [1, 9, 2, 3]})),
        "a[1]: - -> 9",
    );
    check(
        &update(&json!({"a": [1, 2, 3]}), &json!({"a": [1, 3]})),
        "a[1]: 2 -> -",
    );
    check(
        &update(&json!({"a": [1, 2, 3]}), &json!({"a": [1, 5, 3]})),
        "a[1]: 2 -> 5",
    );
    check(
        &update(
            &json!({"a": [{"p": 1}, {"p": 2}]}),
            &json!({"a": [{"p": 0}, {"p": 1}, {"p": 3}]}),
        ),
        "a[0].p: - -> 0\na[2].p: 2 -> 3",
    );
    check(
        &update(&json!({"a": [1]}), &json!({"a": []})),
        "a[0]: 1 -> -",
    );
}

#[test]
fn paths_and_shapes() {
    check(
        &update(
            &json!({"t": {"a.b": 1, "é": 2}}),
            &json!({"t": {"a.b": 2, "é": 3}}),
        ),
        "t[\"a.b\"]: 1 -> 2\nt.é: 2 -> 3",
    );
    check(
        &update(&json!({"a": "x"}), &json!({"a": {"b": 1}})),
        "a: \"x\" -> {\"b\":1}",
    );
    check(
        &update(&json!({"a": null}), &json!({"a": {}})),
        "a: - -> {}",
    );
    check(&update(&json!({"a": null}), &json!({})), "");
}

#[test]
fn numbers_differ_to_their_last_digit() {
    let plan = r#"{"format_version":"1.2","output_changes":{"n":{"actions":["update"],
        "before":12345678901234567890123,"after":12345678901234567890124,"after_unknown":false}}}"#;
    insta::assert_snapshot!(outline(plan), @r#"
    output n Update: 12345678901234567890123 -> 12345678901234567890124
    PlanCounts { create: 0, update: 0, replace: 0, delete: 0, import: 0, moved: 0, forget: 0, outputs: 1, drift: 0 }
    "#);
    let digest = |value: &Value| value.to_string();
    let of = |plan: &str| format!("{:?}", difference(plan.as_bytes(), false, &digest).unwrap());
    assert_ne!(
        of(plan),
        of(&plan.replace("890124", "890125")),
        "another plan was taken for the one that was approved"
    );
}

#[test]
fn unknown_inside_of_known() {
    check(
        &json!({"actions": ["update"], "before": {"a": {"x": 1, "y": [1, 2]}}, "after": {"a": {"x": 1, "y": [1, null]}},
            "after_unknown": {"a": {"y": [false, true]}}}),
        "a.y[1]: 2 -> ?",
    );
    check(
        &json!({"actions": ["create"], "before": null, "after": {}, "after_unknown": {"a": true, "b": {"c": true}}}),
        "a: - -> ?\nb.c: - -> ?",
    );
    check(
        &json!({"actions": ["update"], "before": {"a": {"x": 1}}, "after": {}, "after_unknown": {"a": true}}),
        "a: {\"x\":1} -> ?",
    );
}

#[test]
fn sensitive_on_either_side_hides_both() {
    check(
        &json!({"actions": ["update"], "before": {"a": 12, "b": {"c": true}}, "after": {"a": 12, "b": {"c": false}},
            "before_sensitive": {"a": true}, "after_sensitive": {"b": true}}),
        "a: *** -> ***\nb: *** -> ***",
    );
    check(
        &json!({"actions": ["update"], "before": {"a": {"p": "long-secret", "q": 1}}, "after": {}, "after_unknown": {"a": true},
            "before_sensitive": {"a": {"p": true}}}),
        "a: {\"p\":{\"\\u0000words\":\"(sensitive)\"},\"q\":1} -> ?",
    );
    check(
        &json!({"actions": ["update"], "before": {"a": "long-secret", "url": "x"}, "after": {"a": "long-secret", "url": "https://u:long-secret@h"},
            "before_sensitive": {"a": true}, "after_sensitive": {"a": true}}),
        "url: \"x\" -> ***",
    );
}

#[test]
fn drift_and_leftovers() {
    let resource = |address: &str, actions: &[&str]| {
        json!({"address": address, "mode": "managed", "type": "a", "deposed": "f00",
            "change": {"actions": actions, "before": {"x": 1}, "after": {"x": 2}}})
    };
    let mut read = resource("data.a.read", &["read"]);
    read["mode"] = json!("data");
    let mut passing = resource("ephemeral.a.passing", &["open"]);
    passing["mode"] = json!("ephemeral");
    let plan = json!({"format_version": "1.2",
        "resource_changes": [read, passing, resource("a.forgotten", &["create", "forget"])],
        "resource_drift": [resource("a.drifted", &["update"]), resource("a.same", &["no-op"])],
    });
    insta::assert_snapshot!(outline(&plan.to_string()), @r"
    Create a.forgotten
      reason deposed f00
        x: 1 -> 2
        (0 unchanged)
    Update a.drifted
      reason deposed f00
        x: 1 -> 2
        (0 unchanged)
    PlanCounts { create: 1, update: 0, replace: 0, delete: 0, import: 0, moved: 0, forget: 0, outputs: 0, drift: 0 }
    ");
}

#[test]
fn in_a_refresh_only_plan_drift_is_a_change() {
    let drifted = json!({"address": "a.drifted", "mode": "managed", "type": "a",
        "change": {"actions": ["update"], "before": {"x": 1}, "after": {"x": 2}}});
    let read = |drift: Value| {
        let json = json!({"format_version": "1.2", "resource_drift": drift}).to_string();
        parse(json.as_bytes()).unwrap()
    };
    let ordinary = read(json!([drifted]));
    assert!(ordinary.is_empty(), "an ordinary plan only mentions drift");
    let refreshed = Plan {
        refresh_only: true,
        ..ordinary
    };
    assert_eq!(refreshed.counts().drift, 1);
    assert!(!refreshed.is_empty(), "nobody is told of what drifted");
    assert!(!refreshed.destroys());
    let quiet = Plan {
        refresh_only: true,
        ..read(json!([]))
    };
    assert!(quiet.is_empty());
}

#[test]
fn what_drifted_is_part_of_the_difference_of_a_refresh_only_plan() {
    let plan = |now: u8| {
        let drifted = json!({"address": "a.drifted", "mode": "managed", "type": "a",
            "change": {"actions": ["update"], "before": {"x": 1}, "after": {"x": now}}});
        json!({"format_version": "1.2", "resource_drift": [drifted]}).to_string()
    };
    let of = |now: u8, refresh_only: bool| {
        let digest = |value: &Value| value.to_string();
        format!(
            "{:?}",
            difference(plan(now).as_bytes(), refresh_only, &digest).unwrap()
        )
    };
    assert_eq!(of(2, false), of(3, false));
    assert_ne!(of(2, true), of(3, true));
}

#[test]
fn what_is_not_a_plan_is_refused() {
    let refusal = |json: &str| parse(json.as_bytes()).unwrap_err().to_string();
    let unknown = r#"{"format_version":"1.0","resource_changes":[{"address":"a.b","mode":"managed","change":{"actions":["paint"]}}]}"#;
    insta::assert_snapshot!([refusal("{"), refusal(r#"{"format_version":"2.0"}"#), refusal(unknown)].join("\n"), @r"
    cannot parse the engine's plan as plan JSON
    the engine's plan has format version `2.0`: this terrane reads version 1
    cannot read the engine's plan: the action `paint` for `a.b` is unknown to this terrane
    ");
}

/// Plans are stored with runs and outlive the code that wrote them.
#[test]
fn a_plan_keeps_its_stored_form() {
    let plan = json!({"format_version": "1.2", "terraform_version": "1.11.14", "resource_changes": [
        {"address": "module.m.a.b", "module_address": "module.m", "previous_address": "a.b", "mode": "managed",
            "type": "a", "action_reason": "replace_because_tainted", "change": {
                "actions": ["delete", "create"], "before": {"x": 1, "y": "hush-hush"}, "after": {"y": "hush-hush-2"},
                "after_unknown": {"x": true, "z": true}, "after_sensitive": {"y": true},
                "replace_paths": [["x"]], "importing": {"id": "i"}}},
    ], "output_changes": {"o": {"actions": ["create"], "before": null, "after": {"k": [true]}}}});
    let plan = parse(plan.to_string().as_bytes()).unwrap();
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
    insta::assert_json_snapshot!(plan, @r#"
    {
      "engine_version": "1.11.14",
      "changes": [
        {
          "address": "module.m.a.b",
          "module": "module.m",
          "resource_type": "a",
          "mode": "managed",
          "action": "delete_create",
          "moved_from": "a.b",
          "importing": "i",
          "replace_because": [
            "x"
          ],
          "reason": "replace_because_tainted",
          "attributes": [
            {
              "path": "x",
              "before": {
                "known": 1
              },
              "after": "unknown",
              "forces_replacement": true
            },
            {
              "path": "y",
              "before": "sensitive",
              "after": "sensitive",
              "forces_replacement": false
            },
            {
              "path": "z",
              "before": "absent",
              "after": "unknown",
              "forces_replacement": false
            }
          ],
          "unchanged": 0
        }
      ],
      "drift": [],
      "outputs": {
        "o": {
          "action": "create",
          "before": "absent",
          "after": {
            "known": {
              "k": [
                true
              ]
            }
          }
        }
      },
      "errored": false
    }
    "#);
}

fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_i32..4).prop_map(Value::from),
        "[ab.]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[ab.]{0,2}", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest::proptest! {
    /// Random values with random marks: no panic, equal values have no difference, and unequal values have one.
    #[test]
    fn any_two_values(before in any_json(), after in any_json(), marks in any_json()) {
        let attributes = |delta: Value| {
            let plan = json!({"format_version": "1.2", "resource_changes": [
                {"address": "a.b", "mode": "managed", "type": "a", "change": delta},
            ]});
            parse(plan.to_string().as_bytes()).unwrap().changes.remove(0).attributes
        };
        let same = attributes(update(&json!({"v": before}), &json!({"v": before})));
        proptest::prop_assert!(same.is_empty(), "{same:?}");
        let mut marked = update(&json!({"v": before}), &json!({"v": after}));
        let differs = !attributes(marked.clone()).is_empty();
        proptest::prop_assert!(before != after || !differs);
        marked["after_unknown"] = json!({"v": marks});
        marked["before_sensitive"] = json!({"v": marks});
        attributes(marked);
    }
}
