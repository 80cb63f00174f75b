//! Encrypts generated files by the nearest `.sops.yaml`, whether rendered or written by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drivers::sops::{
    self, DecryptError, EncryptError, EncryptionRule, Identities, IdentityError, Plugins,
    RuleError, RulesError, SopsFormat,
};
use jiff::Timestamp;
use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;
use model::render::join;

use super::disk::{DiskError, ProjectFiles};

const RULES: &str = ".sops.yaml";

/// The default path of the templates' function `age_key`.
const KEY: &str = "age.key";

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("cannot determine the format of `{path}` from its name")]
    Format { path: String },
    #[error("cannot find the recipients of `{path}`: there is no `{RULES}` beside or above it")]
    NoRules { path: String },
    #[error("could not read the rules in `{path}`")]
    Rules { path: String, source: RulesError },
    #[error("no rule of `{path}` can be used")]
    Rule {
        path: String,
        source: Box<RuleError>,
    },
    #[error("could not encrypt `{path}`")]
    Encrypt {
        path: String,
        source: Box<EncryptError>,
    },
    #[error("could not open `{path}`")]
    Open {
        path: String,
        source: Box<DecryptError>,
        /// A private key is in the project, but is not used.
        key_here: bool,
    },
    #[error("cannot decrypt the existing file `{path}`")]
    Earlier {
        path: String,
        source: Box<DecryptError>,
        key_here: bool,
    },
    #[error("could not read the private keys")]
    Identities(#[source] IdentityError),
    #[error("`{path}` is not UTF-8")]
    NotText { path: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl SealError {
    /// Whether the only problem is a missing key.
    pub(super) fn wants_key(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Earlier { source, .. } => matches!(
                **source,
                DecryptError::NoKey { .. }
                    | DecryptError::WrongKey { .. }
                    | DecryptError::Plugin { .. }
            ),
            _ => false,
        }
    }

    /// The problem in the text itself, and its line. It may quote the text.
    pub(super) fn in_text(&self) -> Option<(usize, &str)> {
        match self {
            Self::Encrypt { source, .. } => match &**source {
                EncryptError::Read(err) => Some((err.line, &err.problem)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Explain for SealError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Format { .. } => {
                advice("supported names end with `.yaml`, `.yml`, `.json`, `.env` or `.ini`")
            }
            Self::NoRules { .. } => advice(format!("write a `{RULES}` with `creation_rules`")),
            Self::Open { key_here, .. } | Self::Earlier { key_here, .. }
                if *key_here && self.wants_key() =>
            {
                advice(format!(
                    "the project contains `{KEY}`: to use it, run `export SOPS_AGE_KEY_FILE=\"$PWD/{KEY}\"` there"
                ))
            }
            Self::Open { source, .. } => return source.next_steps(),
            Self::Earlier { source, .. } if self.wants_key() => return source.next_steps(),
            Self::Earlier { .. } => advice(
                "restore the last good version, for example from Git, or replace it: `terrane render --overwrite`",
            ),
            Self::Encrypt { source, .. } => return source.next_steps(),
            Self::Rules { .. }
            | Self::Rule { .. }
            | Self::Identities(_)
            | Self::NotText { .. }
            | Self::Disk(_) => return Vec::new(),
        }]
    }
}

/// How one file is encrypted.
pub(super) struct Sealing<'s> {
    disk: &'s ProjectFiles,
    path: &'s str,
    format: SopsFormat,
    rule: EncryptionRule,
    env: &'s BTreeMap<String, String>,
}

impl<'s> Sealing<'s> {
    /// `rendered` has the other generated files, which may include the rules.
    pub(super) fn new(
        disk: &'s ProjectFiles,
        path: &'s str,
        rendered: &BTreeMap<&str, &[u8]>,
        env: &'s BTreeMap<String, String>,
    ) -> Result<Self, SealError> {
        let format = SopsFormat::of(Path::new(path)).ok_or_else(|| SealError::Format {
            path: path.to_owned(),
        })?;
        let rule = find_rule(disk, path, rendered)?;
        Ok(Self {
            disk,
            path,
            format,
            rule,
            env,
        })
    }

    pub(super) fn is_sealed(&self, bytes: &[u8]) -> bool {
        let text = std::str::from_utf8(bytes);
        text.is_ok_and(|text| sops::is_encrypted(text, self.format))
    }

    /// The parts of a text that stay in clear when it is encrypted.
    pub(super) fn clear(&self, bytes: &[u8]) -> Result<String, SealError> {
        let clear = sops::clear(self.text(bytes)?, self.format, &self.rule);
        clear.map_err(|source| self.not_encrypted(source))
    }

    /// Encrypts the text. Unchanged values keep their ciphertext. `anew`: also if the existing file can no longer
    /// be opened.
    pub(super) fn seal(&self, bytes: &[u8], anew: bool) -> Result<Vec<u8>, SealError> {
        let text = self.text(bytes)?;
        let now = Timestamp::now();
        let plugins = Plugins::new(self.env, None);
        let fresh = || sops::encrypt(text, self.format, &self.rule, &plugins, None, now);
        let sealed = match self.earlier()? {
            None => fresh(),
            Some(earlier) => {
                let identities =
                    Identities::from_environment(self.env).map_err(SealError::Identities)?;
                let earlier = Some((earlier.as_str(), &identities));
                match sops::encrypt(text, self.format, &self.rule, &plugins, earlier, now) {
                    Err(EncryptError::Earlier(_)) if anew => fresh(),
                    sealed => sealed,
                }
            }
        };
        match sealed {
            Ok(text) => Ok(text.into_bytes()),
            Err(EncryptError::Earlier(source)) => Err(SealError::Earlier {
                path: self.path.to_owned(),
                source: Box::new(source),
                key_here: key_here(self.disk),
            }),
            Err(source) => Err(self.not_encrypted(source)),
        }
    }

    /// The existing file, if it is encrypted.
    fn earlier(&self) -> Result<Option<String>, SealError> {
        Ok(match self.disk.look(self.path)? {
            Some((_, bytes)) if self.is_sealed(&bytes) => String::from_utf8(bytes).ok(),
            _ => None,
        })
    }

    /// The values that differ from the existing file; `None` if it cannot be opened.
    pub(super) fn changes(&self, sealed: &[u8]) -> Option<Vec<KeyChange>> {
        let (old, sealed) = (self.earlier().ok()??, std::str::from_utf8(sealed).ok()?);
        if old == sealed {
            return Some(Vec::new());
        }
        let identities = Identities::from_environment(self.env).ok()?;
        let open = |text: &str| sops::decrypt(text, self.format, &identities).ok();
        let (old, new) = (open(&old)?, open(sealed)?);
        let (before, after) = (old.paths(), new.paths());
        let mut changes = Vec::new();
        for path in &after {
            let same = |one: Option<Secret>, other: Option<Secret>| match (one, other) {
                (Some(one), Some(other)) => one.expose() == other.expose(),
                (one, other) => one.is_none() && other.is_none(),
            };
            if !before.contains(path) {
                changes.push((path.clone(), KeyChangeKind::Added));
            } else if !same(old.value(path), new.value(path)) {
                changes.push((path.clone(), KeyChangeKind::Changed));
            }
        }
        let gone = before.into_iter().filter(|path| !after.contains(path));
        changes.extend(gone.map(|path| (path, KeyChangeKind::Removed)));
        let named = changes.into_iter();
        Some(
            named
                .map(|(key, action)| KeyChange { key, action })
                .collect(),
        )
    }

    fn text<'b>(&self, bytes: &'b [u8]) -> Result<&'b str, SealError> {
        std::str::from_utf8(bytes).map_err(|_| SealError::NotText {
            path: self.path.to_owned(),
        })
    }

    fn not_encrypted(&self, source: EncryptError) -> SealError {
        SealError::Encrypt {
            path: self.path.to_owned(),
            source: Box::new(source),
        }
    }
}

/// A value of an encrypted file that would change. It names the key, never the old or the new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    pub key: String,
    pub action: KeyChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChangeKind {
    Added,
    Changed,
    Removed,
}

pub(super) fn key_here(disk: &ProjectFiles) -> bool {
    disk.root().join(KEY).is_file()
}

/// The nearest rules above a file, rendered or on disk: first inside the project, then above it.
fn find_rule(
    disk: &ProjectFiles,
    path: &str,
    rendered: &BTreeMap<&str, &[u8]>,
) -> Result<EncryptionRule, SealError> {
    let mut dir = path;
    while let Some((above, _)) = dir
        .rsplit_once('/')
        .or((!dir.is_empty()).then_some(("", "")))
    {
        let rules = join(above, RULES);
        let made = rendered.get(rules.as_str());
        let bytes = match made {
            Some(bytes) => Some(bytes.to_vec()),
            None => disk.read(&rules)?,
        };
        if let Some(bytes) = bytes {
            let below = path
                .strip_prefix(above)
                .map_or(path, |below| below.trim_start_matches('/'));
            return rule(&rules, &String::from_utf8_lossy(&bytes), below);
        }
        dir = above;
    }
    let above: Vec<PathBuf> = disk
        .root()
        .ancestors()
        .skip(1)
        .map(Path::to_owned)
        .collect();
    for dir in above {
        let file = dir.join(RULES);
        if let Ok(text) = std::fs::read_to_string(&file) {
            let full = disk.root().join(path);
            let below = full.strip_prefix(&dir).unwrap_or(&full);
            return rule(&file.to_string_lossy(), &text, &below.to_string_lossy());
        }
    }
    Err(SealError::NoRules {
        path: path.to_owned(),
    })
}

fn rule(rules_path: &str, text: &str, below: &str) -> Result<EncryptionRule, SealError> {
    let rules = sops::rules(text).map_err(|source| SealError::Rules {
        path: rules_path.to_owned(),
        source,
    })?;
    rules.for_path(below).map_err(|source| SealError::Rule {
        path: rules_path.to_owned(),
        source: Box::new(source),
    })
}
