//! Memory: what nobody else may see of it, and how much of what is free a server keeps to itself.
//!
//! glibc learns from every large piece that is freed to keep the next ones of that size: after a few states of 10 MB
//! it gives nothing back, in each of its arenas. It takes other settings from the environment alone, and only when a
//! program starts (docs/decisions/0022-linked-at-a-fixed-address.md).

use std::path::Path;

use drivers::process;
pub use drivers::process::keep_to_ourselves;

/// Pieces of more than 1 MB go back to the system when they are free. Smaller ones, most states among them, are kept
/// at hand, 8 MB of them in a row at most.
const SETTINGS: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "1048576"),
    ("MALLOC_TRIM_THRESHOLD_", "8388608"),
];

/// Starts this program anew with the settings, unless somebody has set one already. A server that cannot be started
/// anew only keeps more memory than it needs.
pub fn give_back_large_pieces(program: &Path) {
    let is_set = |(name, _): &(&str, &str)| std::env::var_os(name).is_some();
    if cfg!(target_env = "gnu") && !SETTINGS.iter().any(is_set) {
        drop(process::begin_anew(program, &SETTINGS));
    }
}
