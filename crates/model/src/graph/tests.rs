//! The graph as data: one line per stack, `layer name < upstream.output upstream`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::project::{Edge, Stack};

/// Lines such as `platforms k8s-prod < network.subnet_id dns`. Layers are ordered as they appear.
pub(crate) fn project(lines: &str) -> Project {
    let mut layers: BTreeMap<String, i64> = BTreeMap::new();
    let mut stacks = BTreeMap::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (head, edges) = line.split_once('<').unwrap_or((line, ""));
        let mut words = head.split_whitespace();
        let layer = words.next().unwrap().to_owned();
        let name: StackName = words.next().unwrap().parse().unwrap();
        let next = i64::try_from(layers.len()).unwrap();
        layers.entry(layer.clone()).or_insert(next);
        let edges = edges.split_whitespace().map(|edge| Edge {
            upstream: edge.split('.').next().unwrap().parse().unwrap(),
            kind: match edge.split_once('.') {
                Some((_, output)) => EdgeKind::Output {
                    output: output.to_owned(),
                    input: output.to_owned(),
                },
                None => EdgeKind::Order,
            },
            at: crate::base::diagnostic::Location::default(),
        });
        stacks.insert(name.clone(), stack(name, layer, edges.collect()));
    }
    Project {
        name: "demo".to_owned(),
        id: None,
        engine: crate::project::engine::EngineRequirement::default(),
        parallelism: None,
        platforms: Vec::new(),
        strict_secrets: false,
        layers,
        targets: BTreeMap::new(),
        contexts: BTreeMap::new(),
        policies: BTreeMap::new(),
        writers: BTreeMap::new(),
        facts: BTreeMap::new(),
        renders: BTreeMap::new(),
        gitops: Vec::new(),
        stacks,
    }
}

fn stack(name: StackName, layer: String, edges: Vec<Edge>) -> Stack {
    Stack {
        path: format!("infra/{name}"),
        target: "local".to_owned(),
        layer,
        labels: BTreeSet::new(),
        state: name.to_string(),
        engine: crate::project::engine::EngineRequirement::default(),
        inputs: BTreeMap::new(),
        var_files: Vec::new(),
        edges,
        contexts: Vec::new(),
        wait: crate::project::WaitFor::default(),
        confirm: crate::project::ConfirmMode::default(),
        protected: false,
        watch: Vec::new(),
        include: Vec::new(),
        artifacts: Vec::new(),
        render: None,
        timeout_plan: None,
        timeout_apply: None,
        approval: None,
        stages: crate::stage::Stages::default(),
        declared_at: crate::base::diagnostic::Location::default(),
        inputs_at: BTreeMap::new(),
        name,
    }
}

const SMALL: &str = "
    hypervisors network
    hypervisors dns
    platforms k8s-dev < network.subnet_id
    platforms k8s-prod < network.subnet_id network.cidr dns
    legacy edge < k8s-prod.gateway_address dns.zone
";

const MIDDLE: &str = "
    hypervisors dns
    hypervisors network
    hypervisors vault < network.subnet_id
    hypervisors registry < network.subnet_id dns.zone
    platforms k8s-dev < network.subnet_id
    platforms k8s-prod < network.subnet_id dns
    platforms env-dev < k8s-dev.cluster_name vault.address
    platforms env-staging < k8s-prod.cluster_name vault.address env-dev
    platforms env-prod < k8s-prod.cluster_name vault.address env-staging
    legacy edge < k8s-prod.gateway_address dns.zone
    legacy mail < dns.zone
    legacy backup
";

/// Sixty stacks in three layers, each with three dependencies in the layer below.
fn large() -> String {
    let mut lines = String::new();
    for number in 0..60_usize {
        let layer = ["base", "platform", "service"][number / 20];
        let _ = write!(lines, "{layer} {layer}-{:02}", number % 20);
        if number >= 20 {
            let below = ["base", "platform"][number / 20 - 1];
            lines.push_str(" <");
            for step in [1, 7, 11] {
                let _ = write!(lines, " {below}-{:02}.id", (number * step) % 20);
            }
        }
        lines.push('\n');
    }
    lines
}

/// Sixty stacks like those of a platform team: regions with few connections.
fn regions() -> String {
    let mut lines = String::from("foundation dns\nfoundation identity\n");
    for region in ["eu", "us", "ap", "sa", "af", "me", "ca", "uk", "jp", "au"] {
        let _ = writeln!(lines, "network net-{region} < identity.tenant");
    }
    for region in ["eu", "us", "ap", "sa", "af", "me", "ca", "uk", "jp", "au"] {
        let _ = writeln!(lines, "platforms k8s-{region} < net-{region}.subnet_id");
        let _ = writeln!(lines, "platforms db-{region} < net-{region}.subnet_id");
        let _ = writeln!(
            lines,
            "services app-{region} < k8s-{region}.endpoint db-{region}.url"
        );
        let _ = writeln!(
            lines,
            "services edge-{region} < app-{region}.address dns.zone"
        );
    }
    for number in 0..8 {
        let _ = writeln!(lines, "services lone-{number}");
    }
    lines
}

fn graph(lines: &str) -> Graph {
    Graph::new(&project(lines))
}

fn drawn(lines: &str, width: usize, unicode: bool) -> String {
    text(
        &graph(lines),
        TextStyle {
            width,
            unicode,
            cuts: true,
        },
    )
}

fn waves_of(lines: &str, selection: &str) -> String {
    let selection = selection
        .split_whitespace()
        .map(|name| name.parse().unwrap())
        .collect();
    let waves = graph(lines).waves(&selection).into_iter().map(|wave| {
        let names: Vec<String> = wave.into_iter().map(String::from).collect();
        names.join(" ")
    });
    waves.collect::<Vec<_>>().join(" | ")
}

#[test]
fn waves_hold_order_through_what_is_not_selected() {
    assert_eq!(
        waves_of(SMALL, "network dns k8s-prod edge"),
        "dns network | k8s-prod | edge"
    );
    assert_eq!(waves_of(SMALL, "network edge"), "network | edge");
    assert_eq!(waves_of(SMALL, "k8s-dev edge"), "edge k8s-dev");
    assert_eq!(waves_of(SMALL, ""), "");
}

#[test]
fn a_stack_waits_for_the_nearest_selected_ones() {
    let graph = graph(SMALL);
    let selection = ["network", "edge"].map(|name| name.parse().unwrap()).into();
    let waits = graph.waits_for(&"edge".parse().unwrap(), &selection);
    assert_eq!(waits, BTreeSet::from(["network".parse().unwrap()]));
}

#[test]
fn neighbours_and_closures() {
    let graph = graph(SMALL);
    let name = |name: &str| name.parse::<StackName>().unwrap();
    let shown = |names: BTreeSet<StackName>| {
        names
            .into_iter()
            .map(String::from)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        graph.upstreams(&name("k8s-prod")),
        [&name("dns"), &name("network")]
    );
    assert_eq!(graph.downstreams(&name("k8s-prod")), [&name("edge")]);
    assert_eq!(
        shown(graph.upstream_closure(&name("edge"))),
        "dns k8s-prod network"
    );
    assert_eq!(
        shown(graph.downstream_closure(&name("dns"))),
        "edge k8s-prod"
    );
    assert_eq!(shown(graph.downstream_closure(&name("nobody"))), "");
    assert_eq!(graph.layer(&name("edge")), Some("legacy"));
}

#[test]
fn of_equally_long_ways_outputs_decide() {
    let way = graph(SMALL)
        .critical_path()
        .into_iter()
        .map(|step| step.stack.to_string());
    assert_eq!(way.collect::<Vec<_>>(), ["network", "k8s-prod", "edge"]);
}

#[test]
fn text_small() {
    insta::assert_snapshot!(drawn(SMALL, 90, true));
}

#[test]
fn text_in_ascii() {
    insta::assert_snapshot!(drawn(SMALL, 90, false));
}

#[test]
fn text_of_a_dozen() {
    insta::assert_snapshot!(drawn(MIDDLE, 80, true));
}

#[test]
fn text_too_narrow_for_rails() {
    insta::assert_snapshot!(drawn(MIDDLE, 36, true));
}

#[test]
fn text_of_sixty() {
    insta::assert_snapshot!(drawn(&regions(), 100, true));
}

#[test]
fn text_of_little() {
    assert_eq!(
        drawn("base network", 80, true),
        "base   network\n\n1 stack, 0 edges, 1 wave\n"
    );
    assert_eq!(drawn("", 80, true), "\n0 stacks, 0 edges, 0 waves\n");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [60, 80, 120, 200] {
        for lines in [SMALL, MIDDLE, &regions(), &large()] {
            let drawn = drawn(lines, width, true);
            let widest = drawn.lines().map(|line| line.chars().count()).max();
            assert!(widest.unwrap() <= width, "{drawn}");
        }
    }
}

#[test]
fn dot_document() {
    insta::assert_snapshot!(dot(&graph(SMALL)));
}

#[test]
fn mermaid_document() {
    insta::assert_snapshot!(mermaid(&graph(SMALL)));
}

#[test]
fn json_document() {
    insta::assert_snapshot!(json(&graph(
        "
        base network
        platforms cluster < network.subnet_id network
    "
    )));
}

#[test]
fn svg_document() {
    let mut project = project(
        "
        base network
        platforms cluster < network.subnet_id network
        services app < cluster network.cidr
    ",
    );
    let stack = project.stacks.get_mut(&"app".parse().unwrap()).unwrap();
    stack.target = "<&\">".to_owned();
    let picture = svg(&Graph::new(&project));
    assert!(!picture.contains("NaN"));
    let body = picture.split_once("</style>").unwrap().1;
    insta::assert_snapshot!(body);
}

#[test]
fn a_thousand_stacks_are_drawn_in_every_form() {
    let mut lines = String::new();
    for number in 0..1000_usize {
        let _ = write!(lines, "layer-{} stack-{number:04} <", number / 100);
        for back in [1, 13, 101].into_iter().filter(|back| *back <= number) {
            let _ = write!(lines, " stack-{:04}.id", number - back);
        }
        lines.push('\n');
    }
    let graph = graph(&lines);
    assert_eq!(graph.critical_path().len(), 1000);
    assert_eq!(graph.waves(&graph.names()).len(), 1000);
    assert!(drawn(&lines, 100, true).lines().count() > 1000);
    assert!(svg(&graph).len() > 100_000);
}

/// Stacks `s-0`, `s-1`, …, each with dependencies on some earlier ones, and a random selection.
fn any_graph() -> impl Strategy<Value = (String, BTreeSet<StackName>)> {
    let edges = prop::collection::vec(
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        1..20,
    );
    (edges, prop::collection::vec(any::<bool>(), 20)).prop_map(|(edges, chosen)| {
        let mut lines = String::new();
        for (number, ups) in edges.iter().enumerate() {
            let ups = ups.iter().filter(|_| number > 0);
            let ups: Vec<String> = ups.map(|up| format!("s-{}.id", up.index(number))).collect();
            let _ = writeln!(lines, "layer s-{number} < {}", ups.join(" "));
        }
        let selected = (0..edges.len()).filter(|number| chosen[*number]);
        let selected = selected.map(|number| format!("s-{number}").parse().unwrap());
        (lines, selected.collect())
    })
}

proptest! {
    #[test]
    fn a_wave_needs_only_earlier_ones((lines, selection) in any_graph()) {
        let graph = graph(&lines);
        let waves = graph.waves(&selection);
        let mut done = BTreeSet::new();
        for wave in waves {
            prop_assert!(!wave.is_empty());
            for stack in &wave {
                let mut needed = graph.upstream_closure(stack);
                needed.retain(|up| selection.contains(up));
                prop_assert!(needed.is_subset(&done));
                prop_assert!(graph.waits_for(stack, &selection).is_subset(&needed));
            }
            done.extend(wave);
        }
        prop_assert_eq!(done, selection);
    }

    #[test]
    fn every_edge_is_a_mark_on_the_drawing((lines, _) in any_graph()) {
        let graph = graph(&lines);
        let drawn = text(&graph, TextStyle { width: 400, unicode: true, cuts: true });
        let pairs = graph.arrows().count();
        prop_assert!(drawn.contains('←') || drawn.matches('◄').count() == pairs);
    }
}

#[test]
fn in_a_pipe_nothing_is_cut_off() {
    let lines = "base network\napps web < network.subnet_id network.a_long_name_of_an_output network.another_one\n";
    let style = |cuts| TextStyle {
        width: 60,
        unicode: true,
        cuts,
    };
    assert!(!text(&graph(lines), style(true)).contains("network.another_one"));
    assert!(text(&graph(lines), style(false)).contains("network.another_one"));
}
