//! Reads little-endian numbers from the heads of indexes.

/// The four bytes at an offset, as a number.
///
/// # Panics
/// If fewer than four bytes begin at the offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}
