//! Settings of a target's backend.

use super::*;

const STACK: &str = "stack \"s\" {\n  path   = \"m\"\n  target = \"away\"\n  layer  = \"low\"\n}\nstack \"z\" {\n  path   = \"m\"\n  target = \"away\"\n  layer  = \"low\"\n}\n== m/main.tf\n";

fn check_backend(backend: &str, more: &str) -> String {
    check_with_base(&format!(
        "target \"away\" {{\n  writers = [\"anyone\"]\n  backend {backend}\n}}\n{more}\n{STACK}"
    ))
}

#[test]
fn a_credential_that_a_context_gives_otherwise() {
    let s3 = "\"s3\" {\n    key        = stack.state\n    access_key = env(\"STATES\")\n  }";
    let context = |value: &str| {
        format!(
            "context \"work\" {{\n  autoattach = [\"s\"]\n  env = {{ AWS_ACCESS_KEY_ID = {value} }}\n}}"
        )
    };
    insta::assert_snapshot!(check_backend(s3, &context("\"AKIA\"")), @"
    error two-credentials: `AWS_ACCESS_KEY_ID` of stack `s` has two values: `access_key` of backend `s3`, and context `work`
      terrane.hcl:14:11 given to providers and backend alike
      terrane.hcl:7:3 `access_key` goes by the same variable
      hint: an engine has one environment: without `access_key` in the block the backend takes the context's; `profile` and `shared_credentials_files` in the block give it credentials of its own
    ");
    assert_eq!(check_backend(s3, &context("env(\"STATES\")")), "");
}

#[test]
fn a_credential_that_would_lie_in_clear() {
    let http = |settings: &str| {
        let all = "lock_address = \"http://h/${stack.state}\"\n    unlock_address = \"http://h/${stack.state}\"";
        format!("\"http\" {{\n    {settings}\n    {all}\n  }}")
    };
    let header = "address = \"http://h/${stack.state}\"\n    headers = { Authorization = \"Bearer ${env(\"T\")}\" }";
    insta::assert_snapshot!(check_backend(&http(header), ""), @"
    error credential-in-clear: a credential in `headers` of backend `http` would be stored in plain text with each plan of target `away`
      terrane.hcl:7:3 the engine writes these settings down
      hint: `username` and `password` of the block reach the engine by its environment alone
    ");
    let address = "address = \"http://u:${env(\"T\")}@h/${stack.state}\"";
    insta::assert_snapshot!(check_backend(&http(address), ""), @"
    error credential-in-clear: a credential in `address` of backend `http` would be stored in plain text with each plan of target `away`
      terrane.hcl:7:3 the engine writes these settings down
      hint: `username` and `password` of the block reach the engine by its environment alone
    ");
    let fine = "address = \"http://h/${stack.state}\"\n    headers = { X-Place = \"here\" }\n    password = env(\"T\")";
    assert_eq!(check_backend(&http(fine), ""), "");
}

#[test]
fn a_kind_that_no_engine_has() {
    insta::assert_snapshot!(check_backend("\"azure\" { key = stack.state }", ""), @"
    warning unknown-backend: no engine that is known has a backend `azure`
      terrane.hcl:7:3 this kind
      hint: did you mean `azurerm`?
    ");
}

#[test]
fn locks_that_are_not_whole() {
    let address = "address = \"http://h/${stack.state}\"";
    let http =
        |more: &str| check_backend(&format!("\"http\" {{\n    {address}\n    {more}\n  }}"), "");
    insta::assert_snapshot!(http(""), @"
    warning no-lock: states of target `away` have no lock: of two who write at once, one loses
      terrane.hcl:7:3 `address`, `lock_address` and `unlock_address` belong together
      hint: most servers take all three at one address: say it three times, with `${stack.state}`
    ");
    let by_context = "context \"c\" {\n  autoattach = [\"*\"]\n  env = { TF_HTTP_LOCK_ADDRESS = \"http://h/l\" }\n}";
    let backend = format!("\"http\" {{\n    {address}\n  }}");
    assert_eq!(check_backend(&backend, by_context), "");
    insta::assert_snapshot!(http("lock_address = \"http://h/${stack.state}\""), @"
    error half-a-lock: target `away` locks states and never unlocks them: `unlock_address` is missing
      terrane.hcl:7:3 `address`, `lock_address` and `unlock_address` belong together
      hint: most servers take all three at one address: say it three times, with `${stack.state}`
    ");
    insta::assert_snapshot!(http("lock_address = \"http://h/l\"\n    unlock_address = \"http://h/l\""), @"
    warning shared-lock: stacks `s` and `z` have one lock: while one is applied, the other fails
      terrane.hcl:7:3 the same `lock_address`
      hint: `${stack.state}` in `lock_address` and `unlock_address` gives each its own
    ");
}
