//! A `facts` block: where facts are published, and how.

use serde::{Deserialize, Serialize};

use crate::base::diagnostic::Location;
use crate::hcl::expression::Input;

/// A place to which facts are published: a branch of a Git repository.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactsBranch {
    pub name: String,
    /// A Git remote or a path; none: the project's own remote.
    pub repository: Option<Input>,
    pub branch: Option<Input>,
    pub owns: BranchOwnership,
    pub credential: Option<Input>,
    pub sensitive: SensitiveFacts,
    /// Whether every value is encrypted.
    pub encrypt_all: bool,
    #[serde(skip)]
    pub declared_at: Location,
}

impl FactsBranch {
    /// The values that determine the location.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        let inputs = [&self.repository, &self.branch, &self.credential];
        inputs.into_iter().flatten()
    }

    /// Whether files there may be encrypted, for the recipients that the project names.
    pub fn may_encrypt(&self) -> bool {
        self.encrypt_all || self.sensitive == SensitiveFacts::Encrypt
    }
}

/// The part of a branch that only terrane writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BranchOwnership {
    #[default]
    Branch,
    /// The published files; people edit the rest.
    Paths,
}

/// What happens to sensitive values in facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SensitiveFacts {
    Encrypt,
    Reference,
    #[default]
    Refuse,
}
