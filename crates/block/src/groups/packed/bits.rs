//! Unsigned numbers of 0 to 128 bits at any bit offset of a byte slice, least significant bit first.
//!
//! ```text
//! bit    0 1 2 3 4 5 6 7 | 8 9 ...
//! byte   0               | 1            bit b lies in byte b / 8 at weight 2^(b % 8)
//! ```
//!
//! A load may read bytes after its number. [`PADDING`] zero bytes follow the last number, so that every load stays
//! inside the slice.

/// Number of zero bytes that must follow the last number, because a load may read them.
pub(crate) const PADDING: usize = 24;
/// Maximum width in bits of a number that fits into eight bytes even if it begins at the last bit of the first byte.
pub(crate) const NARROW_BITS: u32 = 57;

/// Mask of the low `width` bits.
pub(crate) fn mask(width: u32) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - width.min(64)) }
}

fn mask_wide(width: u32) -> u128 {
    if width == 0 { 0 } else { u128::MAX >> (128 - width.min(128)) }
}

/// Number of bits that a number needs.
pub(crate) fn width_of(number: u128) -> u32 {
    128 - number.leading_zeros()
}

/// The eight bytes at an offset, as a little-endian number.
#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Loads 64 bits from a bit offset. Only the low [`NARROW_BITS`] bits are valid.
#[inline(always)]
pub(crate) fn load_narrow(bytes: &[u8], bit: usize) -> u64 {
    word(bytes, bit / 8) >> (bit % 8)
}

/// Loads 64 bits from a bit offset. All bits are valid.
#[inline(always)]
pub(crate) fn load(bytes: &[u8], bit: usize) -> u64 {
    let (at, shift) = (bit / 8, bit % 8);
    word(bytes, at) >> shift | u64::from(bytes[at + 8]) << 1 << (63 - shift)
}

/// Loads the number of `width` bits, at most 128, from a bit offset.
#[inline]
pub(crate) fn load_wide(bytes: &[u8], bit: usize, width: u32) -> u128 {
    (u128::from(load(bytes, bit)) | u128::from(load(bytes, bit + 64)) << 64) & mask_wide(width)
}

/// Whether a bit is set.
#[inline(always)]
pub(crate) fn is_set(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] >> (bit % 8) & 1 != 0
}

/// Writes a number at a bit offset. All bits that it covers must be zero before.
#[inline(always)]
pub(crate) fn write_bits(bytes: &mut [u8], bit: usize, number: u64) {
    let (at, shift) = (bit / 8, bit % 8);
    let merged = word(bytes, at) | number << shift;
    bytes[at..at + 8].copy_from_slice(&merged.to_le_bytes());
    // The bits that the shift dropped: none if the shift is zero.
    bytes[at + 8] |= (number >> 1 >> (63 - shift)) as u8;
}

/// Writes a number of up to 128 bits at a bit offset. All bits that it covers must be zero before.
pub(crate) fn write_wide_bits(bytes: &mut [u8], bit: usize, number: u128) {
    write_bits(bytes, bit, number as u64);
    if number > u128::from(u64::MAX) {
        write_bits(bytes, bit + 64, (number >> 64) as u64);
    }
}

/// The tuples of one page: row `i` at bit `i * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Tuples<'a> {
    /// The bytes of the tuples, followed by at least [`PADDING`] bytes.
    pub bytes: &'a [u8],
    /// Bits of a tuple.
    pub stride: usize,
}

impl Tuples<'_> {
    /// Appends a field of consecutive tuples to `output`.
    #[inline(always)]
    pub fn extend<T>(
        &self,
        rows: std::ops::Range<usize>,
        field_bit: usize,
        width: u32,
        output: &mut Vec<T>,
        value: impl Fn(u64) -> T,
    ) {
        let mask = mask(width);
        let stride_bytes = self.stride / 8;
        if self.stride.is_multiple_of(8) && stride_bytes >= 8 && width <= NARROW_BITS {
            // Tuples of whole bytes: the shift is the same for all.
            let (first, shift) = (field_bit / 8 + rows.start * stride_bytes, field_bit % 8);
            let tuples = self.bytes[first..].chunks(stride_bytes).take(rows.len());
            output.extend(tuples.map(|tuple| value(word(tuple, 0) >> shift & mask)));
        } else if width <= NARROW_BITS {
            output.extend(rows.map(|row| value(load_narrow(self.bytes, row * self.stride + field_bit) & mask)));
        } else {
            output.extend(rows.map(|row| value(load(self.bytes, row * self.stride + field_bit) & mask)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use taut_testkit::Random;

    proptest! {
        #[test]
        fn numbers_round_trip(fields in proptest::collection::vec((0..=128u32, any::<u128>()), 1..60)) {
            let fields: Vec<_> = fields.into_iter().map(|(width, number)| (width, number & mask_wide(width))).collect();
            let bits: usize = fields.iter().map(|(width, _)| *width as usize).sum();
            let mut bytes = vec![0; bits.div_ceil(8) + PADDING];
            let mut bit = 0;
            for (width, number) in &fields {
                write_wide_bits(&mut bytes, bit, *number);
                bit += *width as usize;
            }
            bit = 0;
            for (width, number) in &fields {
                prop_assert_eq!(load_wide(&bytes, bit, *width), *number);
                prop_assert!(width_of(*number) <= *width);
                if *width <= 64 {
                    prop_assert_eq!(u128::from(load(&bytes, bit) & mask(*width)), *number);
                }
                if *width <= NARROW_BITS {
                    prop_assert_eq!(u128::from(load_narrow(&bytes, bit) & mask(*width)), *number);
                }
                if *width > 0 {
                    prop_assert_eq!(is_set(&bytes, bit), number & 1 != 0);
                }
                bit += *width as usize;
            }
        }

        #[test]
        fn strides_agree_with_single_loads(stride in 1..200usize, width in 0..=64u32, seed in any::<u64>()) {
            let width = width.min(stride as u32);
            let field_bit = stride - width as usize;
            let mut random = Random(seed);
            let mut bytes: Vec<u8> = (0..(20 * stride).div_ceil(8)).map(|_| random.number() as u8).collect();
            bytes.resize(bytes.len() + PADDING, 0);
            let tuples = Tuples { bytes: &bytes, stride };
            let mut output = vec![];
            tuples.extend(3..20, field_bit, width, &mut output, |number| number);
            let expected: Vec<u64> =
                (3..20).map(|row| load(&bytes, row * stride + field_bit) & mask(width)).collect();
            prop_assert_eq!(output, expected);
        }
    }
}
