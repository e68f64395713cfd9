//! Estimated cost of testing rows, by the layout of their values. `index_choice` compares it with the cost of an index.
//!
//! The costs are for segments in memory that are not in the cache of the processor. They were measured with
//! `cargo bench -p taut-block --bench paths`.

use taut_types::{DatumPredicate, GroupKind};

/// Maximum length of a list for which the estimate assumes that each value of a column is compared with every number of
/// the list.
const COMPARED_LIST_MAX: usize = 6;
/// For longer lists, the estimate assumes that a column uses a lookup table if the list spans less than this. The span
/// is the greatest number minus the least.
const NEIGHBOURS_SPAN: u128 = 1 << 16;

/// Estimated nanoseconds to test one row. If `has_codes`, text is compared by its dictionary codes.
pub(super) fn row_test_cost(kind: GroupKind, predicate: &DatumPredicate, has_codes: bool) -> f64 {
    let is_text = matches!(predicate, DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_)) && !has_codes;
    value_cost(kind, is_text) + list_cost(kind, predicate)
}

/// Estimated nanoseconds to test one value: a number or a code, or text if `is_text`.
fn value_cost(kind: GroupKind, is_text: bool) -> f64 {
    match (kind, is_text) {
        (GroupKind::Column, false) => 0.2,
        (GroupKind::Column, true) => 20.0,
        (GroupKind::PackedRows, false) => 3.3,
        (GroupKind::PackedRows, true) => 25.0,
        (GroupKind::SlottedRows, false) => 7.0,
        (GroupKind::SlottedRows, true) => 10.0,
    }
}

/// Estimated extra nanoseconds per row if the predicate is a list of numbers. Columns compare with the numbers of a
/// short list one by one, use a lookup table if the numbers are close, and hash other lists. Row layouts hash every
/// list.
fn list_cost(kind: GroupKind, predicate: &DatumPredicate) -> f64 {
    let DatumPredicate::OneOf(numbers) = predicate else { return 0.0 };
    let span = numbers.last().zip(numbers.first()).map_or(0, |(last, first)| last.abs_diff(*first));
    match kind {
        GroupKind::PackedRows | GroupKind::SlottedRows => 2.5,
        GroupKind::Column if numbers.len() <= COMPARED_LIST_MAX => 0.02 * numbers.len() as f64,
        GroupKind::Column if span < NEIGHBOURS_SPAN => 0.5,
        GroupKind::Column => 1.5,
    }
}
