//! The allocator of the command and of the Python package: mimalloc.
//!
//! Results are large and live shortly. The allocator of the system gives their pages back each time, and takes them from
//! the kernel again, which clears them: more work than decoding what is written to them. mimalloc keeps them for a second;
//! what it does then is said by [`set_up`]. A program that uses the library chooses an allocator itself.

use libmimalloc_sys::mi_option_t;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether pages that nobody uses are taken out of the process at once; else the kernel takes them when it needs them. Its
/// place among the options of mimalloc 3, to which the bindings give no name.
const PURGE_DECOMMITS: mi_option_t = 5;

/// Leaves memory that is not used to the kernel, for when it needs it: until then whoever asks for memory has it as it is.
/// Of a process that has just freed a large result the system counts it as resident all the same.
///
/// The variable `MIMALLOC_PURGE_DECOMMITS=1` of the environment has memory taken out of the process after a second.
#[allow(unsafe_code, reason = "a call of C")]
pub fn set_up() {
    // SAFETY: options are numbers; this one may change at any time.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DECOMMITS, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "calls of C")]
    fn the_option_is_the_one_meant() {
        // SAFETY: options are numbers, which may be read at any time.
        let option = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DECOMMITS) };
        if std::env::var_os("MIMALLOC_PURGE_DECOMMITS").is_none() {
            // The only option up to there that is 1 from the beginning, but for one that nothing reads any more.
            assert_eq!(option(), 1);
            set_up();
            assert_eq!(option(), 0);
        }
    }
}
