//! The positions of boxes: a band per layer, in it a row per depth. The order in each row keeps stacks close to their
//! dependencies.
//!
//! An edge that crosses a row passes through a bend, which takes space like a narrow box, so that no edge runs behind a
//! stack. A stack has one bend in each row that it crosses, shared by its edges.

use std::collections::BTreeMap;

use super::Graph;

pub(super) const BOX_HEIGHT: f64 = 42.0;
const BOX_GAP: f64 = 20.0;
const ROW_GAP: f64 = 46.0;
const BAND_GAP: f64 = 14.0;
const BAND_PADDING: f64 = 18.0;
const CHARACTER: f64 = 8.0;
/// Wider rows are wrapped, so that many equal stacks stay readable.
const MAX_IN_ROW: usize = 12;
const SWEEPS: usize = 10;

pub(super) struct Layout<'a> {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) bands: Vec<Band<'a>>,
    /// Stacks by their index, then bends.
    pub(super) boxes: Vec<Placed>,
    pub(super) routes: Vec<Route>,
}

pub(super) struct Band<'a> {
    pub(super) name: &'a str,
    pub(super) top: f64,
    pub(super) height: f64,
}

#[derive(Clone, Default)]
pub(super) struct Placed {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
}

impl Placed {
    pub(super) fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }
}

/// The route of an edge: indexes of boxes, including both ends.
pub(super) struct Route {
    pub(super) up: usize,
    pub(super) down: usize,
    pub(super) through: Vec<usize>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        let names = graph.layers().iter().map(|layer| text_width(&layer.name));
        let gutter = names.fold(0.0, f64::max) + 44.0;
        let mut boxes: Vec<Placed> = graph
            .stacks
            .iter()
            .map(|stack| Placed {
                width: text_width(stack.name.as_str()).max(text_width(&stack.target) * 0.86) + 26.0,
                ..Placed::default()
            })
            .collect();
        let (bands, mut rows, height) = stacked(graph, &mut boxes);
        let routes = routes(graph, &mut rows, &mut boxes);
        spread(&routes, &mut rows, &mut boxes);
        draw_together(&mut boxes);
        let left = boxes.iter().map(|b| b.x).fold(f64::INFINITY, f64::min);
        let shift = if left.is_finite() { gutter - left } else { 0.0 };
        for placed in &mut boxes {
            placed.x += shift;
        }
        let right = boxes.iter().map(|b| b.x + b.width).fold(gutter, f64::max);
        Self {
            width: right + 28.0,
            height,
            bands,
            boxes,
            routes,
        }
    }
}

/// Bands and rows from the top down, with every box's height set. Returns the rows and the bottom edge too.
fn stacked<'a>(graph: &'a Graph, boxes: &mut [Placed]) -> (Vec<Band<'a>>, Vec<Vec<usize>>, f64) {
    let depth = depth_in_layer(graph);
    let mut bands = Vec::new();
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut y = 8.0;
    for layer in graph.layers() {
        let mut by_depth: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, stack) in graph.stacks.iter().enumerate() {
            if stack.layer == layer.name {
                by_depth.entry(depth[number]).or_default().push(number);
            }
        }
        let top = y;
        y += BAND_PADDING;
        let broken = by_depth.values().flat_map(|row| row.chunks(MAX_IN_ROW));
        for (at, row) in broken.enumerate() {
            y += if at > 0 { ROW_GAP } else { 0.0 };
            for &number in row {
                boxes[number].y = y;
            }
            y += BOX_HEIGHT;
            rows.push(row.to_vec());
        }
        y += BAND_PADDING;
        bands.push(Band {
            name: &layer.name,
            top,
            height: y - top,
        });
        y += BAND_GAP;
    }
    (bands, rows, (y - BAND_GAP + 8.0).max(40.0))
}

/// Only edges inside a layer move a stack further down in it.
fn depth_in_layer(graph: &Graph) -> Vec<usize> {
    let mut depth = vec![0; graph.stacks.len()];
    for &number in &graph.order {
        let layer = &graph.stacks[number].layer;
        let own = graph.upstreams[number].iter();
        let own = own.filter(|&&up| graph.stacks[up].layer == *layer);
        depth[number] = own.map(|&up| depth[up] + 1).max().unwrap_or(0);
    }
    depth
}

/// A route for each edge. Adds the bends to their rows and to the boxes.
fn routes(graph: &Graph, rows: &mut [Vec<usize>], boxes: &mut Vec<Placed>) -> Vec<Route> {
    let mut row_of = vec![0; graph.stacks.len()];
    for (at, row) in rows.iter().enumerate() {
        for &number in row {
            row_of[number] = at;
        }
    }
    let mut bends: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut routes = Vec::new();
    for (up, downs) in graph.downstreams.iter().enumerate() {
        for &down in downs {
            let mut through = vec![up];
            for at in row_of[up] + 1..row_of[down] {
                let bend = *bends.entry((up, at)).or_insert_with(|| {
                    boxes.push(Placed {
                        y: boxes[rows[at][0]].y,
                        ..Placed::default()
                    });
                    rows[at].push(boxes.len() - 1);
                    boxes.len() - 1
                });
                through.push(bend);
            }
            through.push(down);
            routes.push(Route { up, down, through });
        }
    }
    routes
}

/// Moves each box towards the middle of its neighbours, down and up in turn, without overlaps.
fn spread(routes: &[Route], rows: &mut [Vec<usize>], boxes: &mut [Placed]) {
    let mut above = vec![Vec::new(); boxes.len()];
    let mut below = vec![Vec::new(); boxes.len()];
    for pair in routes.iter().flat_map(|route| route.through.windows(2)) {
        above[pair[1]].push(pair[0]);
        below[pair[0]].push(pair[1]);
    }
    for list in above.iter_mut().chain(&mut below) {
        list.sort_unstable();
        list.dedup();
    }
    for row in rows.iter() {
        settle(row, &vec![0.0; row.len()], boxes);
    }
    for sweep in 0..SWEEPS {
        let downwards = sweep % 2 == 0;
        let centre = mean(boxes.iter().map(Placed::middle)).unwrap_or_default();
        for step in 0..rows.len() {
            let (at, near) = if downwards {
                (step, &above)
            } else {
                (rows.len() - 1 - step, &below)
            };
            let wish = |number: usize| {
                let middles = near[number].iter().map(|&other| boxes[other].middle());
                let alone = above[number].is_empty() && below[number].is_empty();
                let stay = if alone {
                    centre
                } else {
                    boxes[number].middle()
                };
                mean(middles).unwrap_or(stay)
            };
            let mut wishes: Vec<(f64, usize)> = rows[at].iter().map(|&n| (wish(n), n)).collect();
            wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows[at] = wishes.iter().map(|&(_, number)| number).collect();
            let middles: Vec<f64> = wishes.iter().map(|&(middle, _)| middle).collect();
            settle(&rows[at], &middles, boxes);
        }
    }
}

/// Removes columns that no row uses, since unconnected parts of a graph drift apart.
fn draw_together(boxes: &mut [Placed]) {
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    order.sort_by(|&one, &other| boxes[one].x.total_cmp(&boxes[other].x));
    let mut reached: Option<f64> = None;
    let mut shift = 0.0;
    for number in order {
        let x = boxes[number].x - shift;
        let free = reached.map_or(0.0, |reached| x - reached - 2.0 * BOX_GAP);
        shift += free.max(0.0);
        boxes[number].x -= shift;
        let right = boxes[number].x + boxes[number].width;
        reached = Some(reached.map_or(right, |reached| reached.max(right)));
    }
}

/// Places a row's boxes, in this order, as close to the desired middles as their widths allow.
fn settle(row: &[usize], middles: &[f64], boxes: &mut [Placed]) {
    let mut edge = f64::NEG_INFINITY;
    let mut pushed = Vec::with_capacity(row.len());
    for (&number, &middle) in row.iter().zip(middles) {
        let wish = middle - boxes[number].width / 2.0;
        let x = wish.max(edge);
        pushed.push(x - wish);
        boxes[number].x = x;
        edge = x + boxes[number].width + BOX_GAP;
    }
    // All pushes went to the right, so the whole row moves back by their mean.
    let back = mean(pushed.into_iter()).unwrap_or_default();
    for &number in row {
        boxes[number].x -= back;
    }
}

fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = numbers.fold((0.0, 0.0), |(sum, count), number| {
        (sum + number, count + 1.0)
    });
    (count > 0.0).then(|| sum / count)
}

fn text_width(text: &str) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * CHARACTER
}
