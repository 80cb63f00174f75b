//! The use cases, and the only crate that knows both store and drivers.

pub mod state;
