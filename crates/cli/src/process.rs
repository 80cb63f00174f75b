//! The environment of this process: variables, directories, terminal. Read here once, and passed on.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use control::home::master_keys::KeySource;
use control::home::{HomeLocation, HomeSettings};
use model::base::actor::{Actor, ActorKind, Entrance, Verification};
use model::base::age_identity::AgeIdentity;
use model::base::secret::{Secret, is_key_material};

use crate::global::{Color, Global};
use crate::view::{ViewOptions, errors};
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

    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The actor: a user of the operating system or, in a CI job, the user that the job names.
    pub(crate) fn actor(&self) -> Actor {
        let claimed = ["GITHUB_ACTOR", "GITLAB_USER_LOGIN"];
        if self.var("CI").is_some()
            && let Some(name) = claimed.iter().find_map(|name| self.var(name))
        {
            return Actor {
                name: name.trim().to_owned(),
                kind: ActorKind::Ci,
                verified: Verification::Claimed,
                via: Entrance::Cli,
            };
        }
        let (name, verified) = self.user();
        Actor {
            name,
            kind: ActorKind::Person,
            verified,
            via: Entrance::Cli,
        }
    }

    /// The user of the operating system. A variable can name anyone.
    fn user(&self) -> (String, Verification) {
        let uid = rustix::process::getuid().as_raw().to_string();
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let known = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == uid).then(|| name.to_owned())
        });
        if let Some(name) = known {
            return (name, Verification::System);
        }
        let said = ["USER", "LOGNAME"].iter().find_map(|name| self.var(name));
        match said {
            Some(name) => (name.to_owned(), Verification::Claimed),
            None => (format!("user {uid}"), Verification::System),
        }
    }

    /// The look of standard error, which gets everything that is not data.
    pub(crate) fn look(&self, global: &Global) -> ViewOptions {
        self.look_of(global, self.stderr_is_terminal)
    }

    /// The look of standard output, for data that people may read.
    pub(crate) fn data_look(&self, global: &Global) -> ViewOptions {
        ViewOptions {
            piped: !self.stdout_is_terminal,
            ..self.look_of(global, self.stdout_is_terminal)
        }
    }

    /// Whether standard error can show a live display.
    pub(crate) fn can_draw(&self) -> bool {
        self.stderr_is_terminal && self.var("TERM") != Some("dumb")
    }

    fn look_of(&self, global: &Global, is_terminal: bool) -> ViewOptions {
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                is_terminal && self.var("NO_COLOR").is_none() && self.var("TERM") != Some("dumb")
            }
        };
        ViewOptions {
            color,
            unicode: self.is_utf8(),
            width: self.size.map_or(100, |(width, _)| width),
            piped: false,
        }
    }

    pub(crate) fn height(&self) -> usize {
        self.size.map_or(24, |(_, height)| height)
    }

    /// Whether the locale is UTF-8, as the C library decides it. Without any setting it is.
    fn is_utf8(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| self.var(name));
        locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
    }

    pub(crate) fn settings(&self, global: &Global) -> Result<HomeSettings, CommandError> {
        // A relative path would be a different place in each directory, and in the source tree here.
        let home = self.var("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
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
            CommandError::new("there is no home directory: `HOME` is not set to an absolute path")
                .hint("set `HOME`, or name the directories: `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`")
        };
        let data = global.data.as_ref().map(|dir| dir.to_string_lossy());
        let named = data.as_deref().or_else(|| self.var("TERRANE_HOME"));
        let named = named.map(|text| HomeLocation::parse(text, &self.cwd, &self.env));
        let named = named
            .transpose()
            .map_err(|err| CommandError::from_error(&err))?;
        Ok(HomeSettings {
            named_home: named,
            data_dir: dir("XDG_DATA_HOME", ".local/share").ok_or_else(missing)?,
            config_dir: dir("XDG_CONFIG_HOME", ".config").ok_or_else(missing)?,
            cache_dir: dir("XDG_CACHE_HOME", ".cache").ok_or_else(missing)?,
            key: self.key_source(&dir("XDG_CONFIG_HOME", ".config").ok_or_else(missing)?)?,
            is_ci: self.var("CI").is_some_and(|ci| ci != "false" && ci != "0"),
        })
    }

    /// The source of the master key; only one may be named.
    fn key_source(&self, config: &Path) -> Result<KeySource, CommandError> {
        const NAMES: [&str; 4] = [
            "TERRANE_KEY",
            "TERRANE_KEY_FILE",
            "TERRANE_KEY_AGE",
            "TERRANE_KEY_COMMAND",
        ];
        let named: Vec<&str> = NAMES
            .into_iter()
            .filter(|name| self.var(name).is_some())
            .collect();
        if let [first, second, ..] = named[..] {
            return Err(CommandError::new(format!(
                "`{first}` and `{second}` both name a master key"
            ))
            .hint("set one of them only")
            .status(ExitStatus::Usage));
        }
        let value = |name: &str| self.var(name).map(str::to_owned);
        if let Some(text) = value("TERRANE_KEY") {
            return Ok(KeySource::text(Secret::new(text)));
        }
        if let Some(line) = value("TERRANE_KEY_COMMAND") {
            let (dir, env) = (self.cwd.clone(), self.env.clone());
            return Ok(KeySource::Command { line, dir, env });
        }
        if let Some(identity) = value("TERRANE_KEY_AGE") {
            let identity = if is_key_material(&identity) {
                AgeIdentity::Text(Secret::new(identity))
            } else {
                AgeIdentity::File(self.cwd.join(identity))
            };
            let file = config.join("master.key.age");
            return Ok(KeySource::Age { identity, file });
        }
        let named = value("TERRANE_KEY_FILE");
        let file = named.map(|path| self.key_file("TERRANE_KEY_FILE", Path::new(&path)));
        Ok(KeySource::File(
            file.transpose()?
                .unwrap_or_else(|| config.join("master.key")),
        ))
    }

    /// The file that `named_by` names. A key that is given instead is not printed.
    pub(crate) fn key_file(&self, named_by: &str, path: &Path) -> Result<PathBuf, CommandError> {
        if is_key_material(&path.to_string_lossy()) {
            let message =
                format!("`{named_by}` contains a key, but must be the path of a key file");
            return Err(CommandError::new(message)
                .hint("put a key into `TERRANE_KEY`, an age identity into `TERRANE_KEY_AGE`")
                .status(ExitStatus::Usage));
        }
        Ok(self.cwd.join(path))
    }

    /// Prints why a command failed; never a debug dump.
    pub fn report(&self, error: &CommandError) -> ExitCode {
        if !error.is_said {
            let look = self.look(&Global::default());
            let text = errors::render(&error.message, &error.causes, &error.hints, look);
            // If standard error is closed, the error cannot be shown to anyone.
            drop(io::stderr().write_all(text.as_bytes()));
        }
        error.status.into()
    }
}
