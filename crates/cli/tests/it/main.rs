//! Whole stories, told by the real binary with real engines.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod approval;
mod attach;
mod destroy;
mod failure;
mod interrupt;
mod lanes;
mod order;
mod quickstart;
mod random_kills;
mod recovery;
mod sensitive;
mod story;
