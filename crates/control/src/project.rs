//! The project on disk: opening it, proposing one, its files, contracts, engines and providers.
//!
//! Not here: parsing and checks of the project file (`model::project::config`), anything that needs a home.

pub mod changed;
pub mod contracts;
pub mod engines;
pub mod fact_readers;
pub mod formatting;
pub mod ignored;
pub mod init;
pub mod open;
pub mod providers;
pub mod secret_references;
pub(crate) mod stage_files;
