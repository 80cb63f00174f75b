//! Protects this process's memory: no core dumps, no other process may read it.

pub use drivers::process::keep_to_ourselves;
