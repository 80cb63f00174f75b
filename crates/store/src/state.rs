//! States and everything that is kept with them.
//!
//! Here: states, their versions and locks, refused writes, retention, the index, outputs, artifacts, and
//! checks.
//!
//! Not here: which write may follow (`model::state`), where bytes are stored (`blob`), runs (`run`).

pub(crate) mod artifacts;
pub(crate) mod check;
pub(crate) mod index;
pub(crate) mod locks;
mod outputs;
pub(crate) mod refusals;
pub(crate) mod retention;
pub(crate) mod states;
pub(crate) mod sweep;
pub(crate) mod versions;
