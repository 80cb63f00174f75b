//! States: access by runs and clients, queries about versions, repair, artifacts, locks, quarantine, spooled bodies.
//!
//! Not here: moving states between homes (`transfer`), the store's own checks (`store::state`).

pub mod artifacts;
pub mod client_access;
pub mod http_backend_lock;
pub(crate) mod last_write;
pub mod lock_admin;
pub mod outputs;
pub mod pending_write;
pub mod quarantine;
pub mod queries;
pub mod redact_reason;
pub mod run_access;
pub(crate) mod secret_paths;
pub mod spool;
pub mod surgery;
pub(crate) mod unrecorded;
