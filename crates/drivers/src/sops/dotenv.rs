//! Documents as `NAME=value` lines. A line break in a value is written as `\n`; blank lines are not kept.

use super::ReadError;
use super::tree::{Comment, Document, Entry, Map, Node, Scalar};

pub(super) fn read(text: &str) -> Result<Document, ReadError> {
    let mut map = Map::new();
    for (number, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            map.push(Entry::Comment(Comment::new(comment, false)));
            continue;
        }
        let problem = |problem: String| ReadError {
            line: number + 1,
            problem,
        };
        let Some((name, value)) = line.split_once('=') else {
            return Err(problem("there is no `=` in it".to_owned()));
        };
        if map
            .iter()
            .any(|entry| matches!(entry, Entry::Item(known, _) if known == name))
        {
            return Err(problem("a name is defined twice".to_owned()));
        }
        let value = Scalar::text(value.replace("\\n", "\n"));
        map.push(Entry::Item(name.to_owned(), Node::Scalar(value)));
    }
    Ok(Document(vec![map]))
}

pub(super) fn write(document: &Document) -> String {
    let mut out = String::new();
    for entry in document.0.iter().flatten() {
        match entry {
            Entry::Comment(comment) => {
                out.push('#');
                out.push_str(comment.text.expose());
            }
            Entry::Item(name, node) => {
                out.push_str(name);
                out.push('=');
                if let Node::Scalar(scalar) = node {
                    out.push_str(&scalar.spoken().expose().replace('\n', "\\n"));
                }
            }
        }
        out.push('\n');
    }
    out
}
