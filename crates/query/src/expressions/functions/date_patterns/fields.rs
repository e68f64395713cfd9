//! Fields of a date that have been read, and the date and time that they determine.

use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::calendar::{
    CalendarDate, JULIAN_DAY_OF_1970, MICROS_PER_DAY, MICROS_PER_SECOND, days_of_month, first_day_of_iso_year,
};

/// A value that a field sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Year,
    Century,
    /// 1 for years before 1.
    IsBefore1,
    Month,
    /// Week of the year, or ISO week.
    Week,
    WeekOfMonth,
    DayOfYear,
    DayOfMonth,
    /// 1 is Sunday.
    DayOfWeek,
    JulianDay,
    Hour,
    /// 1 after noon.
    IsAfternoon,
    Minute,
    Second,
    SecondOfDay,
    Milliseconds,
    Microseconds,
    OffsetHours,
    OffsetMinutes,
}

/// Number of values of [`Slot`].
const SLOTS: usize = 19;

/// Calendar to which fields of a date belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Convention {
    Gregorian,
    IsoWeeks,
}

/// The fields that have been read.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Values of the slots. As in PostgreSQL, 0 is the same as no value.
    values: [i64; SLOTS],
    convention: Option<Convention>,
    pub has_12_hours: bool,
    /// Number of digits of the field of the year.
    pub year_digits: usize,
    /// Number of digits to which a fraction of a second is rounded.
    pub fraction_digits: Option<usize>,
    /// 1 or -1 if an offset from UTC has been read.
    pub offset_sign: Option<i64>,
}

/// A local date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DateAndTime {
    pub date: CalendarDate,
    /// Microseconds since midnight.
    pub micros: i64,
}

impl DateAndTime {
    /// Returns the date in days since 1970-01-01. Returns `None` if it is out of range.
    pub fn days(&self) -> Option<i64> {
        // The first Julian day is in November 4714 BC. The last year is the last one of `chrono`.
        let is_in_range = (-5_000..=262_142).contains(&self.date.year);
        let julian_day = Some(self.date).filter(|_| is_in_range).map(CalendarDate::julian_day);
        julian_day.filter(|day| *day >= 0).map(|day| day - JULIAN_DAY_OF_1970)
    }

    /// Returns the microseconds since 1970-01-01. Returns `None` if the date is out of range.
    pub fn micros_since_1970(&self) -> Option<i64> {
        self.days()?.checked_mul(MICROS_PER_DAY)?.checked_add(self.micros)
    }
}

impl Fields {
    pub fn get(&self, slot: Slot) -> i64 {
        self.values[slot as usize]
    }

    /// Sets a value without a check.
    pub fn replace(&mut self, slot: Slot, value: i64) {
        self.values[slot as usize] = value;
    }

    /// Sets a value.
    ///
    /// # Errors
    /// If another field has set another value.
    pub fn set(&mut self, slot: Slot, value: i64, keyword: &str) -> Result<()> {
        let known = self.get(slot);
        if known != 0 && known != value {
            return exec_err!("conflicting values for \"{keyword}\" field in formatting string");
        }
        self.replace(slot, value);
        Ok(())
    }

    /// Notes the calendar of a field.
    ///
    /// # Errors
    /// If a field before it is of the other calendar.
    pub fn use_convention(&mut self, convention: Convention) -> Result<()> {
        if self.convention.is_some_and(|known| known != convention) {
            return exec_err!("invalid combination of date conventions");
        }
        self.convention = Some(convention);
        Ok(())
    }

    /// Returns the value of a slot if it is not 0.
    fn value(&self, slot: Slot) -> Option<i64> {
        Some(self.get(slot)).filter(|value| *value != 0)
    }

    /// Returns the local date and time. Fields that are missing have the values of 0001-01-01 BC 00:00:00. `text` is
    /// the text that has been read.
    ///
    /// # Errors
    /// If fields are out of range or contradict each other.
    pub fn date_and_time(&self, text: &str) -> Result<DateAndTime> {
        let time = self.time()?;
        let mut date = Resolved { year: 0, month: 1, day: 1, has_year: false, has_month: false, has_day: false };
        self.resolve_date(&mut date)?;
        let out_of_range = || exec_datafusion_err!("date/time field value out of range: \"{text}\"");
        if !date.is_valid() {
            return Err(out_of_range());
        }
        let micros = time.micros().ok_or_else(out_of_range)?;
        Ok(DateAndTime { date: CalendarDate::new(date.year, date.month, date.day), micros })
    }

    /// Returns the offset from UTC in seconds, if one has been read.
    ///
    /// # Errors
    /// If the offset is out of range.
    pub fn offset(&self, text: &str) -> Result<Option<i64>> {
        let Some(sign) = self.offset_sign else { return Ok(None) };
        let (hours, minutes) = (self.get(Slot::OffsetHours), self.get(Slot::OffsetMinutes));
        if !(0..=15).contains(&hours) || !(0..60).contains(&minutes) {
            return exec_err!("time zone displacement out of range: \"{text}\"");
        }
        Ok(Some(sign * (hours * 3_600 + minutes * 60)))
    }

    fn time(&self) -> Result<TimeOfDay> {
        let seconds = self.get(Slot::SecondOfDay);
        let mut hour = self.value(Slot::Hour).unwrap_or(seconds / 3_600);
        if self.has_12_hours {
            if !(1..=12).contains(&hour) {
                return exec_err!("hour \"{hour}\" is invalid for the 12-hour clock");
            }
            hour = hour % 12 + 12 * self.get(Slot::IsAfternoon);
        }
        Ok(TimeOfDay {
            hour,
            minute: self.value(Slot::Minute).unwrap_or(seconds % 3_600 / 60),
            second: self.value(Slot::Second).unwrap_or(seconds % 60),
            micros: self.get(Slot::Milliseconds) * 1_000 + self.get(Slot::Microseconds),
        })
    }

    /// Returns the year that the fields of years, centuries and eras determine.
    fn year(&self) -> Option<i64> {
        let is_before_1 = self.get(Slot::IsBefore1) != 0;
        let signed = |number: i64| if is_before_1 { -number } else { number };
        match (self.value(Slot::Year), self.value(Slot::Century).map(signed)) {
            (Some(year), Some(century)) if self.year_digits <= 2 => Some(match year % 100 {
                0 if century >= 0 => century * 100,
                0 => century * 100 + 1,
                last if century >= 0 => (century - 1) * 100 + last,
                last => (century + 1) * 100 - last + 1,
            }),
            // There is no year 0: year 1 BC is year 0 of the calendar here.
            (Some(year), _) => Some(signed(year)).map(|year| if year < 0 { year + 1 } else { year }),
            (None, Some(century)) if century >= 0 => Some((century - 1) * 100 + 1),
            (None, Some(century)) => Some(century * 100 + 1),
            (None, None) => None,
        }
    }

    fn resolve_date(&self, date: &mut Resolved) -> Result<()> {
        let has_iso_weeks = self.convention == Some(Convention::IsoWeeks);
        if let Some(year) = self.year() {
            (date.year, date.has_year) = (year, true);
        }
        if let Some(julian_day) = self.value(Slot::JulianDay) {
            date.set_all(CalendarDate::of_julian_day(julian_day));
        }
        let week = self.value(Slot::Week);
        if let Some(week) = week.filter(|_| has_iso_weeks) {
            let monday = first_day_of_iso_year(date.year) + (week - 1) * 7;
            // Without a weekday, the date is the Monday of the week.
            let days = self.value(Slot::DayOfWeek).map_or(0, |day| if day > 1 { day - 2 } else { 6 });
            date.set_all(CalendarDate::of_julian_day(monday + days));
        }
        let first_of_week = week.filter(|_| !has_iso_weeks).map(|week| (week - 1) * 7 + 1);
        let first_of_week_of_month = self.value(Slot::WeekOfMonth).map(|week| (week - 1) * 7 + 1);
        if let Some(day) = first_of_week_of_month.or(self.value(Slot::DayOfMonth)).filter(|day| *day != 0) {
            (date.day, date.has_day) = (day, true);
        }
        if let Some(month) = self.value(Slot::Month) {
            (date.month, date.has_month) = (month, true);
        }
        let day_of_year = first_of_week.or(self.value(Slot::DayOfYear)).filter(|day| *day != 0);
        if let Some(day_of_year) = day_of_year.filter(|_| date.month <= 1 || date.day <= 1) {
            if date.year == 0 && self.get(Slot::IsBefore1) == 0 {
                return exec_err!("cannot calculate day of year without year information");
            }
            match has_iso_weeks {
                true => {
                    let first = first_day_of_iso_year(date.year);
                    date.set_all(CalendarDate::of_julian_day(first - 1 + day_of_year));
                }
                false => date.set_day_of_year(day_of_year),
            }
        }
        Ok(())
    }
}

/// A time of day that may be out of range.
struct TimeOfDay {
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl TimeOfDay {
    /// Returns the microseconds since midnight. Returns `None` if a part is out of range.
    fn micros(&self) -> Option<i64> {
        let is_valid = (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second)
            && (0..MICROS_PER_SECOND).contains(&self.micros);
        let seconds = || (self.hour * 60 + self.minute) * 60 + self.second;
        is_valid.then(|| seconds() * MICROS_PER_SECOND + self.micros)
    }
}

/// A date that fields determine, and the parts that they set.
struct Resolved {
    year: i64,
    month: i64,
    day: i64,
    has_year: bool,
    has_month: bool,
    has_day: bool,
}

impl Resolved {
    fn set_all(&mut self, date: CalendarDate) {
        (self.year, self.month, self.day) = (date.year, date.month, date.day);
        (self.has_year, self.has_month, self.has_day) = (true, true, true);
    }

    /// Sets the month and the day, if no field has set them, from a day of the year.
    fn set_day_of_year(&mut self, day_of_year: i64) {
        let (mut month, mut day) = (1, day_of_year);
        while month <= 12 && day > days_of_month(self.year, month) {
            day -= days_of_month(self.year, month);
            month += 1;
        }
        if self.month <= 1 {
            self.month = month;
        }
        if self.day <= 1 {
            self.day = day;
        }
        (self.has_month, self.has_day) = (true, true);
    }

    /// Whether the parts that fields have set are in range. A day is compared with its month only if the year is set
    /// too.
    fn is_valid(&self) -> bool {
        let is_complete = self.has_year && self.has_month && self.has_day;
        (!self.has_month || (1..=12).contains(&self.month))
            && (!self.has_day || (1..=31).contains(&self.day))
            && (!is_complete || self.day <= days_of_month(self.year, self.month))
    }
}
