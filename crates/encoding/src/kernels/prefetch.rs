//! Prefetching of cache lines.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Requests the cache lines of some bytes without waiting for them, one per [`LINE_BYTES`] from the first byte on. Does
/// nothing on machines other than x86-64.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an address, which is not read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
