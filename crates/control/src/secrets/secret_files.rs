//! Files of secrets in a repository: encrypts, decrypts and changes them. A crash leaves either the old file
//! or the new one.
//!
//! Not here: the format and its cryptography (`drivers::sops`).

mod editing;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drivers::process::{self, Environment, Exit, ForegroundOutput, StartError};
use drivers::sops::{
    self, CreationRules, DecryptError, DecryptedDocument, EncryptError, EncryptionRule, Identities,
    IdentityError, PathError, Plugins, PromptFn, ReadError, Recipient, RecipientError, RuleError,
    RulesError, SopsFormat, SopsLayout,
};
use jiff::Timestamp;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::secret::Secret;
use model::hcl::suggest::nearest;

pub use drivers::sops::Prompt;
pub use editing::EditSession;

const RULES: &str = ".sops.yaml";

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("there is no file `{}`", path.display())]
    NoFile { path: PathBuf },
    #[error("could not read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot determine the format of `{}` from its name", path.display())]
    Format { path: PathBuf },
    #[error("could not read the rules in `{}`", path.display())]
    Rules { path: PathBuf, source: RulesError },
    #[error("no rule of `{}` can be used", path.display())]
    Rule {
        path: PathBuf,
        source: Box<RuleError>,
    },
    #[error("cannot find the recipients of `{}`: there is no `{RULES}` beside or above it", path.display())]
    NoRules { path: PathBuf },
    #[error(transparent)]
    Recipient(#[from] RecipientError),
    #[error("could not read the private keys")]
    Identities(#[from] IdentityError),
    #[error("could not decrypt `{}`", path.display())]
    Decrypt {
        path: PathBuf,
        source: Box<DecryptError>,
    },
    #[error("could not encrypt `{}`", path.display())]
    Encrypt {
        path: PathBuf,
        source: Box<EncryptError>,
    },
    #[error("`{}` has no value at `{key}`", path.display())]
    NoKey {
        path: PathBuf,
        key: String,
        /// A similar key.
        near: Option<String>,
    },
    #[error("cannot set `{key}` in `{}`", path.display())]
    Path {
        path: PathBuf,
        key: String,
        source: PathError,
    },
    #[error("`{key}` of `{}` is a map or a list, and its contents would be lost", path.display())]
    Holds { path: PathBuf, key: String },
    #[error("`{}` already exists", path.display())]
    There { path: PathBuf },
    #[error("the value is not valid for `--typed`")]
    Json(#[source] ReadError),
    #[error("could not run `{program}`")]
    Run { program: String, source: StartError },
    #[error("there is no program `{program}`")]
    NoProgram { program: String },
    #[error("could not wait for `{program}`")]
    Wait { program: String, source: io::Error },
    #[error("the editor `{program}` ended with {exit}")]
    Editor { program: String, exit: Exit },
    #[error("the editor left `{}` empty, so nothing was written", path.display())]
    Emptied { path: PathBuf },
    #[error("`{}` was changed while it was edited, so nothing was written to it", path.display())]
    Moved { path: PathBuf, kept: PathBuf },
    #[error("the editor `{editor}` has an unclosed quote")]
    EditorQuote { editor: String },
    #[error("`{}` has values that are not strings: {}", path.display(), keys.join(", "))]
    Nested { path: PathBuf, keys: Vec<String> },
    #[error("`{}` has two values for the variable `{name}`", path.display())]
    SameName { path: PathBuf, name: String },
}

impl SecretFileError {
    /// Whether no rule defines how the file is encrypted.
    pub fn is_no_rule(&self) -> bool {
        match self {
            Self::NoRules { .. } => true,
            Self::Rule { source, .. } => matches!(**source, RuleError::NoneMatches { .. }),
            _ => false,
        }
    }
}

impl Explain for SecretFileError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Format { .. } => {
                advice("supported names end with `.yaml`, `.yml`, `.json`, `.env` or `.ini`")
            }
            Self::NoRules { .. } => advice(format!(
                "write a `{RULES}` with `creation_rules` in the root of the repository"
            )),
            Self::Rule { source, .. } if matches!(**source, RuleError::NoneMatches { .. }) => {
                advice("choose a name that the `path_regex` of a rule matches, or add a rule")
            }
            Self::Decrypt { source, .. } => return source.next_steps(),
            Self::Holds { key, .. } => advice(format!(
                "name one value in it, such as `{key}.NAME`; `--force` replaces all of it"
            )),
            Self::Encrypt { source, .. } => match &**source {
                EncryptError::Reserved => command("secret edit FILE", "changes an encrypted file"),
                _ => return source.next_steps(),
            },
            Self::Nested { .. } => advice(
                "`--flatten` joins the keys: `database: {password: …}` becomes `database_password`",
            ),
            Self::Moved { path, kept } => advice(format!(
                "your version is stored, encrypted, in `{}`: merge it with `{}`, then remove it",
                kept.display(),
                path.display()
            )),
            Self::NoKey {
                near: Some(near), ..
            } => advice(format!("did you mean `{near}`?")),
            Self::NoKey { near: None, .. } => advice(
                "write paths with dots: `database.password`, `hosts.0.key`, `data.\"tls.crt\"`",
            ),
            _ => return Vec::new(),
        }]
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFileWrite {
    pub changed: bool,
    /// Whether there was no value at that key before.
    pub is_new: bool,
    pub recipients: Vec<String>,
}

/// Access to files of secrets with the keys of one user on one machine.
pub struct SecretFiles<'a> {
    env: &'a BTreeMap<String, String>,
    cwd: &'a Path,
    ask: Option<PromptFn>,
}

impl<'a> SecretFiles<'a> {
    pub fn new(env: &'a BTreeMap<String, String>, cwd: &'a Path) -> Self {
        let ask = None;
        Self { env, cwd, ask }
    }

    /// Sets a callback that asks the user, for example for the passphrase of a key.
    #[must_use]
    pub fn asking(mut self, ask: PromptFn) -> Self {
        self.ask = Some(ask);
        self
    }

    /// Encrypts a plain file for `recipients`, or for the recipients that the rules name. If the result is
    /// written `to` another file, the rules of that file apply.
    pub fn encrypt(
        &self,
        path: &Path,
        to: Option<&Path>,
        recipients: &[String],
    ) -> Result<(String, EncryptionRule), SecretFileError> {
        let file = self.find(path)?;
        let target = to.map(|to| self.find(to)).transpose()?;
        let target = target.as_ref().unwrap_or(&file);
        let rule = match recipients {
            [] => Self::rule_for(target)?,
            named => {
                let parsed: Result<Vec<Recipient>, _> =
                    named.iter().map(|recipient| recipient.parse()).collect();
                EncryptionRule {
                    layout: Self::layout_for(target)?,
                    ..EncryptionRule::for_recipients(parsed?)
                }
            }
        };
        let plain = file.read()?;
        let sealed = sops::encrypt(
            plain.expose(),
            file.format,
            &rule,
            &self.plugins(),
            None,
            Timestamp::now(),
        );
        Ok((sealed.map_err(|source| file.not_encrypted(source))?, rule))
    }

    /// Decrypts a file.
    pub fn decrypt(&self, path: &Path) -> Result<Secret, SecretFileError> {
        let file = self.find(path)?;
        let layout = Self::layout_for(&file)?;
        Ok(self.open(&file)?.plain(layout))
    }

    /// One value of an encrypted file.
    pub fn value(&self, path: &Path, key: &str) -> Result<Secret, SecretFileError> {
        let file = self.find(path)?;
        let opened = self.open(&file)?;
        opened.value(key).ok_or_else(|| {
            let paths = opened.paths();
            let near = nearest(key, paths.iter().map(String::as_str));
            SecretFileError::NoKey {
                path: file.shown,
                key: key.to_owned(),
                near: near.map(ToOwned::to_owned),
            }
        })
    }

    /// Sets one value in an encrypted file, which is created if necessary. A map or list is replaced by
    /// another kind of value only with `force`.
    pub fn set(
        &self,
        path: &Path,
        key: &str,
        value: &NewValue,
        force: bool,
    ) -> Result<SecretFileWrite, SecretFileError> {
        let file = self.find(path)?;
        let _turn = file.turn()?;
        let (opened, rule) = if file.has_something() {
            let opened = self.open(&file)?;
            let rule = opened.rule(Self::layout_for(&file)?)?;
            (opened, rule)
        } else {
            (self.empty(&file)?, Self::rule_for(&file)?)
        };
        if !force && !value.is_container() && opened.is_container(key) {
            return Err(SecretFileError::Holds {
                path: file.shown,
                key: key.to_owned(),
            });
        }
        let is_new = opened.value(key).is_none();
        let mut changed = opened.clone();
        let put = match value {
            NewValue::Text(text) => changed.set(key, text),
            NewValue::Json(json) => changed.set_json(key, json).map_err(SecretFileError::Json)?,
        };
        put.map_err(|source| SecretFileError::Path {
            path: file.shown.clone(),
            key: key.to_owned(),
            source,
        })?;
        let sealed = changed.seal(&opened, &rule, &self.plugins(), Timestamp::now());
        let sealed = sealed.map_err(|source| file.not_encrypted(source))?;
        let written = file.write(&sealed, &rule)?;
        Ok(SecretFileWrite { is_new, ..written })
    }

    /// Gives a file a new data key, and the recipients that the rules name now.
    pub fn rotate(&self, path: &Path) -> Result<SecretFileWrite, SecretFileError> {
        let file = self.find(path)?;
        let _turn = file.turn()?;
        let opened = self.open(&file)?;
        let rule = match Self::rule_for(&file) {
            Ok(rule) => EncryptionRule {
                recipients: rule.recipients,
                ..opened.rule(Self::layout_for(&file)?)?
            },
            Err(err) if err.is_no_rule() => opened.rule(Self::layout_for(&file)?)?,
            Err(err) => return Err(err),
        };
        let before = file.read()?;
        let sealed = opened.rotate(&rule, &self.plugins(), Timestamp::now());
        let sealed = sealed.map_err(|source| file.not_encrypted(source))?;
        let written = file.write(&sealed, &rule)?;
        render::follow(&file.path, before.expose().as_bytes(), sealed.as_bytes());
        Ok(written)
    }

    /// Writes the result of [`Self::encrypt`] to a file that is empty or does not exist.
    pub fn create(&self, path: &Path, text: &str) -> Result<(), SecretFileError> {
        let file = self.find(path)?;
        let _turn = file.turn()?;
        if file.has_something() {
            return Err(SecretFileError::There { path: file.shown });
        }
        write_atomically(&file.path, text.as_bytes(), None)
            .map_err(|source| file.not_written(source))
    }

    /// Replaces the file with the result of [`Self::encrypt`] or [`Self::decrypt`].
    pub fn replace(&self, path: &Path, text: &str, is_plain: bool) -> Result<(), SecretFileError> {
        let file = self.find(path)?;
        let mode = is_plain.then_some(0o600);
        write_atomically(&file.path, text.as_bytes(), mode)
            .map_err(|source| file.not_written(source))
    }

    /// Runs a program with a file's values in its environment. Without `flatten`, the file may contain only
    /// top-level values. With it, map keys and list indexes are joined by `_`.
    pub async fn exec(
        &self,
        path: &Path,
        flatten: bool,
        words: &[String],
    ) -> Result<Exit, SecretFileError> {
        let file = self.find(path)?;
        let opened = self.open(&file)?;
        let nested = opened.structures();
        if !flatten && !nested.is_empty() {
            return Err(SecretFileError::Nested {
                keys: nested.iter().map(|key| format!("`{key}`")).collect(),
                path: file.shown,
            });
        }
        let variables = if flatten {
            opened.flattened()
        } else {
            opened.variables()
        };
        let mut given = BTreeMap::new();
        for (name, value) in variables {
            if given.insert(name.clone(), value).is_some() {
                let path = file.shown;
                return Err(SecretFileError::SameName { path, name });
            }
        }
        let mut env: Environment = self.env.iter().collect();
        for (name, value) in given {
            env.set_secret(name, value);
        }
        run(words, self.cwd, &env, self.env).await
    }

    fn open(&self, file: &SecretFile) -> Result<DecryptedDocument, SecretFileError> {
        let text = file.read()?;
        let identities = match &self.ask {
            Some(ask) => Identities::asking(self.env, Arc::clone(ask)),
            None => Identities::from_environment(self.env),
        }?;
        sops::decrypt(text.expose(), file.format, &identities).map_err(|source| {
            SecretFileError::Decrypt {
                path: file.shown.clone(),
                source: Box::new(source),
            }
        })
    }

    fn find(&self, path: &Path) -> Result<SecretFile, SecretFileError> {
        let format = SopsFormat::of(path).ok_or_else(|| SecretFileError::Format {
            path: path.to_owned(),
        })?;
        Ok(SecretFile {
            path: self.cwd.join(path),
            shown: path.to_owned(),
            format,
        })
    }

    /// The matching rule of the nearest rules file.
    fn rule_for(file: &SecretFile) -> Result<EncryptionRule, SecretFileError> {
        let (rules_path, rules) =
            Self::rules_for(file)?.ok_or_else(|| SecretFileError::NoRules {
                path: file.shown.clone(),
            })?;
        let dir = rules_path.parent().unwrap_or(Path::new("/"));
        let below = absolute(&file.path);
        let below = below.strip_prefix(dir).unwrap_or(&below).to_string_lossy();
        rules
            .for_path(&below)
            .map_err(|source| SecretFileError::Rule {
                path: rules_path.clone(),
                source: Box::new(source),
            })
    }

    fn layout_for(file: &SecretFile) -> Result<SopsLayout, SecretFileError> {
        let found = Self::rules_for(file)?;
        Ok(found.map_or_else(SopsLayout::default, |(_, rules)| rules.layout()))
    }

    fn rules_for(file: &SecretFile) -> Result<Option<(PathBuf, CreationRules)>, SecretFileError> {
        let start = absolute(&file.path);
        let candidates = start.ancestors().skip(1).map(|dir| dir.join(RULES));
        let Some(path) = candidates.into_iter().find(|path| path.is_file()) else {
            return Ok(None);
        };
        let text = fs::read_to_string(&path).map_err(|source| SecretFileError::Read {
            path: path.clone(),
            source,
        })?;
        match sops::rules(&text) {
            Ok(rules) => Ok(Some((path, rules))),
            Err(source) => Err(SecretFileError::Rules { path, source }),
        }
    }

    /// The content of a new file.
    fn empty(&self, file: &SecretFile) -> Result<DecryptedDocument, SecretFileError> {
        let rule = Self::rule_for(file)?;
        sops::empty(file.format, &rule, &self.plugins())
            .map_err(|source| file.not_encrypted(source))
    }

    fn plugins(&self) -> Plugins {
        Plugins::new(self.env, self.ask.clone())
    }
}

/// The value for [`SecretFiles::set`].
#[derive(Debug)]
pub enum NewValue {
    Text(Secret),
    /// Typed: a number, a list, a map.
    Json(Secret),
}

struct SecretFile {
    path: PathBuf,
    /// The path as the user gave it.
    shown: PathBuf,
    format: SopsFormat,
}

impl NewValue {
    fn is_container(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Json(json) => json.expose().trim_start().starts_with(['{', '[']),
        }
    }
}

impl SecretFile {
    fn read(&self) -> Result<Secret, SecretFileError> {
        let path = self.shown.clone();
        let text = fs::read_to_string(&self.path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SecretFileError::NoFile { path },
            _ => SecretFileError::Read { path, source },
        })?;
        Ok(Secret::new(text))
    }

    /// An empty file, as a shell's `>` creates it, counts as missing.
    fn has_something(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.len() > 0 || !found.is_file())
    }

    /// Locks the directory from reading to writing: of two concurrent changes, the second one builds on the
    /// first.
    fn turn(&self) -> Result<File, SecretFileError> {
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let turn = File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
        turn.map_err(|source| SecretFileError::Read {
            path: dir.to_owned(),
            source,
        })
    }

    /// Writes an encrypted text, unless the file already contains it.
    fn write(
        &self,
        sealed: &str,
        rule: &EncryptionRule,
    ) -> Result<SecretFileWrite, SecretFileError> {
        let changed = fs::read_to_string(&self.path).ok().as_deref() != Some(sealed);
        if changed {
            write_atomically(&self.path, sealed.as_bytes(), None)
                .map_err(|source| self.not_written(source))?;
        }
        Ok(SecretFileWrite {
            changed,
            is_new: false,
            recipients: names(rule),
        })
    }

    fn not_encrypted(&self, source: EncryptError) -> SecretFileError {
        SecretFileError::Encrypt {
            path: self.shown.clone(),
            source: Box::new(source),
        }
    }

    fn not_written(&self, source: io::Error) -> SecretFileError {
        SecretFileError::Write {
            path: self.shown.clone(),
            source,
        }
    }
}

/// The recipients of a rule.
pub fn names(rule: &EncryptionRule) -> Vec<String> {
    rule.recipients.iter().map(ToString::to_string).collect()
}

fn absolute(path: &Path) -> PathBuf {
    let dir = path.parent().map(fs::canonicalize);
    match (dir, path.file_name()) {
        (Some(Ok(dir)), Some(name)) => dir.join(name),
        _ => path.to_owned(),
    }
}

/// Replaces a file atomically. A link is followed, and the permissions stay the same unless a mode is given.
fn write_atomically(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let had = fs::metadata(&path).ok().map(|known| known.permissions());
    let mut file = tempfile::Builder::new()
        .prefix(".terrane-")
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    let permissions = match (mode, had) {
        (Some(mode), _) => Permissions::from_mode(mode),
        (None, Some(had)) => had,
        (None, None) => Permissions::from_mode(0o644),
    };
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    File::open(dir)?.sync_all()
}

/// Runs a program on this terminal until it exits. The program handles Ctrl-C itself.
async fn run(
    words: &[String],
    dir: &Path,
    env: &Environment,
    asker: &BTreeMap<String, String>,
) -> Result<Exit, SecretFileError> {
    let Some((program, args)) = words.split_first() else {
        let program = String::new();
        return Err(SecretFileError::NoProgram { program });
    };
    let found = if program.contains('/') {
        Some(dir.join(program))
    } else {
        let path = asker.get("PATH").map(String::as_str).unwrap_or_default();
        process::find_program(program, path.as_ref())
    };
    let Some(found) = found else {
        let program = program.clone();
        return Err(SecretFileError::NoProgram { program });
    };
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let started = process::start_in_front(&found, &args, dir, env, &[], ForegroundOutput::There);
    let mut running = started.map_err(|source| SecretFileError::Run {
        program: program.clone(),
        source,
    })?;
    loop {
        tokio::select! {
            ended = running.wait() => {
                return ended.map_err(|source| SecretFileError::Wait {
                    program: program.clone(),
                    source,
                });
            }
            heard = tokio::signal::ctrl_c() => {
                // Without a signal handler the next Ctrl-C kills this process; just wait for the program.
                if heard.is_err() {
                    let ended = running.wait().await;
                    return ended.map_err(|source| SecretFileError::Wait {
                        program: program.clone(),
                        source,
                    });
                }
            }
        }
    }
}
