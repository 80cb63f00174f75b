//! Secrets of this machine: files in clear and encrypted, files of variables, and what programs print.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use model::secret::Secret;
use zeroize::Zeroizing;

use super::{LARGEST, SecretError};
use crate::process::{self, Capture, Environment};
use crate::sops::{self, Format, Identities};

const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Decrypts the one value that a `sops:` secret names, with the keys that the asker's environment leads to.
pub(super) fn read_sops(
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
    let failed = |source| SecretError::Read {
        path: full.clone(),
        source,
    };
    let file = File::open(&full).map_err(failed)?;
    // Wiped, also what is left behind where it grows.
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
    let mut found = None;
    for (index, line) in file.expose().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line_number = index + 1;
        let broken = || SecretError::Line {
            path: path.to_owned(),
            line: line_number,
        };
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let (key, value) = line.split_once('=').ok_or_else(broken)?;
        if key.trim_end() == name {
            // The last one counts, as in a shell.
            found = Some(unquoted(value.trim_start()).ok_or_else(broken)?);
        }
    }
    let found = found.ok_or_else(|| SecretError::NoSuchValue {
        path: path.to_owned(),
        key: name.to_owned(),
    })?;
    text(
        found.expose().as_bytes(),
        &format!("`dotenv:{path}#{name}`"),
    )
}

/// A value as a shell would take it: in single quotes as it is; in double quotes with `\n`, `\"` and `\\`; else up to
/// ` #`. Variables are not filled in.
fn unquoted(value: &str) -> Option<Secret> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return is_over(after).then(|| Secret::new(inner));
    }
    let Some(rest) = value.strip_prefix('"') else {
        let plain = value.split(" #").next().unwrap_or_default();
        return Some(Secret::new(plain.trim_end()));
    };
    let mut inner = Zeroizing::new(String::with_capacity(rest.len()));
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return is_over(chars.as_str()).then(|| Secret::new(inner.as_str())),
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

fn is_over(after: &str) -> bool {
    let after = after.trim();
    after.is_empty() || after.starts_with('#')
}

/// Runs a `command:` secret in the project's root and takes what it prints.
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
    if !said.exit.success() {
        return Err(SecretError::Failed {
            program: program.clone(),
            exit: said.exit,
        });
    }
    text(&stdout, &format!("the command `{program}`"))
}

/// One newline at its end does not count; nothing at all is no secret.
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
