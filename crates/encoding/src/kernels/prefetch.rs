//! Asking memory for lines that are wanted soon.

/// Bytes that come from memory together.
pub const LINE_BYTES: usize = 64;

/// Has the lines of some bytes come to the cache, without waiting for them: from the first byte on, a line's bytes at a time.
/// Elsewhere than on x86-64 it does nothing.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an address, which is not read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
