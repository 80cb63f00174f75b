//! Keys that plugins of age have: the same files as with the official tool, through the same plugin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{env, fs};

use drivers::sops::{
    CreationRules, Identities, Plugins, Prompt, PromptFn, SopsFormat, decrypt, encrypt,
};
use jiff::Timestamp;
use model::base::error::Explain;
use model::base::secret::Secret;
use tempfile::TempDir;
use testkit::{AgeKey, Sops, age_plugins, write_program};

const PLAIN: &str = "a: one\nb: 2\n";

/// A directory with a key file and rules for it, and the plugins of `path`.
struct Place {
    dir: TempDir,
    rules: CreationRules,
    environment: BTreeMap<String, String>,
}

impl Place {
    fn new(key: &AgeKey, plugins: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys.txt");
        key.save(&keys);
        let rules = format!("creation_rules:\n  - age: {}\n", key.recipient);
        fs::write(dir.path().join(".sops.yaml"), &rules).unwrap();
        let mut path = OsString::from(plugins);
        path.push(":");
        path.push(env::var_os("PATH").unwrap());
        let environment = BTreeMap::from([
            ("SOPS_AGE_KEY_FILE".to_owned(), keys.display().to_string()),
            ("PATH".to_owned(), path.into_string().unwrap()),
        ]);
        Self {
            rules: CreationRules::read(&rules).unwrap(),
            dir,
            environment,
        }
    }

    fn official(&self) -> Sops {
        let sops = Sops::with_key(&self.dir.path().join("keys.txt"));
        sops.with_path(self.environment["PATH"].as_ref())
    }

    fn sealed(&self) -> Result<String, String> {
        let rule = self.rules.for_path("a.yaml").unwrap();
        let plugins = Plugins::new(&self.environment, None);
        let sealed = encrypt(
            PLAIN,
            SopsFormat::Yaml,
            &rule,
            &plugins,
            None,
            Timestamp::now(),
        );
        sealed.map_err(|err| told(&err))
    }

    fn opened(&self, sealed: &str, ask: Option<PromptFn>) -> Result<String, String> {
        let identities = match ask {
            Some(ask) => Identities::asking(&self.environment, ask),
            None => Identities::from_environment(&self.environment),
        };
        let opened = decrypt(sealed, SopsFormat::Yaml, &identities.unwrap());
        match opened {
            Ok(opened) => Ok(opened.value("a").unwrap().expose().to_owned()),
            Err(err) => Err(format!("{}\nhint: {:?}", told(&err), err.hint())),
        }
    }
}

/// An error with its causes.
fn told(err: &dyn std::error::Error) -> String {
    let mut said = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        said = format!("{said}\n{err}");
        cause = err.source();
    }
    said
}

/// The official tool has post-quantum keys built in, and also takes them from the plugin; to us they are the plugin's.
#[test]
fn keys_of_a_plugin_are_the_same_to_both() {
    let native = AgeKey::post_quantum();
    for key in [native.for_plugin(), native] {
        let place = Place::new(&key, &age_plugins());
        let sealed = place.sealed().unwrap();
        fs::write(place.dir.path().join("ours.yaml"), &sealed).unwrap();
        let official = place.official();
        let theirs = official.run(place.dir.path(), &["--decrypt", "ours.yaml"]);
        assert_eq!(theirs, PLAIN);
        assert_eq!(place.opened(&sealed, None).unwrap(), "one");

        fs::write(place.dir.path().join("plain.yaml"), PLAIN).unwrap();
        let sealed = official.run(place.dir.path(), &["--encrypt", "plain.yaml"]);
        assert_eq!(place.opened(&sealed, None).unwrap(), "one");
    }
}

/// A key of our own is enough, whatever else is in the file of keys.
#[test]
fn a_plugin_that_is_missing_is_named_unless_another_key_opens() {
    let key = AgeKey::post_quantum().for_plugin();
    let place = Place::new(&key, &age_plugins());
    let sealed = place.sealed().unwrap();
    let without = Place::new(&key, Path::new("/nowhere"));
    let shown = |said: String| said.replace(&key.recipient, "age1pq1…");
    insta::assert_snapshot!(shown(without.opened(&sealed, None).unwrap_err()), @r#"
    none of the age keys can decrypt it: it is encrypted for `age1pq1…`
    there is no program `age-plugin-pq` on `PATH`
    hint: Some("install the age plugin `age-plugin-pq`, and add its directory to `PATH`")
    "#);
    insta::assert_snapshot!(shown(without.sealed().unwrap_err()), @r"
    cannot wrap the data key for `age1pq1…`
    there is no program `age-plugin-pq` on `PATH`
    ");

    let own = AgeKey::generate();
    let both = AgeKey {
        recipient: own.recipient.clone(),
        identity: format!("{}{}", key.identity, own.identity),
    };
    let without = Place::new(&both, Path::new("/nowhere"));
    assert_eq!(
        without.opened(&without.sealed().unwrap(), None).unwrap(),
        "one"
    );
}

/// Asks for a PIN as a token does, then lets the real plugin go on with all it heard.
const WITH_PIN: &str = r#"#!/bin/sh
heard=$(sed '/^-> done$/{n;q}')
say() { printf -- '-> %s\n%s\n' "$1" "$(printf %s "$2" | base64 | tr -d '=')"; read -r head; read -r body; }
if [ "$1" = --age-plugin=identity-v1 ]; then
  say msg 'the token blinks'
  say "confirm $(printf insert | base64 | tr -d '=')" 'the token is missing'
  [ "$head" = '-> ok yes' ] || exit 1
  say request-secret 'PIN'
  [ "$body" = "$(printf 1234 | base64 | tr -d '=')" ] || exit 1
fi
env > "$SEEN"
{ printf '%s\n\n' "$heard"; cat; } | "$REAL" "$1"
"#;

/// What a plugin asks is asked of whoever is there, and nothing is asked of nobody. It sees the environment it is
/// given, without the private keys in it.
#[test]
fn a_plugin_may_ask() {
    let plugins = tempfile::tempdir().unwrap();
    write_program(&plugins.path().join("age-plugin-pq"), WITH_PIN);
    let key = AgeKey::post_quantum().for_plugin();
    let mut place = Place::new(&key, plugins.path());
    let seen = place.dir.path().join("seen");
    let real = age_plugins().join("age-plugin-pq");
    let more = [
        ("REAL", real.display().to_string()),
        ("SEEN", seen.display().to_string()),
        ("SOPS_AGE_KEY", AgeKey::generate().identity),
    ];
    let more = more.map(|(name, value)| (name.to_owned(), value));
    place.environment.extend(more);
    let sealed = place.sealed().unwrap();

    let asked = Arc::new(Mutex::new(Vec::new()));
    let answering = |pin: &'static str| -> PromptFn {
        let asked = Arc::clone(&asked);
        Arc::new(move |question: &Prompt<'_>| {
            asked.lock().unwrap().push(format!("{question:?}"));
            Some(Secret::new(match question {
                Prompt::Secret { .. } => pin,
                Prompt::Text { .. } => "y",
                Prompt::Message { .. } | Prompt::Passphrase { .. } => "",
            }))
        })
    };
    let opened = place.opened(&sealed, Some(answering("1234")));
    assert_eq!(opened.unwrap(), "one");
    insta::assert_snapshot!(asked.lock().unwrap().join("\n"), @r#"
    Message { plugin: "age-plugin-pq", words: "the token blinks" }
    Text { plugin: "age-plugin-pq", words: "the token is missing [y: insert]" }
    Secret { plugin: "age-plugin-pq", words: "PIN" }
    "#);
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(
        seen.contains("REAL=") && !seen.contains("AGE-SECRET-KEY"),
        "{seen}"
    );

    let wrong = place.opened(&sealed, Some(answering("0000"))).unwrap_err();
    assert!(
        wrong.contains("the age plugin `age-plugin-pq` ended unexpectedly"),
        "{wrong}"
    );
    let nobody = place.opened(&sealed, None).unwrap_err();
    insta::assert_snapshot!(nobody.replace(&key.recipient, "age1pq1…"), @r#"
    none of the age keys can decrypt it: it is encrypted for `age1pq1…`
    the age plugin `age-plugin-pq` requests input, and there is no terminal to ask for it: the token is missing [y: insert]
    hint: Some("use a key for runs that needs no interaction")
    "#);
}
