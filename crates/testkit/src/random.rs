//! Reproducible random choices, and numbers from environment variables, such as the iterations of a test run.

/// Generator of random numbers that depend only on the seed: SplitMix64. The field is the state, which starts as the
/// seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Random number, from the whole range of `u64`.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Random number less than `end`, which must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Random number in a range, which must not be empty.
    pub fn range(&mut self, range: std::ops::Range<i64>) -> i64 {
        range.start + (self.number() % (range.end - range.start) as u64) as i64
    }

    /// Random element of `values`, which must not be empty.
    pub fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// Number in an environment variable, for example the number of iterations of a nightly run. Returns `None` if the
/// variable is not set. Panics if it is not a number.
pub fn number_from_environment(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}
