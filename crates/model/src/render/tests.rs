//! Data, checks and decisions, as data.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::checks::{self, Check, CheckKind};
use super::data::{Data, Node, of_json};
use super::decide::{FileAction, FileFacts, FileRefusal, OverwriteOptions, decide};
use super::manifest::RenderManifest;
use super::schema::Schema;
use super::{Select, is_secret_name};
use crate::base::diagnostic::{Finding, Location};

fn data(value: &serde_json::Value) -> Node {
    of_json(value, &Location::default())
}

fn select(text: &str) -> Select {
    text.parse().unwrap()
}

fn shown(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        _ = writeln!(out, "{}: {}", finding.code, finding.message);
        if let Some(hint) = &finding.hint {
            _ = writeln!(out, "  hint: {hint}");
        }
    }
    out
}

fn cluster() -> Node {
    data(&json!({
        "node_cidr": "10.0.0.0/24",
        "pod_cidr": "10.42.0.0/16",
        "svc_cidr": "10.42.128.0/17",
        "v6": "2001:db8::/32",
        "nodes": [
            { "name": "a", "address": "10.0.0.1", "mac": "bc:24:11:00:00:01" },
            { "name": "b", "address": "10.0.1.2", "mac": "BC-24-11-00-00-01" },
            { "name": "a", "address": "10.0.0.300", "mac": "nope" },
        ],
        "volumes": [{ "node": "a" }, { "node": "c" }],
    }))
}

#[track_caller]
fn check(kind: &str, paths: &[&str], of: &[&str]) -> String {
    let check = Check {
        kind: CheckKind::of(kind).unwrap(),
        paths: paths.iter().map(|path| select(path)).collect(),
        of: of.iter().map(|path| select(path)).collect(),
    };
    shown(&checks::check(&[check.clone(), check], &cluster()))
}

#[test]
fn what_a_schema_cannot_say() {
    let mut out = String::new();
    out += &check("unique", &["nodes[*].name"], &[]);
    out += &check("unique", &["nodes[*].mac"], &[]);
    out += &check("address", &["nodes[*].address"], &[]);
    out += &check("mac", &["nodes[*].mac"], &[]);
    out += &check("separate", &["*_cidr", "v6"], &[]);
    out += &check("inside", &["nodes[*].address"], &["node_cidr"]);
    out += &check("known", &["volumes[*].node"], &["nodes[*].name"]);
    out += &check(
        "known",
        &["volumes[0].node", "missing.key"],
        &["nodes[*].name"],
    );
    insta::assert_snapshot!(out, @"
    duplicate-value: `a` occurs twice
    duplicate-value: `bc:24:11:00:00:01` occurs twice
    not-an-address: `nodes[2].address` is not an IP address: `10.0.0.300`
      hint: such as `10.0.0.10`
    not-an-address: `nodes[2].mac` is not a MAC address: `nope`
      hint: such as `bc:24:11:00:00:01`
    overlapping-networks: `10.42.0.0/16` and `10.42.128.0/17` overlap
    outside-network: `nodes[1].address` (`10.0.1.2`) is not inside `10.0.0.0/24`
    not-an-address: `nodes[2].address` is not an IP address: `10.0.0.300`
      hint: such as `10.0.0.10`
    unknown-value: `volumes[1].node` names `c`, which is none of `nodes[*].name`
      hint: known are `a`, `b`
    ");
}

#[test]
fn a_secret_is_in_no_finding() {
    let mut data = cluster();
    data.hide(&select("nodes[*]"));
    let checks: Vec<Check> = CheckKind::WORDS
        .iter()
        .map(|kind| Check {
            kind: CheckKind::of(kind).unwrap(),
            paths: vec![select("nodes[*].*")],
            of: vec![select("nodes[*].address")],
        })
        .collect();
    let findings = checks::check(&checks, &data);
    assert!(findings.len() > 5);
    let schema = Schema::read(
        r#"{"properties": {"nodes": {"items": {"maxProperties": 1, "properties": {"mac": {"format": "mac"}, "name": {"const": "z"}}}}}}"#,
    );
    let mut all = shown(&findings);
    all += &shown(&schema.unwrap().check(&data));
    for secret in ["10.0.1.", "10.0.0.300", "BC-24", "nope"] {
        assert!(!all.contains(secret), "{all}");
    }
    assert!(all.contains("`nodes[2].mac`: "), "{all}");
}

#[test]
fn a_schema_says_where() {
    let schema = Schema::read(
        r#"{"required": ["name"], "properties": {"node_cidr": {"format": "cidr"}, "nodes": {"items": {"properties": {"mac": {"format": "mac"}, "address": {"format": "ip"}}}}}}"#,
    );
    insta::assert_snapshot!(shown(&schema.unwrap().check(&cluster())), @"
    schema: `name` is a required property
    schema: `nodes[2].mac`: `nope` is not a MAC address
    schema: `nodes[2].address`: `10.0.0.300` is not an IP address
    ");
}

#[test]
fn paths_lead_to_values() {
    let data = cluster();
    let found = |path: &str| -> Vec<String> {
        let found = select(path).find(&data).into_iter();
        found.map(|(path, _)| path).collect()
    };
    assert_eq!(found("nodes[1].name"), ["nodes[1].name"]);
    assert_eq!(found("nodes[*].name").len(), 3);
    assert_eq!(found("*_cidr"), ["node_cidr", "pod_cidr", "svc_cidr"]);
    assert_eq!(found("nothing.at.all"), [""; 0]);
    for wrong in ["", "a..b", "a[", "a[x]", "[0]", "a]b", "a[0"] {
        assert!(wrong.parse::<Select>().is_err(), "{wrong}");
    }
}

#[test]
fn defaults_give_way_and_later_files_win() {
    let mut first = data(&json!({ "a": { "x": 1 }, "b": [1] }));
    first.overlay(data(&json!({ "b": [2], "c": "new" })));
    first.fill(
        &json!({ "a": { "x": 9, "y": 2 }, "b": [3], "d": true }),
        &Location::default(),
    );
    assert_eq!(
        first.public_json(),
        json!({ "a": { "x": 1, "y": 2 }, "b": [2], "c": "new", "d": true })
    );
}

#[test]
fn what_is_hidden_does_not_show() {
    let mut data = data(&json!({ "token": "hunter2", "port": 5432, "on": true, "name": "x" }));
    for path in ["token", "port", "on"] {
        data.hide(&select(path));
    }
    assert!(!format!("{data:?}").contains("hunter2"));
    assert_eq!(
        data.public_json(),
        json!({ "token": null, "port": null, "on": null, "name": "x" })
    );
    let kept: Vec<Data> = data
        .secrets()
        .iter()
        .map(|(_, secret)| Node::revealed(secret))
        .collect();
    assert_eq!(
        kept,
        [
            Data::Text("hunter2".to_owned()),
            Data::Int(5432),
            Data::Bool(true)
        ]
    );
}

#[test]
fn names_of_encrypted_files() {
    assert!(is_secret_name("a/b.sops.yaml"));
    assert!(is_secret_name("b.sops.env"));
    assert!(!is_secret_name(".sops.yaml"));
    assert!(!is_secret_name("a/.sops.yaml"));
    assert!(!is_secret_name("b.yaml"));
    assert!(!is_secret_name("a.sops.d/b.yaml"));
}

#[test]
fn nothing_that_a_person_wrote_is_lost() {
    let facts = |digest: &str| FileFacts {
        digest: digest.to_owned(),
        is_executable: false,
    };
    let files = |pairs: &[(&str, &str)]| -> BTreeMap<String, FileFacts> {
        let pairs = pairs.iter();
        pairs
            .map(|(path, digest)| ((*path).to_owned(), facts(digest)))
            .collect()
    };
    let listed = [
        ("same", "1"),
        ("older", "1"),
        ("edited", "1"),
        ("stale", "1"),
        ("stale-edited", "1"),
        ("stale-gone", "1"),
        ("half", "1"),
    ];
    let listed = listed.iter();
    let listed = listed.map(|(path, digest)| ((*path).to_owned(), (*digest).to_owned()));
    let mut manifest = RenderManifest::new("x", String::new(), listed.collect());
    manifest.writing.insert("half".to_owned(), "2".to_owned());
    manifest
        .writing
        .insert("half-new".to_owned(), "2".to_owned());
    let wanted = files(&[
        ("same", "1"),
        ("older", "2"),
        ("edited", "2"),
        ("new", "2"),
        ("foreign", "2"),
        ("foreign-same", "2"),
        ("half", "3"),
        ("half-new", "3"),
    ]);
    let found = files(&[
        ("same", "1"),
        ("older", "1"),
        ("edited", "9"),
        ("stale", "1"),
        ("stale-edited", "9"),
        ("foreign", "9"),
        ("foreign-same", "2"),
        ("half", "2"),
        ("half-new", "2"),
        ("unrelated", "9"),
    ]);
    let mut out = String::new();
    for (word, adopt, overwrite) in [
        ("", false, false),
        ("adopt", true, false),
        ("overwrite", false, true),
    ] {
        _ = writeln!(out, "--{word}");
        for (path, action) in decide(
            Some(&manifest),
            &wanted,
            &found,
            OverwriteOptions { adopt, overwrite },
        ) {
            _ = writeln!(out, "  {path}: {action:?}");
        }
    }
    insta::assert_snapshot!(out, @"
    --
      edited: Refuse(Edited)
      foreign: Refuse(NotOurs)
      foreign-same: Adopt
      half: Change
      half-new: Change
      new: Create
      older: Change
      same: Keep
      stale: Remove
      stale-edited: Refuse(EditedAndStale)
      stale-gone: Forget
    --adopt
      edited: Refuse(Edited)
      foreign: Refuse(NotOurs)
      foreign-same: Adopt
      half: Change
      half-new: Change
      new: Refuse(Missing)
      older: Change
      same: Keep
      stale: Remove
      stale-edited: Refuse(EditedAndStale)
      stale-gone: Forget
    --overwrite
      edited: Change
      foreign: Change
      foreign-same: Adopt
      half: Change
      half-new: Change
      new: Create
      older: Change
      same: Keep
      stale: Remove
      stale-edited: LetGo
      stale-gone: Forget
    ");
}

/// Sufficient to distinguish the texts of a test.
fn digest(bytes: &[u8]) -> String {
    let sum = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    format!("sum:{}", bytes.iter().fold(7, sum))
}

/// A matching digest proves nothing in a manifest that others changed.
#[test]
fn a_list_that_others_changed_removes_nothing() {
    let files = [("made".to_owned(), "1".to_owned())].into();
    let manifest = RenderManifest::new("x", String::new(), files);
    let written = manifest.write(digest);
    let mine = written.replace("\"made\": \"1\"", "\"made\": \"1\", \"mine\": \"1\"");
    let read = |text: &str| RenderManifest::read(text, "", digest).unwrap();
    let facts = || FileFacts {
        digest: "1".to_owned(),
        is_executable: false,
    };
    let found = BTreeMap::from([("made".to_owned(), facts()), ("mine".to_owned(), facts())]);
    let actions = |manifest: &RenderManifest, overwrite| {
        let leave = OverwriteOptions {
            adopt: false,
            overwrite,
        };
        let actions = decide(Some(manifest), &BTreeMap::new(), &found, leave);
        actions.into_values().collect::<Vec<FileAction>>()
    };
    let refused = FileAction::Refuse(FileRefusal::UnprovenAndStale);
    assert_eq!(actions(&read(&written), false), [FileAction::Remove]);
    assert_eq!(
        actions(&read(&mine), false),
        [refused.clone(), refused.clone()]
    );
    assert_eq!(
        actions(&read(&mine), true),
        [FileAction::LetGo, FileAction::LetGo]
    );
    // Nor after another program has written it again.
    let again = read(&mine).write(digest);
    assert_eq!(actions(&read(&again), false), [refused.clone(), refused]);
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let files: BTreeMap<String, String> = [
        ("b".to_owned(), "sha256:2".to_owned()),
        ("a".to_owned(), "sha256:1".to_owned()),
    ]
    .into();
    let manifest = RenderManifest::new("homelab", "sha256:0".to_owned(), files);
    insta::assert_snapshot!(manifest.write(digest), @r#"
    {
      "terrane_render": 1,
      "render": "homelab",
      "inputs": "sha256:0",
      "files": {
        "a": "sha256:1",
        "b": "sha256:2"
      },
      "list": "sum:3703908091"
    }
    "#);
    assert_eq!(
        RenderManifest::read(&manifest.write(digest), "", digest).unwrap(),
        manifest
    );
    let next = RenderManifest::new("homelab", "sha256:9".to_owned(), BTreeMap::new());
    let between = manifest.towards(&next, std::iter::empty());
    assert!(between.made("a", "sha256:1"));
    // An incomplete render had already written `a`, and the next one is incomplete too.
    let third = BTreeMap::from([("a".to_owned(), "sha256:3".to_owned())]);
    let third = RenderManifest::new("homelab", "sha256:8".to_owned(), third);
    let fourth = RenderManifest::new("homelab", "sha256:9".to_owned(), BTreeMap::new());
    let lie = [("a", "sha256:3"), ("b", "edited")];
    let once = manifest.towards(&third, std::iter::empty());
    let twice = once.towards(&fourth, lie.into_iter());
    assert!(twice.made("a", "sha256:3") && twice.made("b", "sha256:2"));
    assert!(!twice.made("b", "edited"));
    assert_eq!(
        RenderManifest::read(&between.write(digest), "", digest).unwrap(),
        between
    );
    assert!(
        RenderManifest::read(
            r#"{"terrane_render": 2, "render": "", "inputs": "", "files": {}}"#,
            "",
            digest,
        )
        .is_err()
    );
    assert!(RenderManifest::read("{}", "", digest).is_err());
}

/// Write access to the manifest must not allow the removal of other files.
#[test]
fn a_list_counts_only_for_what_lies_in_its_output() {
    let read = |path: &str, output: &str| {
        let files = [(path.to_owned(), "sha256:1".to_owned())].into();
        let manifest = RenderManifest::new("homelab", String::new(), files);
        RenderManifest::read(&manifest.write(digest), output, digest)
    };
    for (path, output) in [("out/a", "out"), ("a/b", ""), ("a", ".")] {
        assert!(read(path, output).is_ok(), "{path}");
    }
    let foreign = [
        ("../victim", "out"),
        ("out/../../victim", "out"),
        ("other.yaml", "out"),
        ("outer/a", "out"),
        ("/etc/passwd", ""),
        (".git/config", ""),
        ("out//a", "out"),
    ];
    for (path, output) in foreign {
        let refused = read(path, output).unwrap_err().to_string();
        assert!(refused.contains(path), "{refused}");
    }
}
