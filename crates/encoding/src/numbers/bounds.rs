//! What a test says of all numbers between two bounds, so that they need not be looked at.

use taut_types::{ColumnIndex, ColumnTest, Key, Test};

use crate::kernels::MASK_WORDS;
use crate::numbers::plain::Plain;

/// A test on the least and the greatest of some numbers.
pub(crate) struct BoundsTest(ColumnTest);

impl BoundsTest {
    /// The test on bounds of a test on numbers.
    pub(crate) fn new(test: &Test, negated: bool) -> Self {
        // Of which column, nobody asks.
        Self(ColumnTest { column: ColumnIndex(0), test: test.clone(), negated })
    }

    /// Whether all numbers of `low..=high` pass, or none does; `None` where that depends on the number.
    pub(crate) fn verdict(&self, low: i128, high: i128) -> Option<bool> {
        let (low, high) = (Key::Number(low), Key::Number(high));
        if !self.0.may_admit(Some((&low, &high)), false) {
            return Some(false);
        }
        self.0.admits_all(&low, &high).then_some(true)
    }
}

/// Numbers between which those of a vector lie: `steps` steps, each of `least..=greatest`, from the first on; and
/// where numbers ascend throughout, no more than the first number of the next vector.
pub(crate) fn bounds_of_steps(
    firsts: &Plain,
    vector: usize,
    steps: usize,
    (least, greatest): (i128, i128),
    ascends: bool,
) -> (i128, i128) {
    let (first, steps) = (firsts.value(vector), steps as i128);
    let low = first.saturating_add(least.min(0).saturating_mul(steps));
    let high = first.saturating_add(greatest.max(0).saturating_mul(steps));
    if ascends && vector + 1 < firsts.len() {
        return (low, high.min(firsts.value(vector + 1)));
    }
    (low, high)
}

/// The mask of a vector of which all rows pass, or none does.
pub(crate) fn mask_of(all: bool) -> [u64; MASK_WORDS] {
    [if all { u64::MAX } else { 0 }; MASK_WORDS]
}
