//! A value of the project file that may need something from outside: an output, the environment, a secret or a query.
//!
//! Not here: evaluating it (`stored_expression`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::ids::StackName;

/// A value of the project file, as far as it is known before anything runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Known(Value),
    /// Needs an upstream's output, the requester's environment or a secret. Evaluated by `stored_expression` in the stage
    /// that needs it. Contains none of these values.
    Expression(Expression),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expression {
    /// HCL source of the expression.
    pub text: String,
    /// Names that are bound for it: `each`, `project`, `target`, `stack`, `git`, `dir`.
    pub names: BTreeMap<String, Value>,
    /// The external values that it needs.
    pub needs: Needs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// `stack.NAME.output.KEY`.
    pub outputs: BTreeSet<(StackName, String)>,
    /// `env("NAME")`: must be set.
    pub env: BTreeSet<String>,
    /// `env("NAME", "default")`: may be unset.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub env_if_set: BTreeSet<String>,
    /// `secret("REF")`.
    pub secrets: BTreeSet<String>,
}

/// An external query in an expression of a gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExternalQuery {
    /// `fact.NAME["PATH"]`: a published file.
    Fact { facts: String, path: String },
    /// `dns("NAME")`, `dns("NAME", "TYPE")`: the records of a name.
    Dns { name: String, record: String },
    /// `kubernetes("KIND/NAMESPACE/NAME", "FIELD")`.
    Kubernetes { object: String, field: String },
}

impl std::fmt::Display for ExternalQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fact { facts, path } => write!(f, "fact.{facts}[\"{path}\"]"),
            Self::Dns { name, record } => write!(f, "dns(\"{name}\", \"{record}\")"),
            Self::Kubernetes { object, field } => {
                write!(f, "kubernetes(\"{object}\", \"{field}\")")
            }
        }
    }
}
