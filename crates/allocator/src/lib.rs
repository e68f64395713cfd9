//! Memory allocator of the command and of the Python package: mimalloc.
//!
//! Results are large and short-lived. The system allocator returns their pages to the kernel each time and requests
//! them again. The kernel then clears them, which takes more work than decoding the data that is written to them.
//! mimalloc keeps the pages for a while. [`set_up`] configures for how long, and what happens afterwards. A program
//! that uses the library chooses its own allocator.

use libmimalloc_sys::mi_option_t;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Index of the option of mimalloc 3 that decommits unused pages. If it is off, the kernel reclaims them when it needs
/// memory. The bindings have no name for the option.
const PURGE_DECOMMITS: mi_option_t = 5;
/// Index of the option of mimalloc 3 for the time that unused pages stay unchanged, in milliseconds.
const PURGE_DELAY: mi_option_t = 15;
/// Ten seconds, because users read results between queries. After a pause longer than the delay, the next query first
/// waits until mimalloc has released the memory of the last result, and then allocates it again. The default of
/// mimalloc is one second.
const PURGE_DELAY_MILLISECONDS: std::ffi::c_long = 10_000;

/// Configures mimalloc to offer unused memory to the kernel after ten seconds. The kernel reclaims it when it runs
/// short of memory. Until then, allocations reuse the memory unchanged. A process that has just freed a large result
/// therefore still shows that memory as resident.
///
/// Environment variables of mimalloc take precedence: `MIMALLOC_PURGE_DECOMMITS=1` decommits the memory, and
/// `MIMALLOC_PURGE_DELAY` is the delay in milliseconds.
#[allow(unsafe_code, reason = "a call of C")]
pub fn set_up() {
    // SAFETY: options are numbers, which may change at any time.
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
    fn constants_are_the_indexes_of_the_options() {
        // SAFETY: options are numbers, which may be read at any time.
        let option = |option| unsafe { libmimalloc_sys::mi_option_get(option) };
        let is_set = |name| std::env::var_os(name).is_some();
        if !is_set("MIMALLOC_PURGE_DECOMMITS") && !is_set("MIMALLOC_PURGE_DELAY") {
            // The defaults identify the options: no other option up to these indexes has the default 1 or 1,000, except
            // for one that mimalloc no longer reads.
            assert_eq!((option(PURGE_DECOMMITS), option(PURGE_DELAY)), (1, 1000));
            set_up();
            assert_eq!((option(PURGE_DECOMMITS), option(PURGE_DELAY)), (0, PURGE_DELAY_MILLISECONDS));
        }
    }
}
