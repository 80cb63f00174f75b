//! A type for values that must not be shown.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use zeroize::Zeroizing;

/// A value that must not reach a log, an error, a fact or a screen. It has no `Display` and no `Serialize`, so that
/// leaking it does not compile. Its memory is overwritten on drop, so that later users of the memory cannot read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The only access to the value: `rg 'expose\(\)'` is the audit.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Deserialises without leaving a copy behind. An error does not repeat the input.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer) {
            Ok(text) => Ok(Self::new(text)),
            Err(_) => Err(D::Error::custom("not a text")),
        }
    }
}

/// Whether the name of an environment variable indicates a secret value.
pub fn is_secret_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split('_').collect();
    match words[..] {
        [
            ..,
            "PASSWORD" | "PASSWD" | "PASSPHRASE" | "PASS" | "PWD" | "SECRET" | "TOKEN" | "JWT"
            | "PAT" | "CREDENTIALS",
        ] if words.len() > 1 || name != "PWD" => true,
        // Tokens that engines send to the registry of a host.
        ["TF", "TOKEN", _, ..] => true,
        [
            ..,
            "API" | "ACCESS" | "ACCOUNT" | "MASTER" | "PRIVATE" | "SECRET",
            "KEY",
        ] => true,
        [.., "SECRET", "ID"] | [.., "IDENTITY", "HEADER"] | [.., "SAS", "URL"] => true,
        _ => name.ends_with("PASSWORD"),
    }
}

/// Whether a text is a key rather than the path of one: master keys, age identities, PEM. Such a text must not occur in
/// a message.
pub fn is_key_material(text: &str) -> bool {
    const MARKS: [&str; 4] = [
        "AGE-SECRET-KEY-",
        "AGE-PLUGIN-",
        "TERRANE-KEY-",
        "-----BEGIN ",
    ];
    let text = text.to_ascii_uppercase();
    text.contains('\n') || MARKS.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secret_variables() {
        for name in [
            "VAULT_TOKEN",
            "VAULT_SECRET_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "ARM_CLIENT_SECRET",
            "ARM_ACCESS_KEY",
            "PGPASSWORD",
            "github_token",
            "TF_TOKEN_app_example_io",
            "GOOGLE_CREDENTIALS",
            "PM_PASS",
            "MYSQL_PWD",
        ] {
            assert!(is_secret_variable(name), "{name}");
        }
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_REGION",
            "ARM_CLIENT_ID",
            "TOKEN_FILE",
            "KEY",
            "PWD",
            "GOOGLE_APPLICATION_CREDENTIALS_FILE",
            "TF_VAR_ssh_public_key",
        ] {
            assert!(!is_secret_variable(name), "{name}");
        }
    }
}
