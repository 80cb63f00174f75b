//! The graph for Mermaid, which forges display in Markdown: layers as subgraphs, `order` edges dotted.

use std::fmt::Write as _;

use super::Graph;
use crate::base::ids::StackName;

pub fn render(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    for (number, layer) in graph.layers().iter().enumerate() {
        let _ = writeln!(
            out,
            "  subgraph layer{number}[\"{}\"]",
            escaped(&layer.name)
        );
        for stack in graph.stacks().iter().filter(|s| s.layer == layer.name) {
            let _ = writeln!(out, "    {}[\"{}\"]", id(&stack.name), stack.name);
        }
        out.push_str("  end\n");
    }
    for arrow in graph.arrows() {
        let (up, down) = (id(arrow.upstream), id(arrow.downstream));
        let _ = if arrow.needs.is_empty() {
            writeln!(out, "  {up} -.-> {down}")
        } else {
            let label = escaped(&arrow.needs.join(", "));
            writeln!(out, "  {up} -->|\"{label}\"| {down}")
        };
    }
    out
}

/// Mermaid cannot handle ids such as `end`, or dashes. Names have no underscore, so this stays unique.
fn id(name: &StackName) -> String {
    format!("s_{}", name.as_str().replace('-', "_"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "#amp;")
        .replace('"', "#quot;")
        .replace('<', "#lt;")
        .replace('>', "#gt;")
}
