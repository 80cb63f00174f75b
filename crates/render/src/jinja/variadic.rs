//! Macros that use `varargs` or `kwargs` accept further arguments, as in Jinja2. The engine's macros do not, so
//! these two become parameters, and added code fills them.

use std::sync::Arc;

use minijinja::machinery::Token;
use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, Tuple, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::code::{BlockDelimiters, Edit, Tokens, closed, end, is_word, start, statements};

const BY_PLACE: &str = "varargs";
const BY_NAME: &str = "kwargs";

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_function(
        "__variadic",
        |inner: Value, by_place: bool, by_name: bool| {
            let names = inner.get_attr("arguments").and_then(|names| {
                let names = names.try_iter()?;
                Ok(names.filter_map(|name| name.as_str().map(str::to_owned)))
            });
            let mut names: Vec<String> = names?.collect();
            names.truncate(names.len().saturating_sub(2));
            Ok::<_, Error>(Value::from_object(Variadic {
                inner,
                names,
                by_place,
                by_name,
            }))
        },
    );
}

#[derive(Debug)]
struct Variadic {
    inner: Value,
    names: Vec<String>,
    by_place: bool,
    by_name: bool,
}

impl Object for Variadic {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "arguments" => {
                let names: Vec<Value> = self.names.iter().map(Value::from).collect();
                Some(Value::from(Tuple::from(names)))
            }
            "catch_varargs" => Some(Value::from(self.by_place)),
            "catch_kwargs" => Some(Value::from(self.by_name)),
            name => self.inner.get_attr(name).ok(),
        }
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let (places, named): (Rest<Value>, Kwargs) = from_args(args)?;
        let own = places.len().min(self.names.len());
        let (own, more) = places.split_at(own);
        if !self.by_place && !more.is_empty() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let mut passed: Vec<(String, Value)> = Vec::new();
        let mut others: Vec<(String, Value)> = Vec::new();
        for name in named.args() {
            let value: Value = named.get(name)?;
            let is_own = name == "caller" || self.names.iter().any(|own| own == name);
            let to = if is_own || !self.by_name {
                &mut passed
            } else {
                &mut others
            };
            to.push((name.to_owned(), value));
        }
        let more = Value::from(Tuple::from(more.to_vec()));
        passed.push((BY_PLACE.to_owned(), more));
        let others = others.into_iter().map(|(name, it)| (Value::from(name), it));
        passed.push((BY_NAME.to_owned(), Value::from_pairs(others)));
        let mut all = own.to_vec();
        all.push(Value::from(passed.into_iter().collect::<Kwargs>()));
        self.inner.call(state, &all)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.inner)
    }
}

/// The edits of a template.
pub(super) fn edits(tokens: Tokens<'_, '_>, (open, close): BlockDelimiters<'_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, statement) in statements(tokens) {
        let [(Token::Ident("macro"), _), (Token::Ident(name), _), ..] = statement else {
            continue;
        };
        let Some(after) = closed(tokens, at + 2) else {
            continue;
        };
        let Some(last) = end_of(tokens, at) else {
            continue;
        };
        let uses = |word: &str| {
            (after..last)
                .any(|at| is_word(tokens.get(at), word) && !matches!(tokens[at - 1].0, Token::Dot))
        };
        let (by_place, by_name) = (uses(BY_PLACE), uses(BY_NAME));
        if !by_place && !by_name {
            continue;
        }
        let comma = match tokens[after - 2].0 {
            Token::ParenOpen | Token::Comma => "",
            _ => ", ",
        };
        let more = format!("{comma}{BY_PLACE}=none, {BY_NAME}=none");
        edits.push(Edit::open(start(&tokens[after - 1]), more));
        let set = format!("{close}{open} set {name} = __variadic({name}, {by_place}, {by_name})");
        let ends = (last..tokens.len()).find(|at| matches!(tokens[at + 1].0, Token::BlockEnd));
        edits.push(Edit::open(end(&tokens[ends.unwrap_or(last)]), set));
    }
    edits
}

/// The word that ends a macro.
fn end_of(tokens: Tokens<'_, '_>, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, statement) in statements(tokens).filter(|(index, _)| *index >= at) {
        match statement[0].0 {
            Token::Ident("macro") => depth += 1,
            Token::Ident("endmacro") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;

    #[test]
    fn what_is_used_becomes_a_parameter() {
        check(
            "{% macro m(a, b=1) %}{{ varargs }}{% endmacro %}",
            "{% macro m(a, b=1, varargs=none, kwargs=none) %}{{ varargs }}{% endmacro%}{% set m = __variadic(m, true, false) %}",
        );
        check(
            "{% macro m() %}{{ kwargs.x }}{% endmacro m -%}",
            "{% macro m(varargs=none, kwargs=none) %}{{ kwargs.x }}{% endmacro m%}{% set m = __variadic(m, false, true) -%}",
        );
    }

    #[test]
    fn an_attribute_of_that_name_is_none() {
        let source = "{% macro m(a) %}{{ a.kwargs }}{% endmacro %}{{ varargs }}";
        check(source, source);
    }
}
