//! Small JSON files. Like the catalog file, each begins with a line that contains the length and checksum of the rest.
//!
//! ```text
//!   taut-backup 1 bytes=1234 xxh3=0123456789abcdef\n        kind, format version, length and checksum of the rest
//!   {"number":...}                                          1234 bytes of JSON
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_64;

const FIRST_LINE_MAX: usize = 96;

/// Encodes a file.
///
/// # Errors
/// If the value cannot be encoded as JSON.
pub(crate) fn to_bytes((magic, version): (&str, u64), value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_vec(value)?;
    let mut bytes = first_line(magic, version, &json).into_bytes();
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

/// Decodes a file.
///
/// # Errors
/// If the bytes are invalid. The error names what was expected.
pub(crate) fn parse<T: DeserializeOwned>((magic, version): (&str, u64), bytes: &[u8]) -> Result<T, String> {
    let end = bytes.iter().take(FIRST_LINE_MAX).position(|byte| *byte == b'\n').ok_or("a first line")?;
    let (first, json) = (&bytes[..=end], &bytes[end + 1..]);
    if first != first_line(magic, version, json).as_bytes() {
        let found =
            std::str::from_utf8(first).ok().and_then(|text| text.strip_prefix(magic)?.trim_start().split_once(' '));
        return Err(match found.and_then(|(found, _)| found.parse::<u64>().ok()) {
            Some(found) if found > version => format!("format version {version}, found {found}"),
            _ => {
                format!("a first line that begins with \"{magic} {version} \" and has length and checksum of the rest")
            }
        });
    }
    serde_json::from_slice(json).map_err(|error| format!("valid content: {error}"))
}

fn first_line(magic: &str, version: u64, json: &[u8]) -> String {
    format!("{magic} {version} bytes={} xxh3={:016x}\n", json.len(), XxHash3_64::oneshot(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = to_bytes(("taut-test", 1), &vec![1, 2, 3]).unwrap();
        assert_eq!(parse::<Vec<u32>>(("taut-test", 1), &bytes).unwrap(), [1, 2, 3]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(parse::<Vec<u32>>(("taut-test", 1), &flipped).is_err(), "byte {at}, bit {bit}");
            }
            assert!(parse::<Vec<u32>>(("taut-test", 1), &bytes[..at]).is_err(), "cut at {at}");
        }
        let later = to_bytes(("taut-test", 2), &vec![1]).unwrap();
        assert_eq!(parse::<Vec<u32>>(("taut-test", 1), &later).unwrap_err(), "format version 1, found 2");
    }
}
