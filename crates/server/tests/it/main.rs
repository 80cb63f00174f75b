//! The state endpoint over real HTTP, spoken by hand and by real engines.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod endpoint;
mod engines;
mod wire;
