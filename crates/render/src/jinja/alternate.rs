//! Alternate values for secrets. A file with parts in clear is also rendered with these: if a clear part changes,
//! it depends on a secret.

use model::render::data::{Data, Node, SecretData};

/// The number of alternates.
pub(super) const COUNT: usize = 2;

/// Another value of the same kind. The first alternate has the same length and differs in every character, so that
/// each slice differs too; the second is longer.
pub(super) fn alternate(secret: &SecretData, which: usize) -> Data {
    match Node::revealed(secret) {
        Data::Bool(value) => Data::Bool(value == (which == 1)),
        Data::Int(number) => Data::Int(match which {
            0 => number.wrapping_add(1),
            _ => number.wrapping_mul(10).wrapping_add(7),
        }),
        Data::Float(number) => Data::Float(match which {
            0 => number + 1.0,
            _ => number * 10.0 + 7.0,
        }),
        Data::Text(text) => {
            let turned: String = text.chars().map(turn).collect();
            Data::Text(match which {
                0 => turned,
                _ => format!("{turned}{turned}0a"),
            })
        }
        other @ (Data::Null | Data::Moment(_) | Data::List(_) | Data::Map(_) | Data::Secret(_)) => {
            other
        }
    }
}

/// Another character of the same class.
fn turn(c: char) -> char {
    let next = |first: u8, count: u8| match u8::try_from(c) {
        Ok(byte) => char::from(first + (byte - first + 1) % count),
        Err(_) => c,
    };
    match c {
        'a'..='z' => next(b'a', 26),
        'A'..='Z' => next(b'A', 26),
        '0'..='9' => next(b'0', 10),
        '\n' | '\r' | ' ' | '=' => c,
        '.' => '-',
        _ => '.',
    }
}
