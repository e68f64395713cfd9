//! Filter for membership in a long list of numbers that lie far apart.

/// Bits of the filter per number of the list. The filter has at most [`BITS_MAX`] bits. Below that limit, about one in
/// 64 numbers outside the list is a false positive.
const BITS_PER_NUMBER: usize = 64;
/// Maximum bits: 16 KiB fit the L1 cache beside the other data of a vector.
const BITS_MAX: usize = 1 << 17;
const BITS_MIN: usize = 64;

/// Bloom filter with one hash function: a bit is set if a number of the list has its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberFilter {
    /// The length is a power of two.
    words: Vec<u32>,
    /// Number of low bits of the 32-bit product that the hash drops.
    shift: u32,
}

impl NumberFilter {
    /// Builds a filter for the numbers of a list.
    pub fn new(numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let bits = (numbers.len() * BITS_PER_NUMBER).next_power_of_two().clamp(BITS_MIN, BITS_MAX);
        let mut filter = Self { words: vec![0; bits / 32], shift: u32::BITS - bits.trailing_zeros() };
        for number in numbers {
            let hash = hash(number, filter.shift);
            filter.words[(hash / 32) as usize] |= 1 << (hash % 32);
        }
        filter
    }

    /// Whether a number may be in the list. False positives are possible.
    #[inline(always)]
    pub fn may_contain(&self, number: u64) -> bool {
        let hash = hash(number, self.shift);
        self.words[(hash / 32) as usize & (self.words.len() - 1)] >> (hash % 32) & 1 != 0
    }

    /// Sets the byte of each number to 1 if it may be in the list, else to 0.
    pub(crate) fn mark_candidates(&self, numbers: impl Iterator<Item = u64>, bytes: &mut [u8]) {
        let (words, last, shift) = (self.words.as_slice(), self.words.len() - 1, self.shift);
        for (byte, number) in bytes.iter_mut().zip(numbers) {
            let hash = hash(number, shift);
            *byte = (words[(hash / 32) as usize & last] >> (hash % 32) & 1) as u8;
        }
    }
}

/// Multiplicative hash (Knuth, section 6.4). One factor is odd and derived from the golden ratio. The upper bits of the
/// product depend on all bits of the other factor.
#[inline(always)]
fn hash(number: u64, shift: u32) -> u32 {
    ((number ^ number >> 32) as u32).wrapping_mul(0x9e37_79b1) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listed_and_few_other_numbers_are_candidates() {
        for count in [1, 2, 50, 3_000_u32] {
            let filter = NumberFilter::new((0..count).map(|number| u64::from(number) * 5_000));
            let marked = |numbers: Vec<u64>| {
                let mut bytes = vec![2; numbers.len()];
                filter.mark_candidates(numbers.iter().copied(), &mut bytes);
                let may_contain = |number: &u64| u8::from(filter.may_contain(*number));
                assert_eq!(bytes, numbers.iter().map(may_contain).collect::<Vec<u8>>());
                bytes.into_iter().map(usize::from).sum::<usize>()
            };
            assert_eq!(marked((0..count).map(|number| u64::from(number) * 5_000).collect()), count as usize);
            let others = marked((0..100_000).map(|number| number * 5_000 + 77).collect());
            assert!(others < 10_000, "{others} of 100,000 numbers beside {count}");
        }
        let mut bytes = [1];
        NumberFilter::new(std::iter::empty()).mark_candidates([0].into_iter(), &mut bytes);
        assert_eq!(bytes, [0]);
    }
}
