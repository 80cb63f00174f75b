//! Commands about the project itself: what it is, whether it is valid, and the engines and files it needs.

pub(crate) mod context;
pub(crate) mod engine;
pub(crate) mod fmt;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod render;
pub(crate) mod validate;
