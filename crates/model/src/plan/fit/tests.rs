//! Which fresh plans fit an approved one.

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
fn check(fresh: &Difference, approved: &Difference, expected: &[&str]) {
    let found: Vec<String> = match fits(fresh, approved) {
        Fit::Yes => Vec::new(),
        Fit::No(novelties) => novelties.iter().map(ToString::to_string).collect(),
    };
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
    // The other way round somebody approved a value and would get any.
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
fn what_is_not_planned_any_more_was_approved_too() {
    let two = |address| {
        resource(
            address,
            &["create"],
            &Value::Null,
            &json!({ "i": 1 }),
            &json!({}),
        )
    };
    let approved = read(&of_resources(&[two("a.one"), two("a.two")]));
    check(&read(&of_resources(&[two("a.two")])), &approved, &[]);
    check(&Difference::default(), &approved, &[]);
    check(
        &approved,
        &read(&of_resources(&[two("a.two")])),
        &["creates `a.one`, which was not in the plan"],
    );
}

#[test]
fn of_an_update_less_may_happen_of_a_create_not() {
    let before = json!({ "size": 1, "tags": "a" });
    let approved = plan(
        &["update"],
        &before,
        &json!({ "size": 2, "tags": "b" }),
        &json!({}),
    );
    let fresh = plan(
        &["update"],
        &before,
        &json!({ "size": 2, "tags": "a" }),
        &json!({}),
    );
    check(&fresh, &approved, &[]);

    let approved = plan(
        &["create"],
        &Value::Null,
        &json!({ "size": 2, "encrypted": true }),
        &json!({ "id": true }),
    );
    let fresh = plan(&["create"], &Value::Null, &json!({ "size": 2 }), &json!({}));
    check(
        &fresh,
        &approved,
        &["leaves `encrypted` of `a.b` without a value"],
    );
}

#[test]
fn a_stronger_action_was_not_approved_and_a_weaker_one_was() {
    let (before, after) = (json!({ "size": 1 }), json!({ "size": 2 }));
    let with = |actions: &[&str]| plan(actions, &before, &after, &json!({}));
    let (update, replace) = (with(&["update"]), with(&["delete", "create"]));
    let gently = with(&["create", "delete"]);
    check(
        &replace,
        &update,
        &["replaces `a.b`, where an update was planned"],
    );
    check(
        &replace,
        &gently,
        &["replaces `a.b`, where a replacement without a gap was planned"],
    );
    check(&update, &replace, &[]);
    check(&gently, &replace, &[]);
    let delete = plan(&["delete"], &before, &Value::Null, &json!({}));
    check(
        &delete,
        &replace,
        &["deletes `a.b`, where a replacement was planned"],
    );
    check(
        &replace,
        &delete,
        &["replaces `a.b`, where a deletion was planned"],
    );
}

#[test]
fn a_new_reason_to_replace_was_not_approved() {
    let with = |paths: Value| {
        let (before, after) = (json!({ "a": 1, "b": 1 }), json!({ "a": 2, "b": 2 }));
        let mut raw = resource("a.b", &["delete", "create"], &before, &after, &json!({}));
        raw["change"]["replace_paths"] = paths;
        read(&of_resources(&[raw]))
    };
    let (one, both) = (with(json!([["a"]])), with(json!([["a"], ["b"]])));
    check(&one, &both, &[]);
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
    check(&imported, &moved, &["imports `a.b` by the id `i-1`"]);
    check(&moved, &imported, &["moves `a.b` here from `a.old`"]);
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

/// What is kept beside an approval today is read by a later terrane.
#[test]
fn it_keeps_its_form() {
    let kept = plan(
        &["update"],
        &json!({ "a": 1 }),
        &json!({ "a": 2 }),
        &json!({ "id": true }),
    );
    insta::assert_snapshot!(serde_json::to_string(&kept).unwrap(), @r#"{"resources":{"a.b":{"action":"update","moved_from":null,"importing":null,"replace_paths":[],"leaves":[{"path":"a","before":{"value":"1"},"after":{"value":"2"}},{"path":"id","before":"absent","after":"unknown"}]}},"outputs":{}}"#);
}

/// Plans of a few resources with a few attributes: small enough that two of them often meet.
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
            // As the engines write it: what is unknown has no value yet.
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
    fn every_plan_fits_itself(raw in plans()) {
        let plan = read(&raw);
        prop_assert_eq!(fits(&plan, &plan), Fit::Yes);
    }

    #[test]
    fn order_does_not_count(raw in plans()) {
        let mut turned = raw.clone();
        turned["resource_changes"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(read(&turned), read(&raw));
    }

    #[test]
    fn what_is_kept_is_what_was_meant(raw in plans()) {
        let plan = read(&raw);
        let kept: Difference = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        prop_assert_eq!(kept, plan);
    }

    #[test]
    fn less_fits_and_more_does_not(raw in plans(), at in any::<prop::sample::Index>()) {
        let whole = read(&raw);
        prop_assume!(!whole.resources.is_empty());
        let mut less = whole.clone();
        let gone = at.get(&whole.resources.keys().collect::<Vec<_>>()).to_owned().clone();
        less.resources.remove(&gone);
        prop_assert_eq!(fits(&less, &whole), Fit::Yes);
        let Fit::No(novelties) = fits(&whole, &less) else {
            return Err(TestCaseError::fail("a new address was taken for approved"));
        };
        prop_assert_eq!(&novelties[0].subject, &Subject::Resource(gone));
    }

    #[test]
    fn what_was_unknown_may_be_anything(raw in plans(), at in any::<prop::sample::Index>()) {
        let fresh = read(&raw);
        let mut approved = fresh.clone();
        let changes: Vec<&mut Change> = approved.resources.values_mut().collect();
        prop_assume!(!changes.is_empty());
        let index = at.index(changes.len());
        let change = changes.into_iter().nth(index).unwrap();
        change.leaves = change
            .leaves
            .iter()
            .map(|leaf| Leaf { after: Side::Unknown, ..leaf.clone() })
            .collect();
        prop_assert_eq!(fits(&fresh, &approved), Fit::Yes);
    }

    #[test]
    fn another_value_never_fits(raw in plans(), at in any::<prop::sample::Index>()) {
        let approved = read(&raw);
        let mut fresh = approved.clone();
        let leaves: Vec<(String, Leaf)> = approved
            .resources
            .iter()
            .flat_map(|(address, change)| {
                change.leaves.iter().map(|leaf| (address.clone(), leaf.clone()))
            })
            .filter(|(_, leaf)| leaf.after != Side::Unknown)
            .collect();
        prop_assume!(!leaves.is_empty());
        let (address, leaf) = at.get(&leaves).clone();
        let change = fresh.resources.get_mut(&address).unwrap();
        change.leaves.remove(&leaf);
        let after = Side::Value("something else".to_owned());
        change.leaves.insert(Leaf { after, ..leaf });
        prop_assert_ne!(fits(&fresh, &approved), Fit::Yes);
    }

    /// So what was approved may be kept while fresh plans come and go.
    #[test]
    fn what_fits_a_plan_that_fits_was_approved(
        raw in plans(), other in plans(), unknown in any::<u64>(), more in any::<u64>(),
    ) {
        let third = read(&raw);
        let second = loosened(&third, &read(&other), unknown);
        let approved = loosened(&second, &read(&other), more);
        prop_assert_eq!(fits(&third, &second), Fit::Yes);
        prop_assert_eq!(fits(&second, &approved), Fit::Yes);
        prop_assert_eq!(fits(&third, &approved), Fit::Yes);
    }
}

/// A plan that this one fits: some of its values are not known there, and it does more.
fn loosened(plan: &Difference, other: &Difference, dice: u64) -> Difference {
    let mut loose = plan.clone();
    let mut number = 0;
    for change in loose.resources.values_mut() {
        let leaves = change.leaves.iter().map(|leaf| {
            number += 1;
            let is_hidden = dice.rotate_right(number) & 1 == 1;
            let after = if is_hidden {
                Side::Unknown
            } else {
                leaf.after.clone()
            };
            Leaf {
                after,
                ..leaf.clone()
            }
        });
        change.leaves = leaves.collect();
    }
    for (address, change) in &other.resources {
        let known = loose.resources.entry(address.clone());
        known.or_insert_with(|| change.clone());
    }
    loose
}
