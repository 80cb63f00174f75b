//! SOPS files: read and written so that the official `sops` cannot tell who wrote them.
//!
//! A document is a tree with order and comments kept; its values are encrypted one by one under a data key, which
//! is wrapped for each recipient by age. What is plain is held in [`Secret`] and comes out only as one. Not here:
//! where identities and rules lie on a machine (the caller passes them), and what a file is for.

mod cipher;
mod clear;
mod crypt;
mod dotenv;
mod flat;
mod identities;
mod ini;
mod json;
mod metadata;
mod open;
mod plugin;
mod recipient;
mod rules;
mod seal;
mod selection;
mod tree;
mod yaml;

use std::path::Path;

use jiff::Timestamp;
use model::secret::Secret;

pub use crypt::ValueError;
pub use identities::{Ask, Identities, IdentityError, Question};
pub use metadata::MetadataError;
pub use open::{DecryptError, Opened, Paths};
pub use plugin::{PluginError, Plugins};
pub use recipient::{Recipient, RecipientError};
pub use rules::{Rule, RuleError, Rules, RulesError};
pub use seal::EncryptError;
pub use selection::{Selection, SelectionError};
pub use tree::PathError;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
    Dotenv,
    Ini,
}

impl Format {
    /// What a file's name says, to the official tool as well; `None` for a name that says nothing.
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

/// How far things are set in; `stores` of a `.sops.yaml` may say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub yaml: usize,
    /// Spaces; `None` is a tab.
    pub json: Option<usize>,
}

impl Default for Layout {
    /// As the official tool does it.
    fn default() -> Self {
        Self {
            yaml: 4,
            json: None,
        }
    }
}

/// A text that is no document of its format. Says where and never what stands there.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ReadError {
    pub line: usize,
    pub problem: String,
}

/// Encrypts a plain text as `rule` says. Where `earlier` is what the file held so far and can be opened, values that
/// did not change keep their ciphertext; a text of which nothing changed comes back as it was.
pub fn encrypt(
    plain: &str,
    format: Format,
    rule: &Rule,
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

/// Encrypts a plain text that comes after one that is open.
pub fn encrypt_again(
    plain: &str,
    format: Format,
    rule: &Rule,
    plugins: &Plugins,
    earlier: &Opened,
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

/// A document with nothing in it, as if it had been opened.
pub fn empty(format: Format, rule: &Rule, plugins: &Plugins) -> Result<Opened, EncryptError> {
    seal::empty(format, rule, plugins)
}

/// Opens an encrypted text; all of it is checked before anything of it is handed out.
pub fn decrypt(
    text: &str,
    format: Format,
    identities: &Identities,
) -> Result<Opened, DecryptError> {
    open::open(text, format, identities)
}

/// What of a text stays in clear once it is encrypted as `rule` says.
pub fn clear(plain: &str, format: Format, rule: &Rule) -> Result<String, EncryptError> {
    clear::clear(plain, format, rule)
}

/// Where an encrypted text has values, which nobody needs a key for; none if it is no such text.
pub fn paths_in_clear(text: &str, format: Format) -> Option<Paths> {
    let mut document = read(text, format).ok()?;
    metadata::take(&mut document, format).ok()?;
    Some(Paths(document))
}

/// Whether a text carries the marks of an encrypted file.
pub fn is_encrypted(text: &str, format: Format) -> bool {
    read(text, format).is_ok_and(|mut document| metadata::take(&mut document, format).is_ok())
}

/// The rules of a `.sops.yaml`.
pub fn rules(text: &str) -> Result<Rules, RulesError> {
    Rules::read(text)
}

fn read(text: &str, format: Format) -> Result<tree::Document, ReadError> {
    match format {
        Format::Yaml => yaml::read(text),
        Format::Json => json::read(text),
        Format::Dotenv => dotenv::read(text),
        Format::Ini => ini::read(text),
    }
}

fn write(document: &tree::Document, format: Format, layout: Layout) -> Secret {
    Secret::new(match format {
        Format::Yaml => yaml::write(document, layout.yaml),
        Format::Json => json::write(document, layout.json),
        Format::Dotenv => dotenv::write(document),
        Format::Ini => ini::write(document),
    })
}

#[cfg(test)]
mod tests;
