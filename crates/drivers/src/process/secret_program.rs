//! Helper programs that print a secret: their command line, and what they complain about.

use model::base::masking::Mask;
use model::base::secret::{Secret, is_secret_variable};

use super::Environment;

/// Splits at spaces, with single and double quotes. In double quotes, a backslash escapes a following `"`,
/// backslash, `$` or backtick. No other character is special.
pub fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some('"') if c == '\\' && matches!(characters.peek(), Some('"' | '\\' | '$' | '`')) => {
                word.get_or_insert_default().extend(characters.next());
            }
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// The end of a command's standard error, in one line. It never repeats the command's output, which may hold part
/// of the secret, or values of its environment.
pub(crate) fn complaint(stderr: &[u8], stdout: &[u8], env: &Environment) -> Option<String> {
    const MOST: usize = 300;
    let text = String::from_utf8_lossy(stderr);
    let printed = String::from_utf8_lossy(stdout);
    let mut hidden: Vec<Secret> = printed.lines().map(Secret::new).collect();
    hidden.push(Secret::new(printed.as_ref()));
    let named = env.names().filter(|name| is_secret_variable(name));
    hidden.extend(named.filter_map(|name| env.get(name).cloned()));
    let masked = Mask::new(&hidden).mask_text(text.trim());
    // Output too short to be masked is hidden as well.
    let mut words = printed.split_whitespace();
    if words.any(|word| masked.contains(word)) {
        return None;
    }
    let words: Vec<&str> = masked.split_whitespace().collect();
    let line = words.join(" ");
    let length = line.chars().count();
    let end: String = line.chars().skip(length.saturating_sub(MOST)).collect();
    let cut = if length > MOST { "…" } else { "" };
    (!end.is_empty()).then(|| format!("{cut}{}", plain(&end)))
}

/// Removes control characters, which could move the cursor or change colours.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
