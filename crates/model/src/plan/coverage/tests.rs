//! Which new plans are equal to a reviewed one.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plan::difference;

fn read(json: &Value) -> Difference {
    difference(json.to_string().as_bytes(), false, &|value| {
        value.to_string()
    })
    .unwrap()
}

/// A plan with one resource.
fn plan(actions: &[&str], before: &Value, after: &Value, unknown: &Value) -> Difference {
    read(&of_resources(&[resource(
        "a.b", actions, before, after, unknown,
    )]))
}

fn of_resources(resources: &[Value]) -> Value {
    json!({ "format_version": "1.2", "resource_changes": resources })
}

fn resource(
    address: &str,
    actions: &[&str],
    before: &Value,
    after: &Value,
    unknown: &Value,
) -> Value {
    json!({
        "address": address, "mode": "managed", "type": "a",
        "change": {
            "actions": actions, "before": before, "after": after, "after_unknown": unknown,
        },
    })
}

#[track_caller]
fn check(new: &Difference, reviewed: &Difference, expected: &[&str]) {
    let found: Vec<String> = deviations(new, reviewed)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn an_approved_unknown_matches_any_value() {
    let approved = plan(
        &["update"],
        &json!({ "subnet": "old", "size": 1 }),
        &json!({ "size": 1 }),
        &json!({ "subnet": true }),
    );
    for value in [json!("new"), json!(["a", "b"]), json!({ "x": { "y": 1 } })] {
        let fresh = plan(
            &["update"],
            &json!({ "subnet": "old", "size": 1 }),
            &json!({ "subnet": value, "size": 1 }),
            &json!({}),
        );
        check(&fresh, &approved, &[]);
    }
    // In the opposite direction, an approved value could be replaced by any value.
    let fresh = plan(
        &["update"],
        &json!({ "subnet": "old", "size": 1 }),
        &json!({ "subnet": "new", "size": 1 }),
        &json!({}),
    );
    check(
        &approved,
        &fresh,
        &["gives `subnet` of `a.b` another value"],
    );
}

#[test]
fn a_part_of_an_unknown_whole_was_approved() {
    let before = json!({ "rules": [{ "port": 80 }] });
    let approved = plan(&["update"], &before, &json!({}), &json!({ "rules": true }));
    let after = json!({ "rules": [{ "port": 90 }] });
    check(
        &plan(&["update"], &before, &after, &json!({})),
        &approved,
        &[],
    );
    let other = json!({ "rules": [{ "port": 80 }], "rules_other": 1 });
    check(
        &plan(&["update"], &before, &other, &json!({})),
        &approved,
        &["gives `rules_other` of `a.b` another value"],
    );
}

#[test]
fn a_change_that_is_gone_makes_another_plan() {
    let two = |address| {
        let (before, after) = (Value::Null, json!({ "i": 1 }));
        resource(address, &["create"], &before, &after, &json!({}))
    };
    let both = read(&of_resources(&[two("a.one"), two("a.two")]));
    let one = read(&of_resources(&[two("a.two")]));
    check(&one, &both, &["no longer creates `a.one`"]);
    check(&both, &one, &["creates `a.one`, which was not in the plan"]);
    let update = plan(
        &["update"],
        &json!({ "size": 1 }),
        &json!({ "size": 2 }),
        &json!({}),
    );
    check(
        &Difference::default(),
        &update,
        &["no longer updates `a.b`"],
    );
}

#[test]
fn a_value_that_is_gone_makes_another_plan() {
    let before = json!({ "size": 1, "tags": "a" });
    let update = |after: &Value| plan(&["update"], &before, after, &json!({}));
    check(
        &update(&json!({ "size": 2, "tags": "a" })),
        &update(&json!({ "size": 2, "tags": "b" })),
        &["no longer sets `tags` of `a.b`"],
    );
    let create = |after: &Value, unknown: &Value| plan(&["create"], &Value::Null, after, unknown);
    check(
        &create(&json!({ "size": 2 }), &json!({})),
        &create(
            &json!({ "size": 2, "encrypted": true }),
            &json!({ "id": true }),
        ),
        &["no longer sets `encrypted` of `a.b`"],
    );
}

/// The filled-in value equals the old one, so nothing changes.
#[test]
fn a_change_that_vanishes_by_its_filled_in_value_is_equal() {
    let before = json!({ "subnet": "old", "output": "x" });
    let unknown = json!({ "subnet": true, "output": true });
    for actions in [&["update"][..], &["delete", "create"]] {
        let mut raw = resource("a.b", actions, &before, &json!({}), &unknown);
        raw["change"]["replace_paths"] = match actions {
            ["update"] => json!([]),
            _ => json!([["subnet"]]),
        };
        check(&Difference::default(), &read(&of_resources(&[raw])), &[]);
    }
    let output = json!({ "format_version": "1.2", "output_changes": { "name": {
        "actions": ["update"], "before": "a", "after": null, "after_unknown": true,
    } } });
    check(&Difference::default(), &read(&output), &[]);
}

/// `subnet` was unknown and would have forced a replacement. Filled in, it equals the old value, and only `size`
/// changes.
#[test]
fn a_change_that_weakens_by_its_filled_in_value_is_equal() {
    let before = json!({ "subnet": "old", "size": 1, "id": "i-1" });
    let replaced = |paths: Value, unknown: &Value| {
        let actions = ["delete", "create"];
        let mut raw = resource("a.b", &actions, &before, &json!({ "size": 2 }), unknown);
        raw["change"]["replace_paths"] = paths;
        read(&of_resources(&[raw]))
    };
    let unknown = json!({ "subnet": true, "id": true });
    let reviewed = replaced(json!([["subnet"]]), &unknown);
    let update = |subnet: &str| {
        let after = json!({ "subnet": subnet, "size": 2, "id": "i-1" });
        plan(&["update"], &before, &after, &json!({}))
    };
    let weaker = ["updates `a.b`, where a replacement was planned"];
    check(&update("old"), &reviewed, &[]);
    // A different value that forces no replacement was not reviewed.
    check(&update("new"), &reviewed, &weaker);
    // A resource that is tainted, or replaced because of a known value, is replaced whatever is filled in.
    let known = replaced(json!([["subnet"], ["size"]]), &unknown);
    check(&update("old"), &known, &weaker);
    check(&update("old"), &replaced(json!([]), &unknown), &weaker);
}

#[test]
fn another_action_makes_another_plan() {
    let (before, after) = (json!({ "size": 1 }), json!({ "size": 2 }));
    let with = |actions: &[&str]| plan(actions, &before, &after, &json!({}));
    let (update, replace) = (with(&["update"]), with(&["delete", "create"]));
    let create_first = with(&["create", "delete"]);
    let delete = plan(&["delete"], &before, &Value::Null, &json!({}));
    for (new, reviewed, expected) in [
        (
            &replace,
            &update,
            "replaces `a.b`, where an update was planned",
        ),
        (
            &replace,
            &create_first,
            "replaces `a.b`, where a replacement that creates first was planned",
        ),
        (
            &create_first,
            &replace,
            "replaces `a.b`, where a replacement was planned",
        ),
        (
            &update,
            &replace,
            "updates `a.b`, where a replacement was planned",
        ),
        (
            &delete,
            &replace,
            "deletes `a.b`, where a replacement was planned",
        ),
        (
            &replace,
            &delete,
            "replaces `a.b`, where a deletion was planned",
        ),
    ] {
        check(new, reviewed, &[expected]);
    }
}

#[test]
fn another_reason_to_replace_makes_another_plan() {
    let with = |paths: Value| {
        let (before, after) = (json!({ "a": 1, "b": 1 }), json!({ "a": 2, "b": 2 }));
        let mut raw = resource("a.b", &["delete", "create"], &before, &after, &json!({}));
        raw["change"]["replace_paths"] = paths;
        read(&of_resources(&[raw]))
    };
    let (one, both) = (with(json!([["a"]])), with(json!([["a"], ["b"]])));
    check(&one, &both, &["no longer replaces `a.b` because of `b`"]);
    check(&both, &one, &["replaces `a.b` because of `b` as well"]);
}

#[test]
fn moves_and_imports_count() {
    let plain = |extra: &dyn Fn(&mut Value)| {
        let mut raw = resource("a.b", &["no-op"], &json!({}), &json!({}), &json!({}));
        extra(&mut raw);
        read(&of_resources(&[raw]))
    };
    let nothing = plain(&|_| {});
    assert_eq!(nothing, Difference::default());
    let moved = plain(&|raw| raw["previous_address"] = json!("a.old"));
    let imported = plain(&|raw| raw["change"]["importing"] = json!({ "id": "i-1" }));
    check(
        &moved,
        &nothing,
        &["moves or imports `a.b`, which was not in the plan"],
    );
    check(
        &imported,
        &moved,
        &["no longer moves `a.b`", "imports `a.b` by the id `i-1`"],
    );
    check(
        &moved,
        &imported,
        &["moves `a.b` here from `a.old`", "no longer imports `a.b`"],
    );
}

#[test]
fn outputs_count_and_drift_and_reads_do_not() {
    let raw = json!({
        "format_version": "1.2",
        "resource_changes": [{
            "address": "data.a.b", "mode": "data", "type": "a",
            "change": { "actions": ["read"], "before": null, "after": { "x": 1 } },
        }],
        "resource_drift": [resource("a.b", &["update"], &json!({ "x": 1 }), &json!({ "x": 2 }), &json!({}))],
    });
    assert_eq!(read(&raw), Difference::default());
    let output = |after: Value, unknown: Value| {
        read(
            &json!({ "format_version": "1.2", "output_changes": { "name": {
            "actions": ["update"], "before": "a", "after": after, "after_unknown": unknown,
        } } }),
        )
    };
    let approved = output(Value::Null, json!(true));
    check(&output(json!("b"), json!(false)), &approved, &[]);
    check(
        &output(json!("b"), json!(false)),
        &output(json!("c"), json!(false)),
        &["gives output `name` another value"],
    );
    check(
        &approved,
        &Difference::default(),
        &["updates output `name`, which was not in the plan"],
    );
}

#[test]
fn sensitive_values_are_compared_too() {
    let with = |secret: &str| {
        let mut raw = resource(
            "a.b",
            &["update"],
            &json!({ "p": "old" }),
            &json!({ "p": secret }),
            &json!({}),
        );
        raw["change"]["after_sensitive"] = json!({ "p": true });
        read(&of_resources(&[raw]))
    };
    check(&with("one"), &with("one"), &[]);
    check(
        &with("one"),
        &with("two"),
        &["gives `p` of `a.b` another value"],
    );
}

#[test]
fn the_leftover_of_a_replacement_is_a_thing_of_its_own() {
    let mut deposed = resource(
        "a.b",
        &["delete"],
        &json!({ "x": 1 }),
        &Value::Null,
        &json!({}),
    );
    deposed["deposed"] = json!("0f");
    let update = resource(
        "a.b",
        &["update"],
        &json!({ "x": 1 }),
        &json!({ "x": 2 }),
        &json!({}),
    );
    let approved = read(&of_resources(std::slice::from_ref(&update)));
    check(
        &read(&of_resources(&[update, deposed])),
        &approved,
        &["deletes `a.b (deposed 0f)`, which was not in the plan"],
    );
}

/// Commands of provisioners and hooks, and values that only they use, do not appear in plans.
#[test]
fn the_source_and_the_inputs_are_compared_too() {
    let with = |source: &str, inputs: &[(&str, &str)]| ReviewedPlan {
        own_source: source.to_owned(),
        inputs: inputs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..ReviewedPlan::default()
    };
    let reviewed = with("s1", &[("who", "ada")]);
    let different = |new: &str| Coverage::Different {
        new: vec![new.to_owned()],
    };
    for (new, expected) in [
        (with("s1", &[("who", "ada")]), Coverage::Equal),
        // It was unknown and is known now.
        (with("s1", &[("who", "ada"), ("id", "x")]), Coverage::Equal),
        (with("s2", &[("who", "ada")]), different(OTHER_SOURCE)),
        (
            with("s1", &[("who", "eve")]),
            different("input `who` has another value"),
        ),
        // It was known and is unknown now, so it may become any value.
        (with("s1", &[]), different("input `who` is not known yet")),
    ] {
        assert_eq!(reviewed.covers(&new), expected, "{new:?}");
    }
}

/// A later terrane must be able to read what is stored with approvals today.
#[test]
fn a_stored_difference_keeps_its_form() {
    let kept = plan(
        &["update"],
        &json!({ "a": 1 }),
        &json!({ "a": 2 }),
        &json!({ "id": true }),
    );
    insta::assert_snapshot!(serde_json::to_string(&kept).unwrap(), @r#"{"resources":{"a.b":{"action":"update","moved_from":null,"importing":null,"replace_paths":[],"leaves":[{"path":"a","before":{"value":"1"},"after":{"value":"2"}},{"path":"id","before":"absent","after":"unknown"}]}},"outputs":{}}"#);
}

/// Plans with few resources and attributes, so that two of them are often similar.
fn plans() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..3_i64).prop_map(|number| json!(number)),
        "[ab]".prop_map(Value::from),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[xy]", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    let fields = prop::collection::btree_map("[pqr]", value, 0..3)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()));
    let unknown = prop::collection::btree_map("[pqr]", Just(Value::Bool(true)), 0..2)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()));
    let actions = prop::sample::select(vec![
        vec!["create"],
        vec!["update"],
        vec!["delete", "create"],
        vec!["create", "delete"],
        vec!["delete"],
    ]);
    let change = (actions, fields.clone(), fields, unknown).prop_map(
        |(actions, before, mut after, unknown)| {
            // As engines write it: an unknown value is absent.
            for key in unknown.as_object().unwrap().keys() {
                after.as_object_mut().unwrap().remove(key);
            }
            let is_new = actions == ["create"];
            let is_gone = actions == ["delete"];
            (
                actions,
                if is_new { Value::Null } else { before },
                if is_gone { Value::Null } else { after },
                if is_gone { json!({}) } else { unknown },
            )
        },
    );
    prop::collection::btree_map("a\\.[klm]", change, 0..4).prop_map(|all| {
        let resources: Vec<Value> = all
            .iter()
            .map(|(address, (actions, before, after, unknown))| {
                resource(address, actions, before, after, unknown)
            })
            .collect();
        of_resources(&resources)
    })
}

proptest! {
    #[test]
    fn every_plan_is_equal_to_itself(raw in plans()) {
        let plan = read(&raw);
        prop_assert_eq!(deviations(&plan, &plan), []);
    }

    #[test]
    fn order_does_not_count(raw in plans()) {
        let mut turned = raw.clone();
        turned["resource_changes"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(read(&turned), read(&raw));
    }

    #[test]
    fn what_is_stored_is_what_was_meant(raw in plans()) {
        let plan = read(&raw);
        let kept: Difference = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        prop_assert_eq!(kept, plan);
    }

    /// Without unknown values, equal means equal.
    #[test]
    fn known_plans_are_equal_only_if_they_are_the_same(raw in known_plans(), other in known_plans()) {
        let (one, two) = (read(&raw), read(&other));
        prop_assert_eq!(deviations(&one, &two).is_empty(), one == two);
    }

    #[test]
    fn a_change_of_another_resource_is_never_equal(raw in plans(), at in any::<prop::sample::Index>()) {
        let whole = read(&raw);
        prop_assume!(!whole.resources.is_empty());
        let mut less = whole.clone();
        let gone = at.get(&whole.resources.keys().collect::<Vec<_>>()).to_owned().clone();
        less.resources.remove(&gone);
        let found = deviations(&whole, &less);
        prop_assert_eq!(&found[0].subject, &Subject::Resource(gone.clone()));
        let is_unknown = |leaf: &Leaf| leaf.after == Side::Unknown;
        let was_known = !whole.resources[&gone].leaves.iter().any(is_unknown);
        prop_assert!(!was_known || !deviations(&less, &whole).is_empty());
    }

    #[test]
    fn what_was_unknown_may_be_anything(raw in plans(), at in any::<prop::sample::Index>()) {
        let new = read(&raw);
        let mut reviewed = new.clone();
        let changes: Vec<&mut Change> = reviewed.resources.values_mut().collect();
        prop_assume!(!changes.is_empty());
        let index = at.index(changes.len());
        let change = changes.into_iter().nth(index).unwrap();
        change.leaves = change
            .leaves
            .iter()
            .map(|leaf| Leaf { after: Side::Unknown, ..leaf.clone() })
            .collect();
        prop_assert_eq!(deviations(&new, &reviewed), []);
    }

    #[test]
    fn another_value_is_never_equal(raw in plans(), at in any::<prop::sample::Index>()) {
        let reviewed = read(&raw);
        let mut new = reviewed.clone();
        let leaves: Vec<(String, Leaf)> = reviewed
            .resources
            .iter()
            .flat_map(|(address, change)| {
                change.leaves.iter().map(|leaf| (address.clone(), leaf.clone()))
            })
            .filter(|(_, leaf)| leaf.after != Side::Unknown)
            .collect();
        prop_assume!(!leaves.is_empty());
        let (address, leaf) = at.get(&leaves).clone();
        let change = new.resources.get_mut(&address).unwrap();
        change.leaves.remove(&leaf);
        let after = Side::Value("something else".to_owned());
        change.leaves.insert(Leaf { after, ..leaf });
        prop_assert_ne!(deviations(&new, &reviewed), []);
    }
}

/// Plans without an unknown value.
fn known_plans() -> impl Strategy<Value = Value> {
    plans().prop_map(|mut raw| {
        for resource in raw["resource_changes"].as_array_mut().unwrap() {
            resource["change"]["after_unknown"] = json!({});
        }
        raw
    })
}
