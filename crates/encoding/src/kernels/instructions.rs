//! Which instructions loops use: those that this machine was found to have, or fewer on demand.

use std::sync::atomic::{AtomicU8, Ordering};

/// A set of instructions for which loops are compiled. Each is worth more than the one before it, and every one
/// gives the same answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Instructions {
    /// What every machine of the target has: on x86-64 vectors of 16 bytes.
    Portable = 1,
    /// AVX2, and with it BMI1 and POPCNT: vectors of 32 bytes.
    Avx2 = 2,
    /// AVX-512 with its extensions F, BW, DQ, VL, VBMI and VBMI2: vectors of 64 bytes, and comparisons that give bits. With
    /// them GFNI and BMI2, which every machine has that has those.
    Avx512 = 3,
}

/// What loops use; 0 until somebody asks.
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl Instructions {
    /// Every set, the plainest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The best set of this machine.
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

    /// The set in use, which this machine has.
    #[inline]
    pub fn current() -> Self {
        match CURRENT.load(Ordering::Relaxed) {
            0 => Self::at_most(Self::Avx512),
            1 => Self::Portable,
            2 => Self::Avx2,
            _ => Self::Avx512,
        }
    }

    /// From now on all threads use this set, or the best of the machine if that is less; returns the one. For
    /// tests and benchmarks, which compare them.
    #[cold]
    pub fn at_most(self) -> Self {
        let chosen = self.min(Self::best());
        CURRENT.store(chosen as u8, Ordering::Relaxed);
        chosen
    }

    /// Runs a test with each set that this machine has, while no other test does.
    #[cfg(test)]
    pub(crate) fn each(mut test: impl FnMut(Self)) {
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        for set in Self::ALL.into_iter().filter(|set| *set <= Self::best()) {
            assert_eq!(set.at_most(), set);
            test(set);
        }
        drop(guard);
    }
}
