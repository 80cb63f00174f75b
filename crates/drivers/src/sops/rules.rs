//! `.sops.yaml`: the recipients of a new file, and which values are encrypted.

use regex::Regex;
use serde::Deserialize;

use super::SopsLayout;
use super::recipient::{Recipient, RecipientError};
use super::selection::{EncryptionFilter, EncryptionFilterError};

/// The encryption settings of a file.
#[derive(Clone, Debug)]
pub struct EncryptionRule {
    pub recipients: Vec<Recipient>,
    pub selection: EncryptionFilter,
    /// Whether the MAC covers only encrypted values, so that plain values may be edited by hand.
    pub mac_only_encrypted: bool,
    pub layout: SopsLayout,
}

impl EncryptionRule {
    /// Encrypts everything for these recipients.
    pub fn for_recipients(recipients: Vec<Recipient>) -> Self {
        Self {
            recipients,
            selection: EncryptionFilter::default(),
            mac_only_encrypted: false,
            layout: SopsLayout::default(),
        }
    }

    /// The same recipients with another selection; see [`EncryptionFilter::only`].
    #[must_use]
    pub fn selecting(self, selection: EncryptionFilter) -> Self {
        Self { selection, ..self }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("it is not a SOPS configuration: {why}")]
    Read { why: String },
    #[error("rule {number}: `path_regex` is not a valid regular expression")]
    Pattern {
        number: usize,
        source: Box<regex::Error>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("no creation rule matches `{path}`")]
    NoneMatches { path: String },
    #[error("rule {number}, which matches `{path}`, has `{attribute}`: {what}")]
    NotSupported {
        number: usize,
        path: String,
        attribute: &'static str,
        what: &'static str,
    },
    #[error("rule {number}, which matches `{path}`, has no age recipient")]
    NoRecipients { number: usize, path: String },
    #[error("rule {number}")]
    Recipient {
        number: usize,
        source: RecipientError,
    },
    #[error("rule {number}")]
    Selection {
        number: usize,
        source: EncryptionFilterError,
    },
}

/// The creation rules of one file, in order.
#[derive(Debug)]
pub struct CreationRules {
    rules: Vec<(Option<Regex>, Raw)>,
    layout: SopsLayout,
}

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    creation_rules: Vec<Raw>,
    #[serde(default)]
    stores: Stores,
}

#[derive(Debug, Default, Deserialize)]
struct Stores {
    #[serde(default)]
    yaml: Store,
    #[serde(default)]
    json: Store,
}

#[derive(Debug, Default, Deserialize)]
struct Store {
    indent: Option<usize>,
}

/// A rule as written. Settings of other master keys are not parsed, only refused.
#[derive(Debug, Deserialize)]
struct Raw {
    path_regex: Option<String>,
    age: Option<Keys>,
    #[serde(default)]
    key_groups: Vec<yaml_serde::Value>,
    shamir_threshold: Option<u64>,
    pgp: Option<yaml_serde::Value>,
    kms: Option<yaml_serde::Value>,
    gcp_kms: Option<yaml_serde::Value>,
    hckms: Option<yaml_serde::Value>,
    azure_keyvault: Option<yaml_serde::Value>,
    hc_vault_transit_uri: Option<yaml_serde::Value>,
    unencrypted_suffix: Option<String>,
    encrypted_suffix: Option<String>,
    unencrypted_regex: Option<String>,
    encrypted_regex: Option<String>,
    unencrypted_comment_regex: Option<String>,
    encrypted_comment_regex: Option<String>,
    #[serde(default)]
    mac_only_encrypted: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Keys {
    One(String),
    Several(Vec<String>),
}

/// A key group: accepted only if it holds nothing but age keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgeGroup {
    age: Vec<String>,
}

impl CreationRules {
    pub fn read(text: &str) -> Result<Self, RulesError> {
        let read: Option<Configuration> =
            yaml_serde::from_str(text).map_err(|err| RulesError::Read {
                why: err.to_string(),
            })?;
        let read = read.unwrap_or_default();
        let layout = SopsLayout {
            yaml: read
                .stores
                .yaml
                .indent
                .filter(|indent| *indent > 0)
                .unwrap_or(4),
            json: read.stores.json.indent,
        };
        let mut rules = Vec::new();
        for (index, rule) in read.creation_rules.into_iter().enumerate() {
            let pattern = match rule.path_regex.as_deref().filter(|regex| !regex.is_empty()) {
                Some(text) => Some(Regex::new(text).map_err(|source| RulesError::Pattern {
                    number: index + 1,
                    source: Box::new(source),
                })?),
                None => None,
            };
            rules.push((pattern, rule));
        }
        Ok(Self { rules, layout })
    }

    /// The indentation of files under this configuration.
    pub fn layout(&self) -> SopsLayout {
        self.layout
    }

    /// The first rule that matches a path, which is relative to the configuration file.
    pub fn for_path(&self, path: &str) -> Result<EncryptionRule, RuleError> {
        let found = self.rules.iter().zip(1..).find(|((pattern, _), _)| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(path))
        });
        let Some(((_, raw), number)) = found else {
            return Err(RuleError::NoneMatches {
                path: path.to_owned(),
            });
        };
        raw.rule(number, path, self.layout)
    }
}

impl Raw {
    fn rule(
        &self,
        number: usize,
        path: &str,
        layout: SopsLayout,
    ) -> Result<EncryptionRule, RuleError> {
        let recipients = self.recipients(number, path)?;
        let selection = EncryptionFilter::read(|name| {
            match name {
                "unencrypted_suffix" => &self.unencrypted_suffix,
                "encrypted_suffix" => &self.encrypted_suffix,
                "unencrypted_regex" => &self.unencrypted_regex,
                "encrypted_regex" => &self.encrypted_regex,
                "unencrypted_comment_regex" => &self.unencrypted_comment_regex,
                "encrypted_comment_regex" => &self.encrypted_comment_regex,
                _ => &None,
            }
            .clone()
        })
        .map_err(|source| RuleError::Selection { number, source })?;
        Ok(EncryptionRule {
            recipients,
            selection,
            mac_only_encrypted: self.mac_only_encrypted,
            layout,
        })
    }

    fn recipients(&self, number: usize, path: &str) -> Result<Vec<Recipient>, RuleError> {
        let refuse = |attribute, what| RuleError::NotSupported {
            number,
            path: path.to_owned(),
            attribute,
            what,
        };
        let other_keys = [
            ("pgp", &self.pgp),
            ("kms", &self.kms),
            ("gcp_kms", &self.gcp_kms),
            ("hckms", &self.hckms),
            ("azure_keyvault", &self.azure_keyvault),
            ("hc_vault_transit_uri", &self.hc_vault_transit_uri),
        ];
        for (attribute, value) in other_keys {
            let is_said = value.as_ref().is_some_and(|value| !is_nothing(value));
            if is_said {
                return Err(refuse(attribute, "only age keys are supported"));
            }
        }
        if self.shamir_threshold.unwrap_or(0) > 1 {
            let what = "a data key split over several groups is not supported";
            return Err(refuse("shamir_threshold", what));
        }
        let written: Vec<String> = match (&self.key_groups[..], &self.age) {
            ([], None) => Vec::new(),
            ([], Some(Keys::One(keys))) => keys.split(',').map(str::to_owned).collect(),
            ([], Some(Keys::Several(keys))) => keys.clone(),
            ([group], _) => match yaml_serde::from_value::<AgeGroup>(group.clone()) {
                Ok(group) => group.age,
                Err(_) => return Err(refuse("key_groups", "a group may hold only age keys")),
            },
            (_, _) => {
                let what = "a data key split over several groups is not supported";
                return Err(refuse("key_groups", what));
            }
        };
        let mut recipients: Vec<Recipient> = Vec::new();
        for text in written.iter().map(|text| text.trim()) {
            if text.is_empty() {
                continue;
            }
            let recipient: Recipient = text
                .parse()
                .map_err(|source| RuleError::Recipient { number, source })?;
            if !recipients.contains(&recipient) {
                recipients.push(recipient);
            }
        }
        if recipients.is_empty() {
            let path = path.to_owned();
            return Err(RuleError::NoRecipients { number, path });
        }
        Ok(recipients)
    }
}

fn is_nothing(value: &yaml_serde::Value) -> bool {
    match value {
        yaml_serde::Value::Null => true,
        yaml_serde::Value::String(text) => text.is_empty(),
        yaml_serde::Value::Sequence(list) => list.is_empty(),
        _ => false,
    }
}
