//! Datums in the form that storage compares: a number of up to 128 bits, or bytes.
//!
//! Each type of fixed width maps one to one to integers in the order of its values. One set of encodings, zone maps and
//! predicates therefore serves all of these types. Floating point maps by IEEE 754 total order (-NaN < -infinity < ...
//! < -0.0 < 0.0 < ... < infinity < NaN), which Arrow uses too.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray, new_null_array};
use serde::{Deserialize, Serialize};

use crate::LogicalType;

/// A datum that is not null, in the form in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Datum {
    /// Booleans (0, 1), integers, unscaled decimals, days, microseconds, and floating point mapped by total order.
    Number(i128),
    /// UTF-8 text, or bytes.
    Bytes(Box<[u8]>),
}

impl Datum {
    /// The number, or `None` for bytes.
    pub fn number(&self) -> Option<i128> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bytes(_) => None,
        }
    }

    /// The bytes, or `None` for a number.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Number(_) => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// Numbers that SQL considers equal to `number`: only `number` itself, or both zeros if it is a zero of floating
/// point.
pub fn equal_numbers(number: i128, logical: LogicalType) -> RangeInclusive<i128> {
    /// In total order -0.0 comes right before 0.0.
    const ZEROS: RangeInclusive<i128> = -1..=0;
    let is_floating = matches!(logical, LogicalType::Real | LogicalType::Double);
    if is_floating && ZEROS.contains(&number) { ZEROS } else { number..=number }
}

/// Maps a double to a 64-bit integer in total order. [`f64_from_ordered`] is the inverse.
#[inline]
pub fn f64_to_ordered(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Inverse of [`f64_to_ordered`], bit for bit.
#[inline]
pub fn f64_from_ordered(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ (((ordered >> 63) as u64) >> 1) as i64) as u64)
}

/// Maps a real to a 32-bit integer in total order. [`f32_from_ordered`] is the inverse.
#[inline]
pub fn f32_to_ordered(value: f32) -> i32 {
    let bits = value.to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Inverse of [`f32_to_ordered`], bit for bit.
#[inline]
pub fn f32_from_ordered(ordered: i32) -> f32 {
    f32::from_bits((ordered ^ (((ordered >> 31) as u32) >> 1) as i32) as u32)
}

/// Datum in one row of an array that has the Arrow type of `logical`, or `None` if the row is null.
///
/// # Panics
/// If the array does not have the Arrow type of `logical`, or the row is out of bounds.
pub fn datum_at(array: &ArrayRef, logical: LogicalType, row: usize) -> Option<Datum> {
    if array.is_null(row) {
        return None;
    }
    let number = match logical {
        LogicalType::Boolean => i128::from(array.as_boolean().value(row)),
        LogicalType::SmallInt => i128::from(array.as_primitive::<Int16Type>().value(row)),
        LogicalType::Integer => i128::from(array.as_primitive::<Int32Type>().value(row)),
        LogicalType::BigInt => i128::from(array.as_primitive::<Int64Type>().value(row)),
        LogicalType::Real => i128::from(f32_to_ordered(array.as_primitive::<Float32Type>().value(row))),
        LogicalType::Double => i128::from(f64_to_ordered(array.as_primitive::<Float64Type>().value(row))),
        LogicalType::Decimal { .. } => array.as_primitive::<Decimal128Type>().value(row),
        LogicalType::Date => i128::from(array.as_primitive::<Date32Type>().value(row)),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            i128::from(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        LogicalType::Varchar => return Some(Datum::Bytes(array.as_string_view().value(row).as_bytes().into())),
        LogicalType::Bytea => return Some(Datum::Bytes(array.as_binary_view().value(row).into())),
    };
    Some(Datum::Number(number))
}

/// Array of one row with a datum, or null, in the Arrow type of `logical`. Inverse of [`datum_at`]. Returns `None` if
/// the datum is not a value of the type.
pub fn array_of_datum(datum: Option<&Datum>, logical: LogicalType) -> Option<ArrayRef> {
    let Some(datum) = datum else { return Some(new_null_array(&logical.arrow(), 1)) };
    let number = datum.number();
    let array: ArrayRef = match logical {
        LogicalType::Boolean => Arc::new(BooleanArray::from(vec![match number? {
            0 => false,
            1 => true,
            _ => return None,
        }])),
        LogicalType::SmallInt => primitive_array::<Int16Type>(number?.try_into().ok()?, logical),
        LogicalType::Integer => primitive_array::<Int32Type>(number?.try_into().ok()?, logical),
        LogicalType::BigInt => primitive_array::<Int64Type>(number?.try_into().ok()?, logical),
        LogicalType::Real => primitive_array::<Float32Type>(f32_from_ordered(number?.try_into().ok()?), logical),
        LogicalType::Double => primitive_array::<Float64Type>(f64_from_ordered(number?.try_into().ok()?), logical),
        LogicalType::Decimal { precision, .. } => {
            let is_too_long = number?.unsigned_abs() >= 10_u128.checked_pow(precision.into())?;
            primitive_array::<Decimal128Type>(number.filter(|_| !is_too_long)?, logical)
        }
        LogicalType::Date => primitive_array::<Date32Type>(number?.try_into().ok()?, logical),
        LogicalType::Timestamp | LogicalType::TimestampTz => {
            primitive_array::<TimestampMicrosecondType>(number?.try_into().ok()?, logical)
        }
        LogicalType::Varchar => Arc::new(StringViewArray::from(vec![std::str::from_utf8(datum.bytes()?).ok()?])),
        LogicalType::Bytea => Arc::new(BinaryViewArray::from(vec![datum.bytes()?])),
    };
    Some(array)
}

fn primitive_array<T: ArrowPrimitiveType>(value: T::Native, logical: LogicalType) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values([value]).with_data_type(logical.arrow()))
}

/// A datum as readable text: decimals with a decimal point, dates as `2024-02-29`, bytes as `\x00ff`.
pub fn datum_text(datum: &Datum, logical: LogicalType) -> String {
    match (datum, logical) {
        (Datum::Bytes(bytes), LogicalType::Bytea) => {
            bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
        }
        (Datum::Bytes(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (Datum::Number(number), LogicalType::Boolean) => (*number != 0).to_string(),
        (Datum::Number(number), LogicalType::Real) => f32_from_ordered(*number as i32).to_string(),
        (Datum::Number(number), LogicalType::Double) => f64_from_ordered(*number as i64).to_string(),
        (Datum::Number(number), LogicalType::Decimal { scale, .. }) => decimal_text(*number, scale as usize),
        (Datum::Number(number), LogicalType::Date) => date_text(*number as i64),
        (Datum::Number(number), LogicalType::Timestamp) => timestamp_text(*number as i64),
        (Datum::Number(number), LogicalType::TimestampTz) => timestamp_text(*number as i64) + "Z",
        (Datum::Number(number), _) => number.to_string(),
    }
}

fn decimal_text(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Date of the proleptic Gregorian calendar for days since 1970-01-01. Counts eras of 400 years from March 1st.
fn date_text(days: i64) -> String {
    const DAYS_PER_ERA: i64 = 146_097;
    const DAYS_TO_EPOCH: i64 = 719_468;
    let shifted = days + DAYS_TO_EPOCH;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn timestamp_text(microseconds: i64) -> String {
    const PER_DAY: i64 = 86_400_000_000;
    let (day, rest) = (microseconds.div_euclid(PER_DAY), microseconds.rem_euclid(PER_DAY));
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    format!("{} {clock}{fraction}", date_text(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_integers_keep_the_total_order_and_round_trip() {
        let ordered = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 1.5, f64::INFINITY, f64::NAN];
        for pair in ordered.windows(2) {
            assert!(f64_to_ordered(pair[0]) < f64_to_ordered(pair[1]), "{pair:?}");
            assert!(f32_to_ordered(pair[0] as f32) <= f32_to_ordered(pair[1] as f32), "{pair:?}");
        }
        for value in ordered {
            assert_eq!(f64_from_ordered(f64_to_ordered(value)).to_bits(), value.to_bits());
            assert_eq!(f32_from_ordered(f32_to_ordered(value as f32)).to_bits(), (value as f32).to_bits());
        }
    }

    #[test]
    fn arrays_of_datums_round_trip() {
        let numbers = [0, 1, -1, 7, i128::from(i16::MAX), i128::from(i32::MAX), i128::from(i64::MAX)];
        let decimal = |precision| LogicalType::Decimal { precision, scale: 2 };
        for logical in [
            LogicalType::Boolean,
            LogicalType::SmallInt,
            LogicalType::Integer,
            LogicalType::BigInt,
            LogicalType::Real,
            LogicalType::Double,
            decimal(4),
            decimal(38),
            LogicalType::Date,
            LogicalType::Timestamp,
            LogicalType::TimestampTz,
        ] {
            assert!(array_of_datum(Some(&Datum::Bytes([1].into())), logical).is_none());
            assert!(array_of_datum(Some(&Datum::Number(i128::MAX)), logical).is_none());
            assert!(array_of_datum(None, logical).unwrap().is_null(0));
            let mut arrays = 0;
            for datum in numbers.map(Datum::Number) {
                let Some(array) = array_of_datum(Some(&datum), logical) else { continue };
                assert_eq!((array.data_type(), array.len()), (&logical.arrow(), 1));
                assert_eq!(datum_at(&array, logical, 0), Some(datum));
                arrays += 1;
            }
            assert!(arrays > 1, "{logical}");
        }
        assert!(array_of_datum(Some(&Datum::Number(10_000)), decimal(4)).is_none());
        assert!(array_of_datum(Some(&Datum::Number(9_999)), decimal(4)).is_some());
        for logical in [LogicalType::Varchar, LogicalType::Bytea] {
            let datum = Datum::Bytes("é, and more than twelve bytes".as_bytes().into());
            assert_eq!(datum_at(&array_of_datum(Some(&datum), logical).unwrap(), logical, 0), Some(datum));
            assert!(array_of_datum(Some(&Datum::Number(1)), logical).is_none());
        }
        assert!(array_of_datum(Some(&Datum::Bytes([255].into())), LogicalType::Varchar).is_none());
    }

    #[test]
    fn datums_are_readable() {
        let text = |number, logical| datum_text(&Datum::Number(number), logical);
        assert_eq!(text(-5, LogicalType::Decimal { precision: 4, scale: 2 }), "-0.05");
        assert_eq!(text(0, LogicalType::Date), "1970-01-01");
        assert_eq!(text(19_782, LogicalType::Date), "2024-02-29");
        assert_eq!(text(-1, LogicalType::Date), "1969-12-31");
        assert_eq!(text(-1, LogicalType::Timestamp), "1969-12-31 23:59:59.999999");
        assert_eq!(datum_text(&Datum::Bytes([0, 255].into()), LogicalType::Bytea), "\\x00ff");
    }
}
