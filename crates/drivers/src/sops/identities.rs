//! The private keys that open files, and where a machine keeps them.
//!
//! The environment is passed in; the process's own is not read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, iter};

use model::base::secret::Secret;

use super::cipher::DataKey;
use super::plugin::{self, PluginError, Plugins};
use crate::process::{self, Capture, CaptureError, Environment};
use crate::process::{complaint, split_words};

/// Larger files are not key files.
const LARGEST: u64 = 1 << 20;

/// The variables that hold keys or lead to them.
const VARIABLES: [&str; 5] = [
    "SOPS_AGE_KEY",
    "SOPS_AGE_KEY_FILE",
    "SOPS_AGE_KEY_CMD",
    "SOPS_AGE_SSH_PRIVATE_KEY_FILE",
    "SOPS_AGE_SSH_PRIVATE_KEY_CMD",
];

/// Asks or informs a person; `None` if there is no answer.
pub type PromptFn = Arc<dyn Fn(&Prompt<'_>) -> Option<Secret> + Send + Sync>;

/// A question to the person on behalf of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt<'q> {
    /// The passphrase of a key.
    Passphrase { of: &'q str },
    /// A message of a plugin, which needs no answer.
    Message { plugin: &'q str, words: &'q str },
    /// A question of a plugin.
    Text { plugin: &'q str, words: &'q str },
    /// A question of a plugin whose answer must not be displayed.
    Secret { plugin: &'q str, words: &'q str },
}

/// Private keys, never shown.
#[derive(Default)]
pub struct Identities {
    keys: Vec<Box<dyn age::Identity + Send + Sync>>,
    /// Keys that plugins manage.
    foreign: Vec<plugin::PluginIdentity>,
    plugins: Plugins,
    /// Where keys were searched, for the error message if none fits.
    sought: Vec<String>,
    ask: Option<PromptFn>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("could not read the age keys in `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("could not run the command in `{name}`")]
    Run {
        name: &'static str,
        source: CaptureError,
    },
    #[error("the command in `{name}` {why}")]
    Command { name: &'static str, why: String },
    #[error("line {line} of {origin} is not an age key")]
    Line { origin: String, line: usize },
    #[error("{origin} is protected by a passphrase, and there is no terminal to ask for it")]
    Passphrase { origin: String },
    #[error("cannot decrypt {origin} with this passphrase")]
    WrongPassphrase { origin: String },
    #[error("`{}` is not an SSH key that age can use", path.display())]
    Ssh { path: PathBuf, source: io::Error },
}

impl Identities {
    /// All keys that the official tool would find, from: `SOPS_AGE_KEY`; the files that `SOPS_AGE_KEY_FILE` and
    /// `SOPS_AGE_SSH_PRIVATE_KEY_FILE` name; the output of the commands in `SOPS_AGE_KEY_CMD` and
    /// `SOPS_AGE_SSH_PRIVATE_KEY_CMD`; `sops/age/keys.txt` in the user's configuration; the user's SSH keys.
    pub fn from_environment(environment: &BTreeMap<String, String>) -> Result<Self, IdentityError> {
        Self::gather(environment, None)
    }

    /// The same, with a way to ask for passphrases.
    pub fn asking(
        environment: &BTreeMap<String, String>,
        ask: PromptFn,
    ) -> Result<Self, IdentityError> {
        Self::gather(environment, Some(ask))
    }

    fn gather(
        environment: &BTreeMap<String, String>,
        ask: Option<PromptFn>,
    ) -> Result<Self, IdentityError> {
        let mut found = Self {
            plugins: Plugins::new(environment, ask.clone()),
            ask,
            ..Self::default()
        };
        let named = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        if let Some(keys) = named("SOPS_AGE_KEY") {
            found.add(&Secret::new(keys), "`SOPS_AGE_KEY`")?;
        }
        if let Some(path) = named("SOPS_AGE_KEY_FILE") {
            found.add_file(Path::new(path))?;
        }
        if let Some(line) = named("SOPS_AGE_KEY_CMD") {
            let printed = printed_by("SOPS_AGE_KEY_CMD", line, environment)?;
            found.add(&printed, "what `SOPS_AGE_KEY_CMD` prints")?;
        }
        if let Some(path) = named("SOPS_AGE_SSH_PRIVATE_KEY_FILE") {
            found.add_ssh(Path::new(path), true)?;
        }
        if let Some(line) = named("SOPS_AGE_SSH_PRIVATE_KEY_CMD") {
            let name = "SOPS_AGE_SSH_PRIVATE_KEY_CMD";
            let printed = printed_by(name, line, environment)?;
            found.add_ssh_text(&printed, Path::new(name), true)?;
        }
        let unset = VARIABLES.iter().filter(|name| named(name).is_none());
        found.sought.extend(unset.map(|name| format!("`{name}`")));
        let home = named("HOME").map(PathBuf::from);
        let config = named("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| home.as_ref().map(|home| home.join(".config")));
        if let Some(config) = config {
            let keys = config.join("sops/age/keys.txt");
            if keys.exists() {
                found.add_file(&keys)?;
            } else {
                found.sought.push(format!("`{}`", keys.display()));
            }
        }
        // These default files were not named for this purpose: skip one that needs a passphrase or is not a key.
        for name in ["id_ed25519", "id_rsa"] {
            if let Some(home) = &home {
                let path = home.join(".ssh").join(name);
                if !path.exists() || found.add_ssh(&path, false).is_err() {
                    found.sought.push(format!("`{}`", path.display()));
                }
            }
        }
        Ok(found)
    }

    /// The keys of a text, one per line; `#` starts a comment.
    pub fn from_text(text: &Secret) -> Result<Self, IdentityError> {
        let mut found = Self::default();
        found.add(text, "the keys")?;
        Ok(found)
    }

    pub fn len(&self) -> usize {
        self.keys.len() + self.foreign.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where keys were searched but not found.
    pub fn sought(&self) -> &[String] {
        &self.sought
    }

    fn add(&mut self, text: &Secret, origin: &str) -> Result<(), IdentityError> {
        let origin = origin.to_owned();
        let text = text.expose();
        if text.starts_with(ARMOURED) {
            return self.add_protected(text.as_bytes(), origin);
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // `SOPS_AGE_KEY` may hold several keys in one line.
            for word in line.split_whitespace() {
                if let Ok(key) = word.parse::<age::x25519::Identity>() {
                    self.keys.push(Box::new(key));
                } else if let Some(key) = plugin::PluginIdentity::new(word, &self.plugins) {
                    self.foreign.push(key);
                } else {
                    let line = number + 1;
                    return Err(IdentityError::Line { origin, line });
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<(), IdentityError> {
        let origin = format!("`{}`", path.display());
        let bytes = read_bytes(path)?;
        if bytes.starts_with(PROTECTED) {
            return self.add_protected(&bytes, origin);
        }
        self.add(&text_of(path, bytes)?, &origin)
    }

    /// The keys in a passphrase-protected file.
    fn add_protected(&mut self, bytes: &[u8], origin: String) -> Result<(), IdentityError> {
        let Some(passphrase) = self.ask_passphrase(&origin) else {
            return Err(IdentityError::Passphrase { origin });
        };
        let passphrase = age::secrecy::SecretString::from(passphrase.expose().to_owned());
        let identity = age::scrypt::Identity::new(passphrase);
        let mut text = String::new();
        let opened = age::Decryptor::new_buffered(age::armor::ArmoredReader::new(bytes))
            .and_then(|it| it.decrypt(iter::once(&identity as &dyn age::Identity)));
        let read = opened.map(|mut reader| reader.read_to_string(&mut text));
        let text = Secret::new(text);
        match read {
            // A nested protected file is refused, to avoid endless questions.
            Ok(Ok(_)) if !text.expose().starts_with(ARMOURED) => self.add(&text, &origin),
            _ => Err(IdentityError::WrongPassphrase { origin }),
        }
    }

    fn add_ssh(&mut self, path: &Path, is_named: bool) -> Result<(), IdentityError> {
        let text = text_of(path, read_bytes(path)?)?;
        self.add_ssh_text(&text, path, is_named)
    }

    fn add_ssh_text(
        &mut self,
        text: &Secret,
        path: &Path,
        is_named: bool,
    ) -> Result<(), IdentityError> {
        let name = path.display().to_string();
        let key = age::ssh::Identity::from_buffer(text.expose().as_bytes(), Some(name));
        match key {
            Ok(key @ age::ssh::Identity::Unencrypted(_)) => self.keys.push(Box::new(key)),
            // The passphrase is requested when a file needs this key, not before.
            Ok(key @ age::ssh::Identity::Encrypted(_)) if is_named && self.ask.is_some() => {
                let origin = format!("`{}`", path.display());
                let asking = PromptCallbacks(origin, self.ask.clone());
                self.keys.push(Box::new(key.with_callbacks(asking)));
            }
            Ok(age::ssh::Identity::Encrypted(_)) => {
                return Err(IdentityError::Passphrase {
                    origin: format!("`{}`", path.display()),
                });
            }
            Ok(age::ssh::Identity::Unsupported(_)) => {
                return Err(IdentityError::Ssh {
                    path: path.to_owned(),
                    source: io::Error::from(io::ErrorKind::Unsupported),
                });
            }
            Err(source) => {
                return Err(IdentityError::Ssh {
                    path: path.to_owned(),
                    source,
                });
            }
        }
        Ok(())
    }

    fn ask_passphrase(&self, of: &str) -> Option<Secret> {
        self.ask.as_ref()?(&Prompt::Passphrase { of })
    }

    /// The data key, if an identity opens one of its copies. Our own keys are tried first, since a plugin may need
    /// a person. Otherwise returns the error of the first plugin that failed.
    pub(super) fn unwrap(&self, copies: &[&str]) -> Result<DataKey, Option<PluginError>> {
        let own = self.keys.iter().map(|key| &**key as &dyn age::Identity);
        let opened = copies
            .iter()
            .find_map(|copy| open(copy, own.clone()).ok().flatten());
        if let Some(key) = opened {
            return Ok(key);
        }
        let mut failed = None;
        for key in &self.foreign {
            for copy in copies {
                match open(copy, iter::once(key as &dyn age::Identity)) {
                    Ok(Some(key)) => return Ok(key),
                    Ok(None) => {}
                    Err(err) => {
                        failed = failed.or(Some(err));
                        break;
                    }
                }
            }
        }
        Err(failed)
    }
}

/// The data key from one of its copies, if these identities open it.
fn open<'k>(
    copy: &str,
    keys: impl Iterator<Item = &'k dyn age::Identity>,
) -> Result<Option<DataKey>, PluginError> {
    let armoured = age::armor::ArmoredReader::new(copy.as_bytes());
    let Ok(decryptor) = age::Decryptor::new_buffered(armoured) else {
        return Ok(None);
    };
    let mut reader = match decryptor.decrypt(keys) {
        Ok(reader) => reader,
        Err(age::DecryptError::Io(err)) => return err.downcast().map_or(Ok(None), Err),
        Err(_) => return Ok(None),
    };
    let mut bytes = [0; 33];
    let mut length = 0;
    while length < bytes.len() {
        match reader.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(_) => return Ok(None),
        }
    }
    let key = DataKey::from_bytes(&bytes[..length]);
    bytes.fill(0);
    std::hint::black_box(&bytes);
    Ok(key)
}

/// How passphrase-protected files begin.
const PROTECTED: &[u8] = b"age-encryption.org/";
const ARMOURED: &str = "-----BEGIN AGE ENCRYPTED";

/// Asks the person on behalf of a key.
#[derive(Clone)]
struct PromptCallbacks(String, Option<PromptFn>);

impl age::Callbacks for PromptCallbacks {
    fn display_message(&self, _message: &str) {}

    fn confirm(&self, _message: &str, _yes: &str, _no: Option<&str>) -> Option<bool> {
        None
    }

    fn request_public_string(&self, _description: &str) -> Option<String> {
        None
    }

    fn request_passphrase(&self, _description: &str) -> Option<age::secrecy::SecretString> {
        let passphrase = self.1.as_ref()?(&Prompt::Passphrase { of: &self.0 })?;
        Some(passphrase.expose().to_owned().into())
    }
}

/// The keys that a command prints, so that none needs to be on disk.
fn printed_by(
    name: &'static str,
    line: &str,
    environment: &BTreeMap<String, String>,
) -> Result<Secret, IdentityError> {
    let failed = |why: String| IdentityError::Command { name, why };
    let words = split_words(line).ok_or_else(|| failed("has an unclosed quote".into()))?;
    let Some((program, args)) = words.split_first() else {
        return Err(failed("names no program".to_owned()));
    };
    let path = environment.get("PATH").map(String::as_str);
    let found = if program.contains('/') {
        None
    } else {
        process::find_program(program, path.unwrap_or_default().as_ref())
    };
    let program = found.unwrap_or_else(|| PathBuf::from(program));
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let env: Environment = environment.iter().collect();
    let said = process::capture_blocking(&Capture {
        timeout: Duration::from_mins(1),
        ..Capture::new(&program, &args, Path::new("."), &env)
    });
    let said = said.map_err(|source| IdentityError::Run { name, source })?;
    if !said.exit.success() {
        let complaint = complaint(&said.stderr, &said.stdout, &env);
        let complaint = complaint.map_or_else(String::new, |said| format!(": {said}"));
        return Err(failed(format!("ended with {}{complaint}", said.exit)));
    }
    let text = String::from_utf8(said.stdout);
    text.map(Secret::new)
        .map_err(|_| failed("printed what is no text".to_owned()))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let failed = |source| IdentityError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    fs::File::open(path)
        .map_err(failed)?
        .take(LARGEST)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

fn text_of(path: &Path, bytes: Vec<u8>) -> Result<Secret, IdentityError> {
    let text = String::from_utf8(bytes).map_err(|_| IdentityError::Read {
        path: path.to_owned(),
        source: io::ErrorKind::InvalidData.into(),
    })?;
    Ok(Secret::new(text))
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = iter::repeat_n("[secret]", self.len());
        f.debug_list().entries(keys).finish()
    }
}
