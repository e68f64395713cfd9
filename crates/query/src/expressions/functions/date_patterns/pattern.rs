//! Parses date patterns.

use datafusion::common::Result;

use super::super::patterns::{literal, starts_with_keyword};

/// A field of a date pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// `AD` or `BC`, with periods if `has_periods`.
    Era {
        has_periods: bool,
    },
    /// `AM` or `PM`, with periods if `has_periods`.
    HalfDay {
        has_periods: bool,
    },
    Century,
    DayName,
    ShortDayName,
    DayOfYear,
    IsoDayOfYear,
    DayOfMonth,
    /// 1 is Sunday.
    DayOfWeek,
    /// 1 is Monday.
    IsoDayOfWeek,
    /// A fraction of a second with this number of digits.
    Fraction(usize),
    Milliseconds,
    Microseconds,
    /// `FX`: texts that are read have the widths of the pattern.
    FixedWidth,
    Hour24,
    Hour12,
    Week,
    IsoWeek,
    WeekOfMonth,
    /// The last digits of the year.
    Year(usize),
    /// The last digits of the year of ISO weeks.
    IsoYear(usize),
    /// `Y,YYY`
    YearWithComma,
    Julian,
    Minute,
    Month,
    MonthName,
    ShortMonthName,
    RomanMonth,
    Quarter,
    Second,
    SecondOfDay,
    /// Offset from UTC in hours and, if not zero, minutes.
    Offset,
    OffsetHours,
    OffsetMinutes,
    ZoneName,
}

/// Keywords in capitals, and names with an initial capital. Patterns may also have them in small letters. A keyword is
/// listed before its prefixes.
const KEYWORDS: [(&str, Field); 58] = [
    ("A.D.", Field::Era { has_periods: true }),
    ("A.M.", Field::HalfDay { has_periods: true }),
    ("AD", Field::Era { has_periods: false }),
    ("AM", Field::HalfDay { has_periods: false }),
    ("B.C.", Field::Era { has_periods: true }),
    ("BC", Field::Era { has_periods: false }),
    ("CC", Field::Century),
    ("DAY", Field::DayName),
    ("DDD", Field::DayOfYear),
    ("DD", Field::DayOfMonth),
    ("DY", Field::ShortDayName),
    ("Day", Field::DayName),
    ("Dy", Field::ShortDayName),
    ("D", Field::DayOfWeek),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("FX", Field::FixedWidth),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("I", Field::IsoYear(1)),
    ("J", Field::Julian),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MONTH", Field::MonthName),
    ("MON", Field::ShortMonthName),
    ("Month", Field::MonthName),
    ("Mon", Field::ShortMonthName),
    ("MS", Field::Milliseconds),
    ("OF", Field::Offset),
    ("P.M.", Field::HalfDay { has_periods: true }),
    ("PM", Field::HalfDay { has_periods: false }),
    ("Q", Field::Quarter),
    ("RM", Field::RomanMonth),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("TZH", Field::OffsetHours),
    ("TZM", Field::OffsetMinutes),
    ("TZ", Field::ZoneName),
    ("US", Field::Microseconds),
    ("WW", Field::Week),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
];

/// The case of names and suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterCase {
    Upper,
    /// The first letter is a capital.
    Initial,
    Lower,
}

/// What precedes a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    None,
    /// `FM`: without spaces and leading zeros.
    Compact,
    /// `TM`: names without spaces.
    Localized,
}

/// A field with its prefix and suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPart {
    pub field: Field,
    /// The keyword as in the pattern.
    pub keyword: String,
    pub prefix: Prefix,
    /// Case of the suffix `TH`, if there is one.
    pub ordinal: Option<LetterCase>,
}

impl FieldPart {
    pub fn letter_case(&self) -> LetterCase {
        let is_upper = |index: usize| self.keyword.as_bytes().get(index).is_some_and(u8::is_ascii_uppercase);
        let is_lower = |index: usize| self.keyword.as_bytes().get(index).is_some_and(u8::is_ascii_lowercase);
        match is_upper(0) {
            true if is_lower(1) => LetterCase::Initial,
            true => LetterCase::Upper,
            false => LetterCase::Lower,
        }
    }
}

/// Part of a date pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatePatternPart {
    Field(FieldPart),
    /// A space or a punctuation mark outside of quotes.
    Separator(char),
    Text(char),
}

/// A parsed pattern.
#[derive(Debug)]
pub struct DatePattern {
    pub(super) parts: Vec<DatePatternPart>,
}

impl DatePattern {
    /// Parses a pattern. Each text is a pattern.
    ///
    /// # Errors
    /// None.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (prefix, after) = split_prefix(rest);
            rest = after;
            if let Some((part, after)) = split_field(rest, prefix) {
                parts.push(DatePatternPart::Field(part));
                rest = after;
            } else if !rest.is_empty() {
                let is_quoted = rest.starts_with('"');
                let (literal, after) = literal(rest);
                parts.extend(literal.chars().map(|character| match character {
                    _ if is_quoted => DatePatternPart::Text(character),
                    _ if is_separator(character) || is_space(character) => DatePatternPart::Separator(character),
                    _ => DatePatternPart::Text(character),
                }));
                rest = after;
            }
        }
        Ok(Self { parts })
    }
}

/// Splits `FM` or `TM` from the rest of a pattern.
fn split_prefix(pattern: &str) -> (Prefix, &str) {
    for (name, prefix) in [("FM", Prefix::Compact), ("TM", Prefix::Localized)] {
        if starts_with_keyword(pattern, name) {
            return (prefix, &pattern[name.len()..]);
        }
    }
    (Prefix::None, pattern)
}

fn split_field(pattern: &str, prefix: Prefix) -> Option<(FieldPart, &str)> {
    let (name, field) = KEYWORDS.iter().find(|(name, _)| starts_with_keyword(pattern, name))?;
    let (keyword, mut rest) = pattern.split_at(name.len());
    let suffixes = [("TH", Some(LetterCase::Upper)), ("th", Some(LetterCase::Lower)), ("SP", None)];
    let suffix = suffixes.iter().find(|(name, _)| rest.starts_with(name));
    if let Some((name, _)) = suffix {
        rest = &rest[name.len()..];
    }
    let ordinal = suffix.and_then(|(_, ordinal)| *ordinal);
    Some((FieldPart { field: *field, keyword: keyword.to_owned(), prefix, ordinal }, rest))
}

/// Whether a character is a punctuation mark of ASCII.
pub(super) fn is_separator(character: char) -> bool {
    character.is_ascii_punctuation()
}

/// Whether a character is a space, a tab, or a line break of ASCII.
pub(super) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_have_one_case() {
        let fields = |pattern: &str| -> Vec<String> {
            let parts = DatePattern::parse(pattern).unwrap().parts;
            let keyword = |part: &DatePatternPart| match part {
                DatePatternPart::Field(field) => Some(field.keyword.clone()),
                _ => None,
            };
            parts.iter().filter_map(keyword).collect()
        };
        assert_eq!(fields("Mon MON mon Month month"), ["Mon", "MON", "mon", "Month", "month"]);
        assert_eq!(fields("Yyyy DAYDay Dy D"), ["Y", "yyy", "DAY", "Day", "Dy", "D"]);
        assert_eq!(fields("FMDDth HH24:MI \"YYYY\" FM"), ["DD", "HH24", "MI"]);
    }

    #[test]
    fn every_keyword_is_found() {
        for (name, field) in KEYWORDS {
            let DatePattern { parts } = DatePattern::parse(name).unwrap();
            assert!(matches!(parts.as_slice(), [DatePatternPart::Field(part)] if part.field == field), "{name}");
        }
    }
}
