//! Compares two values leaf by leaf, including their unknown and sensitive marks.
//!
//! Null counts as absent, as in the engines. Lists are aligned, so that an inserted element is one addition and not a
//! change of all the elements after it.

use serde_json::Value;

use crate::base::exact_number::digits;
use crate::plan::{AttributeChange, PlanValue, placeholders};

/// A value with the engine's marks: trees of the same shape, in which `true` marks a whole branch.
#[derive(Clone, Copy)]
pub(crate) struct MarkedValue<'a> {
    value: &'a Value,
    unknown: &'a Value,
    sensitive: &'a Value,
    digest: Option<ValueDigestFn<'a>>,
}

/// Computes the text that is shown for a sensitive value.
pub(crate) type ValueDigestFn<'a> = &'a dyn Fn(&Value) -> String;

/// The differences between two values, and the number of equal leaves.
#[derive(Default)]
pub(crate) struct ValueDiff {
    pub(crate) changes: Vec<AttributeChange>,
    pub(crate) unchanged: usize,
}

/// A step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathSegment {
    Key(String),
    Index(usize),
}

/// If the product of both lengths is larger, lists are compared element by element.
const ALIGNABLE: usize = 250_000;

pub(crate) fn compare(
    before: MarkedValue<'_>,
    after: MarkedValue<'_>,
    replace_paths: &[Vec<PathSegment>],
) -> ValueDiff {
    let mut comparison = Comparison {
        replace_paths,
        path: Vec::new(),
        difference: ValueDiff::default(),
    };
    comparison.walk(before, after);
    comparison.difference
}

/// `tags.env`, `rules[0].port`, `labels["a.b"]`.
pub(crate) fn render_path(path: &[PathSegment]) -> String {
    let mut text = String::new();
    for segment in path {
        let step = match segment {
            PathSegment::Index(index) => format!("[{index}]"),
            PathSegment::Key(key) if !is_plain(key) => format!("[{}]", Value::from(key.as_str())),
            PathSegment::Key(key) if text.is_empty() => key.clone(),
            PathSegment::Key(key) => format!(".{key}"),
        };
        text.push_str(&step);
    }
    text
}

fn is_plain(key: &str) -> bool {
    let mut chars = key.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

impl PathSegment {
    pub(crate) fn from_json(step: &Value) -> Self {
        match (step.as_str(), step.as_u64()) {
            (_, Some(index)) => Self::Index(usize::try_from(index).unwrap_or(usize::MAX)),
            (Some(key), None) => Self::Key(key.to_owned()),
            // An element of a set has no name of its own.
            (None, None) => Self::Key("(element)".to_owned()),
        }
    }
}

const NOTHING: Value = Value::Null;

impl<'a> MarkedValue<'a> {
    const ABSENT: Self = Self {
        value: &NOTHING,
        unknown: &NOTHING,
        sensitive: &NOTHING,
        digest: None,
    };

    pub(crate) fn new(value: &'a Value, unknown: &'a Value, sensitive: &'a Value) -> Self {
        Self {
            value,
            unknown,
            sensitive,
            digest: None,
        }
    }

    /// An existing value. Its sensitive parts are shown as digests.
    pub(crate) fn stored(
        value: &'a Value,
        sensitive: &'a Value,
        digest: ValueDigestFn<'a>,
    ) -> Self {
        Self {
            value,
            unknown: &NOTHING,
            sensitive,
            digest: Some(digest),
        }
    }

    fn at(self, segment: &PathSegment) -> Self {
        Self {
            value: step(self.value, segment),
            unknown: inherit(self.unknown, segment),
            sensitive: inherit(self.sensitive, segment),
            digest: self.digest,
        }
    }

    pub(crate) fn is_sensitive(self) -> bool {
        self.sensitive == &Value::Bool(true)
    }

    fn is_unknown(self) -> bool {
        self.unknown == &Value::Bool(true)
    }

    fn is_absent(self) -> bool {
        self.value.is_null() && !has_mark(self.unknown)
    }

    /// Whether values and marks are equal.
    fn equals(self, other: Self) -> bool {
        self.value == other.value && has_mark(self.unknown) == has_mark(other.unknown)
    }

    /// The value as shown to people. `hide` treats any known value as sensitive.
    pub(crate) fn shown(self, hide: bool) -> PlanValue {
        if self.is_unknown() {
            PlanValue::Unknown
        } else if self.is_absent() {
            PlanValue::Absent
        } else if hide || self.is_sensitive() {
            self.digest
                .map_or(PlanValue::Sensitive, |digest| PlanValue::Masked {
                    digest: digest(self.value),
                })
        } else {
            PlanValue::Known(self.flattened())
        }
    }

    /// The value, with placeholders for unknown and sensitive parts.
    pub(crate) fn flattened(self) -> Value {
        if self.is_unknown() {
            return placeholders::of("(known after apply)");
        }
        if self.is_sensitive() && !self.value.is_null() {
            return placeholders::of("(sensitive)");
        }
        match self.value {
            number if digits(number).is_some() => number.clone(),
            Value::Array(_) => {
                let indexes = (0..self.length()).map(PathSegment::Index);
                indexes.map(|index| self.at(&index).flattened()).collect()
            }
            Value::Object(_) => self
                .keys()
                .map(|key| {
                    let field = self.at(&PathSegment::Key(key.clone())).flattened();
                    (key, field)
                })
                .collect(),
            leaf => leaf.clone(),
        }
    }

    /// The keys of the value and of its unknown parts, in order.
    fn keys(self) -> impl Iterator<Item = String> {
        let of = |value: &Value| -> Vec<String> {
            value
                .as_object()
                .map(|fields| fields.keys().cloned().collect())
                .unwrap_or_default()
        };
        let mut keys = of(self.value);
        let unknown = of(self.unknown);
        keys.extend(
            unknown
                .into_iter()
                .filter(|key| has_mark(inherit(self.unknown, &PathSegment::Key(key.clone())))),
        );
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
    }

    fn length(self) -> usize {
        let of = |value: &Value| value.as_array().map_or(0, Vec::len);
        of(self.value).max(of(self.unknown))
    }

    fn is_leaf(self) -> bool {
        match self.value {
            Value::Array(items) => items.is_empty() && self.length() == 0,
            Value::Object(fields) => {
                fields.is_empty() && self.keys().next().is_none() || digits(self.value).is_some()
            }
            _ => true,
        }
    }
}

/// A branch marked `true` marks everything below it.
fn inherit<'a>(marks: &'a Value, segment: &PathSegment) -> &'a Value {
    if marks == &Value::Bool(true) {
        marks
    } else {
        step(marks, segment)
    }
}

fn step<'a>(value: &'a Value, segment: &PathSegment) -> &'a Value {
    let inner = match segment {
        PathSegment::Key(key) => value.get(key),
        PathSegment::Index(index) => value.get(index),
    };
    inner.unwrap_or(&NOTHING)
}

pub(crate) fn has_mark(marks: &Value) -> bool {
    match marks {
        Value::Bool(mark) => *mark,
        Value::Array(items) => items.iter().any(has_mark),
        Value::Object(fields) => fields.values().any(has_mark),
        Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

struct Comparison<'a> {
    replace_paths: &'a [Vec<PathSegment>],
    path: Vec<PathSegment>,
    difference: ValueDiff,
}

impl Comparison<'_> {
    fn walk(&mut self, before: MarkedValue<'_>, after: MarkedValue<'_>) {
        let hidden = before.is_sensitive() || after.is_sensitive();
        let is_number = digits(before.value).or(digits(after.value)).is_some();
        if hidden || is_number || before.is_unknown() || after.is_unknown() {
            return self.leaf(before, after);
        }
        let one_sided = before.is_absent() || after.is_absent();
        match (before.value, after.value) {
            (Value::Object(_), Value::Object(_)) => self.walk_object(before, after),
            (Value::Array(_), Value::Array(_)) => self.walk_array(before, after),
            // Created or deleted as a whole: every leaf changes.
            (Value::Object(_), _) if one_sided && !before.is_leaf() => {
                self.walk_object(before, MarkedValue::ABSENT);
            }
            (_, Value::Object(_)) if one_sided && !after.is_leaf() => {
                self.walk_object(MarkedValue::ABSENT, after);
            }
            (Value::Array(_), _) if one_sided && !before.is_leaf() => {
                self.walk_array(before, MarkedValue::ABSENT);
            }
            (_, Value::Array(_)) if one_sided && !after.is_leaf() => {
                self.walk_array(MarkedValue::ABSENT, after);
            }
            // The value is partly unknown, so the engine left it out. The unknown marks provide its shape.
            (_, Value::Null) if after.unknown.is_object() && has_mark(after.unknown) => {
                self.walk_object(before, after);
            }
            _ => self.leaf(before, after),
        }
    }

    fn walk_object(&mut self, before: MarkedValue<'_>, after: MarkedValue<'_>) {
        let mut keys: Vec<String> = before.keys().chain(after.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.step_into(PathSegment::Key(key), before, after);
        }
    }

    fn walk_array(&mut self, before: MarkedValue<'_>, after: MarkedValue<'_>) {
        for pair in align(before, after) {
            match pair {
                (Some(old), Some(new)) => {
                    let (old, new) = (PathSegment::Index(old), PathSegment::Index(new));
                    self.path.push(new.clone());
                    self.walk(before.at(&old), after.at(&new));
                    self.path.pop();
                }
                (Some(old), None) => {
                    self.step_into(PathSegment::Index(old), before, MarkedValue::ABSENT);
                }
                (None, Some(new)) => {
                    self.step_into(PathSegment::Index(new), MarkedValue::ABSENT, after);
                }
                (None, None) => {}
            }
        }
    }

    fn step_into(&mut self, segment: PathSegment, before: MarkedValue<'_>, after: MarkedValue<'_>) {
        let (before, after) = (before.at(&segment), after.at(&segment));
        self.path.push(segment);
        self.walk(before, after);
        self.path.pop();
    }

    fn leaf(&mut self, before: MarkedValue<'_>, after: MarkedValue<'_>) {
        let same_marks = before.is_sensitive() == after.is_sensitive() || after.is_absent();
        if before.equals(after) && same_marks {
            self.difference.unchanged += usize::from(!after.is_absent());
            return;
        }
        let hide = before.is_sensitive() || after.is_sensitive();
        self.difference.changes.push(AttributeChange {
            path: render_path(&self.path),
            before: before.shown(hide),
            after: after.shown(hide),
            forces_replacement: self.forces_replacement(),
        });
    }

    fn forces_replacement(&self) -> bool {
        self.replace_paths.iter().any(|cause| {
            let shared = cause.len().min(self.path.len());
            cause.get(..shared) == self.path.get(..shared)
        })
    }
}

/// Pairs of indexes: in both lists, only in the old one, only in the new one.
fn align(before: MarkedValue<'_>, after: MarkedValue<'_>) -> Vec<(Option<usize>, Option<usize>)> {
    let items = |marks: MarkedValue<'_>| -> usize { marks.length() };
    let (old_count, new_count) = (items(before), items(after));
    let old = |index: usize| before.at(&PathSegment::Index(index));
    let new = |index: usize| after.at(&PathSegment::Index(index));

    let shorter = old_count.min(new_count);
    let head = (0..shorter)
        .take_while(|&index| old(index).equals(new(index)))
        .count();
    let tail = (0..shorter - head)
        .take_while(|back| old(old_count - 1 - back).equals(new(new_count - 1 - back)))
        .count();
    let (old_end, new_end) = (old_count - tail, new_count - tail);

    let mut pairs: Vec<_> = (0..head).map(|index| (Some(index), Some(index))).collect();
    let kept = if (old_end - head) * (new_end - head) <= ALIGNABLE {
        longest_common(head..old_end, head..new_end, |i, j| old(i).equals(new(j)))
    } else {
        Vec::new()
    };
    let (mut i, mut j) = (head, head);
    for (next_i, next_j) in kept.into_iter().chain([(old_end, new_end)]) {
        // Elements between two kept ones are paired as changed in place, as far as possible.
        while i < next_i && j < next_j {
            pairs.push((Some(i), Some(j)));
            (i, j) = (i + 1, j + 1);
        }
        pairs.extend((i..next_i).map(|index| (Some(index), None)));
        pairs.extend((j..next_j).map(|index| (None, Some(index))));
        if next_i < old_end || next_j < new_end {
            pairs.push((Some(next_i), Some(next_j)));
        }
        (i, j) = (next_i + 1, next_j + 1);
    }
    pairs.extend((0..tail).map(|back| (Some(old_end + back), Some(new_end + back))));
    pairs
}

/// The longest common subsequence, as pairs of indexes.
fn longest_common(
    old: std::ops::Range<usize>,
    new: std::ops::Range<usize>,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let (rows, columns) = (old.len(), new.len());
    let mut lengths = vec![vec![0_usize; columns + 1]; rows + 1];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            lengths[i][j] = if same(old.start + i, new.start + j) {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut kept) = (0, 0, Vec::new());
    while i < rows && j < columns {
        if same(old.start + i, new.start + j) {
            kept.push((old.start + i, new.start + j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[i + 1][j] >= lengths[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    kept
}
