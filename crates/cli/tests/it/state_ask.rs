//! State that can be asked: three applies, then every question about them. Nothing sensitive is seen, and
//! what is shown on request is recorded.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use testkit::{Said, engines};

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
fn stable(story: &Story, said: &Said) -> String {
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
        out.push_str(&match line.strip_suffix(&me) {
            Some(before) => format!("{before}ME"),
            None => line,
        });
        out.push('\n');
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
    assert_snapshot!(ask(&["versions", "app"]), @"");
    assert_snapshot!(ask(&["list", "app"]), @"");
    assert_snapshot!(ask(&["diff", "app"]), @"");
    assert_snapshot!(ask(&["diff", "app", "1", "2"]), @"");
    assert_snapshot!(ask(&["blame", "app", "terraform_data.web"]), @"");
    assert_snapshot!(ask(&["blame", "app", "output.login"]), @"");
    assert_snapshot!(ask(&["show", "app", "terraform_data.db"]), @"");
    assert_snapshot!(ask(&["search", "web-1"]), @"");
    assert_snapshot!(ask(&["search", "10.0.0.", "--all-versions"]), @"");
    assert_snapshot!(ask(&["search", "old", "--all-versions"]), @"");
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
    }
}

#[test]
fn what_is_not_there_is_said() {
    let story = Story::new("tofu").stack("app", "", "resource \"terraform_data\" \"web\" {}\n");
    assert_snapshot!(story.cli(&["state", "list"]).expect(0), @"");
    assert_snapshot!(story.cli(&["state", "show", "app"]).expect(1), @"");
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(story.cli(&["state", "show", "app", "terraform_data.wep"]).expect(1), @"");
    assert_snapshot!(story.cli(&["state", "blame", "app", "terraform_data.web", "size"]).expect(1), @"");
    assert_snapshot!(story.cli(&["state", "diff", "app", "7"]).expect(1), @"");
    assert_snapshot!(story.cli(&["state", "diff", "app", "yesterday"]).expect(64), @"");
    assert_snapshot!(story.cli(&["state", "show", "app", "--at", "2020-01-01"]).expect(1), @"");
}
