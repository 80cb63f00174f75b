//! `graph` in its five forms.

use insta::assert_snapshot;
use std::fmt::Write as _;

use crate::project::{HEAD, stack, terrane};

fn drawn(format: &str) -> String {
    let test = terrane();
    test.copy_example("quickstart");
    test.cli(&["graph", "--format", format]).expect(0).stdout
}

#[test]
fn is_drawn_by_layer_as_text() {
    assert_snapshot!(drawn("text"), @"
    foundation   dns ─────────────●
                 network ─────────┼─●
                                  │ │
    platform     cluster ─────────┼─◄─●     network.subnets
                 database ────────┼─◄─┼─●   network.subnets
                 monitoring ──────┼───◄─◁   cluster.endpoint, after database
                                  │   │ │
    apps         web-staging ─────◄─●─◄─◄   cluster.endpoint, database.connection, database.password, dns.zone
                 web-production ──◄─◁─◄─◄   cluster.endpoint, database.connection, database.password, dns.zone, after web-staging

    7 stacks, 13 edges, 4 waves; longest path: network → cluster (needs subnets) →
      web-staging (needs endpoint) → web-production
    ");
}

#[test]
fn is_a_json_document() {
    let graph: serde_json::Value = serde_json::from_str(&drawn("json")).unwrap();
    assert_eq!(graph["stacks"].as_array().unwrap().len(), 7);
    let test = terrane();
    test.copy_example("quickstart");
    let by_flag = test.cli(&["graph", "--json"]).expect(0).stdout;
    assert_eq!(by_flag, drawn("json"));
}

#[test]
fn is_a_dot_document() {
    let dot = drawn("dot");
    assert!(
        dot.starts_with("digraph") && dot.trim_end().ends_with('}'),
        "{dot}"
    );
    assert!(dot.contains("\"network\" -> \"cluster\""), "{dot}");
}

#[test]
fn is_a_mermaid_document() {
    let mermaid = drawn("mermaid");
    assert!(mermaid.starts_with("flowchart"), "{mermaid}");
    assert!(mermaid.contains("web-production"), "{mermaid}");
}

#[test]
fn is_a_picture() {
    let svg = drawn("svg");
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert!(
        svg.contains("xmlns=\"http://www.w3.org/2000/svg\""),
        "{svg}"
    );
    for name in ["network", "dns", "cluster", "web-staging"] {
        assert!(svg.contains(&format!(">{name}<")), "no {name} in {svg}");
    }
}

#[test]
fn sixty_stacks_fit_a_page() {
    let test = terrane();
    let mut file = HEAD.to_owned();
    for number in 0..60_usize {
        let after: Vec<String> = (1..=2)
            .map(|step| number.saturating_sub(step * 7))
            .filter(|upstream| *upstream < number)
            .map(|upstream| format!("stack.service-{upstream}"))
            .collect();
        let _ = write!(
            file,
            "{}",
            stack(
                &format!("service-{number}"),
                &format!("after = [{}]", after.join(", "))
            )
        );
        test.write(&format!("service-{number}/main.tf"), "");
    }
    test.write("terrane.hcl", &file);
    let text = test.cli(&["graph"]).expect(0).stdout;
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|width| width <= 100), "{text}");
    for number in 0..60 {
        assert!(text.contains(&format!("service-{number}")), "{text}");
    }
}

#[test]
fn a_part_of_it_can_be_drawn() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli(&["graph", "+monitoring"]).expect(0), @"
    foundation   network ─────●
                              │
    platform     cluster ─────◄─●     network.subnets
                 database ────◄─┼─●   network.subnets
                 monitoring ────◄─◁   cluster.endpoint, after database

    4 stacks, 4 edges, 3 waves; longest path: network → cluster (needs subnets) →
      monitoring (needs endpoint)
    ");
}
