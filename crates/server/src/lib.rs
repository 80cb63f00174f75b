//! HTTP: reads requests, checks who sent them, calls `control`, and turns the result into a response.
//!
//! Not here: what a caller may change, and in which order (`control`).
//!
//! `state` may use `http`; `http` knows nothing of states but their errors. `state_server` puts both together.

pub mod http;
pub mod state;
mod state_server;

pub use state_server::StateServer;
