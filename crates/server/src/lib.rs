//! HTTP: parse, authorise, call `control`, map.
//!
//! Not here: what may happen, and in which order (`control`).

pub mod auth;
mod error;
pub mod state_backend;
