//! Documents as INI: sections of `name = value`. Entries before the first section are in `DEFAULT`.
//!
//! A comment belongs to the section or name below it. In the tree, it is the first entry of the section, or
//! follows the name, where the official tool expects it.

use std::mem;

use super::ReadError;
use super::tree::{Comment, Document, Entry, Map, Node, Scalar};

const DEFAULT: &str = "DEFAULT";

pub(super) fn read(text: &str) -> Result<Document, ReadError> {
    let mut reader = Reader {
        sections: vec![(DEFAULT.to_owned(), Map::new())],
        comment: Vec::new(),
    };
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line = line.trim();
        let number = index + 1;
        if line.is_empty() {
        } else if line.starts_with([';', '#']) {
            reader.comment.push(line.to_owned());
        } else if let Some(name) = line.strip_prefix('[') {
            let Some(end) = name.rfind(']') else {
                return Err(problem(number, "the name of the section does not end"));
            };
            reader.section(&name[..end]);
        } else {
            let (name, value) = split(line, number)?;
            let mut rest = || lines.next().map(|(_, line)| line);
            let (value, comment) = read_value(value, &mut rest, number)?;
            reader.comment.extend(comment);
            reader.value(name, value, number)?;
        }
    }
    Ok(reader.finish())
}

struct Reader {
    sections: Vec<(String, Map)>,
    /// Comment lines since the last value.
    comment: Vec<String>,
}

impl Reader {
    fn section(&mut self, name: &str) {
        let entries = self.take_comment().into_iter().collect();
        self.sections.push((name.trim().to_owned(), entries));
    }

    fn value(&mut self, name: &str, value: String, line: usize) -> Result<(), ReadError> {
        let comment = self.take_comment();
        let Some((_, map)) = self.sections.last_mut() else {
            return Ok(());
        };
        if map
            .iter()
            .any(|entry| matches!(entry, Entry::Item(known, _) if known == name))
        {
            return Err(problem(line, "a name is defined twice"));
        }
        map.push(Entry::Item(
            name.to_owned(),
            Node::Scalar(Scalar::text(value)),
        ));
        map.extend(comment);
        Ok(())
    }

    fn take_comment(&mut self) -> Option<Entry> {
        let lines = mem::take(&mut self.comment);
        let (first, rest) = lines.split_first()?;
        let mark: &[char] = if first.starts_with(';') {
            &[';', ' ']
        } else {
            &['#', ' ']
        };
        let mut text = first.trim_start_matches(mark).to_owned();
        for line in rest {
            text.push('\n');
            text.push_str(line);
        }
        Some(Entry::Comment(Comment::new(text, false)))
    }

    /// A comment at the end of the file is kept with the last section.
    fn finish(mut self) -> Document {
        if let Some(comment) = self.take_comment()
            && let Some((_, map)) = self.sections.last_mut()
        {
            map.push(comment);
        }
        let sections = self.sections.into_iter();
        let entries = sections
            .filter(|(name, map)| name != DEFAULT || !map.is_empty())
            .map(|(name, map)| Entry::Item(name, Node::Map(map)));
        Document(vec![entries.collect()])
    }
}

fn split(line: &str, number: usize) -> Result<(&str, &str), ReadError> {
    for quote in ["\"\"\"", "\"", "`"] {
        if let Some(rest) = line.strip_prefix(quote) {
            let Some((name, rest)) = rest.split_once(quote) else {
                return Err(problem(number, "a quote does not end"));
            };
            let Some(at) = rest.find(['=', ':']) else {
                return Err(problem(number, "there is no `=` in it"));
            };
            return Ok((name.trim(), &rest[at + 1..]));
        }
    }
    match line.find(['=', ':']) {
        None => Err(problem(number, "there is no `=` in it")),
        Some(0) => Err(problem(number, "there is no name before the `=`")),
        Some(at) => Ok((line[..at].trim(), &line[at + 1..])),
    }
}

/// The value and a comment after it.
fn read_value<'a>(
    text: &str,
    rest: &mut impl FnMut() -> Option<&'a str>,
    number: usize,
) -> Result<(String, Option<String>), ReadError> {
    let text = text.trim();
    for quote in ["\"\"\"", "`"] {
        let Some(inner) = text
            .strip_prefix(quote)
            .filter(|_| text.len() >= quote.len())
        else {
            continue;
        };
        if let Some(end) = inner.rfind(quote) {
            return Ok((inner[..end].to_owned(), None));
        }
        let mut value = inner.to_owned();
        loop {
            let Some(line) = rest() else {
                return Err(problem(number, "a quote does not end"));
            };
            value.push('\n');
            if let Some(end) = line.rfind(quote) {
                value.push_str(&line[..end]);
                return Ok((value, None));
            }
            value.push_str(line);
        }
    }
    if let Some(begun) = text.strip_suffix('\\') {
        let mut value = begun.to_owned();
        while let Some(line) = rest() {
            let line = line.trim();
            let Some(begun) = line.strip_suffix('\\') else {
                value.push_str(line);
                break;
            };
            value.push_str(begun);
        }
        return Ok((value, None));
    }
    let (value, comment) = match text.find(['#', ';']) {
        Some(at) => (text[..at].trim_end(), Some(text[at..].to_owned())),
        None => (text, None),
    };
    let unquoted = ['\'', '"'].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    Ok((unquoted.unwrap_or(value).to_owned(), comment))
}

pub(super) fn write(document: &Document) -> String {
    let mut out = String::new();
    let sections = document.0.iter().flatten().filter_map(|entry| match entry {
        Entry::Item(name, Node::Map(map)) => Some((name, map)),
        Entry::Item(..) | Entry::Comment(_) => None,
    });
    for (position, (name, map)) in sections.enumerate() {
        if position > 0 {
            out.push('\n');
        }
        write_section(name, map, position == 0, &mut out);
    }
    out
}

fn write_section(name: &str, map: &Map, is_first: bool, out: &mut String) {
    let mut entries = map.iter().peekable();
    if let Some(Entry::Comment(comment)) = entries.peek() {
        write_comment(comment, out);
        entries.next();
    }
    if !(is_first && name == DEFAULT) {
        out.push('[');
        out.push_str(name);
        out.push_str("]\n");
    }
    let names = map.iter().filter_map(|entry| match entry {
        Entry::Item(name, _) => Some(quoted_name(name).len()),
        Entry::Comment(_) => None,
    });
    let width = names.max().unwrap_or(0);
    while let Some(entry) = entries.next() {
        let Entry::Item(name, node) = entry else {
            continue;
        };
        // In the tree a comment follows its name; in the text it precedes it.
        while let Some(Entry::Comment(comment)) = entries.peek() {
            write_comment(comment, out);
            entries.next();
        }
        let name = quoted_name(name);
        out.push_str(&name);
        out.extend(std::iter::repeat_n(' ', width - name.len()));
        out.push_str(" = ");
        if let Node::Scalar(scalar) = node {
            out.push_str(&quoted_value(scalar.spoken().expose()));
        }
        out.push('\n');
    }
}

fn write_comment(comment: &Comment, out: &mut String) {
    for line in comment.text.expose().split('\n') {
        let mark = line.chars().next().filter(|c| matches!(c, ';' | '#'));
        out.push(mark.unwrap_or(';'));
        out.push(' ');
        out.push_str(line.trim_start_matches([';', '#']).trim());
        out.push('\n');
    }
}

/// A name that the official tool reads differently (`-` counts as a number) or not at all.
pub(super) fn unreadable_name(document: &Document) -> Option<&str> {
    document.0.iter().flatten().find_map(|entry| match entry {
        Entry::Item(section, Node::Map(map)) => {
            let is_odd = |name: &&String| matches!(name.as_str(), "" | "-");
            let names = map.iter().filter_map(|entry| match entry {
                Entry::Item(name, _) => Some(name),
                Entry::Comment(_) => None,
            });
            let section = Some(section).filter(|name| name.is_empty());
            section
                .or_else(|| names.into_iter().find(is_odd))
                .map(String::as_str)
        }
        Entry::Item(..) | Entry::Comment(_) => None,
    })
}

fn quoted_name(name: &str) -> String {
    if name.contains(['"', '=', ':']) {
        format!("`{name}`")
    } else if name.contains('`') {
        format!("\"\"\"{name}\"\"\"")
    } else {
        name.to_owned()
    }
}

fn quoted_value(value: &str) -> String {
    let looks_quoted = value.starts_with(['"', '\'']) || value.ends_with('\\');
    if value.contains(['\n', '`']) {
        format!("\"\"\"{value}\"\"\"")
    } else if value.contains(['#', ';']) || looks_quoted {
        format!("`{value}`")
    } else if value.trim().len() != value.len() {
        format!("\"{value}\"")
    } else {
        value.to_owned()
    }
}

fn problem(line: usize, problem: impl Into<String>) -> ReadError {
    ReadError {
        line,
        problem: problem.into(),
    }
}
