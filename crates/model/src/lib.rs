//! The pure heart of terrane: parse, decide, render to bytes.
//!
//! Not here: clocks, disks, sockets, environment, randomness. They come as arguments, and
//! this crate's `clippy.toml` bans the rest.

pub mod config;
pub mod diagnostic;
pub mod engine;
pub mod ids;
pub mod module;
pub mod plan;
pub mod project;
pub mod secret;
pub mod tree;
