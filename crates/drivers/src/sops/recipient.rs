//! Recipients of a file: an age public key, a recipient of an age plugin, or an SSH key that age supports.

use std::io::Write as _;
use std::str::FromStr;
use std::{fmt, iter};

use age::armor::{ArmoredWriter, Format};

use super::cipher::DataKey;
use super::plugin::{self, PluginError, Plugins};
use model::base::error::{Explain, NextStep};

/// A public key as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient {
    text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RecipientError {
    #[error("`{text}` is not an age recipient: {why}")]
    Invalid { text: String, why: String },
    #[error("cannot wrap the data key for `{text}`")]
    Plugin { text: String, source: PluginError },
    #[error("cannot wrap the data key for `{text}`")]
    Wrap {
        text: String,
        source: Box<age::EncryptError>,
    },
}

impl Explain for RecipientError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Plugin { source, .. } => source.next_steps(),
            Self::Invalid { .. } | Self::Wrap { .. } => Vec::new(),
        }
    }
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let text = raw.trim().to_owned();
        parse(&text, &Plugins::default())?;
        Ok(Self { text })
    }
}

impl Recipient {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The data key, encrypted for this recipient alone, as an armoured age file.
    pub(super) fn wrap(&self, key: &DataKey, plugins: &Plugins) -> Result<String, RecipientError> {
        let recipient = parse(&self.text, plugins)?;
        encrypt(&*recipient, key.expose()).map_err(|err| {
            let text = self.text.clone();
            let source = match err {
                age::EncryptError::Io(err) => match err.downcast() {
                    Ok(source) => return RecipientError::Plugin { text, source },
                    Err(err) => age::EncryptError::Io(err),
                },
                err => err,
            };
            let source = Box::new(source);
            RecipientError::Wrap { text, source }
        })
    }
}

/// Like the crate's own `encrypt_and_armor`, which panics if a recipient fails.
fn encrypt(recipient: &dyn age::Recipient, plain: &[u8]) -> Result<String, age::EncryptError> {
    let encryptor = age::Encryptor::with_recipients(iter::once(recipient))?;
    let mut out = Vec::new();
    let armour = ArmoredWriter::wrap_output(&mut out, Format::AsciiArmor)?;
    let mut writer = encryptor.wrap_output(armour)?;
    writer.write_all(plain)?;
    writer.finish()?.finish()?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn parse<'t>(
    text: &'t str,
    plugins: &'t Plugins,
) -> Result<Box<dyn age::Recipient + 't>, RecipientError> {
    let invalid = |why: String| RecipientError::Invalid {
        text: text.to_owned(),
        why,
    };
    if text.starts_with("ssh-") {
        let parsed = age::ssh::Recipient::from_str(text);
        let parsed = parsed.map_err(|err| invalid(format!("{err:?}").to_lowercase()))?;
        return Ok(Box::new(parsed));
    }
    let no_recipient = |why: &str| invalid(why.to_owned());
    // Recipients of hardware keys; only plugins can decrypt for them.
    if text.starts_with("age1tag1") {
        let parsed = age::tag::Recipient::from_str(text).map_err(no_recipient)?;
        return Ok(Box::new(parsed));
    }
    if text.starts_with("age1tagpq1") {
        let parsed = age::tagpq::Recipient::from_str(text).map_err(no_recipient)?;
        return Ok(Box::new(parsed));
    }
    // `age1`, then a plugin's name, then another `1`; bech32 data contains none.
    if text.matches('1').count() > 1 {
        let name = plugin::of_recipient(text);
        return Ok(Box::new(plugin::PluginRecipient {
            name: name.ok_or_else(|| no_recipient("invalid Bech32 encoding"))?,
            text,
            plugins,
        }));
    }
    let parsed = age::x25519::Recipient::from_str(text).map_err(no_recipient)?;
    Ok(Box::new(parsed))
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
