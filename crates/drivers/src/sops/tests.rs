//! Files that can be opened again, and files that must be refused. `tests/it` compares with the official tool.

use jiff::Timestamp;
use model::base::error::Explain;
use model::base::secret::Secret;
use std::fmt::Write as _;

use super::*;

const KEY: &str = "AGE-SECRET-KEY-1QGN768HAGK0FXZXZNLPFVTG3Y0U7FTSF36CPYVSKYZF8KPLQDCYQQMUFKL";

struct Keys {
    identities: Identities,
    recipient: Recipient,
}

fn keys() -> Keys {
    let key = age::x25519::Identity::generate();
    let text = age::secrecy::ExposeSecret::expose_secret(&key.to_string()).to_owned();
    Keys {
        identities: Identities::from_text(&Secret::new(text)).unwrap(),
        recipient: key.to_public().to_string().parse().unwrap(),
    }
}

fn rule(keys: &Keys) -> EncryptionRule {
    EncryptionRule::for_recipients(vec![keys.recipient.clone()])
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

const PLAIN: &str = "\
# all of it
database:
    # who
    user: admin # still
    port: 5432
    ratio: 1.0
    on: true
hosts:
    - name: a
      key: |
        one
        two
    - name: b
note_unencrypted: open
";

fn seal(text: &str, keys: &Keys) -> String {
    encrypt(
        text,
        SopsFormat::Yaml,
        &rule(keys),
        &Plugins::default(),
        None,
        now(),
    )
    .unwrap()
}

#[test]
fn what_is_encrypted_opens_to_what_it_was() {
    let keys = keys();
    let sealed = seal(PLAIN, &keys);
    for secret in ["admin", "5432", "two", "who", "all of it"] {
        assert!(!sealed.contains(secret), "{secret} is readable:\n{sealed}");
    }
    assert!(sealed.contains("note_unencrypted: open"));
    let opened = decrypt(&sealed, SopsFormat::Yaml, &keys.identities).unwrap();
    let expected = PLAIN.replace("on: true", "\"on\": true");
    assert_eq!(opened.plain(SopsLayout::default()).expose(), expected);
    assert_eq!(opened.value("database.port").unwrap().expose(), "5432");
    assert_eq!(opened.value("hosts.1.name").unwrap().expose(), "b");
    assert!(opened.value("hosts.2.name").is_none());
}

#[test]
fn unchanged_values_keep_their_ciphertext() {
    let keys = keys();
    let sealed = seal(PLAIN, &keys);
    let again = |plain: &str, rule: &EncryptionRule| {
        let earlier = Some((sealed.as_str(), &keys.identities));
        encrypt(
            plain,
            SopsFormat::Yaml,
            rule,
            &Plugins::default(),
            earlier,
            now(),
        )
        .unwrap()
    };
    assert_eq!(again(PLAIN, &rule(&keys)), sealed);

    let changed = again(&PLAIN.replace("admin", "root"), &rule(&keys));
    let differ: Vec<&str> = sealed
        .lines()
        .zip(changed.lines())
        .filter(|(before, after)| before != after)
        .map(|(before, _)| before.trim().split(':').next().unwrap())
        .collect();
    assert_eq!(differ, ["user", "mac"]);
}

#[test]
fn who_is_left_out_gets_a_new_data_key() {
    let (one, two) = (keys(), keys());
    let both = EncryptionRule::for_recipients(vec![one.recipient.clone(), two.recipient.clone()]);
    let for_both = encrypt(
        PLAIN,
        SopsFormat::Yaml,
        &both,
        &Plugins::default(),
        None,
        now(),
    )
    .unwrap();
    let opened = decrypt(&for_both, SopsFormat::Yaml, &two.identities).unwrap();
    let for_one = opened
        .seal(&opened, &rule(&one), &Plugins::default(), now())
        .unwrap();
    decrypt(&for_one, SopsFormat::Yaml, &two.identities).unwrap_err();
    let kept = |line: &&str| line.contains("ENC[") && for_both.contains(*line);
    assert_eq!(for_one.lines().filter(kept).count(), 0);
}

#[test]
fn changes_wrong_keys_and_torn_files_are_found() {
    let (keys, other) = (keys(), keys());
    let sealed = seal(PLAIN, &keys);
    let open = |text: &str| decrypt(text, SopsFormat::Yaml, &keys.identities).unwrap_err();
    let message = |err: DecryptError| err.to_string();

    let line = |name: &str| {
        let mut lines = sealed.lines();
        lines.find(|line| line.trim().starts_with(name)).unwrap()
    };
    let swapped = sealed.replace(line("port:"), &line("user:").replace("user", "port"));
    assert!(message(open(&swapped)).contains("`database.port`"));
    let opened_up = sealed.replace("note_unencrypted: open", "note_unencrypted: changed");
    assert!(matches!(open(&opened_up), DecryptError::Changed));
    let removed = sealed.replace(&format!("{}\n", line("port:")), "");
    assert!(matches!(open(&removed), DecryptError::Changed));
    assert!(matches!(
        decrypt(&sealed, SopsFormat::Yaml, &other.identities).unwrap_err(),
        DecryptError::WrongKey { count: 1, .. }
    ));
    assert!(matches!(
        decrypt(&sealed, SopsFormat::Yaml, &Identities::default()).unwrap_err(),
        DecryptError::NoKey { .. }
    ));
    // The text after the digest stays as it was.
    let end = sealed.find("\n    unencrypted_suffix").unwrap();
    for cut in (0..end).step_by(97) {
        let torn = &sealed[..cut];
        assert!(
            decrypt(torn, SopsFormat::Yaml, &keys.identities).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn nothing_secret_is_in_errors_or_debug_output() {
    const MARK: &str = "s3cr3t-mark";
    let keys = keys();
    let plain =
        format!("a: {MARK}\nnumber: 48151623\n# {MARK}\nlist:\n    # {MARK}\n    - {MARK}\n");
    let sealed = seal(&plain, &keys);
    let opened = decrypt(&sealed, SopsFormat::Yaml, &keys.identities).unwrap();
    let mut said = format!(
        "{opened:?} {:?} {:?}",
        opened.plain(SopsLayout::default()),
        keys.identities
    );
    let broken = [
        format!("a: {MARK}\na: {MARK}\n"),
        format!("a: [{MARK}\n"),
        format!("a: !tag {MARK}\n"),
        format!("- {MARK}\n"),
        format!("{MARK}\n"),
        format!("a: \"{MARK}\n"),
        format!("a: *{MARK}\n").replace(MARK, "alias"),
    ];
    for text in broken {
        let err = encrypt(
            &text,
            SopsFormat::Yaml,
            &rule(&keys),
            &Plugins::default(),
            None,
            now(),
        )
        .unwrap_err();
        write!(said, "{err} {err:?}").unwrap();
    }
    for text in [
        format!("{{\"a\": \"{MARK}\""),
        format!("[\"{MARK}\"]"),
        format!("{{\"a\": {MARK}}}"),
    ] {
        let err = encrypt(
            &text,
            SopsFormat::Json,
            &rule(&keys),
            &Plugins::default(),
            None,
            now(),
        )
        .unwrap_err();
        write!(said, "{err} {err:?}").unwrap();
    }
    let wrong = Secret::new(format!("AGE-SECRET-KEY-{MARK}"));
    write!(said, "{:?}", Identities::from_text(&wrong).unwrap_err()).unwrap();
    write!(said, "{:?}", Identities::from_text(&Secret::new(KEY))).unwrap();
    assert!(!said.contains(MARK), "{said}");
    assert!(!said.contains("48151623"), "{said}");
    assert!(!said.contains("QGN768"), "{said}");
}

#[test]
fn only_named_keys_are_encrypted_where_that_is_asked() {
    let keys = keys();
    let only = EncryptionFilter::only(["password", "tls.key"]).unwrap();
    let plain = "a: open\npassword: hidden\nb:\n    tls.key: hidden\n    c: open\n";
    let sealed = encrypt(
        plain,
        SopsFormat::Yaml,
        &rule(&keys).selecting(only),
        &Plugins::default(),
        None,
        now(),
    )
    .unwrap();
    assert!(sealed.starts_with("a: open\npassword: ENC["), "{sealed}");
    assert!(sealed.contains("    c: open\n"));
    assert!(!sealed.contains("hidden"));
    let opened = decrypt(&sealed, SopsFormat::Yaml, &keys.identities).unwrap();
    assert_eq!(opened.plain(SopsLayout::default()).expose(), plain);
}

#[test]
fn rules_are_found_by_path_and_foreign_keys_refused() {
    let keys = keys();
    let age = keys.recipient.as_str();
    let text = format!(
        "creation_rules:\n  - path_regex: talos/.*\\.yaml$\n    mac_only_encrypted: true\n    age: >-\n      {age},\n      {age}\n  - path_regex: ^k8s/\n    encrypted_regex: ^(data|stringData)$\n    age: [{age}]\n  - path_regex: pgp\n    pgp: 85D7\n  - path_regex: groups\n    key_groups:\n      - age: [{age}]\n      - age: [{age}]\n  - path_regex: one-group\n    key_groups:\n      - age: [{age}]\n  - path_regex: none\nstores:\n  yaml:\n    indent: 2\n"
    );
    let rules = rules(&text).unwrap();
    let talos = rules.for_path("talos/a.yaml").unwrap();
    assert!(talos.mac_only_encrypted);
    assert_eq!(talos.recipients, std::slice::from_ref(&keys.recipient));
    assert_eq!(talos.layout.yaml, 2);
    let k8s = rules.for_path("k8s/a.yaml").unwrap();
    assert_eq!(
        k8s.selection.said(),
        ("encrypted_regex", "^(data|stringData)$")
    );
    assert_eq!(rules.for_path("one-group").unwrap().recipients.len(), 1);
    let refused = |path: &str| rules.for_path(path).unwrap_err().to_string();
    insta::assert_snapshot!(
        [refused("pgp"), refused("groups"), refused("none"), refused("other")].join("\n"),
        @r"
    rule 3, which matches `pgp`, has `pgp`: only age keys are supported
    rule 4, which matches `groups`, has `key_groups`: a data key split over several groups is not supported
    rule 6, which matches `none`, has no age recipient
    no creation rule matches `other`
    "
    );
}

#[test]
fn json_keeps_its_order_and_types() {
    let keys = keys();
    let plain = "{\n\t\"z\": 1,\n\t\"a\": [\n\t\t1.0,\n\t\ttrue,\n\t\tnull,\n\t\t\"\\u003cb\\u003e\",\n\t\t{}\n\t],\n\t\"m\": {\n\t\t\"k.x\": \"v\"\n\t}\n}\n";
    let sealed = encrypt(
        plain,
        SopsFormat::Json,
        &rule(&keys),
        &Plugins::default(),
        None,
        now(),
    )
    .unwrap();
    let opened = decrypt(&sealed, SopsFormat::Json, &keys.identities).unwrap();
    assert_eq!(opened.plain(SopsLayout::default()).expose(), plain);
    assert_eq!(opened.value("m.k.x").unwrap().expose(), "v");
    assert_eq!(
        opened.value("a").unwrap().expose(),
        "[1.0,true,null,\"\\u003cb\\u003e\",{}]"
    );
}

#[test]
fn values_are_set_where_the_path_says() {
    let keys = keys();
    let opened = decrypt(&seal(PLAIN, &keys), SopsFormat::Yaml, &keys.identities).unwrap();
    let mut changed = opened.clone();
    let value = Secret::new("new");
    changed.set("database.user", &value).unwrap();
    changed.set("made.on.the.way", &value).unwrap();
    changed.set("hosts.2", &value).unwrap();
    changed.set("\"with.dot\"", &value).unwrap();
    let refused = changed.set("database.user.name", &value).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`database.user` is neither a map nor a list, so it has no keys"
    );
    let sealed = changed
        .seal(&opened, &rule(&keys), &Plugins::default(), now())
        .unwrap();
    let again = decrypt(&sealed, SopsFormat::Yaml, &keys.identities).unwrap();
    assert_eq!(again.value("made.on.the.way").unwrap().expose(), "new");
    assert_eq!(again.value("hosts.2").unwrap().expose(), "new");
    assert_eq!(again.value("with.dot").unwrap().expose(), "new");
    assert_eq!(again.value("database.user").unwrap().expose(), "new");
}

/// Hardware keys: only their plugins can decrypt, but encrypting needs none.
#[test]
fn tagged_recipients_need_no_plugin() {
    use base64::Engine as _;
    let recipient = "age1tag1qt8lw0ual6avlwmwatk888yqnmdamm7xfd0wak53ut6elz5c4swx2yqdj4e";
    let rule = EncryptionRule::for_recipients(vec![recipient.parse().unwrap()]);
    let plugins = Plugins::default();
    let sealed = encrypt(PLAIN, SopsFormat::Yaml, &rule, &plugins, None, now()).unwrap();
    let wrapped: String = sealed
        .lines()
        .skip_while(|line| !line.contains("BEGIN AGE"))
        .skip(1)
        .take_while(|line| !line.contains("END AGE"))
        .map(str::trim)
        .collect();
    let file = base64::prelude::BASE64_STANDARD.decode(wrapped).unwrap();
    assert!(file.starts_with(b"age-encryption.org/v1\n-> p256tag "));
}

#[test]
fn merge_keys_are_followed_and_kept() {
    let keys = keys();
    let plain = "base: &base\n    x: one\n    y: two\nm:\n    <<: *base\n    y: own\nl:\n    <<: [*base, {z: 3}]\n";
    let sealed = seal(plain, &keys);
    assert!(
        sealed.contains("    !!merge <<:\n        x: ENC["),
        "{sealed}"
    );
    let opened = decrypt(&sealed, SopsFormat::Yaml, &keys.identities).unwrap();
    let value = |path: &str| opened.value(path).map(|it| it.expose().to_owned());
    assert_eq!(value("m.x").as_deref(), Some("one"));
    assert_eq!(value("m.y").as_deref(), Some("own"));
    assert_eq!(value("l.z").as_deref(), Some("3"));
    assert_eq!(value("m").as_deref(), Some(r#"{"y":"own","x":"one"}"#));
}

#[test]
fn a_key_with_dots_stands_in_quotes() {
    let keys = keys();
    let mut opened = decrypt(
        &seal("data: {a: b}\n", &keys),
        SopsFormat::Yaml,
        &keys.identities,
    )
    .unwrap();
    let value = Secret::new("k");
    opened.set("data.\"age.agekey\"", &value).unwrap();
    assert!(opened.value("data.\"age.agekey\"").is_some());
    let err = opened.set("data.tls\\.crt", &value).unwrap_err();
    assert_eq!(
        err.to_string(),
        "quote a key that contains dots, without a backslash: `data.\"tls.crt\"`"
    );
    assert_eq!(
        opened.set("data.\"tls", &value).unwrap_err().to_string(),
        "it has an unclosed quote"
    );
}

#[test]
fn a_file_that_was_cut_is_not_called_plain() {
    let keys = keys();
    let sealed = seal("a: b\n", &keys);
    let cut = &sealed[..sealed.find("sops:").unwrap()];
    let err = decrypt(cut, SopsFormat::Yaml, &keys.identities).unwrap_err();
    assert_eq!(
        err.to_string(),
        "it has encrypted values but no `sops` block, so it is truncated"
    );
    let good = Some("bring back the last good version, for example from Git".to_owned());
    assert_eq!(err.hint(), good);
    let half = &sealed[..sealed.find("lastmodified").unwrap()];
    assert_eq!(
        decrypt(half, SopsFormat::Yaml, &keys.identities)
            .unwrap_err()
            .hint(),
        good
    );
    let plain = decrypt("a: b\n", SopsFormat::Yaml, &keys.identities).unwrap_err();
    assert!(plain.hint().unwrap().contains("encrypt FILE"));
}

#[test]
fn keys_that_a_command_prints_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key of mine");
    let key = age::x25519::Identity::generate().to_string();
    std::fs::write(&file, age::secrecy::ExposeSecret::expose_secret(&key)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let line = format!("cat '{}'", file.display());
    let env = |line: String| {
        std::collections::BTreeMap::from([
            ("PATH".to_owned(), path.clone()),
            ("SOPS_AGE_KEY_CMD".to_owned(), line),
        ])
    };
    let found = Identities::from_environment(&env(line)).unwrap();
    assert_eq!(found.len(), 1);
    let err = Identities::from_environment(&env("false".to_owned())).unwrap_err();
    assert_eq!(
        err.to_string(),
        "the command in `SOPS_AGE_KEY_CMD` ended with exit code 1"
    );
    let locked = r#"sh -c "echo agent is locked >&2; exit 4""#;
    let err = Identities::from_environment(&env(locked.to_owned())).unwrap_err();
    assert_eq!(
        err.to_string(),
        "the command in `SOPS_AGE_KEY_CMD` ended with exit code 4: agent is locked"
    );
}
