//! Who can open a file: an age public key, or an SSH key that age can use.

use std::fmt;
use std::str::FromStr;

use super::cipher::DataKey;

/// A public key, as it is written.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient {
    text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RecipientError {
    #[error("`{text}` is not an age recipient: {why}")]
    Invalid { text: String, why: String },
    #[error("`{text}` belongs to an age plugin, and plugins are not supported")]
    Plugin { text: String },
    #[error("`{text}` is a post-quantum key, which is not supported yet")]
    Hybrid { text: String },
    #[error("the data key could not be wrapped for `{text}`")]
    Wrap {
        text: String,
        source: Box<age::EncryptError>,
    },
}

enum Key {
    X25519(age::x25519::Recipient),
    Ssh(age::ssh::Recipient),
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let text = raw.trim().to_owned();
        parse(&text)?;
        Ok(Self { text })
    }
}

impl Recipient {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The data key, for this recipient alone, as an armoured age file.
    pub(super) fn wrap(&self, key: &DataKey) -> Result<String, RecipientError> {
        let wrapped = match parse(&self.text)? {
            Key::X25519(recipient) => age::encrypt_and_armor(&recipient, key.expose()),
            Key::Ssh(recipient) => age::encrypt_and_armor(&recipient, key.expose()),
        };
        wrapped.map_err(|source| RecipientError::Wrap {
            text: self.text.clone(),
            source: Box::new(source),
        })
    }
}

fn parse(text: &str) -> Result<Key, RecipientError> {
    let invalid = |why: String| RecipientError::Invalid {
        text: text.to_owned(),
        why,
    };
    if text.starts_with("ssh-") {
        let parsed = age::ssh::Recipient::from_str(text);
        return parsed
            .map(Key::Ssh)
            .map_err(|err| invalid(format!("{err:?}").to_lowercase()));
    }
    if text.starts_with("age1pq1") {
        let text = text.to_owned();
        return Err(RecipientError::Hybrid { text });
    }
    // `age1`, then a plugin's name, then another `1`: bech32 data has none.
    if text.starts_with("age1") && text.matches('1').count() > 1 {
        let text = text.to_owned();
        return Err(RecipientError::Plugin { text });
    }
    age::x25519::Recipient::from_str(text)
        .map(Key::X25519)
        .map_err(|why| invalid(why.to_owned()))
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({})", self.text)
    }
}
