//! Writes dates and times as PostgreSQL does: `2024-01-05 10:00:05.25`, `2024-01-05 10:00:05+00`.

use chrono::{DateTime, Datelike, NaiveDate, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::temporal_conversions::MICROSECONDS;

/// Writes a date, given in days since 1970-01-01. Writes the number of days if the date is out of range.
pub(super) fn date(days: i32) -> String {
    match NaiveDate::from_epoch_days(days) {
        Some(date) => format!("{}{}", written_date(date), era(date)),
        None => format!("{days} days since 1970-01-01"),
    }
}

fn written_date(date: NaiveDate) -> String {
    let (_, year) = date.year_ce();
    format!("{year:04}-{:02}-{:02}", date.month(), date.day())
}

/// The end of a text with a date before year 1, after its time.
fn era(date: NaiveDate) -> &'static str {
    if date.year_ce().0 { "" } else { " BC" }
}

/// Writes a timestamp, given in microseconds since 1970-01-01. With a zone, writes the local time of the zone and its
/// offset. Writes the number of microseconds if the timestamp is out of range.
pub(super) fn timestamp(micros: i64, zone: Option<Tz>) -> String {
    let Some(utc) = DateTime::from_timestamp_micros(micros) else {
        return format!("{micros} microseconds since 1970-01-01");
    };
    let utc = utc.naive_utc();
    let offset = zone.map(|zone| zone.offset_from_utc_datetime(&utc).fix().local_minus_utc());
    let local = utc + chrono::Duration::seconds(offset.unwrap_or(0).into());
    let time = local.time().signed_duration_since(chrono::NaiveTime::MIN).num_microseconds().unwrap_or(0);
    let mut text = format!("{} {}", written_date(local.date()), time_of_day(time));
    if let Some(offset) = offset {
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
        text += &format!("{sign}{:02}", minutes / 60);
        if minutes % 60 != 0 {
            text += &format!(":{:02}", minutes % 60);
        }
    }
    text + era(local.date())
}

/// Writes a time of day, given in microseconds since midnight. Also writes the time of an interval, which may exceed 24
/// hours.
pub(super) fn time_of_day(micros: i64) -> String {
    let seconds = micros / MICROSECONDS;
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match micros % MICROSECONDS {
        0 => whole,
        fraction => format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_in_postgresql() {
        assert_eq!(date(19_727), "2024-01-05");
        assert_eq!(date(-719_163), "0001-12-31 BC");
        let micros = 19_727 * 86_400 * MICROSECONDS + 36_005 * MICROSECONDS + 250_000;
        assert_eq!(timestamp(micros, None), "2024-01-05 10:00:05.25");
        assert_eq!(timestamp(micros, Some("+00:00".parse().unwrap())), "2024-01-05 10:00:05.25+00");
        assert_eq!(timestamp(micros, Some("Asia/Kolkata".parse().unwrap())), "2024-01-05 15:30:05.25+05:30");
        assert_eq!(timestamp(-719_163 * 86_400 * MICROSECONDS, None), "0001-12-31 00:00:00 BC");
        assert_eq!(timestamp(-1, None), "1969-12-31 23:59:59.999999");
        assert_eq!(time_of_day(0), "00:00:00");
        assert_eq!(time_of_day(86_400 * MICROSECONDS), "24:00:00");
    }
}
