//! Permissions: writers of targets, tokens of the state server.

pub mod tokens;
pub mod writers;
