//! Text of values in test files, and the letters for column types.
//!
//! | letter | columns | written |
//! |---|---|---|
//! | `B` | boolean | `true` `false` |
//! | `I` | integers | `-7` |
//! | `N` | decimals | `0.10`, with all digits of the scale |
//! | `R` | real, double | the shortest text that parses to the same number: `1.0` `1e300` `NaN` `inf` |
//! | `T` | text | the string itself; an empty string as `(empty)`; a line feed as `\n` |
//! | `D` `P` `Z` | date, timestamp, timestamp with zone | `2024-02-29` `2024-02-29 12:00:00.5` `... 12:00:00Z` |
//! | `X` | bytes | `\x00ff` |
//! | `?` | any type | as for the type of the column |
//!
//! A null is `NULL`. [`Style::Sqlite`] writes values as the corpora of SQLite expect them, depending on the letters
//! that a record expects.

use std::fmt::Write;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::ColumnType;

/// Type of a result column. Each variant has one letter in test files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `B`
    Boolean,
    /// `I`
    Integer,
    /// `N`
    Decimal,
    /// `R`
    Floating,
    /// `T`
    Text,
    /// `D`
    Date,
    /// `P`
    Timestamp,
    /// `Z`
    TimestampTz,
    /// `X`
    Bytes,
    /// `?`
    Any,
}

/// Text format of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// The format in the table at the top of this file.
    #[default]
    Taut,
    /// The format of the SQLite corpora: three decimals in `R` columns, whole numbers in `I` columns.
    Sqlite,
}

impl Kind {
    /// Returns the kind of an Arrow type.
    pub fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            data_type if data_type.is_integer() => Self::Integer,
            data_type if data_type.is_floating() => Self::Floating,
            data_type if data_type.is_decimal() => Self::Decimal,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Dictionary(_, values) => Self::of(values),
            DataType::Date32 => Self::Date,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Bytes,
            _ => Self::Any,
        }
    }
}

impl ColumnType for Kind {
    fn from_char(letter: char) -> Option<Self> {
        Some(match letter {
            'B' => Self::Boolean,
            'I' => Self::Integer,
            'N' => Self::Decimal,
            'R' => Self::Floating,
            'T' => Self::Text,
            'D' => Self::Date,
            'P' => Self::Timestamp,
            'Z' => Self::TimestampTz,
            'X' => Self::Bytes,
            '?' => Self::Any,
            _ => return None,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Self::Boolean => 'B',
            Self::Integer => 'I',
            Self::Decimal => 'N',
            Self::Floating => 'R',
            Self::Text => 'T',
            Self::Date => 'D',
            Self::Timestamp => 'P',
            Self::TimestampTz => 'Z',
            Self::Bytes => 'X',
            Self::Any => '?',
        }
    }
}

/// Whether the columns of a result match those that a record expects. `?` matches any column.
#[allow(clippy::ptr_arg)]
pub(crate) fn kinds_agree(actual: &Vec<Kind>, expected: &Vec<Kind>) -> bool {
    let agree = |(actual, expected): (&Kind, &Kind)| actual == expected || *expected == Kind::Any;
    actual.len() == expected.len() && actual.iter().zip(expected).all(agree)
}

/// Rows of a batch as text.
pub(crate) fn rows(batch: &RecordBatch, style: Style, expected: &[Kind]) -> Vec<Vec<String>> {
    let columns: Vec<Vec<String>> = batch
        .columns()
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let kind = expected.get(index).copied().unwrap_or(Kind::Any);
            (0..batch.num_rows()).map(|row| value(column.as_ref(), row, style, kind)).collect()
        })
        .collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect()
}

fn value(column: &dyn Array, row: usize, style: Style, expected: Kind) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    match style {
        Style::Taut => text(column, row),
        Style::Sqlite => sqlite(&text(column, row), expected),
    }
}

fn text(column: &dyn Array, row: usize) -> String {
    match column.data_type() {
        DataType::Float16 => format!("{:?}", f32::from(column.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => format!("{:?}", column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        DataType::Binary => bytes(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(column.as_binary_view().value(row)),
        _ => printed(column, row),
    }
}

fn bytes(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn printed(column: &dyn Array, row: usize) -> String {
    let options = FormatOptions::new()
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.fZ"));
    let text = match ArrayFormatter::try_new(column, &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => error.to_string(),
    };
    if text.is_empty() { "(empty)".to_owned() } else { text.replace('\n', "\\n") }
}

/// Converts text to the output of SQLite's test runner: `%d` for `I`, `%.3f` for `R`, and `@` for each unprintable
/// character.
fn sqlite(text: &str, expected: Kind) -> String {
    let number = match text {
        "true" => Some(1.0),
        "false" => Some(0.0),
        text => text.parse::<f64>().ok(),
    };
    match (expected, number) {
        (Kind::Integer, Some(_)) if text.parse::<i64>().is_ok() => text.to_owned(),
        (Kind::Integer, Some(number)) => format!("{:.0}", number.trunc()),
        (Kind::Floating, Some(number)) => format!("{number:.3}"),
        _ => text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '@' }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, Float64Array, StringArray, TimestampMicrosecondArray,
    };

    use super::*;

    fn texts(column: impl Array + 'static) -> Vec<String> {
        (0..column.len()).map(|row| value(&column, row, Style::Taut, Kind::Any)).collect()
    }

    #[test]
    fn values_have_the_documented_text() {
        assert_eq!(texts(BooleanArray::from(vec![Some(true), None])), ["true", "NULL"]);
        assert_eq!(texts(Float64Array::from(vec![1.0, 1e300, -0.5, f64::INFINITY])), ["1.0", "1e300", "-0.5", "inf"]);
        assert_eq!(texts(StringArray::from(vec!["", "a\nb"])), ["(empty)", "a\\nb"]);
        assert_eq!(texts(BinaryArray::from(vec![&[0, 255][..]])), ["\\x00ff"]);
        let decimals = Decimal128Array::from(vec![10, -5]).with_precision_and_scale(9, 2).unwrap();
        assert_eq!(texts(decimals), ["0.10", "-0.05"]);
        let times = TimestampMicrosecondArray::from(vec![0, 1_500_000]);
        assert_eq!(texts(times.clone()), ["1970-01-01 00:00:00", "1970-01-01 00:00:01.500"]);
        assert_eq!(texts(times.with_timezone("+00:00"))[0], "1970-01-01 00:00:00Z");
    }

    #[test]
    fn sqlite_style_writes_numbers_as_sqlite_does() {
        let column: datafusion::arrow::array::ArrayRef = Arc::new(Float64Array::from(vec![2.5]));
        assert_eq!(value(&column, 0, Style::Sqlite, Kind::Integer), "2");
        assert_eq!(value(&column, 0, Style::Sqlite, Kind::Floating), "2.500");
        assert_eq!(sqlite("9007199254740993", Kind::Integer), "9007199254740993");
    }
}
