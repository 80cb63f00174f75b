//! Compares what is stored with the database, and repairs the difference.
//!
//! Here: the comparison when a home is opened (`stale_database`), the full one (`verify`), updating the
//! database (`rebuild`), and reading a home without its database (`recover`).
//!
//! Not here: normal reads and writes (`state`).

pub(crate) mod rebuild;
pub(crate) mod recover;
pub(crate) mod stale_database;
pub(crate) mod verify;
