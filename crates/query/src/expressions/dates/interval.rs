//! Parses and writes intervals in PostgreSQL's formats.
//!
//! ```text
//!   read      1 year 2 months 3 days 04:05:06   1 day -2 hours   42   1-2   P1Y2M3DT4H5M6S   1.5 days ago
//!   written   1 year 2 mons 3 days 04:05:06
//! ```

use datafusion::arrow::datatypes::IntervalMonthDayNano;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Maximum length of an interval as text, in bytes.
const TEXT_MAX: usize = 1_000;

/// Months, days and nanoseconds of the parts read so far. The fraction of a unit is added to the smaller units.
#[derive(Default)]
struct Parts {
    months: f64,
    days: f64,
    nanoseconds: f64,
}

impl Parts {
    /// Adds a number of units. Returns `None` if the unit is unknown.
    fn add(&mut self, number: f64, unit: &str) -> Option<()> {
        let unit = unit.to_ascii_lowercase();
        match unit.as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => self.nanoseconds += number * 1e3,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => self.nanoseconds += number * 1e6,
            "second" | "seconds" | "sec" | "secs" | "s" => self.nanoseconds += number * SECOND as f64,
            "minute" | "minutes" | "min" | "mins" | "m" => self.nanoseconds += number * 60.0 * SECOND as f64,
            "hour" | "hours" | "hr" | "hrs" | "h" => self.nanoseconds += number * 3_600.0 * SECOND as f64,
            "day" | "days" | "d" => self.add_days(number),
            "week" | "weeks" | "w" => self.add_days(number * 7.0),
            "month" | "months" | "mon" | "mons" => {
                self.months += number.trunc();
                self.add_days(number.fract() * 30.0);
            }
            "year" | "years" | "yr" | "yrs" | "y" => self.months += (number * 12.0).round(),
            "decade" | "decades" => self.months += (number * 120.0).round(),
            "century" | "centuries" | "c" => self.months += (number * 1_200.0).round(),
            "millennium" | "millennia" | "mil" | "mils" => self.months += (number * 12_000.0).round(),
            _ => return None,
        }
        Some(())
    }

    fn add_days(&mut self, days: f64) {
        self.days += days.trunc();
        self.nanoseconds += days.fract() * DAY as f64;
    }

    /// Returns the interval multiplied by `sign`, 1 or -1. Returns `None` if its months, days or time are out of range.
    fn interval(&self, sign: f64) -> Option<IntervalMonthDayNano> {
        let within = |number: f64, limit: f64| (number.abs() <= limit).then_some(number * sign);
        let months = within(self.months, i32::MAX.into())? as i32;
        let days = within(self.days, i32::MAX.into())? as i32;
        // Microseconds are the finest unit, as in PostgreSQL.
        let micros = within((self.nanoseconds / 1e3).round(), (i64::MAX / 1_000) as f64)? as i64;
        Some(IntervalMonthDayNano::new(months, days, micros.checked_mul(1_000)?))
    }
}

/// Parses an interval. Returns `None` if the text is not an interval.
pub(super) fn parse(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    if text.len() > TEXT_MAX {
        return None;
    }
    if let Some(rest) = text.strip_prefix(['P', 'p']) {
        return iso(rest);
    }
    let text = text.strip_prefix('@').unwrap_or(text);
    let mut parts = Parts::default();
    let mut sign = 1.0;
    let mut is_empty = true;
    let mut words = words(text).into_iter().peekable();
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("ago") && words.peek().is_none() && !is_empty {
            sign = -1.0;
            break;
        }
        is_empty = false;
        if word.contains(':') {
            parts.nanoseconds += clock(&word)?;
            continue;
        }
        if let Some(months) = year_and_month(&word) {
            parts.months += months;
            continue;
        }
        let number: f64 = word.parse().ok().filter(|number: &f64| number.is_finite())?;
        match words.peek() {
            Some(unit) if unit.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                parts.add(number, unit)?;
                words.next();
            }
            // A number before a time of day is a number of days. A number at the end is a number of seconds.
            Some(next) if next.contains(':') => parts.add(number, "day")?,
            Some(_) => return None,
            None => parts.add(number, "second")?,
        }
    }
    if is_empty { None } else { parts.interval(sign) }
}

/// Applies `scaled` to the months, days and nanoseconds of an interval. Fractions of months and days are added to the
/// smaller units. Returns `None` if the result is out of range.
pub(super) fn scale(interval: IntervalMonthDayNano, scaled: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let mut parts = Parts::default();
    parts.add(scaled(months.into()), "month")?;
    parts.add_days(scaled(days.into()));
    parts.nanoseconds += scaled(nanoseconds as f64);
    parts.interval(1.0)
}

/// Divides an interval by a number. Returns `None` if the result is out of range.
pub fn divided_interval(interval: IntervalMonthDayNano, number: f64) -> Option<IntervalMonthDayNano> {
    scale(interval, |part| part / number)
}

/// Interpolates linearly between two intervals. `part` is 0 for `low` and 1 for `high`. Returns `None` if the result is
/// out of range.
pub fn interpolated_interval(
    low: IntervalMonthDayNano,
    high: IntervalMonthDayNano,
    part: f64,
) -> Option<IntervalMonthDayNano> {
    let distance = IntervalMonthDayNano::new(
        high.months.checked_sub(low.months)?,
        high.days.checked_sub(low.days)?,
        high.nanoseconds.checked_sub(low.nanoseconds)?,
    );
    let IntervalMonthDayNano { months, days, nanoseconds } = scale(distance, |number| number * part)?;
    Some(IntervalMonthDayNano::new(
        low.months.checked_add(months)?,
        low.days.checked_add(days)?,
        low.nanoseconds.checked_add(nanoseconds)?,
    ))
}

/// Splits a text at spaces, and before and after a unit: `1h30m` becomes `1`, `h`, `30` and `m`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in text.split_whitespace() {
        let unit = part.find(|character: char| character.is_ascii_alphabetic());
        match unit {
            Some(at) if at > 0 => {
                let (number, rest) = part.split_at(at);
                words.push(number.to_owned());
                let next = rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len());
                words.push(rest[..next].to_owned());
                words.extend(self::words(&rest[next..]));
            }
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Parses `4:05:06`, `4:05` or `-4:05:06.7` to nanoseconds.
fn clock(word: &str) -> Option<f64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, word.strip_prefix('+').unwrap_or(word)),
    };
    let numbers: Vec<f64> = digits.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match numbers.as_slice() {
        [hours, minutes] => (*hours, *minutes, 0.0),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let is_valid = hours >= 0.0 && (0.0..60.0).contains(&minutes) && (0.0..=60.0).contains(&seconds);
    is_valid.then_some(sign * ((hours * 60.0 + minutes) * 60.0 + seconds) * SECOND as f64)
}

/// Parses years and months, such as `1-2`, to a number of months.
fn year_and_month(word: &str) -> Option<f64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, word),
    };
    let (years, months) = digits.split_once('-')?;
    let (years, months): (u32, u32) = (years.parse().ok()?, months.parse().ok()?);
    (months < 12).then(|| sign * (f64::from(years) * 12.0 + f64::from(months)))
}

/// Parses an ISO 8601 duration. `text` is the part after `P`.
fn iso(text: &str) -> Option<IntervalMonthDayNano> {
    let mut parts = Parts::default();
    let (mut rest, mut is_time, mut is_empty) = (text, false, true);
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix(['T', 't']) {
            (rest, is_time) = (time, true);
            continue;
        }
        let end = rest.find(|character: char| character.is_ascii_alphabetic())?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = match (rest[end..].chars().next()?.to_ascii_uppercase(), is_time) {
            ('Y', false) => "year",
            ('M', false) => "month",
            ('W', false) => "week",
            ('D', false) => "day",
            ('H', true) => "hour",
            ('M', true) => "minute",
            ('S', true) => "second",
            _ => return None,
        };
        parts.add(number, unit)?;
        (rest, is_empty) = (&rest[end + 1..], false);
    }
    if is_empty { None } else { parts.interval(1.0) }
}

/// Writes an interval in PostgreSQL's format, such as `1 mon -2 days +03:00:00`.
pub(super) fn write(interval: IntervalMonthDayNano) -> String {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let mut parts = Vec::new();
    let mut is_negative = false;
    let mut push = |number: i32, unit: &str| {
        if number != 0 {
            // A positive part after a negative one has a plus sign.
            let plus = if is_negative && number > 0 { "+" } else { "" };
            is_negative = number < 0;
            parts.push(format!("{plus}{number} {unit}{}", if number == 1 { "" } else { "s" }));
        }
    };
    push(months / 12, "year");
    push(months % 12, "mon");
    push(days, "day");
    let micros = nanoseconds / 1_000;
    if micros != 0 || parts.is_empty() {
        let sign = match (micros < 0, is_negative) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        parts.push(format!("{sign}{}", super::write::time_of_day(micros.saturating_abs())));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_intervals() {
        let hour = 3_600 * SECOND;
        for (text, months, days, nanoseconds) in [
            ("1 day", 0, 1, 0),
            ("1 year 2 months 3 days 04:05:06", 14, 3, 4 * hour + 306 * SECOND),
            ("1 day -2 hours", 0, 1, -2 * hour),
            ("42", 0, 0, 42 * SECOND),
            ("01:30", 0, 0, hour + 1_800 * SECOND),
            ("3 01:30", 0, 3, hour + 1_800 * SECOND),
            ("1-2", 14, 0, 0),
            ("P1Y2M3DT4H5M6S", 14, 3, 4 * hour + 306 * SECOND),
            ("PT90M", 0, 0, hour + 1_800 * SECOND),
            ("1.5 days", 0, 1, 12 * hour),
            ("1.5 months", 1, 15, 0),
            ("1.5 years", 18, 0, 0),
            ("2 weeks ago", 0, -14, 0),
            ("1h30m", 0, 0, hour + 1_800 * SECOND),
            ("-1 mon", -1, 0, 0),
            ("@ 5 minutes", 0, 0, 300 * SECOND),
        ] {
            assert_eq!(parse(text), Some(IntervalMonthDayNano::new(months, days, nanoseconds)), "{text}");
        }
        for text in ["", "x", "1 x", "1 2", "P", "ago", "1:99", "1-13", "1e400 days"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn fractions_go_to_smaller_units() {
        for (text, factor, expected) in [
            ("1 day", 1.5, "1 day 12:00:00"),
            ("1 mon", 0.5, "15 days"),
            ("1 year 1 day 1 hour", 2.0, "2 years 2 days 02:00:00"),
            ("1 day", -1.0, "-1 days"),
        ] {
            assert_eq!(write(scale(parse(text).unwrap(), |number| number * factor).unwrap()), expected);
        }
        assert_eq!(scale(parse("1 day").unwrap(), |number| number * 1e300), None);
        assert_eq!(scale(parse("1 day").unwrap(), |_| f64::NAN), None);
        assert_eq!(write(scale(parse("49 days").unwrap(), |number| number / 49.0).unwrap()), "1 day");
    }

    #[test]
    fn intervals_are_written_as_in_postgresql() {
        for (text, expected) in [
            ("1 year 2 months 3 days 04:05:06.5", "1 year 2 mons 3 days 04:05:06.5"),
            ("0", "00:00:00"),
            ("-1 mon 2 days -3 hours", "-1 mons +2 days -03:00:00"),
            ("-1 day 2 hours", "-1 days +02:00:00"),
            ("25 months", "2 years 1 mon"),
            ("100 hours", "100:00:00"),
        ] {
            assert_eq!(write(parse(text).unwrap()), expected);
        }
    }
}
