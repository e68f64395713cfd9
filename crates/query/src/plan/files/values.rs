//! Converts the texts of a column to values of a type. Most texts have the simplest format of their type and are parsed
//! here. If one has another format, the casts of statements convert the column.

use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, PrimitiveArray, StringArray,
};
use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use datafusion::arrow::error::ArrowError;

use crate::expressions::parse_float;
use crate::write::coerce::exact_cast;

/// Reads texts as values of a type.
///
/// # Errors
/// If a text is not a value of the type.
pub(super) fn read_values(texts: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    if texts.data_type() == data_type {
        return Ok(Arc::clone(texts));
    }
    let plain = match (texts.as_string_opt::<i32>(), data_type) {
        (Some(texts), DataType::Int16) => parsed::<Int16Type>(texts),
        (Some(texts), DataType::Int32) => parsed::<Int32Type>(texts),
        (Some(texts), DataType::Int64) => parsed::<Int64Type>(texts),
        (Some(texts), DataType::Float32) => floats::<Float32Type>(texts),
        (Some(texts), DataType::Float64) => floats::<Float64Type>(texts),
        (Some(texts), DataType::Decimal128(precision, scale)) => decimals(texts, *precision, *scale),
        _ => None,
    };
    plain.map_or_else(|| exact_cast(texts, data_type), Ok)
}

fn parsed<T: ArrowPrimitiveType + Parser>(texts: &StringArray) -> Option<ArrayRef> {
    let values = all(texts, T::parse)?;
    Some(Arc::new(PrimitiveArray::<T>::new(values.into(), texts.nulls().cloned())))
}

fn floats<T>(texts: &StringArray) -> Option<ArrayRef>
where
    T: ArrowPrimitiveType<Native: FromStr + Copy + Into<f64>>,
{
    let values = all(texts, |text| parse_float(text).ok())?;
    Some(Arc::new(PrimitiveArray::<T>::new(values.into(), texts.nulls().cloned())))
}

fn decimals(texts: &StringArray, precision: u8, scale: i8) -> Option<ArrayRef> {
    let scale_digits = usize::try_from(scale).ok()?;
    let values = all(texts, |text| decimal(text.as_bytes(), precision.into(), scale_digits))?;
    let decimals = Decimal128Array::new(values.into(), texts.nulls().cloned());
    Some(Arc::new(decimals.with_precision_and_scale(precision, scale).ok()?))
}

/// Parses all texts that are not null. `None` if one of them cannot be parsed.
fn all<N: Default>(texts: &StringArray, parse: impl Fn(&str) -> Option<N>) -> Option<Vec<N>> {
    let value = |row: usize| if texts.is_null(row) { Some(N::default()) } else { parse(texts.value(row)) };
    (0..texts.len()).map(value).collect()
}

/// Parses a decimal without exponent, whose digits need no rounding.
fn decimal(text: &[u8], precision: usize, scale: usize) -> Option<i128> {
    /// Number of digits that fit in 64 bits.
    const NARROW_DIGITS: usize = 18;
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&digits[..point], &digits[point + 1..]),
        None => (digits, &[][..]),
    };
    let zeros = scale.checked_sub(fraction.len())?;
    if whole.is_empty() || whole.len() + scale > precision.min(NARROW_DIGITS) {
        return None;
    }
    let step = |number: i64, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'));
    let number = whole.iter().chain(fraction).try_fold(0, step)? * 10_i64.pow(zeros as u32);
    Some(i128::from(if is_negative { -number } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_forms_are_those_of_casts() {
        let types = [
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(5, 2),
            DataType::Decimal128(38, 10),
            DataType::Decimal128(4, 0),
        ];
        let texts = [
            "0",
            "-1",
            "32767",
            "32768",
            "1.5",
            "-0.01",
            "1.005",
            "999.99",
            "999.995",
            "1000",
            "1000.00",
            "+1",
            " 1 ",
            "",
            ".5",
            "5.",
            "-",
            "-.",
            "1e2",
            "1.5x",
            "1e50",
            "1e400",
            "1e-400",
            "NaN",
            "-Infinity",
            "12345678901234567890",
            "00012",
            "1_0",
            "-0",
        ];
        for data_type in &types {
            for text in texts {
                let array: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
                let cast = exact_cast(&array, data_type).ok();
                assert_eq!(read_values(&array, data_type).ok(), cast, "{text:?} as {data_type}");
            }
        }
    }
}
