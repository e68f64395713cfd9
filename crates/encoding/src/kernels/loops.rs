//! Loops that evaluate predicates on vectors and unpack them, for the instructions of x86-64. They are written once,
//! and compiled for registers of 32 bytes (`avx2.rs`) and of 64 bytes (`avx512.rs`). Those files define the operations
//! on a register.
//!
//! A group has one number of each lane (see `bit_packing.rs`). Groups are read in the order of their packed bytes,
//! which is not the order of their numbers in the vector. Another order halves the speed of reads from memory, because
//! the hardware prefetcher does not predict it. The bits of a group have fixed positions among the sixteen `u64` words
//! of the vector's mask.
//!
//! Predicates on numbers of up to three bits need no unpacking if the machine has GFNI (`narrow.rs`).
//!
//! Unpacking and the range predicate, which is the most frequent, are compiled once for each width up to 63 bits:
//! shifts and masks are then constants. Other predicates compute shifts and masks in the loop. The loops do not
//! prefetch: that would halve the speed, because the hardware prefetcher does better.
//!
//! A predicate returns the passing lanes of each register of a group, as a register or as a mask. The results for all
//! registers of a group are converted to bits together, and written to the selection in cells. A cell holds the bits of
//! a group, or of half a group if a group has more bits than a word.

/// Evaluates an expression for each of the numbers from 0 to 7, unrolled.
macro_rules! eight_times {
    ($number:ident => $body:expr) => {
        eight_times!($number => $body; 0 1 2 3 4 5 6 7)
    };
    ($number:ident => $body:expr; $($literal:literal)*) => {{
        $({
            const $number: usize = $literal;
            $body;
        })*
    }};
}
pub(super) use eight_times;

macro_rules! loops {
    (
        $features:literal, $module:ident, $lane:ident, $signed:ty, $cell:ty, widths $($width:literal)*;
        $splat:ident, $minus:ident, $range:ident, $in_range:ident, $equal:ident, $bits:ident,
        $shr:ident, $join:ident, $ordered:ident, $table:ident, $in_table:ident
    ) => {
        /// Loops of one lane type.
        pub(in crate::kernels) mod $module {
            use std::mem::MaybeUninit;
            use std::sync::atomic::{Ordering, compiler_fence};

            use super::*;
            use crate::VECTOR_ROWS;
            use crate::kernels::bit_packing::first_index;
            use crate::kernels::loops::eight_times;
            use crate::kernels::masks::mask_of_bytes;
            use crate::kernels::{ONE_OF_MAX, KernelPredicate, LaneSource, VectorBits};

            const BITS: usize = <$lane>::BITS as usize;
            /// Lanes of a cell.
            const CELL_LANES: usize = <$cell>::BITS as usize;
            /// Lanes of a group.
            const GROUP_LANES: usize = VECTOR_ROWS / BITS;
            /// Registers of a group.
            const PARTS: usize = GROUP_LANES / LANES;
            /// Lanes of a register.
            const LANES: usize = 8 * size_of::<Register>() / BITS;

            #[inline]
            #[target_feature(enable = $features)]
            fn splat(lane: $lane) -> Register {
                $splat(lane as $signed)
            }

            /// Unpacked lanes of a group.
            #[inline]
            #[target_feature(enable = $features)]
            fn unpacked(width: usize, packed: &[$lane], group: usize) -> [Register; PARTS] {
                let (first, shift) = (group * width / BITS, group * width % BITS);
                let number_mask = splat(<$lane>::MAX >> (BITS - width));
                let (lines, _) = packed.as_chunks::<GROUP_LANES>();
                let (low, is_split) = (&lines[first], shift + width > BITS);
                let high = if is_split { &lines[first + 1] } else { low };
                let mut lanes = [splat(0); PARTS];
                for (part, lanes) in lanes.iter_mut().enumerate() {
                    let low = load(&low[part * LANES..][..LANES]);
                    let joined = if is_split {
                        $join(low, load(&high[part * LANES..][..LANES]), shift)
                    } else {
                        $shr(low, shift)
                    };
                    *lanes = and(joined, number_mask);
                }
                lanes
            }

            /// Clears the bits of a group's lanes that fail a predicate. If all bits of `flip` are set, clears the bits
            /// of lanes that pass. `first` is the group's first index in the vector. Bits are written directly to the
            /// selection, because the bits of all groups together would not fit the machine's registers.
            #[inline]
            #[target_feature(enable = $features)]
            fn retain_lanes(
                lanes: [Register; PARTS],
                first: usize,
                flip: $cell,
                selected: &mut VectorBits,
                predicate: impl Fn(Register) -> Mask,
            ) {
                let cells = &mut cells(selected)[first / CELL_LANES..][..GROUP_LANES / CELL_LANES];
                for (cell, bits) in cells.iter_mut().zip($bits(lanes.map(predicate))) {
                    *cell &= flip ^ bits;
                    // Keeps the compiler from mixing the reads of groups, which must stay in order, and from merging
                    // cells.
                    compiler_fence(Ordering::SeqCst);
                }
            }

            /// Bits of a vector as cells. A cell holds the bits of a group, or of a part of a group that fills a word.
            #[inline]
            fn cells(bits: &mut VectorBits) -> &mut [$cell; VECTOR_ROWS / CELL_LANES] {
                // SAFETY: both arrays have as many bits and hold any bits, and the second requires no more alignment.
                // On this machine a word begins with its low bits.
                unsafe { &mut *bits.as_mut_ptr().cast() }
            }

            /// Like [`retain_lanes`], for the range predicate on a group of packed numbers. Width and group are
            /// compile-time constants even if this is not inlined.
            #[inline]
            #[target_feature(enable = $features)]
            fn retain_group_in_range<const WIDTH: usize, const GROUP: usize>(
                packed: &[$lane],
                range: [Register; 2],
                selected: &mut VectorBits,
            ) {
                let lanes = unpacked(WIDTH, packed, GROUP);
                retain_lanes(lanes, first_index::<$lane>(GROUP), 0, selected, |lanes| $in_range(lanes, range));
            }

            /// Clears the bits of packed numbers outside a range. The compiler knows the width.
            #[target_feature(enable = $features)]
            fn retain_range<const WIDTH: usize>(packed: &[$lane], range: [Register; 2], selected: &mut [VectorBits]) {
                for (packed, selected) in packed.chunks_exact(WIDTH * GROUP_LANES).zip(selected) {
                    if any(selected) {
                        eight_times!(EIGHTH => {
                            eight_times!(GROUP => if GROUP < BITS / 8 {
                                retain_group_in_range::<WIDTH, { EIGHTH * (BITS / 8) + GROUP }>(packed, range, selected);
                            })
                        });
                    }
                }
            }

            /// Unpacks a vector. If the width is a literal, shifts and masks are compile-time constants.
            #[inline]
            #[target_feature(enable = $features)]
            fn unpack_groups(
                width: usize,
                packed: &[$lane],
                base: $lane,
                out: &mut [MaybeUninit<$lane>; VECTOR_ROWS],
            ) {
                // Subtracts the negated base instead of adding the base, because each lane type has a function that
                // subtracts.
                let below = splat(base.wrapping_neg());
                let mut unpack = |group: usize| {
                    let first = first_index::<$lane>(group);
                    for (part, lanes) in unpacked(width, packed, group).into_iter().enumerate() {
                        store($minus(lanes, below), &mut out[first + part * LANES..][..LANES]);
                    }
                };
                for eighth in 0..BITS / 8 {
                    eight_times!(GROUP => unpack(eighth * 8 + GROUP));
                }
            }

            /// Like [`Retain::unpack_lanes`], for a width from 1 to the bits of the lane. The machine must support the
            /// instructions of this module. Writes all of `out`.
            ///
            /// [`Retain::unpack_lanes`]: crate::kernels::Retain::unpack_lanes
            #[target_feature(enable = $features)]
            pub(in crate::kernels) fn unpack(
                width: usize,
                packed: &[$lane],
                base: $lane,
                out: &mut [MaybeUninit<$lane>; VECTOR_ROWS],
            ) {
                match width {
                    $($width => unpack_groups($width, packed, base, out),)*
                    width => unpack_groups(width, packed, base, out),
                }
            }

            /// Clears the bits of lanes that fail a predicate, for any source and any predicate.
            #[inline]
            #[target_feature(enable = $features)]
            fn retain_where(
                source: &LaneSource<$lane>,
                negated: bool,
                selected: &mut [VectorBits],
                predicate: impl Fn(Register) -> Mask + Copy,
            ) {
                let flip = if negated { <$cell>::MAX } else { 0 };
                match *source {
                    LaneSource::Packed { width, packed } => {
                        for (packed, selected) in packed.chunks_exact(width * GROUP_LANES).zip(selected) {
                            if any(selected) {
                                for group in 0..BITS {
                                    let lanes = unpacked(width, packed, group);
                                    retain_lanes(lanes, first_index::<$lane>(group), flip, selected, predicate);
                                }
                            }
                        }
                    }
                    LaneSource::Plain(lanes) => retain_plain(lanes, flip, selected, predicate),
                    LaneSource::Floats(lanes) => retain_plain(lanes, flip, selected, |lanes| predicate($ordered(lanes))),
                }
            }

            /// Clears the bits of lanes that are not packed and fail a predicate. The last vector may be cut off.
            #[inline]
            #[target_feature(enable = $features)]
            fn retain_plain(
                lanes: &[$lane],
                flip: $cell,
                selected: &mut [VectorBits],
                predicate: impl Fn(Register) -> Mask + Copy,
            ) {
                let (vectors, rest) = lanes.as_chunks::<VECTOR_ROWS>();
                let mut padded = [0; VECTOR_ROWS];
                padded[..rest.len()].copy_from_slice(rest);
                for (lanes, selected) in vectors.iter().chain([&padded]).zip(selected) {
                    if any(selected) {
                        for (group, lanes) in lanes.as_chunks::<GROUP_LANES>().0.iter().enumerate() {
                            let mut registers = [splat(0); PARTS];
                            for (register, lanes) in registers.iter_mut().zip(lanes.as_chunks::<LANES>().0) {
                                *register = load(lanes);
                            }
                            retain_lanes(registers, group * GROUP_LANES, flip, selected, predicate);
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            fn retain_listed<const COUNT: usize>(
                source: &LaneSource<$lane>,
                values: &[$lane],
                negated: bool,
                selected: &mut [VectorBits],
            ) {
                let mut registers = [splat(0); COUNT];
                for (index, register) in registers.iter_mut().enumerate() {
                    *register = splat(values[index.min(values.len() - 1)]);
                }
                retain_where(source, negated, selected, |lanes| {
                    let mut equal = $equal(lanes, registers[0]);
                    for register in &registers[1..] {
                        equal = either(equal, $equal(lanes, *register));
                    }
                    equal
                });
            }

            #[target_feature(enable = $features)]
            fn retain_table(
                source: &LaneSource<$lane>,
                low: $lane,
                flags: &[u8],
                negated: bool,
                selected: &mut [VectorBits],
            ) {
                let mut bytes = [0; VECTOR_ROWS];
                bytes[..flags.len()].copy_from_slice(flags);
                let (table, low) = ($table(&mask_of_bytes(&bytes)), splat(low));
                retain_where(source, negated, selected, |lanes| $in_table(table, $minus(lanes, low)));
            }

            /// Like [`Retain::retain`]. The machine must support the instructions of this module.
            ///
            /// [`Retain::retain`]: crate::kernels::Retain::retain
            #[target_feature(enable = $features)]
            pub(in crate::kernels) fn retain(
                source: &LaneSource<$lane>,
                predicate: &KernelPredicate<$lane>,
                negated: bool,
                selected: &mut [VectorBits],
            ) -> bool {
                match *predicate {
                    // All lanes pass, and `span + 1`, which the AVX2 loop compares with, would overflow.
                    KernelPredicate::Range { span: <$lane>::MAX, .. } => return false,
                    KernelPredicate::Range { low, span } => {
                        let range = $range(low, span);
                        match *source {
                            $(LaneSource::Packed { width: $width, packed } if !negated => {
                                retain_range::<$width>(packed, range, selected)
                            })*
                            _ => retain_where(source, negated, selected, |lanes| $in_range(lanes, range)),
                        }
                    }
                    KernelPredicate::OneOf(values @ ([_] | [_, _])) => retain_listed::<2>(source, values, negated, selected),
                    KernelPredicate::OneOf(values @ ([_, _, _] | [_, _, _, _])) => retain_listed::<4>(source, values, negated, selected),
                    KernelPredicate::OneOf(values) if values.is_empty() || values.len() > ONE_OF_MAX => return false,
                    KernelPredicate::OneOf(values) => retain_listed::<ONE_OF_MAX>(source, values, negated, selected),
                    KernelPredicate::Table { low, flags } if flags.len() <= VECTOR_ROWS.min(1 << BITS.min(16)) => {
                        retain_table(source, low, flags, negated, selected)
                    }
                    KernelPredicate::Table { .. } => return false,
                }
                true
            }
        }
    };
}
pub(super) use loops;
