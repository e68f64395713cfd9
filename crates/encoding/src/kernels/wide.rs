//! Runs a loop with wider vectors than the compilation target guarantees.
//!
//! Taut is compiled for any x86-64 machine, so the compiler may use only 16-byte vectors. A loop that passes through
//! [`with_wide_vectors`] is compiled a second time with 32-byte vectors, and one of the two is picked at run time. Only
//! hand-written loops use 64-byte vectors.

#[cfg(target_arch = "x86_64")]
use crate::kernels::InstructionSet;

/// Runs `work` with the widest vectors that this machine supports, up to 32 bytes.
///
/// Functions that `work` calls use these vectors only if they are inlined. Values that its loops only read must be
/// moved into `work`. A value behind a reference could change with every write, and then the compiler does not use
/// vectors.
#[inline]
pub(crate) fn with_wide_vectors<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if InstructionSet::current() >= InstructionSet::Avx2 {
        // SAFETY: the machine has the instructions of the current set. AVX2 and the sets above it have all that
        // `with_avx2` requires.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}
