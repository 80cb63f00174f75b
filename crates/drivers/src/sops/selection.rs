//! Selects the values to encrypt, in one of six ways: by the names of keys or by comments.

use regex::Regex;

use super::tree::TreePosition;

/// The default suffix of keys whose values stay plain.
const DEFAULT_SUFFIX: &str = "_unencrypted";

#[derive(Clone, Debug)]
pub enum EncryptionFilter {
    UnencryptedSuffix(String),
    EncryptedSuffix(String),
    UnencryptedRegex(Regex),
    EncryptedRegex(Regex),
    UnencryptedCommentRegex(Regex),
    EncryptedCommentRegex(Regex),
}

#[derive(Debug, thiserror::Error)]
pub enum EncryptionFilterError {
    #[error("`{name}` and `{other}` exclude each other")]
    Two {
        name: &'static str,
        other: &'static str,
    },
    #[error("`{name}` is not a valid regular expression")]
    Pattern {
        name: &'static str,
        source: Box<regex::Error>,
    },
}

impl Default for EncryptionFilter {
    /// Everything except keys that end with `_unencrypted`.
    fn default() -> Self {
        Self::UnencryptedSuffix(DEFAULT_SUFFIX.to_owned())
    }
}

impl PartialEq for EncryptionFilter {
    fn eq(&self, other: &Self) -> bool {
        self.said() == other.said()
    }
}

const NAMES: [&str; 6] = [
    "unencrypted_suffix",
    "encrypted_suffix",
    "unencrypted_regex",
    "encrypted_regex",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
];

impl EncryptionFilter {
    /// Only values below these keys, at any depth: every key of that name is encrypted.
    pub fn only<'a>(
        keys: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, EncryptionFilterError> {
        let names: Vec<String> = keys.into_iter().map(regex::escape).collect();
        pattern("encrypted_regex", &format!("^(?:{})$", names.join("|"))).map(Self::EncryptedRegex)
    }

    /// Reads the attributes of these names; at most one may be set.
    pub(super) fn read(
        attribute: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, EncryptionFilterError> {
        let mut said: Option<(&'static str, Self)> = None;
        for name in NAMES {
            let Some(value) = attribute(name).filter(|value| !value.is_empty()) else {
                continue;
            };
            if let Some((other, _)) = said {
                return Err(EncryptionFilterError::Two {
                    name: other,
                    other: name,
                });
            }
            let selection = match name {
                "unencrypted_suffix" => Self::UnencryptedSuffix(value),
                "encrypted_suffix" => Self::EncryptedSuffix(value),
                "unencrypted_regex" => Self::UnencryptedRegex(pattern(name, &value)?),
                "encrypted_regex" => Self::EncryptedRegex(pattern(name, &value)?),
                "unencrypted_comment_regex" => {
                    Self::UnencryptedCommentRegex(pattern(name, &value)?)
                }
                _ => Self::EncryptedCommentRegex(pattern(name, &value)?),
            };
            said = Some((name, selection));
        }
        Ok(said.map(|(_, selection)| selection).unwrap_or_default())
    }

    /// Name and value in a file's metadata.
    pub(super) fn said(&self) -> (&'static str, &str) {
        match self {
            Self::UnencryptedSuffix(suffix) => (NAMES[0], suffix),
            Self::EncryptedSuffix(suffix) => (NAMES[1], suffix),
            Self::UnencryptedRegex(regex) => (NAMES[2], regex.as_str()),
            Self::EncryptedRegex(regex) => (NAMES[3], regex.as_str()),
            Self::UnencryptedCommentRegex(regex) => (NAMES[4], regex.as_str()),
            Self::EncryptedCommentRegex(regex) => (NAMES[5], regex.as_str()),
        }
    }

    pub(super) fn takes(&self, place: &TreePosition<'_>, is_comment: bool) -> bool {
        let any_key = |fits: &dyn Fn(&str) -> bool| place.path.iter().any(|key| fits(key));
        match self {
            Self::UnencryptedSuffix(suffix) => !any_key(&|key| key.ends_with(suffix)),
            Self::EncryptedSuffix(suffix) => any_key(&|key| key.ends_with(suffix)),
            Self::UnencryptedRegex(regex) => !any_key(&|key| regex.is_match(key)),
            Self::EncryptedRegex(regex) => any_key(&|key| regex.is_match(key)),
            Self::UnencryptedCommentRegex(regex) => !comments(place, false, regex),
            // The comment that selects a value stays readable itself.
            Self::EncryptedCommentRegex(regex) => comments(place, is_comment, regex),
        }
    }
}

/// Whether a comment that applies to this place matches; `but_last` ignores the last one.
fn comments(place: &TreePosition<'_>, but_last: bool, regex: &Regex) -> bool {
    let deepest = place.comments.len().saturating_sub(1);
    place.comments.iter().enumerate().any(|(depth, level)| {
        let counted = level.len() - usize::from(but_last && depth == deepest && !level.is_empty());
        level[..counted]
            .iter()
            .any(|comment| regex.is_match(comment.expose()))
    })
}

pub(super) fn pattern(name: &'static str, text: &str) -> Result<Regex, EncryptionFilterError> {
    Regex::new(text).map_err(|source| EncryptionFilterError::Pattern {
        name,
        source: Box::new(source),
    })
}
