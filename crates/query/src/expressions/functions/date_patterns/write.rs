//! Formats timestamps and intervals.

use datafusion::common::{Result, exec_err};

use super::super::patterns::ordinal_suffix;
use super::calendar::Moment;
use super::pattern::{DatePattern, DatePatternPart, Field, FieldPart, LetterCase, Prefix};
use super::{DAYS, MONTHS, ROMAN_MONTHS};

/// Width of names of days and months, spaces after them included.
const NAME_WIDTH: usize = 9;
/// Width of Roman numerals of months, spaces after them included.
const ROMAN_WIDTH: usize = 4;

impl DatePattern {
    /// Formats a timestamp or an interval.
    ///
    /// # Errors
    /// If the pattern has a field that intervals lack, such as a weekday.
    pub fn write(&self, moment: &Moment) -> Result<String> {
        let mut result = String::new();
        for part in &self.parts {
            match part {
                DatePatternPart::Separator(character) | DatePatternPart::Text(character) => result.push(*character),
                DatePatternPart::Field(part) => part.write(moment, &mut result)?,
            }
        }
        Ok(result)
    }
}

impl FieldPart {
    fn write(&self, moment: &Moment, result: &mut String) -> Result<()> {
        if moment.is_interval && self.field.needs_date() {
            return exec_err!("invalid format specification for an interval value");
        }
        match self.number(moment) {
            Some(number) => {
                result.push_str(&number);
                if let Some(letter_case) = self.ordinal {
                    result.push_str(ordinal_suffix(&number, letter_case == LetterCase::Upper));
                }
            }
            None => result.push_str(&self.text(moment)),
        }
        Ok(())
    }

    /// Writes a number with at least `width` digits, without leading zeros if the field has `FM`.
    fn signed(&self, number: i64, width: usize) -> String {
        self.padded(number, width + usize::from(number < 0))
    }

    /// Writes a number with at least `width` characters, without leading zeros if the field has `FM`.
    fn padded(&self, number: i64, width: usize) -> String {
        if self.prefix == Prefix::Compact { number.to_string() } else { zero_padded(number, width) }
    }

    /// Writes the last digits of a year. As in PostgreSQL, the year of the date decides on the width, even if the year
    /// of the ISO week is another one.
    fn year(&self, year: i64, digits: usize, moment: &Moment) -> String {
        let year = shown_year(year, moment.is_interval);
        let last = [10, 100, 1_000].get(digits - 1).map_or(year, |power| year % power);
        let has_sign = moment.is_interval && moment.date.year < 0;
        match digits {
            1 => last.to_string(),
            _ => self.padded(last, digits + usize::from(has_sign)),
        }
    }

    /// Writes a field that is a number. Returns `None` for other fields.
    fn number(&self, moment: &Moment) -> Option<String> {
        let date = moment.date;
        Some(match self.field {
            Field::Hour12 => {
                let hour = moment.hour % 12;
                let width = if moment.hour < 0 { 3 } else { 2 };
                self.padded(if hour == 0 { 12 } else { hour }, width)
            }
            Field::Hour24 => self.signed(moment.hour, 2),
            Field::Minute => self.signed(moment.minute, 2),
            Field::Second => self.signed(moment.second, 2),
            Field::Fraction(digits) => zero_padded(moment.micros / 10_i64.pow(6 - digits.min(6) as u32), digits),
            Field::Milliseconds => zero_padded(moment.micros / 1_000, 3),
            Field::Microseconds => zero_padded(moment.micros, 6),
            Field::SecondOfDay => moment.second_of_day().to_string(),
            Field::Month => self.signed(date.month, 2),
            Field::DayOfYear => self.padded(moment.day_of_year(), 3),
            Field::IsoDayOfYear => self.padded(date.iso_week().2, 3),
            Field::DayOfMonth => self.padded(date.day, 2),
            Field::DayOfWeek => (moment.day_of_week() + 1).to_string(),
            Field::IsoDayOfWeek => ((moment.day_of_week() + 6) % 7 + 1).to_string(),
            Field::Week => self.padded((moment.day_of_year() - 1) / 7 + 1, 2),
            Field::IsoWeek => self.padded(date.iso_week().1, 2),
            Field::WeekOfMonth => ((date.day - 1) / 7 + 1).to_string(),
            Field::Quarter if date.month == 0 => return None,
            Field::Quarter => ((date.month - 1) / 3 + 1).to_string(),
            Field::Century => match century(moment) {
                century @ -99..=99 => self.signed(century, 2),
                century => century.to_string(),
            },
            Field::YearWithComma => {
                let year = shown_year(date.year, moment.is_interval);
                format!("{},{}", year / 1_000, zero_padded(year % 1_000, 3))
            }
            Field::Year(digits) => self.year(date.year, digits, moment),
            Field::IsoYear(digits) => self.year(date.iso_week().0, digits, moment),
            Field::Julian => date.julian_day().to_string(),
            _ => return None,
        })
    }

    /// Writes a field that is not a number.
    fn text(&self, moment: &Moment) -> String {
        let offset = moment.zone.offset;
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 3_600, offset.abs() % 3_600 / 60);
        match self.field {
            Field::HalfDay { has_periods } => {
                self.marker(if moment.hour % 24 >= 12 { "PM" } else { "AM" }, has_periods)
            }
            Field::Era { has_periods } => self.marker(if moment.date.year <= 0 { "BC" } else { "AD" }, has_periods),
            Field::DayName => self.name(DAYS[moment.day_of_week() as usize % 7], NAME_WIDTH),
            Field::ShortDayName => self.name(&DAYS[moment.day_of_week() as usize % 7][..3], 0),
            Field::MonthName => self.name(month_name(moment), NAME_WIDTH),
            Field::ShortMonthName => self.name(&month_name(moment)[..3], 0),
            Field::RomanMonth => roman_month(moment).map_or_else(String::new, |numeral| {
                let numeral = self.in_case(numeral);
                if self.prefix == Prefix::Compact { numeral } else { format!("{numeral:<ROMAN_WIDTH$}") }
            }),
            Field::OffsetHours => format!("{sign}{hours:02}"),
            Field::OffsetMinutes => format!("{minutes:02}"),
            Field::Offset if minutes == 0 => format!("{sign}{}", self.padded(hours, 2)),
            Field::Offset => format!("{sign}{}:{minutes:02}", self.padded(hours, 2)),
            Field::ZoneName if self.letter_case() == LetterCase::Lower => moment.zone.abbreviation.to_lowercase(),
            Field::ZoneName => moment.zone.abbreviation.clone(),
            _ => String::new(),
        }
    }

    /// Writes a marker of two letters.
    fn marker(&self, letters: &str, has_periods: bool) -> String {
        let letters = self.in_case(letters);
        match has_periods {
            true => letters.chars().flat_map(|letter| [letter, '.']).collect(),
            false => letters,
        }
    }

    /// Writes a name, and spaces up to a width unless the field has a prefix.
    fn name(&self, name: &str, width: usize) -> String {
        let name = self.in_case(name);
        if self.prefix == Prefix::None { format!("{name:<width$}") } else { name }
    }

    fn in_case(&self, text: &str) -> String {
        match self.letter_case() {
            LetterCase::Upper => text.to_ascii_uppercase(),
            LetterCase::Initial => text.to_owned(),
            LetterCase::Lower => text.to_ascii_lowercase(),
        }
    }
}

impl Field {
    /// Whether an interval lacks the field.
    fn needs_date(self) -> bool {
        matches!(
            self,
            Self::Era { .. }
                | Self::DayName
                | Self::ShortDayName
                | Self::DayOfWeek
                | Self::IsoDayOfWeek
                | Self::MonthName
                | Self::ShortMonthName
                | Self::ZoneName
                | Self::Offset
                | Self::OffsetHours
                | Self::OffsetMinutes
        )
    }
}

/// Writes a number with leading zeros. The width includes a minus sign.
fn zero_padded(number: i64, width: usize) -> String {
    format!("{number:0width$}")
}

/// Returns the number of a year without its era: there is no year 0. The years of intervals stay.
fn shown_year(year: i64, is_interval: bool) -> i64 {
    if is_interval || year > 0 { year } else { 1 - year }
}

fn century(moment: &Moment) -> i64 {
    match moment.date.year {
        year if moment.is_interval => year / 100,
        year if year > 0 => (year - 1) / 100 + 1,
        year => year / 100 - 1,
    }
}

fn month_name(moment: &Moment) -> &'static str {
    MONTHS[(moment.date.month - 1).rem_euclid(12) as usize]
}

/// Returns the month as a Roman numeral. The months of an interval, which may be negative, are counted from December.
fn roman_month(moment: &Moment) -> Option<&'static str> {
    let (year, month) = (moment.date.year, moment.date.month);
    match month {
        0 if year == 0 => None,
        0 if year < 0 => Some(ROMAN_MONTHS[0]),
        ..=0 => Some(ROMAN_MONTHS[if month == 0 { 11 } else { month.rem_euclid(12) as usize }]),
        _ => Some(ROMAN_MONTHS[(month - 1).rem_euclid(12) as usize]),
    }
}
