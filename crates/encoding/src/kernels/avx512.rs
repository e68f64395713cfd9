//! Tests on vectors with AVX-512, whose comparisons give a bit per lane.
//!
//! A row of a packed vector is 128 bytes, two registers. Rows are read in the order in which they lie, which is not
//! that of their numbers (see `bit_packing.rs`): read in another order they come from memory at half the speed,
//! since the machine then does not guess what will be read next. The bits of a row have their place among the
//! sixteen words of the vector's.
//!
//! Unpacking and the test on a range, which is most tests, are compiled once for each width up to 63 bits: shifts and masks are then
//! constants. For other tests they are computed as the loop goes. To ask for memory ahead of the rows takes half the
//! speed: the machine guesses better.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::VECTOR_ROWS;
use crate::kernels::bit_packing::first_index;
use crate::kernels::keep::{FEW, Keep, Predicate, Source, VectorBits};
use crate::kernels::masks::mask_of_bytes;
use crate::kernels::registers::*;
use crate::kernels::{Instructions, MASK_WORDS, gather};

/// Bytes of a register.
const REGISTER: usize = 64;
/// Bytes of a row of a packed vector.
const ROW: usize = 128;

/// Evaluates an expression for each of the numbers from 0 to 7, unrolled.
macro_rules! eight_times {
    ($number:ident => $body:expr) => {
        eight_times!($number => $body; 0 1 2 3 4 5 6 7)
    };
    ($number:ident => $body:expr; $($literal:literal)*) => {{
        $({
            let $number = $literal;
            $body;
        })*
    }};
}

/// The loops of one lane type, in a module of their own.
macro_rules! lanes {
    (
        $module:ident, $lane:ident, $signed:ty, widths $($width:literal)*;
        $splat:ident, $minus:ident, $at_most:ident, $equal:ident,
        $down:ident, $join:ident, $key:ident, $table:ident, $in_table:ident, $gather:ident
    ) => {
        mod $module {
            use super::*;

            const BITS: usize = <$lane>::BITS as usize;
            /// Lanes of a register.
            const LANES: usize = 512 / BITS;

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn splat(lane: $lane) -> __m512i {
                $splat(lane as $signed)
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn load(lanes: &[$lane], at: usize) -> __m512i {
                let lanes = &lanes[at..at + LANES];
                // SAFETY: the slice has the 64 bytes that are loaded, at any alignment.
                unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
            }

            /// Half of the lanes of a row.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn unpacked(width: usize, packed: &[$lane], row: usize, half: usize) -> __m512i {
                let (first, shift) = (row * width / BITS, row * width % BITS);
                let at = (first * ROW + half * REGISTER) / size_of::<$lane>();
                let low = load(packed, at);
                let lanes = if shift + width <= BITS {
                    $down(low, shift)
                } else {
                    $join(low, load(packed, at + ROW / size_of::<$lane>()), shift)
                };
                _mm512_and_si512(lanes, splat(<$lane>::MAX >> (BITS - width)))
            }

            /// The bits of a row, in their place.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn add_row(
                width: usize,
                packed: &[$lane],
                row: usize,
                bits: &mut VectorBits,
                test: impl Fn(__m512i) -> u64,
            ) {
                for half in 0..2 {
                    let at = first_index::<$lane>(row) + half * LANES;
                    bits[at / 64] |= test(unpacked(width, packed, row, half)) << (at % 64);
                }
                // Keeps the compiler from mixing the reads of rows, which are to come in order.
                compiler_fence(Ordering::SeqCst);
            }

            /// Packed numbers of a width that the compiler knows, in a range.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn keep_range<const WIDTH: usize>(packed: &[$lane], low: $lane, span: $lane, selected: &mut [VectorBits]) {
                let (low, span) = (splat(low), splat(span));
                let test = |lanes| u64::from($at_most($minus(lanes, low), span));
                for (packed, selected) in packed.chunks_exact(WIDTH * ROW / size_of::<$lane>()).zip(selected) {
                    if any(selected) {
                        let mut bits = [0; MASK_WORDS];
                        eight_times!(eighth => {
                            eight_times!(row => if row < BITS / 8 {
                                add_row(WIDTH, packed, eighth * (BITS / 8) + row, &mut bits, test)
                            })
                        });
                        selected.iter_mut().zip(bits).for_each(|(selected, bits)| *selected &= bits);
                    }
                }
            }

            /// A packed vector of a width that the compiler may know.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn unpack_rows(width: usize, packed: &[$lane], out: &mut [MaybeUninit<$lane>; VECTOR_ROWS]) {
                let mut store = |row: usize, half: usize| {
                    let at = first_index::<$lane>(row) + half * LANES;
                    let lanes = unpacked(width, packed, row, half);
                    let out = &mut out[at..at + LANES];
                    // SAFETY: the slice has the 64 bytes that are stored, at any alignment.
                    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), lanes) };
                };
                for eighth in 0..BITS / 8 {
                    eight_times!(row => {
                        store(eighth * 8 + row, 0);
                        store(eighth * 8 + row, 1);
                    });
                }
            }

            /// As [`Keep::unpack_lanes`], on a machine that has AVX-512. Writes all of `out`.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            pub(super) fn unpack(width: usize, packed: &[$lane], out: &mut [MaybeUninit<$lane>; VECTOR_ROWS]) {
                match width {
                    $($width => unpack_rows($width, packed, out),)*
                    width => unpack_rows(width, packed, out),
                }
            }

            /// Any source, any test.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn keep_where(
                source: &Source<$lane>,
                negated: bool,
                selected: &mut [VectorBits],
                test: impl Fn(__m512i) -> u64 + Copy,
            ) {
                let flip = if negated { u64::MAX } else { 0 };
                match *source {
                    Source::Packed { width, packed } => {
                        for (packed, selected) in packed.chunks_exact(width * ROW / size_of::<$lane>()).zip(selected) {
                            if any(selected) {
                                let mut bits = [0; MASK_WORDS];
                                (0..BITS).for_each(|row| add_row(width, packed, row, &mut bits, test));
                                selected.iter_mut().zip(bits).for_each(|(selected, bits)| *selected &= flip ^ bits);
                            }
                        }
                    }
                    Source::Plain(lanes) => keep_plain(lanes, flip, selected, test),
                    Source::Floats(lanes) => keep_plain(lanes, flip, selected, |lanes| test($key(lanes))),
                }
            }

            /// Lanes that are not packed; the last vector may be cut off.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn keep_plain(
                lanes: &[$lane],
                flip: u64,
                selected: &mut [VectorBits],
                test: impl Fn(__m512i) -> u64 + Copy,
            ) {
                let (vectors, rest) = lanes.as_chunks::<VECTOR_ROWS>();
                let mut padded = [0; VECTOR_ROWS];
                padded[..rest.len()].copy_from_slice(rest);
                for (lanes, selected) in vectors.iter().chain([&padded]).zip(selected) {
                    if any(selected) {
                        for (lanes, selected) in lanes.as_chunks::<64>().0.iter().zip(selected) {
                            let mut bits = 0;
                            for part in 0..64 / LANES {
                                bits |= test(load(lanes, part * LANES)) << (part * LANES);
                                compiler_fence(Ordering::SeqCst);
                            }
                            *selected &= flip ^ bits;
                        }
                    }
                }
            }

            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn keep_few<const COUNT: usize>(
                source: &Source<$lane>,
                values: &[$lane],
                negated: bool,
                selected: &mut [VectorBits],
            ) {
                let mut registers = [_mm512_setzero_si512(); COUNT];
                for (place, register) in registers.iter_mut().enumerate() {
                    *register = splat(values[place.min(values.len() - 1)]);
                }
                keep_where(source, negated, selected, |lanes| {
                    let mut bits = 0;
                    for register in registers {
                        bits |= $equal(lanes, register);
                    }
                    u64::from(bits)
                });
            }

            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            fn keep_table(
                source: &Source<$lane>,
                low: $lane,
                flags: &[u8],
                negated: bool,
                selected: &mut [VectorBits],
            ) {
                let mut bytes = [0; VECTOR_ROWS];
                bytes[..flags.len()].copy_from_slice(flags);
                let (table, low) = ($table(&mask_of_bytes(&bytes)), splat(low));
                keep_where(source, negated, selected, |lanes| $in_table(table, $minus(lanes, low)));
            }

            /// As [`Keep::keep`], on a machine that has AVX-512.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
            pub(super) fn keep(
                source: &Source<$lane>,
                predicate: &Predicate<$lane>,
                negated: bool,
                selected: &mut [VectorBits],
            ) -> bool {
                match *predicate {
                    Predicate::Range { low, span } => match *source {
                        $(Source::Packed { width: $width, packed } if !negated => {
                            keep_range::<$width>(packed, low, span, selected)
                        })*
                        _ => {
                            let (low, span) = (splat(low), splat(span));
                            keep_where(source, negated, selected, |lanes| u64::from($at_most($minus(lanes, low), span)))
                        }
                    },
                    Predicate::Few(values @ ([_] | [_, _])) => keep_few::<2>(source, values, negated, selected),
                    Predicate::Few(values @ ([_, _, _] | [_, _, _, _])) => keep_few::<4>(source, values, negated, selected),
                    Predicate::Few(values) if values.is_empty() || values.len() > FEW => return false,
                    Predicate::Few(values) => keep_few::<FEW>(source, values, negated, selected),
                    Predicate::Table { low, flags } if flags.len() <= VECTOR_ROWS.min(1 << BITS.min(16)) => {
                        keep_table(source, low, flags, negated, selected)
                    }
                    Predicate::Table { .. } => return false,
                }
                true
            }
        }

        impl Keep for $lane {
            fn keep(source: &Source<Self>, predicate: &Predicate<Self>, negated: bool, selected: &mut [VectorBits]) -> bool {
                if Instructions::current() < Instructions::Avx512 {
                    return false;
                }
                match source {
                    Source::Packed { width, packed } => {
                        assert!((1..=Self::BITS as usize).contains(width), "a number has its bits");
                        assert!(packed.len() * size_of::<Self>() >= width * ROW * selected.len(), "a packed vector is cut off");
                    }
                    Source::Plain(lanes) | Source::Floats(lanes) => {
                        assert!(lanes.len().div_ceil(VECTOR_ROWS) >= selected.len(), "lanes are cut off");
                    }
                }
                // SAFETY: the set in use is one that the machine has.
                unsafe { $module::keep(source, predicate, negated, selected) }
            }

            fn unpack_lanes(width: usize, packed: &[Self], out: &mut [MaybeUninit<Self>; VECTOR_ROWS]) -> bool {
                let has_all = Instructions::current() == Instructions::Avx512 && (1..=Self::BITS as usize).contains(&width);
                if has_all {
                    // SAFETY: the set in use is one that the machine has.
                    unsafe { $module::unpack(width, packed, out) };
                }
                has_all
            }

            fn gather_lanes(width: usize, packed: &[Self], rows: &[u32], out: &mut [MaybeUninit<Self>]) -> bool {
                let has_all = Instructions::current() == Instructions::Avx512 && (1..=Self::BITS as usize).contains(&width);
                if has_all {
                    // SAFETY: the set in use is one that the machine has.
                    unsafe { gather::$gather(width, packed, rows, out) };
                }
                has_all
            }
        }
    };
}

/// Whether any row is selected.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
fn any(bits: &VectorBits) -> bool {
    let words: &[u64; MASK_WORDS] = bits;
    // SAFETY: the array has the 128 bytes that are loaded, at any alignment.
    let (low, high) =
        unsafe { (_mm512_loadu_si512(words.as_ptr().cast()), _mm512_loadu_si512(words[8..].as_ptr().cast())) };
    let all = _mm512_or_si512(low, high);
    _mm512_test_epi64_mask(all, all) != 0
}

lanes!(
    bytes, u8, i8, widths 1 2 3 4 5 6 7 8;
    _mm512_set1_epi8, _mm512_sub_epi8, _mm512_cmple_epu8_mask, _mm512_cmpeq_epi8_mask,
    down_8, join_8, key_none, table_8, in_table_8, gather_8
);
lanes!(
    halves, u16, i16, widths 9 10 11 12 13 14 15 16;
    _mm512_set1_epi16, _mm512_sub_epi16, _mm512_cmple_epu16_mask, _mm512_cmpeq_epi16_mask,
    down_16, join_16, key_none, table_of, in_table_16, gather_16
);
lanes!(
    words, u32, i32, widths 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32;
    _mm512_set1_epi32, _mm512_sub_epi32, _mm512_cmple_epu32_mask, _mm512_cmpeq_epi32_mask,
    down_32, join_32, key_32, table_of, in_table_32, gather_32
);
lanes!(
    doubles, u64, i64, widths 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63;
    _mm512_set1_epi64, _mm512_sub_epi64, _mm512_cmple_epu64_mask, _mm512_cmpeq_epi64_mask,
    down_64, join_64, key_64, table_of, in_table_64, gather_64
);
