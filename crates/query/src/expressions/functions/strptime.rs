//! `strptime` and `try_strptime`: parse text as timestamps, with the patterns of C and DuckDB. Fields that the pattern
//! lacks have the values of 1900-01-01 00:00:00.

use std::sync::Arc;

use chrono::NaiveDateTime;
use chrono::format::{ParseErrorKind, Parsed, StrftimeItems, parse};
use datafusion::arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::common::{Result, exec_err};

use super::definition::ArgumentType::Text;
use super::definition::{Definition, result, texts};

pub(super) const FUNCTIONS: [Definition; 2] = [
    Definition {
        name: "strptime",
        arguments: &[&[Text, Text]],
        result: result::timestamp,
        compute: |arguments| timestamps(arguments, false),
    },
    Definition {
        name: "try_strptime",
        arguments: &[&[Text, Text]],
        result: result::timestamp,
        compute: |arguments| timestamps(arguments, true),
    },
];

fn timestamps(arguments: &[ArrayRef], is_try: bool) -> Result<ArrayRef> {
    let rows = texts(&arguments[0]).iter().zip(texts(&arguments[1]));
    let timestamps = rows.map(|(text, pattern)| {
        let Some((text, pattern)) = text.zip(pattern) else { return Ok(None) };
        match read(text, pattern) {
            Some(moment) => Ok(Some(moment.and_utc().timestamp_micros())),
            None if is_try => Ok(None),
            None => exec_err!("Could not parse string \"{text}\" according to format specifier \"{pattern}\""),
        }
    });
    Ok(Arc::new(timestamps.collect::<Result<TimestampMicrosecondArray>>()?))
}

fn read(text: &str, pattern: &str) -> Option<NaiveDateTime> {
    // DuckDB's %f, %g and %n are microseconds, milliseconds and nanoseconds.
    let pattern = pattern.replace(".%f", "%.f").replace(".%g", "%.f").replace(".%n", "%.f");
    let pattern = pattern.replace("%f", "%6f").replace("%g", "%3f").replace("%n", "%9f");
    let mut parsed = Parsed::new();
    parse(&mut parsed, text, StrftimeItems::new(&pattern)).ok()?;
    if let Some(seconds) = parsed.timestamp() {
        return chrono::DateTime::from_timestamp(seconds, 0).map(|moment| moment.naive_utc());
    }
    let date = match parsed.to_naive_date() {
        Err(error) if error.kind() == ParseErrorKind::NotEnough => {
            if parsed.year().is_none() && parsed.year_mod_100().is_none() {
                parsed.set_year(1_900).ok()?;
            }
            if parsed.month().is_none() {
                parsed.set_month(1).ok()?;
            }
            if parsed.day().is_none() {
                parsed.set_day(1).ok()?;
            }
            parsed.to_naive_date().ok()?
        }
        date => date.ok()?,
    };
    if parsed.hour_mod_12().is_none() {
        parsed.set_hour(0).ok()?;
    } else if parsed.hour_div_12().is_none() {
        parsed.set_ampm(false).ok()?;
    }
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    if parsed.second().is_none() {
        parsed.set_second(0).ok()?;
    }
    let moment = date.and_time(parsed.to_naive_time().ok()?);
    moment.checked_sub_signed(chrono::Duration::seconds(parsed.offset().unwrap_or(0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_by_pattern() {
        for (text, pattern, expected) in [
            ("1992-01-01 20:38:40", "%Y-%m-%d %H:%M:%S", "1992-01-01T20:38:40"),
            ("02/03/1992", "%d/%m/%Y", "1992-03-02T00:00:00"),
            ("10:20", "%H:%M", "1900-01-01T10:20:00"),
            ("2024", "%Y", "2024-01-01T00:00:00"),
            ("2024-02-03 10", "%Y-%m-%d %H", "2024-02-03T10:00:00"),
            ("Mon 5 Feb 2024 1 PM", "%a %d %b %Y %I %p", "2024-02-05T13:00:00"),
            ("2024-02-03 10:11:12.345", "%Y-%m-%d %H:%M:%S.%g", "2024-02-03T10:11:12.345"),
            ("2024-02-03 10:00 +0200", "%Y-%m-%d %H:%M %z", "2024-02-03T08:00:00"),
        ] {
            let read = read(text, pattern).map(|moment| format!("{moment:?}"));
            assert_eq!(read.as_deref(), Some(expected), "{text}");
        }
        for (text, pattern) in [("2024-02-30", "%Y-%m-%d"), ("2024-02-03 x", "%Y-%m-%d"), ("x", "%Y")] {
            assert_eq!(read(text, pattern), None, "{text}");
        }
    }
}
