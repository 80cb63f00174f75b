//! The graph for Graphviz: layers as clusters, `order` edges dashed.

use std::fmt::Write as _;

use super::Graph;

pub fn render(graph: &Graph) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "digraph {} {{", quoted(graph.project()));
    out.push_str("  rankdir=TB;\n");
    out.push_str("  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n");
    out.push_str("  edge [fontname=\"sans-serif\", fontsize=10];\n");
    for (number, layer) in graph.layers().iter().enumerate() {
        let _ = writeln!(out, "\n  subgraph cluster_{number} {{");
        let _ = writeln!(out, "    label={};", quoted(&layer.name));
        for stack in graph.stacks().iter().filter(|s| s.layer == layer.name) {
            let tooltip = format!("{} on {}", stack.path, stack.target);
            let name = quoted(stack.name.as_str());
            let _ = writeln!(out, "    {name} [tooltip={}];", quoted(&tooltip));
        }
        out.push_str("  }\n");
    }
    out.push('\n');
    for arrow in graph.arrows() {
        let (up, down) = (
            quoted(arrow.upstream.as_str()),
            quoted(arrow.downstream.as_str()),
        );
        let how = if arrow.needs.is_empty() {
            "style=dashed".to_owned()
        } else {
            format!("label={}", quoted(&arrow.needs.join(", ")))
        };
        let _ = writeln!(out, "  {up} -> {down} [{how}];");
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
