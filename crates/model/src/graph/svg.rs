//! The graph as an SVG image: layers as bands from the top down, edges as curves behind the boxes. One self-contained
//! file, readable on light and dark pages.
//!
//! Not here: the positions of boxes (`layout`).

mod layout;

use std::fmt::Write as _;

use super::Graph;
use layout::{BOX_HEIGHT, Layout, Route};

const STYLE: &str = "
    text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2933 }
    .page { fill: #ffffff }
    .band { fill: #f2f5f8; stroke: #dde3ea }
    .layer { font-size: 12px; fill: #66727f }
    .stack rect { fill: #ffffff; stroke: #8595a6; stroke-width: 1.2 }
    .stack .target { font-size: 11px; fill: #66727f }
    .edge { fill: none; stroke: #5b7ea6; stroke-width: 1.4 }
    .order { stroke-dasharray: 4 3 }
    .tip { fill: #5b7ea6 }
    .edge:hover { stroke: #d9480f; stroke-width: 2.6 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e9ee }
      .page { fill: #14181d }
      .band { fill: #1b2128; stroke: #2b343e }
      .layer, .stack .target { fill: #93a1b0 }
      .stack rect { fill: #242c35; stroke: #5d6c7c }
      .edge { stroke: #7da7d9 }
      .tip { fill: #7da7d9 }
      .edge:hover { stroke: #ff922b }
    }
";

pub fn render(graph: &Graph) -> String {
    let layout = Layout::new(graph);
    let (width, height) = (layout.width, layout.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n"
    );
    let _ = writeln!(out, "  <title>{}</title>", escaped(graph.project()));
    let _ = writeln!(out, "  <style>{STYLE}  </style>");
    out.push_str(
        "  <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path class=\"tip\" d=\"M0 0 8 4 0 8z\"/></marker></defs>\n",
    );
    let _ = writeln!(
        out,
        "  <rect class=\"page\" width=\"100%\" height=\"100%\"/>"
    );
    for band in &layout.bands {
        let _ = writeln!(
            out,
            "  <rect class=\"band\" x=\"8\" y=\"{:.0}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>",
            band.top,
            width - 16.0,
            band.height,
        );
        let _ = writeln!(
            out,
            "  <text class=\"layer\" x=\"20\" y=\"{:.0}\">{}</text>",
            band.top + 22.0,
            escaped(band.name),
        );
    }
    edges(&mut out, graph, &layout);
    stacks(&mut out, graph, &layout);
    out.push_str("</svg>\n");
    out
}

fn edges(out: &mut String, graph: &Graph, layout: &Layout<'_>) {
    for route in &layout.routes {
        let needs = graph.needs(route.up, route.down);
        let (class, what) = if needs.is_empty() {
            ("edge order", "only comes after".to_owned())
        } else {
            ("edge", needs.join(", "))
        };
        let _ = writeln!(
            out,
            "  <path class=\"{class}\" marker-end=\"url(#tip)\" d=\"{}\"><title>{} → {}: {}</title></path>",
            curve(route, layout),
            graph.stacks[route.up].name,
            graph.stacks[route.down].name,
            escaped(&what),
        );
    }
}

/// Smooth curves between boxes; straight down through a bend.
fn curve(route: &Route, layout: &Layout<'_>) -> String {
    let mut d = String::new();
    for pair in route.through.windows(2) {
        let (from, to) = (&layout.boxes[pair[0]], &layout.boxes[pair[1]]);
        let (x1, x2) = (from.middle(), to.middle());
        let last = pair[1] == route.down;
        let (start, end) = (from.y + BOX_HEIGHT, to.y - if last { 2.0 } else { 0.0 });
        let bend = ((end - start) / 2.0).max(28.0);
        if d.is_empty() {
            let _ = write!(d, "M{x1:.1} {start:.1}");
        }
        let (c1, c2) = (start + bend, end - bend);
        let _ = write!(d, " C{x1:.1} {c1:.1} {x2:.1} {c2:.1} {x2:.1} {end:.1}");
        if !last {
            let _ = write!(d, " V{:.1}", to.y + BOX_HEIGHT);
        }
    }
    d
}

fn stacks(out: &mut String, graph: &Graph, layout: &Layout<'_>) {
    for (stack, at) in graph.stacks.iter().zip(&layout.boxes) {
        let _ = writeln!(
            out,
            "  <g class=\"stack\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"{BOX_HEIGHT:.0}\" rx=\"6\"/>",
            escaped(&stack.path),
            at.x,
            at.y,
            at.width,
        );
        let _ = writeln!(
            out,
            "    <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text class=\"target\" \
             x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
            at.y + 17.0,
            stack.name,
            at.y + 33.0,
            escaped(&stack.target),
            x = at.middle(),
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
