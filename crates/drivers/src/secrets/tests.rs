//! Secrets from the environment, from files and from commands.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;

#[track_caller]
fn check(raw: &str, expected: &str) {
    let seen = match raw.parse::<SecretReference>() {
        Ok(reference) => format!("{reference:?}"),
        Err(err) => err.to_string(),
    };
    assert_eq!(seen, expected);
}

#[test]
fn references() {
    check("env:TOKEN", r#"Env("TOKEN")"#);
    check("file:~/.config/key", r#"File("~/.config/key")"#);
    check(
        "command:pass show 'my key' \"\" a\"b c\"d",
        r#"Command(["pass", "show", "my key", "", "ab cd"])"#,
    );
    check("command:a 'b", "`command:a 'b` has an unclosed quote");
    check(
        "sops:a/b.yaml#c.d",
        r#"Sops { path: "a/b.yaml", key: "c.d" }"#,
    );
    check(
        "sops:a/b.yaml",
        "`sops:a/b.yaml` is not written as `sops:FILE#KEY.PATH`",
    );
    check("env:", "`env:` has nothing after its `:`");
    check(
        "dotenv:.env.local#TOKEN",
        r#"Dotenv { path: ".env.local", name: "TOKEN" }"#,
    );
    check(
        "vault:kv/team/app#key.part",
        r#"Vault { mount: "kv", path: "team/app", key: "key.part" }"#,
    );
    check(
        "vault:kv#key",
        "`vault:kv#key` is not written as `vault:MOUNT/PATH#KEY`",
    );
    check(
        "azure-keyvault:corp/db/0123",
        r#"AzureKeyVault { vault: "corp", name: "db", version: Some("0123") }"#,
    );
    check(
        "azure-keyvault:corp",
        "`azure-keyvault:corp` is not written as `azure-keyvault:VAULT/NAME`",
    );
    check(
        "aws-secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:db-x#user",
        r#"AwsSecretsManager { name: "arn:aws:secretsmanager:eu-west-1:1:secret:db-x", key: Some("user") }"#,
    );
    check("aws-ssm:/app/db", r#"AwsSsm { name: "/app/db" }"#);
    let none = "this is not a secret reference: it begins with none of `env:`, `file:`, `sops:`, `dotenv:`, `command:`, \
                `vault:`, `azure-keyvault:`, `aws-secretsmanager:`, `aws-ssm:`";
    check("TOKEN", none);
    check("evn:TOKEN", none);
}

async fn resolved(raw: &str, root: &Path) -> String {
    let asker = BTreeMap::from([
        ("TOKEN".to_owned(), "from the environment".to_owned()),
        ("EMPTY".to_owned(), String::new()),
        ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
        ("AWS_ACCESS_KEY_ID".to_owned(), "AKIDEXAMPLE".to_owned()),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), "hush".to_owned()),
        ("HOME".to_owned(), root.join("home").display().to_string()),
    ]);
    let path = std::env::var("PATH").unwrap();
    let env = Environment::from_iter([("PATH", path)]);
    let around = SecretContext {
        asker: &asker,
        root,
        env: &env,
        sources: &SecretSources::default(),
    };
    match resolve(&raw.parse().unwrap(), around).await {
        Ok(secret) => format!("= {}", secret.expose()),
        Err(err) => err.to_string().replace(root.to_str().unwrap(), "ROOT"),
    }
}

#[tokio::test]
async fn each_source_gives_its_value() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::create_dir(root.join("home")).unwrap();
    fs::write(root.join("home/key"), "at home\r\n").unwrap();
    fs::write(root.join("key"), "two\nlines\n\n").unwrap();
    assert_eq!(resolved("env:TOKEN", root).await, "= from the environment");
    assert_eq!(resolved("file:~/key", root).await, "= at home");
    assert_eq!(resolved("file:key", root).await, "= two\nlines\n");
    let lines = "# ours\nexport A=one # not this\nB = 'two # this'\nC=\"th\\nree\\\"\"\nA=last\nD=\n\
         KEY=\"-----BEGIN KEY-----\nA=in it\n-----END KEY-----\" # a key\nE='x\ny'\nF=after\nG=\"one\ntwo\n\"\n";
    fs::write(root.join(".env"), lines).unwrap();
    assert_eq!(resolved("dotenv:.env#A", root).await, "= last");
    assert_eq!(resolved("dotenv:.env#B", root).await, "= two # this");
    assert_eq!(resolved("dotenv:.env#C", root).await, "= th\nree\"");
    let key = "= -----BEGIN KEY-----\nA=in it\n-----END KEY-----";
    assert_eq!(resolved("dotenv:.env#KEY", root).await, key);
    assert_eq!(resolved("dotenv:.env#E", root).await, "= x\ny");
    assert_eq!(resolved("dotenv:.env#F", root).await, "= after");
    // A key file may require its final newline.
    assert_eq!(resolved("dotenv:.env#G", root).await, "= one\ntwo\n");
    assert_eq!(
        resolved("command:printf '%s\\n' 'a  b'", root).await,
        "= a  b"
    );
    // No shell, and no environment except the given one.
    assert_eq!(resolved("command:echo $HOME;", root).await, "= $HOME;");
}

#[tokio::test]
async fn failures_say_where_not_what() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::write(root.join("empty"), "\n").unwrap();
    fs::write(root.join("binary"), b"\xff\xfe-hush").unwrap();
    fs::write(root.join(".env"), "EMPTY=\nOPEN=\"hush\n").unwrap();
    fs::write(root.join("broken.env"), "A=1\nhush\n").unwrap();
    fs::write(root.join("big"), vec![b'x'; LARGEST + 1]).unwrap();
    let mut lines = Vec::new();
    for raw in [
        "env:MISSING",
        "env:EMPTY",
        "file:missing",
        "file:empty",
        "file:binary",
        "file:big",
        "command:sh -c 'echo hush; echo hush >&2; exit 3'",
        "command:sh -c 'echo hush; echo no key for you >&2; exit 3'",
        "command:sh -c 'echo hush-hush; echo got hush-hush, not more >&2; exit 3'",
        "command:no-such-program-here x",
        "command:true",
        "dotenv:.env#MISSING",
        "dotenv:.env#EMPTY",
        "dotenv:.env#OPEN",
        "dotenv:broken.env#A",
        "vault:kv/app#key",
        "aws-ssm:/app/key",
    ] {
        lines.push(resolved(raw, root).await);
    }
    let all = lines.join("\n");
    assert!(!all.contains("hush"));
    insta::assert_snapshot!(all, @r"
    the environment variable `MISSING` is not set
    the secret from `env:EMPTY` is empty
    there is no secret file `ROOT/missing`
    the secret from `file:empty` is empty
    the secret from `file:binary` is not UTF-8
    the secret file `ROOT/big` is larger than 1048576 bytes
    the secret command `sh` ended with exit code 3
    the secret command `sh` ended with exit code 3: no key for you
    the secret command `sh` ended with exit code 3: got (secret), not more
    could not run the secret command `no-such-program-here`
    the secret from the command `true` is empty
    `.env` has no value at `MISSING`
    the secret from `dotenv:.env#EMPTY` is empty
    line 2 of `.env` is not `NAME=VALUE`
    line 2 of `broken.env` is not `NAME=VALUE`
    cannot find Vault: `VAULT_ADDR` is not set
    cannot find AWS: `AWS_REGION` is not set
    ");
}
