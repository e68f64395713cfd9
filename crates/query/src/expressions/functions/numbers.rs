//! Functions on numbers: buckets of equal width, factorials, common divisors and multiples, signs, scales, infinity,
//! bit counts, and counts of nulls.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, Decimal128Array, Float64Array, Int32Array, Int64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::arity::{try_binary, try_unary};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::super::arithmetic::overflow;
use super::definition::ArgumentType::{
    Any, Bytes, Double, Exact, Floating, Integer, Interval, List, Timestamp, VariadicAny,
};
use super::definition::{Definition, booleans, integers, result};
use super::thresholds::bucket_of_thresholds;

pub(super) const FUNCTIONS: [Definition; 13] = [
    Definition {
        name: "width_bucket",
        arguments: &[&[Exact, Exact, Exact, Integer], &[Double, Double, Double, Integer], &[Any, List]],
        result: result::integer,
        compute: |arguments| match arguments {
            [operand, thresholds] => bucket_of_thresholds(operand, thresholds),
            _ => width_bucket(arguments),
        },
    },
    Definition { name: "factorial", arguments: &[&[Integer]], result: integral_decimal, compute: factorial },
    Definition {
        name: "gcd",
        arguments: &[&[Integer, Integer], &[Exact, Exact]],
        result: common_type,
        compute: common_divisor,
    },
    Definition {
        name: "lcm",
        arguments: &[&[Integer, Integer], &[Exact, Exact]],
        result: common_type,
        compute: common_multiple,
    },
    Definition { name: "sign", arguments: &[&[Double]], result: result::double, compute: sign },
    Definition { name: "scale", arguments: &[&[Exact]], result: result::integer, compute: scale },
    Definition { name: "min_scale", arguments: &[&[Exact]], result: result::integer, compute: min_scale },
    // All values of a column have one scale, so no digits can be removed from a value. `taut_sql` removes the zeros of
    // a literal.
    Definition {
        name: "trim_scale",
        arguments: &[&[Exact]],
        result: |types| if types[0].is_integer() { integral_decimal(types) } else { types[0].clone() },
        compute: |numbers| Ok(Arc::clone(&numbers[0])),
    },
    Definition {
        name: "num_nulls",
        arguments: &[&[Any, VariadicAny]],
        result: result::integer,
        compute: |values| counts(values, true),
    },
    Definition {
        name: "num_nonnulls",
        arguments: &[&[Any, VariadicAny]],
        result: result::integer,
        compute: |values| counts(values, false),
    },
    Definition {
        name: "isfinite",
        arguments: &[&[Floating], &[Exact], &[Timestamp], &[Interval]],
        result: result::boolean,
        compute: |values| Ok(is_infinite(&values[0], false)),
    },
    Definition {
        name: "isinf",
        arguments: &[&[Floating], &[Exact], &[Timestamp]],
        result: result::boolean,
        compute: |values| Ok(is_infinite(&values[0], true)),
    },
    Definition { name: "bit_count", arguments: &[&[Bytes], &[Any]], result: result::bigint, compute: bit_count },
];

fn integral_decimal(_types: &[DataType]) -> DataType {
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)
}

fn width_bucket(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let counts = arguments[3].as_primitive::<Int64Type>();
    let is_exact = !arguments[..3].iter().any(|argument| argument.data_type().is_floating());
    let buckets = |row: usize, bucket: &dyn Fn(usize, i64) -> Result<i64>| -> Result<Option<i32>> {
        if arguments.iter().any(|argument| argument.is_null(row)) {
            return Ok(None);
        }
        let count = counts.value(row);
        if count <= 0 {
            return exec_err!("count must be greater than zero");
        }
        let bucket = i32::try_from(bucket(row, count)?);
        Ok(Some(bucket.map_err(|_| ArrowError::ArithmeticOverflow("integer out of range".to_owned()))?))
    };
    let rows = 0..counts.len();
    if is_exact {
        let [operand, low, high] = aligned(&arguments[..3])?;
        let bucket = |row: usize, count: i64| exact_bucket(operand[row], low[row], high[row], count);
        integers(rows.map(|row| buckets(row, &bucket)))
    } else {
        let number = |index: usize| arguments[index].as_primitive::<Float64Type>();
        let (operand, low, high) = (number(0), number(1), number(2));
        let bucket = |row: usize, count: i64| bucket(operand.value(row), low.value(row), high.value(row), count);
        integers(rows.map(|row| buckets(row, &bucket)))
    }
}

/// Returns the sign of each number: -1, 0 or 1. The sign of NaN is 0.
fn sign(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let sign = |number: f64| f64::from(i8::from(number > 0.0) - i8::from(number < 0.0));
    Ok(Arc::new(arguments[0].as_primitive::<Float64Type>().unary::<_, Float64Type>(sign)))
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// Returns the unscaled values of three columns of integers and decimals, converted to the greatest scale of the three.
fn aligned(numbers: &[ArrayRef]) -> Result<[Vec<i256>; 3]> {
    let most = numbers.iter().map(|number| scale_of(number.data_type())).max().unwrap_or(0);
    let aligned = |number: &ArrayRef| -> Result<Vec<i256>> {
        let decimals = match number.data_type() {
            DataType::Decimal128(..) => Arc::clone(number),
            _ => cast(number, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?,
        };
        let factor = i256::from_i128(10).wrapping_pow((most - scale_of(decimals.data_type())).unsigned_abs().into());
        let values = decimals.as_primitive::<Decimal128Type>().values();
        Ok(values.iter().map(|value| i256::from_i128(*value).wrapping_mul(factor)).collect())
    };
    Ok([aligned(&numbers[0])?, aligned(&numbers[1])?, aligned(&numbers[2])?])
}

fn exact_bucket(operand: i256, low: i256, high: i256, count: i64) -> Result<i64> {
    if low == high {
        return exec_err!("lower bound cannot equal upper bound");
    }
    // If the bounds are descending, negates all numbers, so the bounds ascend.
    let negated = |number: i256| if low > high { number.wrapping_neg() } else { number };
    let (operand, low, high) = (negated(operand), negated(low), negated(high));
    if operand < low {
        return Ok(0);
    }
    if operand >= high {
        return Ok(count + 1);
    }
    // The product may exceed 256 bits if a decimal of 38 digits is converted to a scale of 38.
    let product = (operand - low).checked_mul(i256::from_i128(count.into()));
    let product = product.ok_or_else(|| exec_datafusion_err!("value overflows numeric format"))?;
    Ok(product.wrapping_div(high - low).as_i128() as i64 + 1)
}

fn bucket(operand: f64, low: f64, high: f64, count: i64) -> Result<i64> {
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return exec_err!("operand, lower bound, and upper bound cannot be NaN");
    }
    if !low.is_finite() || !high.is_finite() {
        return exec_err!("lower and upper bounds must be finite");
    }
    if low == high {
        return exec_err!("lower bound cannot equal upper bound");
    }
    let (operand, low, high) = if low > high { (-operand, -low, -high) } else { (operand, low, high) };
    if operand < low {
        return Ok(0);
    }
    if operand >= high {
        return Ok(count + 1);
    }
    // The difference of the bounds may overflow, but the difference of their halves does not.
    let share = match high - low {
        width if width.is_finite() => (operand - low) / width,
        _ => (operand / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
    };
    // Rounding may return the bucket after the last one, so the result is limited.
    Ok(((count as f64 * share) as i64).min(count - 1) + 1)
}

fn factorial(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let factorials: Decimal128Array = try_unary(numbers[0].as_primitive::<Int64Type>(), |number: i64| {
        if number < 0 {
            return Err(ArrowError::ArithmeticOverflow("factorial of a negative number is undefined".to_owned()));
        }
        let product = (1..=i128::from(number.min(100))).try_fold(1_i128, i128::checked_mul);
        product
            .filter(|product| product.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()))
            .ok_or_else(|| ArrowError::ArithmeticOverflow("value overflows numeric format".to_owned()))
    })?;
    Ok(Arc::new(factorials.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?))
}

/// Type of common divisors and multiples: bigint, or a decimal of the greater scale.
fn common_type(types: &[DataType]) -> DataType {
    match scale_of(&types[0]).max(scale_of(&types[1])) {
        0 if types.iter().all(DataType::is_integer) => DataType::Int64,
        scale => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
    }
}

fn divisor(left: u128, right: u128) -> u128 {
    let (mut left, mut right) = (left, right);
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

fn common_divisor(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    combined(numbers, |left, right| Some(divisor(left, right)))
}

fn common_multiple(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    combined(numbers, |left, right| match divisor(left, right) {
        _ if left == 0 || right == 0 => Some(0),
        divisor => (left / divisor).checked_mul(right),
    })
}

/// Combines the absolute values of two columns. `combine` returns `None` if the result is out of range.
fn combined(numbers: &[ArrayRef], combine: impl Fn(u128, u128) -> Option<u128>) -> Result<ArrayRef> {
    let target = common_type(&[numbers[0].data_type().clone(), numbers[1].data_type().clone()]);
    let decimals = match target {
        DataType::Int64 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        _ => target.clone(),
    };
    let (left, right) = (cast(&numbers[0], &decimals)?, cast(&numbers[1], &decimals)?);
    let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let maximum = match target {
        DataType::Int64 => i64::MAX.unsigned_abs().into(),
        _ => 10_u128.pow(DECIMAL128_MAX_PRECISION.into()) - 1,
    };
    let results: Decimal128Array = try_binary(left, right, |left: i128, right: i128| {
        let result = combine(left.unsigned_abs(), right.unsigned_abs()).filter(|result| *result <= maximum);
        result.map(u128::cast_signed).ok_or_else(|| overflow(&target))
    })?;
    let results: ArrayRef = Arc::new(results.with_data_type(decimals));
    Ok(cast(&results, &target)?)
}

/// Returns the scale of each number: the number of digits after the decimal point in its type.
fn scale(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let scale = i32::from(scale_of(numbers[0].data_type()));
    let of_row = |row: usize| Ok(numbers[0].is_valid(row).then_some(scale));
    integers((0..numbers[0].len()).map(of_row))
}

/// Returns the minimum scale that represents each decimal exactly.
fn min_scale(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = *numbers[0].data_type() else { return self::scale(numbers) };
    let needed = |number: i128| {
        let mut digits = (number, i32::from(scale));
        while digits.1 > 0 && digits.0 % 10 == 0 {
            digits = (digits.0 / 10, digits.1 - 1);
        }
        digits.1
    };
    let needed: Int32Array = numbers[0].as_primitive::<Decimal128Type>().unary(needed);
    Ok(Arc::new(needed))
}

/// Returns whether each value is infinite, or whether it is finite if `expected` is false. Only floating-point numbers
/// can be infinite. NaN is neither infinite nor finite.
fn is_infinite(values: &ArrayRef, expected: bool) -> ArrayRef {
    let numbers: Option<Float64Array> = values
        .data_type()
        .is_floating()
        .then(|| cast(values, &DataType::Float64).ok().map(|numbers| numbers.as_primitive().clone()))
        .flatten();
    let answer = |row: usize| match &numbers {
        Some(numbers) if expected => numbers.value(row).is_infinite(),
        Some(numbers) => numbers.value(row).is_finite(),
        None => !expected,
    };
    booleans((0..values.len()).map(|row| values.is_valid(row).then(|| answer(row))))
}

/// Returns the number of set bits in bytes or integers. A negative integer has the bits of its two's complement at the
/// width of its type.
fn bit_count(values: &[ArrayRef]) -> Result<ArrayRef> {
    if let Some(bytes) = values[0].as_any().downcast_ref::<BinaryViewArray>() {
        let bits = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte.count_ones())).sum();
        return Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(bits)).collect::<Int64Array>()));
    }
    let unused_bits = match values[0].data_type() {
        DataType::Int8 => 56,
        DataType::Int16 => 48,
        DataType::Int32 => 32,
        DataType::Int64 | DataType::Null => 0,
        other => return exec_err!("bit_count of {other} is not supported"),
    };
    let numbers = cast(&values[0], &DataType::Int64)?;
    let bits = |number: i64| i64::from((number.cast_unsigned() << unused_bits).count_ones());
    Ok(Arc::new(numbers.as_primitive::<Int64Type>().unary::<_, Int64Type>(bits)))
}

/// Returns the number of arguments that are null, or that are not null, for each row.
fn counts(values: &[ArrayRef], of_nulls: bool) -> Result<ArrayRef> {
    // An array of the null type has no bitmap, but its values are null.
    let nulls: Vec<_> = values.iter().map(|array| array.logical_nulls()).collect();
    let is_null = |nulls: &Option<NullBuffer>, row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let count = |row: usize| nulls.iter().filter(|nulls| is_null(nulls, row) == of_nulls).count() as i32;
    integers((0..values[0].len()).map(|row| Ok(Some(count(row)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_postgresql() {
        for (operand, low, high, count, expected) in [
            (5.35, 0.024, 10.06, 5, 3),
            (0.0, 1.0, 10.0, 5, 0),
            (10.0, 1.0, 10.0, 5, 6),
            (5.0, 10.0, 1.0, 5, 3),
            (11.0, 10.0, 0.0, 5, 0),
            (1.0, f64::MIN, f64::MAX, 4, 3),
        ] {
            assert_eq!(bucket(operand, low, high, count).unwrap(), expected, "{operand}");
        }
        let exact = |operand: i128, low: i128, high: i128, count| {
            exact_bucket(i256::from_i128(operand), i256::from_i128(low), i256::from_i128(high), count).unwrap()
        };
        assert_eq!((exact(29, 0, 100, 100), exact(100, 100, 0, 5), exact(0, 100, 0, 5)), (30, 1, 6));
        assert!(bucket(f64::NAN, 0.0, 1.0, 1).is_err() && bucket(1.0, 1.0, 1.0, 1).is_err());
    }
}
