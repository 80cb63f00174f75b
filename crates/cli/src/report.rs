//! Where text goes: data to standard output, everything else to standard error.

use std::io;

use model::digits;

use crate::CommandError;

/// Prints data. A reader that went away (`| head`) is no failure.
pub(crate) fn data(text: &str) -> Result<(), CommandError> {
    write(&mut io::stdout().lock(), text)
}

/// Says something to the person.
pub(crate) fn say(text: &str) -> Result<(), CommandError> {
    write(&mut io::stderr().lock(), text)
}

/// One document, for `--json`.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), CommandError> {
    let text = if digits::holds_digits(value) {
        digits::write(value)
    } else {
        serde_json::to_string_pretty(value)
            .map_err(|err| CommandError::because("could not write JSON", &err))?
    };
    data(&format!("{text}\n"))
}

/// One event on one line, for `--json` of long work.
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
