//! Protects this process's memory: disables core dumps and keeps other processes from reading it.

pub use drivers::process::protect_memory;
