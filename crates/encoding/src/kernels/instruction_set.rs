//! Instruction set that kernels use: the best one of this machine, or a lower one on request.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction set for which kernels are compiled. Sets ascend from the slowest to the fastest. The results of kernels
/// do not depend on the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum InstructionSet {
    /// Instructions that every machine of the target supports: on x86-64, vectors of 16 bytes.
    Portable = 1,
    /// AVX2, and with it BMI1 and POPCNT: vectors of 32 bytes.
    Avx2 = 2,
    /// AVX-512 with its extensions F, BW, DQ, VL, VBMI and VBMI2: vectors of 64 bytes, and comparisons into bit masks.
    /// Includes GFNI and BMI2, which every machine with these extensions has.
    Avx512 = 3,
}

/// Discriminant of the set in use. Zero until a set is chosen.
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl InstructionSet {
    /// All sets, from the slowest to the fastest.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Best set that this machine supports.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("popcnt");
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("gfni")
                && is_x86_feature_detected!("bmi2")
                && has_avx2
            {
                return Self::Avx512;
            }
            if has_avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// The set in use, which this machine supports.
    #[inline]
    pub fn current() -> Self {
        match CURRENT.load(Ordering::Relaxed) {
            0 => Self::use_at_most(Self::Avx512),
            1 => Self::Portable,
            2 => Self::Avx2,
            _ => Self::Avx512,
        }
    }

    /// Makes all threads use this set, or the best set of the machine if that one is lower. Returns the set in use. For
    /// tests and benchmarks that compare sets.
    #[cold]
    pub fn use_at_most(self) -> Self {
        let chosen = self.min(Self::best());
        CURRENT.store(chosen as u8, Ordering::Relaxed);
        chosen
    }

    /// Calls `visit` with each set that this machine supports, while that set is in use. For tests. Concurrent calls of
    /// this function wait for each other.
    #[cfg(test)]
    pub(crate) fn for_each_available(mut visit: impl FnMut(Self)) {
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        for set in Self::ALL.into_iter().filter(|set| *set <= Self::best()) {
            assert_eq!(set.use_at_most(), set);
            visit(set);
        }
        drop(guard);
    }
}
