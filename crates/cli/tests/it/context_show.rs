//! Where values come from, as people see it; and that the guide's examples are good.

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, stack, terrane};

const CONTEXTS: &str = r#"
context "all" {
  autoattach = ["*"]
  env        = { REGION = "west", TOKEN = secret("env:TOKEN") }
  vars       = { size = 1, unheard_of = true }
  files      = { "ca.pem" = "PEM" }
  pass_env   = ["AWS_*", "NOT_THERE"]
}
context "mine" {
  autoattach = ["label:big", "app"]
  priority   = 10
  env        = { REGION = env("REGION", "north") }
  hook "before" "plan" {
    run = ["./login.sh", stack.name]
  }
  secret "sops-age" {
    namespace = "flux-system"
    data      = { "age.agekey" = secret("env:TOKEN"), kind = "not-shown-either" }
  }
}
context "nobody" { vars = { size = 2 } }
"#;

fn layered() -> TestTerrane {
    let test = terrane();
    let app = stack(
        "app",
        "labels = [\"big\"]\n  inputs = { size = 3 }\n  contexts = [\"mine\"]",
    );
    test.write("terrane.hcl", &format!("{HEAD}{CONTEXTS}{app}"))
        .write("app/main.tf", "variable \"size\" {}\n")
        .write("login.sh", "#!/bin/sh\n");
    test.env("AWS_REGION", "eu").env("TOKEN", "never-shown")
}

#[test]
fn every_value_says_where_it_comes_from() {
    let test = layered();
    let said = test.cli(&["context", "show", "app"]).expect(0);
    for hidden in ["never-shown", "not-shown-either"] {
        assert!(!said.to_string().contains(hidden), "{said}");
    }
    assert_snapshot!(said.stdout, @r#"
    CONTEXT   PRIORITY   ATTACHED BY                AT
    mine            10   contexts, label:big, app   terrane.hcl:16
    all              0   *                          terrane.hcl:9

    ENV           VALUE                    FROM                                    AT
    AWS_REGION    (from the caller)        context `all`, `pass_env` has `AWS_*`   terrane.hcl:14
    REGION        env("REGION", "north")   context `mine`                          terrane.hcl:19
      overrides   "west"                   context `all`                           terrane.hcl:11
    TOKEN         secret("env:TOKEN")      context `all`                           terrane.hcl:11

    VARS          VALUE   FROM                                                           AT
    size          3       inputs of the stack                                            terrane.hcl:35
      overrides   1       context `all`                                                  terrane.hcl:12
    unheard_of    true    context `all`, ignored: the module declares no such variable   terrane.hcl:12

    FILES    VALUE     FROM            AT
    ca.pem   3 bytes   context `all`   terrane.hcl:13

    CLUSTER SECRET         VALUE                                   FROM                                                                         AT
    flux-system/sops-age   age.agekey, kind: secret("env:TOKEN")   context `mine`, not used: the stack has no `bootstrap` with a `kubeconfig`   terrane.hcl:23

    HOOK          RUN                          FROM             AT
    before plan   ["./login.sh", stack.name]   context `mine`   terrane.hcl:20

    PASS_ENV                                          FROM            AT
    NOT_THERE   matches nothing in your environment   context `all`   terrane.hcl:14

    the engine also receives CHECKPOINT_DISABLE, HOME, LANG, PATH, TF_HTTP_ADDRESS, TF_HTTP_LOCK_ADDRESS, TF_HTTP_PASSWORD, TF_HTTP_UNLOCK_ADDRESS, TF_HTTP_USERNAME, TF_INPUT, TF_IN_AUTOMATION
    "#);
    let said = test.cli(&["context", "list"]).expect(0);
    assert_snapshot!(said.stdout, @"
    CONTEXT   PRIORITY   ATTACHES TO          AT               STACKS
    all              0   *                    terrane.hcl:9    app
    mine            10   label:big, app       terrane.hcl:16   app
    nobody           0   those that name it   terrane.hcl:28   none
    ");
}

#[test]
fn programs_read_the_same() {
    let test = layered();
    let said = test.cli(&["context", "show", "app", "--json"]).expect(0);
    let shown: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(shown["vars"]["size"]["from"], "inputs");
    assert_eq!(shown["vars"]["size"]["overrides"][0]["context"], "all");
    assert_eq!(shown["vars"]["unheard_of"]["ignored"], true);
    assert_eq!(shown["env"]["TOKEN"]["value"], "secret(\"env:TOKEN\")");
    assert_eq!(shown["env"]["AWS_REGION"]["pattern"], "AWS_*");
    let list = test.cli(&["context", "list", "--json"]).expect(0);
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(list[0]["stacks"], serde_json::json!(["app"]));
}

/// Each example of the guide and the reference is a complete project except for its modules.
#[test]
fn the_guides_examples_are_good() {
    let guide = include_str!("../../../../docs/guide/contexts.md");
    let reference = include_str!("../../../../docs/reference/contexts.md");
    let examples: Vec<&str> = [guide, reference]
        .iter()
        .flat_map(|page| page.split("```hcl\n# terrane.hcl").skip(1))
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= 4, "{} examples", examples.len());
    for example in examples {
        let test = terrane();
        test.write("terrane.hcl", example)
            .write("scripts/login.sh", "#!/bin/sh\n")
            .write("certs/ca.pem", "PEM\n");
        let named = example.lines().filter_map(|line| {
            let (key, value) = line.trim().split_once('=')?;
            (key.trim() == "path").then(|| value.trim().trim_matches('"').to_owned())
        });
        for path in named {
            let module = "variable \"location\" { default = \"\" }\nvariable \"proxmox_api_token_id\" { default = \"\" }\nvariable \"proxmox_api_token_secret\" {\n  default   = \"\"\n  sensitive = true\n}\n";
            test.write(&format!("{path}/main.tf"), module);
        }
        let said = test.cli(&["validate"]);
        assert_eq!(said.code, Some(0), "{example}\n{said}");
        let said = test.cli(&["context", "list"]).expect(0);
        assert!(!said.stdout.contains("none"), "{example}\n{said}");
    }
}
