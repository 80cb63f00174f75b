//! Change sets as use cases: preparing one, explaining why it waits, approvals, holds, bundles, what may be skipped.
//!
//! Not here: carrying out runs (`runner`), starting them (`schedule`), decisions (`model::run::changeset`).

pub mod approval_policy;
pub mod backends;
pub mod bundle;
pub mod cancel_requests;
pub(crate) mod exec_args;
pub mod explain;
pub mod holds;
pub mod orphan_processes;
pub mod prepare;
pub mod removed_stacks;
pub mod restrictions;
pub mod staleness;
pub(crate) mod up_to_date;
pub mod upstreams;
