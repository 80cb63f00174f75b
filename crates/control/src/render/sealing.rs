//! Generated files that are encrypted: as the nearest `.sops.yaml` says, be it rendered or written by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drivers::render::{Disk, DiskError};
use drivers::sops::{
    self, DecryptError, EncryptError, Format, Identities, IdentityError, Plugins, Rule, RuleError,
    RulesError,
};
use jiff::Timestamp;
use model::render::join;

const RULES: &str = ".sops.yaml";

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the name of `{path}` does not say its format")]
    Format { path: String },
    #[error("nothing says for whom to encrypt `{path}`: there is no `{RULES}` beside or above it")]
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
    },
    #[error("could not read the private keys")]
    Identities(#[source] IdentityError),
    #[error("`{path}` is not UTF-8")]
    NotText { path: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl SealError {
    /// Whether it is only for want of a key.
    pub(super) fn wants_key(&self) -> bool {
        match self {
            Self::Open { source, .. } => matches!(
                **source,
                DecryptError::NoKey { .. }
                    | DecryptError::WrongKey { .. }
                    | DecryptError::Plugin { .. }
            ),
            _ => false,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Format { .. } => {
                Some("names end with `.yaml`, `.yml`, `.json`, `.env` or `.ini`".to_owned())
            }
            Self::NoRules { .. } => Some(format!("write a `{RULES}` with `creation_rules`")),
            Self::Open { source, .. } => source.hint(),
            Self::Encrypt { source, .. } => source.hint(),
            Self::Rules { .. }
            | Self::Rule { .. }
            | Self::Identities(_)
            | Self::NotText { .. }
            | Self::Disk(_) => None,
        }
    }
}

/// How one file is encrypted.
pub(super) struct Sealing<'s> {
    disk: &'s Disk,
    path: &'s str,
    format: Format,
    rule: Rule,
    env: &'s BTreeMap<String, String>,
}

impl<'s> Sealing<'s> {
    /// `rendered` has the files that are made beside it: the rules may be one of them.
    pub(super) fn new(
        disk: &'s Disk,
        path: &'s str,
        rendered: &BTreeMap<&str, &[u8]>,
        env: &'s BTreeMap<String, String>,
    ) -> Result<Self, SealError> {
        let format = Format::of(Path::new(path)).ok_or_else(|| SealError::Format {
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

    /// What of a text stays in clear once it is encrypted.
    pub(super) fn clear(&self, bytes: &[u8]) -> Result<String, SealError> {
        let clear = sops::clear(self.text(bytes)?, self.format, &self.rule);
        clear.map_err(|source| self.not_encrypted(source))
    }

    /// The text encrypted. What did not change since it was written keeps its bytes.
    pub(super) fn seal(&self, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
        let text = self.text(bytes)?;
        let earlier = match self.disk.look(self.path)? {
            Some((_, bytes)) if self.is_sealed(&bytes) => String::from_utf8(bytes).ok(),
            _ => None,
        };
        let now = Timestamp::now();
        let plugins = Plugins::new(self.env, None);
        let sealed = match earlier {
            None => sops::encrypt(text, self.format, &self.rule, &plugins, None, now),
            Some(earlier) => {
                let identities =
                    Identities::from_environment(self.env).map_err(SealError::Identities)?;
                let earlier = Some((earlier.as_str(), &identities));
                sops::encrypt(text, self.format, &self.rule, &plugins, earlier, now)
            }
        };
        match sealed {
            Ok(text) => Ok(text.into_bytes()),
            Err(EncryptError::Earlier(source)) => Err(SealError::Open {
                path: self.path.to_owned(),
                source: Box::new(source),
            }),
            Err(source) => Err(self.not_encrypted(source)),
        }
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

/// The nearest rules above a file, in what was rendered first, then where it lies, then above the project.
fn find_rule(disk: &Disk, path: &str, rendered: &BTreeMap<&str, &[u8]>) -> Result<Rule, SealError> {
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

fn rule(rules_path: &str, text: &str, below: &str) -> Result<Rule, SealError> {
    let rules = sops::rules(text).map_err(|source| SealError::Rules {
        path: rules_path.to_owned(),
        source,
    })?;
    rules.for_path(below).map_err(|source| SealError::Rule {
        path: rules_path.to_owned(),
        source: Box::new(source),
    })
}
