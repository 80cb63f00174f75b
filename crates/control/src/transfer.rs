//! Moving states: import from and export to files, other homes and backends of the engine.

pub mod export;
pub mod import;
