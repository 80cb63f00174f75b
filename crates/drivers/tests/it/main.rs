//! Ours beside the official tools: what one writes the other reads.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod sops;
mod sources;
mod vault;
