//! The one door to SQL and blobs.
//!
//! Not here: what may happen (`model`), and in which order (`control`).

mod db;

pub use db::{DbError, OpenDbError};
