//! Runs a loop with wider vectors than the target promises.
//!
//! Taut is compiled for any x86-64 machine, so the compiler may use 16-byte vectors only. A loop that passes
//! through [`wide`] is compiled a second time with 32-byte vectors, and the machine picks. Vectors of 64 bytes are
//! left to loops that are written for them.

#[cfg(target_arch = "x86_64")]
use crate::kernels::Instructions;

/// Runs `work`, compiled for the vectors of this machine.
///
/// What `work` calls must be inlined to gain from it, and what its loops only read must be moved into it: behind
/// a reference it could change with every write, and the compiler gives up on vectors.
#[inline]
pub(crate) fn wide<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if Instructions::current() >= Instructions::Avx2 {
        // SAFETY: the set in use is one that the machine has, and both from AVX2 on have all `with_avx2` asks for.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}
