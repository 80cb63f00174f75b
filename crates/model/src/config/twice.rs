//! A name that stands twice in one block or object. The parser stops at the second one; here that one is left out, so that
//! the rest of the file is checked, too.
//!
//! To the parser it is shown under another name of the same length: every place stays where it is.

use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, Object, ObjectKey};
use hcl_edit::parser::{Error, parse_body};
use hcl_edit::structure::{Body, Structure};
use hcl_edit::visit_mut::{VisitMut, visit_body_mut, visit_object_mut};

/// Each one costs a pass of the parser.
const MAX_TWICE: usize = 16;
const MAX_BYTES: usize = 256 * 1024;
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A name that stood there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Twice {
    pub(crate) name: String,
    pub(crate) at: Range<usize>,
    pub(crate) first: Range<usize>,
    pub(crate) in_object: bool,
}

/// What a text says without its doubled names, and those. An error is one of another kind, or one too many.
pub(crate) fn parse(code: &str) -> Result<(Body, Vec<Twice>), Error> {
    let mut text = code.to_owned();
    let mut found: Vec<Twice> = Vec::new();
    let mut letters = LETTERS.chars();
    loop {
        let err = match parse_body(&text) {
            Ok(mut body) => {
                let mut taking = TakingOut { found };
                taking.visit_body_mut(&mut body);
                return Ok((body, taking.found));
            }
            Err(err) => err,
        };
        let offset = err.location().offset();
        let Some(key) = doubled(code, &err).filter(|_| code.len() <= MAX_BYTES) else {
            return Err(err);
        };
        // The same place again: the stand-in was a name of its own, too.
        if found.last().is_none_or(|last| last.at.start != offset) {
            letters = LETTERS.chars();
            found.push(key);
        }
        let (Some(letter), Some(last)) = (letters.next(), found.last()) else {
            return Err(err);
        };
        if found.len() > MAX_TWICE || last.name.is_empty() {
            return Err(err);
        }
        let quote = usize::from(code[last.at.clone()].starts_with('"'));
        let inside = last.at.start + quote..last.at.end - quote;
        let stand_in = format!("{letter}{}", "_".repeat(inside.len() - 1));
        text.replace_range(inside, &stand_in);
    }
}

/// The doubled name that an error is about, where it can be said what it is.
pub(crate) fn doubled(code: &str, err: &Error) -> Option<Twice> {
    let in_object = err.message().contains("redefined object key");
    if !in_object && !err.message().contains("redefined attribute") {
        return None;
    }
    let start = err.location().offset();
    let rest = code.get(start..)?;
    let (name, end) = if let Some(inside) = rest.strip_prefix('"') {
        let end = inside.find('"')?;
        let name = &inside[..end];
        let is_plain = !name.contains(['\\', '$', '%', '\n']);
        (name, is_plain.then_some(start + end + 2)?)
    } else {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        (&rest[..end], start + end)
    };
    Some(Twice {
        name: name.to_owned(),
        at: start..end,
        first: start..end,
        in_object,
    })
}

/// Takes the stand-ins out, and notes where their names stand first.
struct TakingOut {
    found: Vec<Twice>,
}

impl TakingOut {
    fn stand_in(&mut self, at: Option<Range<usize>>) -> Option<&mut Twice> {
        let start = at?.start;
        self.found.iter_mut().find(|twice| twice.at.start == start)
    }
}

impl VisitMut for TakingOut {
    fn visit_body_mut(&mut self, body: &mut Body) {
        // What is inside comes first: it may go with what holds it.
        visit_body_mut(self, body);
        let mut at = 0;
        while let Some(structure) = body.get(at) {
            let key = match structure {
                Structure::Attribute(attribute) => attribute.key.span(),
                Structure::Block(_) => None,
            };
            let Some(twice) = self.stand_in(key) else {
                at += 1;
                continue;
            };
            let first = body.get_attribute(&twice.name);
            if let Some(first) = first.and_then(|it| it.key.span()) {
                twice.first = first;
            }
            body.remove(at);
        }
    }

    fn visit_object_mut(&mut self, object: &mut Object) {
        visit_object_mut(self, object);
        let keys: Vec<ObjectKey> = object.iter().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            let Some(twice) = self.stand_in(key.span()) else {
                continue;
            };
            let first = keys.iter().find(|other| word(other) == Some(&twice.name));
            if let Some(first) = first.and_then(Span::span) {
                twice.first = first;
            }
            object.remove(key);
        }
    }
}

fn word(key: &ObjectKey) -> Option<&str> {
    match key {
        ObjectKey::Ident(name) => Some(name.as_str()),
        ObjectKey::Expression(expr) => Expression::as_str(expr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, expected: &[(&str, &str)]) {
        let (_, twice) = parse(code).unwrap();
        let line = |at: &Range<usize>| code[..at.start].lines().count();
        let seen: Vec<(String, String)> = twice
            .iter()
            .map(|it| {
                let lines = format!("{} {}", line(&it.first), line(&it.at));
                (code[it.at.clone()].to_owned(), lines)
            })
            .collect();
        let seen: Vec<(&str, &str)> = seen.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn each_doubled_name_is_found_with_its_first_place() {
        check("a = 1\nb = 2\n", &[]);
        check(" a = 1\n a = 2\n", &[("a", "1 2")]);
        check(
            "x {\n  path = 1\n  y {\n    path = 1\n  }\n  path = 3\n  path = 4\n}\n",
            &[("path", "2 6"), ("path", "2 7")],
        );
        check(
            " o = {\n  v = 1\n  a = 2\n  \"k\" = 4\n  v = { w = 1, w = 2 }\n  \"k\" = 5\n }\n",
            &[("v", "2 5"), ("w", "5 5"), ("\"k\"", "4 6")],
        );
    }

    #[test]
    fn what_cannot_be_named_stays_an_error() {
        assert!(parse("o = { (a) = 1, (a) = 2 }\n").is_err());
        assert!(parse("o = { \"\" = 1, \"\" = 2 }\n").is_err());
        assert!(parse("a = 1\na = 2\nb = \n").is_err());
        let many = "a = 1\n".repeat(MAX_TWICE + 2);
        assert!(parse(&many).is_err());
    }
}
