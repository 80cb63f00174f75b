//! What surrounds this process: environment, directories, terminal. Read once, here, and passed on.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use control::home::Settings;

use crate::args::{Color, Global};
use crate::view::{Look, errors};
use crate::{CommandError, ExitStatus};

#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) stdin_is_terminal: bool,
    pub(crate) stdout_is_terminal: bool,
    pub(crate) stderr_is_terminal: bool,
    size: Option<(usize, usize)>,
}

impl Process {
    pub fn capture() -> Self {
        let size = rustix::termios::tcgetwinsize(io::stderr())
            .ok()
            .filter(|size| size.ws_col > 0)
            .map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Self {
            env: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("terrane")),
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            size,
        }
    }

    /// Who acts here, for records.
    pub(crate) fn actor(&self) -> String {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| self.var(name));
        user.map_or_else(
            || format!("uid {}", rustix::process::getuid().as_raw()),
            str::to_owned,
        )
    }

    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// For what goes to standard error: everything that is not data.
    pub(crate) fn look(&self, global: &Global) -> Look {
        self.look_of(global, self.stderr_is_terminal)
    }

    /// For data that people may read, on standard output.
    pub(crate) fn data_look(&self, global: &Global) -> Look {
        self.look_of(global, self.stdout_is_terminal)
    }

    fn look_of(&self, global: &Global, is_terminal: bool) -> Look {
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                is_terminal && self.var("NO_COLOR").is_none() && self.var("TERM") != Some("dumb")
            }
        };
        Look {
            color,
            unicode: self.is_utf8(),
            width: self.size.map_or(100, |(width, _)| width),
        }
    }

    pub(crate) fn height(&self) -> usize {
        self.size.map_or(24, |(_, height)| height)
    }

    /// As the C library decides it. Without any setting a pipe gets UTF-8, as everywhere today.
    fn is_utf8(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| self.var(name));
        locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
    }

    pub(crate) fn settings(&self, global: &Global) -> Result<Settings, CommandError> {
        let home = self.var("HOME").map(PathBuf::from);
        let dir = |name: &str, below: &str| {
            let named = self
                .var(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute());
            named
                .or_else(|| home.as_ref().map(|home| home.join(below)))
                .map(|dir| dir.join("terrane"))
        };
        let missing = || {
            CommandError::new("there is no home directory: `HOME` is not set")
                .hint("set `HOME`, or name the directories: `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`")
        };
        let named = global
            .data
            .clone()
            .or_else(|| self.var("TERRANE_HOME").map(PathBuf::from));
        if let Some(text) = named.as_ref().and_then(|path| path.to_str())
            && text.contains("://")
        {
            return Err(
                CommandError::new(format!("the home `{text}` is not a directory"))
                    .hint("homes in a database or on a server are not built yet: name a directory")
                    .status(ExitStatus::Usage),
            );
        }
        Ok(Settings {
            named_home: named.map(|path| self.cwd.join(path)),
            data_dir: dir("XDG_DATA_HOME", ".local/share").ok_or_else(missing)?,
            config_dir: dir("XDG_CONFIG_HOME", ".config").ok_or_else(missing)?,
            cache_dir: dir("XDG_CACHE_HOME", ".cache").ok_or_else(missing)?,
            key_file: self.var("TERRANE_KEY_FILE").map(|path| self.cwd.join(path)),
            is_ci: self.var("CI").is_some_and(|ci| ci != "false" && ci != "0"),
        })
    }

    /// Says why a command failed; never a debug dump.
    pub fn report(&self, error: &CommandError) -> ExitCode {
        if !error.is_said {
            let look = self.look(&Global::default());
            let text = errors::render(&error.message, &error.causes, &error.hints, look);
            // Nobody is left to tell if standard error is closed.
            drop(io::stderr().write_all(text.as_bytes()));
        }
        error.status.into()
    }
}
