//! Arithmetic, comparison and indexing of values, with the engines' semantics.

use std::ops::Range;

use hcl_edit::expr::BinaryOperator;
use hcl_edit::repr::Formatted;
use serde_json::Number;

use crate::base::exact_number;
use crate::hcl::evaluator::{Evaluation, ExpressionError};
use crate::hcl::suggest;
use crate::hcl::value::Val;

pub(crate) fn number(literal: &Formatted<hcl_edit::Number>, at: Range<usize>) -> Evaluation {
    // The original digits, if our number type would round them.
    let written = literal
        .as_repr()
        .map(|repr| repr.replace(char::is_whitespace, ""));
    if let Some(long) = written.filter(|written| exact_number::is_rounded(written)) {
        return Ok(Val::Digits(long));
    }
    let number = literal.value();
    let known = number
        .as_i64()
        .map(Number::from)
        .or_else(|| number.as_u64().map(Number::from))
        .or_else(|| number.as_f64().and_then(Number::from_f64));
    known
        .map(Val::Number)
        .ok_or_else(|| ExpressionError::new(at, "this number is too large"))
}

pub(crate) fn negate(value: &Val, at: Range<usize>) -> Evaluation {
    match value {
        Val::Unknown => Ok(Val::Unknown),
        Val::Number(number) => arithmetic(BinaryOperator::Minus, &Number::from(0), number, at),
        other => Err(ExpressionError::new(
            at,
            format!("`-` requires a number, this is {}", other.what()),
        )),
    }
}

pub(crate) fn not(value: &Val, at: Range<usize>) -> Evaluation {
    match value {
        Val::Unknown => Ok(Val::Unknown),
        Val::Bool(value) => Ok(Val::Bool(!value)),
        other => Err(ExpressionError::new(
            at,
            format!("`!` requires a bool, this is {}", other.what()),
        )),
    }
}

pub(crate) fn binary(
    operator: BinaryOperator,
    left: &Val,
    right: &Val,
    at: Range<usize>,
) -> Evaluation {
    use BinaryOperator as Op;
    if !left.is_known() || !right.is_known() {
        return Ok(Val::Unknown);
    }
    match operator {
        Op::Eq => Ok(Val::Bool(equal(left, right))),
        Op::NotEq => Ok(Val::Bool(!equal(left, right))),
        Op::And | Op::Or => match (left, right) {
            (Val::Bool(left), Val::Bool(right)) => Ok(Val::Bool(match operator {
                Op::And => *left && *right,
                _ => *left || *right,
            })),
            _ => Err(mismatch(operator, "two bools", left, right, at)),
        },
        Op::Less | Op::LessEq | Op::Greater | Op::GreaterEq => match (left, right) {
            (Val::Number(left), Val::Number(right)) => {
                let (left, right) = (float(left), float(right));
                Ok(Val::Bool(match operator {
                    Op::Less => left < right,
                    Op::LessEq => left <= right,
                    Op::Greater => left > right,
                    _ => left >= right,
                }))
            }
            _ => Err(mismatch(operator, "two numbers", left, right, at)),
        },
        Op::Plus | Op::Minus | Op::Mul | Op::Div | Op::Mod => match (left, right) {
            (Val::Number(left), Val::Number(right)) => arithmetic(operator, left, right, at),
            _ => Err(mismatch(operator, "two numbers", left, right, at)),
        },
    }
}

fn equal(left: &Val, right: &Val) -> bool {
    match (left, right) {
        (Val::Number(left), Val::Number(right)) => {
            left == right || (float(left) - float(right)).abs() == 0.0
        }
        _ => left == right,
    }
}

fn mismatch(
    operator: BinaryOperator,
    wanted: &str,
    left: &Val,
    right: &Val,
    at: Range<usize>,
) -> ExpressionError {
    ExpressionError::new(
        at,
        format!(
            "`{operator}` requires {wanted}, these are {} and {}",
            left.what(),
            right.what()
        ),
    )
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

fn arithmetic(
    operator: BinaryOperator,
    left: &Number,
    right: &Number,
    at: Range<usize>,
) -> Evaluation {
    use BinaryOperator as Op;
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        let whole = match operator {
            Op::Plus => left.checked_add(right),
            Op::Minus => left.checked_sub(right),
            Op::Mul => left.checked_mul(right),
            Op::Div if right != 0 && left.checked_rem(right) == Some(0) => left.checked_div(right),
            Op::Mod if right != 0 => left.checked_rem(right),
            _ => None,
        };
        if let Some(whole) = whole {
            return Ok(Val::Number(whole.into()));
        }
    }
    let (left, right) = (float(left), float(right));
    let result = match operator {
        Op::Plus => left + right,
        Op::Minus => left - right,
        Op::Mul => left * right,
        Op::Div => left / right,
        _ => left % right,
    };
    Number::from_f64(result)
        .map(Val::Number)
        .ok_or_else(|| ExpressionError::new(at, "this calculation has no finite result"))
}

pub(crate) fn index(value: Val, key: &Val, at: Range<usize>) -> Evaluation {
    if *key == Val::Unknown {
        return Ok(Val::Unknown);
    }
    match value {
        Val::Unknown => Ok(Val::Unknown),
        Val::Object(mut entries) => {
            let Some(name) = key.in_template() else {
                return Err(ExpressionError::new(
                    at,
                    format!("a key must be a string, this is {}", key.what()),
                ));
            };
            entries.remove(&name).ok_or_else(|| {
                let hint = suggest::hint(&name, entries.keys().map(String::as_str));
                ExpressionError::new(at, format!("there is no `{name}` in this object")).hint(hint)
            })
        }
        Val::List(mut items) => {
            let position = match key {
                Val::Number(number) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
                _ => None,
            };
            match position {
                Some(position) if position < items.len() => Ok(items.swap_remove(position)),
                Some(position) => Err(ExpressionError::new(
                    at,
                    format!("there is no item {position} in a list of {}", items.len()),
                )),
                None => Err(ExpressionError::new(at, "a list is indexed by a number")),
            }
        }
        other => Err(ExpressionError::new(
            at,
            format!("{} has no parts", other.what()),
        )),
    }
}
