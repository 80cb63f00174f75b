//! Records the CPU time of this process for measurements: one line of JSON in a file that the environment
//! names.

use std::io::Write as _;

/// The variable that names the file; unset outside of measurements.
pub const USAGE_FILE: &str = "TERRANE_BENCH_USAGE";

/// Appends the processor time of this process, and of the children it waited for, in microseconds.
pub fn note_usage(role: &str) {
    let Some(path) = std::env::var_os(USAGE_FILE) else {
        return;
    };
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let line = format!(
        "{{\"role\":\"{role}\",\"self_us\":{},\"children_us\":{}}}\n",
        own.tv_sec * 1_000_000 + own.tv_nsec / 1000,
        children_us()
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

/// Read from `/proc/self/stat`, which counts user and system time in whole hundredths of a second. On average
/// half of one is missing from each, which is a lot for a single engine.
fn children_us() -> u64 {
    const TICK: u64 = 10_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces, so fields are counted after it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    match ticks(13) + ticks(14) {
        0 => 0,
        ticks => ticks * TICK + TICK,
    }
}
