//! All access to the outside world: child processes (engine, git, secret commands), downloads, and identity
//! issuers of CI jobs.
//!
//! Not here: what to do when (`control`), state and history (`store`), pure parsing (`model`).

pub mod artifacts;
pub mod engine;
pub mod git;
pub mod kubernetes;
pub mod oidc;
pub mod probe;
pub mod process;
pub mod rego;
pub mod secrets;
pub mod snapshot;
pub mod sops;
pub mod state_http;
pub mod tree;
