//! Reads dates and timestamps.
//!
//! As in PostgreSQL, spaces before fields are skipped, and a separator in the pattern skips one separator or space of
//! the text, if there is one. Another character of the pattern skips a character, whatever it is. What the pattern does
//! not cover at the end of the text is ignored.

use chrono::DateTime;
use datafusion::arrow::array::timezone::Tz;
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::super::super::dates::offset_seconds;
use super::calendar::MICROS_PER_SECOND;
use super::fields::{Convention, Fields, Slot};
use super::pattern::{DatePattern, DatePatternPart, Field, FieldPart, Prefix, is_separator, is_space};
use super::{DAYS, MONTHS, ROMAN_MONTHS};

impl DatePattern {
    /// Reads a date. Returns days since 1970-01-01.
    ///
    /// # Errors
    /// If the text does not match the pattern, or the date does not exist or is out of range.
    pub fn read_date(&self, text: &str) -> Result<i32> {
        let date = self.read(text)?.date_and_time(text)?;
        let days = date.days().and_then(|days| i32::try_from(days).ok());
        days.ok_or_else(|| exec_datafusion_err!("date out of range: \"{text}\""))
    }

    /// Reads a timestamp. Returns microseconds since 1970-01-01 in UTC. A text without an offset is local time in
    /// `zone`.
    ///
    /// # Errors
    /// If the text does not match the pattern, or the timestamp does not exist or is out of range.
    pub fn read_timestamp(&self, text: &str, zone: &Tz) -> Result<i64> {
        let fields = self.read(text)?;
        let local = fields.date_and_time(text)?;
        let out_of_range = || exec_datafusion_err!("timestamp out of range");
        let micros = local.micros_since_1970().ok_or_else(out_of_range)?;
        let offset = match fields.offset(text)? {
            Some(offset) => offset,
            None => {
                let local = DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)?.naive_utc();
                offset_seconds(zone, local).ok_or_else(out_of_range)?
            }
        };
        let micros = micros.checked_sub(offset * MICROS_PER_SECOND).ok_or_else(out_of_range)?;
        match fields.fraction_digits {
            Some(digits) => rounded(micros, digits).ok_or_else(out_of_range),
            None => Ok(micros),
        }
    }

    fn read(&self, text: &str) -> Result<Fields> {
        let mut reader = DateReader { text, at: 0, skipped: 0, has_fixed_width: false, fields: Fields::default() };
        for (index, part) in self.parts.iter().enumerate() {
            if reader.rest().is_empty() {
                break;
            }
            match part {
                DatePatternPart::Field(field) => reader.read_field(field, self.parts.get(index + 1))?,
                DatePatternPart::Separator(_) => reader.read_separator(index == 0),
                DatePatternPart::Text(_) => reader.read_character(index == 0),
            }
        }
        Ok(reader.fields)
    }
}

/// Rounds a timestamp to digits of a fraction of a second. Rounds half away from the year 2000.
fn rounded(micros: i64, digits: usize) -> Option<i64> {
    const MICROS_OF_2000: i64 = 946_684_800 * MICROS_PER_SECOND;
    let step = 10_i64.pow(6 - digits.min(6) as u32);
    let since_2000 = micros.checked_sub(MICROS_OF_2000)?;
    let steps = (since_2000.checked_abs()? + step / 2) / step * step;
    (steps * since_2000.signum()).checked_add(MICROS_OF_2000)
}

/// A text that is being read.
struct DateReader<'a> {
    text: &'a str,
    /// Index of the next byte of the text.
    at: usize,
    /// Number of skipped spaces, less the number of characters of the pattern for which no character was skipped.
    skipped: i64,
    /// Whether the pattern has had `FX`.
    has_fixed_width: bool,
    fields: Fields,
}

impl<'a> DateReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        if self.has_fixed_width {
            return;
        }
        let rest = self.rest();
        let count = rest.len() - rest.trim_start_matches(is_space).len();
        self.at += count;
        self.skipped += count as i64;
    }

    fn skip_character(&mut self) {
        self.at += self.rest().chars().next().map_or(0, char::len_utf8);
    }

    fn read_separator(&mut self, is_first: bool) {
        if self.has_fixed_width {
            return self.skip_character();
        }
        if is_first {
            self.skip_spaces();
        }
        if self.rest().starts_with(|character| is_space(character) || is_separator(character)) {
            self.at += 1;
        } else {
            self.skipped -= 1;
        }
    }

    fn read_character(&mut self, is_first: bool) {
        if is_first {
            self.skip_spaces();
        }
        // A space skipped before may have been in the place of this character.
        if !self.has_fixed_width && self.skipped > 0 {
            self.skipped -= 1;
        } else {
            self.skip_character();
        }
    }

    fn read_field(&mut self, part: &FieldPart, next: Option<&DatePatternPart>) -> Result<()> {
        if part.field == Field::FixedWidth {
            self.has_fixed_width = true;
            return Ok(());
        }
        self.skip_spaces();
        if let Some(convention) = part.field.convention() {
            self.fields.use_convention(convention)?;
        }
        match part.field.number() {
            Some((slot, width)) => self.read_number_field(part, slot, width, next)?,
            None => self.read_other_field(part, next)?,
        }
        if !self.has_fixed_width {
            self.skipped = 0;
            self.skip_spaces();
        }
        Ok(())
    }

    fn read_number_field(
        &mut self,
        part: &FieldPart,
        slot: Option<Slot>,
        width: usize,
        next: Option<&DatePatternPart>,
    ) -> Result<()> {
        // `SSSS` and `SSSSS` are the same field, but have different widths.
        let width = if part.field == Field::SecondOfDay { part.keyword.len() } else { width };
        let (value, length) = self.read_integer(part, width, next)?;
        if let Some(slot) = slot {
            self.fields.set(slot, value, &part.keyword)?;
            self.fields.replace(slot, adjusted(part.field, self.fields.get(slot), length));
        }
        match part.field {
            Field::Hour12 => self.fields.has_12_hours = true,
            Field::Fraction(digits) => self.fields.fraction_digits = Some(digits),
            Field::Year(digits) | Field::IsoYear(digits) => self.fields.year_digits = digits,
            _ => {}
        }
        self.skip_ordinal(part);
        Ok(())
    }

    fn read_other_field(&mut self, part: &FieldPart, next: Option<&DatePatternPart>) -> Result<()> {
        const ERAS: [&str; 2] = ["AD", "BC"];
        const ERAS_WITH_PERIODS: [&str; 2] = ["A.D.", "B.C."];
        const HALVES: [&str; 2] = ["AM", "PM"];
        const HALVES_WITH_PERIODS: [&str; 2] = ["A.M.", "P.M."];
        let keyword = part.keyword.as_str();
        match part.field {
            Field::Era { has_periods } => {
                let names = if has_periods { &ERAS_WITH_PERIODS } else { &ERAS };
                let index = self.read_name(part, names.iter().copied())?;
                self.fields.set(Slot::IsBefore1, index, keyword)
            }
            Field::HalfDay { has_periods } => {
                let names = if has_periods { &HALVES_WITH_PERIODS } else { &HALVES };
                let index = self.read_name(part, names.iter().copied())?;
                self.fields.has_12_hours = true;
                self.fields.set(Slot::IsAfternoon, index, keyword)
            }
            Field::MonthName => {
                let index = self.read_name(part, MONTHS.into_iter())?;
                self.fields.set(Slot::Month, index + 1, keyword)
            }
            Field::ShortMonthName => {
                let index = self.read_name(part, MONTHS.into_iter().map(|name| &name[..3]))?;
                self.fields.set(Slot::Month, index + 1, keyword)
            }
            Field::RomanMonth => {
                // A numeral such as VIII is compared before its beginning, VII.
                let index = self.read_name(part, ROMAN_MONTHS.into_iter().rev())?;
                self.fields.set(Slot::Month, 12 - index, keyword)
            }
            Field::DayName => {
                let index = self.read_name(part, DAYS.into_iter())?;
                self.set_day_of_week(index, keyword)
            }
            Field::ShortDayName => {
                let index = self.read_name(part, DAYS.into_iter().map(|name| &name[..3]))?;
                self.set_day_of_week(index, keyword)
            }
            Field::YearWithComma => {
                self.read_year_with_comma(keyword)?;
                self.skip_ordinal(part);
                Ok(())
            }
            Field::OffsetHours => {
                self.fields.offset_sign = Some(self.read_offset_sign());
                let (hours, _) = self.read_integer(part, 2, next)?;
                self.fields.set(Slot::OffsetHours, hours, keyword)
            }
            Field::OffsetMinutes => {
                self.fields.offset_sign.get_or_insert(1);
                let (minutes, _) = self.read_integer(part, 2, next)?;
                self.fields.set(Slot::OffsetMinutes, minutes, keyword)
            }
            Field::ZoneName | Field::Offset => {
                exec_err!("formatting field \"{keyword}\" is only supported in to_char")
            }
            _ => Ok(()),
        }
    }

    /// Sets the day of the week from the index of its name. Like PostgreSQL, compares the index with the number of a
    /// weekday that another field has set.
    fn set_day_of_week(&mut self, index: i64, keyword: &str) -> Result<()> {
        self.fields.set(Slot::DayOfWeek, index, keyword)?;
        self.fields.replace(Slot::DayOfWeek, index + 1);
        Ok(())
    }

    /// Skips the suffix of an ordinal number: two characters, whatever they are.
    fn skip_ordinal(&mut self, part: &FieldPart) {
        if part.ordinal.is_some() {
            self.skip_character();
            self.skip_character();
        }
    }

    /// Reads a name in any case. Returns its index.
    fn read_name<'n>(&mut self, part: &FieldPart, mut names: impl Iterator<Item = &'n str>) -> Result<i64> {
        let rest = self.rest();
        let mut length = 0;
        let found = names.position(|name| {
            length = name.len();
            rest.get(..length).is_some_and(|start| start.eq_ignore_ascii_case(name))
        });
        let Some(index) = found else {
            let word = rest.split(is_space).next().unwrap_or_default();
            return exec_err!("invalid value \"{word}\" for \"{}\"", part.keyword);
        };
        self.at += length;
        Ok(index as i64)
    }

    /// Reads an integer. It has `width` characters if the field is followed by another number, and ends at the first
    /// other character than a digit if not. Returns the integer, and its length with the spaces before it.
    fn read_integer(&mut self, part: &FieldPart, width: usize, next: Option<&DatePatternPart>) -> Result<(i64, usize)> {
        let keyword = part.keyword.as_str();
        let (start, spaces) = (self.rest(), self.rest().len() - self.rest().trim_start_matches(is_space).len());
        let text = &start[spaces..];
        let fixed = (0..=width.min(text.len())).rev().find_map(|length| text.get(..length)).unwrap_or_default();
        let (value, length) = if part.prefix == Prefix::Compact || part.ordinal.is_some() || ends_number(next) {
            leading_integer(start)
        } else {
            if text.len() < width {
                return exec_err!("source string too short for \"{keyword}\" formatting field");
            }
            let (value, length) = leading_integer(fixed);
            if length > 0 && length < width {
                return exec_err!("invalid value \"{fixed}\" for \"{keyword}\"");
            }
            (value, spaces + length)
        };
        if length == 0 {
            return exec_err!("invalid value \"{fixed}\" for \"{keyword}\"");
        }
        if i32::try_from(value).is_err() {
            return exec_err!("value for \"{keyword}\" in source string is out of range");
        }
        self.at += length;
        Ok((value, length))
    }

    fn read_year_with_comma(&mut self, keyword: &str) -> Result<()> {
        let rest = self.rest();
        let (thousands, length) = leading_integer(rest);
        let after = rest[length..].strip_prefix(',').unwrap_or_default();
        let spaces = after.len() - after.trim_start_matches(is_space).len();
        let digits = &after[spaces..];
        let width = digits.bytes().take(3).take_while(u8::is_ascii).count();
        let (year, year_length) = leading_integer(&digits[..width]);
        if length == 0 || year_length == 0 {
            return exec_err!("invalid input string for \"Y,YYY\"");
        }
        self.at += length + 1 + spaces + year_length;
        self.fields.year_digits = 4;
        self.fields.set(Slot::Year, thousands.saturating_mul(1_000).saturating_add(year), keyword)
    }

    /// Reads the sign of an offset. A minus sign may have been skipped as a separator.
    fn read_offset_sign(&mut self) -> i64 {
        match self.rest().bytes().next() {
            Some(sign @ (b'+' | b'-' | b' ')) => {
                self.at += 1;
                if sign == b'-' { -1 } else { 1 }
            }
            _ if self.skipped > 0 && self.text[..self.at].ends_with('-') => -1,
            _ => 1,
        }
    }
}

impl Field {
    /// Returns the slot of a field that is read as an integer, and the width of the integer. `Q` is read, but has no
    /// effect. Returns `None` for other fields.
    fn number(self) -> Option<(Option<Slot>, usize)> {
        let (slot, width) = match self {
            Self::Hour12 | Self::Hour24 => (Slot::Hour, 2),
            Self::Minute => (Slot::Minute, 2),
            Self::Second => (Slot::Second, 2),
            Self::SecondOfDay => (Slot::SecondOfDay, 5),
            Self::Milliseconds => (Slot::Milliseconds, 3),
            Self::Microseconds => (Slot::Microseconds, 6),
            Self::Fraction(digits) => (Slot::Microseconds, digits),
            Self::Month => (Slot::Month, 2),
            Self::DayOfYear | Self::IsoDayOfYear => (Slot::DayOfYear, 3),
            Self::DayOfMonth => (Slot::DayOfMonth, 2),
            Self::DayOfWeek | Self::IsoDayOfWeek => (Slot::DayOfWeek, 1),
            Self::Week | Self::IsoWeek => (Slot::Week, 2),
            Self::WeekOfMonth => (Slot::WeekOfMonth, 1),
            Self::Century => (Slot::Century, 2),
            Self::Year(digits) | Self::IsoYear(digits) => (Slot::Year, digits),
            Self::Julian => (Slot::JulianDay, 1),
            Self::Quarter => return Some((None, 1)),
            _ => return None,
        };
        Some((Some(slot), width))
    }

    /// Returns the calendar of a field of a date. Returns `None` for fields of both, such as names of days.
    fn convention(self) -> Option<Convention> {
        match self {
            Self::IsoYear(_) | Self::IsoWeek | Self::IsoDayOfYear | Self::IsoDayOfWeek => Some(Convention::IsoWeeks),
            Self::Year(_)
            | Self::YearWithComma
            | Self::Month
            | Self::MonthName
            | Self::ShortMonthName
            | Self::RomanMonth
            | Self::Week
            | Self::WeekOfMonth
            | Self::DayOfYear
            | Self::DayOfMonth
            | Self::DayOfWeek => Some(Convention::Gregorian),
            _ => None,
        }
    }
}

/// Whether an integer ends before the next part of the pattern, because that is no number.
fn ends_number(next: Option<&DatePatternPart>) -> bool {
    match next {
        None => true,
        Some(DatePatternPart::Field(part)) => {
            part.field.number().is_none() && !matches!(part.field, Field::OffsetMinutes | Field::YearWithComma)
        }
        Some(DatePatternPart::Separator(character) | DatePatternPart::Text(character)) => !character.is_ascii_digit(),
    }
}

/// Converts the number of a field to the value of its slot. `length` is the number of characters.
fn adjusted(field: Field, value: i64, length: usize) -> i64 {
    let power = |digits: usize| 10_i64.pow(digits.saturating_sub(length) as u32);
    match field {
        Field::Milliseconds => value * power(3),
        Field::Microseconds | Field::Fraction(_) => value * power(6),
        // The number 7 is Sunday, which is day 1 of the slot.
        Field::IsoDayOfWeek if value >= 7 => 1,
        Field::IsoDayOfWeek => value + 1,
        // A year without its first digits is the one that is nearest to 2020.
        Field::Year(1..=3) | Field::IsoYear(1..=3) if length < 4 => match value {
            ..70 | 100..520 => value + 2_000,
            70..100 => value + 1_900,
            520..1_000 => value + 1_000,
            _ => value,
        },
        _ => value,
    }
}

/// Reads an integer with an optional sign after optional spaces. Returns it and its length, or 0 and 0 without digits.
fn leading_integer(text: &str) -> (i64, usize) {
    let unsigned = text.trim_start_matches(is_space);
    let is_negative = unsigned.starts_with('-');
    let digits = unsigned.strip_prefix(['-', '+']).unwrap_or(unsigned);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return (0, 0);
    }
    // An integer of more digits is out of range for all fields.
    let value = digits[..count].parse::<i64>().unwrap_or(i64::MAX);
    (if is_negative { -value } else { value }, text.len() - digits.len() + count)
}
