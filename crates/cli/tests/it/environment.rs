//! Exactly what an engine sees of its caller's environment.

use std::collections::BTreeMap;

use insta::{allow_duplicates, assert_snapshot};
use testkit::{TestTerrane, engines};

use crate::project::{runs, stack, terrane};

/// A project on an engine that copies the engine's own environment, not its shell's.
fn watching(engine: &str, target: &str) -> TestTerrane {
    let test = terrane();
    let seen = test.root().join("seen");
    let command = format!("cat /proc/$PPID/environ > {}", seen.display());
    let head = format!(
        "project \"shop\" {{\n  id = \"k3v9qd\"\n  engine \"{engine}\" {{}}\n}}\n\nlayer \"main\" {{ order = 0 }}\n{target}\n"
    );
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", &runs(&command, "1"));
    test.env("TMPDIR", "/tmp")
        .env("LC_ALL", "C.UTF-8")
        .env("https_proxy", "")
        .env("NO_PROXY", "*")
        .env("SSH_AUTH_SOCK", "/run/agent")
        .env("DOCKER_HOST", "unix:///run/docker.sock")
        .env("KUBECONFIG", "/nowhere/config")
        .env("FOO", "leak")
        .env("AWS_SECRET_ACCESS_KEY", "leak")
        .env("ARM_CLIENT_SECRET", "leak")
        .env("GITHUB_TOKEN", "leak")
        .env("TF_VAR_size", "leak")
        .env("TF_LOG", "trace")
        .env("TF_CLI_ARGS", "-no-such-flag")
}

fn seen(test: &TestTerrane) -> BTreeMap<String, String> {
    let bytes = std::fs::read_to_string(test.root().join("seen")).expect("an environment");
    bytes
        .split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn is_the_documented_list_and_nothing_else() {
    for (name, _) in engines::all() {
        let test = watching(name, "target \"local\" { writers = [\"anyone\"] }");
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        let seen = seen(&test);
        let names: Vec<&str> = seen.keys().map(String::as_str).collect();
        allow_duplicates!(assert_snapshot!(names.join("\n"), @"
        CHECKPOINT_DISABLE
        DOCKER_HOST
        HOME
        KUBECONFIG
        LANG
        LC_ALL
        NO_PROXY
        PATH
        SSH_AUTH_SOCK
        TF_HTTP_ADDRESS
        TF_HTTP_LOCK_ADDRESS
        TF_HTTP_PASSWORD
        TF_HTTP_UNLOCK_ADDRESS
        TF_HTTP_USERNAME
        TF_INPUT
        TF_IN_AUTOMATION
        TMPDIR
        https_proxy
        "));
        assert_eq!(seen["SSH_AUTH_SOCK"], "/run/agent");
        assert!(!seen.values().any(|value| value == "leak"), "{name}");
    }
}

#[test]
fn has_what_a_context_passes_on() {
    let test = watching("tofu", "target \"local\" { writers = [\"anyone\"] }");
    let context = "\ncontext \"cloud\" {\n  autoattach = [\"*\"]\n  env        = { REGION = \"west\" }\n  pass_env   = [\"AWS_*\"]\n}\n";
    let file = test.read("terrane.hcl") + context;
    test.write("terrane.hcl", &file);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let seen = seen(&test);
    assert_eq!(seen["REGION"], "west");
    assert_eq!(seen["AWS_SECRET_ACCESS_KEY"], "leak");
    assert!(!seen.contains_key("ARM_CLIENT_SECRET"));
}

/// Plans work on a target that is not everybody's; agents and clusters are not for them.
#[test]
fn has_no_agent_on_a_target_of_others() {
    let target = "writer \"ci\" {\n  issuer   = \"https://token.example.io\"\n  audience = \"terrane\"\n  claims   = { repository = \"example/infra\" }\n}\ntarget \"local\" { writers = [\"ci\"] }";
    let test = watching("tofu", target);
    let seen_at = test.root().join("seen");
    // The wrapper stands in front of the real engine and notes what it was given.
    let real = engines::tofu();
    let wrapper = test.root().join("bin/tofu");
    let text = format!(
        "#!/bin/sh\ncat /proc/$$/environ > {}\nexec {} \"$@\"\n",
        seen_at.display(),
        real.display()
    );
    testkit::write_program(&wrapper, &text);
    drop(test.cli(&["plan"]).expect(0));
    let seen = seen(&test);
    for name in ["SSH_AUTH_SOCK", "DOCKER_HOST", "KUBECONFIG"] {
        assert!(!seen.contains_key(name), "{name} was passed on");
    }
    assert!(seen.contains_key("PATH"));
}
