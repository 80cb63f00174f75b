//! String literals as Python reads them, and the line break after `{% raw %}`, which Jinja2 keeps.
//!
//! Both are rewritten for the engine before any other step.

use std::fmt::Write as _;

use minijinja::machinery::Token;
use minijinja::{Environment, Error};

use super::code::{BlockDelimiters, Edit, Tokens, range, start};
use super::templates::open_error;

/// Replaces a text with a named character, and raises the error that names are not supported.
const NAMED: &str = "__character_by_name";

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_function(NAMED, |name: &str| -> Result<String, Error> {
        Err(open_error(&format!(
            "`\\N{{{name}}}`: characters have no names here, write its number, as in `\\u2022`"
        )))
    });
}

pub(super) fn edits(tokens: Tokens<'_, '_>, source: &str) -> Vec<Edit> {
    let mut edits = Vec::new();
    for token in tokens {
        if !matches!(token.0, Token::String(_)) {
            continue; // it has no backslash
        }
        let at = range(token);
        let Some(inner) = source.get(at.start + 1..at.end - 1) else {
            continue;
        };
        match read(inner) {
            Read::Same => {}
            Read::Text(text) => edits.push(Edit::replace(at, written(&text))),
            Read::Named(name) => {
                edits.push(Edit::replace(at, format!("{NAMED}({})", written(&name))));
            }
        }
    }
    edits
}

/// After `{% raw %}` no line break is removed, whatever `trim_blocks` is.
pub(super) fn raw_edits(
    tokens: Tokens<'_, '_>,
    source: &str,
    block: BlockDelimiters<'_>,
) -> Vec<Edit> {
    let data = tokens
        .iter()
        .filter(|(token, _)| matches!(token, Token::TemplateData(_)));
    let raw = data.filter_map(|token| {
        let (before, after) = source.split_at_checked(start(token))?;
        let inside = before.strip_suffix(block.1)?;
        let tag = inside.trim_end().strip_suffix("raw")?.trim_end();
        let tag = tag.strip_suffix(['-', '+']).unwrap_or(tag);
        let is_raw = tag.ends_with(block.0);
        let is_cut = after.starts_with('\n') || after.starts_with("\r\n");
        (is_raw && is_cut).then(|| Edit::open(inside.len(), "+"))
    });
    raw.collect()
}

enum Read {
    /// The engine reads it the same way.
    Same,
    Text(String),
    Named(String),
}

/// The text between the quotes, as Python reads it.
fn read(inner: &str) -> Read {
    let (mut text, mut is_same, mut rest) = (String::new(), true, inner);
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else {
            return Read::Same;
        };
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' => is_same = false,
            '\\' | '\'' | '"' => text.push(c),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'a' | 'v' => {
                text.push(if c == 'a' { '\u{7}' } else { '\u{b}' });
                is_same = false;
            }
            '0'..='7' => {
                let more = rest
                    .bytes()
                    .take(2)
                    .take_while(|c| (b'0'..=b'7').contains(c));
                let more = more.count();
                let digits = format!("{c}{}", &rest[..more]);
                let Some(found) = number(&digits, 8) else {
                    return Read::Same;
                };
                text.push(found);
                rest = &rest[more..];
            }
            'x' | 'u' | 'U' => {
                let length = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                // The engine reports invalid digits and surrogates.
                let Some(found) = rest.get(..length).and_then(|digits| number(digits, 16)) else {
                    return Read::Same;
                };
                text.push(found);
                rest = &rest[length..];
                is_same &= c != 'U';
            }
            'N' if rest.starts_with('{') => {
                let name = rest[1..].split('}').next().unwrap_or_default();
                return Read::Named(name.to_owned());
            }
            // Python writes such a character by its code, after a second backslash.
            c if !c.is_ascii() => {
                let code = u32::from(c);
                _ = match code {
                    0..=0xff => write!(text, "\\x{code:02x}"),
                    0x100..=0xffff => write!(text, "\\u{code:04x}"),
                    _ => write!(text, "\\U{code:08x}"),
                };
                is_same = false;
            }
            c => {
                text.extend(['\\', c]);
                is_same &= c != '/';
            }
        }
    }
    text.push_str(rest);
    if is_same {
        Read::Same
    } else {
        Read::Text(text)
    }
}

fn number(digits: &str, radix: u32) -> Option<char> {
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}

/// A literal that the engine reads back as this text.
fn written(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;

    #[test]
    fn texts_are_read_as_python_reads_them() {
        check(r#"{{ "a\/b" }}"#, r#"{{ "a\\/b" }}"#);
        check(r#"{{ "\a\v" ~ 'it\'s' }}"#, r#"{{ "\x07\x0b" ~ 'it\'s' }}"#);
        check("{{ 'a\\\n b' }}", "{{ \"a b\" }}");
        check(r#"{{ "\U0001f600\n" }}"#, "{{ \"😀\\n\" }}");
        check(r#"{{ "\é" }}"#, r#"{{ "\\xe9" }}"#);
        check(
            r#"{{ "x\N{BULLET}" }}"#,
            r#"{{ __character_by_name("BULLET") }}"#,
        );
        for same in [r#"{{ "\d+\\/\x41\101\u2022" }}"#, r#"{{ "a/b" }} "\/""#] {
            check(same, same);
        }
    }

    #[test]
    fn a_line_break_behind_raw_stays() {
        check(
            "a\n{% raw %}\n {{ x }}\n{% endraw %}\n",
            "a\n{% raw +%}\n {{ x }}\n{% endraw %}\n",
        );
        check("{%- raw %}\r\n{% endraw %}", "{%- raw +%}\r\n{% endraw %}");
        for same in [
            "{% raw -%}\n{% endraw %}",
            "{% raw %}{% raw %}\n{% endraw %}",
            "{# {% raw %}\n #}{{ '{% raw %}\n' }}",
        ] {
            check(same, same);
        }
    }
}
