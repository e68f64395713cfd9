//! Column predicates that an expression implies without being equivalent to them, and unions and intersections of
//! column predicates.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{Array, StructArray};
use datafusion::common::ScalarValue;
use datafusion::functions::core::r#struct::StructFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr};
use datafusion::physical_plan::PhysicalExpr;
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, NonNullPredicate, Schema, datum_at};

use super::{cast_for_datums, column_of, column_predicate, compared_column, literal_of};

/// Predicate on each column: a range or a list.
type ImpliedPredicates = BTreeMap<ColumnIndex, DatumPredicate>;

/// Maximum values in the union of two lists. Longer unions become ranges.
const LISTED_MAX: usize = 1024;

/// Returns column predicates that every row passes for which the expression is true. Other rows may pass them too.
pub(super) fn implied_predicates(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> ImpliedPredicates {
    if let Some(dynamic) = expression.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return dynamic.current().map(|current| implied_predicates(&current, schema)).unwrap_or_default();
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        let both = || (implied_predicates(binary.left(), schema), implied_predicates(binary.right(), schema));
        match binary.op() {
            Operator::And => {
                let (mut left, right) = both();
                for (column, predicate) in right {
                    // Without an intersection, either one alone is implied.
                    let both = left.get(&column).and_then(|other| intersection(other, &predicate));
                    left.insert(column, both.unwrap_or(predicate));
                }
                return left;
            }
            Operator::Or => {
                let (left, right) = both();
                return union_implied(left, right);
            }
            _ => {}
        }
    }
    if let Some(case) = expression.downcast_ref::<CaseExpr>() {
        return implied_by_arms(case, schema);
    }
    if let Some(list) = expression.downcast_ref::<InListExpr>()
        && let Some(structs) = ScalarFunctionExpr::try_downcast_func::<StructFunc>(list.expr().as_ref())
    {
        return implied_by_structs(structs.args(), list, schema);
    }
    match column_predicate(expression, schema) {
        Some(ColumnPredicate {
            column,
            condition:
                predicate @ (DatumPredicate::Range { .. }
                | DatumPredicate::OneOf(_)
                | DatumPredicate::BytesRange { .. }
                | DatumPredicate::BytesOneOf(_)),
            negated: false,
        }) => ImpliedPredicates::from([(column, predicate)]),
        _ => ImpliedPredicates::new(),
    }
}

/// Whether every row that passes all `conditions` passes `conclusion`. Returns false for an implication that it cannot
/// prove. It uses only comparisons of one column with values, and `IS NOT NULL`.
pub fn implies(conditions: &[Arc<dyn PhysicalExpr>], conclusion: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let Some(wanted) = column_predicate(conclusion, schema) else { return false };
    let implied =
        conditions.iter().filter_map(|condition| implied_predicates(condition, schema).remove(&wanted.column));
    let Some(implied) = implied.reduce(|one, other| intersection(&one, &other).unwrap_or(one)) else { return false };
    match (&wanted.condition, wanted.negated) {
        // Nulls pass none of the implied predicates.
        (DatumPredicate::Null, is_not_null) => is_not_null,
        (condition, false) => {
            let implied = as_list(&implied).unwrap_or(implied);
            intersection(&implied, condition).is_some_and(|both| both == implied)
        }
        (_, true) => false,
    }
}

/// Returns the predicate that a disjunction `c IS NULL OR ...` is equivalent to, or implies, in rows where `c` is not
/// null.
pub(super) fn non_null_predicate(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<NonNullPredicate> {
    let mut arms = vec![];
    disjuncts(expression, &mut arms);
    let null_of = |arm: &Arc<dyn PhysicalExpr>| column_of(arm.downcast_ref::<IsNullExpr>()?.arg());
    let column = arms.iter().find_map(|arm| null_of(arm))?;
    arms.retain(|arm| null_of(arm) != Some(column));
    if let [only] = arms.as_slice()
        && let Some(predicate) = column_predicate(only, schema).filter(|predicate| predicate.column == column)
    {
        return Some(NonNullPredicate { predicate, is_exact: true });
    }
    let predicate = arms.iter().map(|arm| implied_predicates(arm, schema)).reduce(union_implied)?.remove(&column)?;
    Some(NonNullPredicate { predicate: ColumnPredicate::new(column, predicate), is_exact: false })
}

fn disjuncts<'a>(expression: &'a Arc<dyn PhysicalExpr>, arms: &mut Vec<&'a Arc<dyn PhysicalExpr>>) {
    match expression.downcast_ref::<BinaryExpr>() {
        Some(binary) if *binary.op() == Operator::Or => {
            disjuncts(binary.left(), arms);
            disjuncts(binary.right(), arms);
        }
        _ => arms.push(expression),
    }
}

/// Predicates implied by the filter of a join with a partitioned build side, `CASE hash % n WHEN 0 THEN .. WHEN 1 THEN
/// .. ELSE false END`: a row that passes satisfies one of the arms.
fn implied_by_arms(case: &CaseExpr, schema: &Schema) -> ImpliedPredicates {
    let is_false = |arm: &Arc<dyn PhysicalExpr>| {
        matches!(literal_of(arm), Some(ScalarValue::Boolean(Some(false)) | ScalarValue::Boolean(None)))
    };
    // Without ELSE the result is null, and no row passes.
    let otherwise = case.else_expr().filter(|arm| !is_false(arm));
    let arms = case.when_then_expr().iter().map(|(_, then)| then).chain(otherwise);
    arms.filter(|arm| !is_false(arm))
        .map(|arm| implied_predicates(arm, schema))
        .reduce(union_implied)
        .unwrap_or_default()
}

/// Predicates implied by the filter of a join on several columns, `struct(a, b) IN (..)`. Each column has one of the
/// values that its field has in the list.
fn implied_by_structs(fields: &[Arc<dyn PhysicalExpr>], list: &InListExpr, schema: &Schema) -> ImpliedPredicates {
    let structs = list.list().iter().map(|literal| match literal_of(literal) {
        Some(ScalarValue::Struct(one)) => Some(one),
        _ => None,
    });
    let Some(structs) = structs.collect::<Option<Vec<_>>>().filter(|_| !list.negated()) else {
        return ImpliedPredicates::new();
    };
    let predicate_of = |(field, expression): (usize, &Arc<dyn PhysicalExpr>)| {
        let (column, logical_type) = compared_column(expression, schema)?;
        // A null struct matches no row. A null field may be equal to another null.
        let datum = |one: &Arc<StructArray>| {
            datum_at(&cast_for_datums(one.columns().get(field)?, logical_type)?, logical_type, 0)
        };
        let datums = structs.iter().filter(|one| one.is_valid(0)).map(|one| datum(one)).collect::<Option<Vec<_>>>()?;
        Some((column, ColumnPredicate::one_of(column, logical_type, datums).condition))
    };
    let mut implied = ImpliedPredicates::new();
    for (column, predicate) in fields.iter().enumerate().filter_map(predicate_of) {
        let both = implied.get(&column).and_then(|other| intersection(other, &predicate));
        implied.insert(column, both.unwrap_or(predicate));
    }
    implied
}

/// Returns the predicate that values pass if they pass both predicates. `None` if no predicate expresses this, for
/// example for null checks.
pub(super) fn intersection(left: &DatumPredicate, right: &DatumPredicate) -> Option<DatumPredicate> {
    Some(match (left, right) {
        (DatumPredicate::Range { low, high }, DatumPredicate::Range { low: other_low, high: other_high }) => {
            DatumPredicate::Range { low: *low.max(other_low), high: *high.min(other_high) }
        }
        (DatumPredicate::BytesRange { low, high }, DatumPredicate::BytesRange { low: other_low, high: other_high }) => {
            let low = if low_order(low) < low_order(other_low) { other_low } else { low };
            let high = if high_order(high) > high_order(other_high) { other_high } else { high };
            let is_empty = match (low, high) {
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                    low >= high
                }
            };
            match is_empty {
                true => DatumPredicate::BytesOneOf(Arc::from([])),
                false => DatumPredicate::BytesRange { low: low.clone(), high: high.clone() },
            }
        }
        (DatumPredicate::OneOf(numbers), other @ (DatumPredicate::Range { .. } | DatumPredicate::OneOf(_)))
        | (other @ DatumPredicate::Range { .. }, DatumPredicate::OneOf(numbers)) => {
            let passing = numbers.iter().copied().filter(|number| other.admits(&Datum::Number(*number)));
            DatumPredicate::OneOf(passing.collect())
        }
        (
            DatumPredicate::BytesOneOf(strings),
            other @ (DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_)),
        )
        | (other @ DatumPredicate::BytesRange { .. }, DatumPredicate::BytesOneOf(strings)) => {
            let passing = strings.iter().filter(|bytes| other.admits(&Datum::Bytes((*bytes).clone())));
            DatumPredicate::BytesOneOf(passing.cloned().collect())
        }
        _ => return None,
    })
}

/// Predicates of a disjunction: for each column that both sides restrict, the values that pass either side. Long lists
/// become ranges.
fn union_implied(left: ImpliedPredicates, right: ImpliedPredicates) -> ImpliedPredicates {
    let both = left.into_iter().filter_map(|(column, predicate)| Some((column, predicate, right.get(&column)?)));
    both.filter_map(|(column, predicate, other)| Some((column, union_of(&predicate, other)?))).collect()
}

fn union_of(left: &DatumPredicate, right: &DatumPredicate) -> Option<DatumPredicate> {
    match (as_list(left), as_list(right)) {
        (Some(DatumPredicate::OneOf(left)), Some(DatumPredicate::OneOf(right)))
            if left.len() + right.len() <= LISTED_MAX =>
        {
            return Some(DatumPredicate::OneOf(sorted_union(&left, &right).into()));
        }
        (Some(DatumPredicate::BytesOneOf(left)), Some(DatumPredicate::BytesOneOf(right)))
            if left.len() + right.len() <= LISTED_MAX =>
        {
            return Some(DatumPredicate::BytesOneOf(sorted_union(&left, &right).into()));
        }
        _ => {}
    }
    match (as_range(left), as_range(right)) {
        (DatumPredicate::Range { low, high }, DatumPredicate::Range { low: other_low, high: other_high }) => {
            // An empty range does not extend the union.
            Some(match (low > high, other_low > other_high) {
                (true, _) => DatumPredicate::Range { low: other_low, high: other_high },
                (_, true) => DatumPredicate::Range { low, high },
                _ => DatumPredicate::Range { low: low.min(other_low), high: high.max(other_high) },
            })
        }
        (DatumPredicate::BytesRange { low, high }, DatumPredicate::BytesRange { low: other_low, high: other_high }) => {
            let low = if low_order(&low) > low_order(&other_low) { other_low } else { low };
            let high = if high_order(&high) < high_order(&other_high) { other_high } else { high };
            Some(DatumPredicate::BytesRange { low, high })
        }
        _ => None,
    }
}

/// Sort key of lower bounds: a greater key admits fewer values.
fn low_order(low: &Bound<Box<[u8]>>) -> (Option<&[u8]>, bool) {
    match low {
        Bound::Unbounded => (None, false),
        Bound::Included(bytes) => (Some(bytes), false),
        Bound::Excluded(bytes) => (Some(bytes), true),
    }
}

/// Sort key of upper bounds: a greater key admits more values.
fn high_order(high: &Bound<Box<[u8]>>) -> (bool, &[u8], bool) {
    match high {
        Bound::Unbounded => (true, &[], false),
        Bound::Included(bytes) => (false, bytes, true),
        Bound::Excluded(bytes) => (false, bytes, false),
    }
}

/// Converts a predicate to a list if it is one or admits one value.
fn as_list(predicate: &DatumPredicate) -> Option<DatumPredicate> {
    match predicate {
        DatumPredicate::OneOf(_) | DatumPredicate::BytesOneOf(_) => Some(predicate.clone()),
        DatumPredicate::Range { low, high } if low == high => Some(DatumPredicate::OneOf(Arc::from([*low]))),
        DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
            Some(DatumPredicate::BytesOneOf(Arc::from([low.clone()])))
        }
        _ => None,
    }
}

/// Converts a list to the range from its least value to its greatest. Returns other predicates unchanged.
fn as_range(predicate: &DatumPredicate) -> DatumPredicate {
    match predicate {
        DatumPredicate::OneOf(numbers) => match numbers.first().zip(numbers.last()) {
            Some((low, high)) => DatumPredicate::Range { low: *low, high: *high },
            None => DatumPredicate::Range { low: i128::MAX, high: i128::MIN },
        },
        DatumPredicate::BytesOneOf(strings) => {
            let end = |bytes: Option<&Box<[u8]>>| Bound::Included(bytes.cloned().unwrap_or_default());
            DatumPredicate::BytesRange { low: end(strings.first()), high: end(strings.last()) }
        }
        predicate => predicate.clone(),
    }
}

/// Union of two lists, ascending and distinct.
fn sorted_union<T: Clone + Ord>(left: &[T], right: &[T]) -> Vec<T> {
    let mut all = [left, right].concat();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_intersections_admit_the_right_datums() {
        let list = |numbers: &[i128]| DatumPredicate::OneOf(Arc::from(numbers));
        let predicates = [
            DatumPredicate::Range { low: 2, high: 5 },
            DatumPredicate::Range { low: 4, high: 9 },
            DatumPredicate::Range { low: 7, high: 7 },
            DatumPredicate::Range { low: 6, high: 3 },
            list(&[1, 4, 8]),
            list(&[]),
        ];
        let bytes = |number: i128| -> Box<[u8]> { format!("{number:02}").into_bytes().into() };
        let strings = predicates.iter().flat_map(|predicate| match predicate {
            DatumPredicate::Range { low, high } => {
                let (low, high) = (bytes(*low), bytes(*high));
                let range = |low, high| DatumPredicate::BytesRange { low, high };
                vec![
                    range(Bound::Included(low.clone()), Bound::Included(high.clone())),
                    range(Bound::Excluded(low.clone()), Bound::Excluded(high)),
                    range(Bound::Unbounded, Bound::Included(low.clone())),
                    range(Bound::Included(low), Bound::Unbounded),
                ]
            }
            DatumPredicate::OneOf(numbers) => {
                vec![DatumPredicate::BytesOneOf(numbers.iter().copied().map(bytes).collect())]
            }
            _ => vec![],
        });
        let strings: Vec<DatumPredicate> = strings.collect();
        let datums: Vec<Datum> =
            (0..12).flat_map(|number| [Datum::Number(number), Datum::Bytes(bytes(number))]).collect();
        for predicates in [&predicates[..], &strings] {
            for (left, right) in predicates.iter().flat_map(|left| predicates.iter().map(move |right| (left, right))) {
                let (Some(both), Some(either)) = (intersection(left, right), union_of(left, right)) else {
                    panic!("{left:?} and {right:?} are of one kind");
                };
                for datum in &datums {
                    let (first, second) = (left.admits(datum), right.admits(datum));
                    assert_eq!(both.admits(datum), first && second, "{left:?} and {right:?}: {datum:?}");
                    assert!(either.admits(datum) || !(first || second), "{left:?} or {right:?}: {datum:?}");
                }
            }
        }
        // Null checks and predicates of different kinds have no intersection.
        for predicate in predicates.iter().chain(&strings) {
            assert_eq!(
                (intersection(predicate, &DatumPredicate::Null), intersection(&DatumPredicate::Null, predicate)),
                (None, None),
                "{predicate:?}"
            );
        }
        for (number, string) in predicates.iter().flat_map(|number| strings.iter().map(move |string| (number, string)))
        {
            assert_eq!(
                (intersection(number, string), intersection(string, number)),
                (None, None),
                "{number:?} and {string:?}"
            );
        }
        let long = |first: i128| DatumPredicate::OneOf((first..first + LISTED_MAX as i128).collect());
        assert_eq!(union_of(&long(0), &long(5)), Some(DatumPredicate::Range { low: 0, high: LISTED_MAX as i128 + 4 }));
    }
}
