//! Times as text, in UTC unless an offset is given.

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Formats microseconds since 1970 as `2026-11-27 13:36:16.123456+00`, like a `timestamptz` in UTC.
pub fn format_time(micros: i64) -> String {
    let (days, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = date_from_days(days);
    let (seconds, fraction) = (rest / SECOND, rest % SECOND);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}+00")
}

/// Parses a time, and returns microseconds since 1970. The format is `YYYY-MM-DD`, then optionally
/// `HH:MM[:SS[.fff...]]` after a space or `T`, then optionally an offset: `Z`, `+HH`, `+HH:MM` or `+HHMM`. Without an
/// offset the time is in UTC. `None` for any other text.
pub fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    let date = text.get(..10)?;
    let fields: Vec<&str> = date.split('-').collect();
    let [year, month, day] = fields[..] else { return None };
    let (year, month, day) = (parse_digits(year, 4)?, parse_digits(month, 2)?, parse_digits(day, 2)?);
    let days = days_since_1970(year, month, day);
    if date_from_days(days) != (year, month, day) {
        return None;
    }
    let rest = &text[10..];
    let rest = rest.strip_prefix([' ', 'T', 't']).unwrap_or(rest);
    let zone_start = rest.find(['+', '-', 'Z', 'z']).unwrap_or(rest.len());
    let (time, zone) = (rest[..zone_start].trim_end(), &rest[zone_start..]);
    let offset = match zone {
        "" | "Z" | "z" => 0,
        _ => parse_utc_offset(zone)?,
    };
    Some(days * DAY + parse_time_of_day(time)? - offset)
}

fn parse_time_of_day(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let fields: Vec<&str> = text.split(':').collect();
    let (hour, minute, second) = match fields[..] {
        [hour, minute] => (hour, minute, "00"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let (second, fraction) = second.split_once('.').map_or((second, ""), |(second, fraction)| (second, fraction));
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Fractions of a microsecond are truncated.
    let fraction: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let (hour, minute, second) = (parse_digits(hour, 2)?, parse_digits(minute, 2)?, parse_digits(second, 2)?);
    let is_valid = hour < 24 && minute < 60 && second < 60;
    is_valid.then_some(((hour * 60 + minute) * 60 + second) * SECOND + fraction)
}

fn parse_utc_offset(text: &str) -> Option<i64> {
    let (sign, rest) = if let Some(rest) = text.strip_prefix('+') { (1, rest) } else { (-1, text.strip_prefix('-')?) };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 if rest.is_ascii() => rest.split_at(2),
        5 => rest.split_once(':')?,
        _ => return None,
    };
    let (hours, minutes) = (parse_digits(hours, 2)?, parse_digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60 * SECOND)
}

fn parse_digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Days from 1970-01-01 to a date in the Gregorian calendar. Internally a year begins in March, so that the leap day is
/// its last day.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of the date that is `days` days after 1970-01-01.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_times_parse_back() {
        assert_eq!(format_time(0), "1970-01-01 00:00:00.000000+00");
        assert_eq!(format_time(-1), "1969-12-31 23:59:59.999999+00");
        assert_eq!(format_time(951_782_400 * SECOND), "2000-02-29 00:00:00.000000+00");
        for days in (-200_000..900_000).step_by(37) {
            let micros = days * DAY + (days * 7_919).rem_euclid(DAY);
            assert_eq!(parse_time(&format_time(micros)), Some(micros));
        }
    }

    #[test]
    fn times_are_parsed_with_and_without_time_of_day_and_offset() {
        let noon = parse_time("2026-11-27 12:00:00").unwrap();
        for text in ["2026-11-27T12:00:00Z", "2026-11-27 12:00", "2026-11-27 14:30+02:30", "2026-11-27 11:00:00.0-01"] {
            assert_eq!(parse_time(text), Some(noon), "{text}");
        }
        assert_eq!(parse_time("2026-11-27"), Some(noon - DAY / 2));
        assert_eq!(parse_time("2026-11-27T12:00:00.123456789Z"), Some(noon + 123_456));
        for text in [
            "",
            "2026-02-30",
            "2026-11-27 24:00",
            "2026-11-27 12:00:60",
            "2026-11-27x",
            "yesterday",
            "2026-11-27 1:00",
            "2026-11-27 12:00:00.1234567890",
            "2026-11-27 12:00+99",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
