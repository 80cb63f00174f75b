//! State that can be asked: three applies, then every question about them. Nothing sensitive is seen, and
//! what is shown on request is recorded.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use testkit::{CommandOutput, engines};

use crate::project::one_stack;
use crate::story::Story;

/// The same project three times: a change, then an addition, a removal and a replacement.
const MODULES: [&str; 3] = [
    r#"
resource "terraform_data" "web" {
  input = { size = 1, image = "web-1", tags = { env = "dev" } }
}
resource "terraform_data" "db" {
  input = { name = "main", admin_password = "correct-horse" }
}
resource "terraform_data" "old" {
  triggers_replace = "a"
}
output "address" { value = "10.0.0.7" }
output "login" {
  value     = "root:correct-horse"
  sensitive = true
}
"#,
    r#"
resource "terraform_data" "web" {
  input = { size = 2, image = "web-1", tags = { env = "dev" } }
}
resource "terraform_data" "db" {
  input = { name = "main", admin_password = "battery-staple" }
}
resource "terraform_data" "old" {
  triggers_replace = "a"
}
output "address" { value = "10.0.0.8" }
output "login" {
  value     = "root:battery-staple"
  sensitive = true
}
"#,
    r#"
resource "terraform_data" "web" {
  input = { size = 2, image = "web-1", tags = { env = "prod" } }
}
resource "terraform_data" "db" {
  input = { name = "main", admin_password = "battery-staple" }
}
resource "terraform_data" "new" {
  count = 2
  input = "n${count.index}"
}
output "address" { value = "10.0.0.8" }
output "login" {
  value     = "root:battery-staple"
  sensitive = true
}
"#,
];

fn applied(engine: &str) -> Story {
    let story = Story::new(engine).stack("app", "", MODULES[0]);
    for (module, subject) in MODULES
        .iter()
        .zip(["app: begin", "app: grow", "app: go live"])
    {
        story.module("app", module);
        if !story.project().join(".git").exists() {
            story.git(&["init", "--quiet", "--initial-branch=main"]);
        }
        story.git(&["add", "--all"]);
        story.git(&["commit", "--quiet", "--message", subject]);
        drop(story.cli(&["apply", "--auto-approve"]).expect(0));
        story.settle();
    }
    story
}

/// What differs from one run of the test to the next: ids, digests, commits, who and when.
fn stable(story: &Story, said: &CommandOutput) -> String {
    let me = story.shell("id -un").stdout.trim().to_owned();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = String::new();
    for line in said.to_string().lines() {
        let mut rest = line;
        let mut clean = String::new();
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| !(c.is_ascii_hexdigit() || c == '-'))
                .unwrap_or(rest.len());
            let word = &rest[..end];
            let is_digest = word.len() == 6 && clean.ends_with('#');
            let is_commit = word.len() == 7 && clean.ends_with(' ');
            if word.len() == 36 {
                clean.push_str("ID");
            } else if is_digest {
                let next = seen.len() + 1;
                let number = seen.entry(word.to_owned()).or_insert(next);
                clean.push_str(&number.to_string());
            } else if is_commit {
                clean.push_str("COMMIT");
            } else {
                clean.push_str(word);
            }
            let next = rest[end..].chars().next().map_or(0, char::len_utf8);
            clean.push_str(&rest[end..end + next]);
            rest = &rest[end + next..];
        }
        let line = level_age(&clean);
        match line.strip_suffix(&me) {
            Some(before) => out.extend([before, "ME\n"]),
            None => out.extend([line.as_str(), "\n"]),
        }
    }
    out
}

/// `5 seconds ago` is `just now`.
fn level_age(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let is_age = |it: &[String]| {
        it[0].parse::<u32>().is_ok() && it[1].starts_with("second") && it[2].starts_with("ago")
    };
    while let Some(at) = words.windows(3).position(is_age) {
        let tail = words[at + 2].split_off(3);
        words.splice(at..at + 3, ["just".to_owned(), format!("now{tail}")]);
    }
    words.join(" ")
}

#[test]
fn every_question_after_three_applies() {
    let story = applied("tofu");
    let ask = |args: &[&str]| {
        let mut all = vec!["state"];
        all.extend(args);
        stable(&story, &story.cli(&all).expect(0))
    };
    assert_snapshot!(ask(&["versions", "app"]), @r#"
    VERSION   SERIAL   WHEN       CHANGES      SIZE   BY
          3        3   just now   +2 ~1 -1   1.8 KB   r3, COMMIT "app: go live", ME
          2        2   just now   ~2         1.6 KB   r2, COMMIT "app: grow", ME
          1        1   just now   +3         1.6 KB   r1, COMMIT "app: begin", ME
    "#);
    assert_snapshot!(ask(&["list", "app"]), @"
    terraform_data.db
    terraform_data.new[0]
    terraform_data.new[1]
    terraform_data.web
    ── stderr
    4 resources in version 3 (serial 3).
    ");
    assert_snapshot!(ask(&["diff", "app"]), @r#"
    state `app`: version 2 (serial 2, just now) → version 3 (serial 3, just now)

      + terraform_data.new[0]
          id       "ID"
          input    "n0"
          output   "n0"
      + terraform_data.new[1]
          id       "ID"
          input    "n1"
          output   "n1"
      ~ terraform_data.web
          input.tags.env    "dev" → "prod"
          output.tags.env   "dev" → "prod"
          … 5 unchanged
      - terraform_data.old

    2 added, 1 changed, 0 replaced, 1 removed.
    "#);
    assert_snapshot!(ask(&["diff", "app", "1", "2"]), @r#"
    state `app`: version 1 (serial 1, just now) → version 2 (serial 2, just now)

      ~ terraform_data.db
          input.admin_password    (sensitive #1) → (sensitive #2)
          output.admin_password   (sensitive #1) → (sensitive #2)
          … 3 unchanged
      ~ terraform_data.web
          input.size    1 → 2
          output.size   1 → 2
          … 5 unchanged
      outputs
        ~ address   "10.0.0.7" → "10.0.0.8"
        ~ login     (sensitive #3) → (sensitive #4)

    0 added, 2 changed, 0 replaced, 0 removed; 2 outputs differ.
    "#);
    assert_snapshot!(ask(&["blame", "app", "terraform_data.web"]), @r#"
    terraform_data.web
      serial 3   just now   r3   COMMIT "app: go live"   ME
        input.tags.env    "prod"
        output.tags.env   "prod"
      serial 2   just now   r2   COMMIT "app: grow"   ME
        input.size    2
        output.size   2
      serial 1   just now   r1   COMMIT "app: begin"   ME
        id             "ID"
        input.image    "web-1"
        output.image   "web-1"
    "#);
    // As it was then, and who had made it so by then.
    assert_snapshot!(ask(&["blame", "app", "terraform_data.web", "input", "--version", "2"]), @r#"
    terraform_data.web
      serial 2   just now   r2   COMMIT "app: grow"   ME
        input.size   2
      serial 1   just now   r1   COMMIT "app: begin"   ME
        input.image      "web-1"
        input.tags.env   "dev"
    "#);
    assert_snapshot!(ask(&["blame", "app", "output.login"]), @r#"
    output.login
      serial 2   just now   r2   COMMIT "app: grow"   ME
        value   (sensitive #1)
    "#);
    assert_snapshot!(ask(&["show", "app", "terraform_data.db"]), @r#"
    terraform_data.db
        id                      "ID"
        input.admin_password    (sensitive #1)
        input.name              "main"
        output.admin_password   (sensitive #1)
        output.name             "main"
    "#);
    assert_snapshot!(ask(&["search", "web-1"]), @r#"
    app
      terraform_data.web
        input.image    "web-1"
        output.image   "web-1"
    ── stderr
    2 found in 1 state.
    "#);
    assert_snapshot!(ask(&["search", "10.0.0.", "--all-versions"]), @r#"
    app
      output.address
        value   "10.0.0.7"   version 1
        value   "10.0.0.8"   since version 2
    ── stderr
    2 found in 1 state and 3 versions.
    "#);
    assert_snapshot!(ask(&["search", "old", "--all-versions"]), @"
    app
      terraform_data.old   versions 1 to 2
    ── stderr
    1 found in 1 state and 3 versions.
    ");
}

#[test]
fn nothing_sensitive_is_seen_unless_it_is_recorded() {
    for (engine, _) in engines::all() {
        let story = applied(engine);
        let questions: &[&[&str]] = &[
            &["state", "show", "app", "--full"],
            &["state", "show", "app", "--json"],
            &["state", "diff", "app", "1", "--full"],
            &["state", "diff", "app", "1", "--json"],
            &["state", "blame", "app", "terraform_data.db"],
            &["state", "blame", "app", "terraform_data.db", "--json"],
            &["state", "blame", "app", "output.login"],
            &["state", "search", "terraform", "--all-versions"],
            &["state", "search", "battery", "--all-versions"],
            &[
                "state",
                "search",
                "battery-staple",
                "--all-versions",
                "--json",
            ],
        ];
        for question in questions {
            let said = story.cli(question).expect(0);
            for secret in ["correct-horse", "battery-staple"] {
                let shown = said.stdout.contains(secret) || said.stderr.contains(secret);
                assert!(!shown, "{question:?}: {said}");
            }
        }
        // A part of it finds nothing, the whole of it finds where it is.
        let part = story.cli(&["state", "search", "battery"]).expect(0);
        assert_eq!(part.stdout, "");
        let whole = story.cli(&["state", "search", "battery-staple"]).expect(0);
        assert!(whole.stdout.contains("admin_password"), "{whole}");
        // The index holds no value in clear.
        for file in ["terrane.db", "terrane.db-wal"] {
            let bytes = std::fs::read(story.data().join(file)).unwrap_or_default();
            for value in ["battery-staple", "10.0.0.8", "web-1"] {
                let mut at = bytes.windows(value.len());
                assert!(!at.any(|at| at == value.as_bytes()), "{value} is in {file}");
            }
        }

        let bare = story.cli(&["state", "show", "app", "--reveal"]).expect(64);
        assert!(bare.stderr.contains("--reason"), "{bare}");
        let reveal = [
            "state",
            "show",
            "app",
            "terraform_data.db",
            "--reveal",
            "--reason",
            "audit",
        ];
        let said = story.cli(&reveal).expect(0);
        assert!(said.stdout.contains("battery-staple"), "{said}");
        // One output alone.
        let output = ["state", "show", "app", "output.login"];
        let hidden = story.cli(&output).expect(0);
        assert!(hidden.stdout.contains("(sensitive"), "{hidden}");
        let reveal = [&output[..], &["--reveal", "--reason", "audit"]].concat();
        let said = story.cli(&reveal).expect(0).stdout;
        assert_eq!(said, "outputs\n    login   \"root:battery-staple\"\n");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let test = one_stack(
        "",
        "resource \"terraform_data\" \"web\" { input = \"w\" }\n",
    );
    assert_snapshot!(test.cli(&["state", "list"]).expect(0), @"
    ── stderr
    There is no state yet: `terrane apply` makes one.
    ");
    assert_snapshot!(test.cli(&["state", "show", "app"]).expect(1), @"
    ── stderr
    error: there is no state `k3v9qd/app`
    hint: `terrane state list` lists all states
    [exit 1]
    ");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(test.cli(&["state", "list", "--at", "2020-01-01"]).expect(0), @"
    ── stderr
    There was no state at that time.
    ");
    let back = "state rollback app --to 2w --reason r";
    let back: Vec<&str> = back.split(' ').collect();
    let back = test.cli(&back).expect(1).stderr;
    assert!(back.contains("had no version on 20"), "{back}");
    assert_snapshot!(test.cli(&["state", "show", "app", "terraform_data.wep"]).expect(1), @"
    ── stderr
    error: there is no `terraform_data.wep` in version 1 of state `k3v9qd/app`
    hint: it has `terraform_data.web`
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "blame", "app", "terraform_data.web", "size"]).expect(1), @"
    ── stderr
    error: `terraform_data.web` has no attribute `size`
    hint: it has `id`, `input`, `output`
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "diff", "app", "7"]).expect(1), @"
    ── stderr
    error: state `k3v9qd/app` has no version 7
    hint: `terrane state versions k3v9qd/app` lists all stored versions
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "diff", "app", "yesterday"]).expect(64), @"
    ── stderr
    error: `yesterday` is not a time
    hint: write `2026-11-01T10:00` (UTC), `2026-11-01T10:00+01:00`, or an age: `90m`, `2h`, `3d`, `4w`
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["state", "show", "app", "--at", "2020-01-01"]).expect(1), @"
    ── stderr
    error: state `k3v9qd/app` did not exist at 2020-01-01T00:00:00Z
    hint: `terrane state versions k3v9qd/app` lists all stored versions
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "search", "nowhere"]).expect(0), @"
    ── stderr
    Nothing found in 1 state.
    hint: a sensitive value is found only by its whole text
    ");
    assert_snapshot!(test.cli(&["state", "search", "W", "--json", "--type", "terraform_*"]).expect(0), @r#"
    {
      "hits": [
        {
          "state": {
            "project": "k3v9qd",
            "name": "app"
          },
          "address": "terraform_data.web",
          "path": null,
          "value": null,
          "first_version": 1,
          "last_version": null
        },
        {
          "state": {
            "project": "k3v9qd",
            "name": "app"
          },
          "address": "terraform_data.web",
          "path": "input",
          "value": {
            "value": "w"
          },
          "first_version": 1,
          "last_version": null
        },
        {
          "state": {
            "project": "k3v9qd",
            "name": "app"
          },
          "address": "terraform_data.web",
          "path": "output",
          "value": {
            "value": "w"
          },
          "first_version": 1,
          "last_version": null
        }
      ],
      "copies": [],
      "not_searched": [],
      "states": 1,
      "versions": 1
    }
    "#);
}

#[test]
fn what_the_engine_encrypts_is_said_to_be_unknown() {
    let test = one_stack(
        "",
        r#"terraform {
  encryption {
    key_provider "pbkdf2" "it" {
      passphrase = "sixteen-letters-or-more"
    }
    method "aes_gcm" "it" {
      keys = key_provider.pbkdf2.it
    }
    state {
      method = method.aes_gcm.it
    }
  }
}
resource "terraform_data" "web" { input = "w" }
"#,
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(test.cli(&["state", "show", "app"]).expect(1), @"
    ── stderr
    error: cannot read the contents of version 1 of state `k3v9qd/app`: it is encrypted by the engine,
           and only the engine has the key
    hint: `terrane state pull k3v9qd/app` prints the version as it was stored
    hint: the engine can decrypt it
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "diff", "app"]).expect(1), @"
    ── stderr
    error: cannot read the contents of version 1 of state `k3v9qd/app`: it is encrypted by the engine,
           and only the engine has the key
    hint: `terrane state pull k3v9qd/app` prints the version as it was stored
    hint: the engine can decrypt it
    [exit 1]
    ");
    assert_snapshot!(test.cli(&["state", "search", "web"]).expect(0), @"
    ── stderr
    Nothing found in 0 states.
    warning: version 1 of `app` was not searched: it is encrypted by the engine, and only the engine has
             the key
    hint: a sensitive value is found only by its whole text
    ");
    let list = test.cli(&["state", "list"]).expect(0).stdout;
    assert!(list.contains("unknown"), "{list}");
    let versions = test.cli(&["state", "versions", "app"]).expect(0).stdout;
    assert!(versions.contains("unknown"), "{versions}");
}
