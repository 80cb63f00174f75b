//! Contracts: violations and their texts, what a plan may leave open, and consumers.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::hcl::expression::{Expression, Input, Needs};

fn cluster() -> Contract {
    Contract::shipped(&"cluster/v1".parse().unwrap()).unwrap()
}

fn own(schema: &Value) -> Contract {
    Contract::read("edge/v2".parse().unwrap(), &schema.to_string()).unwrap()
}

fn good() -> Value {
    json!({
        "cluster_name": "prod",
        "cluster_type": "azure",
        "kube_context": "prod-admin",
        "cluster_gateway_public_address": "20.1.2.3",
        "env_gateway_public_addresses": {"dev": "2001:db8::1", "staging": "a1.elb.example.io", "prod": "20.1.2.4"},
        "dns_challenge_identities": {
            "argocd": {"azure_client_id": "8a8e"},
            "dev": {"aws_role_arn": "arn:aws:iam::1:role/dns"},
            "staging": {"azure_client_id": "8a8f"},
            "prod": {"azure_client_id": "8a90"},
        },
        "secrets_source_uri": "https://vault.example.io/",
        "anything_else": [1, 2],
    })
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn problems(contract: &Contract, value: &Value, partial: &[&str], sensitive: &[&str]) -> String {
    let partial: Vec<String> = partial.iter().map(|&it| it.to_owned()).collect();
    let sensitive = sensitive.iter().map(|&it| it.to_owned()).collect();
    let found = contract.check(&fields(value), &partial, &sensitive);
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn names_are_a_name_and_a_version() {
    let name: ContractName = "cluster/v1".parse().unwrap();
    assert_eq!(name.path(), "contracts/cluster/v1.json");
    for wrong in [
        "cluster",
        "cluster/1",
        "cluster/v0",
        "Cluster/v1",
        "cluster/v",
        "../v1",
    ] {
        assert!(wrong.parse::<ContractName>().is_err(), "{wrong}");
    }
}

#[test]
fn the_shipped_contract_holds_the_fields_of_a_cluster() {
    assert_eq!(problems(&cluster(), &good(), &[], &[]), "");
    insta::assert_snapshot!(cluster().fields().join(" "), @"cluster_name cluster_type kube_context cluster_gateway_public_address env_gateway_public_addresses dns_challenge_identities secrets_source_uri");
}

#[test]
fn fields_are_found_wherever_the_schema_names_them() {
    let part = json!({"properties": {"b": {}}, "required": ["c"]});
    for schema in [
        json!({"properties": {"a": {}}, "allOf": [part, {"$ref": "#/$defs/d"}],
               "$defs": {"d": {"required": ["d"], "$ref": "#"}}}),
        json!({"properties": {"a": {}}, "anyOf": [part], "oneOf": [{"required": ["d"]}]}),
        json!({"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"a": {}},
               "if": true, "then": part, "else": {"properties": {"d": {}}}}}}),
        json!({"properties": {"a": {}}, "$ref": "#z", "$defs": {
               "q": {"$anchor": "z", "properties": {"b": {}}, "$ref": "#/$defs/a~1b%20c"},
               "a/b c": {"required": ["c", "d"]}}}),
        json!({"$id": "https://x.io/s.json", "properties": {"a": {}}, "allOf": [{"$ref": "sub.json"}],
               "$defs": {"s": {"$id": "sub.json", "$ref": "#here",
                               "$defs": {"t": {"$anchor": "here", "allOf": [part, {"required": ["d"]}]}}}}}),
        json!({"properties": {"a": {}}, "dependentSchemas": {"a": part}, "dependentRequired": {"a": ["d"]}}),
    ] {
        let contract = own(&schema);
        let mut names = contract.fields();
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "c", "d"], "{schema}");
    }
    let optional = own(&json!({"allOf": [{"required": ["a"]}], "anyOf": [{"required": ["b"]}]}));
    assert_eq!(optional.required(), ["a"]);
    assert!(own(&json!({"type": "object"})).fields().is_empty());
}

#[test]
fn a_field_that_is_null_counts_as_missing_unless_null_is_wanted() {
    let mut value = good();
    value["dns_challenge_identities"]["dev"] =
        json!({"azure_client_id": null, "aws_role_arn": "arn:aws:iam::1:role/dns"});
    assert_eq!(problems(&cluster(), &value, &[], &[]), "");
    value["dns_challenge_identities"]["dev"]["aws_role_arn"] = Value::Null;
    assert_ne!(problems(&cluster(), &value, &[], &[]), "");
    let nullable = own(&json!({"properties": {"a": {
        "required": ["b", "c"],
        "properties": {"b": {"type": ["string", "null"]}, "c": {"type": "string"}}}}}));
    let value = json!({"a": {"b": null, "c": "x"}});
    assert_eq!(problems(&nullable, &value, &[], &[]), "");
    let value = json!({"a": {"b": "x", "c": null}});
    insta::assert_snapshot!(problems(&nullable, &value, &[], &[]), @"`a.c` is missing, expected a text");
    assert_eq!(problems(&nullable, &value, &["a.c"], &[]), "");
}

#[test]
fn what_is_wrong_with_a_contract_is_said_with_its_place() {
    let name: ContractName = "edge/v2".parse().unwrap();
    let read = |text: &str| Contract::read(name.clone(), text).unwrap_err().to_string();
    insta::assert_snapshot!(read("{\n  \"a\" 1\n}"), @"the contract `edge/v2` is not JSON: expected `:` at line 2 column 7 of `contracts/edge/v2.json`");
    let outward = r#"{"properties": {"a": {"$ref": "https://example.io/schema.json"}}}"#;
    insta::assert_snapshot!(read(outward), @"the contract `edge/v2` refers to `https://example.io/schema.json`: a contract may only refer to itself");
}

#[test]
fn a_problem_is_one_line() {
    let schema = json!({"properties": {"a": {"enum": ["x"]}, "b": {"type": "string"}}});
    let value = json!({"a": "one\ntwo", "b": {"three\nfour": 1}});
    insta::assert_snapshot!(problems(&own(&schema), &value, &[], &[]), @r"
    `a` is the text `one\ntwo`, expected one of `x`
    `b` is an object with `three\nfour`, expected a text
    ");
}

#[test]
fn all_problems_are_said_at_once() {
    let mut bad = good();
    bad["cluster_name"] = json!(3);
    bad["cluster_type"] = json!("gcp");
    bad["kube_context"] = json!("");
    bad["cluster_gateway_public_address"] = json!("10.0.0.300");
    bad["env_gateway_public_addresses"] = json!({"dev": "-a.example.io", "prod": null});
    bad["dns_challenge_identities"]["dev"] = json!({"gcp": "x"});
    bad["dns_challenge_identities"]["prod"] = json!({"azure_client_id": "a", "aws_role_arn": "b"});
    bad["secrets_source_uri"] = Value::Null;
    insta::assert_snapshot!(problems(&cluster(), &bad, &[], &[]), @r"
    `cluster_gateway_public_address` is the text `10.0.0.300`, expected an IP address or a host name
    `cluster_name` is a number (`3`), expected a text that is not empty
    `cluster_type` is the text `gcp`, expected one of `azure`, `aws`, `local`
    `dns_challenge_identities.dev` is an object with `gcp`, expected an object with either `azure_client_id` or `aws_role_arn`
    `dns_challenge_identities.prod` is an object with `azure_client_id`, `aws_role_arn`, expected an object with either `azure_client_id` or `aws_role_arn`
    `env_gateway_public_addresses.dev` is the text `-a.example.io`, expected an IP address or a host name
    `env_gateway_public_addresses.prod` is missing, expected an IP address or a host name
    `env_gateway_public_addresses.staging` is missing, expected an IP address or a host name
    `kube_context` is an empty text, expected a text that is not empty
    `secrets_source_uri` is missing, expected a URI
    ");
}

#[test]
fn a_partial_contract_may_lack_what_it_names_and_nothing_else() {
    let mut bad = good();
    bad["secrets_source_uri"] = Value::Null;
    bad["env_gateway_public_addresses"] = json!({"dev": "10.0.0.1", "staging": "10.0.0.2"});
    let partial = ["secrets_source_uri", "env_gateway_public_addresses.prod"];
    assert_eq!(problems(&cluster(), &bad, &partial, &[]), "");
    // It may be missing, but not invalid.
    bad["secrets_source_uri"] = json!(1);
    insta::assert_snapshot!(problems(&cluster(), &bad, &partial, &[]), @"`secrets_source_uri` is a number (`1`), expected a URI");
}

#[test]
fn a_sensitive_value_is_never_said() {
    let contract = own(&json!({"properties": {
        "password": {"type": "string", "minLength": 20},
        "pin": {"type": "string"},
        "whole": {"type": "string"},
        "users": {"additionalProperties": {"properties": {"uid": {"type": "integer"}}}},
        "more": {"properties": {"a": {}}, "additionalProperties": false},
    }}));
    let bad = json!({
        "password": "hunter2-marked", "pin": 123_456, "whole": {"key-marked": 1},
        "users": {"key-marked": {"uid": "x"}}, "more": {"key-marked": 1},
    });
    let sensitive = ["password", "pin", "whole", "users", "more"];
    insta::assert_snapshot!(problems(&contract, &bad, &[], &sensitive), @r"
    `more.(sensitive)` is there, expected no such field
    `password` is a text (sensitive), expected at least 20 characters
    `pin` is a number (sensitive), expected a text
    `users.(sensitive).uid` is a text (sensitive), expected a whole number
    `whole` is an object (sensitive), expected a text
    ");
}

#[test]
fn a_contract_of_the_project_that_is_no_schema_is_refused() {
    let read = |text: &str| {
        let read = Contract::read("edge/v2".parse().unwrap(), text);
        read.err().map(|err| err.to_string()).unwrap_or_default()
    };
    assert!(read("{").contains("is not JSON"));
    assert!(read(r#"{"type": "texts"}"#).contains("is not a JSON Schema"));
    assert!(read("true").contains("is not an object"));
    let outside = read(r#"{"$ref": "https://schemas.example.io/edge.json"}"#);
    assert!(outside.contains("may only refer to itself"), "{outside}");
}

#[test]
fn what_a_plan_does_not_know_yet_is_taken_as_the_contract_wants_it() {
    let plan = json!({"output_changes": {
        "cluster_name": {"actions": ["create"], "after": "prod", "after_unknown": false},
        "cluster_type": {"actions": ["create"], "after": "azure", "after_unknown": false},
        "kube_context": {"actions": ["create"], "after_unknown": true},
        "cluster_gateway_public_address": {"actions": ["create"], "after_unknown": true},
        "env_gateway_public_addresses": {"actions": ["create"], "after": {"dev": "10.0.0.1"}, "after_unknown": {"prod": true}},
        "dns_challenge_identities": {
            "actions": ["create"],
            "after": {"argocd": {}, "dev": {"gcp": "x"}},
            "after_unknown": {"argocd": {"azure_client_id": true}, "dev": {}, "staging": true, "prod": {"gcp": true}},
        },
        "secrets_source_uri": {"actions": ["delete"], "before": "https://a.example.io", "after": null, "after_unknown": false},
    }});
    let planned = planned(plan.to_string().as_bytes()).unwrap();
    let found = cluster().check_planned(&planned, &[], &BTreeSet::new());
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    `dns_challenge_identities.dev` is an object with `gcp`, expected an object with either `azure_client_id` or `aws_role_arn`
    `dns_challenge_identities.prod` is an object with `gcp`, expected an object with either `azure_client_id` or `aws_role_arn`
    `env_gateway_public_addresses.staging` is missing, expected an IP address or a host name
    `secrets_source_uri` is missing, expected a URI
    ");
}

#[test]
fn a_change_takes_away_fields_and_kinds_but_not_values() {
    let before = fields(&json!({
        "a": {"x": "1", "y": {"z": 1}, "w": [1]},
        "b": "text", "c": 1, "d": null, "e": "known",
    }));
    let mut after = PlannedFields::known(fields(
        &json!({"a": {"x": "2", "y": "flat"}, "b": null, "c": 9, "new": 1}),
    ));
    after.unknown.insert("/e".to_owned());
    let lines: Vec<String> = narrowed(&before, &after)
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    `a.y` is a text, was an object
    `a.w` is gone, was a list
    `b` is gone, was a text
    ");
}

#[test]
fn fields_that_an_object_declares_are_known_by_name() {
    let input = |text: &str| {
        Input::Expression(Expression {
            text: text.to_owned(),
            names: BTreeMap::new(),
            needs: Needs::default(),
        })
    };
    let declared = declared_fields(&input(
        "{ azure = { address = output.gateway, \"zone\" = \"b\" }, all = output.all }",
    ));
    let declared = declared.unwrap();
    let before = json!({
        "azure": {"address": "", "zone": "", "gone": ""}, "all": {"of": "it"}, "other": 0,
    });
    let lost = narrowed(before.as_object().unwrap(), &declared);
    let lost: Vec<String> = lost.iter().map(NarrowedField::field).collect();
    assert_eq!(lost, ["azure.gone", "other"]);
    assert_eq!(declared_fields(&input("merge(output.a, output.b)")), None);
}

#[test]
fn fields_are_traced_to_the_outputs_they_are_made_of() {
    let values = Input::Expression(Expression {
        text: r#"{ azure = { address = output.gateway_address, "zone" = "eu" }, all = merge(output.a, { b = output.b }) }"#
            .to_owned(),
        names: BTreeMap::new(),
        needs: Needs::default(),
    });
    let lines: Vec<String> = mapped(&values)
        .iter()
        .map(|one| format!("{} <- {:?}", one.field.join("."), one.outputs))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    azure.address <- {"gateway_address"}
    all <- {"a", "b"}
    "#);
}
