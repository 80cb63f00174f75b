//! A hold: a person blocks a stack or a lane, with a reason and an end. Not a state lock.

use crate::base::actor::Actor;
use crate::base::error::{NextStep, command};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::StackName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub id: i64,
    pub on: HoldOn,
    pub person: Actor,
    pub reason: String,
    pub since: Timestamp,
    /// It always expires, so that the absence of a person does not block others for long.
    pub until: Timestamp,
    pub released: Option<Release>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub by: Actor,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "on", content = "name", rename_all = "snake_case")]
pub enum HoldOn {
    Stack(StackName),
    Lane(String),
}

impl HoldOn {
    pub fn words(&self) -> String {
        match self {
            Self::Stack(stack) => format!("stack `{stack}`"),
            Self::Lane(lane) => format!("lane `{lane}`"),
        }
    }

    /// Whether it blocks a lane: the target's own, or that of one of its stacks (`target/stack`).
    pub fn covers_lane(&self, lane: &str) -> bool {
        match self {
            Self::Stack(_) => false,
            Self::Lane(held) => lane
                .strip_prefix(held.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Stack(stack) => stack.as_str(),
            Self::Lane(lane) => lane,
        }
    }
}

impl Hold {
    pub fn release_step(&self) -> NextStep {
        command(
            format!("hold release {}", self.on.name()),
            "ends it (with `--all` if it is not your own)",
        )
    }

    pub fn is_active(&self, now: Timestamp) -> bool {
        self.released.is_none() && now < self.until
    }

    /// ``held by `ops`: migration (until 2026-11-17T08:00:00Z)``
    pub fn words(&self) -> String {
        format!(
            "held by `{}`: {} (until {})",
            self.person,
            self.reason,
            self.until.strftime("%Y-%m-%d %H:%M UTC")
        )
    }
}
