//! What this machine knows of a run: its lock and whether its processes live, the client that is attached, its logs, its failure,
//! and the files that are removed when it is over.
//!
//! Not here: what a run does (`runner`), which run starts when (`schedule`), the run as it is stored (`model::run`).

pub mod cleanup;
pub mod client_presence;
pub(crate) mod failure;
pub(crate) mod keyed_digests;
pub mod liveness;
pub mod lock;
pub mod logs;
pub mod query;
