//! What is stored is checked, and comes back without the database.

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, one_stack, shown, stack, terrane};

/// Two versions of the state of `app`.
fn applied_twice() -> TestTerrane {
    let test = one_stack("", "output \"text\" { value = \"first\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test.write("app/main.tf", "output \"text\" { value = \"second\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test
}

fn home(test: &TestTerrane) -> PathBuf {
    test.home()
}

#[test]
fn a_sound_state_verifies() {
    let test = applied_twice();
    let said = test.cli(&["state", "verify", "app", "--json"]).expect(0);
    let document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(document["versions"], 2);
    assert_eq!(document["damaged"], serde_json::json!([]));
    let said = test.cli(&["state", "verify"]).expect(0);
    assert!(
        said.stdout.starts_with("checked 2 versions of 1 state: "),
        "{said}"
    );
    let said = test.cli(&["state", "verify", "other/name"]).expect(1);
    assert!(
        said.stderr.contains("there is no state `other/name`"),
        "{said}"
    );
}

#[test]
fn damage_is_named_with_a_way_on() {
    let test = applied_twice();
    let segment = home(&test).join("segments/1.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let newest = b"\"version\":2";
    let at = bytes
        .windows(newest.len())
        .position(|window| window == newest);
    bytes[at.unwrap()] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let said = test.cli(&["state", "verify"]).expect(1);
    let place = said
        .stderr
        .split('@')
        .nth(1)
        .unwrap()
        .split('`')
        .next()
        .unwrap();
    assert_snapshot!(shown(&test, &said).replace(place, "PLACE").split_once("── stderr").unwrap().1, @r#"

    error: version 2, the newest, of state `k3v9qd/app` is damaged
           could not read `ROOT/home/segments/1@PLACE`
           there is no complete frame at its location
    hint: restore the file from a backup, then verify again
    hint: or continue from version 1: `terrane state rollback k3v9qd/app --to 1 --reason "…"`
    [exit 1]
    "#);
    // Nor does it hide the others.
    let older = ["state", "show", "app", "--version", "1"];
    let older = test.cli(&older).expect(0).stdout;
    assert!(older.contains("first"), "{older}");
    let all = test.cli(&["state", "versions", "app"]).expect(0).stdout;
    assert!(all.contains("not read"), "{all}");
}

#[test]
fn everything_comes_back_without_the_database() {
    let test = applied_twice();
    let pull = |version| {
        let args = ["state", "pull", "app", "--version", version];
        test.cli(&args).expect(0).stdout
    };
    let pulled = [pull("1"), pull("2")];
    for file in ["terrane.db", "terrane.db-wal", "terrane.db-shm"] {
        let _ = fs::remove_file(home(&test).join(file));
    }
    let home = home(&test).display().to_string();
    let key = test.root().join("user/.config/terrane/master.key");
    let key = key.display().to_string();
    let args = [
        "state", "recover", "--data", &home, "--key", &key, "--to", "out",
    ];
    assert_snapshot!(test.cli(&args).expect(0).stdout, @"
    k3v9qd/app/1-1.tfstate
    k3v9qd/app/2-2.tfstate
    ");
    let out = test.project().join("out");
    let read = |file: &str| fs::read_to_string(out.join("k3v9qd/app").join(file)).unwrap();
    assert_eq!([read("1-1.tfstate"), read("2-2.tfstate")], pulled);
    assert!(out.join("index.json").is_file());
    assert!(test.cli(&args).expect(1).stderr.contains("is not empty"));
    assert!(
        !Path::new(&home).join("terrane.db").exists(),
        "nothing is made"
    );
}

const TABLES: [&str; 3] = ["terrane.db", "terrane.db-wal", "terrane.db-shm"];

#[test]
fn the_database_is_made_again_from_the_files() {
    let test = applied_twice();
    let pull = || test.cli(&["state", "pull", "app"]);
    let pulled = pull().expect(0).stdout;
    lose_tables(&test);
    let lost = pull().expect(1);
    assert!(
        lost.stderr.contains("`terrane state recover --into-home`"),
        "{lost}"
    );
    let recover = || test.cli(&["state", "recover", "--into-home"]).expect(0);
    assert_snapshot!(shown(&test, &recover()), @"
    ── stderr
    The database has 2 versions of 1 state again: `k3v9qd/app`.
    warning: locks, runs and tokens that the database had are not in the files, nor that a state was
             deleted
    hint: `terrane state verify` checks what is there
    ");
    assert_snapshot!(shown(&test, &recover()), @"
    ── stderr
    The database contains everything that the files contain.
    ");
    assert_eq!(pull().expect(0).stdout, pulled);
    drop(test.cli(&["state", "verify"]).expect(0));
    test.write("app/main.tf", "output \"text\" { value = \"third\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

/// Changes a byte of what the newest version holds.
fn damage_newest(test: &TestTerrane) {
    let segment = home(test).join("segments/1.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let newest = b"\"version\":2,";
    let at = bytes
        .windows(newest.len())
        .position(|window| window == newest);
    let line = bytes[at.unwrap()..].iter().position(|byte| *byte == b'\n');
    bytes[at.unwrap() + line.unwrap() + 20] ^= 1;
    fs::write(&segment, bytes).unwrap();
}

fn lose_tables(test: &TestTerrane) {
    for file in TABLES {
        let _ = fs::remove_file(home(test).join(file));
    }
}

#[test]
fn a_lost_version_is_named_and_a_person_may_go_on_without_it() {
    let test = applied_twice();
    damage_newest(&test);
    lose_tables(&test);
    let said = test.cli(&["state", "recover", "--into-home"]).expect(1);
    assert_snapshot!(shown(&test, &said), @r#"
    ── stderr
    The database has 1 version of 1 state again: `k3v9qd/app`.
    warning: locks, runs and tokens that the database had are not in the files, nor that a state was
             deleted
    hint: `terrane state verify` checks what is there
    error: version 2 of state `k3v9qd/app` was acknowledged, but the newest readable one is version 1
           could not read `ROOT/home/segments/1.seg`
           there is no complete frame at its location
    hint: restore the file from a backup, then `terrane state recover --into-home` again
    hint: or continue from version 1:
          `terrane state recover --into-home --accept-loss k3v9qd/app@1 --reason "…"`
    [exit 1]
    "#);
    let said = test.cli(&["state", "verify"]).expect(1);
    let told = "error: version 2, the newest, of state `k3v9qd/app` is not in the database";
    assert!(said.stderr.contains(told), "{said}");
    let home_dir = home(&test).display().to_string();
    let to = ["state", "recover", "--data", &home_dir, "--to", "out"];
    let said = test.cli(&to).expect(1);
    let told = "error: could not read version 2 of state `k3v9qd/app`";
    assert!(said.stderr.contains(told), "{said}");

    let accept = |word: &str, code| {
        let args = ["state", "recover", "--into-home", "--accept-loss", word];
        let reason = ["--reason", "the disk lost it"];
        test.cli(&[&args[..], &reason].concat()).expect(code)
    };
    assert_snapshot!(shown(&test, &accept("app@2", 64)), @"
    ── stderr
    error: state `k3v9qd/app` has no readable version 2
    hint: `terrane state recover --into-home` lists what is lost, and what can be read
    [exit 64]
    ");
    assert_snapshot!(shown(&test, &accept("app@1", 0)), @"
    ── stderr
    State `k3v9qd/app` continues with version 3, serial 3. Its record stays open: `terrane run list --open`.
    ");
    let pulled = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    assert!(pulled.contains("first"), "{pulled}");
    drop(test.cli(&["state", "verify"]).expect(0));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let versions = test.cli(&["state", "versions", "app", "--json"]).expect(0);
    let versions: serde_json::Value = serde_json::from_str(&versions.stdout).unwrap();
    let numbers: Vec<i64> = versions["versions"]
        .as_array()
        .unwrap_or_else(|| panic!("{versions}"))
        .iter()
        .filter_map(|one| one["version"].as_i64())
        .collect();
    assert_eq!(numbers, [4, 3, 1], "a number stands for two versions");
}

#[test]
fn a_state_of_which_nothing_opens_begins_anew_under_its_name() {
    let begin = ["state", "recover", "--into-home", "--accept-loss", "app@0"];
    let begin = [&begin[..], &["--reason", "its key is gone"]].concat();
    for tables_are_lost in [true, false] {
        let test = applied_twice();
        let said = test.cli(&begin).expect(64);
        let told = "error: version 2 of state `k3v9qd/app` is readable";
        assert!(said.stderr.contains(told), "{said}");
        fs::write(home(&test).join("keys/k3v9qd~app/1"), "damaged").unwrap();
        if tables_are_lost {
            lose_tables(&test);
        } else {
            let said = test.cli(&["state", "verify"]);
            assert_snapshot!(shown(&test, &said), @r#"
            checked 2 versions of 1 state: 0 bytes, stored in 0
            ── stderr
            error: all 2 versions of state `k3v9qd/app` cannot be read
                   could not get the data key
                   `ROOT/home/keys/k3v9qd~app/1` is not a wrapped key
            hint: restore the file from a backup, then verify again
            hint: or start with an empty state, and import the existing resources:
                  `terrane state recover --into-home --accept-loss k3v9qd/app@0 --reason "…"`
            [exit 1]
            "#);
        }
        let said = test.cli(&begin).expect(0);
        let number = if tables_are_lost { 3 } else { 4 };
        let told = format!("State `k3v9qd/app` continues with version {number}, serial 3.");
        assert!(said.stderr.contains(&told), "{said}");
        let pulled = test.cli(&["state", "pull", "app"]).expect(0).stdout;
        assert!(pulled.contains("\"resources\":[]"), "{pulled}");
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        drop(test.cli(&["state", "show", "app"]).expect(0));
        let aside = home(&test).join("lost/keys/k3v9qd~app/1");
        assert_eq!(fs::read_to_string(aside).unwrap(), "damaged");
    }
}

#[test]
fn a_damaged_newest_version_is_followed_by_what_a_person_pushes() {
    let test = applied_twice();
    damage_newest(&test);
    let by_hand = ["--reason", "the disk", "--auto-approve"];
    let rollback = [&["state", "rollback", "app", "--to", "1"][..], &by_hand].concat();
    let said = test.cli(&rollback).expect(0);
    let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "warning: version 2, the newest, is damaged, so the changes cannot be shown: could not read";
    assert!(words.contains(told), "{said}");
    assert!(
        words.contains("Done: version 3 of `app`, serial 3."),
        "{said}"
    );
    let pulled = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    assert!(pulled.contains("first"), "{pulled}");
    // The damaged one is kept, for a backup to mend.
    let verified = test.cli(&["state", "verify"]).expect(1);
    let told = "version 2 of state `k3v9qd/app` is damaged";
    assert!(verified.stderr.contains(told), "{verified}");

    let test = applied_twice();
    test.write(
        "older.tfstate",
        &pulled.replace("\"serial\": 3", "\"serial\": 1"),
    );
    damage_newest(&test);
    let push = ["state", "push", "app", "older.tfstate", "--force"];
    let said = test.cli(&[&push[..], &by_hand].concat()).expect(0);
    assert!(
        said.stderr.contains("Done: version 3 of `app`, serial 3."),
        "{said}"
    );
}

#[test]
fn keys_that_do_not_open_are_said_without_the_database_too() {
    let test = applied_twice();
    lose_tables(&test);
    let key = home(&test).join("keys/k3v9qd~app/1");
    let whole = fs::read(&key).unwrap();
    fs::write(&key, "").unwrap();
    for command in [
        &["recover", "--into-home"][..],
        &["verify"],
        &["verify", "app"],
    ] {
        let said = test.cli(&[&["state"], command].concat()).expect(1);
        assert!(
            said.stderr
                .contains("version 2 of state `k3v9qd/app` was acknowledged"),
            "{said}"
        );
        assert!(said.stderr.contains("is not a wrapped key"), "{said}");
    }
    fs::write(&key, whole).unwrap();

    let master = test.root().join("user/.config/terrane/master.key");
    let right = fs::read_to_string(&master).unwrap();
    fs::remove_file(&master).unwrap();
    let other = test.root().join("other").display().to_string();
    test.write("f", "{\"version\":4,\"serial\":1,\"lineage\":\"l\"}");
    let push = [
        "state",
        "push",
        "x/y",
        "f",
        "--data",
        &other,
        "--reason",
        "r",
        "--auto-approve",
    ];
    drop(test.cli(&push).expect(0));
    for command in [&["recover", "--into-home"][..], &["verify"]] {
        let said = test.cli(&[&["state"], command].concat()).expect(1);
        assert!(
            said.stderr.contains("cannot be read with this master key"),
            "{said}"
        );
    }
    fs::write(&master, right).unwrap();
    drop(test.cli(&["state", "recover", "--into-home"]).expect(0));
    drop(test.cli(&["state", "verify"]).expect(0));
}

fn keep_tables(test: &TestTerrane) -> PathBuf {
    let kept = test.root().join("kept");
    fs::create_dir(&kept).unwrap();
    for file in TABLES {
        let _ = fs::copy(home(test).join(file), kept.join(file));
    }
    kept
}

fn restore_tables(test: &TestTerrane, kept: &Path) {
    for file in TABLES {
        let _ = fs::remove_file(home(test).join(file));
        let _ = fs::copy(kept.join(file), home(test).join(file));
    }
}

#[test]
fn a_state_that_cannot_be_read_hides_no_other() {
    let test = terrane();
    let stacks = [stack("app", ""), stack("web", "")].concat();
    test.write("terrane.hcl", &format!("{HEAD}{stacks}"))
        .write("app/main.tf", "output \"text\" { value = \"first\" }\n")
        .write("web/main.tf", "output \"text\" { value = \"first\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let kept = keep_tables(&test);
    test.write("app/main.tf", "output \"text\" { value = \"second\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    restore_tables(&test, &kept);
    let said = test.cli(&["state", "list"]).expect(1);
    assert!(said.stdout.contains("web"), "{said}");
    assert!(
        said.stderr
            .contains("error: could not list state `k3v9qd/app`"),
        "{said}"
    );
}

#[test]
fn an_older_database_is_noticed() {
    let test = applied_twice();
    let kept = keep_tables(&test);
    test.write("app/main.tf", "output \"text\" { value = \"third\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let pull = || test.cli(&["state", "pull", "app"]);
    let pulled = pull().expect(0).stdout;
    restore_tables(&test, &kept);
    let old = pull().expect(1);
    assert!(
        old.stderr
            .contains("version 3 of state `k3v9qd/app` was acknowledged"),
        "{old}"
    );
    let refused = test.cli(&["apply", "--auto-approve"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    let asked: [&[&str]; 7] = [
        &["export", "--all", "--to", "backup"],
        &["show", "app"],
        &["list", "app"],
        &["versions", "app"],
        &["diff", "app"],
        &["search", "third"],
        &["list"],
    ];
    for args in asked {
        let said = test.cli(&[&["state"], args].concat()).expect(1);
        let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("version 3 of state `k3v9qd/app` was acknowledged"),
            "{said}"
        );
    }
    assert!(
        !test.project().join("backup").exists(),
        "a backup was begun"
    );
    let verified = test.cli(&["state", "verify"]).expect(1);
    assert!(
        verified
            .stderr
            .contains("hint: `terrane state recover --into-home` writes it into the database"),
        "{verified}"
    );
    drop(test.cli(&["state", "recover", "--into-home"]).expect(0));
    assert_eq!(pull().expect(0).stdout, pulled);
    drop(test.cli(&["state", "verify"]).expect(0));
}

#[test]
fn a_misspelt_state_makes_no_key() {
    let test = one_stack("", "output \"text\" { value = \"first\" }\n");
    let key = test.root().join("user/.config/terrane/master.key");
    let _ = fs::remove_file(&key);
    for command in ["versions", "pull", "show", "blame"] {
        let said = test.cli(&["state", command, "apq"]);
        assert_ne!(said.code, Some(0), "{said}");
        assert!(!key.exists(), "{said}");
    }
}

#[test]
fn what_recovery_needs_is_named() {
    let test = applied_twice();
    let args = ["state", "recover", "--key", "none", "--to", "out"];
    let said = test.cli(&args).expect(1);
    assert!(
        said.stderr.contains("hint: name the key: `--key FILE`"),
        "{said}"
    );
    let args = ["state", "recover", "--data", "app", "--to", "out"];
    let said = test.cli(&args).expect(1);
    assert!(said.stderr.contains("contains no versions"), "{said}");
}
