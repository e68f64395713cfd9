//! Checked arithmetic on arrays.
//!
//! Integers and floating-point numbers are computed without branches. The loop collects the overflows of all rows in
//! one value, which is tested at the end. If a row may have overflowed, a second loop tests the rows that are not null.
//! Rows that are null may overflow, because their values are arbitrary.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal128Array, PrimitiveArray, Scalar,
};
use datafusion::arrow::buffer::{NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use taut_types::LogicalType;

use super::Operation;
use super::division::{PRECISION, Quotient};

/// Greatest integer of 38 digits, the maximum precision of a decimal.
pub(super) const DECIMAL_MAX: i128 = 10_i128.pow(38) - 1;

/// Applies an operation to two operands in each of `rows` rows. Returns a scalar if both operands are scalars.
///
/// # Errors
/// If a result is out of the range of its type.
pub(super) fn combine(
    operation: Operation,
    left: &ColumnarValue,
    right: &ColumnarValue,
    rows: usize,
) -> Result<ColumnarValue> {
    let is_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let (left, right) = (OperandValues::new(left)?, OperandValues::new(right)?);
    let result = combine_operands(operation, &left, &right, if is_scalar { 1 } else { rows })?;
    Ok(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(result),
    })
}

/// Negates numbers.
///
/// # Errors
/// If a value is the least number of an integer type, whose negation the type cannot hold.
pub(super) fn negate(operand: &ColumnarValue) -> Result<ColumnarValue> {
    let negated =
        |array: &ArrayRef| numeric::neg(array.as_ref()).map_err(|error| out_of_range(error, array.data_type()));
    Ok(match operand {
        ColumnarValue::Array(array) => ColumnarValue::Array(negated(array)?),
        ColumnarValue::Scalar(scalar) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&negated(&scalar.to_array()?)?, 0)?)
        }
    })
}

/// Values of an operand: one for each row, or one for all rows.
struct OperandValues {
    array: ArrayRef,
    is_scalar: bool,
}

impl OperandValues {
    fn new(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self { array: Arc::clone(array), is_scalar: false },
            ColumnarValue::Scalar(scalar) => Self { array: scalar.to_array()?, is_scalar: true },
        })
    }

    /// The operand as a parameter of Arrow's kernels.
    fn datum(&self) -> Box<dyn Datum> {
        match self.is_scalar {
            true => Box::new(Scalar::new(Arc::clone(&self.array))),
            false => Box::new(Arc::clone(&self.array)),
        }
    }

    /// Whether the operand is a single null for all rows.
    fn is_null(&self) -> bool {
        self.is_scalar && self.array.is_null(0)
    }

    /// Validity of the rows. Returns `None` if no row is null, or if the operand is a scalar.
    fn nulls(&self) -> Option<&NullBuffer> {
        self.array.nulls().filter(|_| !self.is_scalar)
    }
}

fn combine_operands(
    operation: Operation,
    left: &OperandValues,
    right: &OperandValues,
    rows: usize,
) -> Result<ArrayRef> {
    let (left_type, right_type) = (left.array.data_type(), right.array.data_type());
    let has_kernel = left_type.is_integer() || left_type.is_floating();
    if left_type == right_type && (left.is_null() || right.is_null()) && has_kernel {
        return Ok(datafusion::arrow::array::new_null_array(left_type, rows));
    }
    match (left_type, right_type) {
        (DataType::Int16, DataType::Int16) => numbers::<Int16Type>(operation, left, right, rows),
        (DataType::Int32, DataType::Int32) => numbers::<Int32Type>(operation, left, right, rows),
        (DataType::Int64, DataType::Int64) => numbers::<Int64Type>(operation, left, right, rows),
        (DataType::Float32, DataType::Float32) => numbers::<Float32Type>(operation, left, right, rows),
        (DataType::Float64, DataType::Float64) => numbers::<Float64Type>(operation, left, right, rows),
        (DataType::Decimal128(_, left_scale), DataType::Decimal128(_, right_scale))
            if operation == Operation::Multiply && has_rounded_product(*left_scale, *right_scale) =>
        {
            rounded_product(left, right, (*left_scale, *right_scale), rows)
        }
        _ => with_arrow(operation, left, right),
    }
}

/// Whether a product of decimals of these scales is rounded, because its exact scale, their sum, exceeds 38.
pub(super) fn has_rounded_product(left: i8, right: i8) -> bool {
    i16::from(left) + i16::from(right) > i16::from(PRECISION)
}

/// Product of decimals, with the greater of both scales.
fn rounded_product(left: &OperandValues, right: &OperandValues, scales: (i8, i8), rows: usize) -> Result<ArrayRef> {
    let expand = |operand: &OperandValues| match operand.is_scalar {
        true => ScalarValue::try_from_array(&operand.array, 0)?.to_array_of_size(rows),
        false => Ok(Arc::clone(&operand.array)),
    };
    let (left, right) = (expand(left)?, expand(right)?);
    let divisor = (0..scales.0.min(scales.1)).fold(i256::ONE, |power, _| power.wrapping_mul(i256::from_i128(10)));
    let quotient = Quotient::with_factor(0);
    let product = |left, right| {
        let product = i256::from_i128(left).checked_mul(i256::from_i128(right));
        quotient.of_wide(product.unwrap_or(i256::MAX), divisor)
    };
    let products: Decimal128Array =
        try_binary(left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>(), product)?;
    Ok(Arc::new(products.with_precision_and_scale(PRECISION, scales.0.max(scales.1))?))
}

/// Applies an operation with Arrow's kernels, which test each row for overflow. A decimal of more than 38 digits is an
/// error.
fn with_arrow(operation: Operation, left: &OperandValues, right: &OperandValues) -> Result<ArrayRef> {
    let (left_datum, right_datum) = (left.datum(), right.datum());
    let result = match operation {
        Operation::Add => numeric::add(left_datum.as_ref(), right_datum.as_ref()),
        Operation::Subtract => numeric::sub(left_datum.as_ref(), right_datum.as_ref()),
        Operation::Multiply => numeric::mul(left_datum.as_ref(), right_datum.as_ref()),
    };
    let result = result.map_err(|error| out_of_range(error, left.array.data_type()))?;
    // With fewer digits than 38, the type of the result has a digit for every possible carry.
    if let DataType::Decimal128(38, _) = result.data_type() {
        check_digits(result.as_primitive())?;
    }
    Ok(result)
}

fn check_digits(decimals: &Decimal128Array) -> Result<()> {
    let is_long = |number: &i128| number.unsigned_abs() > DECIMAL_MAX as u128;
    let mut any = false;
    decimals.values().iter().for_each(|number| any |= is_long(number));
    if any && decimals.iter().flatten().any(|number| is_long(&number)) {
        return Err(overflow(decimals.data_type()).into());
    }
    Ok(())
}

/// A numeric type whose operations report results that are out of range.
trait CheckedNumber: ArrowPrimitiveType<Native: Default> {
    /// Returns the result and a report on it. The result is arbitrary if it is out of range.
    fn compute(operation: Operation, left: Self::Native, right: Self::Native) -> (Self::Native, Self::Native);
    /// Combines the reports of two results.
    fn or(left: Self::Native, right: Self::Native) -> Self::Native;
    /// Whether a result may be out of range, given the combined reports.
    fn is_suspect(reports: Self::Native) -> bool;
    /// Like [`CheckedNumber::compute`], but slower and exact: the report is suspect only if the result is out of range.
    #[inline(always)]
    fn verify(operation: Operation, left: Self::Native, right: Self::Native) -> (Self::Native, Self::Native) {
        Self::compute(operation, left, right)
    }
    /// Error for a result that is out of range.
    fn error(operation: Operation, left: Self::Native, right: Self::Native) -> Option<ArrowError>;
}

macro_rules! checked_integer {
    ($type:ty, $native:ty, $multiply:expr) => {
        impl CheckedNumber for $type {
            /// The report is negative if the result overflowed.
            #[inline(always)]
            fn compute(operation: Operation, left: $native, right: $native) -> ($native, $native) {
                match operation {
                    // A sum overflows if its sign differs from the signs of both operands.
                    Operation::Add => {
                        let result = left.wrapping_add(right);
                        (result, (left ^ result) & (right ^ result))
                    }
                    // A difference overflows if the operands' signs differ, and its sign is not the sign of `left`.
                    Operation::Subtract => {
                        let result = left.wrapping_sub(right);
                        (result, (left ^ right) & (left ^ result))
                    }
                    Operation::Multiply => {
                        let multiply: fn($native, $native) -> ($native, bool) = $multiply;
                        let (result, has_overflowed) = multiply(left, right);
                        (result, -<$native>::from(has_overflowed))
                    }
                }
            }

            #[inline(always)]
            fn or(left: $native, right: $native) -> $native {
                left | right
            }

            fn is_suspect(reports: $native) -> bool {
                reports < 0
            }

            fn error(operation: Operation, left: $native, right: $native) -> Option<ArrowError> {
                (Self::compute(operation, left, right).1 < 0).then(|| overflow(&Self::DATA_TYPE))
            }
        }
    };
}

checked_integer!(Int16Type, i16, |left, right| {
    let product = i32::from(left) * i32::from(right);
    (product as i16, product != i32::from(product as i16))
});
checked_integer!(Int32Type, i32, |left, right| {
    let product = i64::from(left) * i64::from(right);
    (product as i32, product != i64::from(product as i32))
});
checked_integer!(Int64Type, i64, i64::overflowing_mul);

/// A type of floating-point numbers. A report is zero unless the result is infinite or NaN. For products and quotients,
/// a result of zero is reported too.
trait CheckedFloat: CheckedNumber {
    /// Whether a result is too large, and whether it is too close to zero.
    fn ranges(operation: Operation, left: Self::Native, right: Self::Native, result: Self::Native) -> (bool, bool);
    /// Returns the quotient and a report on it. The quotient is arbitrary if it is out of range or the divisor is zero.
    fn divide(left: Self::Native, right: Self::Native) -> (Self::Native, Self::Native);
    /// Error for a quotient that is out of range or whose divisor is zero.
    fn quotient_error(left: Self::Native, right: Self::Native) -> Option<ArrowError>;
}

macro_rules! checked_float {
    ($type:ty, $native:ty) => {
        impl CheckedNumber for $type {
            #[inline(always)]
            fn compute(operation: Operation, left: $native, right: $native) -> ($native, $native) {
                match operation {
                    // Zero times infinity is NaN.
                    Operation::Add => (left + right, (left + right) * 0.0),
                    Operation::Subtract => (left - right, (left - right) * 0.0),
                    Operation::Multiply => {
                        let result = left * right;
                        (result, Self::or(result * 0.0, if result == 0.0 { -1.0 } else { 0.0 }))
                    }
                }
            }

            #[inline(always)]
            fn or(left: $native, right: $native) -> $native {
                <$native>::from_bits(left.to_bits() | right.to_bits())
            }

            fn is_suspect(reports: $native) -> bool {
                reports != 0.0
            }

            #[inline(always)]
            fn verify(operation: Operation, left: $native, right: $native) -> ($native, $native) {
                let result = Self::compute(operation, left, right).0;
                let (is_too_large, is_too_small) = Self::ranges(operation, left, right, result);
                (result, if is_too_large | is_too_small { -1.0 } else { 0.0 })
            }

            fn error(operation: Operation, left: $native, right: $native) -> Option<ArrowError> {
                let result = Self::compute(operation, left, right).0;
                let (is_too_large, is_too_small) = Self::ranges(operation, left, right, result);
                float_error(is_too_large, is_too_small)
            }
        }

        impl CheckedFloat for $type {
            #[inline(always)]
            fn ranges(operation: Operation, left: $native, right: $native, result: $native) -> (bool, bool) {
                // Without branches, so that the loop over a batch has none.
                let is_too_large = result.is_infinite() & !left.is_infinite() & !right.is_infinite();
                let is_product = operation == Operation::Multiply;
                (is_too_large, is_product & (result == 0.0) & (left != 0.0) & (right != 0.0))
            }

            #[inline(always)]
            fn divide(left: $native, right: $native) -> ($native, $native) {
                let quotient = left / right;
                (quotient, Self::or(quotient * 0.0, if quotient == 0.0 { -1.0 } else { 0.0 }))
            }

            fn quotient_error(left: $native, right: $native) -> Option<ArrowError> {
                if right == 0.0 {
                    return (!left.is_nan()).then_some(ArrowError::DivideByZero);
                }
                let quotient = left / right;
                let is_too_large = quotient.is_infinite() && !left.is_infinite();
                let is_too_small = quotient == 0.0 && left != 0.0 && !right.is_infinite();
                float_error(is_too_large, is_too_small)
            }
        }
    };
}

checked_float!(Float32Type, f32);
checked_float!(Float64Type, f64);

/// Error for a floating-point result that is too large or too close to zero, with PostgreSQL's message. Returns `None`
/// if it is neither.
pub(in super::super) fn float_error(is_too_large: bool, is_too_small: bool) -> Option<ArrowError> {
    let what = match (is_too_large, is_too_small) {
        (true, _) => "overflow",
        (false, true) => "underflow",
        (false, false) => return None,
    };
    Some(ArrowError::ArithmeticOverflow(format!("value out of range: {what}")))
}

fn numbers<T: CheckedNumber>(
    operation: Operation,
    left: &OperandValues,
    right: &OperandValues,
    rows: usize,
) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    // The operation is a constant in each call, so that the loops have no branch.
    let (values, any) = match operation {
        Operation::Add => zip::<T>(left, right, rows, |left, right| T::compute(Operation::Add, left, right)),
        Operation::Subtract => zip::<T>(left, right, rows, |left, right| T::compute(Operation::Subtract, left, right)),
        Operation::Multiply => zip::<T>(left, right, rows, |left, right| T::compute(Operation::Multiply, left, right)),
    };
    // A product of zero is suspect, and may occur in every batch.
    let is_suspect = any
        && match operation {
            Operation::Multiply => {
                zip::<T>(left, right, rows, |left, right| T::verify(Operation::Multiply, left, right)).1
            }
            Operation::Add | Operation::Subtract => true,
        };
    let error = |left, right| T::error(operation, left, right);
    if is_suspect && let Some(error) = first_error::<T>(left, right, rows, nulls.as_ref(), error) {
        return Err(error.into());
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values, nulls)))
}

/// Computes quotients of floating-point numbers of the same type.
///
/// # Errors
/// If a divisor is zero, or a quotient is out of range.
pub(super) fn divide_floats(left: &ColumnarValue, right: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let is_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let (left, right) = (OperandValues::new(left)?, OperandValues::new(right)?);
    let rows = if is_scalar { 1 } else { rows };
    let quotients = match left.array.data_type() {
        data_type if left.is_null() || right.is_null() => datafusion::arrow::array::new_null_array(data_type, rows),
        DataType::Float32 => quotients::<Float32Type>(&left, &right, rows)?,
        _ => quotients::<Float64Type>(&left, &right, rows)?,
    };
    Ok(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?),
        false => ColumnarValue::Array(quotients),
    })
}

fn quotients<T: CheckedFloat>(left: &OperandValues, right: &OperandValues, rows: usize) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let (values, any) = zip::<T>(left, right, rows, T::divide);
    if any && let Some(error) = first_error::<T>(left, right, rows, nulls.as_ref(), T::quotient_error) {
        return Err(error.into());
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values, nulls)))
}

fn zip<T: CheckedNumber>(
    left: &OperandValues,
    right: &OperandValues,
    rows: usize,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, T::Native),
) -> (ScalarBuffer<T::Native>, bool) {
    let (left_values, right_values) =
        (left.array.as_primitive::<T>().values(), right.array.as_primitive::<T>().values());
    let mut reports = T::Native::default();
    let mut collect = |(result, report)| {
        reports = T::or(reports, report);
        result
    };
    let values: Vec<T::Native> = match (left.is_scalar, right.is_scalar) {
        (false, false) => {
            left_values.iter().zip(right_values).map(|(left, right)| collect(compute(*left, *right))).collect()
        }
        (false, true) => {
            let right = right_values[0];
            left_values.iter().map(|left| collect(compute(*left, right))).collect()
        }
        (true, false) => {
            let left = left_values[0];
            right_values.iter().map(|right| collect(compute(left, *right))).collect()
        }
        (true, true) => vec![collect(compute(left_values[0], right_values[0])); rows],
    };
    (values.into(), T::is_suspect(reports))
}

/// Error of the first row that has one. Skips null rows.
fn first_error<T: CheckedNumber>(
    left: &OperandValues,
    right: &OperandValues,
    rows: usize,
    nulls: Option<&NullBuffer>,
    error: impl Fn(T::Native, T::Native) -> Option<ArrowError>,
) -> Option<ArrowError> {
    let (left_values, right_values) =
        (left.array.as_primitive::<T>().values(), right.array.as_primitive::<T>().values());
    (0..rows).filter(|row| nulls.is_none_or(|nulls| nulls.is_valid(*row))).find_map(|row| {
        let left = left_values[if left.is_scalar { 0 } else { row }];
        let right = right_values[if right.is_scalar { 0 } else { row }];
        error(left, right)
    })
}

/// Replaces Arrow's error for an overflow.
fn out_of_range(error: ArrowError, data_type: &DataType) -> ArrowError {
    match error {
        ArrowError::ArithmeticOverflow(_) => overflow(data_type),
        other => other,
    }
}

/// Error for a result that a type cannot hold, with PostgreSQL's message.
pub fn overflow(data_type: &DataType) -> ArrowError {
    ArrowError::ArithmeticOverflow(match data_type {
        DataType::Decimal128(..) | DataType::Decimal256(..) => "value overflows numeric format".to_owned(),
        other => match LogicalType::from_arrow(other) {
            Some(logical) => format!("{} out of range", logical.sql_name()),
            None => "value out of range".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int16Array, Int32Array, Int64Array};

    use super::*;

    fn computed(operation: Operation, left: ColumnarValue, right: ColumnarValue, rows: usize) -> Result<ArrayRef> {
        combine(operation, &left, &right, rows)?.into_array(rows)
    }

    fn array(array: impl Array + 'static) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(array))
    }

    /// All pairs of small numbers and of numbers near the limits, against arithmetic in 128 bits.
    #[test]
    fn integer_results_equal_128_bit_arithmetic() {
        macro_rules! compare {
            ($array:ty, $native:ty, $scalar:path) => {{
                let (min, max) = (<$native>::MIN, <$native>::MAX);
                let root = (max as f64).sqrt() as $native;
                let numbers = [
                    min,
                    min + 1,
                    min / 2,
                    -root - 1,
                    -root,
                    -2,
                    -1,
                    0,
                    1,
                    2,
                    root,
                    root + 1,
                    max / 2 + 1,
                    max - 1,
                    max,
                ];
                for operation in [Operation::Add, Operation::Subtract, Operation::Multiply] {
                    for (left, right) in numbers.iter().flat_map(|left| numbers.map(|right| (*left, right))) {
                        let (wide_left, wide_right) = (i128::from(left), i128::from(right));
                        let expected = match operation {
                            Operation::Add => wide_left + wide_right,
                            Operation::Subtract => wide_left - wide_right,
                            Operation::Multiply => wide_left * wide_right,
                        };
                        let expected = <$native>::try_from(expected).ok();
                        let arrays = || (array(<$array>::from(vec![0, left])), array(<$array>::from(vec![0, right])));
                        let scalars = || {
                            (ColumnarValue::Scalar($scalar(Some(left))), ColumnarValue::Scalar($scalar(Some(right))))
                        };
                        let variants =
                            [(arrays().0, arrays().1), (arrays().0, scalars().1), (scalars().0, arrays().1), scalars()];
                        for (variant, (left_value, right_value)) in variants.into_iter().enumerate() {
                            let found = computed(operation, left_value, right_value, 2);
                            // Arrays have 0 in the first row. In variant 1, this `0 - right` overflows if `right` is
                            // `min`.
                            match (found, expected) {
                                (Ok(found), Some(expected)) => assert_eq!(
                                    found.as_any().downcast_ref::<$array>().unwrap().value(1),
                                    expected,
                                    "{left} {operation:?} {right}"
                                ),
                                (Err(error), expected) => {
                                    let zero_overflows =
                                        variant == 1 && operation == Operation::Subtract && right == min;
                                    assert!(
                                        expected.is_none() || zero_overflows,
                                        "{left} {operation:?} {right}: {error}"
                                    );
                                    assert!(error.to_string().contains("out of range"), "{error}");
                                }
                                (Ok(found), None) => panic!("{left} {operation:?} {right} = {found:?}"),
                            }
                        }
                    }
                }
            }};
        }
        compare!(Int16Array, i16, ScalarValue::Int16);
        compare!(Int32Array, i32, ScalarValue::Int32);
        compare!(Int64Array, i64, ScalarValue::Int64);
    }

    #[test]
    fn null_rows_do_not_overflow() {
        let nulls = NullBuffer::from(vec![true, false]);
        let left = Int64Array::new(vec![1, i64::MAX].into(), Some(nulls));
        let right = Int64Array::from(vec![1, 1]);
        let sum = computed(Operation::Add, array(left), array(right.clone()), 2).unwrap();
        assert_eq!(sum.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(2), None]));
        let null = ColumnarValue::Scalar(ScalarValue::Int64(None));
        assert_eq!(computed(Operation::Multiply, null, array(right), 2).unwrap().null_count(), 2);
    }

    #[test]
    fn decimals_have_at_most_38_digits() {
        let decimal =
            |number: i128, precision| ColumnarValue::Scalar(ScalarValue::Decimal128(Some(number), precision, 0));
        let sum = computed(Operation::Add, decimal(DECIMAL_MAX - 1, 38), decimal(1, 38), 1).unwrap();
        assert_eq!(sum.as_primitive::<Decimal128Type>().value(0), DECIMAL_MAX);
        let error = computed(Operation::Add, decimal(DECIMAL_MAX, 38), decimal(1, 38), 1).unwrap_err();
        assert!(error.to_string().contains("value overflows numeric format"), "{error}");
        let error = computed(Operation::Multiply, decimal(i128::MAX / 4, 38), decimal(5, 1), 1).unwrap_err();
        assert!(error.to_string().contains("value overflows numeric format"), "{error}");
    }

    #[test]
    fn the_least_number_has_no_negation() {
        let negated = negate(&array(Int32Array::from(vec![Some(3), None]))).unwrap().into_array(2).unwrap();
        assert_eq!(negated.as_primitive::<Int32Type>(), &Int32Array::from(vec![Some(-3), None]));
        let error = negate(&array(Int32Array::from(vec![i32::MIN]))).unwrap_err();
        assert!(error.to_string().contains("integer out of range"), "{error}");
    }
}
