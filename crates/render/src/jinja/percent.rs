//! `'%s-%02d' % (name, number)`: Python formats text by an operator that the engine has only for numbers. If the
//! left operand is a string literal, the operator is rewritten to a filter.
//!
//! Not here: a format string in a variable, whose type is unknown when the template is rewritten. The filter
//! `format` supports it.

use minijinja::machinery::Token;
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::code::{Edit, Tokens, closed, end, range};
use super::repr;

/// The name of the method behind Python's operator.
const FILTER: &str = "__mod__";

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_filter(
        FILTER,
        |state: &mut State<'_, '_>, text: &Value, values: &Value| {
            let mut args = match values.downcast_object_ref::<Tuple>() {
                Some(tuple) => tuple.to_vec(),
                None => vec![values.clone()],
            };
            let text = as_python(text.as_str().unwrap_or_default(), &mut args)?;
            args.insert(0, Value::from(text));
            state.apply_filter("format", &args)
        },
    );
}

/// Handles what the engine's formatting lacks: `%r` writes a value as Python does, `%d` truncates a fraction, and
/// `*` takes a width from the values.
fn as_python(text: &str, args: &mut Vec<Value>) -> Result<String, Error> {
    let (mut out, mut rest, mut next) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once('%') {
        let end = after.find(|c: char| !" #+-.*0123456789hlL".contains(c));
        let (options, tail) = after.split_at(end.unwrap_or(after.len()));
        let mut options = options.to_owned();
        while options.contains('*') && next < args.len() {
            options = options.replacen('*', &args.remove(next).to_string(), 1);
        }
        out.extend([before, "%", &options]);
        rest = tail;
        let Some(conversion) = tail.chars().next() else {
            break;
        };
        rest = &tail[conversion.len_utf8()..];
        let value = args.get_mut(next).filter(|_| conversion != '%');
        next += usize::from(conversion != '%');
        match (conversion, value) {
            ('r', Some(value)) => {
                *value = Value::from(repr::repr(value)?);
                out.push('s');
                continue;
            }
            ('s', Some(value)) if value.as_str().is_none() => {
                *value = Value::from(repr::str(value)?);
            }
            ('d' | 'i' | 'u', Some(value)) if !value.is_integer() => {
                if let (ValueKind::Number, Ok(number)) =
                    (value.kind(), f64::try_from(value.clone()))
                {
                    *value = Value::from(whole(number));
                }
            }
            _ => {}
        }
        out.push(conversion);
    }
    out.push_str(rest);
    Ok(out)
}

#[expect(clippy::cast_possible_truncation, reason = "that is what is asked for")]
fn whole(number: f64) -> i64 {
    number.trunc() as i64
}

/// The edits of a template.
pub(super) fn edits(tokens: Tokens<'_, '_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !matches!(token.0, Token::Mod) || !is_after_text(&tokens[..at]) {
            continue;
        }
        if let Some(after) = operand(tokens, at + 1) {
            edits.push(Edit::replace(range(token), "|__mod__("));
            edits.push(Edit::close(end(&tokens[after - 1]), ")"));
        }
    }
    edits
}

/// Whether the left operand is a string: it may have several adjacent literals, and no operator of equal or higher
/// precedence may bind it.
fn is_after_text(before: Tokens<'_, '_>) -> bool {
    let pieces = before.iter().rev();
    let pieces = pieces.take_while(|(token, _)| is_text(token)).count();
    let other = before[..before.len() - pieces].last();
    let is_taken = other.is_some_and(|(token, _)| {
        matches!(
            token,
            Token::Mul | Token::Div | Token::FloorDiv | Token::Mod | Token::Pow
        )
    });
    pieces > 0 && !is_taken
}

fn is_text(token: &Token<'_>) -> bool {
    matches!(token, Token::Str(_) | Token::String(_))
}

/// The end of the operand that begins at a token: signs, a term, and everything that binds tighter than `%`.
fn operand(tokens: Tokens<'_, '_>, mut at: usize) -> Option<usize> {
    while matches!(tokens.get(at)?.0, Token::Minus | Token::Plus) {
        at += 1;
    }
    at = match &tokens.get(at)?.0 {
        Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => closed(tokens, at)?,
        Token::Ident(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => at + 1,
        token if is_text(token) => {
            let pieces = tokens[at..].iter();
            at + pieces.take_while(|(token, _)| is_text(token)).count()
        }
        _ => return None,
    };
    loop {
        at = match tokens.get(at).map(|(token, _)| token) {
            Some(Token::Dot | Token::Pipe) => at + 2,
            Some(Token::ParenOpen | Token::BracketOpen) => closed(tokens, at)?,
            Some(Token::Pow) => operand(tokens, at + 1)?,
            _ => return (at <= tokens.len()).then_some(at),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;

    #[test]
    fn a_text_on_the_left_is_formatted() {
        check("{{ '%d' % x }}", "{{ '%d' |__mod__( x) }}");
        check(
            "{{ '%s-%02d' % (a, b.c[0]) ~ 'x' }}",
            "{{ '%s-%02d' |__mod__( (a, b.c[0])) ~ 'x' }}",
        );
        check(
            "{{ '%s' % x | upper | f(1) + 2 }}",
            "{{ '%s' |__mod__( x | upper | f(1)) + 2 }}",
        );
        check(
            "{% if '%d' % -x.y() == z %}{% endif %}",
            "{% if '%d' |__mod__( -x.y()) == z %}{% endif %}",
        );
        check(
            "{{ '%s' % ('%d' % n) }}{{ 'a' 'b%s' % n }}",
            "{{ '%s' |__mod__( ('%d' |__mod__( n))) }}{{ 'a' 'b%s' |__mod__( n) }}",
        );
    }
}
