//! Master keys: where they come from, and replacing one.

use std::fs;

use serde_json::Value;
use testkit::TestTerrane;

use crate::project::{HEAD, one_stack, stack, terrane};

const KEY: &str = "terrane-key-1 elsewhere AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const MODULE: &str = "output \"text\" { value = \"plain\" }\n";

fn listed(test: &TestTerrane) -> Vec<(String, bool, u64)> {
    let said = test.cli(&["key", "list", "--json"]).expect(0).stdout;
    let said: Value = serde_json::from_str(&said).unwrap();
    let key = |key: &Value| {
        let id = key["id"].as_str().unwrap().to_owned();
        (
            id,
            key["at_hand"].as_bool().unwrap(),
            key["data_keys"].as_u64().unwrap(),
        )
    };
    said["keys"].as_array().unwrap().iter().map(key).collect()
}

fn project(test: TestTerrane) -> TestTerrane {
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", MODULE);
    test
}

#[test]
fn a_new_key_wraps_and_the_old_one_is_kept() {
    let test = one_stack("", MODULE);
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let before = listed(&test);
    assert_eq!(before, [("test".to_owned(), true, 2)]);
    let said = test.cli(&["key", "rotate", "--auto-approve"]).expect(0);
    assert!(
        said.stderr.contains("wrapped 2 data keys with it"),
        "{said}"
    );
    let after = listed(&test);
    assert_eq!(after.len(), 2);
    assert_eq!(
        (after[0].2, after[1].0.as_str(), after[1].2),
        (2, "test", 0)
    );
    let _ = test.cli(&["state", "pull", "app"]).expect(0);
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);

    // Without the old one everything still opens; with it alone nothing does.
    let path = test.root().join("user/.config/terrane/master.key");
    let text = fs::read_to_string(&path).unwrap();
    let (new, old) = text.split_once('\n').unwrap();
    fs::write(&path, new).unwrap();
    let _ = test.cli(&["state", "pull", "app"]).expect(0);
    fs::write(&path, old).unwrap();
    let lost = test.cli(&["state", "pull", "app"]).expect(1);
    assert!(
        lost.stderr.contains("was wrapped with master key"),
        "{lost}"
    );
    let missing = listed(&test);
    assert!(
        missing
            .iter()
            .any(|(_, at_hand, count)| !at_hand && *count == 2),
        "{missing:?}"
    );
}

#[test]
fn the_key_comes_from_the_environment_and_reaches_runners_by_their_pipe() {
    let test = project(terrane().env("TERRANE_KEY", KEY));
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(listed(&test), [("elsewhere".to_owned(), true, 2)]);
    let secret = KEY.split(' ').next_back().unwrap();
    assert_eq!(
        crate::story::holding(&test, secret),
        Vec::<std::path::PathBuf>::new()
    );
    let refused = test.cli(&["key", "rotate", "--auto-approve"]).expect(1);
    assert!(
        refused.stderr.contains("terrane key rotate --to FILE"),
        "{refused}"
    );

    let file = test.root().join("new.key");
    let path = file.display().to_string();
    let _ = test
        .cli(&["key", "rotate", "--auto-approve", "--to", &path])
        .expect(0);
    let _ = test.cli(&["state", "pull", "app"]).expect(1);
    let test = test
        .without_env("TERRANE_KEY")
        .env("TERRANE_KEY_FILE", &path);
    let _ = test.cli(&["state", "pull", "app"]).expect(0);
    let again = test
        .cli(&["key", "rotate", "--auto-approve", "--to", &path])
        .expect(0);
    assert!(again.stderr.contains("Made master key"), "{again}");

    let copy = test.root().join("copy.key");
    fs::copy(&file, &copy).unwrap();
    let path = copy.display().to_string();
    let same = test
        .cli(&["key", "rotate", "--auto-approve", "--to", &path])
        .expect(1);
    assert!(
        same.stderr
            .contains("contains the master key that is in use"),
        "{same}"
    );
}

#[test]
fn the_key_comes_from_a_command() {
    let test = terrane();
    let kept = test.root().join("kms");
    fs::write(&kept, KEY).unwrap();
    let test = project(test.env("TERRANE_KEY_COMMAND", &format!("cat '{}'", kept.display())));
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(listed(&test), [("elsewhere".to_owned(), true, 2)]);
    let test = test.env("TERRANE_KEY", KEY);
    let both = test.cli(&["key", "list"]).expect(64);
    assert!(both.stderr.contains("both name a master key"), "{both}");
}

/// An identity, and the key in `master.key.age` encrypted for it.
fn with_age(test: &TestTerrane) -> String {
    use age::secrecy::ExposeSecret as _;
    let identity = age::x25519::Identity::generate();
    let sealed = age::encrypt_and_armor(&identity.to_public(), KEY.as_bytes()).unwrap();
    let config = test.root().join("user/.config/terrane");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("master.key.age"), sealed).unwrap();
    identity.to_string().expose_secret().to_owned()
}

#[test]
fn the_key_comes_from_an_age_identity_that_is_never_repeated() {
    let test = terrane();
    let identity = with_age(&test);
    let test = project(test.env("TERRANE_KEY_AGE", &identity));
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(listed(&test), [("elsewhere".to_owned(), true, 2)]);
    let refused = test.cli(&["key", "rotate", "--auto-approve"]).expect(1);
    assert!(refused.stderr.contains("`TERRANE_KEY_AGE`"), "{refused}");

    // As an identity file says it, and as a path.
    let file = test.root().join("age.id");
    fs::write(&file, format!("# created: today\n{identity}\n")).unwrap();
    let test = test.env("TERRANE_KEY_AGE", &fs::read_to_string(&file).unwrap());
    let _ = test.cli(&["state", "pull", "app"]).expect(0);
    let test = test.env("TERRANE_KEY_AGE", &file.display().to_string());
    let _ = test.cli(&["state", "pull", "app"]).expect(0);

    let broken = format!("{}X", identity.to_ascii_lowercase());
    let test = test.env("TERRANE_KEY_AGE", &broken);
    let said = test.cli(&["state", "pull", "app"]).expect(1);
    assert!(!said.stderr.contains(&broken[..30]), "{said}");
    let test = test.env("TERRANE_KEY_AGE", &identity);
    fs::remove_file(test.root().join("user/.config/terrane/master.key.age")).unwrap();
    let none = test.cli(&["state", "pull", "app"]).expect(1);
    assert!(
        none.stderr
            .contains("hint: encrypt the key for that identity"),
        "{none}"
    );
}

#[test]
fn a_key_in_place_of_its_path_is_not_repeated() {
    let test = project(terrane().env("TERRANE_KEY_FILE", KEY));
    let said = test.cli(&["state", "list"]).expect(64);
    insta::assert_snapshot!(said.stderr, @r"
    error: `TERRANE_KEY_FILE` contains a key, but must be the path of a key file
    hint: put a key into `TERRANE_KEY`, an age identity into `TERRANE_KEY_AGE`
    ");
    let test = test.without_env("TERRANE_KEY_FILE");
    let args = ["state", "recover", "--to", "out", "--key", KEY];
    let said = test.cli(&args).expect(64);
    assert!(said.stderr.contains("`--key` contains a key"), "{said}");
}

#[test]
fn recovery_takes_the_key_from_wherever_it_comes() {
    let test = terrane();
    let identity = with_age(&test);
    let kept = test.root().join("kms");
    fs::write(&kept, KEY).unwrap();
    let test = project(test.env("TERRANE_KEY", KEY));
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let kept = kept.display().to_string();
    let mut test = test.without_env("TERRANE_KEY");
    let sources = [
        ("TERRANE_KEY", KEY.to_owned()),
        ("TERRANE_KEY_FILE", kept.clone()),
        ("TERRANE_KEY_COMMAND", format!("cat '{kept}'")),
        ("TERRANE_KEY_AGE", identity),
    ];
    for (name, value) in sources {
        test = test.env(name, &value);
        let recovered = test.cli(&["state", "recover", "--to", name]).expect(0);
        assert!(
            recovered.stdout.contains("app/1-1.tfstate"),
            "{name}: {recovered}"
        );
        test = test.without_env(name);
    }
}

/// Not once for each state that cannot be read.
#[test]
fn a_wrong_master_key_is_said_once() {
    let test = project(terrane().env("TERRANE_KEY", KEY));
    for (state, serial) in [("app", 1), ("app", 2), ("other/app", 1)] {
        let body = format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[]}}"#);
        test.write("../by-hand.tfstate", &body);
        let push = ["state", "push", state, "../by-hand.tfstate", "--force"];
        let yes = ["--reason", "test", "--auto-approve"];
        drop(test.cli(&[&push[..], &yes[..]].concat()).expect(0));
    }
    let (_, secret) = KEY.rsplit_once(' ').unwrap();
    let other = format!("terrane-key-1 wrong {}", secret.replace("AAEC", "BBEC"));
    let test = test.env("TERRANE_KEY", &other);
    let said = test.cli(&["state", "verify"]).expect(1);
    let errors: Vec<&str> = said.stderr.split("error: ").skip(1).collect();
    let begin = "3 versions of 2 states cannot be read with this master key\n";
    assert!(errors.len() == 1 && errors[0].starts_with(begin), "{said}");
}
