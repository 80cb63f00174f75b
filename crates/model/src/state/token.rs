//! Tokens of the state server: which states a token can access, and what it may do there.
//!
//! Not here: the secret itself, of which only a digest is stored (`store`), and HTTP (`server`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::actor::Actor;
use crate::base::duration;
use crate::base::error::{ErrorKind, Explain};
use crate::state::StateName;

/// What a token may do. Each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    Read,
    /// Lock, write, unlock, delete.
    Write,
    /// Also operations that break the order of versions: `state push -force`, a migration over a state.
    Surgery,
}

impl TokenScope {
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Surgery];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Surgery => "surgery",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Selects states: a pattern over `PROJECT/NAME`, or `NAME` for a state without a project. `*` stays within a
/// component, `**` does not.
#[derive(Clone, Debug)]
pub struct StatePattern {
    text: String,
    matcher: GlobMatcher,
}

#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid state pattern")]
pub struct InvalidPattern {
    pattern: String,
    source: globset::Error,
}

impl Explain for InvalidPattern {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl StatePattern {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn covers(&self, state: &StateName) -> bool {
        self.matcher.is_match(state.to_string())
    }
}

impl FromStr for StatePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|source| InvalidPattern {
            pattern: text.to_owned(),
            source,
        })?;
        Ok(Self {
            text: text.to_owned(),
            matcher: glob.compile_matcher(),
        })
    }
}

impl PartialEq for StatePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A recorded token. Its name identifies the actor in every record.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub name: String,
    pub states: StatePattern,
    pub scope: TokenScope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub created_by: Option<Actor>,
    pub revoked_by: Option<Actor>,
}

impl Token {
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    pub fn allows(&self, scope: TokenScope, state: &StateName) -> bool {
        scope <= self.scope && self.states.covers(state)
    }
}

/// The lifetime of a token: `12h`, `90d`, `4w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a duration: write `12h`, `90d` or `4w`")]
pub struct InvalidLifetime(String);

impl Explain for InvalidLifetime {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl FromStr for Lifetime {
    type Err = InvalidLifetime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A century counts as forever and does not overflow any timestamp.
        const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);
        let length = duration::parse(text).filter(|it| !it.is_zero() && *it <= LONGEST);
        length
            .map(Self)
            .ok_or_else(|| InvalidLifetime(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, state: &str, covered: bool) {
        let (project, name) = state.split_once('/').unwrap_or(("", state));
        let pattern: StatePattern = pattern.parse().unwrap();
        let seen = pattern.covers(&StateName::new(project, name));
        assert_eq!(seen, covered, "{} covers {state}", pattern.as_str());
    }

    #[test]
    fn a_pattern_stays_within_its_project() {
        check("**", "network", true);
        check("**", "shop/network", true);
        check("*", "network", true);
        check("*", "shop/network", false);
        check("shop/*", "shop/network", true);
        check("shop/*", "shop-2/network", false);
        check("shop/web-*", "shop/network", false);
        check("shop", "shop/network", false);
        check("{shop,team}/*", "team/network", true);
    }

    #[test]
    fn who_may_do_what() {
        let token = |scope| Token {
            name: "ci".to_owned(),
            states: "shop/*".parse().unwrap(),
            scope,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            created_by: None,
            revoked_by: None,
        };
        let (inside, outside) = (StateName::new("shop", "a"), StateName::new("", "a"));
        let mut table = Vec::new();
        for scope in TokenScope::ALL {
            for action in TokenScope::ALL {
                let allowed = token(scope).allows(action, &inside);
                assert!(!token(scope).allows(action, &outside));
                table.push(format!("{scope} {action} {allowed}"));
            }
        }
        insta::assert_snapshot!(table.join("\n"), @r"
        read read true
        read write false
        read surgery false
        write read true
        write write true
        write surgery false
        surgery read true
        surgery write true
        surgery surgery true
        ");
    }

    #[test]
    fn a_token_ends_when_its_time_is_over_or_it_is_taken_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut token = Token {
            name: "ci".to_owned(),
            states: "**".parse().unwrap(),
            scope: TokenScope::Read,
            created_at: at(0),
            expires_at: Some(at(10)),
            revoked_at: None,
            created_by: None,
            revoked_by: None,
        };
        assert!(token.is_valid(at(9)));
        assert!(!token.is_valid(at(10)));
        token.revoked_at = Some(at(1));
        assert!(!token.is_valid(at(9)));
    }

    #[test]
    fn spans_of_time() {
        let hours = |text: &str| {
            text.parse::<Lifetime>()
                .ok()
                .map(|it| it.0.as_secs() / 3600)
        };
        assert_eq!(hours("12h"), Some(12));
        assert_eq!(hours("90d"), Some(90 * 24));
        assert_eq!(hours("4w"), Some(4 * 7 * 24));
        for wrong in ["", "d", "0d", "-1d", "90", "90 d", "99999999w", "1µ"] {
            assert_eq!(hours(wrong), None, "{wrong}");
        }
    }
}
