//! Text for people, made from plain data and a [`ViewOptions`].
//!
//! Not here: where the text goes (data to stdout, the rest to stderr; the commands decide), and where the
//! data comes from (`model`, `control`).

pub(crate) mod actors;
pub(crate) mod artifacts;
pub mod contexts;
pub mod diagnostics;
mod diff;
pub mod duration;
pub mod errors;
pub mod findings;
pub mod gates;
pub mod outcome;
pub mod outputs;
pub mod plan;
pub mod policy;
pub mod progress;
pub(crate) mod render;
pub(crate) mod restrictions;
pub(crate) mod state;
pub mod style;
pub mod surgery;
pub mod table;
pub mod text;
pub mod unrecorded;
mod value;

#[cfg(test)]
mod color_tags;

pub use style::ViewOptions;
