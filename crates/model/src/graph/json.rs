//! The graph as JSON. A documented format: fields are only added, and a change of meaning raises `version`.

use serde::Serialize;

use super::Graph;
use crate::project::EdgeKind;

pub fn render(graph: &Graph) -> String {
    let document = Document::new(graph);
    // Serialising strings and numbers cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    project: &'a str,
    /// Bottom to top.
    layers: Vec<Layer<'a>>,
    stacks: Vec<Stack<'a>>,
    edges: Vec<Edge<'a>>,
    /// Stacks that can run at the same time, in order.
    waves: Vec<Vec<String>>,
    /// The longest path through the graph.
    critical_path: Vec<PathStack>,
}

#[derive(Serialize)]
struct Layer<'a> {
    name: &'a str,
    order: i64,
}

#[derive(Serialize)]
struct Stack<'a> {
    name: &'a str,
    /// Relative to the project's root.
    path: &'a str,
    target: &'a str,
    layer: &'a str,
    labels: Vec<&'a str>,
    /// The first wave is 1.
    wave: usize,
}

#[derive(Serialize)]
struct Edge<'a> {
    upstream: &'a str,
    downstream: &'a str,
    /// `order` or `output`.
    kind: &'static str,
    /// Only with `output`: the upstream's output and the downstream's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
}

#[derive(Serialize)]
struct PathStack {
    stack: String,
    /// Outputs that it consumes from the previous step.
    needs: Vec<String>,
}

impl<'a> Document<'a> {
    fn new(graph: &'a Graph) -> Self {
        let depth = graph.depth(|_| 1);
        Self {
            version: 1,
            project: graph.project(),
            layers: graph
                .layers()
                .iter()
                .map(|layer| Layer {
                    name: &layer.name,
                    order: layer.order,
                })
                .collect(),
            stacks: graph
                .stacks()
                .iter()
                .zip(depth)
                .map(|(stack, depth)| Stack {
                    name: stack.name.as_str(),
                    path: &stack.path,
                    target: &stack.target,
                    layer: &stack.layer,
                    labels: stack.labels.iter().map(String::as_str).collect(),
                    wave: depth + 1,
                })
                .collect(),
            edges: graph.edges().iter().map(Edge::from).collect(),
            waves: graph
                .waves(&graph.names())
                .into_iter()
                .map(|wave| wave.into_iter().map(String::from).collect())
                .collect(),
            critical_path: graph
                .critical_path()
                .into_iter()
                .map(|step| PathStack {
                    stack: step.stack.into(),
                    needs: step.needs,
                })
                .collect(),
        }
    }
}

impl<'a> From<&'a super::GraphEdge> for Edge<'a> {
    fn from(edge: &'a super::GraphEdge) -> Self {
        let (kind, output, input) = match &edge.kind {
            EdgeKind::Order => ("order", None, None),
            EdgeKind::Output { output, input } => {
                ("output", Some(output.as_str()), Some(input.as_str()))
            }
        };
        Self {
            upstream: edge.upstream.as_str(),
            downstream: edge.downstream.as_str(),
            kind,
            output,
            input,
        }
    }
}
