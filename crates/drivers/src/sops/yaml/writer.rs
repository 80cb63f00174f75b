//! Writes a document as YAML with the quotes, indentation and comment positions of the official tool. A file looks
//! the same whichever tool wrote it.

use std::fmt::Write as _;

use super::super::tree::{self, Comment, Document, Element, Entry, Kind, Map, Node, Scalar};
use super::plain;

/// Longer keys are written with `?`.
const LONGEST_KEY: usize = 128;

pub(in super::super) fn write(document: &Document, indent: usize) -> String {
    let mut writer = Writer {
        out: String::new(),
        step: indent,
        open_ended: false,
    };
    for (position, map) in document.0.iter().enumerate() {
        if position > 0 {
            writer.out.push_str("---\n");
        }
        if has_items(map) || !map.iter().any(|entry| matches!(entry, Entry::Comment(_))) {
            writer.root(map);
        } else {
            writer.comments(map.iter().filter_map(Entry::comment), 0);
        }
    }
    if writer.open_ended {
        writer.out.push_str("...\n");
    }
    writer.out
}

struct Writer {
    out: String,
    step: usize,
    /// The last value ends with line breaks that the end of the text would drop.
    open_ended: bool,
}

impl Writer {
    fn root(&mut self, map: &Map) {
        if has_items(map) {
            self.map(map, 0, false);
        } else {
            self.out.push_str("{}\n");
        }
    }

    /// Each entry on its own lines at `indent`; the first may continue the current line.
    fn map(&mut self, map: &Map, indent: usize, goes_on: bool) {
        let mut first = goes_on;
        let mut before: Vec<&Comment> = Vec::new();
        for entry in map {
            match entry {
                Entry::Comment(comment) => before.push(comment),
                Entry::Item(key, node) => {
                    let inline = self.lead(&mut before, node, indent, first);
                    if !first {
                        self.pad(indent);
                    }
                    first = false;
                    self.item(key, node, indent, &inline);
                }
            }
        }
        self.comments(before.into_iter(), indent);
    }

    /// Writes the comments above a value, unless they were written before a dash. Returns those that go after it.
    fn lead<'a>(
        &mut self,
        before: &mut Vec<&'a Comment>,
        node: &Node,
        indent: usize,
        went_before: bool,
    ) -> Vec<&'a Comment> {
        let (inline, above): (Vec<_>, Vec<_>) = before
            .drain(..)
            .partition(|comment| stands_behind(comment, node));
        if !went_before {
            self.comments(above.into_iter(), indent);
        }
        inline
    }

    fn item(&mut self, key: &str, node: &Node, indent: usize, inline: &[&Comment]) {
        if tree::is_merge(key, node) {
            self.out.push_str("!!merge <<");
        } else if key.len() > LONGEST_KEY || key.contains('\n') {
            self.out.push_str("? ");
            self.quote(key);
            self.out.push('\n');
            self.pad(indent);
        } else {
            self.text(key, true, indent, &[]);
        }
        self.out.push(':');
        let below = self.below(indent);
        match node {
            Node::Map(map) if has_items(map) => {
                self.out.push('\n');
                self.map(map, below, false);
            }
            Node::List(list) if list.iter().any(|element| element.node().is_some()) => {
                self.out.push('\n');
                self.list(list, below, false);
            }
            Node::Map(_) | Node::List(_) | Node::Scalar(_) | Node::Null => {
                self.out.push(' ');
                self.value(node, below, inline);
            }
        }
    }

    fn list(&mut self, list: &[Element], indent: usize, goes_on: bool) {
        let mut first = goes_on;
        let mut before: Vec<&Comment> = Vec::new();
        for element in list {
            match element {
                Element::Comment(comment) => before.push(comment),
                Element::Node(node) => {
                    let inline = self.lead(&mut before, node, indent, first);
                    if !first {
                        // The leading comments of an element go before the dash.
                        self.comments(leading(node).into_iter(), indent);
                        self.pad(indent);
                    }
                    first = false;
                    self.out.push_str("- ");
                    match node {
                        Node::Map(map) if has_items(map) => self.map(map, indent + 2, true),
                        Node::List(list) if list.iter().any(|element| element.node().is_some()) => {
                            self.list(list, indent + 2, true);
                        }
                        Node::Map(_) | Node::List(_) | Node::Scalar(_) | Node::Null => {
                            self.value(node, indent + 2, &inline);
                        }
                    }
                }
            }
        }
        self.comments(before.into_iter(), indent);
    }

    fn value(&mut self, node: &Node, indent: usize, inline: &[&Comment]) {
        self.open_ended = false;
        match node {
            Node::Map(_) => self.out.push_str("{}"),
            Node::List(_) => self.out.push_str("[]"),
            Node::Null => self.out.push_str("null"),
            Node::Scalar(scalar) => {
                if self.scalar(scalar, indent, inline) {
                    return;
                }
            }
        }
        self.inline(inline, indent);
    }

    /// Returns whether the line has been ended.
    fn scalar(&mut self, scalar: &Scalar, indent: usize, inline: &[&Comment]) -> bool {
        let text = scalar.text.expose();
        match scalar.kind {
            Kind::Text => return self.text(text, false, indent, inline),
            Kind::Int | Kind::Time => self.out.push_str(text),
            Kind::Bool => self.out.push_str(&text.to_ascii_lowercase()),
            // A point or an exponent stays, so that the value is read as a float again.
            Kind::Float => match text {
                "+Inf" => self.out.push_str(".inf"),
                "-Inf" => self.out.push_str("-.inf"),
                "NaN" => self.out.push_str(".nan"),
                _ => match text.parse::<f64>() {
                    Ok(value) => {
                        let _ = write!(self.out, "{value:?}");
                    }
                    Err(_) => self.out.push_str(text),
                },
            },
        }
        false
    }

    fn text(&mut self, text: &str, is_key: bool, indent: usize, inline: &[&Comment]) -> bool {
        let looks = ScalarStyles::of(text);
        if text.contains('\n') {
            if looks.as_block && !is_key {
                self.block(text, indent, inline);
                return true;
            }
            self.quote(text);
        } else if !plain::is_text(text) {
            self.quote(text);
        } else if looks.plain {
            self.out.push_str(text);
        } else if looks.single_quoted && !(is_key && text.chars().any(is_break)) {
            self.out.push('\'');
            self.out.push_str(&text.replace('\'', "''"));
            self.out.push('\'');
        } else {
            self.quote(text);
        }
        false
    }

    /// `|` with the indicator for trailing line breaks.
    fn block(&mut self, text: &str, indent: usize, inline: &[&Comment]) {
        self.out.push('|');
        if !text.ends_with('\n') {
            self.out.push('-');
        } else if text.ends_with("\n\n") {
            self.out.push('+');
            self.open_ended = true;
        }
        self.inline(inline, indent);
        let lines = text.strip_suffix('\n').unwrap_or(text);
        for line in lines.split('\n') {
            if !line.is_empty() {
                self.pad(indent);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    fn quote(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            let short = match c {
                '\0' => '0',
                '\u{7}' => 'a',
                '\u{8}' => 'b',
                '\t' => 't',
                '\n' => 'n',
                '\u{b}' => 'v',
                '\u{c}' => 'f',
                '\r' => 'r',
                '\u{1b}' => 'e',
                '"' => '"',
                '\\' => '\\',
                '\u{85}' => 'N',
                '\u{2028}' => 'L',
                '\u{2029}' => 'P',
                _ if is_printable(c) => {
                    self.out.push(c);
                    continue;
                }
                _ => {
                    let _ = match c as u32 {
                        code @ ..=0xff => write!(self.out, "\\x{code:02X}"),
                        code @ ..=0xffff => write!(self.out, "\\u{code:04X}"),
                        code => write!(self.out, "\\U{code:08X}"),
                    };
                    continue;
                }
            };
            self.out.push('\\');
            self.out.push(short);
        }
        self.out.push('"');
    }

    fn comments<'a>(&mut self, comments: impl Iterator<Item = &'a Comment>, indent: usize) {
        for comment in comments {
            self.pad(indent);
            self.comment(comment);
        }
    }

    /// Writes comments after a value on its line; further ones go below.
    fn inline(&mut self, comments: &[&Comment], indent: usize) {
        match comments.split_first() {
            None => self.out.push('\n'),
            Some((first, more)) => {
                self.out.push(' ');
                self.comment(first);
                self.comments(more.iter().copied(), indent);
            }
        }
    }

    fn comment(&mut self, comment: &Comment) {
        self.out.push('#');
        self.out.push_str(comment.text.expose());
        self.out.push('\n');
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// The next indent that is a multiple of the step.
    fn below(&self, indent: usize) -> usize {
        self.step * ((indent + self.step) / self.step)
    }
}

fn has_items(map: &Map) -> bool {
    map.iter().any(|entry| matches!(entry, Entry::Item(..)))
}

/// Whether a comment is on the line of the value that follows it in the tree.
fn stands_behind(comment: &Comment, node: &Node) -> bool {
    comment.inline && !matches!(node, Node::Map(_) | Node::List(_))
}

/// Comments above the first value of a container that starts on the line of a dash, recursively.
fn leading(node: &Node) -> Vec<&Comment> {
    let mut found = Vec::new();
    let first = match node {
        Node::Map(map) => map.iter().find_map(|entry| match entry {
            Entry::Comment(comment) => {
                found.push(comment);
                None
            }
            // The value of a key starts on its own line.
            Entry::Item(_, node) => Some((node, false)),
        }),
        Node::List(list) => list.iter().find_map(|element| match element {
            Element::Comment(comment) => {
                found.push(comment);
                None
            }
            Element::Node(node) => Some((node, true)),
        }),
        Node::Scalar(_) | Node::Null => None,
    };
    if let Some((node, begins_here)) = first {
        found.retain(|comment| !stands_behind(comment, node));
        if begins_here {
            found.extend(leading(node));
        }
    }
    found
}

impl Entry {
    fn comment(&self) -> Option<&Comment> {
        match self {
            Self::Comment(comment) => Some(comment),
            Self::Item(..) => None,
        }
    }
}

/// The styles in which a text may be written.
struct ScalarStyles {
    plain: bool,
    single_quoted: bool,
    as_block: bool,
}

impl ScalarStyles {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut tab, mut space_break, mut break_space) = (false, false, false, false);
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            indicators |= match (c, previous) {
                ('#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>', None) => true,
                ('\'' | '"' | '%' | '@' | '`', None) => true,
                ('?' | '-', None) => before_blank,
                (':', _) => before_blank,
                ('#', Some(' ' | '\t')) => true,
                _ => false,
            };
            tab |= c == '\t';
            special |= c != '\t' && !is_printable(c);
            space_break |= is_break(c) && previous == Some(' ');
            break_space |= c == ' ' && previous.is_some_and(is_break);
            previous = Some(c);
        }
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let (first, last) = (text.chars().next(), previous);
        let is_single_line = !text.chars().any(is_break);
        let single_quoted = !(space_break || break_space || tab || special);
        Self {
            plain: single_quoted && is_single_line && !indicators && !edge(first) && !edge(last),
            single_quoted,
            // A block that begins with a space would need an indentation indicator; quotes are safer.
            as_block: !(space_break || special || last == Some(' ') || edge(first)),
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Like the official tool: characters beyond the basic plane are not printable.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}
