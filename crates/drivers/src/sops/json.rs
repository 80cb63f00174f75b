//! Documents as JSON. It has no comments.

use std::fmt::{self, Write as _};

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::ReadError;
use super::tree::{Document, Element, Entry, Kind, Map, Node, Scalar};

pub(super) fn read(text: &str) -> Result<Document, ReadError> {
    match read_node(text)? {
        Node::Map(map) => Ok(Document(vec![map])),
        Node::List(_) | Node::Scalar(_) | Node::Null => Err(ReadError {
            line: 1,
            problem: "the document must be an object".to_owned(),
        }),
    }
}

pub(super) fn read_node(text: &str) -> Result<Node, ReadError> {
    let mut parser = serde_json::Deserializer::from_str(text);
    // The parser's message may quote the text; the position does not.
    let failed = |err: serde_json::Error| ReadError {
        line: err.line(),
        problem: match err.classify() {
            serde_json::error::Category::Eof => "the text ends too early".to_owned(),
            serde_json::error::Category::Data => spoken(&err),
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
                format!("it is not JSON, at column {}", err.column())
            }
        },
    };
    let node = Seed.deserialize(&mut parser).map_err(failed)?;
    parser.end().map_err(failed)?;
    Ok(node)
}

/// Our own message, without the position that serde adds.
fn spoken(err: &serde_json::Error) -> String {
    let text = err.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Node;

    fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Scalar::bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(Scalar::int(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::custom(
                "a number does not fit 64 bits with a sign; make it a text",
            )),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Scalar::float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Scalar::text(value)))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Scalar(Scalar::text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(node) = list.next_element_seed(Seed)? {
            elements.push(Element::Node(node));
        }
        Ok(Node::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Node, A::Error> {
        let mut map = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            let is_known = |entry: &Entry| matches!(entry, Entry::Item(name, _) if *name == key);
            if map.iter().any(is_known) {
                let said = "a key is defined twice".to_owned();
                return Err(de::Error::custom(said));
            }
            let node = object.next_value_seed(Seed)?;
            map.push(Entry::Item(key, node));
        }
        Ok(Node::Map(map))
    }
}

/// Indented by `indent` spaces, or by tabs.
pub(super) fn write(document: &Document, indent: Option<usize>) -> String {
    let mut writer = Writer {
        out: String::new(),
        indent: Some(indent.map_or_else(|| "\t".to_owned(), |spaces| " ".repeat(spaces))),
        depth: 0,
    };
    match document.0.first() {
        Some(map) => writer.map(map),
        None => writer.map(&Map::new()),
    }
    writer.out.push('\n');
    writer.out
}

/// A part of a document on one line.
pub(super) fn write_node(node: &Node) -> String {
    let mut writer = Writer {
        out: String::new(),
        indent: None,
        depth: 0,
    };
    writer.node(node);
    writer.out
}

struct Writer {
    out: String,
    indent: Option<String>,
    depth: usize,
}

impl Writer {
    fn node(&mut self, node: &Node) {
        match node {
            Node::Map(map) => self.map(map),
            Node::List(list) => {
                let nodes: Vec<&Node> = list.iter().filter_map(Element::node).collect();
                self.inside('[', ']', nodes, Self::node);
            }
            Node::Scalar(scalar) => self.scalar(scalar),
            Node::Null => self.out.push_str("null"),
        }
    }

    fn map(&mut self, map: &Map) {
        let items = map.iter().filter_map(|entry| match entry {
            Entry::Item(key, node) => Some((key, node)),
            Entry::Comment(_) => None,
        });
        self.inside('{', '}', items.collect(), |writer, (key, node)| {
            writer.text(key);
            writer
                .out
                .push_str(if writer.indent.is_some() { ": " } else { ":" });
            writer.node(node);
        });
    }

    fn inside<T>(&mut self, open: char, close: char, items: Vec<T>, each: impl Fn(&mut Self, T)) {
        self.out.push(open);
        let is_empty = items.is_empty();
        self.depth += 1;
        for (position, item) in items.into_iter().enumerate() {
            if position > 0 {
                self.out.push(',');
            }
            self.line();
            each(self, item);
        }
        self.depth -= 1;
        if !is_empty {
            self.line();
        }
        self.out.push(close);
    }

    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str(indent);
            }
        }
    }

    fn scalar(&mut self, scalar: &Scalar) {
        let text = scalar.text.expose();
        match scalar.kind {
            Kind::Text | Kind::Time => self.text(text),
            Kind::Int => self.out.push_str(text),
            Kind::Bool => self.out.push_str(&text.to_ascii_lowercase()),
            // A float keeps its point or exponent, so that it is read as a float again.
            Kind::Float => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => {
                    let _ = write!(self.out, "{value:?}");
                }
                _ => self.text(text),
            },
        }
    }

    /// With the same escapes as the official tool.
    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.out, "\\u{:04x}", c as u32);
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
