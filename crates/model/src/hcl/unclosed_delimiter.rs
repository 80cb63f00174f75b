//! Finds the bracket, string, heredoc or comment that a text leaves open. The parser only notices it at the end.
//!
//! Not here: whether the text is HCL. This is only used for a text that the parser refused.

enum Opener<'t> {
    /// `{`, `[`, `(`, `${` or `%{`, and what closes it.
    Bracket(u8),
    Quote,
    Heredoc(&'t str),
}

/// The position where it was opened, and a message.
pub(crate) fn find(text: &str) -> Option<(usize, String)> {
    let bytes = text.as_bytes();
    let mut open: Vec<(usize, Opener<'_>)> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let in_text = matches!(open.last(), Some((_, Opener::Quote | Opener::Heredoc(_))));
        if in_text && (rest.starts_with(b"$${") || rest.starts_with(b"%%{")) {
            at += 3;
            continue;
        }
        if in_text && (rest.starts_with(b"${") || rest.starts_with(b"%{")) {
            open.push((at, Opener::Bracket(b'}')));
            at += 2;
            continue;
        }
        match (open.last(), byte) {
            (Some((_, Opener::Quote)), b'\\') => at += 2,
            (Some((_, Opener::Quote)), b'"') => {
                open.pop();
                at += 1;
            }
            (Some((begin, Opener::Quote)), b'\n') => {
                return Some((*begin, "this string is not closed".to_owned()));
            }
            (Some((_, Opener::Heredoc(delimiter))), b'\n') => {
                at += 1;
                let line = line(text, at);
                if line.trim() == *delimiter {
                    at += line.len();
                    open.pop();
                }
            }
            _ if in_text => at += 1,
            (_, b'"') => {
                open.push((at, Opener::Quote));
                at += 1;
            }
            (_, b'#') => at += line(text, at).len(),
            (_, b'/') if rest.starts_with(b"//") => at += line(text, at).len(),
            (_, b'/') if rest.starts_with(b"/*") => match text.get(at + 2..)?.find("*/") {
                Some(length) => at += length + 4,
                None => return Some((at, "this comment has no end".to_owned())),
            },
            (_, b'<') if rest.starts_with(b"<<") => {
                let delimiter = line(text, at).trim_start_matches(['<', '-']).trim_end();
                open.push((at, Opener::Heredoc(delimiter)));
                // The heredoc's first line starts after the end of this line.
                at += line(text, at).len();
            }
            (_, b'{') => {
                open.push((at, Opener::Bracket(b'}')));
                at += 1;
            }
            (_, b'[') => {
                open.push((at, Opener::Bracket(b']')));
                at += 1;
            }
            (_, b'(') => {
                open.push((at, Opener::Bracket(b')')));
                at += 1;
            }
            (_, b'}' | b']' | b')') => {
                if let Some((begin, Opener::Bracket(closer))) = open.pop()
                    && closer != byte
                {
                    let opener = opener(text, begin);
                    let closer = char::from(byte);
                    return Some((begin, format!("this `{opener}` is closed by `{closer}`")));
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    Some(match open.pop()? {
        (begin, Opener::Quote) => (begin, "this string is not closed".to_owned()),
        (begin, Opener::Heredoc(_)) => (begin, "this text has no end".to_owned()),
        (begin, Opener::Bracket(_)) => (
            begin,
            format!("this `{}` is not closed", opener(text, begin)),
        ),
    })
}

/// The rest of a line, without its line end. `at` must be a character boundary.
fn line(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    rest.split('\n').next().unwrap_or_default()
}

fn opener(text: &str, at: usize) -> &str {
    let width = if text[at..].starts_with(['$', '%']) {
        2
    } else {
        1
    };
    &text[at..at + width]
}
