//! What gates and sinks get: the environment of the stack's contexts, as the engine and `bootstrap` do, and secrets, which
//! are masked wherever they would be shown.

use testkit::{CommandOutput, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const CONTEXT: &str = r#"
context "cloud" {
  autoattach = ["target:local"]
  env        = { ACCOUNT = secret("env:CLOUD_ACCOUNT") }
  pass_env   = ["CLOUD_REGION"]
}
"#;

fn project(blocks: &str, more: &str) -> TestTerrane {
    let test = terrane()
        .env("CLOUD_ACCOUNT", "account-of-the-cloud")
        .env("CLOUD_REGION", "west-1")
        .env("PROBE_TOKEN", "token-of-the-probe");
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{CONTEXT}{more}{}", stack("app", blocks)),
    )
    .write("app/main.tf", "output \"o\" { value = 1 }\n");
    test
}

fn gate(script: &str) -> String {
    format!(
        "gate \"command\" \"signed-in\" {{\n    run     = [\"sh\", \"-c\", \"{script}\"]\n    \
         env     = {{ TOKEN = secret(\"env:PROBE_TOKEN\") }}\n    timeout = \"1s\"\n  }}"
    )
}

#[track_caller]
fn shows_no_secret(test: &TestTerrane, said: &CommandOutput) {
    let logs = test.cli(&["run", "logs", "r1"]).to_string();
    let shown = test.cli(&["run", "show", "r1", "--json"]).to_string();
    for text in [&said.to_string(), &logs, &shown] {
        for secret in ["account-of-the-cloud", "token-of-the-probe"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let kept = test.shell("grep -rlE 'account-of-the-cloud|token-of-the-probe' ../home");
    assert_eq!(kept.stdout, "", "kept in clear");
}

#[test]
fn gates_get_the_context_and_secrets() {
    // Quotes in the middle: the project file itself holds no secret.
    let right = "[ $ACCOUNT = account-of''-the-cloud ] && [ $CLOUD_REGION = west-1 ] && [ $TOKEN = token-of''-the-probe ]";
    let test = project(&gate(right), "");
    let said = test.cli(&["apply", "--auto-approve"]).expect(0);
    shows_no_secret(&test, &said);
    let said = test.cli(&["verify", "--once"]).expect(0);
    shows_no_secret(&test, &said);
}

#[test]
fn what_gates_print_of_secrets_is_masked() {
    let test = project(&gate("echo as $ACCOUNT with $TOKEN; exit 1"), "");
    let said = test.cli(&["apply", "--auto-approve"]).expect(5);
    assert!(
        said.to_string().contains("as (secret) with (secret)"),
        "{said}"
    );
    shows_no_secret(&test, &said);
    let said = test.cli(&["verify", "--once"]).expect(5);
    assert!(
        said.to_string().contains("as (secret) with (secret)"),
        "{said}"
    );
    shows_no_secret(&test, &said);
}

/// A credential plugin, which is how `aws eks get-token` and `kubelogin` sign in.
#[test]
fn credential_plugins_of_sinks_get_the_context() {
    let kubeconfig = r#"{
        apiVersion = "v1", kind = "Config", current-context = "c"
        clusters = [{ name = "c", cluster = { server = "https://127.0.0.1:1" } }]
        contexts = [{ name = "c", context = { cluster = "c", user = "u" } }]
        users    = [{ name = "u", user = { exec = {
          apiVersion = "client.authentication.k8s.io/v1", command = "sh"
          args = ["-c", "echo signs in as $ACCOUNT in $CLOUD_REGION >&2; exit 1"]
        } } }]
      }"#;
    let publish = format!(
        "publish \"runtime\" {{\n    path   = \"app.yaml\"\n    values = {{ one = output.o }}\n    \
         sink \"configmap\" {{\n      kubeconfig = {kubeconfig}\n      namespace = \"n\"\n      name = \"facts\"\n    }}\n  }}"
    );
    let test = project(
        &publish,
        "\nfacts \"runtime\" { repository = \"../facts.git\" }\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    for words in [&["apply", "--auto-approve"][..], &["facts", "publish"]] {
        let said = test.cli(words);
        assert!(
            said.to_string().contains("signs in as (secret) in west-1"),
            "{said}"
        );
        shows_no_secret(&test, &said);
    }
}
