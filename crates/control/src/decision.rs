//! What users decide about a change set: approve, confirm, reject, discard, release a hold. Each use case takes a request and returns a
//! typed outcome.
//!
//! Not here: which decisions are possible (`model::run::changeset`), drawing the outcome (`cli`).

pub mod approve;
mod checks;
pub mod confirm;
pub mod release;
pub mod stop;

pub use checks::{DecidingUser, DecisionError};
