//! Secrets go into files that are encrypted, and nowhere else.

use std::fs;

use testkit::{AgeKey, Sops, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const RENDER: &str = r#"
render "lab" {
  templates = "templates"
  data      = ["cluster.yaml", "secrets.sops.yaml"]
  output    = "out"
  secrets   = { deploy_key = secret("env:DEPLOY_KEY") }
  sensitive = ["tfstate_*"]
  values    = { auth = "tfstate_user ~ ':' ~ tfstate_password" }
}
"#;

fn project() -> (TestTerrane, AgeKey) {
    let test = terrane().env("DEPLOY_KEY", "deploy-key-value");
    let key = AgeKey::generate();
    let keys = test.root().join("user/.config/sops/age");
    fs::create_dir_all(&keys).unwrap();
    key.save(&keys.join("keys.txt"));
    test.write("terrane.hcl", &format!("{HEAD}{}{RENDER}", stack("app", "")))
        .write("app/main.tf", "")
        .write(
            ".sops.yaml",
            &format!(
                "creation_rules:\n  - path_regex: partly\n    encrypted_regex: ^(data|stringData)$\n    age: {0}\n  - age: {0}\n",
                key.recipient
            ),
        )
        .write(
            "cluster.yaml",
            "name: lab\ntfstate_user: admin-user\ntfstate_password: hunter2hunter2\n",
        )
        .write("secrets.sops.yaml", "proxmox:\n    token: s3cr3t-token-value\n    port: 5432\n")
        .write(
            "templates/all.sops.yaml.j2",
            "user: {{ tfstate_user }}\nauth: {{ auth | b64encode }}\ntoken: {{ proxmox.token }}\nport: {{ proxmox.port }}\nkey: {{ deploy_key }}\n",
        )
        .write(
            "templates/partly.sops.yaml.j2",
            "kind: Secret\nmetadata:\n    name: {{ name }}\nstringData:\n    token: {{ proxmox.token }}\n",
        )
        .write("templates/plain.txt.j2", "{{ name }} {{ has('proxmox') }}\n");
    let _ = test
        .cli(&["secret", "encrypt", "secrets.sops.yaml", "--in-place"])
        .expect(0);
    (test, key)
}

fn sops(test: &TestTerrane) -> Sops {
    Sops::with_key(&test.root().join("user/.config/sops/age/keys.txt"))
}

const SECRETS: [&str; 5] = [
    "admin-user",
    "hunter2hunter2",
    "s3cr3t-token",
    "deploy-key-value",
    "YWRtaW4tdXNlcjpod",
];

/// Everything that rendering wrote.
fn written(test: &TestTerrane) -> String {
    let dir = test.project().join("out");
    let files = fs::read_dir(dir).unwrap();
    files
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect()
}

#[test]
fn encrypted_files_hold_them_and_keep_their_bytes() {
    let (test, _key) = project();
    let _ = test.cli(&["render"]).expect(0);
    let all = written(&test);
    for secret in SECRETS {
        assert!(!all.contains(secret), "{all}");
    }
    let plain = sops(&test).run(&test.project(), &["-d", "out/all.sops.yaml"]);
    insta::assert_snapshot!(plain, @"
    user: admin-user
    auth: YWRtaW4tdXNlcjpodW50ZXIyaHVudGVyMg==
    token: s3cr3t-token-value
    port: 5432
    key: deploy-key-value
    ");
    let plain = sops(&test).run(&test.project(), &["-d", "out/partly.sops.yaml"]);
    assert!(plain.contains("token: s3cr3t-token-value"), "{plain}");
    assert_eq!(test.read("out/plain.txt"), "lab True\n");

    let before = written(&test);
    let said = test.cli(&["render"]).expect(0);
    assert!(said.stdout.contains("as they should be"), "{said}");
    let _ = test.cli(&["render", "--check"]).expect(0);
    assert_eq!(written(&test), before);

    // One value changes: the others keep their ciphertext.
    let line = |text: &str, key: &str| -> String {
        let mut lines = text.lines();
        lines.find(|line| line.starts_with(key)).unwrap().to_owned()
    };
    let old = test.read("out/all.sops.yaml");
    test.write(
        "cluster.yaml",
        "name: lab\ntfstate_user: admin-user\ntfstate_password: another-password\n",
    );
    let _ = test.cli(&["render", "--check"]).expect(2);
    let _ = test.cli(&["render"]).expect(0);
    let new = test.read("out/all.sops.yaml");
    assert_eq!(line(&old, "token:"), line(&new, "token:"));
    assert_ne!(line(&old, "auth:"), line(&new, "auth:"));
}

#[test]
fn a_plain_file_that_looks_at_one_is_refused_with_its_line() {
    let (test, _key) = project();
    test.write("templates/leak.txt.j2", "fine\n  {{ auth | upper }}\n")
        .write("templates/list.txt.j2", "{{ proxmox | tojson }}\n");
    let said = test.cli(&["render"]).expect(1);
    assert!(!test.project().join("out").exists());
    for secret in SECRETS {
        assert!(!said.to_string().contains(secret), "{said}");
    }
    insta::assert_snapshot!(said.to_string(), @r#"
    ── stderr
    error: this file is not encrypted, and it looks at the secret `tfstate_user`
      --> templates/leak.txt.j2:2:13
       |
     2 |   {{ auth | upper }}
       |             ^^^^^ a secret is looked at here
       |
       = hint: only files called `*.sops.*` may hold secrets; `has("tfstate_user")` asks whether it is
               there

    error: this file is not encrypted, and it looks at the secret `proxmox.port`
      --> templates/list.txt.j2:1:1
       |
     1 | {{ proxmox | tojson }}
       | ^^^^^^^^^^^^^^^^^^^^^^ a secret is looked at here
       |
       = hint: only files called `*.sops.*` may hold secrets; `has("proxmox")` asks whether it is there

    2 errors in 2 files
    [exit 1]
    "#);
}

#[test]
fn what_stays_in_clear_of_an_encrypted_file_is_refused() {
    for (name, text) in [
        (
            "key",
            "kind: Secret\nstringData:\n    {{ proxmox.token }}: x\n",
        ),
        (
            "value",
            "kind: {{ proxmox.token }}\nstringData:\n    a: b\n",
        ),
        (
            "looks-encrypted",
            "kind: ENC[{{ proxmox.token }}]\nstringData:\n    a: b\n",
        ),
        ("slice", "kind: {{ proxmox.token[3] }}\n"),
        ("length", "kind: {{ proxmox.token | length }}\n"),
        ("number", "kind: {{ proxmox.port * 2 }}\n"),
        ("comment", "kind: x # {{ deploy_key }}\n"),
        (
            "shape",
            "kind: x\nlist:\n{% for c in proxmox.token[:2] %}    - x{{ loop.index }}{{ c }}\n{% endfor %}\n",
        ),
        (
            "existence",
            "{% if proxmox.token | length > 100 or proxmox.port == 5433 %}kind: x{% endif %}\n",
        ),
    ] {
        let (test, _key) = project();
        test.write(&format!("templates/partly-{name}.sops.yaml.j2"), text);
        let said = test.cli(&["render"]).expect(1);
        assert!(
            said.stderr.contains(&format!(
                "a secret would stand in clear in `out/partly-{name}.sops.yaml`"
            )),
            "{name}: {said}"
        );
        assert!(!test.project().join("out").exists());
        for secret in SECRETS {
            assert!(!said.to_string().contains(secret), "{said}");
        }
    }
}

#[test]
fn without_a_rule_nothing_is_written() {
    let (test, key) = project();
    test.write(
        ".sops.yaml",
        &format!(
            "creation_rules:\n  - path_regex: partly\n    age: {}\n",
            key.recipient
        ),
    );
    let said = test.cli(&["render"]).expect(1);
    assert!(!test.project().join("out").exists());
    insta::assert_snapshot!(said.to_string(), @"
    ── stderr
    error: no rule of `.sops.yaml` can be used
           no creation rule matches `out/all.sops.yaml`
    [exit 1]
    ");
}

#[test]
fn without_a_key_a_look_is_told_by_digests() {
    let (test, _key) = project();
    let _ = test.cli(&["render"]).expect(0);
    fs::remove_dir_all(test.root().join("user/.config")).unwrap();
    let mut out = test.cli(&["render", "--check"]).expect(0).to_string();
    test.write("templates/plain.txt.j2", "changed\n");
    out += &test.cli(&["render", "--check"]).expect(1).to_string();
    let shown = out.replace(&test.root().display().to_string(), "ROOT");
    let shown: Vec<String> = shown
        .lines()
        .map(|line| match line.split_once("age1") {
            Some((before, _)) => format!("{before}age1…"),
            None => line.to_owned(),
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    lab   3 files as they should be
    ── stderr
    note: 2 encrypted files of `lab` compared by digest alone: there is no key here to open them
    ── stderr
    error: could not open `secrets.sops.yaml`
           there is no age key to decrypt it with: it is encrypted for
           `age1…
    hint: provide the private key in one of these: `SOPS_AGE_KEY`, `SOPS_AGE_KEY_FILE`,
          `SOPS_AGE_KEY_CMD`, `SOPS_AGE_SSH_PRIVATE_KEY_FILE`, `SOPS_AGE_SSH_PRIVATE_KEY_CMD`,
          `ROOT/user/.config/sops/age/keys.txt`,
          `ROOT/user/.ssh/id_ed25519`, `ROOT/user/.ssh/id_rsa`
    [exit 1]
    ");
}

#[test]
fn rules_may_be_rendered_too() {
    let (test, key) = project();
    fs::remove_file(test.project().join(".sops.yaml")).unwrap();
    test.write("age.key", &key.identity).write(
        "templates/.sops.yaml.j2",
        "creation_rules:\n  - age: {{ age_key('public') }}\n",
    );
    let _ = test.cli(&["render"]).expect(0);
    let plain = sops(&test).run(&test.project(), &["-d", "out/all.sops.yaml"]);
    assert!(plain.contains("s3cr3t-token-value"), "{plain}");
}

/// Nothing that is secret was said or written.
#[track_caller]
fn hides(said: &str) {
    for secret in SECRETS {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_slip_in_the_name_of_a_secret_is_an_error() {
    let (test, _key) = project();
    let file = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &file
            .replace("[\"tfstate_*\"]", "[\"tfstate_pasword\", \"tfstate_user\", \"maybe\"]")
            .replace("output    = \"out\"", "output    = \"out\"\n  schema    = \"schema.json\""),
    )
    .write(
        "schema.json",
        r##"{"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"maybe": {"type": "string"}}}}}"##,
    )
    .write("templates/leak.txt.j2", "{{ tfstate_password }}\n");
    let said = test.cli(&["render"]).expect(1).to_string();
    assert!(!test.project().join("out").exists());
    hides(&said);
    insta::assert_snapshot!(said, @r#"
    ── stderr
    error: `tfstate_pasword` of `sensitive` is nowhere in the data
      --> terrane.hcl:22:15
       |
    22 |   sensitive = ["tfstate_pasword", "tfstate_user", "maybe"]
       |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ there is no `tfstate_pasword`
       |
       = hint: did you mean `tfstate_password`?

    1 error in terrane.hcl
    [exit 1]
    "#);
}

#[test]
fn what_is_wrong_with_an_encrypted_file_quotes_no_secret() {
    for (name, text, line) in [
        (
            "twice",
            "a: b\n\"{{ proxmox.token }}\": 1\nc: d\n\"{{ proxmox.token }}\": 2\n",
            4,
        ),
        ("broken", "a: b\ntoken: [{{ proxmox.token }}\n", 2),
        ("key", "a: b\nc:\n  \"k{{ proxmox.token }}\": 1\n", 3),
        ("comment", "a: b\nc: d\nkind: x # {{ deploy_key }}\n", 3),
    ] {
        let (test, _key) = project();
        let template = format!("templates/partly-{name}.sops.yaml.j2");
        test.write(&template, text);
        let said = test.cli(&["render"]).expect(1).to_string();
        hides(&said);
        assert!(
            said.contains(&format!("{template}:{line}:")),
            "{name}: {said}"
        );
        assert!(!test.project().join("out").exists());
    }
    let (test, _key) = project();
    test.write(
        "templates/twice.sops.yaml.j2",
        "\"{{ proxmox.token }}\": 1\n\"{{ proxmox.token }}\": 2\n",
    );
    insta::assert_snapshot!(test.cli(&["render"]).expect(1).to_string(), @r#"
    ── stderr
    error: what this makes cannot be encrypted: a key is defined twice
      --> templates/twice.sops.yaml.j2:2:1
       |
     2 | "{{ proxmox.token }}": 2
       | ^^^^^^^^^^^^^^^^^^^^^^^^ line 2 of `out/twice.sops.yaml`

    1 error in templates/twice.sops.yaml.j2
    [exit 1]
    "#);
}

#[test]
fn secrets_that_cannot_be_had_are_said_at_once() {
    let (test, _key) = project();
    let file = test.read("terrane.hcl");
    let more = "secret(\"env:NOT_SET\"), other = secret(\"env:NOR_THIS\")";
    let file = file.replace("secret(\"env:DEPLOY_KEY\")", more);
    test.write("terrane.hcl", &file);
    insta::assert_snapshot!(test.cli(&["render"]).expect(1).to_string(), @r#"
    ── stderr
    error: could not resolve the secret `deploy_key`: the environment variable `NOT_SET` is not set
      --> terrane.hcl:20:17
       |
    20 |   secrets   = { deploy_key = secret("env:NOT_SET"), other = secret("env:NOR_THIS") }
       |                 ^^^^^^^^^^ `secrets` names it here
       |
       = hint: set it: `export NOT_SET=…`

    error: could not resolve the secret `other`: the environment variable `NOR_THIS` is not set
      --> terrane.hcl:20:53
       |
    20 |   secrets   = { deploy_key = secret("env:NOT_SET"), other = secret("env:NOR_THIS") }
       |                                                     ^^^^^ `secrets` names it here
       |
       = hint: set it: `export NOR_THIS=…`

    2 errors in terrane.hcl
    [exit 1]
    "#);
}

#[test]
fn a_file_that_is_not_encrypted_any_more_is_not_said_to_be_compared() {
    let (test, _key) = project();
    let _ = test.cli(&["render"]).expect(0);
    test.write("out/all.sops.yaml", "");
    let said = test.cli(&["render", "--diff"]).to_string();
    assert!(said.contains("what is there cannot be opened"), "{said}");
}

#[test]
fn a_file_that_cannot_be_opened_any_more_is_made_anew_when_asked() {
    let (test, _key) = project();
    let _ = test.cli(&["render"]).expect(0);
    let text = test.read("out/all.sops.yaml");
    let (before, mac) = text.split_once("mac: ENC[AES256_GCM,data:").unwrap();
    let damaged = format!("{before}mac: ENC[AES256_GCM,data:AAAA{}", &mac[4..]);
    test.write("out/all.sops.yaml", &damaged);
    let said = test.cli(&["render"]).expect(1).to_string();
    assert_eq!(test.read("out/all.sops.yaml"), damaged);
    insta::assert_snapshot!(said, @"
    ── stderr
    error: cannot decrypt the existing file `out/all.sops.yaml`
           cannot read its MAC: it was changed after it was encrypted
           it was modified, or moved from another path
    hint: restore the last good version, for example from Git, or replace it:
          `terrane render --overwrite`
    [exit 1]
    ");
    let _ = test.cli(&["render", "--overwrite"]).expect(0);
    let plain = sops(&test).run(&test.project(), &["-d", "out/all.sops.yaml"]);
    assert!(plain.contains("s3cr3t-token-value"), "{plain}");
    let _ = test.cli(&["render", "--check"]).expect(0);
}

/// Who edits the source, who edits what was rendered, and who gives it a new key.
#[test]
fn an_encrypted_file_is_edited_at_its_source() {
    let (test, _key) = project();
    let file = test.read("terrane.hcl");
    let stack_of = stack("app", "render = \"lab\"");
    test.write("terrane.hcl", &file.replace(&stack("app", ""), &stack_of));
    let _ = test.cli(&["render"]).expect(0);
    let _ = test.cli(&["plan"]).expect(0);
    // The values are the same, so nothing has to be rendered.
    let _ = test
        .cli(&[
            "secret",
            "rotate",
            "out/all.sops.yaml",
            "out/partly.sops.yaml",
        ])
        .expect(0);
    let _ = test.cli(&["plan"]).expect(0);
    let _ = test.cli(&["render", "--check"]).expect(0);

    test.write("new-value", "another-token-value");
    let mut out = String::new();
    let set = |file: &str, key: &str| {
        let args = ["secret", "set", file, key, "--value-file", "new-value"];
        let _ = test.cli(&args).expect(0);
    };
    set("out/all.sops.yaml", "token");
    out += &test.cli(&["plan"]).expect(4).to_string();
    out += &test.cli(&["render", "--diff"]).expect(2).to_string();
    let _ = test.cli(&["render", "--overwrite"]).expect(0);
    set("secrets.sops.yaml", "proxmox.token");
    test.write(
        "templates/all.sops.yaml.j2",
        "user: {{ tfstate_user }}\ntoken: {{ proxmox.token }}\nnested:\n    key: {{ deploy_key }}\n",
    );
    out += &test.cli(&["render", "--diff"]).expect(2).to_string();
    let _ = test.cli(&["render"]).expect(0);
    let _ = test.cli(&["plan"]).expect(0);
    hides(&out);
    insta::assert_snapshot!(out, @r#"
    ── stderr
    error: stack `app` is made by `render "lab"`, and `out/all.sops.yaml` was edited since it was
           rendered
    hint: `terrane render lab --diff` names the values that differ, or says why it cannot decrypt them
    hint: `terrane render lab --overwrite` replaces them, once they are in the file that they come from
    [exit 4]lab   1 refused, 2 unchanged
      ! out/all.sops.yaml   was edited since it was rendered
          ~ token (encrypted)
    [exit 2]lab   2 to change, 1 unchanged
      ~ out/all.sops.yaml
          ~ token (encrypted)
          + nested.key (encrypted)
          - auth (encrypted)
          - port (encrypted)
          - key (encrypted)
      ~ out/partly.sops.yaml
          ~ stringData.token (encrypted)
    [exit 2]
    "#);
}

#[test]
fn a_key_that_lies_in_the_project_is_hinted_at() {
    let (test, key) = project();
    fs::remove_dir_all(test.root().join("user/.config")).unwrap();
    test.write("age.key", &key.identity);
    let said = test.cli(&["render"]).expect(1).to_string();
    let said = said.replace(&key.recipient, "age1…");
    insta::assert_snapshot!(said, @r#"
    ── stderr
    error: could not open `secrets.sops.yaml`
           there is no age key to decrypt it with: it is encrypted for
           `age1…`
    hint: the project contains `age.key`: to use it, run `export SOPS_AGE_KEY_FILE="$PWD/age.key"` there
    [exit 1]
    "#);
}
