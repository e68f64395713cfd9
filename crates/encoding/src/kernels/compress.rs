//! Values whose bits are set, moved together.
//!
//! ```text
//! bits     1 0 0 1 1 0
//! values   a b c d e f   ->   a d e | what is behind does not matter
//! ```

#[cfg(target_arch = "x86_64")]
use crate::kernels::Instructions;

/// Values that can be moved together.
pub(crate) trait Compress: Copy {
    /// As [`compress`], by instructions of this machine. `None` where it has none, and has done nothing.
    fn compress_wide(_values: &mut [Self], _bits: &[u64]) -> Option<usize> {
        None
    }
}

impl Compress for i128 {}
#[cfg(not(target_arch = "x86_64"))]
mod others {
    impl super::Compress for u8 {}
    impl super::Compress for i16 {}
    impl super::Compress for i32 {}
    impl super::Compress for i64 {}
}

/// Moves the values whose bits are set to the front, in their order, and returns how many there are. What is behind
/// them then is undefined.
///
/// # Panics
/// When there are fewer bits than values.
pub(crate) fn compress<V: Compress>(values: &mut [V], bits: &[u64]) -> usize {
    assert!(values.len() <= 64 * bits.len(), "a bit for each value");
    V::compress_wide(values, bits).unwrap_or_else(|| compress_from(values, bits, 0, 0))
}

/// The same for the values from one on, where so many are in front already.
fn compress_from<V: Compress>(values: &mut [V], bits: &[u64], from: usize, mut kept: usize) -> usize {
    let end = values.len();
    for first in (from - from % 64..end).step_by(64) {
        let mut word = bits[first / 64];
        while word != 0 {
            let place = first + word.trailing_zeros() as usize;
            if (from..end).contains(&place) {
                values[kept] = values[place];
                kept += 1;
            }
            word &= word - 1;
        }
    }
    kept
}

#[cfg(target_arch = "x86_64")]
macro_rules! compress {
    ($value:ty, $compress:ident, $mask:ty, $name:ident) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        fn $name(values: &mut [$value], bits: &[u64]) -> usize {
            use std::arch::x86_64::*;

            /// Values of a register.
            const LANES: usize = 64 / size_of::<$value>();
            let whole = values.len() / LANES * LANES;
            let mut kept = 0;
            for (word, first) in bits.iter().zip((0..whole).step_by(64)) {
                for place in (first..whole.min(first + 64)).step_by(LANES) {
                    let mask = (word >> (place % 64)) as $mask;
                    let lanes = &mut values[kept..place + LANES];
                    // SAFETY: the slice ends with the 64 bytes that are loaded, at any alignment. It has no fewer than
                    // these, as no more were kept than there were, so that it begins with 64 bytes that are stored;
                    // they end where the loaded ones do or before.
                    unsafe {
                        let loaded = _mm512_loadu_si512(lanes.as_ptr().add(lanes.len() - LANES).cast());
                        _mm512_storeu_si512(lanes.as_mut_ptr().cast(), $compress(mask, loaded));
                    }
                    kept += mask.count_ones() as usize;
                }
            }
            compress_from(values, bits, whole, kept)
        }

        impl Compress for $value {
            fn compress_wide(values: &mut [Self], bits: &[u64]) -> Option<usize> {
                // SAFETY: the set in use is one that the machine has.
                (Instructions::current() >= Instructions::Avx512).then(|| unsafe { $name(values, bits) })
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
compress!(u8, _mm512_maskz_compress_epi8, u64, compress_8);
#[cfg(target_arch = "x86_64")]
compress!(i16, _mm512_maskz_compress_epi16, u32, compress_16);
#[cfg(target_arch = "x86_64")]
compress!(i32, _mm512_maskz_compress_epi32, u16, compress_32);
#[cfg(target_arch = "x86_64")]
compress!(i64, _mm512_maskz_compress_epi64, u8, compress_64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Instructions;
    use crate::native::Native;

    fn check<N: Native + std::fmt::Debug>() {
        let mut state = 5_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        let bits: Vec<u64> = (0..4).flat_map(|_| [next(), next() & next() & next(), 0, u64::MAX, 1, 1 << 63]).collect();
        let values: Vec<N> = (0..64 * bits.len()).map(|_| N::from_number(next().into())).collect();
        for length in (0..130).chain([64 * bits.len() - 1, 64 * bits.len()]) {
            let is_set = |place: &usize| bits[place / 64] >> (place % 64) & 1 != 0;
            let expected: Vec<N> = (0..length).filter(is_set).map(|place| values[place]).collect();
            Instructions::each(|set| {
                let mut values = values[..length].to_vec();
                let kept = compress(&mut values, &bits);
                assert_eq!(values[..kept], expected, "{set:?}, {length} values");
            });
        }
    }

    #[test]
    fn values_whose_bits_are_set_are_kept() {
        check::<u8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<i128>();
    }
}
