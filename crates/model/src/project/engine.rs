//! Which engine a stack requires: OpenTofu or Terraform, and which versions.
//!
//! Not here: finding, installing and starting one (`drivers::engine`).

use crate::base::error::{ErrorKind, Explain};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// OpenTofu and Terraform only differ in name, download location and a few flags.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    #[default]
    Tofu,
    Terraform,
}

impl Flavor {
    pub const ALL: [Self; 2] = [Self::Tofu, Self::Terraform];

    /// The name of the executable.
    pub fn program(self) -> &'static str {
        match self {
            Self::Tofu => "tofu",
            Self::Terraform => "terraform",
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

impl FromStr for Flavor {
    type Err = UnknownFlavor;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|flavor| flavor.program() == raw)
            .ok_or_else(|| UnknownFlavor(raw.to_owned()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an engine: there are `tofu` and `terraform`")]
pub struct UnknownFlavor(String);

impl Explain for UnknownFlavor {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

/// The requirement of a project or a stack: a flavor and optionally a constraint such as `~> 1.11`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRequirement {
    pub flavor: Flavor,
    pub constraint: Option<Constraint>,
}

/// A version constraint in the engines' notation: `~> 1.11`, `>= 1.9, < 2.0`, `1.11.4`, `!= 1.10.0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Constraint {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    operator: Operator,
    version: semver::Version,
    /// The number of components: `~> 1.11` allows other minor versions, `~> 1.11.2` only other patches.
    parts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Pessimistic,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version constraint")]
pub struct InvalidConstraint(String);

impl Explain for InvalidConstraint {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl Constraint {
    pub fn allows(&self, version: &semver::Version) -> bool {
        self.terms.iter().all(|term| term.allows(version))
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Term {
    fn allows(&self, version: &semver::Version) -> bool {
        let plain = |v: &semver::Version| (v.major, v.minor, v.patch);
        // A pre-release only matches if it is named explicitly.
        if !version.pre.is_empty() {
            return self.operator == Operator::Equal && *version == self.version;
        }
        let (seen, want) = (plain(version), plain(&self.version));
        match self.operator {
            Operator::Equal => seen == want && self.version.pre.is_empty(),
            Operator::NotEqual => seen != want,
            Operator::Greater => seen > want,
            Operator::GreaterEqual => seen >= want,
            Operator::Less => seen < want,
            Operator::LessEqual => seen <= want,
            Operator::Pessimistic if self.parts >= 3 => {
                seen >= want && seen.0 == want.0 && seen.1 == want.1
            }
            Operator::Pessimistic if self.parts == 2 => seen >= want && seen.0 == want.0,
            Operator::Pessimistic => seen >= want,
        }
    }
}

impl FromStr for Constraint {
    type Err = InvalidConstraint;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let terms = raw
            .split(',')
            .map(|part| parse_term(part.trim()).ok_or_else(|| InvalidConstraint(raw.to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            text: raw.trim().to_owned(),
            terms,
        })
    }
}

fn parse_term(raw: &str) -> Option<Term> {
    const OPERATORS: [(&str, Operator); 7] = [
        ("~>", Operator::Pessimistic),
        (">=", Operator::GreaterEqual),
        ("<=", Operator::LessEqual),
        ("!=", Operator::NotEqual),
        (">", Operator::Greater),
        ("<", Operator::Less),
        ("=", Operator::Equal),
    ];
    let (operator, rest) = OPERATORS
        .iter()
        .find_map(|(sign, operator)| raw.strip_prefix(sign).map(|rest| (*operator, rest)))
        .unwrap_or((Operator::Equal, raw));
    let rest = rest.trim();
    let rest = rest.strip_prefix('v').unwrap_or(rest);
    let numbers = rest.split(['-', '+']).next().unwrap_or(rest);
    let parts = numbers.split('.').count();
    let full = match parts {
        1 => format!("{rest}.0.0"),
        2 => format!("{rest}.0"),
        3 => rest.to_owned(),
        _ => return None,
    };
    Some(Term {
        operator,
        version: semver::Version::parse(&full).ok()?,
        parts,
    })
}

impl TryFrom<String> for Constraint {
    type Error = InvalidConstraint;

    fn try_from(raw: String) -> Result<Self, Self::Error> {
        raw.parse()
    }
}

impl From<Constraint> for String {
    fn from(constraint: Constraint) -> Self {
        constraint.text
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(constraint: &str, allowed: &[&str], refused: &[&str]) {
        let constraint: Constraint = constraint.parse().unwrap();
        for version in allowed {
            assert!(
                constraint.allows(&version.parse().unwrap()),
                "{constraint} allows {version}"
            );
        }
        for version in refused {
            assert!(
                !constraint.allows(&version.parse().unwrap()),
                "{constraint} refuses {version}"
            );
        }
    }

    #[test]
    fn constraints_mean_what_the_engines_mean() {
        check(
            "~> 1.11",
            &["1.11.0", "1.12.4"],
            &["1.10.9", "2.0.0", "1.12.0-rc1"],
        );
        check("~> 1.11.2", &["1.11.2", "1.11.14"], &["1.11.1", "1.12.0"]);
        check(
            ">= 1.9, < 1.12, != 1.10.0",
            &["1.9.0", "1.11.14"],
            &["1.10.0", "1.12.0"],
        );
        check("1.11.4", &["1.11.4"], &["1.11.5"]);
        check("= 1.12.0-rc1", &["1.12.0-rc1"], &["1.12.0"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for raw in ["", "latest", "~> ", "1.2.3.4", ">> 1"] {
            assert!(raw.parse::<Constraint>().is_err(), "{raw}");
        }
    }
}
