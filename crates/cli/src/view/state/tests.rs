//! Answers as they are seen, whole.

use control::state::queries::blame::{BlameLine, BlamedObject};
use control::state::queries::search::{SearchHit, SearchResult};
use control::state::queries::version::VersionDocument;
use model::base::actor::Actor;
use model::base::ids::RunId;
use model::plan::PlanValue;
use model::state::Contents;
use model::state::resources::StateDocument;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn version(number: i64, days: i64) -> StateVersion {
    StateVersion {
        state: StateName::new("p", "network"),
        version: number,
        serial: u64::try_from(number).unwrap() + 10,
        lineage: "l".to_owned(),
        content: String::new(),
        size: 14_540,
        parent: None,
        contents: Contents::Resources,
        mark: None,
        run: None,
        actor: Actor::named(String::new()),
        created_at: now() - jiff::SignedDuration::from_hours(24 * days),
    }
}

fn author(run: i64, commit: &str, subject: &str, person: &str) -> Author {
    Author {
        run: Some(RunId(run)),
        change_set: None,
        commit: Some(CommitRef {
            id: commit.to_owned(),
            subject: Some(subject.to_owned()),
            is_dirty: false,
        }),
        person: Some(Actor::named(person)),
    }
}

fn line(path: &str, value: PlanValue, since: i64, author: Author) -> BlameLine {
    BlameLine {
        path: path.to_owned(),
        value,
        since,
        version: (since != 2).then(|| version(since, 30 - 3 * since)),
        author,
    }
}

fn blame() -> control::state::queries::blame::Blame {
    let known = |value: serde_json::Value| PlanValue::Known(value);
    let widen = author(40, "3f9c1e2a7700", "network: widen nodes", "ci");
    let digest = "a1b2c3".to_owned();
    let lines = vec![
        line("address_prefixes[0]", known(json!("10.0.0.0/23")), 8, widen),
        line("name", known(json!("nodes")), 1, Author::default()),
        line(
            "password",
            PlanValue::Masked { digest },
            1,
            Author::default(),
        ),
        line("size", known(json!(3)), 2, Author::default()),
    ];
    let address = "azurerm_subnet.nodes".to_owned();
    control::state::queries::blame::Blame {
        asked: VersionDocument {
            version: version(8, 2),
            document: StateDocument::default(),
        },
        objects: vec![BlamedObject { address, lines }],
    }
}

#[test]
fn who_gave_each_value() {
    insta::assert_snapshot!(blame::text(&blame(), now(), false, ViewOptions::plain(80)), @r#"
    azurerm_subnet.nodes
      serial 18   6 days ago   r40   3f9c1e2 "network: widen nodes"   ci
        address_prefixes[0]   "10.0.0.0/23"
      version 2, no longer kept
        size   3
      serial 11   27 days ago   the first version
        name       "nodes"
        password   (sensitive #a1b2c3)
    "#);
}

#[test]
fn who_gave_each_value_narrow() {
    insta::assert_snapshot!(blame::text(&blame(), now(), false, ViewOptions::ascii(44)), @r#"
    azurerm_subnet.nodes
      serial 18   6 days ago   r40
          3f9c1e2 "network: widen nodes"   ci
        address_prefixes[0]
            "10.0.0.0/23"
      version 2, no longer kept
        size
            3
      serial 11   27 days ago
          the first version
        name
            "nodes"
        password
            (sensitive #a1b2c3)
    "#);
}

#[test]
fn what_was_found() {
    let hit = |state: &str, address: &str, value: Option<(&str, &str)>, first, last| SearchHit {
        state: StateName::new("p", state),
        address: address.to_owned(),
        value: value.map(|(path, text)| (path.to_owned(), PlanValue::Known(json!(text)))),
        first,
        last,
    };
    let found = SearchResult {
        hits: vec![
            hit(
                "dns",
                "dns_a.www",
                Some(("addresses[0]", "10.0.0.7")),
                3,
                None,
            ),
            hit("network", "vm.old", None, 1, Some(4)),
            hit("network", "vm.web", Some(("ip", "10.0.0.7")), 2, Some(2)),
            hit("network", "vm.web", Some(("ip", "10.0.0.70")), 3, Some(5)),
        ],
        opaque: vec![(StateName::new("", "vault"), 3, "it is encrypted".to_owned())],
        states: 2,
        versions: 9,
        copies: vec![StateName::new("p", "dns")],
        through_time: true,
    };
    let names = StateLabels {
        project: "p".to_owned(),
        stacks: BTreeMap::new(),
    };
    let look = ViewOptions::plain(80);
    let seen = search::text(&found, &names, look) + &search::closing(&found, &names, look);
    insta::assert_snapshot!(seen, @r#"
    dns
      dns_a.www
        addresses[0]   "10.0.0.7"   since version 3

    network
      vm.old   versions 1 to 4
      vm.web
        ip   "10.0.0.7"   version 2
        ip   "10.0.0.70"   versions 3 to 5
    4 found in 2 states and 9 versions.
    warning: version 3 of `vault` was not searched: it is encrypted
    note: of `dns` a copy was searched: it lives in a backend of the engine
    "#);
}

#[test]
fn sizes() {
    assert_eq!(
        [181, 14_540, 3_300_000].map(size),
        ["181 B", "14.1 KB", "3.1 MB"]
    );
}
