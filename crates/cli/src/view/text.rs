//! Text for a screen: escapes, measures, cuts and wraps it.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::{Symbol, ViewOptions};

/// Two backticks further apart than this do not belong together.
const LONGEST_LITERAL: usize = 120;

/// The text on one line. Escapes everything that could move the cursor, change the reading direction or be
/// invisible. All text from other sources passes through here.
pub fn clean(raw: &str) -> Cow<'_, str> {
    if raw.chars().all(is_harmless) {
        return Cow::Borrowed(raw);
    }
    let mut clean = String::with_capacity(raw.len() + 8);
    for c in raw.chars() {
        push_escaped(&mut clean, c);
    }
    Cow::Owned(clean)
}

/// The text in double quotes, as HCL writes it.
pub fn quote(raw: &str) -> String {
    let mut quoted = String::with_capacity(raw.len() + 2);
    quoted.push('"');
    for c in raw.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            _ => push_escaped(&mut quoted, c),
        }
    }
    quoted.push('"');
    quoted
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ if is_harmless(c) => out.push(c),
        // Writing to a `String` cannot fail.
        _ => drop(write!(out, "\\u{:04x}", u32::from(c))),
    }
}

fn is_harmless(c: char) -> bool {
    let turns_direction = matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_line = matches!(c, '\u{2028}' | '\u{2029}');
    let hides = matches!(
        c,
        '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    !(c.is_control() || turns_direction || breaks_line || hides)
}

/// Columns the text takes; colours take none.
pub fn width(text: &str) -> usize {
    if !text.contains('\x1b') {
        return text.width();
    }
    let mut columns = 0;
    for (n, part) in text.split('\x1b').enumerate() {
        let visible = if n == 0 {
            part
        } else {
            part.split_once('m').map_or("", |(_, rest)| rest)
        };
        columns += visible.width();
    }
    columns
}

/// The text with spaces after it, up to `columns`.
pub fn pad(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(missing))
}

/// The text with spaces before it, up to `columns`.
pub fn pad_left(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(width(text));
    format!("{}{text}", " ".repeat(missing))
}

/// At most `columns` of clean text without colour; an ellipsis replaces the rest.
pub fn cut(text: &str, columns: usize, look: ViewOptions) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let ellipsis = look.sign(Symbol::Ellipsis);
    let Some(room) = columns.checked_sub(width(ellipsis)) else {
        return head(text, columns).to_owned();
    };
    format!("{}{ellipsis}", head(text, room))
}

/// Like [`cut`], but with the ellipsis in the middle: both ends of an address are useful.
pub fn cut_middle(text: &str, columns: usize, look: ViewOptions) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let ellipsis = look.sign(Symbol::Ellipsis);
    let Some(room) = columns.checked_sub(width(ellipsis)) else {
        return head(text, columns).to_owned();
    };
    let end = tail(text, room * 2 / 5);
    let start = head(text, room - width(end));
    format!("{start}{ellipsis}{end}")
}

/// The longest beginning that takes at most `columns`.
pub fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// The longest end that takes at most `columns`.
pub fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

/// Lines of at most `columns`, broken at spaces. A longer word stays whole, so that it can be copied. A line
/// that begins with a space is laid out already and stays as it is.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        if paragraph.starts_with([' ', '\t']) {
            lines.push(
                clean(&paragraph.replace('\t', "    "))
                    .trim_end()
                    .to_owned(),
            );
            continue;
        }
        let paragraph = clean(paragraph);
        let mut line = String::new();
        let mut used = 0;
        for word in words(&paragraph) {
            let columns_of_word = width(word);
            if used > 0 && used + 1 + columns_of_word > columns {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += columns_of_word;
        }
        lines.push(line);
    }
    lines
}

/// The pieces between which a line may be broken. Text in backticks is one piece, so that a command can be
/// copied whole.
fn words(paragraph: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = paragraph.trim_start_matches(' ');
    while !rest.is_empty() {
        let space = rest.find(' ').unwrap_or(rest.len());
        let literal_end = rest[..space].find('`').and_then(|open| {
            let close = open + 1 + rest[open + 1..].find('`')?;
            let end = close + rest[close..].find(' ').unwrap_or(rest.len() - close);
            (end - open <= LONGEST_LITERAL).then_some(end)
        });
        let (word, after) = rest.split_at(literal_end.unwrap_or(space));
        words.push(word);
        rest = after.trim_start_matches(' ');
    }
    words
}

/// `1 error`, `2 errors`.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_move_the_cursor() {
        assert_eq!(
            clean("a\x1b[2Jb\r\n\u{9b}5m"),
            "a\\u001b[2Jb\\r\\n\\u009b5m"
        );
        assert_eq!(
            clean("user\u{202e}txt.exe\u{200b}"),
            "user\\u202etxt.exe\\u200b"
        );
        assert_eq!(clean("déjà 東京 ✓"), "déjà 東京 ✓");
        assert_eq!(quote("a\"b\\\t\x07"), r#""a\"b\\\t\u0007""#);
    }

    #[test]
    fn widths_are_columns() {
        assert_eq!(width("東京"), 4);
        assert_eq!(width("\x1b[1m\x1b[31mab\x1b[0m"), 2);
        assert_eq!(pad("東", 4), "東  ");
    }

    #[track_caller]
    fn check_cut(columns: usize, end: &str, middle: &str) {
        let text = "module.cluster.this: still creating";
        assert_eq!(cut(text, columns, ViewOptions::plain(80)), end);
        assert_eq!(cut_middle(text, columns, ViewOptions::plain(80)), middle);
    }

    #[test]
    fn long_text_is_cut() {
        check_cut(
            99,
            "module.cluster.this: still creating",
            "module.cluster.this: still creating",
        );
        check_cut(16, "module.cluster.…", "module.cl…eating");
        check_cut(2, "m…", "m…");
        check_cut(0, "", "");
        assert_eq!(cut("東京都", 4, ViewOptions::plain(80)), "東…");
        assert_eq!(cut("abcdef", 5, ViewOptions::ascii(80)), "ab...");
    }

    #[test]
    fn text_is_wrapped_at_spaces() {
        assert_eq!(
            wrap(
                "one two three\n\n  kept as it is\nmuch_longer_than_that x",
                8
            ),
            [
                "one two",
                "three",
                "",
                "  kept as it is",
                "much_longer_than_that",
                "x"
            ],
        );
    }

    #[test]
    fn what_is_in_backticks_stays_whole() {
        assert_eq!(
            wrap(
                "run `terrane plan a` now, or `a much longer one` (`x y`), `",
                18
            ),
            [
                "run",
                "`terrane plan a`",
                "now, or",
                "`a much longer one`",
                "(`x y`), `"
            ],
        );
    }

    #[test]
    fn things_are_counted_and_listed() {
        assert_eq!(count(1, "error"), "1 error");
        assert_eq!(count(0, "error"), "0 errors");
        assert_eq!(
            list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]),
            "a, b and c"
        );
    }
}
