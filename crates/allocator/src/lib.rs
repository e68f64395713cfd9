//! The allocator of the command and of the Python package: mimalloc.
//!
//! Results are large and live shortly. The allocator of the system gives their pages back each time, and takes them from
//! the kernel again, which clears them: more work than decoding what is written to them. mimalloc keeps them for a while;
//! how long, and what it does then, is said by [`set_up`]. A program that uses the library chooses an allocator itself.

use libmimalloc_sys::mi_option_t;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether pages that nobody uses are taken out of the process at once; else the kernel takes them when it needs them. Its
/// place among the options of mimalloc 3, to which the bindings give no name.
const PURGE_DECOMMITS: mi_option_t = 5;
/// Milliseconds for which pages that nobody uses are kept as they are.
const PURGE_DELAY: mi_option_t = 15;
/// A second is what mimalloc waits by itself. Who looks at a result before he asks again has then each result's memory
/// given up by the query after it, which waits for that and wants as much of it.
const PURGE_DELAY_MILLISECONDS: std::ffi::c_long = 10_000;

/// Leaves memory that is not used to the kernel, after ten seconds and for when it needs it: until then whoever asks for
/// memory has it as it is. Of a process that has just freed a large result the system counts it as resident all the same.
///
/// The variables of mimalloc in the environment go before this: `MIMALLOC_PURGE_DECOMMITS=1` has memory taken out of the
/// process, `MIMALLOC_PURGE_DELAY` says after how many milliseconds.
#[allow(unsafe_code, reason = "a call of C")]
pub fn set_up() {
    // SAFETY: options are numbers; these may change at any time.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DECOMMITS, 0);
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLISECONDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "calls of C")]
    fn the_options_are_those_meant() {
        // SAFETY: options are numbers, which may be read at any time.
        let option = |option| unsafe { libmimalloc_sys::mi_option_get(option) };
        let is_said = |name| std::env::var_os(name).is_some();
        if !is_said("MIMALLOC_PURGE_DECOMMITS") && !is_said("MIMALLOC_PURGE_DELAY") {
            // The only options up to there that are 1, but for one that nothing reads any more, and 1,000.
            assert_eq!((option(PURGE_DECOMMITS), option(PURGE_DELAY)), (1, 1000));
            set_up();
            assert_eq!((option(PURGE_DECOMMITS), option(PURGE_DELAY)), (0, PURGE_DELAY_MILLISECONDS));
        }
    }
}
