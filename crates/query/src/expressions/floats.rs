//! Casts between text and floating-point numbers, in PostgreSQL's formats. DataFusion reads a number that is out of
//! range as infinity or zero, and writes `1.0` and `inf`. Here, casts to text write:
//!
//! ```text
//!   1   0.0001   1e-05   1e+15   Infinity   -Infinity   NaN
//! ```

use std::fmt::{LowerExp, Write};
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;

use super::arithmetic::float_error;
use super::dates::is_text;

/// Whether a type is a floating-point type.
pub fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Whether a cast between two types reads or writes the text of a floating-point number.
pub(super) fn is_float_cast(from: &DataType, target: &DataType) -> bool {
    (is_text(from) && is_float(target)) || (is_float(from) && is_text(target))
}

/// Error of [`parse_float`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseFloatError {
    /// The text is not a number.
    Syntax,
    /// The number overflows or underflows the type.
    OutOfRange,
}

/// Parses a floating-point number of the type `N`, `f32` or `f64`. Ignores surrounding whitespace.
///
/// # Errors
/// If the text is not a number, or the number overflows or underflows the type.
pub fn parse_float<N: FromStr + Copy + Into<f64>>(text: &str) -> Result<N, ParseFloatError> {
    let text = text.trim_matches(|space: char| space.is_ascii_whitespace() || space == '\x0b');
    let number: N = text.parse().map_err(|_| ParseFloatError::Syntax)?;
    let wide: f64 = number.into();
    // Infinity without digits comes from a name such as `inf`, not from an overflow.
    let is_too_large = || wide.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit());
    let is_too_small = || wide == 0.0 && has_digits_but_zero(text);
    if is_too_large() || is_too_small() { Err(ParseFloatError::OutOfRange) } else { Ok(number) }
}

/// Whether the digits before the exponent of a number are not all zero.
fn has_digits_but_zero(text: &str) -> bool {
    text.bytes().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e')).any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Parses strings as floating-point numbers of the type `target`, `Float32` or `Float64`. With `is_try`, a string that
/// is not a number of the type becomes null.
///
/// # Errors
/// If a string is not a number of the type, unless `is_try`.
pub fn read(texts: &ArrayRef, target: &DataType, is_try: bool) -> Result<ArrayRef, ArrowError> {
    match target {
        DataType::Float32 => read_as::<Float32Type>(texts, is_try),
        _ => read_as::<Float64Type>(texts, is_try),
    }
}

fn read_as<T>(texts: &ArrayRef, is_try: bool) -> Result<ArrayRef, ArrowError>
where
    T: ArrowPrimitiveType<Native: FromStr + Copy + Into<f64>>,
{
    let texts = cast(texts, &DataType::Utf8View)?;
    let number = |text: Option<&str>| match text.map(|text| (text, parse_float(text))) {
        None => Ok(None),
        Some((_, Ok(number))) => Ok(Some(number)),
        Some(_) if is_try => Ok(None),
        Some((text, Err(error))) => Err(text_error(text, &T::DATA_TYPE, error)),
    };
    let numbers = texts.as_string_view().iter().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(numbers)))
}

fn text_error(text: &str, target: &DataType, error: ParseFloatError) -> ArrowError {
    let name = if *target == DataType::Float32 { "real" } else { "double precision" };
    match error {
        // This is Arrow's wording, which maps to SQLSTATE 22P02, invalid text representation.
        ParseFloatError::Syntax => {
            ArrowError::CastError(format!("Cannot cast string '{text}' to value of {target} type"))
        }
        ParseFloatError::OutOfRange => {
            ArrowError::ArithmeticOverflow(format!("\"{text}\" is out of range for type {name}"))
        }
    }
}

/// Writes floating-point numbers as text: the shortest digits that parse to the same number. PostgreSQL writes one more
/// digit if the shortest digits are exactly halfway between two numbers. `target` is the string type of the result.
///
/// # Errors
/// If the strings exceed the size limit of an array of the type `target`.
pub(super) fn write(numbers: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let texts: ArrayRef = match numbers.data_type() {
        DataType::Float32 => write_as::<Float32Type>(numbers.as_primitive(), FLOAT32_DIGITS),
        _ => write_as::<Float64Type>(numbers.as_primitive(), FLOAT64_DIGITS),
    };
    cast(&texts, target)
}

/// Number of decimal digits that a conversion to `real` and back preserves. A number with more integer digits is
/// written with an exponent.
const FLOAT32_DIGITS: i32 = 6;
/// Like [`FLOAT32_DIGITS`], for double precision.
const FLOAT64_DIGITS: i32 = 15;

fn write_as<T>(numbers: &PrimitiveArray<T>, digits: i32) -> ArrayRef
where
    T: ArrowPrimitiveType<Native: LowerExp + Copy + Into<f64>>,
{
    let mut texts = StringViewBuilder::with_capacity(numbers.len());
    let (mut text, mut scratch) = (String::new(), String::new());
    for number in numbers {
        let Some(number) = number else {
            texts.append_null();
            continue;
        };
        text.clear();
        scratch.clear();
        push_number(number, digits, &mut scratch, &mut text);
        texts.append_value(&text);
    }
    Arc::new(texts.finish())
}

fn push_number<N: LowerExp + Copy + Into<f64>>(number: N, digits_max: i32, scratch: &mut String, text: &mut String) {
    /// Minimum decimal exponent of a number that is written without an exponent.
    const EXPONENT_MIN: i32 = -4;
    let wide: f64 = number.into();
    if !wide.is_finite() {
        text.push_str(if wide.is_nan() {
            "NaN"
        } else if wide < 0.0 {
            "-Infinity"
        } else {
            "Infinity"
        });
        return;
    }
    // Writing to a string does not fail.
    let _ = write!(scratch, "{number:e}");
    let (mantissa, exponent) = scratch.split_once('e').unwrap_or((scratch, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(EXPONENT_MIN..digits_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    text.push_str(&mantissa[..mantissa.len() - unsigned.len()]);
    let digits = || unsigned.chars().filter(|digit| *digit != '.');
    if exponent < 0 {
        text.push_str("0.");
        text.extend((1..-exponent).map(|_| '0').chain(digits()));
        return;
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    text.extend(digits().chain(std::iter::repeat('0')).take(whole));
    if digits().nth(whole).is_some() {
        text.push('.');
        text.extend(digits().skip(whole));
    }
}

/// Returns an error if a number overflowed or underflowed in the cast of `doubles` to `reals`, arrays of equal length.
/// Returns `None` if none did.
pub fn narrowing_error(
    doubles: &PrimitiveArray<Float64Type>,
    reals: &PrimitiveArray<Float32Type>,
) -> Option<ArrowError> {
    // Most batches have no zero and no infinity. One pass without branches checks that.
    let is_suspect = |real: &f32| *real == 0.0 || real.is_infinite();
    if !reals.values().iter().fold(false, |any, real| any | is_suspect(real)) {
        return None;
    }
    (0..reals.len()).filter(|row| reals.is_valid(*row)).find_map(|row| {
        let (double, real) = (doubles.value(row), reals.value(row));
        float_error(real.is_infinite() && double.is_finite(), real == 0.0 && double != 0.0)
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float32Array, Float64Array, StringArray};

    use super::*;

    #[test]
    fn numbers_out_of_range_are_not_read() {
        use ParseFloatError::{OutOfRange, Syntax};
        for (text, expected) in [
            ("1e308", Ok(1e308)),
            ("1e309", Err(OutOfRange)),
            ("-1e400", Err(OutOfRange)),
            ("5e-324", Ok(5e-324)),
            ("1e-400", Err(OutOfRange)),
            ("-.0001e-400", Err(OutOfRange)),
            ("0e-400", Ok(0.0)),
            ("-0.00e999", Ok(0.0)),
            ("Infinity", Ok(f64::INFINITY)),
            ("-INF", Ok(f64::NEG_INFINITY)),
            (" \t1.5\n", Ok(1.5)),
            ("", Err(Syntax)),
            ("1 2", Err(Syntax)),
            ("infinite", Err(Syntax)),
        ] {
            assert_eq!(parse_float::<f64>(text), expected, "{text:?}");
        }
        assert_eq!(parse_float::<f32>("1e-45"), Ok(1e-45));
        assert_eq!(parse_float::<f32>("1e-46"), Err(OutOfRange));
        assert_eq!(parse_float::<f32>("3.5e38"), Err(OutOfRange));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("1e400"), None, Some("2"), Some("x")]));
        let tried = read(&texts, &DataType::Float64, true).unwrap();
        assert_eq!(tried.as_primitive::<Float64Type>(), &Float64Array::from(vec![None, None, Some(2.0), None]));
        let error = read(&texts, &DataType::Float64, false).unwrap_err().to_string();
        assert!(error.contains("\"1e400\" is out of range for type double precision"), "{error}");
    }

    #[test]
    fn numbers_are_written_as_in_postgresql() {
        let doubles = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1234.5, "-1234.5"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1e+15"),
            (-1.5e20, "-1.5e+20"),
            (0.0001, "0.0001"),
            (-0.000_123, "-0.000123"),
            (0.000_01, "1e-05"),
            (1.5e-300, "1.5e-300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        let numbers: ArrayRef = Arc::new(Float64Array::from_iter_values(doubles.map(|(number, _)| number)));
        let texts = write(&numbers, &DataType::Utf8).unwrap();
        assert_eq!(texts.as_string::<i32>(), &StringArray::from(doubles.map(|(_, text)| text).to_vec()));
        let reals: ArrayRef = Arc::new(Float32Array::from(vec![Some(0.1), Some(100_000.0), Some(1e6), None]));
        let texts = write(&reals, &DataType::Utf8).unwrap();
        let expected = StringArray::from(vec![Some("0.1"), Some("100000"), Some("1e+06"), None]);
        assert_eq!(texts.as_string::<i32>(), &expected);
    }
}
