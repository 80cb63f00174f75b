//! Who acts. Every change of a use case names its actor, and the result is stored with it.
//!
//! Not here: what an actor may do (`project::identity` for writers, `run::approval` for approvals).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor {
    pub name: String,
    pub kind: ActorKind,
    pub verified: Verification,
    pub via: Entrance,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    #[default]
    Person,
    Ci,
    Server,
    /// The holder of a token of the state server.
    Token,
}

/// How the name is known.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// Only the actor says so: a variable of a CI job, or the holder that a lock names.
    #[default]
    Claimed,
    /// The user of the operating system.
    System,
    /// A signed token of an issuer.
    Issuer,
    /// A secret that the store knows by its digest.
    Secret,
}

/// The entrance of the system through which the actor came.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Entrance {
    #[default]
    Cli,
    Server,
}

impl Actor {
    /// An actor of whom only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The form for a column of text: the name alone, or JSON if more is known.
    pub fn to_text(&self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            Ok(known) => known.to_string(),
            Err(_) => self.name.clone(),
        }
    }

    pub fn from_text(text: &str) -> Self {
        if !text.starts_with('{') {
            return Self::named(text);
        }
        serde_json::from_str(text).unwrap_or_else(|_| Self::named(text))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What is stored if more than the name is known.
#[derive(Serialize, Deserialize)]
struct KnownActor {
    name: String,
    #[serde(default)]
    kind: ActorKind,
    #[serde(default)]
    verified: Verification,
    #[serde(default)]
    via: Entrance,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StoredActor {
    Name(String),
    Known(KnownActor),
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A name that looks like JSON must not be read as more than a name.
        if *self == Self::named(&self.name) && !self.name.starts_with('{') {
            return self.name.serialize(serializer);
        }
        let Self {
            name,
            kind,
            verified,
            via,
        } = self.clone();
        let known = KnownActor {
            name,
            kind,
            verified,
            via,
        };
        known.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match StoredActor::deserialize(deserializer)? {
            StoredActor::Name(name) => Self::named(name),
            StoredActor::Known(known) => Self {
                name: known.name,
                kind: known.kind,
                verified: known.verified,
                via: known.via,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Actor {
        Actor {
            name: "deploy".to_owned(),
            kind: ActorKind::Token,
            verified: Verification::Secret,
            via: Entrance::Server,
        }
    }

    #[test]
    fn a_text_gives_the_same_actor_again() {
        for actor in [known(), Actor::named("alice"), Actor::named("")] {
            assert_eq!(Actor::from_text(&actor.to_text()), actor);
        }
    }

    #[test]
    fn a_name_alone_is_stored_as_it_is() {
        assert_eq!(Actor::named("alice").to_text(), "alice");
    }

    #[test]
    fn what_is_known_is_stored_with_the_name() {
        let text = r#"{"name":"deploy","kind":"token","verified":"secret","via":"server"}"#;
        assert_eq!(known().to_text(), text);
    }

    #[test]
    fn a_name_cannot_pretend_to_be_verified() {
        let forged = Actor::named(known().to_text());
        let read = Actor::from_text(&forged.to_text());
        assert_eq!(read, forged);
        assert_eq!(read.verified, Verification::Claimed);
    }
}
