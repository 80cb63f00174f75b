//! SOPS files in both directions: a generated corpus, keys of all kinds, and what must be refused by both.

mod corpus;
mod plugins;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use drivers::sops::{
    CreationRules, EncryptError, Identities, IdentityError, Plugins, Prompt, PromptFn, SopsFormat,
    SopsLayout, ValueError, decrypt, encrypt,
};
use jiff::Timestamp;
use model::base::secret::Secret;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{AgeKey, SeededRng, Sops, seed};

/// A directory with rules, and a key for it on each side.
struct Place {
    dir: TempDir,
    official: Sops,
    identities: Identities,
    rules: CreationRules,
}

impl Place {
    fn new(rule: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (key, other) = (AgeKey::generate(), AgeKey::generate());
        key.save(&dir.path().join("key.txt"));
        let rules = format!(
            "creation_rules:\n  - age: {},{}\n{rule}",
            other.recipient, key.recipient
        );
        fs::write(dir.path().join(".sops.yaml"), &rules).unwrap();
        Self {
            official: Sops::with_key(&dir.path().join("key.txt")),
            identities: Identities::from_text(&Secret::new(key.identity.as_str())).unwrap(),
            rules: CreationRules::read(&rules).unwrap(),
            dir,
        }
    }

    fn ours(&self, plain: &str, name: &str, format: SopsFormat) -> String {
        self.try_ours(plain, name, format).unwrap()
    }

    fn try_ours(
        &self,
        plain: &str,
        name: &str,
        format: SopsFormat,
    ) -> Result<String, EncryptError> {
        let rule = self.rules.for_path(name).unwrap();
        encrypt(
            plain,
            format,
            &rule,
            &Plugins::default(),
            None,
            Timestamp::now(),
        )
    }

    /// What the official tool opens a text of ours to.
    fn opened_by_official(&self, sealed: &str, name: &str, args: &[&str]) -> String {
        fs::write(self.dir.path().join(name), sealed).unwrap();
        let args = [&["--decrypt"][..], args, &[name][..]].concat();
        self.official.run(self.dir.path(), &args)
    }

    fn is_opened_by_official(&self, sealed: &str, name: &str) -> bool {
        fs::write(self.dir.path().join(name), sealed).unwrap();
        self.official.tries(self.dir.path(), &["--decrypt", name]).0
    }

    fn sealed_by_official(&self, plain: &str, name: &str) -> String {
        fs::write(self.dir.path().join(name), plain).unwrap();
        self.official.run(self.dir.path(), &["--encrypt", name])
    }

    fn opened_by_us(&self, sealed: &str, format: SopsFormat) -> String {
        let opened = decrypt(sealed, format, &self.identities).unwrap();
        opened.plain(SopsLayout::default()).expose().to_owned()
    }
}

const RULES: [&str; 6] = [
    "",
    "    encrypted_regex: ^(data|secret.*)$\n",
    "    unencrypted_regex: ^(meta|plain)\n",
    "    encrypted_suffix: _secret\n    mac_only_encrypted: true\n",
    "    unencrypted_comment_regex: leave-this\n",
    "    encrypted_comment_regex: hide-this\n",
];

fn values(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Both tools make the same values of a text, and each those that the other wrote.
#[test]
fn generated_yaml_is_the_same_to_both() {
    let mut dice = SeededRng::new(seed());
    for round in 0..18 {
        let place = Place::new(RULES[round % RULES.len()]);
        let plain = corpus::yaml(&mut dice);
        let say = format!("round {round}:\n{plain}");
        println!("{say}");

        let json = ["--output-type", "json"];
        let official = place.sealed_by_official(&plain, "theirs.yaml");
        // Some of what it writes it cannot read itself: two comments before an element of a list break its MAC, where
        // comments decide what is encrypted. That is no measure for us.
        if !place.is_opened_by_official(&official, "theirs.enc.yaml") {
            continue;
        }
        let expected = place.opened_by_official(&official, "theirs.enc.yaml", &json);

        let sealed = match place.try_ours(&plain, "ours.yaml", SopsFormat::Yaml) {
            // Only where it lies in a blank line whether a comment speaks of what stands before it or behind it.
            Err(EncryptError::Value(ValueError::Between { .. })) => continue,
            sealed => sealed.unwrap(),
        };
        let theirs = place.opened_by_official(&sealed, "ours.yaml", &json);
        assert_eq!(values(&theirs), values(&expected), "{say}\n{sealed}");

        // What we make of theirs, the official tool reads as the same values again.
        let opened = place.opened_by_us(&official, SopsFormat::Yaml);
        let again = place.sealed_by_official(&opened, "again.yaml");
        let again = place.opened_by_official(&again, "again.enc.yaml", &json);
        assert_eq!(values(&again), values(&expected), "{say}\n{opened}");
        // No comment is lost on the way that the official tool keeps of its own: of two that it moves above one
        // element of a list, it writes one.
        let comments = |text: &str| text.matches("comment-").count();
        let kept = comments(&place.opened_by_official(&official, "theirs.enc.yaml", &[]));
        assert!(comments(&opened) >= kept, "{say}\n{opened}");
        let theirs = place.opened_by_official(&sealed, "ours.yaml", &[]);
        assert!(comments(&theirs) >= kept, "{say}\n{theirs}");
        assert!(!theirs.contains("ENC["), "{say}\n{theirs}");
    }
}

/// A comment that is encrypted in a list becomes a value, behind which the official tool forgets what the comment before
/// it said: it writes files that it cannot open. We open those, and write none.
#[test]
fn no_encrypted_comment_hides_what_is_encrypted_in_a_list() {
    let place = Place::new(RULES[5]);
    let plain = "\
list:
    # comment-1
    # comment-3 hide-this
    - a
    # comment-3 hide-this
    - 15 # comment-4
    - b
";
    let official = place.sealed_by_official(plain, "theirs.yaml");
    assert!(!place.is_opened_by_official(&official, "theirs.enc.yaml"));
    let opened = place.opened_by_us(&official, SopsFormat::Yaml);
    for kept in ["- a\n", "- 15\n", "- b\n", "comment-1", "comment-4"] {
        assert!(opened.contains(kept), "{opened}");
    }

    let refused = place.try_ours(plain, "ours.yaml", SopsFormat::Yaml);
    insta::assert_snapshot!(
        refused.unwrap_err(),
        @"in the list `list` a comment is between a value and the comment that matches `encrypted_comment_regex`: encrypted, it would look like a value, and `sops` could not open the file; put the comment that matches last"
    );
    let mended = plain.replace("- 15 # comment-4", "- 15");
    let sealed = place.ours(&mended, "ours.yaml", SopsFormat::Yaml);
    let theirs = place.opened_by_official(&sealed, "ours.yaml", &["--output-type", "json"]);
    assert_eq!(values(&theirs), serde_json::json!({"list": ["a", 15, "b"]}));
}

#[test]
fn generated_json_is_the_same_to_both() {
    let mut dice = SeededRng::new(seed());
    for round in 0..8 {
        let place = Place::new(RULES[round % 4]);
        let plain = corpus::json(&mut dice);
        let sealed = place.ours(&plain, "ours.json", SopsFormat::Json);
        let theirs = place.opened_by_official(&sealed, "ours.json", &[]);
        assert_eq!(values(&theirs), values(&plain), "{plain}\n{sealed}");
        let official = place.sealed_by_official(&plain, "theirs.json");
        let ours = place.opened_by_us(&official, SopsFormat::Json);
        assert_eq!(values(&ours), values(&plain), "{plain}");
    }
}

#[test]
fn dotenv_and_ini_are_the_same_to_both() {
    let cases = [
        (
            "a.env",
            SopsFormat::Dotenv,
            "#comment\nNAME=value\nEMPTY=\nLINES=one\\ntwo\nEQUALS=a=b\nUNI=héllo ✓\n# another\nopen_unencrypted=yes\n",
        ),
        (
            "a.ini",
            SopsFormat::Ini,
            "; on top\ntop = 1\n\n; the section\n[a]\n; the key\n; of two lines\nk          = v\nlonger_key = two words\nhash       = `a#b`\nempty      = \n\n[b.c]\n; last\nx = y\n",
        ),
    ];
    for (name, format, plain) in cases {
        let place = Place::new("");
        let sealed = place.ours(plain, name, format);
        assert_eq!(
            place.opened_by_official(&sealed, name, &[]),
            plain,
            "{sealed}"
        );
        let official = place.sealed_by_official(plain, name);
        assert_eq!(place.opened_by_us(&official, format), plain, "{official}");
    }
}

#[test]
fn generated_dotenv_and_ini_are_the_same_to_both() {
    let mut dice = SeededRng::new(seed());
    for round in 0..8 {
        let place = Place::new(RULES[round % 4]);
        let cases = [
            ("a.env", SopsFormat::Dotenv, corpus::dotenv(&mut dice)),
            ("a.ini", SopsFormat::Ini, corpus::ini(&mut dice)),
        ];
        for (name, format, plain) in cases {
            let sealed = place.ours(&plain, name, format);
            let official = place.sealed_by_official(&plain, &format!("theirs-{name}"));
            // What the official tool makes of its own file is what both must make of either.
            let expected = place.opened_by_official(&official, &format!("theirs-{name}"), &[]);
            let theirs = place.opened_by_official(&sealed, name, &[]);
            assert_eq!(theirs, expected, "{plain}\n{sealed}");
            assert_eq!(place.opened_by_us(&official, format), expected, "{plain}");
        }
    }
}

/// Files do not change their looks with the tool that wrote them last.
#[test]
fn what_is_opened_looks_the_same() {
    let place = Place::new("");
    let plain = "\
# first
# second
text: plain
quoted: \"123\"
single: 'a: b'
\"on\": \"yes\"
number: 42
float: 1.25
truth: true
nothing: null
when: 2024-01-02T00:00:00Z
block: |-
    one
      two
map:
    # inside
    key: value
    list:
        # of the list
        - a
        - name: b
          more: c
        - - 1
          - 2
    empty: {}
    none: []
    # at the end
unicode: \"h\u{e9}llo \\U0001F600\"
# the end
";
    let sealed = place.ours(plain, "a.yaml", SopsFormat::Yaml);
    assert_eq!(place.opened_by_official(&sealed, "a.yaml", &[]), plain);
    assert_eq!(place.opened_by_us(&sealed, SopsFormat::Yaml), plain);
    let official = place.sealed_by_official(plain, "b.yaml");
    assert_eq!(place.opened_by_us(&official, SopsFormat::Yaml), plain);
    // And encrypted: the same lines, but for what is random.
    let shape = |text: &str| {
        let lines = text.lines().map(|line| match line.find("ENC[") {
            Some(at) => line[..at].to_owned(),
            None if line.starts_with("        enc: ") || line.starts_with("            ") => {
                String::new()
            }
            None => line
                .split("lastmodified")
                .next()
                .unwrap_or_default()
                .to_owned(),
        });
        let mut shape: Vec<String> = lines.collect();
        // The two wrap the data key in more or fewer lines.
        shape.dedup_by(|next, last| next.is_empty() && last.is_empty());
        shape
    };
    assert_eq!(shape(&sealed), shape(&official));
}

/// Comments where nobody expects them, lists of maps, and values of every length, in both directions.
#[test]
fn odd_places_are_the_same_to_both() {
    let cases = [
        "# only\n# comments\n# above\nkey: value\n",
        "list:\n    # before the first\n    - a: 1\n      # inside the first\n      b: 2\n    # between\n    - a: 3\n      deep:\n        - c: 4\n        # at the end of a list\n",
        "a:\n    # first of a map\n    b: 1\nc: 2\n# at the very end\n",
        "empty: \"\"\nspace: \" \"\nline: |\n    text\nlines: |+\n    text\n\n\nlast: end\n",
        "emoji: \"\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\"\nrtl: \u{5d0}\u{5d1}\nzero: \"a\\0b\"\nnel: \"a\\u0085b\"\n",
        "maps:\n    - {}\n    - a: {}\n    - []\n    - - - deep\n",
        "m:\n  l:\n    - 1\n  # at the end of a map\nn: 1\n",
        "m:\n  l:\n    k:\n      - 1\n    # inner end\n  # outer end\nn: 1\n",
        "m:\n  - a:\n      b: 1\n    # at the end of an element\n  - c\nn: 1\n",
        "m:\n  l: [1]\n  # after brackets\n",
        "m:\n  l: []\n  # after empty brackets\nn: 1\n",
        "base: &b\n  x: 1\n  y: two\nm:\n  <<: *b # taken over\n  z: 3\nl:\n  <<: [*b, {w: 4}]\n",
        "m:\n  - 1\n  - | # of a text\n    one\n    two\n  - >- # of another\n    one\n",
    ];
    let place = Place::new("");
    for plain in cases {
        let json = ["--output-type", "json"];
        let sealed = place.ours(plain, "ours.yaml", SopsFormat::Yaml);
        let ours = place.opened_by_official(&sealed, "ours.yaml", &json);
        let official = place.sealed_by_official(plain, "theirs.yaml");
        let expected = place.opened_by_official(&official, "theirs.enc.yaml", &json);
        assert_eq!(values(&ours), values(&expected), "{plain}\n{sealed}");
        let opened = place.opened_by_us(&official, SopsFormat::Yaml);
        let again = place.sealed_by_official(&opened, "again.yaml");
        let again = place.opened_by_official(&again, "again.enc.yaml", &json);
        assert_eq!(values(&again), values(&expected), "{plain}\n{opened}");
        let comments = |text: &str| text.matches("# ").count();
        assert_eq!(comments(&opened), comments(plain), "{plain}\n{opened}");
        let theirs = place.opened_by_official(&sealed, "ours.yaml", &[]);
        assert_eq!(comments(&theirs), comments(plain), "{plain}\n{theirs}");
    }
}

/// What we change in a file of theirs, they read; what did not change is as they wrote it.
#[test]
fn a_file_may_go_from_hand_to_hand() {
    let place = Place::new("");
    let official = place.sealed_by_official("a: one\nb: two # why\nc:\n    - 3\n", "a.yaml");
    let opened = decrypt(&official, SopsFormat::Yaml, &place.identities).unwrap();
    let mut changed = opened.clone();
    changed.set("b", &Secret::new("new")).unwrap();
    let rule = opened.rule(SopsLayout::default()).unwrap();
    let ours = changed
        .seal(&opened, &rule, &Plugins::default(), Timestamp::now())
        .unwrap();
    let line = |text: &str, name: &str| {
        let mut lines = text.lines();
        lines.find(|line| line.starts_with(name)).map(str::to_owned)
    };
    assert_eq!(line(&ours, "a:"), line(&official, "a:"));
    assert_ne!(line(&ours, "b:"), line(&official, "b:"));
    assert_eq!(
        place.opened_by_official(&ours, "a.yaml", &["--output-type", "json"]),
        "{\n\t\"a\": \"one\",\n\t\"b\": \"new\",\n\t\"c\": [\n\t\t3\n\t]\n}\n"
    );
    place.official.run(
        place.dir.path(),
        &["set", "a.yaml", "[\"a\"]", "\"theirs\""],
    );
    let theirs = fs::read_to_string(place.dir.path().join("a.yaml")).unwrap();
    let opened = decrypt(&theirs, SopsFormat::Yaml, &place.identities).unwrap();
    assert_eq!(opened.value("a").unwrap().expose(), "theirs");
    assert_eq!(opened.value("b").unwrap().expose(), "new");
}

/// SSH keys of both kinds, in both directions.
#[test]
fn ssh_keys_are_the_same_to_both() {
    for kind in ["ed25519", "rsa"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        let public = testkit::ssh_key(&path, kind);
        let rules = format!("creation_rules:\n  - age: {public}\n");
        fs::write(dir.path().join(".sops.yaml"), &rules).unwrap();
        let environment = BTreeMap::from([(
            "SOPS_AGE_SSH_PRIVATE_KEY_FILE".to_owned(),
            path.display().to_string(),
        )]);
        let place = Place {
            official: Sops::with_ssh_key(&path),
            identities: Identities::from_environment(&environment).unwrap(),
            rules: CreationRules::read(&rules).unwrap(),
            dir,
        };
        let plain = "a: one\nb: 2\n";
        let sealed = place.ours(plain, "a.yaml", SopsFormat::Yaml);
        assert_eq!(
            place.opened_by_official(&sealed, "a.yaml", &[]),
            plain,
            "{kind}"
        );
        let official = place.sealed_by_official(plain, "b.yaml");
        assert_eq!(
            place.opened_by_us(&official, SopsFormat::Yaml),
            plain,
            "{kind}"
        );
    }
}

/// A key that a passphrase protects asks for it, once it is needed; the official tool makes and reads the same files.
#[test]
fn keys_with_a_passphrase_ask_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = AgeKey::generate();
    let sealed = {
        let rules = format!("creation_rules:\n  - age: {}\n", key.recipient);
        let rule = CreationRules::read(&rules)
            .unwrap()
            .for_path("a.yaml")
            .unwrap();
        encrypt(
            "a: one\n",
            SopsFormat::Yaml,
            &rule,
            &Plugins::default(),
            None,
            Timestamp::now(),
        )
        .unwrap()
    };
    let mut recipient = age::scrypt::Recipient::new("open sesame".to_owned().into());
    recipient.set_work_factor(5);
    let plain = age::encrypt(&recipient, key.identity.as_bytes()).unwrap();
    let armoured = age::encrypt_and_armor(&recipient, key.identity.as_bytes()).unwrap();
    let path = dir.path().join("keys.age");
    let environment =
        BTreeMap::from([("SOPS_AGE_KEY_FILE".to_owned(), path.display().to_string())]);
    let asking = |answer: Option<&'static str>| {
        let ask: PromptFn = Arc::new(move |_: &Prompt<'_>| answer.map(Secret::new));
        Identities::asking(&environment, ask)
    };
    for protected in [plain, armoured.into_bytes()] {
        fs::write(&path, protected).unwrap();
        let identities = asking(Some("open sesame")).unwrap();
        let opened = decrypt(&sealed, SopsFormat::Yaml, &identities).unwrap();
        assert_eq!(opened.value("a").unwrap().expose(), "one");
        let refused = |identities: Result<Identities, IdentityError>| {
            identities
                .unwrap_err()
                .to_string()
                .replace(&path.display().to_string(), "KEYS")
        };
        assert_eq!(
            refused(asking(Some("wrong"))),
            "cannot decrypt `KEYS` with this passphrase"
        );
        let nobody = "`KEYS` is protected by a passphrase, and there is no terminal to ask for it";
        assert_eq!(refused(asking(None)), nobody);
        assert_eq!(refused(Identities::from_environment(&environment)), nobody);
    }
}

/// A file for PGP or a cloud's keys, too, is opened with age; who only changes it keeps the others' way in, and who makes
/// a new data key would lock them out.
#[test]
fn keys_of_other_kinds_stay() {
    let place = Place::new("");
    let official = place.sealed_by_official("a: one\nb: two\n", "a.yaml");
    let foreign = "    pgp:\n        - created_at: \"2024-01-02T00:00:00Z\"\n          enc: |-\n            -----BEGIN PGP MESSAGE-----\n\n            wcFMA\n            -----END PGP MESSAGE-----\n          fp: 85D77543B3D624B63CEA9E6DBC17301B491B3F21\n    kms:\n        - arn: arn:aws:kms:eu-central-1:000000000000:key/example\n          created_at: \"2024-01-02T00:00:00Z\"\n          enc: AQICAHg=\n          aws_profile: \"\"\n";
    let mixed = official.replacen(
        "    lastmodified:",
        &format!("{foreign}    lastmodified:"),
        1,
    );
    assert_ne!(mixed, official);
    assert_eq!(
        place.opened_by_us(&mixed, SopsFormat::Yaml),
        "a: one\nb: two\n"
    );
    let opened = decrypt(&mixed, SopsFormat::Yaml, &place.identities).unwrap();
    let mut changed = opened.clone();
    changed.set("b", &Secret::new("new")).unwrap();
    let rule = opened.rule(SopsLayout::default()).unwrap();
    let ours = changed
        .seal(&opened, &rule, &Plugins::default(), Timestamp::now())
        .unwrap();
    for kept in [
        "wcFMA",
        "85D77543B3D624B63CEA9E6DBC17301B491B3F21",
        "AQICAHg=",
    ] {
        assert!(ours.contains(kept), "{ours}");
    }
    assert_eq!(
        place.opened_by_official(&ours, "a.yaml", &[]),
        "a: one\nb: new\n"
    );
    let refused = opened
        .rotate(&rule, &Plugins::default(), Timestamp::now())
        .unwrap_err();
    insta::assert_snapshot!(refused, @"
    cannot replace its data key: it is also wrapped for kms, pgp, which is not supported
    ");
}

/// Neither opens what the other would not.
#[test]
fn both_refuse_what_was_changed() {
    let place = Place::new("");
    let sealed = place.ours("a: one\nb_unencrypted: two\n", "a.yaml", SopsFormat::Yaml);
    let changes = [
        sealed.replace("b_unencrypted: two", "b_unencrypted: three"),
        sealed.replacen("a: ENC", "c: ENC", 1),
        sealed.replacen("data:", "data:AA", 1),
        sealed[..sealed.len() / 2].to_owned(),
    ];
    for changed in changes {
        fs::write(place.dir.path().join("a.yaml"), &changed).unwrap();
        let (went_well, said) = place
            .official
            .tries(place.dir.path(), &["--decrypt", "a.yaml"]);
        assert!(!went_well, "{changed}\n{said}");
        assert!(
            decrypt(&changed, SopsFormat::Yaml, &place.identities).is_err(),
            "{changed}"
        );
    }
}
