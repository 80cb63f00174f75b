//! Encrypts a plain document with a new data key, or with its previous one.

use jiff::Timestamp;

use super::cipher::{Cipher, DataKey};
use super::crypt::{self, ValueError};
use super::metadata::{self, Metadata, Wrapped};
use super::open::{DecryptError, DecryptedDocument};
use super::plugin::Plugins;
use super::recipient::RecipientError;
use super::rules::EncryptionRule;
use super::tree::{Document, Leaf, Scalar};
use super::{ReadError, SopsFormat, ini};
use model::base::error::{Explain, NextStep};

#[derive(Debug, thiserror::Error)]
pub enum EncryptError {
    #[error("it cannot be read")]
    Read(#[from] ReadError),
    #[error("it has a key that is reserved for SOPS, so it may already be encrypted")]
    Reserved,
    #[error("cannot use the name `{name}` in it: the official tool reads a different name")]
    Name { name: String },
    #[error("cannot decrypt its previous content")]
    Earlier(#[from] DecryptError),
    #[error("no recipients are given")]
    NoRecipients,
    #[error(transparent)]
    Recipient(#[from] RecipientError),
    #[error(transparent)]
    Value(#[from] ValueError),
    #[error("cannot get random bytes from the system")]
    NoRandom(#[source] getrandom::Error),
    #[error("cannot replace its data key: it is also wrapped for {kinds}, which is not supported")]
    ForeignKeys { kinds: String },
}

impl Explain for EncryptError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Recipient(err) => err.next_steps(),
            Self::Earlier(err) => err.next_steps(),
            _ => Vec::new(),
        }
    }
}

/// Encrypts a document. The data key is kept unless a recipient is removed.
pub(super) fn seal(
    document: Document,
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
    earlier: Option<&DecryptedDocument>,
    now: Timestamp,
) -> Result<String, EncryptError> {
    if metadata::is_taken(&document, format) {
        return Err(EncryptError::Reserved);
    }
    if format == SopsFormat::Ini
        && let Some(name) = ini::unreadable_name(&document)
    {
        let name = name.to_owned();
        return Err(EncryptError::Name { name });
    }
    match earlier {
        Some(earlier) if !loses_somebody(earlier, rule) => {
            if document == earlier.document && is_encrypted_as(earlier, rule) {
                return Ok(earlier.text.clone());
            }
            let mut cipher = Cipher::new(earlier.cipher.key().clone());
            cipher.remember(earlier.cipher.remembers());
            let with = SealContext {
                format,
                rule,
                plugins,
                cipher: &cipher,
                earlier: Some(&earlier.metadata),
                now,
            };
            seal_with(document, with)
        }
        Some(earlier) if !earlier.metadata.foreign.is_empty() => Err(EncryptError::ForeignKeys {
            kinds: earlier.foreign_keys().collect::<Vec<_>>().join(", "),
        }),
        Some(_) | None => seal_anew(document, format, rule, plugins, now),
    }
}

/// Encrypts a document with a new data key.
fn seal_anew(
    document: Document,
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
    now: Timestamp,
) -> Result<String, EncryptError> {
    let key = DataKey::random().map_err(EncryptError::NoRandom)?;
    let with = SealContext {
        format,
        rule,
        plugins,
        cipher: &Cipher::new(key),
        earlier: None,
        now,
    };
    seal_with(document, with)
}

/// An empty document with a new data key.
pub(super) fn empty(
    format: SopsFormat,
    rule: &EncryptionRule,
    plugins: &Plugins,
) -> Result<DecryptedDocument, EncryptError> {
    let key = DataKey::random().map_err(EncryptError::NoRandom)?;
    let age = rule.recipients.iter().map(|recipient| {
        Ok(Wrapped {
            recipient: recipient.as_str().to_owned(),
            key: recipient.wrap(&key, plugins)?,
        })
    });
    let age = age.collect::<Result<Vec<_>, RecipientError>>()?;
    Ok(DecryptedDocument {
        document: Document(vec![Vec::new()]),
        metadata: Metadata {
            age,
            foreign: Vec::new(),
            last_modified: String::new(),
            mac: String::new(),
            selection: rule.selection.clone(),
            mac_only_encrypted: rule.mac_only_encrypted,
        },
        cipher: Cipher::new(key),
        format,
        text: String::new(),
    })
}

impl DecryptedDocument {
    /// Encrypts the document as it is now; unchanged values keep their ciphertext.
    pub fn seal(
        &self,
        original: &Self,
        rule: &EncryptionRule,
        plugins: &Plugins,
        now: Timestamp,
    ) -> Result<String, EncryptError> {
        seal(
            self.document.clone(),
            self.format,
            rule,
            plugins,
            Some(original),
            now,
        )
    }

    /// Encrypts it under a new data key.
    pub fn rotate(
        &self,
        rule: &EncryptionRule,
        plugins: &Plugins,
        now: Timestamp,
    ) -> Result<String, EncryptError> {
        if !self.metadata.foreign.is_empty() {
            let kinds = self.foreign_keys().collect::<Vec<_>>().join(", ");
            return Err(EncryptError::ForeignKeys { kinds });
        }
        seal_anew(self.document.clone(), self.format, rule, plugins, now)
    }
}

/// How a document is encrypted.
#[derive(Clone, Copy)]
struct SealContext<'a> {
    format: SopsFormat,
    rule: &'a EncryptionRule,
    plugins: &'a Plugins,
    cipher: &'a Cipher,
    /// Of the file that it replaces.
    earlier: Option<&'a Metadata>,
    now: Timestamp,
}

fn seal_with(mut document: Document, with: SealContext<'_>) -> Result<String, EncryptError> {
    let SealContext {
        format,
        rule,
        plugins,
        cipher,
        earlier,
        now,
    } = with;
    let mut age = Vec::new();
    for recipient in &rule.recipients {
        let had = earlier.and_then(|earlier| {
            let mut wrapped = earlier.age.iter();
            wrapped.find(|wrapped| wrapped.recipient == recipient.as_str())
        });
        age.push(match had {
            Some(wrapped) => wrapped.clone(),
            None => Wrapped {
                recipient: recipient.as_str().to_owned(),
                key: recipient.wrap(cipher.key(), plugins)?,
            },
        });
    }
    if age.is_empty() {
        return Err(EncryptError::NoRecipients);
    }
    let only_encrypted = rule.mac_only_encrypted;
    let mac = crypt::encrypt(&mut document, &rule.selection, only_encrypted, cipher)?;
    let last_modified = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mac = cipher
        .encrypt(&Leaf::Scalar(Scalar::text(mac)), &last_modified)
        .map_err(|source| ValueError::Value {
            path: "sops.mac".to_owned(),
            source,
        })?;
    let metadata = Metadata {
        age,
        foreign: earlier
            .map(|earlier| earlier.foreign.clone())
            .unwrap_or_default(),
        last_modified,
        mac,
        selection: rule.selection.clone(),
        mac_only_encrypted: only_encrypted,
    };
    if document.0.is_empty() {
        document.0.push(Vec::new());
    }
    metadata::add(&mut document, &metadata, format);
    Ok(super::write(&document, format, rule.layout)
        .expose()
        .to_owned())
}

/// Whether the rule removes a recipient. A removed recipient still has the data key.
fn loses_somebody(earlier: &DecryptedDocument, rule: &EncryptionRule) -> bool {
    let stays = |name: &str| {
        rule.recipients
            .iter()
            .any(|recipient| recipient.as_str() == name)
    };
    !earlier.recipients().all(stays)
}

fn is_encrypted_as(earlier: &DecryptedDocument, rule: &EncryptionRule) -> bool {
    earlier.metadata.age.len() == rule.recipients.len()
        && earlier.metadata.selection == rule.selection
        && earlier.metadata.mac_only_encrypted == rule.mac_only_encrypted
}
