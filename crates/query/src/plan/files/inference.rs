//! Types of the columns of CSV files. Codes such as `01234` and `+41` stay text, and so do numbers with more digits
//! than a type holds. A type must not drop characters that may have a meaning.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use taut_types::LogicalType;

use crate::expressions::{parse_float, read_dates};

/// Types that all values of a column so far can have.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    has_values: bool,
    has_numbers: bool,
    boolean: bool,
    integer: bool,
    double: bool,
    date: bool,
    timestamp: bool,
    timestamp_tz: bool,
}

impl Default for Candidates {
    fn default() -> Self {
        Self {
            has_values: false,
            has_numbers: false,
            boolean: true,
            integer: true,
            double: true,
            date: true,
            timestamp: true,
            timestamp_tz: true,
        }
    }
}

impl Candidates {
    /// Excludes the types that one of these values does not have. Empty text excludes all types.
    pub fn observe(&mut self, texts: &StringArray) {
        for text in texts.iter().flatten() {
            self.has_values = true;
            self.boolean &= text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
            self.integer &= is_integer(text);
            if self.double {
                let is_number = is_double(text);
                self.has_numbers |= is_number;
                self.double = is_number || matches!(text, "NaN" | "Infinity" | "-Infinity" | "inf" | "-inf");
            }
            if self.date || self.timestamp || self.timestamp_tz {
                let format = TimeFormat::of(text);
                self.date &= format == Some(TimeFormat::Date);
                self.timestamp &= matches!(format, Some(TimeFormat::Date | TimeFormat::Timestamp));
                self.timestamp_tz &= format == Some(TimeFormat::TimestampTz);
            }
        }
    }

    /// Returns the inferred type of the column.
    pub fn data_type(&self) -> DataType {
        match self {
            Self { has_values: false, .. } => DataType::Utf8,
            Self { boolean: true, .. } => DataType::Boolean,
            Self { integer: true, .. } => DataType::Int64,
            Self { double: true, has_numbers: true, .. } => DataType::Float64,
            Self { date: true, .. } => DataType::Date32,
            Self { timestamp: true, .. } => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self { timestamp_tz: true, .. } => LogicalType::TimestampTz.arrow(),
            _ => DataType::Utf8,
        }
    }
}

/// Whether a text is a 64-bit integer without a plus sign, leading zeros or spaces.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = text == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    is_canonical && text.parse::<i64>().is_ok()
}

/// Whether a text is a floating-point number without leading zeros. Without a point and an exponent, it must have few
/// enough digits.
fn is_double(text: &str) -> bool {
    const DIGITS_MAX: usize = 15;
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let whole = unsigned.split(['.', 'e', 'E']).next().unwrap_or_default();
    let is_marked = whole.len() < unsigned.len();
    let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.ends_with(|last: char| last.is_ascii_digit() || last == '.');
    is_number && !has_leading_zero && (is_marked || whole.len() <= DIGITS_MAX) && parse_float::<f64>(text).is_ok()
}

/// Format of a date or a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeFormat {
    /// `2024-01-05`.
    Date,
    /// `2024-01-05 10:00:00.5`, with a space or `T`.
    Timestamp,
    /// A timestamp with `Z` or an offset.
    TimestampTz,
}

impl TimeFormat {
    fn of(text: &str) -> Option<Self> {
        let (_, time) = text.as_bytes().split_at_checked(10).filter(|(date, _)| has_format(date, b"0000-00-00"))?;
        let format = match time {
            [] => Self::Date,
            [b' ' | b'T', time @ ..] => {
                let (_, rest) = time.split_at_checked(8).filter(|(clock, _)| has_format(clock, b"00:00:00"))?;
                match without_fraction(rest)? {
                    [] => Self::Timestamp,
                    b"Z" => Self::TimestampTz,
                    [b'+' | b'-', offset @ ..]
                        if [b"00".as_slice(), b"00:00", b"0000"].iter().any(|format| has_format(offset, format)) =>
                    {
                        Self::TimestampTz
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        format.can_hold(text).then_some(format)
    }

    /// Whether the text is a valid date or timestamp, unlike `2024-13-01`.
    fn can_hold(self, text: &str) -> bool {
        let target = match self {
            Self::Date => DataType::Date32,
            Self::Timestamp => LogicalType::Timestamp.arrow(),
            Self::TimestampTz => LogicalType::TimestampTz.arrow(),
        };
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
        read_dates(&texts, &target, false).is_ok()
    }
}

/// Whether bytes match a format: digits where the format has `0`, and equal bytes elsewhere.
fn has_format(bytes: &[u8], format: &[u8]) -> bool {
    let is_like = |(byte, format): (&u8, &u8)| if *format == b'0' { byte.is_ascii_digit() } else { byte == format };
    bytes.len() == format.len() && bytes.iter().zip(format).all(is_like)
}

/// Returns the bytes after the fraction of a second. `None` unless the fraction has one to six digits.
fn without_fraction(rest: &[u8]) -> Option<&[u8]> {
    const DIGITS_MAX: usize = 6;
    let [b'.', rest @ ..] = rest else { return Some(rest) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (1..=DIGITS_MAX).contains(&digits).then(|| &rest[digits..])
}

/// Observes the values of columns of text.
pub(super) fn observe_all(candidates: &mut [Candidates], columns: &[ArrayRef]) {
    for (candidates, column) in candidates.iter_mut().zip(columns) {
        candidates.observe(column.as_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_keeps_the_text_of_its_values() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let cases: [(&[&str], DataType); 29] = [
            (&[], DataType::Utf8),
            (&[""], DataType::Utf8),
            (&["1", ""], DataType::Utf8),
            (&["0", "-1", "9223372036854775807"], DataType::Int64),
            (&["01234"], DataType::Utf8),
            (&["1", "02"], DataType::Utf8),
            (&["+1"], DataType::Utf8),
            (&["12345678901234567890"], DataType::Utf8),
            (&["9007199254740993", "1.5"], DataType::Utf8),
            (&["1", "1.5"], DataType::Float64),
            (&["1e5", ".5", "5.", "-0"], DataType::Float64),
            (&["01.5"], DataType::Utf8),
            (&["1.5 "], DataType::Utf8),
            (&["1.5", "1e400"], DataType::Utf8),
            (&["1e-400"], DataType::Utf8),
            (&["1.5", "NaN", "-Infinity"], DataType::Float64),
            (&["NaN"], DataType::Utf8),
            (&["nan"], DataType::Utf8),
            (&["inf"], DataType::Utf8),
            (&["."], DataType::Utf8),
            (&["true", "FALSE"], DataType::Boolean),
            (&["t"], DataType::Utf8),
            (&["2024-01-05", "0001-12-31"], DataType::Date32),
            (&["2024-13-05"], DataType::Utf8),
            (&["20240105"], DataType::Int64),
            (&["2024-01-05 10:00:00", "2024-01-05T10:00:00.123456", "2024-01-05"], micros),
            (&["2024-01-05 10:00:00.1234567"], DataType::Utf8),
            (&["2024-01-05 10:00:00+02", "2024-01-05T10:00:00Z"], LogicalType::TimestampTz.arrow()),
            (&["2024-01-05 10:00:00 BC"], DataType::Utf8),
        ];
        for (texts, expected) in cases {
            let mut candidates = Candidates::default();
            candidates.observe(&StringArray::from(texts.to_vec()));
            assert_eq!(candidates.data_type(), expected, "{texts:?}");
        }
    }
}
