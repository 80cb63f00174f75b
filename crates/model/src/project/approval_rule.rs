//! `approval` blocks of targets and stacks: how many approvals are required, and from whom.
//!
//! Not here: which approvals count (`run::approval`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An `approval` block. Missing settings are inherited from the target's block, then from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalBlock {
    pub count: Option<u32>,
    pub role: Option<String>,
    pub author: Option<bool>,
    pub expires: Option<Duration>,
    pub scope: Option<ApprovalScope>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// One approval for the whole change set.
    #[default]
    ChangeSet,
    /// A separate approval for the stack, whatever was approved for the change set.
    Stack,
}

/// How many approvals are required, and from whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ApprovalRule {
    pub count: u32,
    pub role: Option<String>,
    /// Whether the author may approve.
    pub author: bool,
    pub expires: Option<Duration>,
    pub scope: ApprovalScope,
}

impl ApprovalBlock {
    /// The rule for a stack: its own block overrides its target's. None if neither exists.
    pub fn rule(target: Option<&Self>, stack: Option<&Self>) -> Option<ApprovalRule> {
        if target.is_none() && stack.is_none() {
            return None;
        }
        let said: Vec<&Self> = stack.into_iter().chain(target).collect();
        Some(ApprovalRule {
            count: said.iter().find_map(|block| block.count).unwrap_or(1),
            role: said.iter().find_map(|block| block.role.clone()),
            author: said.iter().find_map(|block| block.author).unwrap_or(false),
            expires: said.iter().find_map(|block| block.expires),
            scope: said
                .iter()
                .find_map(|block| block.scope)
                .unwrap_or_default(),
        })
    }
}

impl ApprovalRule {
    /// Whether fulfilling this rule also fulfils the other one.
    pub fn asks_as_much_as(&self, other: &Self) -> bool {
        let roles = other.role.is_none() || self.role == other.role;
        let authors = other.author || !self.author;
        let scopes = other.scope == ApprovalScope::ChangeSet || self.scope == other.scope;
        let terms = other
            .expires
            .is_none_or(|term| self.expires.is_some_and(|own| own <= term));
        self.count >= other.count && roles && authors && scopes && terms
    }
}

impl From<ApprovalRule> for ApprovalBlock {
    fn from(rule: ApprovalRule) -> Self {
        Self {
            count: Some(rule.count),
            role: rule.role,
            author: Some(rule.author),
            expires: rule.expires,
            scope: Some(rule.scope),
        }
    }
}
