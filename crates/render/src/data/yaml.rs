//! YAML as Python's loader reads it, for which these files were written: `yes` and `on` are bools, `0755` is
//! octal, `<<` merges. Two differences: `12:30` is a text, and a duplicate key is an error.

use std::collections::HashMap;

use model::base::diagnostic::Location;
use model::render::data::{Data, MapEntry, MapKey, Node};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use super::{LineIndex, ReadDataError};
use crate::jinja::dates;

/// Limits for nesting and for the number of values once aliases are expanded.
const DEEPEST: usize = 128;
const MOST: usize = 500_000;

/// How a scalar without quotes is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarSyntax {
    Yaml,
    Json,
}

/// Reads one map: the documents of a file are merged.
pub(super) fn read(places: &LineIndex<'_>, plain: ScalarSyntax) -> Result<Node, ReadDataError> {
    if plain == ScalarSyntax::Json
        && let Err(err) = serde_json::from_str::<serde::de::IgnoredAny>(places.text)
    {
        let at = Location {
            file: places.file.to_owned(),
            line: err.line(),
            column: err.column().max(1),
            ..Location::default()
        };
        return Err(ReadDataError::new(at, "this is not JSON"));
    }
    let mut reader = Reader {
        plain,
        frames: Vec::new(),
        anchors: HashMap::new(),
        documents: Vec::new(),
        count: 0,
    };
    for event in Parser::new_from_str(places.text) {
        let (event, span) = event.map_err(|err| {
            let start = places.byte(err.marker().index());
            ReadDataError::new(
                places.at(start, start),
                format!("this is not YAML: {}", err.info()),
            )
        })?;
        let start = places.byte(span.start.index());
        let end = places.byte(span.end.index());
        reader.event(event, places.at(start, end))?;
    }
    let mut whole = Node::map(places.at(0, 0));
    for document in reader.documents {
        match document.data {
            Data::Map(_) => whole.overlay(document),
            Data::Null => {}
            _ => {
                return Err(ReadDataError::new(
                    document.at,
                    "data begin with names: `name: value`",
                ));
            }
        }
    }
    Ok(whole)
}

struct Reader {
    plain: ScalarSyntax,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    documents: Vec<Node>,
    count: usize,
}

struct Frame {
    what: Collected,
    at: Location,
    anchor: usize,
}

enum Collected {
    List(Vec<Node>),
    Map {
        entries: Vec<MapEntry>,
        /// Entries that `<<` merged; all others take precedence.
        merged: Vec<MapEntry>,
        key: Option<(Node, bool)>,
    },
}

impl Reader {
    fn event(&mut self, event: Event<'_>, at: Location) -> Result<(), ReadDataError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    self.count += size(&node);
                    self.add(node, 0, false)
                }
                None => Err(ReadDataError::new(at, "an alias refers to itself")),
            },
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let is_merge = is_plain && text == "<<" && self.plain == ScalarSyntax::Yaml;
                let data = self.scalar(&text, is_plain, tag.as_deref(), &at)?;
                self.add(Node::new(data, at), anchor, is_merge)
            }
            Event::SequenceStart(anchor, _) => self.open(Collected::List(Vec::new()), at, anchor),
            Event::MappingStart(anchor, _) => {
                let map = Collected::Map {
                    entries: Vec::new(),
                    merged: Vec::new(),
                    key: None,
                };
                self.open(map, at, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(frame) = self.frames.pop() else {
                    return Ok(());
                };
                let data = match frame.what {
                    Collected::List(items) => Data::List(items),
                    Collected::Map {
                        mut entries,
                        merged,
                        ..
                    } => {
                        let mut all: Vec<MapEntry> = Vec::new();
                        // Merged keys come first, as in Python's loader.
                        for entry in merged {
                            let is_new = |others: &[MapEntry]| {
                                others.iter().all(|other| other.key != entry.key)
                            };
                            if is_new(&entries) && is_new(&all) {
                                all.push(entry);
                            }
                        }
                        all.append(&mut entries);
                        Data::Map(all)
                    }
                };
                self.add(Node::new(data, frame.at), frame.anchor, false)
            }
        }
    }

    fn open(&mut self, what: Collected, at: Location, anchor: usize) -> Result<(), ReadDataError> {
        if self.frames.len() >= DEEPEST {
            return Err(ReadDataError::new(at, "this is nested too deep"));
        }
        self.frames.push(Frame { what, at, anchor });
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize, is_merge: bool) -> Result<(), ReadDataError> {
        self.count += 1;
        if self.count > MOST {
            return Err(ReadDataError::new(node.at, "there is more than is read"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.frames.last_mut().map(|frame| &mut frame.what) {
            None => self.documents.push(node),
            Some(Collected::List(items)) => items.push(node),
            Some(Collected::Map {
                entries,
                merged,
                key,
            }) => match key.take() {
                None => *key = Some((node, is_merge)),
                Some((_, true)) => {
                    let maps = match node.data {
                        Data::List(items) => items,
                        _ => vec![node],
                    };
                    for map in maps {
                        let at = map.at.clone();
                        let Data::Map(more) = map.data else {
                            return Err(ReadDataError::new(at, "`<<` takes a map"));
                        };
                        merged.extend(more);
                    }
                }
                Some((name, false)) => {
                    let key = match name.data {
                        Data::Text(text) | Data::Moment(text) => MapKey::Text(text),
                        Data::Int(number) => MapKey::Int(number),
                        Data::Bool(value) => MapKey::Bool(value),
                        Data::Null => MapKey::Null,
                        Data::Float(number) => MapKey::Text(number.to_string()),
                        Data::List(_) | Data::Map(_) | Data::Secret(_) => {
                            return Err(ReadDataError::new(name.at, "a key is a single value"));
                        }
                    };
                    if entries.iter().any(|entry| entry.key == key) {
                        let problem = format!("`{key}` is there already");
                        return Err(ReadDataError::new(name.at, problem));
                    }
                    let at = name.at;
                    entries.push(MapEntry { key, at, node });
                }
            },
        }
        Ok(())
    }

    fn scalar(
        &self,
        text: &str,
        is_plain: bool,
        tag: Option<&Tag>,
        at: &Location,
    ) -> Result<Data, ReadDataError> {
        let Some(tag) = tag else {
            return Ok(match (is_plain, self.plain) {
                (false, _) => Data::Text(text.to_owned()),
                (true, ScalarSyntax::Yaml) => match dates::read(text) {
                    None => plain_yaml(text),
                    Some(Ok(_)) => Data::Moment(text.to_owned()),
                    Some(Err(_)) => {
                        let problem = "there is no such day or time; quotes make it a text";
                        return Err(ReadDataError::new(at.clone(), problem));
                    }
                },
                (true, ScalarSyntax::Json) => plain_json(text),
            });
        };
        if tag.is_yaml_core_schema() && tag.suffix == "str" || tag.handle.is_empty() {
            return Ok(Data::Text(text.to_owned()));
        }
        if tag.is_yaml_core_schema()
            && ["int", "float", "bool", "null"].contains(&tag.suffix.as_str())
        {
            return Ok(plain_yaml(text));
        }
        let problem = format!("the tag `{tag}` is not known");
        Err(ReadDataError::new(at.clone(), problem))
    }
}

fn size(node: &Node) -> usize {
    match &node.data {
        Data::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Data::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.node)).sum::<usize>(),
        _ => 1,
    }
}

fn plain_json(text: &str) -> Data {
    match text {
        "null" => Data::Null,
        "true" => Data::Bool(true),
        "false" => Data::Bool(false),
        _ => text
            .parse()
            .map(Data::Int)
            .or_else(|_| text.parse().map(Data::Float))
            .unwrap_or_else(|_| Data::Text(text.to_owned())),
    }
}

fn plain_yaml(text: &str) -> Data {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Data::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Data::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Data::Float(f64::NAN),
        _ => {}
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if [".inf", ".Inf", ".INF"].contains(&digits) {
        return Data::Float(if sign.is_empty() {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        });
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Data::Text(text.to_owned());
    }
    integer(sign, digits)
        .or_else(|| float(sign, digits))
        .unwrap_or_else(|| Data::Text(text.to_owned()))
}

fn integer(sign: &str, digits: &str) -> Option<Data> {
    let (radix, body) = if let Some(body) = digits.strip_prefix("0b") {
        (2, body)
    } else if let Some(body) = digits.strip_prefix("0x") {
        (16, body)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    let body: String = body.chars().filter(|c| *c != '_').collect();
    // `from_str_radix` would accept a second sign.
    if body.is_empty() || !body.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = i128::from_str_radix(&format!("{sign}{body}"), radix).ok()?;
    Some(Data::Int(number))
}

/// A float has a dot, and its exponent a sign: this is how Python's loader distinguishes floats from
/// versions.
fn float(sign: &str, digits: &str) -> Option<Data> {
    let (before, after) = digits.split_once('.')?;
    let (fraction, exponent) = match after.find(['e', 'E']) {
        Some(at) => (&after[..at], Some(&after[at + 1..])),
        None => (after, None),
    };
    let is_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit() || c == '_');
    let has_some = before.starts_with(|c: char| c.is_ascii_digit())
        || fraction.starts_with(|c: char| c.is_ascii_digit());
    let is_exponent = |part: &str| {
        part.strip_prefix(['+', '-'])
            .is_some_and(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
    };
    if !is_digits(before) || !is_digits(fraction) || !has_some || !exponent.is_none_or(is_exponent)
    {
        return None;
    }
    let clean: String = format!("{sign}{digits}")
        .chars()
        .filter(|c| *c != '_')
        .collect();
    clean.parse().ok().map(Data::Float)
}
