//! SOPS files in both directions: a generated corpus, and what must be refused by both.

mod corpus;

use std::fs;

use drivers::sops::{Format, Identities, Layout, Rules, decrypt, encrypt};
use jiff::Timestamp;
use model::secret::Secret;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{AgeKey, Sops};

use corpus::Dice;

/// A directory with rules, and a key for it on each side.
struct Place {
    dir: TempDir,
    official: Sops,
    identities: Identities,
    rules: Rules,
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
            rules: Rules::read(&rules).unwrap(),
            dir,
        }
    }

    fn ours(&self, plain: &str, name: &str, format: Format) -> String {
        let rule = self.rules.for_path(name).unwrap();
        encrypt(plain, format, &rule, None, Timestamp::now()).unwrap()
    }

    /// What the official tool opens a text of ours to.
    fn opened_by_official(&self, sealed: &str, name: &str, args: &[&str]) -> String {
        fs::write(self.dir.path().join(name), sealed).unwrap();
        let args = [&["--decrypt"][..], args, &[name][..]].concat();
        self.official.run(self.dir.path(), &args)
    }

    fn sealed_by_official(&self, plain: &str, name: &str) -> String {
        fs::write(self.dir.path().join(name), plain).unwrap();
        self.official.run(self.dir.path(), &["--encrypt", name])
    }

    fn opened_by_us(&self, sealed: &str, format: Format) -> String {
        let opened = decrypt(sealed, format, &self.identities).unwrap();
        opened.plain(Layout::default()).expose().to_owned()
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
    let mut dice = Dice::new(corpus::seed());
    for round in 0..18 {
        let place = Place::new(RULES[round % RULES.len()]);
        let plain = corpus::yaml(&mut dice);
        let say = format!("round {round}:\n{plain}");

        let sealed = place.ours(&plain, "ours.yaml", Format::Yaml);
        let json = ["--output-type", "json"];
        let theirs = place.opened_by_official(&sealed, "ours.yaml", &json);

        let official = place.sealed_by_official(&plain, "theirs.yaml");
        let expected = place.opened_by_official(&official, "theirs.enc.yaml", &json);
        assert_eq!(values(&theirs), values(&expected), "{say}\n{sealed}");

        // What we make of theirs, the official tool reads as the same values again.
        let opened = place.opened_by_us(&official, Format::Yaml);
        let again = place.sealed_by_official(&opened, "again.yaml");
        let again = place.opened_by_official(&again, "again.enc.yaml", &json);
        assert_eq!(values(&again), values(&expected), "{say}\n{opened}");
        // No comment is lost on the way, in either direction.
        let comments = |text: &str| text.matches("comment-").count();
        assert_eq!(comments(&opened), comments(&plain), "{say}\n{opened}");
        let theirs = place.opened_by_official(&sealed, "ours.yaml", &[]);
        assert_eq!(comments(&theirs), comments(&plain), "{say}\n{theirs}");
        assert!(!theirs.contains("ENC["), "{say}\n{theirs}");
    }
}

#[test]
fn generated_json_is_the_same_to_both() {
    let mut dice = Dice::new(corpus::seed());
    for round in 0..8 {
        let place = Place::new(RULES[round % 4]);
        let plain = corpus::json(&mut dice);
        let sealed = place.ours(&plain, "ours.json", Format::Json);
        let theirs = place.opened_by_official(&sealed, "ours.json", &[]);
        assert_eq!(values(&theirs), values(&plain), "{plain}\n{sealed}");
        let official = place.sealed_by_official(&plain, "theirs.json");
        let ours = place.opened_by_us(&official, Format::Json);
        assert_eq!(values(&ours), values(&plain), "{plain}");
    }
}

#[test]
fn dotenv_and_ini_are_the_same_to_both() {
    let cases = [
        (
            "a.env",
            Format::Dotenv,
            "#comment\nNAME=value\nEMPTY=\nLINES=one\\ntwo\nEQUALS=a=b\nUNI=héllo ✓\n# another\nopen_unencrypted=yes\n",
        ),
        (
            "a.ini",
            Format::Ini,
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
    let sealed = place.ours(plain, "a.yaml", Format::Yaml);
    assert_eq!(place.opened_by_official(&sealed, "a.yaml", &[]), plain);
    assert_eq!(place.opened_by_us(&sealed, Format::Yaml), plain);
    let official = place.sealed_by_official(plain, "b.yaml");
    assert_eq!(place.opened_by_us(&official, Format::Yaml), plain);
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

/// What we change in a file of theirs, they read; what did not change is as they wrote it.
#[test]
fn a_file_may_go_from_hand_to_hand() {
    let place = Place::new("");
    let official = place.sealed_by_official("a: one\nb: two # why\nc:\n    - 3\n", "a.yaml");
    let opened = decrypt(&official, Format::Yaml, &place.identities).unwrap();
    let mut changed = opened.clone();
    changed.set("b", &Secret::new("new")).unwrap();
    let rule = opened.rule(Layout::default()).unwrap();
    let ours = changed.seal(&opened, &rule, Timestamp::now()).unwrap();
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
    let opened = decrypt(&theirs, Format::Yaml, &place.identities).unwrap();
    assert_eq!(opened.value("a").unwrap().expose(), "theirs");
    assert_eq!(opened.value("b").unwrap().expose(), "new");
}

/// Neither opens what the other would not.
#[test]
fn both_refuse_what_was_changed() {
    let place = Place::new("");
    let sealed = place.ours("a: one\nb_unencrypted: two\n", "a.yaml", Format::Yaml);
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
            decrypt(&changed, Format::Yaml, &place.identities).is_err(),
            "{changed}"
        );
    }
}
