//! Calendar arithmetic over all years. The calendar of `chrono` ends before the range of 64-bit microseconds, and lacks
//! the dates of intervals, such as month 0 of a year.

use chrono::{DateTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::IntervalMonthDayNano;

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Julian day of 1970-01-01.
pub(super) const JULIAN_DAY_OF_1970: i64 = 2_440_588;
/// Julian day of March 1 of year 0.
const JULIAN_DAY_OF_MARCH_0: i64 = 1_721_120;

/// A date. Year 0 is the year before 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CalendarDate {
    pub year: i64,
    pub month: i64,
    pub day: i64,
}

impl CalendarDate {
    pub fn new(year: i64, month: i64, day: i64) -> Self {
        Self { year, month, day }
    }

    /// Returns the Julian day. A month of less than 1 is in the year before, and any day is counted from the first day
    /// of the month.
    pub fn julian_day(self) -> i64 {
        // Years begin in March, so that the day of a leap year is the last one.
        let (year, month) = if self.month > 2 { (self.year, self.month - 3) } else { (self.year - 1, self.month + 9) };
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days_before_month = (153 * month + 2).div_euclid(5);
        year * 365 + leap_days + days_before_month + self.day - 1 + JULIAN_DAY_OF_MARCH_0
    }

    pub fn of_julian_day(julian_day: i64) -> Self {
        const DAYS_OF_400_YEARS: i64 = 146_097;
        let days = julian_day - JULIAN_DAY_OF_MARCH_0;
        let (cycle, days) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
        let century = (days / 36_524).min(3);
        let days = days - century * 36_524;
        let (four_years, days) = (days / 1_461, days % 1_461);
        let year_of_four = (days / 365).min(3);
        let days = days - year_of_four * 365;
        let year = cycle * 400 + century * 100 + four_years * 4 + year_of_four;
        let month = (5 * days + 2) / 153;
        let day = days - (153 * month + 2) / 5 + 1;
        if month < 10 { Self::new(year, month + 3, day) } else { Self::new(year + 1, month - 9, day) }
    }

    pub fn day_of_year(self) -> i64 {
        self.julian_day() - Self::new(self.year, 1, 1).julian_day() + 1
    }

    /// Returns the year, the week and the day of the year in the calendar of ISO weeks. All are counted from 1.
    pub fn iso_week(self) -> (i64, i64, i64) {
        let julian_day = self.julian_day();
        let thursday = Self::of_julian_day(julian_day - julian_day.rem_euclid(7) + 3);
        let day_of_year = julian_day - first_day_of_iso_year(thursday.year) + 1;
        (thursday.year, (day_of_year - 1).div_euclid(7) + 1, day_of_year)
    }
}

/// Returns the Julian day of the first Monday of a year in the calendar of ISO weeks.
pub(super) fn first_day_of_iso_year(year: i64) -> i64 {
    let in_first_week = CalendarDate::new(year, 1, 4).julian_day();
    in_first_week - in_first_week.rem_euclid(7)
}

pub(super) fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the number of days of a month from 1 to 12.
pub(super) fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Zone of a moment: its offset from UTC in seconds, and its abbreviation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MomentZone {
    pub offset: i64,
    pub abbreviation: String,
}

/// Parts of a timestamp or an interval. The parts of an interval may be negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub(super) date: CalendarDate,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) micros: i64,
    pub(super) zone: MomentZone,
    pub(super) is_interval: bool,
}

impl Moment {
    /// Returns the parts of midnight of a date, given in days since 1970-01-01.
    pub fn of_date(days: i32) -> Self {
        Self::new(CalendarDate::of_julian_day(i64::from(days) + JULIAN_DAY_OF_1970), 0, false)
    }

    /// Returns the parts of a timestamp, given in microseconds since 1970.
    pub fn of_timestamp(micros: i64) -> Self {
        let days = micros.div_euclid(MICROS_PER_DAY);
        Self::new(CalendarDate::of_julian_day(days + JULIAN_DAY_OF_1970), micros.rem_euclid(MICROS_PER_DAY), false)
    }

    /// Returns the parts of the local time in a zone at an instant, given in microseconds since 1970.
    pub fn of_instant(micros: i64, zone: &Tz) -> Self {
        // Outside of the calendar of `chrono`, a zone has the offset of its last or first known instant.
        let bound = if micros < 0 { DateTime::<chrono::Utc>::MIN_UTC } else { DateTime::<chrono::Utc>::MAX_UTC };
        let utc = DateTime::from_timestamp_micros(micros).unwrap_or(bound).naive_utc();
        let offset = i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc());
        let moment = Self::of_timestamp(micros.saturating_add(offset * MICROS_PER_SECOND));
        Self { zone: MomentZone { offset, abbreviation: abbreviation(zone, &utc, offset) }, ..moment }
    }

    /// Returns the parts of an interval: years and months, days, and a time.
    pub fn of_interval(interval: IntervalMonthDayNano) -> Self {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        let date = CalendarDate::new((months / 12).into(), (months % 12).into(), days.into());
        Self::new(date, nanoseconds / 1_000, true)
    }

    fn new(date: CalendarDate, time: i64, is_interval: bool) -> Self {
        let seconds = time / MICROS_PER_SECOND;
        Self {
            date,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: time % MICROS_PER_SECOND,
            zone: MomentZone::default(),
            is_interval,
        }
    }

    pub(super) fn second_of_day(&self) -> i64 {
        self.hour * 3_600 + self.minute * 60 + self.second
    }

    /// Returns the day of the year. In an interval, a month has 30 days.
    pub(super) fn day_of_year(&self) -> i64 {
        match self.is_interval {
            true => (self.date.year * 12 + self.date.month) * 30 + self.date.day,
            false => self.date.day_of_year(),
        }
    }

    /// Returns the day of the week. 0 is Sunday.
    pub(super) fn day_of_week(&self) -> i64 {
        (self.date.julian_day() + 1).rem_euclid(7)
    }
}

/// Returns the abbreviation of a zone at an instant, such as `CEST`. A zone without a name has its offset from UTC.
fn abbreviation(zone: &Tz, utc: &chrono::NaiveDateTime, offset: i64) -> String {
    use chrono_tz::OffsetName;
    let region = zone.to_string().parse::<chrono_tz::Tz>().ok();
    let offset_of_region = region.map(|region| region.offset_from_utc_datetime(utc));
    if let Some(name) = offset_of_region.as_ref().and_then(OffsetName::abbreviation) {
        return name.to_owned();
    }
    let divider = if region.is_some() { "" } else { ":" };
    match (offset.abs() / 3_600, offset.abs() / 60 % 60) {
        (0, 0) => "UTC".to_owned(),
        (hours, minutes) => {
            let sign = if offset < 0 { '-' } else { '+' };
            let minutes = if minutes > 0 { format!("{divider}{minutes:02}") } else { String::new() };
            format!("{sign}{hours:02}{minutes}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn julian_days_and_dates_are_inverse() {
        for (year, month, day, julian_day) in [
            (1970, 1, 1, 2_440_588),
            (2000, 2, 29, 2_451_604),
            (-4713, 11, 24, 0),
            (0, 3, 5, 1_721_124),
            (1, 1, 1, 1_721_426),
        ] {
            let date = CalendarDate::new(year, month, day);
            assert_eq!(date.julian_day(), julian_day, "{date:?}");
            assert_eq!(CalendarDate::of_julian_day(julian_day), date);
        }
        for julian_day in (-200_000..5_000_000).step_by(7) {
            assert_eq!(CalendarDate::of_julian_day(julian_day).julian_day(), julian_day);
        }
        // Interval of 3 years, 2 months and 5 days, and of -14 months.
        assert_eq!(CalendarDate::new(3, 2, 5).julian_day(), 1_722_191);
        assert_eq!(CalendarDate::new(-1, -2, 0).julian_day(), 1_720_602);
    }

    #[test]
    fn iso_weeks_may_be_of_another_year() {
        assert_eq!(CalendarDate::new(2024, 1, 5).iso_week(), (2024, 1, 5));
        assert_eq!(CalendarDate::new(2021, 1, 3).iso_week(), (2020, 53, 371));
        assert_eq!(CalendarDate::new(2018, 12, 31).iso_week(), (2019, 1, 1));
        assert_eq!(CalendarDate::new(0, 3, 5).iso_week(), (0, 9, 63));
    }
}
