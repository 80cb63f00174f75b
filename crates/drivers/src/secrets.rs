//! Where secret references lead: resolved in the stage that needs them, never stored, and never part of
//! an error.
//!
//! `env:`, `file:` and `sops:` belong to the machine of whoever asks; `command:` runs where the value is needed.
//! Not here: the sources that come later (Vault, clouds); they are named as not supported yet.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use model::secret::Secret;

use crate::process::{self, Capture, CaptureError, Environment};
use crate::sops::{self, DecryptError, Format, Identities, IdentityError};

/// Enough for any key or certificate chain.
const LARGEST: usize = 1 << 20;
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Where a secret comes from: `env:NAME`, `file:PATH`, `sops:FILE#KEY` or `command:PROGRAM ARGS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Env(String),
    /// As written: `~/` is the asker's home, a relative path starts at the project's root.
    File(String),
    /// A value of an encrypted file, whose path is as that of `File`.
    Sops {
        path: String,
        key: String,
    },
    /// A program and its arguments; no shell.
    Command(Vec<String>),
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(
        "`{reference}` is not a secret reference: it begins with none of `env:`, `file:`, `sops:`, `command:`"
    )]
    NoSource { reference: String },
    #[error("secrets from `{source_name}:` are not supported yet")]
    NotSupported { source_name: String },
    #[error("`{reference}` names nothing after its `:`")]
    Empty { reference: String },
    #[error("`{reference}` has a quote that does not end")]
    OpenQuote { reference: String },
    #[error("the environment variable `{name}` is not set")]
    Unset { name: String },
    #[error("could not read the secret file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` begins with `~`, and `HOME` is not set")]
    NoHome { path: String },
    #[error("the secret file `{}` is larger than {LARGEST} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("the secret from {origin} is not UTF-8")]
    NotText { origin: String },
    #[error("the secret from {origin} is empty")]
    NoValue { origin: String },
    #[error("`{reference}` does not say which value: `sops:FILE#KEY.PATH`")]
    NoKey { reference: String },
    #[error("the name of `{path}` does not say its format")]
    Format { path: String },
    #[error("could not read the private keys for `{path}`")]
    Identities {
        path: String,
        source: Box<IdentityError>,
    },
    #[error("could not decrypt `{path}`")]
    Decrypt {
        path: String,
        source: Box<DecryptError>,
    },
    #[error("`{path}` has no value at `{key}`")]
    NoSuchValue { path: String, key: String },
    #[error("could not run the secret command `{program}`")]
    Run {
        program: String,
        source: CaptureError,
    },
    /// What it said is left out: it may hold the secret.
    #[error("the secret command `{program}` ended with {exit}")]
    Failed {
        program: String,
        exit: process::Exit,
    },
}

/// Sources of PROJECT-FILE that are not built yet.
const LATER: [&str; 5] = [
    "dotenv",
    "vault",
    "azure-keyvault",
    "aws-secretsmanager",
    "aws-ssm",
];

impl FromStr for Reference {
    type Err = SecretError;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let no_source = || SecretError::NoSource {
            reference: raw.to_owned(),
        };
        let (source, rest) = raw.split_once(':').ok_or_else(no_source)?;
        if LATER.contains(&source) {
            return Err(SecretError::NotSupported {
                source_name: source.to_owned(),
            });
        }
        if !["env", "file", "sops", "command"].contains(&source) {
            return Err(no_source());
        }
        if rest.trim().is_empty() {
            return Err(SecretError::Empty {
                reference: raw.to_owned(),
            });
        }
        Ok(match source {
            "env" => Self::Env(rest.to_owned()),
            "file" => Self::File(rest.to_owned()),
            "sops" => match rest.split_once('#') {
                Some((path, key)) if !path.is_empty() && !key.is_empty() => Self::Sops {
                    path: path.to_owned(),
                    key: key.to_owned(),
                },
                _ => {
                    return Err(SecretError::NoKey {
                        reference: raw.to_owned(),
                    });
                }
            },
            _ => Self::Command(split_words(rest).ok_or_else(|| SecretError::OpenQuote {
                reference: raw.to_owned(),
            })?),
        })
    }
}

/// What resolving may look at.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The asker's environment.
    pub asker: &'a BTreeMap<String, String>,
    /// The project's root.
    pub root: &'a Path,
    /// What a command sees.
    pub env: &'a Environment,
}

/// Resolves a reference on this machine.
pub async fn resolve(
    reference: &Reference,
    around: Surroundings<'_>,
) -> Result<Secret, SecretError> {
    match reference {
        Reference::Env(name) => match around.asker.get(name) {
            Some(value) => Ok(Secret::new(value)),
            None => Err(SecretError::Unset { name: name.clone() }),
        },
        Reference::File(path) => {
            let home = around.asker.get("HOME").map(Path::new);
            read_file(path, around.root, home)
        }
        Reference::Sops { path, key } => read_sops(path, key, around.root, around.asker),
        Reference::Command(words) => run_command(words, around.root, around.env).await,
    }
}

/// Decrypts the one value that a `sops:` secret names, with the keys that the asker's environment leads to.
pub fn read_sops(
    path: &str,
    key: &str,
    root: &Path,
    asker: &BTreeMap<String, String>,
) -> Result<Secret, SecretError> {
    let format = Format::of(Path::new(path)).ok_or_else(|| SecretError::Format {
        path: path.to_owned(),
    })?;
    let text = read_file(path, root, asker.get("HOME").map(Path::new))?;
    let identities = Identities::from_environment(asker).map_err(|source| {
        let path = path.to_owned();
        let source = Box::new(source);
        SecretError::Identities { path, source }
    })?;
    let opened = sops::decrypt(text.expose(), format, &identities).map_err(|source| {
        let path = path.to_owned();
        let source = Box::new(source);
        SecretError::Decrypt { path, source }
    })?;
    opened.value(key).ok_or_else(|| SecretError::NoSuchValue {
        path: path.to_owned(),
        key: key.to_owned(),
    })
}

/// Reads a `file:` secret; one newline at its end does not count.
pub fn read_file(path: &str, root: &Path, home: Option<&Path>) -> Result<Secret, SecretError> {
    let full = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) => {
            return Err(SecretError::NoHome {
                path: path.to_owned(),
            });
        }
        (None, _) => root.join(path),
    };
    let failed = |source| SecretError::Read {
        path: full.clone(),
        source,
    };
    let mut bytes = Vec::new();
    File::open(&full)
        .map_err(failed)?
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > LARGEST {
        return Err(SecretError::TooLarge { path: full });
    }
    text(bytes, &format!("`file:{path}`"))
}

/// Runs a `command:` secret in the project's root and takes what it prints.
pub async fn run_command(
    words: &[String],
    root: &Path,
    env: &Environment,
) -> Result<Secret, SecretError> {
    let Some((program, args)) = words.split_first() else {
        return Err(SecretError::Empty {
            reference: "command:".to_owned(),
        });
    };
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let path = env.get("PATH").map(Secret::expose).unwrap_or_default();
    let found = if program.contains('/') {
        Some(root.join(program))
    } else {
        process::find_program(program, path.as_ref())
    };
    let said = process::capture(Capture {
        timeout: COMMAND_TIMEOUT,
        limit: LARGEST,
        ..Capture::new(
            found.as_deref().unwrap_or(Path::new(program)),
            &args,
            root,
            env,
        )
    })
    .await
    .map_err(|source| SecretError::Run {
        program: program.clone(),
        source,
    })?;
    if !said.exit.success() {
        return Err(SecretError::Failed {
            program: program.clone(),
            exit: said.exit,
        });
    }
    text(said.stdout, &format!("the command `{program}`"))
}

fn text(bytes: Vec<u8>, origin: &str) -> Result<Secret, SecretError> {
    let mut value = String::from_utf8(bytes).map_err(|_| SecretError::NotText {
        origin: origin.to_owned(),
    })?;
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    if value.is_empty() {
        return Err(SecretError::NoValue {
            origin: origin.to_owned(),
        });
    }
    Ok(Secret::new(value))
}

/// Words between spaces; quotes of either kind hold one together. No other character is special.
pub fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
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

#[cfg(test)]
mod tests;
