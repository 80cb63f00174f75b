//! Rewrites templates for the engine, which lacks some features of Jinja2: formatting by `%` (`percent`), the
//! scope of imports and includes (`import_scope`), macros with extra arguments (`variadic`) or with a default
//! that names another argument (`defaults`), lists and maps that change (`mutable`). First, string literals
//! are read as in Python (`literals`).
//!
//! The engine's own tokens separate code from text, whatever the delimiters are. They are not a stable
//! interface: the tests of each module and the makejinja corpus show when they change.

use std::ops::Range;

use minijinja::Error;
use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::{defaults, import_scope, literals, mutable, percent, variadic};

pub(super) type Tokens<'t, 's> = &'t [(Token<'s>, Span)];

/// The delimiters of statements.
pub(super) type BlockDelimiters<'b> = (&'b str, &'b str);

/// A template as the engine sees it.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) text: String,
    /// The inserted parts and what each replaces.
    moves: Vec<Move>,
    /// The previous stage, if this is a further rewrite.
    from: Option<Box<Code>>,
}

#[derive(Clone, Debug)]
struct Move {
    new: Range<usize>,
    old: Range<usize>,
}

/// A replacement of a part of the source.
pub(super) struct Edit {
    at: Range<usize>,
    new: String,
    /// It closes something opened earlier, so it precedes other insertions at the same position.
    closes: bool,
}

impl Edit {
    pub(super) fn replace(at: Range<usize>, new: impl Into<String>) -> Self {
        let (new, closes) = (new.into(), false);
        Self { at, new, closes }
    }

    pub(super) fn open(at: usize, new: impl Into<String>) -> Self {
        Self::replace(at..at, new)
    }

    pub(super) fn close(at: usize, new: impl Into<String>) -> Self {
        let (at, new, closes) = (at..at, new.into(), true);
        Self { at, new, closes }
    }

    /// Whether it concerns only this range.
    fn is_within(&self, range: &Range<usize>) -> bool {
        let begins = self.at.start > range.start || (self.at.start == range.start && !self.closes);
        let is_behind = self.at.is_empty() && self.at.end == range.end && !self.closes;
        begins && self.at.end <= range.end && !is_behind
    }
}

impl Code {
    /// `changes`: some template changes a list or a map.
    pub(super) fn of_template(
        source: &str,
        syntax: &SyntaxConfig,
        block: BlockDelimiters<'_>,
        changes: bool,
    ) -> Self {
        let found = tokens(source, false, syntax);
        let mut edits = literals::edits(&found, source);
        edits.extend(literals::raw_edits(&found, source, block));
        Self::after(source, edits, |source| {
            Self::of_read_template(source, syntax, block, changes)
        })
    }

    /// The same, for a template whose string literals are already read as in Python.
    fn of_read_template(
        source: &str,
        syntax: &SyntaxConfig,
        block: BlockDelimiters<'_>,
        changes: bool,
    ) -> Self {
        let tokens = tokens(source, false, syntax);
        let mut edits = percent::edits(&tokens);
        edits.extend(import_scope::edits(&tokens, block));
        edits.extend(variadic::edits(&tokens, block));
        if changes {
            edits.extend(mutable::edits(&tokens));
        }
        for (at, fill) in defaults::fills(&tokens) {
            let value = Self::of_part(&source[at.clone()], syntax, changes);
            edits.retain(|edit| !edit.is_within(&at));
            edits.push(Edit::replace(at, defaults::UNSET));
            edits.push(Edit::close(fill.at, fill.statements(&value, block)));
        }
        Self::of(source, edits)
    }

    /// An expression of a template that is moved elsewhere.
    fn of_part(source: &str, syntax: &SyntaxConfig, changes: bool) -> String {
        let tokens = tokens(source, true, syntax);
        let mut edits = percent::edits(&tokens);
        if changes {
            edits.extend(mutable::edits(&tokens));
        }
        Self::of(source, edits).text
    }

    pub(super) fn of_expression(source: &str, syntax: &SyntaxConfig) -> Self {
        let read = literals::edits(&tokens(source, true, syntax), source);
        Self::after(source, read, |source| {
            Self::of(source, percent::edits(&tokens(source, true, syntax)))
        })
    }

    /// Applies edits to a source.
    fn after(source: &str, edits: Vec<Edit>, make: impl Fn(&str) -> Self) -> Self {
        if edits.is_empty() {
            return make(source);
        }
        let first = Self::of(source, edits);
        let made = make(&first.text);
        Self {
            from: Some(Box::new(first)),
            ..made
        }
    }

    fn of(source: &str, mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| (edit.at.start, !edit.closes));
        let (mut text, mut moves, mut done) = (String::new(), Vec::new(), 0);
        for Edit { at, new, .. } in edits {
            text.push_str(&source[done..at.start]);
            let start = text.len();
            text.push_str(&new);
            done = at.end;
            moves.push(Move {
                new: start..text.len(),
                old: at,
            });
        }
        text.push_str(&source[done..]);
        let from = None;
        Self { text, moves, from }
    }

    /// The range of the original template that corresponds to a range of this one.
    pub(super) fn written(&self, range: Range<usize>) -> Range<usize> {
        let back = |offset: usize, is_end: bool| {
            let last = self.moves.partition_point(|m| m.new.start < offset);
            let Some(Move { new, old }) = last.checked_sub(1).map(|last| &self.moves[last]) else {
                return offset;
            };
            match offset.checked_sub(new.end) {
                Some(beyond) => old.end + beyond,
                None if is_end => old.end,
                None => old.start,
            }
        };
        let start = back(range.start, false);
        let written = start..back(range.end, true).max(start);
        match &self.from {
            Some(from) => from.written(written),
            None => written,
        }
    }

    /// Whether the text at this offset was inserted.
    #[cfg(test)]
    fn is_new(&self, at: usize) -> bool {
        let is_own = self.moves.iter().any(|m| m.new.contains(&at));
        let back = |from: &Self| {
            let before = Self {
                from: None,
                ..self.clone()
            };
            from.is_new(before.written(at..at).start)
        };
        is_own || self.from.as_deref().is_some_and(back)
    }
}

/// `None` if this is not a valid template; the engine reports the error.
fn tokens<'s>(
    source: &'s str,
    is_expression: bool,
    syntax: &SyntaxConfig,
) -> Vec<(Token<'s>, Span)> {
    let tokens: Result<Vec<_>, Error> = tokenize(source, is_expression, syntax.clone()).collect();
    tokens.unwrap_or_default()
}

pub(super) fn start(token: &(Token<'_>, Span)) -> usize {
    token.1.start_offset as usize
}

pub(super) fn end(token: &(Token<'_>, Span)) -> usize {
    token.1.end_offset as usize
}

pub(super) fn range(token: &(Token<'_>, Span)) -> Range<usize> {
    start(token)..end(token)
}

/// The statements: the token after the start of each, with the tokens up to its end.
pub(super) fn statements<'t, 's>(
    tokens: Tokens<'t, 's>,
) -> impl Iterator<Item = (usize, Tokens<'t, 's>)> {
    tokens.iter().enumerate().filter_map(|(at, (token, _))| {
        if !matches!(token, Token::BlockStart) {
            return None;
        }
        let rest = &tokens[at + 1..];
        let end = rest
            .iter()
            .position(|(token, _)| matches!(token, Token::BlockEnd))?;
        (end > 0).then(|| (at + 1, &rest[..end]))
    })
}

/// The end of a bracket, if all brackets inside are balanced.
pub(super) fn closed(tokens: Tokens<'_, '_>, at: usize) -> Option<usize> {
    let mut open = Vec::new();
    for (index, (token, _)) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::ParenOpen => open.push(')'),
            Token::BracketOpen => open.push(']'),
            Token::BraceOpen => open.push('}'),
            Token::ParenClose if open.pop() != Some(')') => return None,
            Token::BracketClose if open.pop() != Some(']') => return None,
            Token::BraceClose if open.pop() != Some('}') => return None,
            Token::VariableEnd | Token::BlockEnd => return None,
            _ => {}
        }
        if open.is_empty() {
            return Some(index + 1);
        }
    }
    None
}

pub(super) fn is_word(token: Option<&(Token<'_>, Span)>, word: &str) -> bool {
    matches!(token, Some((Token::Ident(found), _)) if *found == word)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[track_caller]
    pub(in super::super) fn check(source: &str, expected: &str) {
        let code = Code::of_template(source, &SyntaxConfig::default(), ("{%", "%}"), true);
        assert_eq!(code.text, expected);
        // The original position is found from every offset that an error may name.
        for (at, letter) in code.text.char_indices() {
            let is_new = code.is_new(at);
            let written = code.written(at..at + letter.len_utf8());
            let same = source.get(written.clone()) == Some(&letter.to_string());
            assert!(same || is_new, "{at} {letter}: {written:?}");
            assert!(written.end <= source.len(), "{at}: {written:?}");
        }
    }

    #[test]
    fn what_needs_no_other_words_stays_as_it_is() {
        for source in [
            "{{ 7 % 3 }} {{ n % 2 == 0 }} 100% {# '%d' % x #}",
            "{% raw %}{{ '%d' % x }}{{ [1] }}{% import 'x' as y %}{% endraw %}",
            "{{ x | f('%d') % 2 }}",
            "{{ '%d' % }}",
            "{{ '%d' % (1 }}",
            "{{ 'unclosed % x }}",
            "{{ x[0] }} {{ f(x)[1:] }} {{ 'ab'[0] }} [1] {} import",
            "{% macro m(a) %}{{ a }}{% endmacro %}",
        ] {
            check(source, source);
        }
    }
}
