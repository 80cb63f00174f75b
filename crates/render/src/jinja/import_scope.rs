//! Limits what an imported or included template sees. In Jinja2, an import, or an include `without context`, sees
//! the data but none of the names set by the importing template. The engine shows both everything. So both are
//! rewritten to run inside a macro, alone in a `with` block: a macro shares the names set beside it. Names that an
//! include sets are its own.

use std::fmt::Write as _;

use minijinja::machinery::Token;
use minijinja::{Environment, State, Value};

use super::code::{BlockDelimiters, Edit, Tokens, end, is_word, range, start, statements};

/// The state key of a module between its import and its use.
const KEPT: &str = "terrane-module";

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_function("__keep", |state: &mut State<'_, '_>, module: Value| {
        state.set_temp(KEPT, module);
    });
    env.add_function("__kept", |state: &State<'_, '_>| {
        state.get_temp(KEPT).unwrap_or_default()
    });
    // A statement, so that the line break after it is handled like that of any other.
    env.add_filter("__put", |_: &Value, made: Value| made);
}

/// The edits of a template.
pub(super) fn edits(tokens: Tokens<'_, '_>, block: BlockDelimiters<'_>) -> Vec<Edit> {
    let all = statements(tokens).filter_map(|(_, statement)| {
        let (Token::Ident(word), _) = &statement[0] else {
            return None;
        };
        match *word {
            "include" => include(statement, block),
            "import" => import(statement, block),
            "from" => from(statement, block),
            _ => None,
        }
    });
    all.flatten().collect()
}

fn include(statement: Tokens<'_, '_>, (open, close): BlockDelimiters<'_>) -> Option<Vec<Edit>> {
    let more = find(statement, &["ignore", "with", "without"]).unwrap_or(statement.len());
    let (name, more) = statement.split_at(more);
    if !more.iter().any(|token| is_word(Some(token), "without")) {
        let before = format!("with{close}{open} ");
        return Some(vec![
            Edit::open(start(&name[0]), before),
            Edit::open(end(statement.last()?), format!("{close}{open} endwith")),
        ]);
    }
    let may_miss = if is_word(more.first(), "ignore") {
        " ignore missing"
    } else {
        ""
    };
    let before = format!(
        "with{close}{open} macro __apart(__from){close}{open} include __from{may_miss}{close}{open} endmacro{close}{open} filter __put(__apart("
    );
    let from = end(name.last()?);
    Some(vec![
        Edit::replace(range(&name[0]), before),
        Edit::replace(
            from..end(more.last()?),
            format!(")){close}{open} endfilter{close}{open} endwith"),
        ),
    ])
}

/// The code that imports a module and stores it, up to the position of its name.
fn keeping((open, close): BlockDelimiters<'_>) -> String {
    format!(
        "with{close}{open} macro __apart(__from){close}{open} import __from as __module{close}{open} do __keep(__module){close}{open} endmacro{close}{open} do __apart("
    )
}

fn import(statement: Tokens<'_, '_>, block: BlockDelimiters<'_>) -> Option<Vec<Edit>> {
    let at = find(statement, &["as"])?;
    let (name, more) = statement[at + 1..].split_first()?;
    if is_word(more.first(), "with") {
        return None;
    }
    let (open, close) = block;
    Some(vec![
        Edit::replace(range(&statement[0]), keeping(block)),
        Edit::replace(
            range(&statement[at]),
            format!("){close}{open} endwith{close}{open} set"),
        ),
        Edit::replace(end(name)..end(statement.last()?), " = __kept()"),
    ])
}

fn from(statement: Tokens<'_, '_>, block: BlockDelimiters<'_>) -> Option<Vec<Edit>> {
    let at = find(statement, &["import"])?;
    let mut names = &statement[at + 1..];
    if let [.., word, _] = names
        && (is_word(Some(word), "with") || is_word(Some(word), "without"))
    {
        if is_word(Some(word), "with") {
            return None;
        }
        names = &names[..names.len() - 2];
    }
    let (open, close) = block;
    let mut sets = format!("){close}{open} endwith");
    for name in names.split(|(token, _)| matches!(token, Token::Comma)) {
        let (name, alias) = match name {
            [] => continue,
            [(Token::Ident(name), _)] => (name, name),
            [
                (Token::Ident(name), _),
                (Token::Ident("as"), _),
                (Token::Ident(alias), _),
            ] => (name, alias),
            _ => return None, // the engine reports the error
        };
        if name.starts_with('_') {
            return None;
        }
        _ = write!(sets, "{close}{open} set {alias} = __kept().{name}");
    }
    Some(vec![
        Edit::replace(range(&statement[0]), keeping(block)),
        Edit::replace(start(&statement[at])..end(statement.last()?), sets),
    ])
}

/// A word of the statement, outside brackets.
fn find(statement: Tokens<'_, '_>, words: &[&str]) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in statement.iter().enumerate().skip(1) {
        match token.0 {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth -= 1,
            Token::Ident(word) if depth == 0 && at > 1 && words.contains(&word) => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;

    #[test]
    fn imports_and_includes_see_nothing_of_what_is_around_them() {
        check(
            "{%- import 'a' as m -%}",
            "{%- with%}{% macro __apart(__from)%}{% import __from as __module%}{% do __keep(__module)%}{% endmacro%}{% do __apart( 'a' )%}{% endwith%}{% set m = __kept() -%}",
        );
        check(
            "{% from a.b import x, y as z without context %}",
            "{% with%}{% macro __apart(__from)%}{% import __from as __module%}{% do __keep(__module)%}{% endmacro%}{% do __apart( a.b )%}{% endwith%}{% set x = __kept().x%}{% set z = __kept().y %}",
        );
        check(
            "{% include ['a'] ignore missing without context %}",
            "{% with%}{% macro __apart(__from)%}{% include __from ignore missing%}{% endmacro%}{% filter __put(__apart( __list(['a'])))%}{% endfilter%}{% endwith %}",
        );
    }

    #[test]
    fn who_asks_for_the_context_gets_it() {
        for source in [
            "{% from 'a' import x with context %}",
            "{% import 'a' as x with context %}",
        ] {
            check(source, source);
        }
        check(
            "{% include 'a' ignore missing with context %}",
            "{% with%}{% include 'a' ignore missing with context%}{% endwith %}",
        );
    }
}
