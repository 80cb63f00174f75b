//! The pure core of terrane: parse, decide, render to bytes.
//!
//! Not here: clocks, disks, sockets, environment, randomness. They are passed as arguments, and this crate's
//! `clippy.toml` bans direct access.

pub mod base;
pub mod graph;
pub mod hcl;
pub mod plan;
pub mod policy;
pub mod project;
pub mod render;
pub mod run;
pub mod stage;
pub mod state;
