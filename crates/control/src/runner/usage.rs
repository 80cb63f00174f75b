//! What this process cost, for measurements: one line of JSON in a file that the environment names.

use std::io::Write as _;

/// Names the file; unset outside of measurements.
pub const USAGE_FILE: &str = "TERRANE_BENCH_USAGE";

/// Appends user and system time of this process, and of the children it waited for, in clock ticks.
pub fn note_usage(role: &str) {
    let Some(path) = std::env::var_os(USAGE_FILE) else {
        return;
    };
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return;
    };
    // The name in parentheses may hold spaces: fields are counted behind it.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return;
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |index: usize| {
        fields
            .get(index)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let line = format!(
        "{{\"role\":\"{role}\",\"utime\":{},\"stime\":{},\"cutime\":{},\"cstime\":{}}}\n",
        field(11),
        field(12),
        field(13),
        field(14)
    );
    if let Ok(mut file) = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
    {
        // A measurement that cannot be written is missing from the sum, which the reader notices.
        drop(file.write_all(line.as_bytes()));
    }
}
