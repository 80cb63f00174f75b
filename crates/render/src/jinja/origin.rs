//! Finds the template line that produced a line of the output: the one whose literal text occurs there in the same
//! order.

use model::render::Delimiters;

/// How much of the output line comes from the template line; `None` if it cannot have produced it.
pub(super) fn likeness(line: &str, made: &str, delimiters: &Delimiters) -> Option<usize> {
    let line = line.trim();
    let pieces = pieces(line, delimiters);
    let words: usize = pieces.iter().map(|piece| piece.trim().len()).sum();
    if words == 0 {
        return None;
    }
    let made = made.trim();
    let mut rest = made;
    for (index, piece) in pieces.iter().enumerate() {
        let at = rest.find(piece.as_str())?;
        if index == 0 && at > 0 {
            return None;
        }
        rest = &rest[at + piece.len()..];
    }
    let last = pieces.last()?;
    (last.is_empty() || made.ends_with(last.as_str())).then_some(words)
}

/// The literal text of a line between its code; empty where it begins or ends with code.
fn pieces(line: &str, delimiters: &Delimiters) -> Vec<String> {
    let Delimiters {
        block,
        variable,
        comment,
    } = delimiters;
    let (mut pieces, mut rest) = (Vec::new(), line);
    loop {
        let next = [block, variable, comment]
            .into_iter()
            .filter_map(|(open, close)| Some((rest.find(open.as_str())?, open, close)))
            .min_by_key(|(at, open, _)| (*at, usize::MAX - open.len()));
        let Some((at, open, close)) = next else {
            pieces.push(rest.to_owned());
            return pieces;
        };
        pieces.push(rest[..at].to_owned());
        let inner = &rest[at + open.len()..];
        rest = match inner.find(close.as_str()) {
            Some(end) => &inner[end + close.len()..],
            None => "",
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, made: &str, expected: Option<usize>) {
        assert_eq!(likeness(line, made, &Delimiters::default()), expected);
    }

    #[test]
    fn own_words_tell() {
        check("\"{{ token }}\": 2", "\"abc\": 2", Some(5));
        check("\"{{ token }}\": 1", "\"abc\": 2", None);
        check("  kind: {{ a }}-{{ b }}", "kind: x-y", Some(6));
        check("kind: {{ a }}", "a kind: x", None);
        check("{{ a }}", "anything", None);
        check("{% if a %}", "anything", None);
    }
}
