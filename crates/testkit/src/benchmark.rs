//! Command line and clock of benchmarks.

use std::time::{Duration, Instant};

/// Arguments of a benchmark, without the `--bench` that `cargo bench` appends.
pub fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench").collect()
}

/// CPU time of this thread, which other programs affect little. Returns the time since `start` if the operating system
/// does not report CPU time.
pub fn thread_time(start: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}
