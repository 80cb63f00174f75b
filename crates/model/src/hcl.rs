//! HCL: parsing with positions, expressions, and their evaluation.
//!
//! Not here: which blocks and attributes a project file may have (`project::config`).

pub(crate) mod evaluator;
pub mod expression;
pub(crate) mod functions;
pub(crate) mod operators;
pub(crate) mod paths;
mod references;
pub mod stored_expression;
pub mod suggest;
pub(crate) mod syntax;
mod templates;
mod unclosed_delimiter;
pub(crate) mod value;
