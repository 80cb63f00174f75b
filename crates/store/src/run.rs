//! Change sets and runs, and what belongs to them.
//!
//! Here: their rows and events, lanes, approvals, holds, bundles, plan views, and which facts were published.
//!
//! Not here: what may happen next (`model::run::changeset`, `model::run`), and states (`state`).

pub(crate) mod approvals;
pub(crate) mod bundles;
pub(crate) mod change_sets;
pub(crate) mod facts;
pub(crate) mod holds;
pub(crate) mod lanes;
mod plan_views;
pub(crate) mod records;
pub(crate) mod runs;
