//! Use cases and runs in this process: a real store, a scripted engine, a clock that the test moves. Runners are no
//! processes here: the test carries claimed runs out itself, one after another.
//!
//! Not here: what needs real processes, engines or services (`it`, and the stories of `cli`).

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod applying;
mod endpoint;
mod world;
