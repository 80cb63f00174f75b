//! What can be known about a Kubernetes cluster and its objects without asking it: how it is reached, what a manifest
//! holds, where a field is, whether an object says that it is well.
//!
//! Not here: asking (`drivers::kubernetes`).

mod field;
mod health;
mod kubeconfig;
mod names;
mod object;

pub use field::{FieldPath, FieldPathError};
pub use health::{Health, agent_health, condition, listener, rollout};
pub use kubeconfig::{Access, ExecPlugin, Kubeconfig, KubeconfigError};
pub use names::{is_key, is_label};
pub use object::{Manager, ManifestError, ObjectRef, documents, managers, without_bookkeeping};
