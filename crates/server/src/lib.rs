//! HTTP: reads requests, checks who sent them, calls `control`, and turns the result into a response.
//!
//! Not here: what a caller may change, and in which order (`control`).
//!
//! `state` may use `http`; `http` uses nothing of states except their errors. `state_server` combines both.

pub mod http;
pub mod state;
mod state_server;

pub use state_server::StateServer;
