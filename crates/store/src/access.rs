//! Access to a home, and records of manual interventions.
//!
//! Here: tokens of a state server, break-glass records.
//!
//! Not here: rules for callers (`model`), verifying callers (`control`).

pub(crate) mod break_glass;
pub(crate) mod tokens;
