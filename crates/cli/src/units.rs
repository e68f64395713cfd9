//! Formats sizes, durations and counts for people, and parses sizes.

use std::str::FromStr;
use std::time::Duration;

/// A size in bytes, written as `4GiB`, `512MiB`, `1.5GB` or `1048576`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Number of bytes as a `usize`. Saturates at `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Error: a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a size; write for example 4GiB, 512MiB, 1.5GB or a number of bytes")]
pub struct ParseByteSizeError {
    found: String,
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteSizeError { found: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        let unit_start = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let number: f64 = lower[..unit_start].parse().map_err(|_| error())?;
        let unit: f64 = match lower[unit_start..].trim() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(error()),
        };
        let bytes = number * unit;
        // The cast would saturate without an error. The range excludes values that are too large.
        if (1.0..=u64::MAX as f64 / 2.0).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(error()) }
    }
}

/// Size with a unit: `1.2 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 999.5);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Duration with about three digits: `870 µs`, `12.3 ms`, `4.57 s`, `2 min 5 s`.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        0.0..0.000_999_5 => format!("{:.0} µs", seconds * 1e6),
        0.000_999_5..0.099_95 => format!("{:.1} ms", seconds * 1e3),
        0.099_95..0.999_5 => format!("{:.0} ms", seconds * 1e3),
        0.999_5..119.5 => format!("{seconds:.2} s"),
        _ => format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60),
    }
}

/// Count with its noun, in singular or plural: `1 file`, `2 files`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", count_text(count as u64), if count == 1 { "" } else { "s" })
}

/// Count with thousands separators: `6,001,215`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rate in rows per second: `1.20 M rows/s`.
pub fn rate_text(rows: u64, duration: Duration) -> String {
    let rate = rows as f64 / duration.as_secs_f64().max(1e-9);
    match rate {
        1e6.. => format!("{:.2} M rows/s", rate / 1e6),
        1e3.. => format!("{:.1} k rows/s", rate / 1e3),
        _ => format!("{rate:.0} rows/s"),
    }
}

/// Compression ratio, plain size divided by stored size: `3.4x`. `-` if the stored size is zero.
pub fn ratio_text(stored: u64, plain: u64) -> String {
    if stored == 0 { "-".to_owned() } else { format!("{:.1}x", plain as f64 / stored as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let cases = [("4GiB", 4 << 30), ("512 mib", 512 << 20), ("1.5kb", 1500), ("77", 77), ("2g", 2 << 30)];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "4 GiBs", "1.2.3", "0", "99999999TiB", "é"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(bytes_text(0), "0 B");
        assert_eq!(bytes_text(1023), "1023 B");
        assert_eq!(bytes_text(1536), "1.5 KiB");
        assert_eq!(bytes_text(5 << 30), "5.0 GiB");
        assert_eq!(count_text(7), "7");
        assert_eq!(count_text(6_001_215), "6,001,215");
        assert_eq!(count_text(100_000), "100,000");
        assert_eq!(duration_text(Duration::from_micros(870)), "870 µs");
        assert_eq!(duration_text(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(duration_text(Duration::from_millis(4_567)), "4.57 s");
        assert_eq!(duration_text(Duration::from_secs(125)), "2 min 5 s");
    }
}
