//! Which claims meet which rules.

use serde_json::json;

use super::*;
use crate::base::diagnostic::Location;

fn writer(claims: &[(&str, &[&str])]) -> Writer {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Writer {
        name: "github".to_owned(),
        issuer: "https://token.example.io".to_owned(),
        audience: "terrane".to_owned(),
        token_env: "TERRANE_ID_TOKEN".to_owned(),
        claims: claims
            .iter()
            .map(|(name, patterns)| ((*name).to_owned(), texts(patterns)))
            .collect(),
        declared_at: Location::default(),
    }
}

fn claims(value: Value) -> Claims {
    let Value::Object(claims) = value else {
        panic!("an object");
    };
    claims
}

#[test]
fn every_claim_that_does_not_fit_is_named() {
    let writer = writer(&[
        ("environment", &["prod", "prod-*"]),
        ("ref", &["refs/heads/main"]),
        ("repository", &["example/infra"]),
    ]);
    let job = claims(json!({
        "repository": "example/infra",
        "ref": "refs/pull/7/merge",
    }));
    let wrong = mismatches(&writer, &job);
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        wrong,
        [
            "`environment` must be `prod` or `prod-*`, and the token has none",
            "`ref` must be `refs/heads/main`, and is `refs/pull/7/merge`",
        ]
    );
    let job = claims(json!({
        "repository": "example/infra",
        "ref": "refs/heads/main",
        "environment": "prod-eu",
        "more": { "of": "it" },
    }));
    assert_eq!(mismatches(&writer, &job), []);
}

#[test]
fn claims_that_are_no_text() {
    let fits = |pattern: &str, value: Value| {
        let job = claims(json!({ "it": value }));
        mismatches(&writer(&[("it", &[pattern])]), &job).is_empty()
    };
    assert!(fits("true", json!(true)) && !fits("true", json!(false)));
    assert!(fits("42", json!(42)));
    assert!(fits("b", json!(["a", "b"])) && !fits("c", json!(["a", "b"])));
    assert!(!fits("a, b", json!(["a", "b"])));
    assert!(!fits("*", json!(null)) && !fits("*", json!({ "a": 1 })) && !fits("*", json!([])));
}

#[test]
fn a_job_is_remembered_by_what_matters() {
    let writer = writer(&[("team", &["infra"])]);
    let job = claims(json!({
        "sub": "repo:example/infra:ref:refs/heads/main",
        "iss": "https://token.example.io",
        "jti": "not worth it",
        "actor": "operator",
        "team": "infra",
        "sha": "a".repeat(300),
    }));
    let identity = Identity::job(&writer, &job);
    assert_eq!(identity.name, "repo:example/infra:ref:refs/heads/main");
    assert_eq!(identity.author(), "operator");
    assert_eq!(identity.claims["sha"].chars().count(), 201);
    let kept: Vec<&str> = identity.claims.keys().map(String::as_str).collect();
    assert_eq!(kept, ["actor", "iss", "sha", "sub", "team"]);
    assert_eq!(
        identity.to_string(),
        "CI job `repo:example/infra:ref:refs/heads/main`"
    );
    assert_eq!(Identity::person("operator").author(), "operator");
}
