//! Secrets from the environment, from files and from commands.

use std::fs;

use super::*;

#[track_caller]
fn check(raw: &str, expected: &str) {
    let seen = match raw.parse::<Reference>() {
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
    check(
        "command:a 'b",
        "`command:a 'b` has a quote that does not end",
    );
    check(
        "sops:a/b.yaml#c.d",
        r#"Sops { path: "a/b.yaml", key: "c.d" }"#,
    );
    check(
        "sops:a/b.yaml",
        "`sops:a/b.yaml` does not say which value: `sops:FILE#KEY.PATH`",
    );
    check("env:", "`env:` names nothing after its `:`");
    check(
        "vault:kv/a#b",
        "secrets from `vault:` are not supported yet",
    );
    check(
        "TOKEN",
        "`TOKEN` is not a secret reference: it begins with none of `env:`, `file:`, `sops:`, `command:`",
    );
    check(
        "evn:TOKEN",
        "`evn:TOKEN` is not a secret reference: it begins with none of `env:`, `file:`, `sops:`, `command:`",
    );
}

async fn resolved(raw: &str, root: &Path) -> String {
    let asker = BTreeMap::from([
        ("TOKEN".to_owned(), "from the environment".to_owned()),
        ("HOME".to_owned(), root.join("home").display().to_string()),
    ]);
    let path = std::env::var("PATH").unwrap();
    let env = Environment::from_iter([("PATH", path)]);
    let around = Surroundings {
        asker: &asker,
        root,
        env: &env,
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
    assert_eq!(
        resolved("command:printf '%s\\n' 'a  b'", root).await,
        "= a  b"
    );
    // No shell, and nothing of our environment but what was given.
    assert_eq!(resolved("command:echo $HOME;", root).await, "= $HOME;");
}

#[tokio::test]
async fn failures_say_where_not_what() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::write(root.join("empty"), "\n").unwrap();
    fs::write(root.join("binary"), b"\xff\xfe-hush").unwrap();
    fs::write(root.join("big"), vec![b'x'; LARGEST + 1]).unwrap();
    let mut lines = Vec::new();
    for raw in [
        "env:MISSING",
        "file:missing",
        "file:empty",
        "file:binary",
        "file:big",
        "command:sh -c 'echo hush; echo hush >&2; exit 3'",
        "command:no-such-program-here x",
        "command:true",
    ] {
        lines.push(resolved(raw, root).await);
    }
    let all = lines.join("\n");
    assert!(!all.contains("hush"));
    insta::assert_snapshot!(all, @r"
    the environment variable `MISSING` is not set
    could not read the secret file `ROOT/missing`
    the secret from `file:empty` is empty
    the secret from `file:binary` is not UTF-8
    the secret file `ROOT/big` is larger than 1048576 bytes
    the secret command `sh` ended with exit code 3
    could not run the secret command `no-such-program-here`
    the secret from the command `true` is empty
    ");
}
