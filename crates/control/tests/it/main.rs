//! What happens in clusters, against a real API server. Where a controller would write a status, the test does.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod bootstrap;
mod documented;
mod drain;
mod kubernetes;
mod looks;
mod sinks;
