//! What everything else uses: ids, actors, errors, findings, durations, exact numbers, secrets and their masking,
//! file trees.
//!
//! Not here: anything about stacks, runs or states.

pub mod actor;
pub mod age_identity;
pub mod diagnostic;
pub mod duration;
pub mod error;
pub mod exact_number;
pub mod ids;
pub mod masking;
pub mod secret;
pub mod tree;
