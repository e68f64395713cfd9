//! Patterns of `to_char`, `to_date` and `to_timestamp` for dates, as in PostgreSQL.
//!
//! ```text
//!   YYYY Y,YYY YYY YY Y  IYYY IYY IY I  CC BC AD        years, years of ISO weeks, centuries, eras
//!   Q MM Month Mon RM                                   quarters and months
//!   WW W IW                                             weeks of the year, of the month, and ISO weeks
//!   DDD IDDD DD D ID Day Dy J                           days
//!   HH24 HH12 HH AM PM MI SS SSSSS MS US FF1 to FF6     times
//!   TZ TZH TZM OF                                       time zones
//! ```
//!
//! The prefix `FM` removes spaces and leading zeros, and the suffix `TH` adds that of an ordinal number. `FX` requires
//! the widths of the pattern when text is read. Other characters, and text in double quotes, are written unchanged.

mod calendar;
mod fields;
mod pattern;
mod read;
mod write;

pub(super) use self::calendar::Moment;
pub(super) use self::pattern::DatePattern;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str, pattern: &str) -> Option<i64> {
        DatePattern::parse(pattern).unwrap().read_timestamp(text, &"+00:00".parse().unwrap()).ok()
    }

    #[test]
    fn timestamps_are_written_as_in_postgresql() {
        // 2024-01-05 14:03:09.123456
        let moment = Moment::of_timestamp(1_704_463_389_123_456);
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "2024-01-05 14:03:09.123456"),
            ("FMHH12th MITH FF2 FMMS", "2nd 03RD 12 123"),
            ("Day|FMDay|day|DY|Dy", "Friday   |Friday|friday   |FRI|Fri"),
            ("MONTH|Mon|RM|FMrm", "JANUARY  |Jan|I   |i"),
            ("IYYY-\"W\"IW-ID IDDD", "2024-W01-5 005"),
            ("DDD D J Q WW W CC", "005 6 2460315 1 01 1 21"),
            ("Y,YYY YYY YY Y BC a.d. P.M. am", "2,024 024 24 4 AD a.d. P.M. pm"),
            ("SSSSS TZH:TZM OF TZ", "50589 +00:00 +00 "),
            ("\\\"x\" \"a\\\"b\"", "\"x a\"b"),
        ] {
            assert_eq!(DatePattern::parse(pattern).unwrap().write(&moment).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn timestamps_are_read_as_in_postgresql() {
        let expected = micros("2024-01-05 14:03:09", "YYYY-MM-DD HH24:MI:SS");
        assert_eq!(expected, Some(1_704_463_389_000_000));
        for (text, pattern) in [
            ("20240105 140309", "YYYYMMDD HH24MISS"),
            ("  5th January, 2024 2:03:09 pm", "DDth Month, YYYY HH12:MI:SS AM"),
            ("2024/5 2:03:09P.M.", "YYYY-DDD HH:MI:SSA.M."),
            ("2024-W01-5 50589", "IYYY-\"W\"IW-ID SSSSS"),
            ("2460315 14 03 09.0", "J HH24:MI:SS.MS"),
            ("2024-01-05 16:03:09+02", "YYYY-MM-DD HH24:MI:SSTZH"),
        ] {
            assert_eq!(micros(text, pattern), expected, "{text} {pattern}");
        }
        for (text, pattern) in [
            ("2024-13-01", "YYYY-MM-DD"),
            ("2024-02-30", "YYYY-MM-DD"),
            ("x", "YYYY"),
            ("13 PM", "HH12 AM"),
            ("5", "DDD"),
            ("2024 05", "IYYY MM"),
            ("2024 2023", "YYYY YYYY"),
            ("999999", "YYYY"),
        ] {
            assert_eq!(micros(text, pattern), None, "{text} {pattern}");
        }
    }
}
