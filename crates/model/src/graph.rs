//! The graph of a checked project: stacks, typed edges, layers, waves, the longest path.
//!
//! Not here: whether the project may have these edges (`config`), selecting stacks (`selector`), executing waves
//! (`run`).

mod dot;
mod json;
mod mermaid;
pub mod selector;
mod svg;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::base::ids::StackName;
use crate::project::{EdgeKind, Project};

pub use dot::render as dot;
pub use json::render as json;
pub use mermaid::render as mermaid;
pub use svg::render as svg;
pub use text::{TextStyle, render as text};

/// Stacks and edges, by index, so that large graphs are cheap.
#[derive(Clone, Debug)]
pub struct Graph {
    project: String,
    /// By name. A stack's index in this list identifies it everywhere below.
    stacks: Vec<GraphStack>,
    /// Bottom to top.
    layers: Vec<GraphLayer>,
    edges: Vec<GraphEdge>,
    upstreams: Vec<Vec<usize>>,
    downstreams: Vec<Vec<usize>>,
    /// Upstreams first; ties sorted by name.
    order: Vec<usize>,
}

/// The graph's data of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphStack {
    pub name: StackName,
    pub path: String,
    pub target: String,
    pub layer: String,
    pub labels: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLayer {
    pub name: String,
    pub order: i64,
}

/// A typed edge with both its ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEdge {
    pub upstream: StackName,
    pub downstream: StackName,
    pub kind: EdgeKind,
}

/// All edges between two stacks, for display.
struct Arrow<'a> {
    upstream: &'a StackName,
    downstream: &'a StackName,
    /// The consumed outputs, sorted. Empty if only the order matters.
    needs: Vec<String>,
}

/// A stack on the longest path, with the outputs that it needs from the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPathStep {
    pub stack: StackName,
    pub needs: Vec<String>,
}

impl Graph {
    /// The project must be checked: its edges lead to its own stacks and form no cycle.
    pub fn new(project: &Project) -> Self {
        let stacks: Vec<GraphStack> = project.stacks.values().map(GraphStack::from).collect();
        let number: BTreeMap<&StackName, usize> = project.stacks.keys().zip(0..).collect();
        let mut edges: Vec<GraphEdge> = Vec::new();
        let mut upstreams = vec![Vec::new(); stacks.len()];
        let mut downstreams = vec![Vec::new(); stacks.len()];
        for (down, stack) in project.stacks.values().enumerate() {
            for edge in &stack.edges {
                let Some(&up) = number.get(&edge.upstream) else {
                    continue;
                };
                upstreams[down].push(up);
                downstreams[up].push(down);
                edges.push(GraphEdge {
                    upstream: edge.upstream.clone(),
                    downstream: stack.name.clone(),
                    kind: edge.kind.clone(),
                });
            }
        }
        for list in upstreams.iter_mut().chain(&mut downstreams) {
            list.sort_unstable();
            list.dedup();
        }
        edges.sort();
        edges.dedup();
        let order = topological(&upstreams, &downstreams);
        Self {
            project: project.name.clone(),
            layers: layers(project, &stacks),
            stacks,
            edges,
            upstreams,
            downstreams,
            order,
        }
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// Sorted by name.
    pub fn stacks(&self) -> &[GraphStack] {
        &self.stacks
    }

    pub fn names(&self) -> BTreeSet<StackName> {
        self.stacks.iter().map(|stack| stack.name.clone()).collect()
    }

    /// Layers that have a stack, bottom to top.
    pub fn layers(&self) -> &[GraphLayer] {
        &self.layers
    }

    /// Sorted by upstream, downstream, kind.
    pub fn edges(&self) -> &[GraphEdge] {
        &self.edges
    }

    pub fn contains(&self, stack: &StackName) -> bool {
        self.number(stack).is_some()
    }

    /// The layer a stack is in.
    pub fn layer(&self, stack: &StackName) -> Option<&str> {
        self.number(stack)
            .map(|number| self.stacks[number].layer.as_str())
    }

    /// Stacks it depends on directly, by name.
    pub fn upstreams(&self, stack: &StackName) -> Vec<&StackName> {
        self.neighbours(stack, &self.upstreams)
    }

    /// Stacks that depend on it directly, by name.
    pub fn downstreams(&self, stack: &StackName) -> Vec<&StackName> {
        self.neighbours(stack, &self.downstreams)
    }

    /// Everything it depends on, without itself.
    pub fn upstream_closure(&self, stack: &StackName) -> BTreeSet<StackName> {
        self.closure(stack, &self.upstreams)
    }

    /// Everything that depends on it, without itself.
    pub fn downstream_closure(&self, stack: &StackName) -> BTreeSet<StackName> {
        self.closure(stack, &self.downstreams)
    }

    /// The selected stacks that a selected stack waits for: the nearest ones upstream, also through stacks that are not
    /// selected.
    pub fn waits_for(
        &self,
        stack: &StackName,
        selection: &BTreeSet<StackName>,
    ) -> BTreeSet<StackName> {
        let mut found = BTreeSet::new();
        let mut seen = vec![false; self.stacks.len()];
        let mut open: Vec<usize> = self
            .number(stack)
            .map_or_else(Vec::new, |number| self.upstreams[number].clone());
        while let Some(number) = open.pop() {
            if std::mem::replace(&mut seen[number], true) {
                continue;
            }
            let name = &self.stacks[number].name;
            if selection.contains(name) {
                found.insert(name.clone());
            } else {
                open.extend(&self.upstreams[number]);
            }
        }
        found
    }

    /// The selection in waves: each wave only needs earlier ones. Dependencies through stacks that are not selected
    /// count too.
    pub fn waves(&self, selection: &BTreeSet<StackName>) -> Vec<Vec<StackName>> {
        let chosen: Vec<bool> = self
            .stacks
            .iter()
            .map(|stack| selection.contains(&stack.name))
            .collect();
        let depth = self.depth(|number| usize::from(chosen[number]));
        let mut waves: Vec<Vec<StackName>> = Vec::new();
        for (number, stack) in self.stacks.iter().enumerate().filter(|(n, _)| chosen[*n]) {
            let wave = depth[number];
            if waves.len() <= wave {
                waves.resize(wave + 1, Vec::new());
            }
            waves[wave].push(stack.name.clone());
        }
        waves
    }

    /// The longest path through the graph. Ties: most outputs along the path, then by name.
    pub fn critical_path(&self) -> Vec<CriticalPathStep> {
        // For each stack, the best continuation: remaining stacks, outputs on the path, next stack.
        let mut onward = vec![(0_usize, 0_usize, None); self.stacks.len()];
        for &number in self.order.iter().rev() {
            let ways = self.downstreams[number].iter().map(|&down| {
                let (steps, outputs, _) = onward[down];
                let flows = usize::from(!self.needs(number, down).is_empty());
                (steps + 1, outputs + flows, Some(down))
            });
            let best = ways.max_by_key(|&(steps, outputs, down)| (steps, outputs, Reverse(down)));
            onward[number] = best.unwrap_or_default();
        }
        let mut next = (0..self.stacks.len())
            .max_by_key(|&number| (onward[number].0, onward[number].1, Reverse(number)));
        let mut before: Option<usize> = None;
        let mut path = Vec::new();
        while let Some(number) = next {
            path.push(CriticalPathStep {
                stack: self.stacks[number].name.clone(),
                needs: before.map_or_else(Vec::new, |up| self.needs(up, number)),
            });
            before = Some(number);
            next = onward[number].2;
        }
        path
    }

    /// Pairs of stacks with an edge between them, by name.
    fn arrows(&self) -> impl Iterator<Item = Arrow<'_>> {
        self.downstreams
            .iter()
            .enumerate()
            .flat_map(move |(up, downs)| {
                downs.iter().map(move |&down| Arrow {
                    upstream: &self.stacks[up].name,
                    downstream: &self.stacks[down].name,
                    needs: self.needs(up, down),
                })
            })
    }

    /// Outputs of `up` that `down` consumes, without duplicates, sorted.
    fn needs(&self, up: usize, down: usize) -> Vec<String> {
        let (up, down) = (&self.stacks[up].name, &self.stacks[down].name);
        let from = self
            .edges
            .partition_point(|edge| (&edge.upstream, &edge.downstream) < (up, down));
        let mut needs: Vec<String> = self.edges[from..]
            .iter()
            .take_while(|edge| (&edge.upstream, &edge.downstream) == (up, down))
            .filter_map(|edge| match &edge.kind {
                EdgeKind::Order => None,
                EdgeKind::Output { output, .. } => Some(output.clone()),
            })
            .collect();
        needs.dedup();
        needs
    }

    /// The maximum weight of a path to each stack, without the stack itself.
    fn depth(&self, weight: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut depth = vec![0; self.stacks.len()];
        for &number in &self.order {
            let above = self.upstreams[number]
                .iter()
                .map(|&up| depth[up] + weight(up));
            depth[number] = above.max().unwrap_or(0);
        }
        depth
    }

    fn number(&self, stack: &StackName) -> Option<usize> {
        self.stacks
            .binary_search_by(|other| other.name.cmp(stack))
            .ok()
    }

    fn neighbours(&self, stack: &StackName, lists: &[Vec<usize>]) -> Vec<&StackName> {
        let numbers = self.number(stack).map_or(&[][..], |number| &lists[number]);
        numbers.iter().map(|&n| &self.stacks[n].name).collect()
    }

    fn closure(&self, stack: &StackName, lists: &[Vec<usize>]) -> BTreeSet<StackName> {
        let mut seen = vec![false; self.stacks.len()];
        let mut open: Vec<usize> = self.number(stack).into_iter().collect();
        let mut closure = BTreeSet::new();
        while let Some(number) = open.pop() {
            for &next in &lists[number] {
                if !std::mem::replace(&mut seen[next], true) {
                    closure.insert(self.stacks[next].name.clone());
                    open.push(next);
                }
            }
        }
        closure
    }

    /// Each layer's position from the bottom, by name.
    fn layer_ranks(&self) -> BTreeMap<&str, usize> {
        self.layers
            .iter()
            .map(|layer| layer.name.as_str())
            .zip(0..)
            .collect()
    }
}

impl From<&crate::project::Stack> for GraphStack {
    fn from(stack: &crate::project::Stack) -> Self {
        Self {
            name: stack.name.clone(),
            path: stack.path.clone(),
            target: stack.target.clone(),
            layer: stack.layer.clone(),
            labels: stack.labels.clone(),
        }
    }
}

fn layers(project: &Project, stacks: &[GraphStack]) -> Vec<GraphLayer> {
    let used: BTreeSet<&str> = stacks.iter().map(|stack| stack.layer.as_str()).collect();
    let mut layers: Vec<GraphLayer> = used
        .into_iter()
        .map(|name| GraphLayer {
            name: name.to_owned(),
            order: project.layers.get(name).copied().unwrap_or_default(),
        })
        .collect();
    layers.sort_by_key(|layer| layer.order); // stable: equal orders stay sorted by name
    layers
}

/// Kahn's algorithm. Stacks in a cycle would come last; a checked project has none.
fn topological(upstreams: &[Vec<usize>], downstreams: &[Vec<usize>]) -> Vec<usize> {
    let mut missing: Vec<usize> = upstreams.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = (0..missing.len())
        .filter(|&number| missing[number] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse(number)) = ready.pop() {
        order.push(number);
        for &down in &downstreams[number] {
            missing[down] -= 1;
            if missing[down] == 0 {
                ready.push(Reverse(down));
            }
        }
    }
    order
}
