//! A run on this machine: its lock and the liveness of its processes, the attached client, its logs, its
//! failure, and the removal of its files.
//!
//! Not here: what a run does (`runner`), which run starts when (`schedule`), the run as it is stored
//! (`model::run`).

pub mod cleanup;
pub mod client_presence;
pub(crate) mod failure;
pub(crate) mod keyed_digests;
pub mod launcher;
pub mod liveness;
pub mod lock;
pub mod logs;
pub mod query;
