//! Types of arguments and results of functions in SQL.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, cast};

use super::external;
use crate::error::{FunctionError, type_in_message};

/// Checks that the columns of a body can be assigned to these types. Returns their own types.
pub(super) fn checked_columns(body: &DFSchema, targets: &[DataType]) -> Result<Vec<DataType>> {
    let declared = || targets.iter().map(type_in_message).collect::<Vec<_>>().join(", ");
    let types: Vec<DataType> = body.fields().iter().map(|field| field.data_type().clone()).collect();
    if types.len() != targets.len() {
        return Err(external(FunctionError::Columns { declared: declared(), count: targets.len() }));
    }
    match types.iter().zip(targets).find(|(from, target)| !is_assignable(from, target)) {
        Some((from, _)) => {
            Err(external(FunctionError::Mismatch { declared: declared(), actual: type_in_message(from) }))
        }
        None => Ok(types),
    }
}

/// Returns a value of type `from` as a value of type `target`. As in PostgreSQL, parameters and results of type numeric
/// have no precision and scale of their own, so that decimals keep their digits. Instants keep their unit.
pub(super) fn as_type(value: Expr, from: &DataType, target: &DataType) -> Expr {
    match (from, target) {
        (from, target) if from == target || is_same_kind(from, target) => value,
        // All digits of a bigint.
        (from, target) if from.is_integer() && target.is_decimal() => cast(value, DataType::Decimal128(20, 0)),
        // More digits before and after the point than the declared type may have.
        (from, target) if from.is_string() && target.is_decimal() => cast(value, DataType::Decimal128(38, 18)),
        (from, target) if from.is_floating() && target.is_decimal() => cast(value, DataType::Decimal128(38, 18)),
        (_, target) => cast(value, target.clone()),
    }
}

/// Whether two types differ only in precision, scale or unit.
fn is_same_kind(from: &DataType, target: &DataType) -> bool {
    match (from, target) {
        (DataType::List(from), DataType::List(target)) => is_same_kind(from.data_type(), target.data_type()),
        (DataType::Timestamp(_, from), DataType::Timestamp(_, target)) => from.is_some() == target.is_some(),
        (from, target) => from.is_decimal() && target.is_decimal(),
    }
}

/// Whether a body of type `from` is valid for a function that returns `target`. In addition to the casts of arguments,
/// every number is cast to every numeric type, every value to text, and a timestamp to its date, time, or local time.
fn is_assignable(from: &DataType, target: &DataType) -> bool {
    let is_part = matches!(
        (from, target),
        (DataType::Timestamp(..), DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..))
    );
    let is_text = target.is_string() && !from.is_binary();
    from.is_numeric() && target.is_numeric() || is_text || is_part || is_implicit(from, target)
}

/// Whether an argument of type `from` is valid for a parameter of type `target`.
pub(super) fn is_implicit(from: &DataType, target: &DataType) -> bool {
    let rank = |data_type: &DataType| match data_type {
        number if number.is_integer() => Some(0),
        number if number.is_decimal() => Some(1),
        DataType::Float32 => Some(2),
        DataType::Float64 => Some(3),
        _ => None,
    };
    match (from, target) {
        (DataType::Null, _) => true,
        (from, target) if from == target => true,
        (DataType::List(from), DataType::List(target)) => is_implicit(from.data_type(), target.data_type()),
        (DataType::Date32, DataType::Timestamp(..)) | (DataType::Timestamp(_, None), DataType::Timestamp(..)) => true,
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) => false,
        (from, target) if from.is_string() && target.is_string() => true,
        (from, target) => match (rank(from), rank(target)) {
            (Some(from), Some(target)) => from <= target,
            (None, None) => std::mem::discriminant(from) == std::mem::discriminant(target),
            _ => false,
        },
    }
}
