//! Which engine commands `terrane exec` allows: those that terrane does not provide itself, without options that would
//! bypass its states, locks and inputs.
//!
//! Not here: executing them (`control::exec`).

use crate::base::error::{ErrorKind, Explain, NextStep, advice};
use std::fmt;

use serde::{Deserialize, Serialize};

/// A checked engine command line. Stored in a run's spec: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The command, such as `state mv`.
    pub command: Vec<String>,
    /// The arguments after the command.
    pub args: Vec<String>,
    pub kind: ExecKind,
    /// The reason, if one was given.
    #[serde(default)]
    pub reason: Option<String>,
    /// The whole line without the secrets that were known at the request.
    #[serde(default)]
    pub shown: Option<String>,
    /// The arguments, if they contain a secret. They are only stored in sealed form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecKind {
    /// Changes nothing: takes no lane and no lock, and its endpoint refuses locks and writes.
    Read,
    /// Changes the state: a normal run.
    Write,
}

/// Every allowed command, and whether both engines accept `-var-file` for it.
const COMMANDS: &[(&str, ExecKind, bool)] = &[
    ("console", ExecKind::Read, true),
    ("graph", ExecKind::Read, false),
    ("output", ExecKind::Read, false),
    ("providers", ExecKind::Read, false),
    ("providers schema", ExecKind::Read, false),
    ("show", ExecKind::Read, false),
    ("state list", ExecKind::Read, false),
    ("state pull", ExecKind::Read, false),
    ("state show", ExecKind::Read, false),
    ("validate", ExecKind::Read, false),
    ("import", ExecKind::Write, true),
    ("state mv", ExecKind::Write, false),
    ("state replace-provider", ExecKind::Write, false),
    ("state rm", ExecKind::Write, false),
    ("taint", ExecKind::Write, false),
    ("untaint", ExecKind::Write, false),
];

/// Commands that edit a state independently of its source. `import` and `taint` prepare the next plan.
const SURGERY: &[&str] = &["state mv", "state replace-provider", "state rm"];

/// Commands that terrane provides in another way.
const INSTEAD: &[(&str, &str)] = &[
    ("apply", "`terrane apply STACK` plans, asks and applies"),
    (
        "destroy",
        "`terrane destroy STACK` goes backwards through the graph",
    ),
    ("fmt", "`terrane fmt` formats the project and its stacks"),
    (
        "force-unlock",
        "`terrane lock break STACK --reason …` looks first whether the holder is alive",
    ),
    ("get", "modules are fetched when the source is laid out"),
    ("init", "terrane initialises a stack whenever it is needed"),
    ("login", "credentials come from the contexts of the stack"),
    ("logout", "credentials come from the contexts of the stack"),
    ("plan", "`terrane plan STACK` shows what would change"),
    (
        "providers lock",
        "`terrane engine lock STACK` completes the provider lock file",
    ),
    (
        "providers mirror",
        "terrane keeps a cache of providers itself",
    ),
    (
        "refresh",
        "`terrane plan STACK --refresh-only` shows what differs",
    ),
    (
        "state push",
        "`terrane state push STACK FILE --reason …` shows what it would change first",
    ),
    (
        "test",
        "run the engine's tests in the source, they need no state",
    ),
    (
        "workspace",
        "each stack has one state; give another stack for another one",
    ),
];

/// Options that would bypass something, with the reason.
const OPTIONS: &[(&str, &str)] = &[
    ("backend-config", "the target says where states are"),
    ("backup", "every version is kept already"),
    ("backup-out", "every version is kept already"),
    ("chdir", "the engine runs in the stack's directory"),
    ("config", "the engine runs on the stack's own source"),
    (
        "ignore-remote-version",
        "the project says which version of the engine runs",
    ),
    ("input", "the inputs come from the project file"),
    ("plugin-dir", "providers are those of the lock file"),
    ("state", "it would be another state than that of the stack"),
    (
        "state-out",
        "it would be another state than that of the stack",
    ),
    ("var", "the inputs come from the project file"),
    ("var-file", "the inputs come from the project file"),
];

/// Why a command line is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecRefusal {
    #[error("no command for the engine was given")]
    Empty,
    #[error("`{command}` is not passed on to the engine")]
    Command {
        command: String,
        instead: &'static str,
    },
    #[error("cannot pass `{command}` to the engine: it is not a known command")]
    Unknown { command: String },
    #[error("option `-{option}` is not passed on to the engine: {why}")]
    Option { option: String, why: &'static str },
    #[error("cannot run `{command}`: it changes the state directly, which requires a reason")]
    NoReason { command: String },
}

impl Explain for ExecRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty | Self::Unknown { .. } | Self::NoReason { .. } => ErrorKind::Usage,
            Self::Command { .. } | Self::Option { .. } => ErrorKind::Refused,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Command { instead, .. } => advice(*instead),
            Self::Empty | Self::Unknown { .. } => {
                let all: Vec<String> = COMMANDS.iter().map(|it| format!("`{}`", it.0)).collect();
                advice(format!("there are {}", all.join(", ")))
            }
            Self::Option { .. } => advice("leave it out"),
            Self::NoReason { .. } => advice(
                "add a reason before `--`: `--reason \"…\"`; the record stays open until the next successful apply of the stack",
            ),
        }]
    }
}

impl Exec {
    /// Checks a command line; `words` are the arguments after `--`.
    pub fn parse(words: &[String], reason: Option<String>) -> Result<Self, ExecRefusal> {
        let first = words.first().ok_or(ExecRefusal::Empty)?;
        if let Some(refusal) = check(first, ExecKind::Write) {
            return Err(refusal);
        }
        let two = words.get(1).map(|second| format!("{first} {second}"));
        let candidates = [two.as_deref(), Some(first.as_str())];
        for name in candidates.into_iter().flatten() {
            if let Some((_, instead)) = INSTEAD.iter().find(|(command, _)| *command == name) {
                return Err(ExecRefusal::Command {
                    command: name.to_owned(),
                    instead,
                });
            }
            let Some((_, kind, _)) = COMMANDS.iter().find(|(command, ..)| *command == name) else {
                continue;
            };
            let command: Vec<String> = name.split(' ').map(str::to_owned).collect();
            let args = words[command.len()..].to_vec();
            // Engines do not treat words after a bare `--` as options.
            let mut options = args.iter().take_while(|word| *word != "--");
            if let Some(refusal) = options.find_map(|word| check(word, *kind)) {
                return Err(refusal);
            }
            let reason = reason.map(|reason| reason.trim().to_owned());
            let reason = reason.filter(|reason| !reason.is_empty());
            let exec = Self {
                command,
                args,
                kind: *kind,
                reason,
                shown: None,
                sealed: None,
            };
            if exec.is_surgery() && exec.reason.is_none() {
                let command = name.to_owned();
                return Err(ExecRefusal::NoReason { command });
            }
            return Ok(exec);
        }
        let command = two.filter(|_| first == "state" || first == "providers");
        Err(ExecRefusal::Unknown {
            command: command.unwrap_or_else(|| first.clone()),
        })
    }

    /// Whether it edits the state directly, independently of an apply. This is break-glass, like `terrane state rm`.
    pub fn is_surgery(&self) -> bool {
        SURGERY.contains(&self.command.join(" ").as_str())
    }

    /// The line as shown to people.
    pub fn line(&self) -> String {
        self.shown.clone().unwrap_or_else(|| self.to_string())
    }

    /// Whether every engine accepts variable files for it.
    pub fn takes_variables(&self) -> bool {
        let name = self.command.join(" ");
        COMMANDS
            .iter()
            .any(|(command, _, takes)| *command == name && *takes)
    }
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self
            .command
            .iter()
            .chain(&self.args)
            .map(String::as_str)
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// Engines accept options with one or two dashes, and values after `=` or as the next word.
fn check(word: &str, kind: ExecKind) -> Option<ExecRefusal> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let (name, value) = name.split_once('=').unwrap_or((name, "true"));
    let refused = |why| ExecRefusal::Option {
        option: name.to_owned(),
        why,
    };
    let is_yes = ["1", "t", "T", "TRUE", "true", "True"].contains(&value);
    if name == "lock" && kind == ExecKind::Write && !is_yes {
        return Some(refused("a state is written only under its lock"));
    }
    let (_, why) = OPTIONS.iter().find(|(option, _)| *option == name)?;
    Some(refused(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Exec, ExecRefusal> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Exec::parse(&words, Some("why".to_owned()))
    }

    #[test]
    fn what_is_passed_on() {
        for (line, command, kind) in [
            ("console", "console", ExecKind::Read),
            ("state list", "state list", ExecKind::Read),
            ("state show a.b", "state show", ExecKind::Read),
            ("output -json", "output", ExecKind::Read),
            ("providers", "providers", ExecKind::Read),
            ("providers schema -json", "providers schema", ExecKind::Read),
            ("output -lock=false x", "output", ExecKind::Read),
            ("state mv a.b a.c", "state mv", ExecKind::Write),
            (
                "state rm -lock-timeout=10s a.b",
                "state rm",
                ExecKind::Write,
            ),
            ("state rm -lock=true a.b", "state rm", ExecKind::Write),
            ("import a.b id", "import", ExecKind::Write),
            ("import -- a.b -state", "import", ExecKind::Write),
            ("taint a.b", "taint", ExecKind::Write),
        ] {
            let exec = parse(line).unwrap_or_else(|err| panic!("{line}: {err}"));
            assert_eq!(
                (exec.command.join(" ").as_str(), exec.kind),
                (command, kind)
            );
            assert_eq!(exec.to_string(), line);
        }
    }

    #[test]
    fn what_is_not() {
        let refusal = |line: &str| parse(line).unwrap_err().to_string();
        for (line, why) in [
            ("", "no command for the engine was given"),
            (
                "state",
                "cannot pass `state` to the engine: it is not a known command",
            ),
            (
                "state frob a",
                "cannot pass `state frob` to the engine: it is not a known command",
            ),
            (
                "frob a",
                "cannot pass `frob` to the engine: it is not a known command",
            ),
            (
                "-version",
                "cannot pass `-version` to the engine: it is not a known command",
            ),
            (
                "-chdir=x state list",
                "option `-chdir` is not passed on to the engine: the engine runs in the stack's directory",
            ),
            (
                "state list -state=x",
                "option `-state` is not passed on to the engine: it would be another state than that of the stack",
            ),
            (
                "state mv -state-out x a b",
                "option `-state-out` is not passed on to the engine: it would be another state than that of the stack",
            ),
            (
                "state mv --backup=x a b",
                "option `-backup` is not passed on to the engine: every version is kept already",
            ),
            (
                "taint -lock=false a",
                "option `-lock` is not passed on to the engine: a state is written only under its lock",
            ),
            (
                "taint --lock=0 a",
                "option `-lock` is not passed on to the engine: a state is written only under its lock",
            ),
            (
                "import -var=a=b c d",
                "option `-var` is not passed on to the engine: the inputs come from the project file",
            ),
            (
                "console -plugin-dir=x",
                "option `-plugin-dir` is not passed on to the engine: providers are those of the lock file",
            ),
        ] {
            assert_eq!(refusal(line), why, "{line}");
        }
        for (command, instead) in INSTEAD {
            let refused = parse(&format!("{command} x")).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("`{command}` is not passed on to the engine")
            );
            assert_eq!(refused.hint().as_deref(), Some(*instead));
        }
    }
}
