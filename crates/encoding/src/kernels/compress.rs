//! Moves the values whose bits are set to the front of a slice.
//!
//! ```text
//! bits     1 0 0 1 1 0
//! values   a b c d e f   ->   a d e | the rest is undefined
//! ```

/// Values that can be moved to the front by their bits.
pub(crate) trait Compress: Copy {
    /// Like [`compress`], with vector instructions. Returns `None`, and changes nothing, if this machine has none for
    /// the type.
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

/// Moves the values whose bits are set to the front, in their order, and returns their number. The rest of `values` is
/// undefined.
///
/// # Panics
/// If there are fewer bits than values.
pub(crate) fn compress<V: Compress>(values: &mut [V], bits: &[u64]) -> usize {
    assert!(values.len() <= 64 * bits.len(), "a bit for each value");
    V::compress_wide(values, bits).unwrap_or_else(|| compress_rest(values, bits, 0, 0))
}

/// Like [`compress`], for the values from `from` on. The first `count` cells hold values that were moved before.
fn compress_rest<V: Compress>(values: &mut [V], bits: &[u64], from: usize, mut count: usize) -> usize {
    let end = values.len();
    for first in (from - from % 64..end).step_by(64) {
        let mut word = bits[first / 64];
        while word != 0 {
            let index = first + word.trailing_zeros() as usize;
            if (from..end).contains(&index) {
                values[count] = values[index];
                count += 1;
            }
            word &= word - 1;
        }
    }
    count
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Compress, compress_rest};
    use crate::kernels::InstructionSet;
    use crate::kernels::positions::BIT_POSITIONS;

    /// Declares the loop for one type of values and one set of instructions. `$moved` compresses the values of a
    /// register.
    macro_rules! compress {
        ($name:ident, $value:ty, $register:ty, $features:literal, |$bits:ident, $values:ident| $moved:expr) => {
            #[target_feature(enable = $features)]
            fn $name(values: &mut [$value], bits: &[u64]) -> usize {
                /// Values of a register.
                const LANES: usize = size_of::<$register>() / size_of::<$value>();
                let whole_end = values.len() / LANES * LANES;
                let mut count = 0;
                let mut step = |word: u64, first: usize, offset: usize| {
                    let $bits = word >> offset & (u64::MAX >> (64 - LANES));
                    // SAFETY: `first + offset` is before `whole_end`, so the register's values end within the slice. At
                    // most `first + offset` values were moved so far, so the store ends no later than the load.
                    unsafe {
                        let values = values.as_mut_ptr();
                        let $values = values.add(first + offset).cast::<$register>().read_unaligned();
                        values.add(count).cast::<$register>().write_unaligned($moved);
                    }
                    count += $bits.count_ones() as usize;
                };
                for (word, first) in bits.iter().zip((0..whole_end).step_by(64)) {
                    if first + 64 <= whole_end {
                        // The compiler knows this number of iterations, and unrolls them.
                        (0..64).step_by(LANES).for_each(|offset| step(*word, first, offset));
                    } else {
                        (0..whole_end - first).step_by(LANES).for_each(|offset| step(*word, first, offset));
                    }
                }
                compress_rest(values, bits, whole_end, count)
            }
        };
    }
    compress!(compress_8_avx512, u8, __m512i, "avx512f,avx512bw,avx512vbmi2,popcnt", |bits, values| {
        _mm512_maskz_compress_epi8(bits, values)
    });
    compress!(compress_16_avx512, i16, __m512i, "avx512f,avx512bw,avx512vbmi2,popcnt", |bits, values| {
        _mm512_maskz_compress_epi16(bits as u32, values)
    });
    compress!(compress_32_avx512, i32, __m512i, "avx512f,avx512bw,avx512vbmi2,popcnt", |bits, values| {
        _mm512_maskz_compress_epi32(bits as u16, values)
    });
    compress!(compress_64_avx512, i64, __m512i, "avx512f,avx512bw,avx512vbmi2,popcnt", |bits, values| {
        _mm512_maskz_compress_epi64(bits as u8, values)
    });
    compress!(compress_8_avx2, u8, u64, "avx2,popcnt", |bits, values| {
        let positions = _mm_cvtsi64_si128(bit_positions(bits) as i64);
        _mm_cvtsi128_si64(_mm_shuffle_epi8(_mm_cvtsi64_si128(values as i64), positions)) as u64
    });
    compress!(compress_16_avx2, i16, __m128i, "avx2,popcnt", |bits, values| {
        // Value `i` has the bytes `2 * i` and `2 * i + 1`.
        let positions = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(bit_positions(bits) as i64));
        let bytes = _mm_add_epi16(_mm_mullo_epi16(positions, _mm_set1_epi16(0x202)), _mm_set1_epi16(0x100));
        _mm_shuffle_epi8(values, bytes)
    });
    compress!(compress_32_avx2, i32, __m256i, "avx2,popcnt", |bits, values| {
        let positions = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bit_positions(bits) as i64));
        _mm256_permutevar8x32_epi32(values, positions)
    });

    /// Positions of the set bits of a byte.
    #[inline]
    fn bit_positions(bits: u64) -> u64 {
        BIT_POSITIONS[bits as usize % BIT_POSITIONS.len()]
    }

    macro_rules! moved {
        ($value:ty, $avx512:ident $(, $avx2:ident)?) => {
            impl Compress for $value {
                fn compress_wide(values: &mut [Self], bits: &[u64]) -> Option<usize> {
                    match InstructionSet::current() {
                        // SAFETY: the machine has the instructions of the current set.
                        $(InstructionSet::Avx2 => Some(unsafe { $avx2(values, bits) }),)?
                        // SAFETY: as above.
                        InstructionSet::Avx512 => Some(unsafe { $avx512(values, bits) }),
                        _ => None,
                    }
                }
            }
        };
    }
    moved!(u8, compress_8_avx512, compress_8_avx2);
    moved!(i16, compress_16_avx512, compress_16_avx2);
    moved!(i32, compress_32_avx512, compress_32_avx2);
    // AVX2 moves four values at a time, which is no faster than moving one by one.
    moved!(i64, compress_64_avx512);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::InstructionSet;
    use crate::kernels::Native;
    use taut_testkit::Random;

    fn check<N: Native + std::fmt::Debug>() {
        let mut random = Random(5);
        let mut next = || random.number();
        let bits: Vec<u64> = (0..4).flat_map(|_| [next(), next() & next() & next(), 0, u64::MAX, 1, 1 << 63]).collect();
        let values: Vec<N> = (0..64 * bits.len()).map(|_| N::from_number(next().into())).collect();
        for length in (0..130).chain([64 * bits.len() - 1, 64 * bits.len()]) {
            let is_set = |index: &usize| bits[index / 64] >> (index % 64) & 1 != 0;
            let expected: Vec<N> = (0..length).filter(is_set).map(|index| values[index]).collect();
            InstructionSet::for_each_available(|set| {
                let mut values = values[..length].to_vec();
                let count = compress(&mut values, &bits);
                assert_eq!(values[..count], expected, "{set:?}, {length} values");
            });
        }
    }

    #[test]
    fn values_whose_bits_are_set_move_to_the_front() {
        check::<u8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<i128>();
    }
}
