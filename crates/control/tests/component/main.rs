//! Use cases and runs in this process: a real store, a scripted engine, a clock that the test moves. Runners are no
//! processes here: the test carries claimed runs out itself, one after another.
//!
//! Not here: what needs real processes, engines or services (`it`, and the stories of `cli`).

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod applying;
mod approvals;
mod break_glass;
mod bundles;
mod cancelling;
mod changed;
mod client_access;
mod confirmation;
mod deciding;
mod editing;
mod endpoint;
mod exec;
mod facts;
mod failures;
mod gates;
mod holds;
mod hooks;
mod lanes;
mod locks;
mod masking;
mod outputs;
mod previews;
mod quarantine;
mod rebuilding;
mod recovery;
mod refresh;
mod requests;
mod resume;
mod retention;
mod retry;
mod rollback;
mod searching;
mod staleness;
mod states;
mod supervising;
mod tokens;
mod transfer;
mod validation;
mod versions;
mod world;
