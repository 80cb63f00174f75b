//! Where text goes: data to standard output, everything else to standard error.

use std::io;

use model::base::exact_number;

use crate::CommandError;
use crate::view::text;

/// Prints data. A closed reader (`| head`) is not a failure.
pub(crate) fn data(text: &str) -> Result<(), CommandError> {
    write(&mut io::stdout().lock(), text)
}

/// Prints a message for the user. Lines that are too long for the terminal are wrapped between words.
pub(crate) fn say(text: &str) -> Result<(), CommandError> {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let width = size.map_or(0, |size| usize::from(size.ws_col));
    let fitted = if width > 0 {
        fitted(text, width)
    } else {
        text.to_owned()
    };
    write(&mut io::stderr().lock(), &fitted)
}

/// Wraps long lines. Indented or coloured lines are laid out already.
fn fitted(words: &str, width: usize) -> String {
    let fit = |line: &str| {
        let (words, end) = match line.strip_suffix('\n') {
            Some(words) => (words, "\n"),
            None => (line, ""),
        };
        if text::width(words) <= width || words.starts_with(' ') || words.contains('\u{1b}') {
            return line.to_owned();
        }
        text::wrap(words, width).join("\n") + end
    };
    words.split_inclusive('\n').map(fit).collect()
}

/// Prints one document, for `--json`.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), CommandError> {
    let text = if exact_number::holds_digits(value) {
        exact_number::write(value)
    } else {
        serde_json::to_string_pretty(value)
            .map_err(|err| CommandError::because("could not write JSON", &err))?
    };
    data(&format!("{text}\n"))
}

/// Prints one event on one line, for `--json` of long operations.
pub(crate) fn json_line(value: &serde_json::Value) -> Result<(), CommandError> {
    data(&format!("{value}\n"))
}

fn write(to: &mut impl io::Write, text: &str) -> Result<(), CommandError> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::because("could not write", &err))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let said = "Detached: it goes on by itself.\n  indented lines are as they are\n\u{1b}[1mpainted ones, too\u{1b}[0m\nlast";
        let expected = "Detached: it goes on\nby itself.\n  indented lines are as they are\n\u{1b}[1mpainted ones, too\u{1b}[0m\nlast";
        assert_eq!(fitted(said, 20), expected);
        assert_eq!(fitted(said, 80), said);
    }
}
