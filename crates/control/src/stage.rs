//! The stages after an apply: publishing facts, bootstrapping clusters, gates, and draining before a destroy.
//!
//! Not here: when a stage runs (`runner`), the blocks as data (`model::stage`).

pub mod bootstrap;
pub mod cluster;
pub mod drain;
pub mod facts;
pub mod gates;
pub mod sinks;
pub mod values;
