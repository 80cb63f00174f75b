//! The types of names and ids. They are parsed at the boundary; inside, the type proves that they are valid.

use crate::base::error::{ErrorKind, Explain};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A stack's name. It is also used as a state name, a directory and a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StackName(String);

/// Why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("`{0}` is longer than 63 characters")]
    TooLong(String),
    #[error(
        "`{0}` is not a valid name: use a letter first, then lower case letters, digits and single dashes"
    )]
    Shape(String),
    #[error("`{0}` is reserved: `name` and `state` are keywords of the project file")]
    Reserved(String),
    #[error("`{0}` looks like the id of a change set or a run")]
    LooksLikeId(String),
}

impl Explain for InvalidName {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl StackName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StackName {
    type Err = InvalidName;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        check_name(raw)?;
        if matches!(raw, "name" | "state") {
            return Err(InvalidName::Reserved(raw.to_owned()));
        }
        if looks_like_id(raw) {
            return Err(InvalidName::LooksLikeId(raw.to_owned()));
        }
        Ok(Self(raw.to_owned()))
    }
}

impl TryFrom<String> for StackName {
    type Error = InvalidName;

    fn try_from(raw: String) -> Result<Self, Self::Error> {
        raw.parse()
    }
}

impl From<StackName> for String {
    fn from(name: StackName) -> Self {
        name.0
    }
}

impl fmt::Display for StackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The form of every name in the project file: a letter first, then lower case letters, digits and single dashes, at
/// most 63 characters.
pub fn check_name(raw: &str) -> Result<(), InvalidName> {
    if raw.len() > 63 {
        return Err(InvalidName::TooLong(raw.to_owned()));
    }
    let word = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let starts = raw.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if starts && raw.split('-').all(word) {
        Ok(())
    } else {
        Err(InvalidName::Shape(raw.to_owned()))
    }
}

fn looks_like_id(raw: &str) -> bool {
    let mut bytes = raw.bytes();
    matches!(bytes.next(), Some(b'c' | b'r')) && raw.len() > 1 && bytes.all(|b| b.is_ascii_digit())
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(raw: &str) -> Result<Self, Self::Err> {
                raw.strip_prefix($letter)
                    .and_then(|digits| digits.parse().ok())
                    .map(Self)
                    .ok_or_else(|| InvalidName::Shape(raw.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(raw: String) -> Result<Self, Self::Error> {
                raw.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

numbered!(
    /// A change set, such as `c42`.
    ChangeSetId,
    "c"
);
numbered!(
    /// A run, such as `r44`.
    RunId,
    "r"
);
numbered!(
    /// A break-glass record, such as `b7`. A stack may have the same name, since no command accepts both.
    BreakGlassId,
    "b"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: &str) {
        let seen = match raw.parse::<StackName>() {
            Ok(name) => name.to_string(),
            Err(err) => format!("error: {err}"),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn names_that_are_names() {
        check("k8s-prod", "k8s-prod");
        check("c4x", "c4x");
        check("b7", "b7");
        check("c", "c");
    }

    #[test]
    fn names_that_are_not() {
        check(
            "state",
            "error: `state` is reserved: `name` and `state` are keywords of the project file",
        );
        check(
            "c42",
            "error: `c42` looks like the id of a change set or a run",
        );
        check(
            "a--b",
            "error: `a--b` is not a valid name: use a letter first, then lower case letters, digits and single dashes",
        );
        check(
            "8s",
            "error: `8s` is not a valid name: use a letter first, then lower case letters, digits and single dashes",
        );
        check(
            "",
            "error: `` is not a valid name: use a letter first, then lower case letters, digits and single dashes",
        );
    }

    #[test]
    fn numbered_names_round_trip() {
        assert_eq!("c42".parse::<ChangeSetId>().unwrap().to_string(), "c42");
        assert!("r".parse::<RunId>().is_err());
        assert_eq!("b7".parse::<BreakGlassId>().unwrap().to_string(), "b7");
        assert!("r7".parse::<BreakGlassId>().is_err());
    }
}
