//! `RANGE` frames with an offset, such as `ORDER BY k RANGE 3 PRECEDING`.
//!
//! DataFusion adds the offset to the key in the type of the key. If that overflows, it uses the end of the partition,
//! which may contain nulls. Therefore a key is cast to a type in which the sum fits, and an offset is limited to more
//! than the distance of any two keys:
//!
//! | key | is cast to |
//! |---|---|
//! | smallint, integer | bigint |
//! | bigint | a decimal of 38 digits |
//! | decimal of 38 digits | a decimal of 76 digits |
//! | real | double precision |
//! | date, if an offset has hours | timestamp |
//!
//! An offset of an integer or a decimal is rounded to the digits of the key, in the direction that keeps the frame.
//!
//! A frame that ends before it starts has no rows, but the frame of a null consists of the nulls. DataFusion refuses
//! such a frame. It becomes a frame beyond all keys.

use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, TimeUnit, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, not_impl_err};
use datafusion::logical_expr::expr::WindowFunctionParams;
use datafusion::logical_expr::{Expr, ExprSchemable, WindowFrame, WindowFrameBound, cast, lit, when};

use super::interval_offsets::{self, BoundOrder};
use super::with_offset;
use crate::expressions::{name_in_postgres, parse_float};

/// Digits of the largest decimals of Arrow.
const DIGITS_MAX: u8 = 76;

/// Casts the key and replaces the offsets of a `RANGE` frame. Returns whether it changed the window.
///
/// # Errors
/// If the key or an offset has no suitable type, or an offset is negative.
pub(super) fn replace(params: &mut WindowFunctionParams, schema: &DFSchema, config: &ConfigOptions) -> Result<bool> {
    let [key] = params.order_by.as_mut_slice() else { return Ok(false) };
    let frame = &params.window_frame;
    if offset_of(&frame.start_bound).or(offset_of(&frame.end_bound)).is_none() {
        return Ok(false);
    }
    let data_type = key.expr.get_type(schema)?;
    let (expression, frame) = replaced(frame, &key.expr, &data_type, config)?;
    key.expr = expression;
    params.window_frame = frame;
    Ok(true)
}

fn offset_of(bound: &WindowFrameBound) -> Option<&ScalarValue> {
    match bound {
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => {
            Some(offset).filter(|offset| !offset.is_null())
        }
        WindowFrameBound::CurrentRow => None,
    }
}

/// Returns the key and the frame for a key of some type.
fn replaced(
    frame: &WindowFrame,
    key: &Expr,
    data_type: &DataType,
    config: &ConfigOptions,
) -> Result<(Expr, WindowFrame)> {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => {
            let limit = i256::from_i128(1 << 33);
            let frame = exact_frame(frame, data_type, 0, limit, |offset| {
                ScalarValue::Int64(offset.to_i128().and_then(|offset| i64::try_from(offset).ok()))
            })?;
            Ok((cast(key.clone(), DataType::Int64), frame))
        }
        DataType::Int64 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            let limit = i256::from_i128(1 << 65);
            let frame = exact_frame(frame, data_type, 0, limit, |offset| decimal(offset, 0))?;
            Ok((cast(key.clone(), DataType::Decimal128(Decimal128Type::MAX_PRECISION, 0)), frame))
        }
        // A sum of 38 digits and a few more fits in the 128 bits of such a decimal.
        DataType::Decimal128(precision, scale) if *precision < Decimal128Type::MAX_PRECISION => {
            let limit = i256::from_i128(2 * 10_i128.pow(u32::from(*precision)));
            Ok((key.clone(), exact_frame(frame, data_type, *scale, limit, |offset| decimal(offset, *scale))?))
        }
        DataType::Decimal128(precision, scale) => {
            let limit = i256::from_i128(10_i128.pow(u32::from(*precision))) + i256::from_i128(10_i128.pow(38));
            let frame = exact_frame(frame, data_type, *scale, limit, |offset| {
                ScalarValue::Decimal256(Some(offset), DIGITS_MAX, *scale)
            })?;
            Ok((cast(key.clone(), DataType::Decimal256(DIGITS_MAX, *scale)), frame))
        }
        DataType::Float32 | DataType::Float64 => float_frame(frame, key, data_type),
        DataType::Date32 | DataType::Timestamp(..) => interval_frame(frame, key, data_type, config),
        _ => not_impl_err!(
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
            name_in_postgres(data_type)
        ),
    }
}

fn decimal(offset: i256, scale: i8) -> ScalarValue {
    ScalarValue::Decimal128(offset.to_i128(), Decimal128Type::MAX_PRECISION, scale)
}

/// Frame over an integer or decimal key of some scale. No two keys are as far apart as `limit`.
fn exact_frame(
    frame: &WindowFrame,
    data_type: &DataType,
    scale: i8,
    limit: i256,
    value: impl Fn(i256) -> ScalarValue,
) -> Result<WindowFrame> {
    let offset = |bound: &WindowFrameBound, rounds_up: bool| match offset_of(bound) {
        Some(offset) => exact_offset(offset, data_type, scale, rounds_up).map(|offset| Some(offset.min(limit))),
        None => Ok(None),
    };
    let WindowFrame { units, start_bound, end_bound, .. } = frame;
    let mut start = offset(start_bound, matches!(start_bound, WindowFrameBound::Following(_)))?;
    let mut end = offset(end_bound, matches!(end_bound, WindowFrameBound::Preceding(_)))?;
    let is_empty = match (start_bound, end_bound) {
        (WindowFrameBound::Preceding(_), WindowFrameBound::Preceding(_)) => start.is_some() && start < end,
        (WindowFrameBound::Following(_), WindowFrameBound::Following(_)) => end.is_some() && start > end,
        _ => false,
    };
    if is_empty {
        (start, end) = (Some(limit), Some(limit));
    }
    let bound = |bound: &WindowFrameBound, offset: Option<i256>| match offset {
        Some(offset) => with_offset(bound, value(offset)),
        None => bound.clone(),
    };
    Ok(WindowFrame::new_bounds(*units, bound(start_bound, start), bound(end_bound, end)))
}

/// Offset as a number of units of the last digit of the key.
fn exact_offset(offset: &ScalarValue, data_type: &DataType, scale: i8, rounds_up: bool) -> Result<i256> {
    use ScalarValue::{Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View};
    let is_decimal = data_type.is_decimal();
    let text = match offset {
        Utf8(Some(text)) | Utf8View(Some(text)) => text.trim().to_owned(),
        Int8(_) | Int16(_) | Int32(_) | Int64(_) | UInt8(_) | UInt16(_) | UInt32(_) | UInt64(_) => offset.to_string(),
        ScalarValue::Decimal128(Some(unscaled), precision, scale) if is_decimal => {
            Decimal128Type::format_decimal(*unscaled, *precision, *scale)
        }
        // A number with an exponent, such as 1e30, is a decimal in PostgreSQL.
        Float64(Some(number)) if is_decimal => number.to_string(),
        other => return refused(data_type, other),
    };
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = digits.len() > usize::from(digits.contains('.'))
        && [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number {
        let infinite = is_decimal && parse_float::<f64>(digits).is_ok_and(|number| number == f64::INFINITY);
        return match infinite {
            true if is_negative => negative(),
            true => Ok(i256::MAX),
            false => not_a_value(&text, data_type),
        };
    }
    if !is_decimal && digits.parse::<i64>().is_err() {
        return refused(data_type, offset);
    }
    let (kept, dropped) = fraction.split_at(fraction.len().min(usize::try_from(scale).unwrap_or(0)));
    let zeros = usize::try_from(scale).unwrap_or(0) - kept.len();
    let has_rest = dropped.bytes().any(|digit| digit != b'0');
    // An offset with more digits than 256 bits hold is larger than all distances of keys.
    let unscaled = i256::from_string(&format!("0{whole}{kept}{}", "0".repeat(zeros))).unwrap_or(i256::MAX);
    if is_negative && (unscaled != i256::ZERO || has_rest) {
        return negative();
    }
    let rounds_up = rounds_up && has_rest && unscaled != i256::MAX;
    Ok(if rounds_up { unscaled + i256::ONE } else { unscaled })
}

/// Frame over a floating-point key.
fn float_frame(frame: &WindowFrame, key: &Expr, data_type: &DataType) -> Result<(Expr, WindowFrame)> {
    let offset = |bound: &WindowFrameBound| match offset_of(bound) {
        Some(offset) => float_offset(offset, data_type).map(Some),
        None => Ok(None),
    };
    let WindowFrame { units, start_bound, end_bound, .. } = frame;
    let (mut start, mut end) = (offset(start_bound)?, offset(end_bound)?);
    let is_empty = match (start_bound, end_bound) {
        (WindowFrameBound::Preceding(_), WindowFrameBound::Preceding(_)) => start.is_some() && start < end,
        (WindowFrameBound::Following(_), WindowFrameBound::Following(_)) => end.is_some() && start > end,
        _ => false,
    };
    if is_empty {
        // Beyond all finite keys. The frame of infinity or NaN consists of its peers.
        (start, end) = (Some(f64::MAX), Some(f64::MAX));
    }
    let infinite = Some(f64::INFINITY);
    if (matches!(start_bound, WindowFrameBound::Following(_)) && start == infinite)
        || (matches!(end_bound, WindowFrameBound::Preceding(_)) && end == infinite)
    {
        return not_impl_err!(
            "a RANGE frame that starts Infinity FOLLOWING or ends Infinity PRECEDING is not supported"
        );
    }
    let mut wide = match data_type {
        DataType::Float32 => cast(key.clone(), DataType::Float64),
        _ => key.clone(),
    };
    if [start, end].contains(&infinite) {
        // The sum of an infinite offset and the opposite infinity is not a number, but its frame has all numbers.
        let finite = when(wide.clone().eq(lit(f64::INFINITY)), lit(f64::MAX))
            .when(wide.clone().eq(lit(f64::NEG_INFINITY)), lit(f64::MIN))
            .otherwise(wide)?;
        wide = finite;
    }
    let bound = |bound: &WindowFrameBound, offset: Option<f64>| match offset {
        Some(offset) => with_offset(bound, ScalarValue::Float64(Some(offset))),
        None => bound.clone(),
    };
    Ok((wide, WindowFrame::new_bounds(*units, bound(start_bound, start), bound(end_bound, end))))
}

fn float_offset(offset: &ScalarValue, data_type: &DataType) -> Result<f64> {
    let number = match offset {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => parse_float::<f64>(text).ok(),
        number if number.data_type().is_numeric() => match number.cast_to(&DataType::Float64)? {
            ScalarValue::Float64(number) => number,
            _ => None,
        },
        other => return refused(data_type, other),
    };
    match number {
        Some(number) if number >= 0.0 => Ok(number),
        Some(_) => negative(),
        None => not_a_value(&offset.to_string(), &DataType::Float64),
    }
}

/// Frame over a date or a timestamp.
fn interval_frame(
    frame: &WindowFrame,
    key: &Expr,
    data_type: &DataType,
    config: &ConfigOptions,
) -> Result<(Expr, WindowFrame)> {
    let offset = |bound: &WindowFrameBound| match offset_of(bound) {
        Some(offset) => match interval_offsets::offset(offset, config)? {
            Some(interval) => Ok(Some(interval)),
            None => refused(data_type, offset),
        },
        None => Ok(None),
    };
    let WindowFrame { units, start_bound, end_bound, .. } = frame;
    let (start, end) = (offset(start_bound)?, offset(end_bound)?);
    if [start, end].iter().flatten().any(|offset| interval_offsets::is_negative(*offset)) {
        return negative();
    }
    match interval_offsets::order(start_bound, start, end_bound, end) {
        BoundOrder::Ascending => {}
        BoundOrder::Descending => {
            let numbers = cast(key.clone(), DataType::Int64);
            let empty = |bound: &WindowFrameBound| with_offset(bound, decimal(i256::from_i128(1 << 65), 0));
            let frame = WindowFrame::new_bounds(*units, empty(start_bound), empty(end_bound));
            return Ok((cast(numbers, DataType::Decimal128(Decimal128Type::MAX_PRECISION, 0)), frame));
        }
        BoundOrder::Varying => {
            return not_impl_err!(
                "a RANGE frame that ends before it starts for some months but not for others is not supported"
            );
        }
    }
    let has_hours = [start, end].iter().flatten().any(|offset| offset.nanoseconds != 0);
    let key = match data_type {
        DataType::Date32 if has_hours => cast(key.clone(), DataType::Timestamp(TimeUnit::Microsecond, None)),
        _ => key.clone(),
    };
    let bound = |bound: &WindowFrameBound, offset| match offset {
        Some(offset) => with_offset(bound, ScalarValue::IntervalMonthDayNano(Some(offset))),
        None => bound.clone(),
    };
    Ok((key, WindowFrame::new_bounds(*units, bound(start_bound, start), bound(end_bound, end))))
}

fn not_a_value<T>(text: &str, data_type: &DataType) -> Result<T> {
    Err(ArrowError::CastError(format!("Cannot cast string '{text}' to value of {data_type} type")).into())
}

fn negative<T>() -> Result<T> {
    exec_err!("invalid preceding or following size in window function")
}

fn refused<T>(key: &DataType, offset: &ScalarValue) -> Result<T> {
    let offset = match offset {
        // The number of a statement.
        ScalarValue::Utf8(Some(text)) if text.parse::<i32>().is_ok() => DataType::Int32,
        ScalarValue::Utf8(Some(text)) if text.parse::<i64>().is_ok() => DataType::Int64,
        ScalarValue::Utf8(_) => DataType::Decimal128(Decimal128Type::MAX_PRECISION, 0),
        other => other.data_type(),
    };
    not_impl_err!(
        "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and offset type {}",
        name_in_postgres(key),
        name_in_postgres(&offset)
    )
}
