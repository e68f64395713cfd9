//! Column predicates drawn from the data: some that many rows pass, some that few pass, and edge cases of both.

use std::ops::Bound;
use std::sync::Arc;

use rand::Rng;
use rand::seq::IndexedRandom;
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate};

use crate::Model;

/// Predicates of every kind on every column, some of them negated.
pub fn predicates_for(model: &Model, random: &mut impl Rng) -> Vec<ColumnPredicate> {
    let mut predicates = vec![];
    for (index, column) in model.schema.columns().iter().enumerate() {
        let column_index = ColumnIndex::from(index);
        let mut kinds = if column.logical_type.is_bytes() {
            bytes_predicates(&draw(model, column_index, random), random)
        } else {
            number_predicates(&draw(model, column_index, random), random)
        };
        kinds.push(DatumPredicate::Null);
        for predicate in kinds {
            let negated = random.random_bool(0.3);
            predicates.push(ColumnPredicate { column: column_index, condition: predicate, negated });
        }
        predicates.push(ColumnPredicate { column: column_index, condition: DatumPredicate::Null, negated: true });
    }
    predicates
}

/// Up to 40 values of a column, ascending and distinct.
fn draw(model: &Model, column: ColumnIndex, random: &mut impl Rng) -> Vec<Datum> {
    let mut datums: Vec<Datum> = (0..40)
        .filter(|_| !model.rows.is_empty())
        .filter_map(|_| model.value(random.random_range(0..model.rows.len()), column).cloned())
        .collect();
    datums.sort_unstable();
    datums.dedup();
    datums
}

fn number_predicates(datums: &[Datum], random: &mut impl Rng) -> Vec<DatumPredicate> {
    let numbers: Vec<i128> = datums.iter().filter_map(Datum::number).collect();
    let mut value_near = |spread: i128| {
        let value = numbers.choose(random).copied().unwrap_or(0);
        value.saturating_add(random.random_range(-spread..=spread))
    };
    let point = value_near(0);
    let (first, second) = (value_near(1), value_near(1));
    let (low, high) = (value_near(1000), value_near(1000));
    let missing = value_near(5);
    let few = list([value_near(0), value_near(0), value_near(3)]);
    let many = list((0..30).map(|_| value_near(2)));
    vec![
        DatumPredicate::Range { low: point, high: point },
        DatumPredicate::Range { low: missing, high: missing },
        DatumPredicate::Range { low: first.min(second), high: first.max(second) },
        DatumPredicate::Range { low: low.min(high), high: low.max(high) },
        DatumPredicate::Range { low: i128::MIN, high: first },
        DatumPredicate::Range { low: second, high: i128::MAX },
        DatumPredicate::Range { low: i128::MIN, high: i128::MAX },
        DatumPredicate::Range { low: i64::MIN.into(), high: i64::MAX.into() },
        DatumPredicate::Range { low: 1, high: 0 },
        DatumPredicate::OneOf(few),
        DatumPredicate::OneOf(many),
        DatumPredicate::OneOf(Arc::from([i128::MIN, i128::MAX])),
        DatumPredicate::OneOf(Arc::from([])),
        // A predicate on bytes, which no number passes.
        DatumPredicate::BytesRange { low: Bound::Unbounded, high: Bound::Unbounded },
    ]
}

/// How a value for a predicate is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BytesKind {
    /// A value of the column.
    Existing,
    /// A value of the column with a random change.
    Changed,
}

fn bytes_predicates(datums: &[Datum], random: &mut impl Rng) -> Vec<DatumPredicate> {
    let values: Vec<&[u8]> = datums.iter().filter_map(Datum::bytes).collect();
    let mut value = |kind: BytesKind| {
        let mut bytes = values.choose(random).map_or_else(Vec::new, |value| value.to_vec());
        if kind == BytesKind::Changed {
            match random.random_range(0..4) {
                0 => bytes.push(0),
                1 => bytes.truncate(bytes.len() / 2),
                2 => drop(bytes.pop()),
                _ => bytes.push(b'z'),
            }
        }
        bytes.into_boxed_slice()
    };
    let point = value(BytesKind::Existing);
    let missing = value(BytesKind::Changed);
    let (first, second) = (value(BytesKind::Existing), value(BytesKind::Existing));
    let (low, high) = (value(BytesKind::Changed), value(BytesKind::Changed));
    let few = list([value(BytesKind::Existing), value(BytesKind::Existing), value(BytesKind::Changed)]);
    let many = list((0..30).map(|index| value(if index % 2 == 0 { BytesKind::Changed } else { BytesKind::Existing })));
    vec![
        DatumPredicate::BytesRange { low: Bound::Included(point.clone()), high: Bound::Included(point) },
        DatumPredicate::BytesRange { low: Bound::Included(missing.clone()), high: Bound::Included(missing) },
        DatumPredicate::BytesRange {
            low: Bound::Included(first.clone().min(second.clone())),
            high: Bound::Excluded(first.clone().max(second.clone())),
        },
        DatumPredicate::BytesRange {
            low: Bound::Excluded(low.clone().min(high.clone())),
            high: Bound::Included(low.max(high)),
        },
        DatumPredicate::BytesRange { low: Bound::Unbounded, high: Bound::Excluded(first) },
        DatumPredicate::BytesRange { low: Bound::Included(second), high: Bound::Unbounded },
        DatumPredicate::BytesRange { low: Bound::Unbounded, high: Bound::Unbounded },
        DatumPredicate::BytesRange { low: Bound::Included([0].into()), high: Bound::Excluded([0].into()) },
        DatumPredicate::BytesOneOf(few),
        DatumPredicate::BytesOneOf(many),
        DatumPredicate::BytesOneOf(Arc::from([Box::default()])),
        DatumPredicate::BytesOneOf(Arc::from([])),
        // A predicate on numbers, which no bytes pass.
        DatumPredicate::OneOf(Arc::from([0])),
    ]
}

/// List of values as predicates require it: ascending and distinct.
fn list<T: Ord>(values: impl IntoIterator<Item = T>) -> Arc<[T]> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;
    use rand::SeedableRng;

    #[test]
    fn predicates_pass_none_some_and_all_rows() {
        let mut random = rand::rngs::StdRng::seed_from_u64(9);
        let model = Model::of(&tables(9)[0]);
        let passing: Vec<usize> =
            predicates_for(&model, &mut random).into_iter().map(|predicate| model.filter(&[predicate]).len()).collect();
        assert!(passing.contains(&0) && passing.contains(&model.rows.len()));
        assert!(passing.iter().filter(|rows| (1..model.rows.len()).contains(rows)).count() > passing.len() / 4);
    }
}
