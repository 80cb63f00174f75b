//! Pure functions on Kubernetes data: kubeconfigs, manifests, field paths and the health of objects.
//!
//! Not here: access to clusters (`drivers::kubernetes`).

mod field;
mod health;
mod kubeconfig;
mod names;
mod object;

pub use field::{FieldPath, FieldPathError};
pub use health::{Health, agent_health, condition, listener, rollout};
pub use kubeconfig::{ClusterCredentials, ExecPlugin, Kubeconfig, KubeconfigError};
pub use names::{is_key, is_label};
pub use object::{
    FieldManager, ManifestError, ObjectRef, documents, managers, without_bookkeeping,
};
