//! Reads YAML text into a document: the parser's events, with the comments between them put in place.
//!
//! A comment on its own line belongs to the innermost map or list that is not indented further than the comment.
//! The official tool reads files this way, and encrypts a comment under the path of its container. At the end of a
//! map, however, a comment belongs to the innermost container that has just ended.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::super::ReadError;
use super::super::tree::{Comment, Document, Element, Entry, Map, Node, Scalar};
use super::comments::{self, CommentPosition, Gap, PlacedComment};
use super::plain::{self, TooLarge};

/// Limits for nesting and for the number of values once aliases are expanded.
const DEEPEST: usize = 128;
const MOST: usize = 200_000;

pub(in super::super) fn read(text: &str) -> Result<Document, ReadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader::new(text);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|err| ReadError {
            line: err.marker().line(),
            problem: format!("it is not YAML: {}", err.info()),
        })?;
        reader.event(event, span)?;
    }
    Ok(Document(reader.documents))
}

struct Reader<'t> {
    text: &'t str,
    /// The byte offset of each character, since the parser counts characters.
    offsets: Option<Vec<usize>>,
    /// How far the text has been processed.
    read: usize,
    documents: Vec<Map>,
    frames: Vec<Frame>,
    /// Comments to put at the start of the next map or list.
    opening: Vec<Comment>,
    dash: usize,
    anchors: HashMap<usize, Node>,
    count: usize,
}

struct Frame {
    what: Collected,
    /// `None` for flow style.
    column: Option<usize>,
    /// Comments that belong here, after the child that is being read.
    later: Vec<Comment>,
    anchor: usize,
}

enum Collected {
    Map { entries: Map, key: Option<String> },
    List(Vec<Element>),
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let offsets = (!text.is_ascii()).then(|| {
            let ends = std::iter::once(text.len());
            text.char_indices().map(|(at, _)| at).chain(ends).collect()
        });
        Self {
            text,
            offsets,
            read: 0,
            documents: Vec::new(),
            frames: Vec::new(),
            opening: Vec::new(),
            dash: 0,
            anchors: HashMap::new(),
            count: 0,
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), ReadError> {
        let (start, end) = (
            self.offset(span.start.index()),
            self.offset(span.end.index()),
        );
        let line = span.start.line();
        let gap = if start > self.read {
            comments::scan(self.text, self.read, start)
        } else {
            Gap::default()
        };
        self.read = self.read.max(start);
        if let Some(dash) = gap.dash {
            self.dash = dash;
        }
        self.place(gap, &event);
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => {
                if !self.opening.is_empty() {
                    let left = mem::take(&mut self.opening);
                    self.documents
                        .push(left.into_iter().map(Entry::Comment).collect());
                }
            }
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Alias(anchor) => {
                self.read = end;
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(problem(line, "an alias refers to itself"));
                };
                self.count += size(&node);
                self.add(node, 0, line)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.read = match style {
                    // The parser's end includes what follows on the line.
                    ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                        comments::end_of_quoted(self.text, start)
                    }
                    ScalarStyle::Plain | ScalarStyle::Literal | ScalarStyle::Folded => end,
                };
                self.scalar(text, style, anchor, tag.as_deref(), line)?;
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", line)?;
                let key = None;
                let entries = Map::new();
                self.open(Collected::Map { entries, key }, anchor, span, end)?;
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", line)?;
                self.open(Collected::List(Vec::new()), anchor, span, end)?;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                let in_brackets = self
                    .frames
                    .last()
                    .is_some_and(|frame| frame.column.is_none());
                if in_brackets {
                    self.read = start + 1;
                }
                self.close(line)?;
            }
        }
        Ok(())
    }

    fn offset(&self, index: usize) -> usize {
        match &self.offsets {
            Some(offsets) => offsets.get(index).copied().unwrap_or(self.text.len()),
            None => index.min(self.text.len()),
        }
    }

    fn open(
        &mut self,
        what: Collected,
        anchor: usize,
        span: Span,
        end: usize,
    ) -> Result<(), ReadError> {
        if self.frames.len() >= DEEPEST {
            return Err(problem(span.start.line(), "it is nested too deeply"));
        }
        if self.is_key_next() && !self.frames.is_empty() {
            return Err(problem(span.start.line(), "a key must be a text"));
        }
        self.note_column();
        let in_brackets =
            span.end.index() > span.start.index() && self.text[..end].ends_with(['{', '[']);
        if in_brackets {
            self.read = end;
        }
        let column = match &what {
            _ if in_brackets => None,
            // Known at the first element.
            Collected::List(_) => Some(usize::MAX),
            Collected::Map { .. } => Some(span.start.col()),
        };
        let opening = mem::take(&mut self.opening).into_iter();
        let what = match what {
            Collected::Map { key, .. } => Collected::Map {
                entries: opening.map(Entry::Comment).collect(),
                key,
            },
            Collected::List(_) => Collected::List(opening.map(Element::Comment).collect()),
        };
        self.frames.push(Frame {
            what,
            column,
            later: Vec::new(),
            anchor,
        });
        Ok(())
    }

    /// The column of a block list is that of its dashes.
    fn note_column(&mut self) {
        let dash = self.dash;
        if let Some(frame) = self.frames.last_mut()
            && frame.column == Some(usize::MAX)
        {
            frame.column = Some(dash);
        }
    }

    fn close(&mut self, line: usize) -> Result<(), ReadError> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let node = match frame.what {
            Collected::Map { mut entries, .. } => {
                if !self.frames.is_empty() {
                    settle(&mut entries);
                }
                Node::Map(entries)
            }
            Collected::List(elements) => Node::List(elements),
        };
        self.add(node, frame.anchor, line)
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        line: usize,
    ) -> Result<(), ReadError> {
        if self.is_key_next()
            && let Some(Frame {
                what: Collected::Map { entries, key },
                ..
            }) = self.frames.last_mut()
        {
            let is_plain = style == ScalarStyle::Plain && tag.is_none();
            if is_plain && text != "<<" && !plain::resolve(&text).is_ok_and(|node| is_text(&node)) {
                return Err(problem(line, "a key is not a text: put it in quotes"));
            }
            let is_known = |entry: &Entry| matches!(entry, Entry::Item(name, _) if **name == *text);
            if entries.iter().any(is_known) {
                return Err(problem(line, "a key is defined twice"));
            }
            *key = Some(text.into_owned());
            return Ok(());
        }
        let node = value(text, style, tag, line)?;
        self.add(node, anchor, line)
    }

    fn is_key_next(&self) -> bool {
        match self.frames.last().map(|frame| &frame.what) {
            Some(Collected::Map { key, .. }) => key.is_none(),
            Some(Collected::List(_)) | None => false,
        }
    }

    /// Adds a complete value to its container.
    fn add(&mut self, node: Node, anchor: usize, line: usize) -> Result<(), ReadError> {
        self.count += 1;
        if self.count > MOST {
            return Err(problem(line, "it has too many values"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.note_column();
        let Some(frame) = self.frames.last_mut() else {
            return self.add_document(node, line);
        };
        let later = mem::take(&mut frame.later).into_iter();
        match &mut frame.what {
            Collected::Map { entries, key } => {
                let Some(key) = key.take() else {
                    return Err(problem(line, "a key must be a text"));
                };
                entries.push(Entry::Item(key, node));
                entries.extend(later.map(Entry::Comment));
            }
            Collected::List(elements) => {
                elements.push(Element::Node(node));
                elements.extend(later.map(Element::Comment));
            }
        }
        Ok(())
    }

    fn add_document(&mut self, node: Node, line: usize) -> Result<(), ReadError> {
        let opening = mem::take(&mut self.opening).into_iter().map(Entry::Comment);
        match node {
            Node::Map(map) => self.documents.push(opening.chain(map).collect()),
            Node::Null => self.documents.push(opening.collect()),
            Node::List(_) | Node::Scalar(_) => {
                return Err(problem(line, "the document must be a map"));
            }
        }
        Ok(())
    }

    /// Assigns the comments of a gap to their containers; `next` ends the gap.
    fn place(&mut self, gap: Gap, next: &Event<'_>) {
        let last = gap.comments.len().saturating_sub(1);
        for (position, found) in gap.comments.into_iter().enumerate() {
            let list_goes_on = gap.dash_after || position < last;
            self.place_one(found, next, list_goes_on);
        }
    }

    fn place_one(&mut self, found: PlacedComment, next: &Event<'_>, list_goes_on: bool) {
        let comment = Comment::new(found.text, false);
        let Some(top) = self.frames.last_mut() else {
            // After the last document, a comment belongs to it; before the first, it starts it.
            match (next, self.documents.last_mut()) {
                (Event::DocumentEnd | Event::StreamEnd, Some(map)) => {
                    map.push(Entry::Comment(comment));
                }
                _ => self.opening.push(comment),
            }
            return;
        };
        let starts_value = matches!(next, Event::MappingStart(..) | Event::SequenceStart(..));
        match (&mut top.what, found.stands) {
            // `key: # about the key`, or `key: | # about the text`.
            (
                Collected::Map {
                    entries,
                    key: Some(_),
                },
                CommentPosition::Behind | CommentPosition::BehindMark,
            ) => {
                let inline = found.stands == CommentPosition::BehindMark;
                entries.push(Entry::Comment(Comment { inline, ..comment }));
            }
            // `- | # about the text`.
            (Collected::List(elements), CommentPosition::BehindMark) => {
                let inline = true;
                elements.push(Element::Comment(Comment { inline, ..comment }));
            }
            (
                Collected::Map { key: Some(_), .. },
                CommentPosition::Alone | CommentPosition::BehindDash,
            ) if starts_value => {
                self.opening.push(comment);
            }
            (
                Collected::Map {
                    entries,
                    key: Some(_),
                },
                CommentPosition::Alone | CommentPosition::BehindDash,
            ) => {
                entries.push(Entry::Comment(comment));
            }
            (
                Collected::Map { entries, key: None },
                CommentPosition::Behind | CommentPosition::BehindMark,
            ) => {
                let at = entries.len().saturating_sub(1);
                let inline =
                    matches!(entries.last(), Some(Entry::Item(_, node)) if is_scalar(node));
                entries.insert(at, Entry::Comment(Comment { inline, ..comment }));
            }
            (Collected::List(elements), CommentPosition::Behind) => {
                let at = elements.len().saturating_sub(1);
                let inline =
                    matches!(elements.last(), Some(Element::Node(node)) if is_scalar(node));
                elements.insert(at, Element::Comment(Comment { inline, ..comment }));
            }
            (Collected::Map { key: None, .. } | Collected::List(_), CommentPosition::Alone) => {
                self.place_by_column(comment, found.column, list_goes_on);
            }
            (
                Collected::Map { key: None, .. } | Collected::List(_),
                CommentPosition::BehindDash,
            ) => {
                self.place_by_column(comment, found.column.saturating_sub(2), true);
            }
        }
    }

    fn place_by_column(&mut self, comment: Comment, column: usize, list_goes_on: bool) {
        let top = self.frames.len() - 1;
        let mut at = top;
        while at > 0 {
            let fits = match self.frames[at].column {
                None => true,
                Some(own) if own > column => false,
                // A list without extra indentation has the column of the enclosing map.
                Some(own) => {
                    let is_list = matches!(self.frames[at].what, Collected::List(_));
                    !is_list || list_goes_on || self.frames[at - 1].column != Some(own)
                }
            };
            if fits {
                break;
            }
            at -= 1;
        }
        let frame = &mut self.frames[at];
        if at < top {
            frame.later.push(comment);
            return;
        }
        match &mut frame.what {
            Collected::Map { entries, .. } => entries.push(Entry::Comment(comment)),
            Collected::List(elements) => elements.push(Element::Comment(comment)),
        }
    }
}

/// Moves comments at the end of a map into the container that is its last value, as the official tool does.
fn settle(entries: &mut Map) {
    let is_item = |entry: &Entry| matches!(entry, Entry::Item(..));
    let Some(last) = entries.iter().rposition(is_item) else {
        return;
    };
    let mut comments = entries.split_off(last + 1);
    match entries.last_mut() {
        Some(Entry::Item(_, node)) if !comments.is_empty() && is_filled(node) => {
            for entry in comments {
                if let Entry::Comment(comment) = entry {
                    put_innermost(node, comment);
                }
            }
        }
        _ => entries.append(&mut comments),
    }
}

fn put_innermost(node: &mut Node, comment: Comment) {
    match node {
        Node::Map(entries) => match entries.last_mut() {
            Some(Entry::Item(_, last)) if is_filled(last) => put_innermost(last, comment),
            _ => entries.push(Entry::Comment(comment)),
        },
        Node::List(elements) => match elements.last_mut() {
            Some(Element::Node(last)) if is_filled(last) => put_innermost(last, comment),
            _ => elements.push(Element::Comment(comment)),
        },
        Node::Null | Node::Scalar(_) => {}
    }
}

fn is_filled(node: &Node) -> bool {
    match node {
        Node::Map(entries) => !entries.is_empty(),
        Node::List(elements) => !elements.is_empty(),
        Node::Null | Node::Scalar(_) => false,
    }
}

fn value(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Node, ReadError> {
    let is_plain = style == ScalarStyle::Plain;
    match tag {
        None if is_plain => plain::resolve(&text).map_err(|TooLarge| too_large(line)),
        None => Ok(Node::Scalar(Scalar::text(text))),
        Some(tag) if !tag.is_yaml_core_schema() => Err(foreign_tag(tag, line)),
        Some(tag) => match tag.suffix.as_str() {
            "str" => Ok(Node::Scalar(Scalar::text(text))),
            "int" | "bool" | "null" | "timestamp" => {
                plain::resolve(&text).map_err(|TooLarge| too_large(line))
            }
            "float" => match text.replace('_', "").parse() {
                Ok(value) => Ok(Node::Scalar(Scalar::float(value))),
                Err(_) => plain::resolve(&text).map_err(|TooLarge| too_large(line)),
            },
            _ => Err(foreign_tag(tag, line)),
        },
    }
}

fn check_tag(tag: Option<&Tag>, own: &str, line: usize) -> Result<(), ReadError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == own) => {
            Err(foreign_tag(tag, line))
        }
        Some(_) | None => Ok(()),
    }
}

fn foreign_tag(tag: &Tag, line: usize) -> ReadError {
    let said = format!(
        "the tag `{}{}` would be lost: SOPS keeps none",
        tag.handle, tag.suffix
    );
    problem(line, said)
}

fn too_large(line: usize) -> ReadError {
    problem(
        line,
        "a number does not fit 64 bits with a sign: put it in quotes",
    )
}

fn problem(line: usize, problem: impl Into<String>) -> ReadError {
    ReadError {
        line,
        problem: problem.into(),
    }
}

fn is_text(node: &Node) -> bool {
    matches!(node, Node::Scalar(scalar) if scalar.kind == super::super::tree::Kind::Text)
}

fn is_scalar(node: &Node) -> bool {
    matches!(node, Node::Scalar(_) | Node::Null)
}

fn size(node: &Node) -> usize {
    match node {
        Node::Map(map) => map
            .iter()
            .map(|entry| match entry {
                Entry::Item(_, node) => 1 + size(node),
                Entry::Comment(_) => 1,
            })
            .sum(),
        Node::List(list) => list
            .iter()
            .map(|element| element.node().map_or(1, |node| 1 + size(node)))
            .sum(),
        Node::Scalar(_) | Node::Null => 1,
    }
}
