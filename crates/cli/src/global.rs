//! The options of every command.

use std::path::PathBuf;

use clap::ValueEnum;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Work on the project in DIR instead of the current directory
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help_heading = "Global options"
    )]
    pub(crate) project: Option<PathBuf>,
    /// Keep state and runs in DIR instead of the user's data directory (or set `TERRANE_HOME`)
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help_heading = "Global options"
    )]
    pub(crate) data: Option<PathBuf>,
    /// Print data as JSON: one document, or one event per line for long work
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Colour the output
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t = Color::Auto,
        help_heading = "Global options"
    )]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Adds `--data` to the commands in a text if it was given, so that they can be copied.
pub(crate) fn at_home(text: &str, global: &Global) -> String {
    let Some(data) = &global.data else {
        return text.to_owned();
    };
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    // Every other part was in backticks, except for a last one without a closing backtick.
    let whole = parts.len().saturating_sub(1);
    for part in parts[..whole].iter_mut().skip(1).step_by(2) {
        if part.starts_with("terrane ") && !part.contains("--data") {
            let (command, rest) = match part.find(" --reason") {
                Some(at) => part.split_at(at),
                None => (part.as_str(), ""),
            };
            *part = format!("{command} --data {}{rest}", data.display());
        }
    }
    parts.join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_the_home_that_was_named() {
        let global = |data: Option<&str>| Global {
            data: data.map(Into::into),
            ..Global::default()
        };
        let text = "orphan of `r7`: `terrane lock break a --reason …`, then `terrane state verify`";
        assert_eq!(at_home(text, &global(None)), text);
        assert_eq!(
            at_home(text, &global(Some("/srv/t"))),
            "orphan of `r7`: `terrane lock break a --data /srv/t --reason …`, then `terrane state verify --data /srv/t`"
        );
    }
}
