//! Parses dates and times in PostgreSQL's formats. An ambiguous date such as `1/5/2024` is read in the order month,
//! day, year.
//!
//! ```text
//!   dates    2024-01-05   2024/1/5   20240105   1/5/2024   Jan 5, 2024   5-Jan-2024   0044-03-15 BC
//!   times    10:00   10:00:05.25   1:30 PM   100005
//!   zones    Z   +02   -05:30   Europe/Zurich
//! ```

use chrono::{NaiveDate, NaiveDateTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::temporal_conversions::MICROSECONDS;

const MICROS_PER_DAY: i64 = 86_400 * MICROSECONDS;
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// A parsed date with a time of day and an optional zone.
pub(super) struct Instant {
    date: NaiveDate,
    /// Time of day in microseconds since midnight, at most 24:00.
    micros: i64,
    zone: Option<Tz>,
}

impl Instant {
    /// Days since 1970-01-01.
    pub fn days(&self) -> i32 {
        self.date.to_epoch_days()
    }

    /// Microseconds since 1970. `zone` is the zone of the type: a text without a zone is local time there. For a type
    /// without a zone, the zone of the text has no effect.
    pub fn micros(&self, zone: Option<&Tz>) -> Option<i64> {
        let local = i64::from(self.days()).checked_mul(MICROS_PER_DAY)?.checked_add(self.micros)?;
        let Some(zone) = zone.map(|zone| self.zone.as_ref().unwrap_or(zone)) else { return Some(local) };
        let date_time = chrono::DateTime::from_timestamp_micros(local)?.naive_utc();
        local.checked_sub(offset_seconds(zone, date_time)?.checked_mul(MICROSECONDS)?)
    }
}

/// Returns the offset of a zone from UTC in seconds at a local time. If a clock change skips this local time, returns
/// the offset before the change.
pub fn offset_seconds(zone: &Tz, local: NaiveDateTime) -> Option<i64> {
    let offset = match zone.offset_from_local_datetime(&local) {
        chrono::LocalResult::Single(offset) => offset,
        // If a local time occurs twice, uses the later instant, which is in standard time.
        chrono::LocalResult::Ambiguous(_, offset) => offset,
        chrono::LocalResult::None => {
            zone.offset_from_local_datetime(&(local - chrono::Duration::hours(3))).earliest()?
        }
    };
    Some(offset.fix().local_minus_utc().into())
}

/// Parses a date with an optional time of day and zone. Returns `None` if the text is not a valid date.
pub(super) fn instant(text: &str) -> Option<Instant> {
    if let Some(instant) = iso_instant(text.as_bytes()) {
        return Some(instant);
    }
    let (text, era) = with_era(text.trim());
    // A `T` between two digits separates the date from the time.
    let divider = text.char_indices().find(|(at, character)| {
        let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
        let bytes = text.as_bytes();
        matches!(character, 'T' | 't') && *at > 0 && is_digit(bytes.get(at - 1)) && is_digit(bytes.get(at + 1))
    });
    if let Some((at, _)) = divider {
        let (date, (micros, zone)) = (date(&text[..at], era)?, time(&text[at + 1..])?);
        return Some(Instant { date, micros, zone });
    }
    let (day, rest) = match text.find(':') {
        Some(colon) => {
            let hours = text[..colon].trim_end_matches(|character: char| character.is_ascii_digit()).len();
            (&text[..hours], &text[hours..])
        }
        None => (text, ""),
    };
    let date = date(day.trim_end(), era)?;
    let (micros, zone) = if rest.is_empty() { (0, None) } else { time(rest)? };
    Some(Instant { date, micros, zone })
}

/// Parses the most common format, `2024-01-05` or `2024-01-05 10:00:00.5`, without allocating. Returns `None` for other
/// formats and for dates that do not exist.
fn iso_instant(text: &[u8]) -> Option<Instant> {
    let (date, time) = text.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date else { return None };
    let year = decimal(&[*y1, *y2, *y3, *y4])?;
    let (month, day) = (decimal(&[*m1, *m2])?, decimal(&[*d1, *d2])?);
    let date = NaiveDate::from_ymd_opt(year.try_into().ok().filter(|year| *year > 0)?, month, day)?;
    let micros = match time {
        [] => 0,
        [b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] => {
            let [hour, minute, second] = [[*h1, *h2], [*m1, *m2], [*s1, *s2]].map(|pair| decimal(&pair));
            let (hour, minute, second) = (hour?, minute?, second?);
            let is_valid = hour < 24 && minute < 60 && second < 60;
            is_valid
                .then_some(i64::from((hour * 60 + minute) * 60 + second) * MICROSECONDS + fraction_micros(fraction)?)?
        }
        _ => return None,
    };
    Some(Instant { date, micros, zone: None })
}

/// Parses a fraction of a second, such as `.5`, to microseconds. An empty text is 0. Returns `None` for more than six
/// digits.
fn fraction_micros(text: &[u8]) -> Option<i64> {
    match text {
        [] => Some(0),
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            Some(i64::from(decimal(digits)?) * 10_i64.pow(6 - digits.len() as u32))
        }
        _ => None,
    }
}

/// Parses decimal digits. Returns `None` for other characters.
fn decimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

/// Parses a time of day to microseconds since midnight. Ignores a zone.
pub(super) fn time_of_day(text: &str) -> Option<i64> {
    time(text.trim()).map(|(micros, _)| micros)
}

/// How years are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    BeforeChrist,
    AnnoDomini,
}

/// Splits a text into a date and the era at its end, `BC` or `AD`.
fn with_era(text: &str) -> (&str, Era) {
    for (name, era) in [("bc", Era::BeforeChrist), ("ad", Era::AnnoDomini)] {
        if let Some((rest, end)) = text.split_at_checked(text.len().saturating_sub(2))
            && end.eq_ignore_ascii_case(name)
            && rest.ends_with(' ')
        {
            return (rest.trim_end(), era);
        }
    }
    (text, Era::AnnoDomini)
}

fn date(text: &str, era: Era) -> Option<NaiveDate> {
    // A year has no sign.
    if text.starts_with('-') {
        return None;
    }
    let parts: Vec<&str> = text.split([' ', '-', '/', '.', ',']).filter(|part| !part.is_empty()).collect();
    let (year, month, day) = match parts.as_slice() {
        [digits] if digits.len() == 8 && is_number(digits) => (&digits[..4], number(&digits[4..6])?, &digits[6..]),
        [first, second, third] => match (month(first), month(second)) {
            (Some(month), None) => (*third, month, *second),
            (None, Some(month)) if first.len() > 2 => (*first, month, *third),
            (None, Some(month)) => (*third, month, *first),
            (None, None) if first.len() > 2 => (*first, number(second)?, *third),
            (None, None) => (*third, number(first)?, *second),
            _ => return None,
        },
        _ => return None,
    };
    let year = match era {
        // The year before 1 is 1 BC.
        Era::BeforeChrist => 1 - i32::try_from(number(year).filter(|year| *year > 0)?).ok()?,
        Era::AnnoDomini => self::year(year)?,
    };
    NaiveDate::from_ymd_opt(year, month, number(day)?)
}

/// Parses a year. A year of two digits is between 1970 and 2069.
fn year(text: &str) -> Option<i32> {
    let year: i32 = number(text)?.try_into().ok().filter(|year| *year > 0 || text.len() == 2)?;
    Some(match text.len() {
        2 if year < 70 => year + 2_000,
        2 => year + 1_900,
        _ => year,
    })
}

fn month(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let is_month = |name: &&str| text == **name || (text.len() == 3 && name.starts_with(&text));
    let index = MONTHS.iter().position(is_month).or((text == "sept").then_some(8))?;
    Some(index as u32 + 1)
}

fn number(text: &str) -> Option<u32> {
    if is_number(text) { text.parse().ok() } else { None }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a time of day to microseconds since midnight, and an optional zone.
fn time(text: &str) -> Option<(i64, Option<Tz>)> {
    let end = text.find(|character: char| !(character.is_ascii_digit() || matches!(character, ':' | '.')));
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let rest = rest.trim();
    let (half, zone) = match rest.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("am") => (Some(0), rest[2..].trim()),
        Some("pm") => (Some(12), rest[2..].trim()),
        _ => (None, rest),
    };
    let (hour, minute, second) = match digits.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute] => (*hour, *minute, "0"),
        [hour, minute, second] => (*hour, *minute, *second),
        [digits] => {
            let whole = digits.split('.').next()?;
            match whole.len() {
                4 => (&digits[..2], &digits[2..4], "0"),
                6 => (&digits[..2], &digits[2..4], &digits[4..]),
                _ => return None,
            }
        }
        _ => return None,
    };
    let (hour, minute, second) = (i64::from(number(hour)?), i64::from(number(minute)?), seconds(second)?);
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    let micros = (hour * 60 + minute) * 60 * MICROSECONDS + second;
    let is_valid = hour <= 24 && minute < 60 && second <= 60 * MICROSECONDS && micros <= MICROS_PER_DAY;
    is_valid.then_some(())?;
    Some((micros, if zone.is_empty() { None } else { Some(self::zone(zone)?) }))
}

/// Parses seconds with a fraction to microseconds.
fn seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = i64::from(number(whole)?);
    if fraction.is_empty() {
        return Some(whole * MICROSECONDS);
    }
    is_number(fraction).then_some(())?;
    // The seventh digit rounds the sixth.
    let digits = format!("{fraction:0<7}");
    let micros: i64 = digits.get(..7)?.parse().ok()?;
    Some(whole * MICROSECONDS + (micros + 5) / 10)
}

/// A zone: a name, or an offset with or without minutes.
pub fn zone(text: &str) -> Option<Tz> {
    match text.to_ascii_lowercase().as_str() {
        "z" | "utc" | "gmt" | "zulu" => "+00:00".parse().ok(),
        _ => match text.strip_prefix(['+', '-']) {
            Some(digits) if digits.len() <= 2 => format!("{}{:02}:00", &text[..1], number(digits)?).parse().ok(),
            _ => text.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str, has_zone: bool) -> Option<i64> {
        let utc: Tz = "+00:00".parse().ok()?;
        instant(text)?.micros(has_zone.then_some(&utc))
    }

    #[test]
    fn forms_of_dates() {
        for text in [
            "2024-01-05",
            "2024-1-5",
            "2024/01/05",
            "20240105",
            "1/5/2024",
            "01-05-2024",
            "Jan 5, 2024",
            "5 January 2024",
            "2024-Jan-05",
            "05-jan-24",
            " 2024-01-05 ",
            "2024-01-05 10:00",
            "20240105T100000",
            "2024-01-05T10:00Z",
            "20240105T100000+05:30",
        ] {
            assert_eq!(instant(text).unwrap().days(), 19_727, "{text}");
        }
        for text in [
            "",
            "2024-13-01",
            "2024-02-30",
            "2024-01",
            "x",
            "10:00",
            "2024-01-05 25:00",
            "2024-01-05 1",
            "2024-01-05 x",
            "0000-01-01",
        ] {
            assert!(instant(text).is_none(), "{text}");
        }
        assert_eq!(instant("0001-01-01").unwrap().days(), -719_162);
        assert_eq!(instant("99999-12-31").unwrap().date.to_string(), "+99999-12-31");
    }

    #[test]
    fn forms_of_times() {
        let second = MICROSECONDS;
        for (text, expected) in [
            ("10:00", 36_000 * second),
            ("10:00:05.5", 36_005 * second + 500_000),
            ("1000", 36_000 * second),
            ("100005", 36_005 * second),
            ("1:30 PM", 48_600 * second),
            ("12:00 am", 0),
            ("24:00", MICROS_PER_DAY),
            ("00:00:00.0000005", 1),
            ("10:00+02", 36_000 * second),
        ] {
            assert_eq!(time_of_day(text), Some(expected), "{text}");
        }
        for text in ["", "25:00", "10:60", "13:00 PM", "10", "10:00:61", "24:00:01", "10:0x"] {
            assert_eq!(time_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_apply_only_to_timestamps_with_time_zone() {
        let noon = micros("2024-07-05 12:00", true).unwrap();
        let hour = 3_600 * MICROSECONDS;
        for (text, hours) in [
            ("2024-07-05 12:00Z", 0),
            ("2024-07-05 12:00+02", -2),
            ("2024-07-05 12:00 -05:30", 5),
            ("2024-07-05T12:00:00 Europe/Zurich", -2),
        ] {
            let half = if text.ends_with(":30") { hour / 2 } else { 0 };
            assert_eq!(micros(text, true), Some(noon + hours * hour + half), "{text}");
            assert_eq!(micros(text, false), Some(noon), "{text}");
        }
        // In March, clocks skip from 2:00 to 3:00, so 2:30 has the earlier offset +01. In October, they go back from
        // 3:00 to 2:00, so 2:30 occurs twice.
        let utc = |text| micros(text, true).unwrap();
        assert_eq!(utc("2024-03-31 02:30 Europe/Zurich"), utc("2024-03-31 01:30Z"));
        assert_eq!(utc("2024-10-27 02:30 Europe/Zurich"), utc("2024-10-27 01:30Z"));
    }
}
