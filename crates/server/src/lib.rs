//! HTTP: parse, authorise, call `control`, map.
//!
//! Not here: what may happen, and in which order (`control`).

pub mod auth;
mod body;
mod error;
mod failures;
mod guests;
mod idle;
mod metrics;
mod peers;
mod pulse;
mod routes;
mod serve;
pub mod service;
pub mod state_backend;
pub mod tls;
mod wire;
