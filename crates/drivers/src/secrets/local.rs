//! Secrets of this machine: plain and encrypted files, files of variables, and outputs of programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use model::base::secret::Secret;
use model::hcl::suggest::nearest;
use zeroize::Zeroizing;

use super::{LARGEST, SecretError};
use crate::process::complaint;
use crate::process::{self, Capture, Environment};
use crate::sops::{self, Identities, SopsFormat};

/// Long enough for a person to touch a hardware key or type a PIN.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Decrypts the value that a `sops:` secret names, with the keys found through the caller's environment.
pub(super) fn read_sops(
    path: &str,
    key: &str,
    root: &Path,
    asker: &BTreeMap<String, String>,
) -> Result<Secret, SecretError> {
    let format = SopsFormat::of(Path::new(path)).ok_or_else(|| SecretError::Format {
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
    opened.value(key).ok_or_else(|| {
        let paths = opened.paths();
        no_such_value(path, key, paths.iter().map(String::as_str))
    })
}

fn no_such_value<'a>(
    path: &str,
    key: &str,
    there: impl IntoIterator<Item = &'a str>,
) -> SecretError {
    SecretError::NoSuchValue {
        path: path.to_owned(),
        key: key.to_owned(),
        near: nearest(key, there).map(ToOwned::to_owned),
    }
}

/// Reads a `file:` secret, without one trailing newline.
pub(super) fn read_file(
    path: &str,
    root: &Path,
    home: Option<&Path>,
) -> Result<Secret, SecretError> {
    let full = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) => {
            return Err(SecretError::NoHome {
                path: path.to_owned(),
            });
        }
        (None, _) => root.join(path),
    };
    let failed = |source: io::Error| {
        let path = full.clone();
        match source.kind() {
            io::ErrorKind::NotFound => SecretError::NoFile { path },
            _ => SecretError::Read { path, source },
        }
    };
    let file = File::open(&full).map_err(failed)?;
    // Wiped on drop; allocated at once, so that growing leaves no copies.
    let mut bytes = Zeroizing::new(Vec::with_capacity(file.metadata().map_or(0, |it| {
        usize::try_from(it.len()).unwrap_or(LARGEST).min(LARGEST) + 1
    })));
    file.take(LARGEST as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > LARGEST {
        return Err(SecretError::TooLarge { path: full });
    }
    text(&bytes, &format!("`file:{path}`"))
}

/// Reads one variable of a `.env` file.
pub(super) fn read_dotenv(
    path: &str,
    name: &str,
    root: &Path,
    home: Option<&Path>,
) -> Result<Secret, SecretError> {
    let file = read_file(path, root, home)?;
    let text = file.expose();
    let mut names = Vec::new();
    let mut found = None;
    let mut rest = text;
    while !rest.is_empty() {
        let line_number = 1 + text[..text.len() - rest.len()].matches('\n').count();
        let broken = || SecretError::Line {
            path: path.to_owned(),
            line: line_number,
        };
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with('#') {
            rest = after;
            continue;
        }
        let (key, _) = line.split_once('=').ok_or_else(broken)?;
        let value = rest[key.len() + 1..].trim_start_matches([' ', '\t']);
        let key = key.trim();
        let key = key.strip_prefix("export ").unwrap_or(key).trim();
        names.push(key);
        match unquoted(value) {
            Some((value, left)) => {
                rest = left;
                if key == name {
                    found = Some(value); // The last one counts, as in a shell.
                }
            }
            // Another variable: skip it.
            None if key != name => rest = after,
            None => return Err(broken()),
        }
    }
    let found = found.ok_or_else(|| no_such_value(path, name, names))?;
    if found.expose().is_empty() {
        let origin = format!("`dotenv:{path}#{name}`");
        return Err(SecretError::NoValue { origin });
    }
    Ok(found)
}

/// Parses the value at the start of a text, like a shell, and returns the lines after it. Single quotes keep the
/// text as it is; double quotes support `\n`, `\"` and `\\`; without quotes, the value ends at ` #`. A quoted
/// value may span lines. Variables are not expanded.
fn unquoted(text: &str) -> Option<(Secret, &str)> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return Some((Secret::new(inner), after_value(after)?));
    }
    let Some(rest) = text.strip_prefix('"') else {
        let (line, after) = text.split_once('\n').unwrap_or((text, ""));
        let plain = line.split(" #").next().unwrap_or_default();
        return Some((Secret::new(plain.trim()), after));
    };
    let mut inner = Zeroizing::new(String::with_capacity(rest.len()));
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some((Secret::new(inner.as_str()), after_value(chars.as_str())?)),
            '\\' => match chars.next()? {
                'n' => inner.push('\n'),
                'r' => inner.push('\r'),
                't' => inner.push('\t'),
                other => inner.push(other),
            },
            _ => inner.push(c),
        }
    }
    None
}

/// The lines after a value, if only a comment follows it on its line.
fn after_value(text: &str) -> Option<&str> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let line = line.trim();
    (line.is_empty() || line.starts_with('#')).then_some(after)
}

/// Runs a `command:` secret in the project's root and returns its output.
pub(super) async fn run_command(
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
    let stdout = Zeroizing::new(said.stdout);
    let stderr = Zeroizing::new(said.stderr);
    if !said.exit.success() {
        return Err(SecretError::Failed {
            program: program.clone(),
            exit: said.exit,
            said: complaint(&stderr, &stdout, env),
        });
    }
    text(&stdout, &format!("the command `{program}`"))
}

/// The text without one trailing newline; an empty output is an error.
pub(super) fn text(bytes: &[u8], origin: &str) -> Result<Secret, SecretError> {
    let value = std::str::from_utf8(bytes).map_err(|_| SecretError::NotText {
        origin: origin.to_owned(),
    })?;
    let value = match value.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => value,
    };
    if value.is_empty() {
        return Err(SecretError::NoValue {
            origin: origin.to_owned(),
        });
    }
    Ok(Secret::new(value))
}
