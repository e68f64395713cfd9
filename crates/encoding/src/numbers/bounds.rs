//! Evaluates a predicate on the bounds of numbers, so that the numbers need not be read.

use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate};

use crate::kernels::MASK_WORDS;
use crate::numbers::plain::Plain;

/// Predicate that is evaluated on the least and the greatest number only.
pub(crate) struct BoundsPredicate(ColumnPredicate);

impl BoundsPredicate {
    /// Prepares a predicate on numbers for evaluation on bounds.
    pub(crate) fn new(predicate: &DatumPredicate, negated: bool) -> Self {
        // The evaluation ignores the column.
        Self(ColumnPredicate { column: ColumnIndex(0), condition: predicate.clone(), negated })
    }

    /// Whether all numbers of `low..=high` pass (`true`) or none does (`false`). Returns `None` if the bounds do not
    /// decide.
    pub(crate) fn decide(&self, low: i128, high: i128) -> Option<bool> {
        let (low, high) = (Datum::Number(low), Datum::Number(high));
        if !self.0.may_admit(Some((&low, &high)), false) {
            return Some(false);
        }
        self.0.admits_all(&low, &high).then_some(true)
    }
}

/// Bounds of the numbers of a vector. After the first number, there are `steps` numbers, each `least..=greatest` more
/// than the previous one. If `ascends` is true, all numbers of the chunk ascend, so the first number of the next vector
/// is an upper bound too.
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

/// Mask of a vector in which all rows pass if `passes`, else none.
pub(crate) fn uniform_mask(passes: bool) -> [u64; MASK_WORDS] {
    [if passes { u64::MAX } else { 0 }; MASK_WORDS]
}
