//! Paths into data, in the notation of the project file: `cluster.cidr`, `nodes[*].name`, `vlans.*.id`, `tfstate_*`.

use std::fmt;
use std::str::FromStr;

use super::data::{Data, MapKey, Node};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    text: String,
    steps: Vec<SelectSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectSegment {
    /// A key; `*` in it matches anything.
    Key(String),
    Index(usize),
    /// `[*]`
    Every,
}

impl SelectSegment {
    pub(super) fn takes_key(&self, key: &MapKey) -> bool {
        match self {
            Self::Key(pattern) => is_match(pattern, &key.to_string()),
            Self::Index(_) | Self::Every => false,
        }
    }

    pub(super) fn takes_index(&self, index: usize) -> bool {
        match self {
            Self::Key(_) => false,
            Self::Index(wanted) => *wanted == index,
            Self::Every => true,
        }
    }
}

/// The first part of a path that matches nothing, and what exists instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnmatchedKey {
    pub(super) key: String,
    pub(super) known: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a data path such as `cluster.cidr` or `nodes[*].name`")]
pub struct SelectError {
    text: String,
}

impl FromStr for Select {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || SelectError {
            text: text.to_owned(),
        };
        let mut steps = Vec::new();
        for part in text.split('.') {
            let (key, mut rest) = match part.find('[') {
                Some(at) => part.split_at(at),
                None => (part, ""),
            };
            if key.is_empty() || key.contains(']') {
                return Err(wrong());
            }
            steps.push(SelectSegment::Key(key.to_owned()));
            while !rest.is_empty() {
                let (inner, after) = rest
                    .strip_prefix('[')
                    .and_then(|rest| rest.split_once(']'))
                    .ok_or_else(wrong)?;
                steps.push(match inner {
                    "*" => SelectSegment::Every,
                    number => SelectSegment::Index(number.parse().map_err(|_| wrong())?),
                });
                rest = after;
            }
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Select {
    pub(super) fn steps(&self) -> &[SelectSegment] {
        &self.steps
    }

    /// Where a path matches nothing. None if it matches, or if its parent is empty.
    pub(super) fn miss(&self, root: &Node) -> Option<UnmatchedKey> {
        let mut here = vec![root];
        for step in &self.steps {
            let mut next = Vec::new();
            let mut known = Vec::new();
            let mut is_open = false;
            for node in here {
                match &node.data {
                    Data::Map(entries) => {
                        known.extend(entries.iter().map(|entry| entry.key.to_string()));
                        let taken = entries.iter().filter(|entry| step.takes_key(&entry.key));
                        next.extend(taken.map(|entry| &entry.node));
                    }
                    Data::List(items) => {
                        is_open |= items.is_empty();
                        let items = items.iter().enumerate();
                        let taken = items.filter(|(index, _)| step.takes_index(*index));
                        next.extend(taken.map(|(_, item)| item));
                    }
                    Data::Null => is_open = true,
                    _ => {}
                }
            }
            if next.is_empty() {
                let key = match step {
                    SelectSegment::Key(key) => key.clone(),
                    SelectSegment::Index(index) => format!("[{index}]"),
                    SelectSegment::Every => "[*]".to_owned(),
                };
                return (!is_open).then_some(UnmatchedKey { key, known });
            }
            here = next;
        }
        None
    }

    /// The values at this path, each with its own path. A missing value is not an error, since the schema defines what
    /// is required.
    pub fn find<'n>(&self, root: &'n Node) -> Vec<(String, &'n Node)> {
        let mut found = vec![(String::new(), root)];
        for step in &self.steps {
            let mut next = Vec::new();
            for (path, node) in found {
                match &node.data {
                    Data::Map(entries) => next.extend(
                        entries
                            .iter()
                            .filter(|entry| step.takes_key(&entry.key))
                            .map(|entry| {
                                let dot = if path.is_empty() { "" } else { "." };
                                (format!("{path}{dot}{}", entry.key), &entry.node)
                            }),
                    ),
                    Data::List(items) => next.extend(
                        items
                            .iter()
                            .enumerate()
                            .filter(|(index, _)| step.takes_index(*index))
                            .map(|(index, item)| (format!("{path}[{index}]"), item)),
                    ),
                    _ => {}
                }
            }
            found = next;
        }
        found
    }
}

/// `*` matches any number of characters.
pub(super) fn is_match(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(rest) = text.strip_prefix(before) else {
        return false;
    };
    (0..=rest.len())
        .filter(|at| rest.is_char_boundary(*at))
        .any(|at| is_match(after, &rest[at..]))
}
