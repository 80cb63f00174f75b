//! SOPS files, read and written in the same form as the official `sops`.
//!
//! A document is a tree that keeps order and comments. Its values are encrypted one by one under a data key, which
//! is wrapped for each recipient by age. Plain values are held in [`Secret`] and only returned as such. Not here:
//! where identities and rules are on a machine (the caller passes them), and what a file is for.

mod cipher;
mod crypt;
mod dotenv;
mod flat_metadata;
mod identities;
mod ini;
mod json;
mod metadata;
mod open;
mod plaintext_parts;
mod plugin;
mod recipient;
mod rules;
mod seal;
mod selection;
mod tree;
mod yaml;

use std::path::Path;

use jiff::Timestamp;
use model::base::secret::Secret;

pub use crypt::ValueError;
pub use identities::{Identities, IdentityError, Prompt, PromptFn};
pub use metadata::MetadataError;
pub use open::{DecryptError, DecryptedDocument, EncryptedPaths};
pub use plugin::{PluginError, Plugins};
pub use recipient::{Recipient, RecipientError};
pub use rules::{CreationRules, EncryptionRule, RuleError, RulesError};
pub use seal::EncryptError;
pub use selection::{EncryptionFilter, EncryptionFilterError};
pub use tree::PathError;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SopsFormat {
    Yaml,
    Json,
    Dotenv,
    Ini,
}

impl SopsFormat {
    /// The format by file name, as the official tool decides it; `None` for an unknown extension.
    pub fn of(path: &Path) -> Option<Self> {
        if path.file_name()? == ".env" {
            return Some(Self::Dotenv);
        }
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "env" => Some(Self::Dotenv),
            "ini" => Some(Self::Ini),
            _ => None,
        }
    }
}

/// Indentation; `stores` in a `.sops.yaml` may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SopsLayout {
    pub yaml: usize,
    /// Spaces; `None` is a tab.
    pub json: Option<usize>,
}

impl Default for SopsLayout {
    /// The defaults of the official tool.
    fn default() -> Self {
        Self {
            yaml: 4,
            json: None,
        }
    }
}

/// A text that is not valid in its format. The error has the position, never the content.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ReadError {
    pub line: usize,
    pub problem: String,
}

/// Encrypts a plain text by `rule`. If `earlier`, the previous content of the file, can be opened, unchanged
/// values keep their ciphertext; an unchanged text is returned as it was.
pub fn encrypt(
    plain: &str,
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
    earlier: Option<(&str, &Identities)>,
    now: Timestamp,
) -> Result<String, EncryptError> {
    let document = read(plain, format)?;
    let opened = match earlier {
        Some((text, identities)) => Some(decrypt(text, format, identities)?),
        None => None,
    };
    seal::seal(document, format, rule, plugins, opened.as_ref(), now)
}

/// Encrypts the next plain text of an already opened file.
pub fn encrypt_again(
    plain: &str,
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
    earlier: &DecryptedDocument,
    now: Timestamp,
) -> Result<String, EncryptError> {
    seal::seal(
        read(plain, format)?,
        format,
        rule,
        plugins,
        Some(earlier),
        now,
    )
}

/// An empty document, as if it had been opened.
pub fn empty(
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
) -> Result<DecryptedDocument, EncryptError> {
    seal::empty(format, rule, plugins)
}

/// Opens an encrypted text. The whole text is verified before any value is returned.
pub fn decrypt(
    text: &str,
    format: SopsFormat,
    identities: &Identities,
) -> Result<DecryptedDocument, DecryptError> {
    open::open(text, format, identities)
}

/// The parts of a text that stay in clear when it is encrypted by `rule`.
pub fn clear(
    plain: &str,
    format: SopsFormat,
    rule: &EncryptionRule,
) -> Result<String, EncryptError> {
    plaintext_parts::clear(plain, format, rule)
}

/// The paths of the values of an encrypted text, which need no key; `None` if the text is not encrypted.
pub fn paths_in_clear(text: &str, format: SopsFormat) -> Option<EncryptedPaths> {
    let mut document = read(text, format).ok()?;
    metadata::take(&mut document, format).ok()?;
    Some(EncryptedPaths(document))
}

/// Whether a text has the metadata of an encrypted file.
pub fn is_encrypted(text: &str, format: SopsFormat) -> bool {
    read(text, format).is_ok_and(|mut document| metadata::take(&mut document, format).is_ok())
}

/// The rules of a `.sops.yaml`.
pub fn rules(text: &str) -> Result<CreationRules, RulesError> {
    CreationRules::read(text)
}

fn read(text: &str, format: SopsFormat) -> Result<tree::Document, ReadError> {
    match format {
        SopsFormat::Yaml => yaml::read(text),
        SopsFormat::Json => json::read(text),
        SopsFormat::Dotenv => dotenv::read(text),
        SopsFormat::Ini => ini::read(text),
    }
}

fn write(document: &tree::Document, format: SopsFormat, layout: SopsLayout) -> Secret {
    Secret::new(match format {
        SopsFormat::Yaml => yaml::write(document, layout.yaml),
        SopsFormat::Json => json::write(document, layout.json),
        SopsFormat::Dotenv => dotenv::write(document),
        SopsFormat::Ini => ini::write(document),
    })
}

#[cfg(test)]
mod tests;
