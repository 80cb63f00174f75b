//! Metadata trees in formats without nesting: `age__list_0__map_recipient`.

use super::tree::{Element, Entry, Map, Node};

const IN_MAP: &str = "__map_";
const IN_LIST: &str = "__list_";

/// Names that contain the path to each value.
pub(super) fn flatten(map: Map) -> Map {
    let mut flat = Map::new();
    for entry in map {
        if let Entry::Item(name, node) = entry {
            flatten_into(name, node, &mut flat);
        }
    }
    flat
}

fn flatten_into(name: String, node: Node, flat: &mut Map) {
    match node {
        Node::Map(map) => {
            for entry in map {
                if let Entry::Item(key, node) = entry {
                    flatten_into(format!("{name}{IN_MAP}{key}"), node, flat);
                }
            }
        }
        Node::List(list) => {
            let nodes = list.into_iter().filter_map(|element| match element {
                Element::Node(node) => Some(node),
                Element::Comment(_) => None,
            });
            for (position, node) in nodes.enumerate() {
                flatten_into(format!("{name}{IN_LIST}{position}"), node, flat);
            }
        }
        Node::Scalar(_) | Node::Null => flat.push(Entry::Item(name, node)),
    }
}

/// The tree from such names; `None` if they contradict each other.
pub(super) fn unflatten(flat: Map) -> Option<Map> {
    let mut root = Node::Map(Map::new());
    for entry in flat {
        if let Entry::Item(name, node) = entry {
            put(&mut root, &steps(&name), node)?;
        }
    }
    match root {
        Node::Map(map) => Some(map),
        Node::List(_) | Node::Scalar(_) | Node::Null => None,
    }
}

enum PathSegment {
    Key(String),
    Position(usize),
}

fn steps(name: &str) -> Vec<PathSegment> {
    let mut steps = Vec::new();
    for part in name.split(IN_MAP) {
        let mut parts = part.split(IN_LIST);
        steps.extend(parts.next().map(|key| PathSegment::Key(key.to_owned())));
        steps.extend(
            parts.map(|position| PathSegment::Position(position.parse().unwrap_or(usize::MAX))),
        );
    }
    steps
}

fn put(node: &mut Node, steps: &[PathSegment], value: Node) -> Option<()> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Some(());
    };
    let child = match step {
        PathSegment::Key(key) => {
            if *node == Node::Null {
                *node = Node::Map(Map::new());
            }
            let Node::Map(map) = node else {
                return None;
            };
            let known = map
                .iter()
                .position(|entry| matches!(entry, Entry::Item(name, _) if name == key));
            let at = known.unwrap_or_else(|| {
                map.push(Entry::Item(key.clone(), Node::Null));
                map.len() - 1
            });
            match map.get_mut(at) {
                Some(Entry::Item(_, child)) => child,
                Some(Entry::Comment(_)) | None => return None,
            }
        }
        PathSegment::Position(position) => {
            if *node == Node::Null {
                *node = Node::List(Vec::new());
            }
            let Node::List(list) = node else {
                return None;
            };
            // Positions are in order.
            if *position == list.len() {
                list.push(Element::Node(Node::Null));
            }
            match list.get_mut(*position) {
                Some(Element::Node(child)) => child,
                Some(Element::Comment(_)) | None => return None,
            }
        }
    };
    put(child, rest, value)
}
