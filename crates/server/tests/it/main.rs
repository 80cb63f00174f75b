//! The endpoint of a run and the state server over real HTTP, spoken by hand and by real engines.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod clients;
mod endpoint;
mod engines;
mod hostile;
mod listening;
mod secured;
mod service;
mod wire;
