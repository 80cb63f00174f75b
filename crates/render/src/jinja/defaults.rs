//! `{% macro m(a, b=a) %}`: a default may name an earlier argument. The engine evaluates defaults before any
//! argument is bound, so the macro itself fills in such a default.

use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::Token;
use minijinja::value::{Object, ObjectRepr};
use minijinja::{Environment, Value};

use super::code::{BlockDelimiters, Tokens, closed, end, start, statements};

/// Marks an argument that was not given.
#[derive(Debug)]
struct Unset;

impl Object for Unset {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_global(UNSET, Value::from_object(Unset));
    env.add_test(UNSET, |value: &Value| {
        value.downcast_object_ref::<Unset>().is_some()
    });
}

/// The expression that replaces such a default.
pub(super) const UNSET: &str = "__unset";

/// An argument that its macro fills in.
pub(super) struct Fill<'s> {
    name: &'s str,
    /// The position for the added statements, before the end of the macro's own.
    pub(super) at: usize,
}

impl Fill<'_> {
    pub(super) fn statements(&self, value: &str, (open, close): BlockDelimiters<'_>) -> String {
        let name = self.name;
        format!(
            "{close}{open} if {name} is {UNSET} {close}{open} set {name} = ({value}) {close}{open} endif"
        )
    }
}

/// The defaults that name earlier arguments.
pub(super) fn fills<'s>(tokens: Tokens<'_, 's>) -> Vec<(Range<usize>, Fill<'s>)> {
    let mut fills = Vec::new();
    for (at, statement) in statements(tokens) {
        if !matches!(statement[0].0, Token::Ident("macro")) {
            continue;
        }
        let Some(after) = closed(tokens, at + 2) else {
            continue;
        };
        let mut names = Vec::new();
        for argument in arguments(tokens, at + 3..after - 1) {
            let Some((Token::Ident(name), _)) = tokens.get(argument.start) else {
                continue;
            };
            let default = argument.start + 2..argument.end;
            let names_another = default.clone().any(|at| match tokens[at].0 {
                Token::Ident(word) => {
                    names.contains(&word) && !matches!(tokens[at - 1].0, Token::Dot)
                }
                _ => false,
            });
            names.push(*name);
            if names_another {
                let range = start(&tokens[default.start])..end(&tokens[default.end - 1]);
                let at = end(&tokens[after - 1]);
                fills.push((range, Fill { name, at }));
            }
        }
    }
    fills
}

/// The tokens of each argument between the brackets.
fn arguments(tokens: Tokens<'_, '_>, within: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut begin, mut depth) = (Vec::new(), within.start, 0);
    for at in within.clone() {
        match tokens[at].0 {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth -= 1,
            Token::Comma if depth == 0 => {
                found.push(begin..at);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(begin..within.end);
    found
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;

    #[test]
    fn a_default_that_names_an_argument_is_filled_in_by_the_macro() {
        check(
            "{% macro m(a, b=a, c=1) -%}{{ b }}{% endmacro %}",
            "{% macro m(a, b=__unset, c=1)%}{% if b is __unset %}{% set b = (a) %}{% endif -%}{{ b }}{% endmacro %}",
        );
    }

    #[test]
    fn what_moves_is_put_into_other_words_too() {
        check(
            "{% macro m(a, b=['%d' % a]) %}{{ varargs }}{% endmacro %}",
            "{% macro m(a, b=__unset, varargs=none, kwargs=none)%}{% if b is __unset %}{% set b = (__list(['%d' |__mod__( a)])) %}{% endif %}{{ varargs }}{% endmacro%}{% set m = __variadic(m, true, false) %}",
        );
    }

    #[test]
    fn other_defaults_stay() {
        let source = "{% macro m(a, b=x.a, c='a') %}{% endmacro %}";
        check(source, source);
    }
}
