//! The graph for a terminal: one stack per line, lowest layer first, and a rail for each stack with dependents. If the
//! rails do not fit, the lines name their upstreams instead.
//!
//! A mark is always on its own rail, so that crossings cannot be misread:
//!
//! ```text
//! hypervisors   network ──●
//!                         │
//! platforms     k8s-dev ──◄        network.subnet_id
//! ```

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::{Graph, GraphLayer};

/// What the terminal can display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// In columns.
    pub width: usize,
    /// Use box characters instead of ASCII.
    pub unicode: bool,
    /// Whether lines that do not fit are truncated.
    pub cuts: bool,
}

/// More rails side by side are hard to follow.
const MAX_RAILS: usize = 16;

pub fn render(graph: &Graph, style: TextStyle) -> String {
    let page = Page::new(graph, style);
    let mut out = match page.rails() {
        Some(rails) => page.drawing(&rails),
        None => page.listing(),
    };
    out.push('\n');
    out.push_str(&page.summary());
    out
}

struct Symbols {
    rail: char,
    line: char,
    crossing: char,
    gives: char,
    takes: char,
    follows: char,
    arrow_left: &'static str,
    arrow_right: &'static str,
    ellipsis: &'static str,
}

const UNICODE: Symbols = Symbols {
    rail: '│',
    line: '─',
    crossing: '┼',
    gives: '●',
    takes: '◄',
    follows: '◁',
    arrow_left: "←",
    arrow_right: "→",
    ellipsis: "…",
};

const ASCII: Symbols = Symbols {
    rail: '|',
    line: '-',
    crossing: '+',
    gives: 'o',
    takes: '<',
    follows: '(',
    arrow_left: "<-",
    arrow_right: "->",
    ellipsis: "...",
};

struct Page<'a> {
    graph: &'a Graph,
    /// Stack indexes in the order of their lines.
    rows: Vec<usize>,
    signs: &'static Symbols,
    width: usize,
    cuts: bool,
    layer_width: usize,
    name_width: usize,
}

/// The column of each stack's rail, and the last line that it reaches.
struct Rails {
    column: Vec<Option<usize>>,
    end: Vec<usize>,
    count: usize,
}

impl<'a> Page<'a> {
    fn new(graph: &'a Graph, style: TextStyle) -> Self {
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        Self {
            graph,
            rows: rows(graph),
            signs: if style.unicode { &UNICODE } else { &ASCII },
            width: style.width.max(20),
            cuts: style.cuts,
            layer_width: longest(&mut graph.layers().iter().map(|layer| layer.name.len())),
            name_width: longest(&mut graph.stacks().iter().map(|s| s.name.as_str().len())),
        }
    }

    /// `None` if there are too many, or if an edge would run upwards.
    fn rails(&self) -> Option<Rails> {
        let mut line = vec![0; self.rows.len()];
        for (at, &number) in self.rows.iter().enumerate() {
            line[number] = at;
        }
        let mut column = vec![None; self.rows.len()];
        let mut end = vec![0; self.rows.len()];
        let mut busy_until: Vec<usize> = Vec::new();
        for (at, &number) in self.rows.iter().enumerate() {
            let downs = &self.graph.downstreams[number];
            if downs.iter().any(|&down| line[down] <= at) {
                return None;
            }
            let Some(last) = downs.iter().map(|&down| line[down]).max() else {
                continue;
            };
            let free = busy_until.iter().position(|&until| until < at);
            let place = free.unwrap_or(busy_until.len());
            if free.is_none() {
                busy_until.push(0);
            }
            busy_until[place] = last;
            column[number] = Some(place);
            end[number] = last;
        }
        let count = busy_until.len();
        let fits = count <= MAX_RAILS && self.rails_start() + 2 * count <= self.width;
        fits.then_some(Rails { column, end, count })
    }

    fn rails_start(&self) -> usize {
        self.layer_width + 3 + self.name_width + 3
    }

    fn drawing(&self, rails: &Rails) -> String {
        let mut out = String::new();
        let mut layer_before: Option<&str> = None;
        // The stack whose rail runs in each column.
        let mut running: Vec<Option<usize>> = vec![None; rails.count];
        for (at, &number) in self.rows.iter().enumerate() {
            for rail in &mut running {
                *rail = rail.filter(|&up| rails.end[up] >= at);
            }
            let layer = self.graph.stacks[number].layer.as_str();
            if layer_before.is_some_and(|before| before != layer) {
                out.push_str(self.between(&running).trim_end());
                out.push('\n');
            }
            let shown = if layer_before == Some(layer) {
                ""
            } else {
                layer
            };
            layer_before = Some(layer);
            let line = self.line(shown, number, rails, &mut running);
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn between(&self, running: &[Option<usize>]) -> String {
        let mut line = " ".repeat(self.rails_start());
        for rail in running {
            line.push(if rail.is_some() { self.signs.rail } else { ' ' });
            line.push(' ');
        }
        line
    }

    fn line(
        &self,
        layer: &str,
        number: usize,
        rails: &Rails,
        running: &mut [Option<usize>],
    ) -> String {
        let signs = self.signs;
        let ups = &self.graph.upstreams[number];
        let own = rails.column[number];
        if let Some(column) = own {
            running[column] = Some(number);
        }
        let mark = |column: usize| {
            let up = running[column]?;
            if up == number {
                return Some(signs.gives);
            }
            ups.contains(&up).then(|| {
                let only_after = self.graph.needs(up, number).is_empty();
                if only_after {
                    signs.follows
                } else {
                    signs.takes
                }
            })
        };
        let reach = (0..running.len())
            .rev()
            .find(|&column| mark(column).is_some());
        let name = self.graph.stacks[number].name.as_str();
        let mut line = format!("{layer:<width$}   {name} ", width = self.layer_width);
        let lead = self.rails_start() - line.chars().count();
        let fill = if reach.is_some() { signs.line } else { ' ' };
        line.extend(std::iter::repeat_n(fill, lead));
        for (column, rail) in running.iter().enumerate() {
            let inside = reach.is_some_and(|reach| column < reach);
            line.push(match (mark(column), rail) {
                (Some(mark), _) => mark,
                (None, Some(_)) if inside => signs.crossing,
                (None, Some(_)) => signs.rail,
                (None, None) if inside => signs.line,
                (None, None) => ' ',
            });
            line.push(if inside { signs.line } else { ' ' });
        }
        let room = self
            .width
            .saturating_sub(self.rails_start() + 2 * rails.count + 2);
        let taken = self.taken(number);
        if (room >= 12 || !self.cuts) && !taken.is_empty() {
            line.push_str("  ");
            line.push_str(&self.cut(&taken.join(", "), room));
        }
        line
    }

    /// `network.subnet_id` for each consumed output, `after dns` if there is none.
    fn taken(&self, number: usize) -> Vec<String> {
        let mut outputs = Vec::new();
        let mut after = Vec::new();
        for &up in &self.graph.upstreams[number] {
            let name = &self.graph.stacks[up].name;
            let needs = self.graph.needs(up, number);
            if needs.is_empty() {
                after.push(format!("after {name}"));
            }
            outputs.extend(needs.iter().map(|output| format!("{name}.{output}")));
        }
        outputs.append(&mut after);
        outputs
    }

    fn cut(&self, text: &str, room: usize) -> String {
        if !self.cuts || text.chars().count() <= room {
            return text.to_owned();
        }
        let kept = room - self.signs.ellipsis.chars().count();
        text.chars().take(kept).collect::<String>() + self.signs.ellipsis
    }

    fn listing(&self) -> String {
        let mut out = String::new();
        let mut layer_before: Option<&str> = None;
        let arrow = self.signs.arrow_left;
        let indent = self.layer_width + 3 + self.name_width + 2 + arrow.chars().count() + 1;
        let layers = self.graph.layers.iter();
        let of_layer = |layer: &'a GraphLayer| {
            let stacks = self.graph.stacks.iter().enumerate();
            stacks.filter(move |(_, stack)| stack.layer == layer.name)
        };
        for (number, stack) in layers.flat_map(of_layer) {
            let layer = stack.layer.as_str();
            if layer_before.is_some_and(|before| before != layer) {
                out.push('\n');
            }
            let shown = if layer_before == Some(layer) {
                ""
            } else {
                layer
            };
            layer_before = Some(layer);
            let _ = write!(
                out,
                "{shown:<layer_width$}   {name:<name_width$}",
                name = stack.name.as_str(),
                layer_width = self.layer_width,
                name_width = self.name_width,
            );
            let upstreams = self.named_upstreams(number);
            if upstreams.is_empty() {
                out.truncate(out.trim_end().len());
            } else {
                let _ = write!(out, "  {arrow} ");
                out.push_str(&wrapped(&upstreams, ", ", indent, indent, self.width));
            }
            out.push('\n');
        }
        out
    }

    /// `network (subnet_id, cidr)` for each stack it depends on.
    fn named_upstreams(&self, number: usize) -> Vec<String> {
        let named = |&up: &usize| {
            let name = &self.graph.stacks[up].name;
            let needs = self.graph.needs(up, number);
            if needs.is_empty() {
                name.to_string()
            } else {
                format!("{name} ({})", needs.join(", "))
            }
        };
        self.graph.upstreams[number].iter().map(named).collect()
    }

    fn summary(&self) -> String {
        let graph = self.graph;
        let waves = graph
            .depth(|_| 1)
            .into_iter()
            .max()
            .map_or(0, |deepest| deepest + 1);
        let mut out = format!(
            "{}, {}, {}",
            counted(graph.stacks.len(), "stack"),
            counted(graph.edges.len(), "edge"),
            counted(waves, "wave"),
        );
        let steps: Vec<String> = graph
            .critical_path()
            .into_iter()
            .map(|step| match step.needs.as_slice() {
                [] => step.stack.to_string(),
                needs => format!("{} (needs {})", step.stack, needs.join(", ")),
            })
            .collect();
        if steps.len() > 1 {
            out.push_str("; longest path: ");
            let start = out.chars().count();
            let arrow = format!(" {} ", self.signs.arrow_right);
            let way = wrapped(&steps, &arrow, start, 2, self.width);
            out.push_str(&way);
        }
        out.push('\n');
        out
    }
}

/// The line order for rails: lowest layer first, then always the stack that ends most of the open rails, so that few
/// run side by side.
fn rows(graph: &Graph) -> Vec<usize> {
    let ranks = graph.layer_ranks();
    let rank = |number: usize| ranks.get(graph.stacks[number].layer.as_str());
    let mut missing: Vec<usize> = graph.upstreams.iter().map(Vec::len).collect();
    // Downstreams without a line yet: a rail ends with the last of them.
    let mut waiting: Vec<usize> = graph.downstreams.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..missing.len()).filter(|&n| missing[n] == 0).collect();
    let mut rows = Vec::with_capacity(missing.len());
    loop {
        let ended = |number: usize| {
            let ups = graph.upstreams[number].iter();
            ups.filter(|&&up| waiting[up] == 1).count()
        };
        let key = |number: usize| {
            let begun = usize::from(!graph.downstreams[number].is_empty());
            (rank(number), Reverse(ended(number) + 1 - begun), number)
        };
        let candidates = ready.iter().copied().enumerate();
        let best = candidates.min_by_key(|&(_, number)| key(number));
        let Some((place, number)) = best else {
            return rows;
        };
        ready.swap_remove(place);
        rows.push(number);
        for &up in &graph.upstreams[number] {
            waiting[up] -= 1;
        }
        for &down in &graph.downstreams[number] {
            missing[down] -= 1;
            if missing[down] == 0 {
                ready.push(down);
            }
        }
    }
}

/// Items joined by a separator, wrapped before an item that would exceed the width. The first line starts at column
/// `start`, further ones at `indent`.
fn wrapped(items: &[String], separator: &str, start: usize, indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut column = start;
    for (at, item) in items.iter().enumerate() {
        let length = item.chars().count();
        if at > 0 {
            let joint = separator.chars().count();
            let last = at + 1 == items.len();
            let tail = if last {
                0
            } else {
                separator.trim_end().chars().count()
            };
            if column + joint + length + tail > width {
                out.push_str(separator.trim_end());
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                out.push_str(separator);
                column += joint;
            }
        }
        out.push_str(item);
        column += length;
    }
    out
}

fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
