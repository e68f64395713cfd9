//! `to_char` of numbers, with PostgreSQL's patterns. If the pattern of a `to_char` call formats a number, `taut_sql`
//! replaces the call by a call of `number_to_char`.
//!
//! ```text
//!   9 0             a digit; leading zeros are shown from the first 0 of the pattern on, spaces before it
//!   . D , G         the decimal point, and a comma between digits
//!   S MI PL SG PR   the sign: before the number (leading S), at this position, or as <> around negative numbers (PR)
//!   TH th           the suffix of an ordinal number
//!   FM              no spaces, and no trailing zeros after the last 0 of the pattern
//! ```
//!
//! Without a sign in the pattern, a minus sign or a space precedes the first digit. If a number has more integer digits
//! than the pattern, each digit is shown as `#`. Other characters, and text in double quotes, are written unchanged.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type};
use datafusion::common::{Result, exec_err};

use super::definition::ArgumentType::{Double, Exact, Text};
use super::definition::{Definition, complete_rows, result, texts};

pub(super) const NUMBER_TO_CHAR: Definition = Definition {
    name: "number_to_char",
    arguments: &[&[Exact, Text], &[Double, Text]],
    result: result::text,
    compute: formatted_numbers,
};

/// Maximum number of significant digits shown for a double precision number.
const DOUBLE_DIGITS_MAX: usize = 15;

fn formatted_numbers(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut last_parsed: Option<(String, NumberPattern)> = None;
    let numbers = match arguments[0].data_type() {
        DataType::Float64 | DataType::Decimal128(..) => Arc::clone(&arguments[0]),
        _ => cast(&arguments[0], &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?,
    };
    let rows = complete_rows(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let text = texts(&arguments[1]).value(row);
        if last_parsed.as_ref().is_none_or(|(pattern, _)| pattern != text) {
            last_parsed = Some((text.to_owned(), NumberPattern::parse(text)?));
        }
        let Some((_, pattern)) = &last_parsed else { return Ok(None) };
        Ok(Some(match numbers.data_type() {
            DataType::Decimal128(_, scale) => {
                let number = numbers.as_primitive::<Decimal128Type>().value(row);
                pattern.format(&Digits::of_decimal(number, scale.unsigned_abs().into(), pattern.fraction_digits))
            }
            _ => {
                let number = numbers.as_primitive::<Float64Type>().value(row);
                pattern.format(&Digits::of_double(number, pattern.fraction_digits))
            }
        }))
    });
    Ok(Arc::new(rows.collect::<Result<StringViewArray>>()?))
}

/// The digits of a number, rounded to the fraction digits of a pattern.
#[derive(Debug)]
struct Digits {
    is_negative: bool,
    integer: String,
    fraction: String,
}

impl Digits {
    fn of_decimal(number: i128, scale: usize, fraction: usize) -> Self {
        let mut digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
        let mut point = digits.len() - scale;
        if fraction < scale {
            let dropped = digits.split_off(point + fraction);
            if dropped.starts_with(['5', '6', '7', '8', '9']) {
                let before = digits.len();
                digits = incremented(&digits);
                point += digits.len() - before;
            }
        }
        let (integer, decimals) = digits.split_at(point);
        // A decimal that is rounded to zero has no sign.
        let is_zero = digits.bytes().all(|digit| digit == b'0');
        let fraction = format!("{decimals:0<fraction$}");
        Self { is_negative: number < 0 && !is_zero, integer: integer.to_owned(), fraction }
    }

    fn of_double(number: f64, fraction: usize) -> Self {
        if number.is_nan() {
            return Self { is_negative: false, integer: "NaN".to_owned(), fraction: "#".repeat(fraction) };
        }
        if number.is_infinite() {
            // This is longer than any pattern, so each digit of the pattern is shown as `#`.
            let integer = "1".repeat(usize::from(u16::MAX));
            return Self { is_negative: number < 0.0, integer, fraction: String::new() };
        }
        let integer_digits = format!("{:.0}", number.abs().trunc()).len();
        let shown = fraction.min(DOUBLE_DIGITS_MAX.saturating_sub(integer_digits));
        let written = format!("{:.shown$}", number.abs());
        let (integer, decimals) = written.split_once('.').unwrap_or((&written, ""));
        Self { is_negative: number < 0.0, integer: integer.to_owned(), fraction: decimals.to_owned() }
    }
}

/// Adds one to an integer, given as decimal digits.
fn incremented(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let nines = digits.len() - kept.len();
    let (first, last) = kept.split_at(kept.len().saturating_sub(1));
    let last = last.parse::<u8>().map_or(1, |digit| digit + 1);
    format!("{first}{last}{}", "0".repeat(nines))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Digit,
    Point,
    Comma,
    /// A minus sign for negative numbers, otherwise a space.
    Minus,
    /// A space for negative numbers, otherwise a plus sign.
    Plus,
    /// A minus or plus sign.
    AnySign,
    Ordinal {
        is_upper: bool,
    },
    Other(char),
}

/// How the sign of a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignStyle {
    /// A minus sign or a space before the first digit.
    Default,
    /// A minus or plus sign before the first digit.
    Leading,
    /// `<` before and `>` after negative numbers, otherwise spaces.
    Brackets,
    /// A sign only where the pattern has one.
    InPlace,
}

/// A parsed pattern.
#[derive(Debug)]
struct NumberPattern {
    parts: Vec<PatternPart>,
    sign: SignStyle,
    /// Whether the pattern has `FM`.
    is_compact: bool,
    /// Number of digits before the decimal point.
    integer_digits: usize,
    /// Number of digits after the decimal point.
    fraction_digits: usize,
    /// Index of the first `0` among the digits before the point. Leading zeros are shown from this digit on.
    first_zero: Option<usize>,
    /// Number of digits after the point up to the last `0` of the pattern. These digits are shown even if they are
    /// trailing zeros.
    fraction_digits_min: usize,
}

impl NumberPattern {
    fn parse(text: &str) -> Result<Self> {
        let mut pattern = Self {
            parts: Vec::new(),
            sign: SignStyle::Default,
            is_compact: false,
            integer_digits: 0,
            fraction_digits: 0,
            first_zero: None,
            fraction_digits_min: 0,
        };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let upper = rest.get(..2).unwrap_or_default().to_ascii_uppercase();
            let length = match (upper.as_str(), first.to_ascii_uppercase()) {
                ("FM", _) => {
                    pattern.is_compact = true;
                    2
                }
                ("MI", _) => pattern.push_sign(PatternPart::Minus),
                ("PL", _) => {
                    pattern.parts.push(PatternPart::Plus);
                    2
                }
                ("SG", _) => pattern.push_sign(PatternPart::AnySign),
                ("PR", _) => {
                    pattern.sign = SignStyle::Brackets;
                    2
                }
                ("TH", _) => {
                    pattern.parts.push(PatternPart::Ordinal { is_upper: first == 'T' });
                    2
                }
                ("RN" | "EE", _) | (_, 'V') => return exec_err!("a pattern with V, RN or EEEE is not supported"),
                (_, '"') => {
                    let literal: &str = rest[1..].split('"').next().unwrap_or_default();
                    pattern.parts.extend(literal.chars().map(PatternPart::Other));
                    (literal.len() + 2).min(rest.len())
                }
                _ => {
                    pattern.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        Ok(pattern)
    }

    fn push_sign(&mut self, part: PatternPart) -> usize {
        self.sign = SignStyle::InPlace;
        self.parts.push(part);
        2
    }

    fn push(&mut self, character: char) {
        let has_point = self.parts.contains(&PatternPart::Point);
        match character.to_ascii_uppercase() {
            digit @ ('9' | '0') => {
                self.parts.push(PatternPart::Digit);
                if has_point {
                    self.fraction_digits += 1;
                    self.fraction_digits_min =
                        if digit == '0' { self.fraction_digits } else { self.fraction_digits_min };
                } else {
                    if digit == '0' && self.first_zero.is_none() {
                        self.first_zero = Some(self.integer_digits);
                    }
                    self.integer_digits += 1;
                }
            }
            '.' | 'D' if !has_point => self.parts.push(PatternPart::Point),
            ',' | 'G' => self.parts.push(PatternPart::Comma),
            'S' if self.integer_digits + self.fraction_digits == 0 => self.sign = SignStyle::Leading,
            'S' => {
                self.push_sign(PatternPart::AnySign);
            }
            'L' => self.parts.push(PatternPart::Other(' ')),
            _ => self.parts.push(PatternPart::Other(character)),
        }
    }

    fn format(&self, digits: &Digits) -> String {
        Formatted { pattern: self, digits, text: String::new(), has_begun: false }.finish()
    }
}

/// A number that is being formatted.
struct Formatted<'a> {
    pattern: &'a NumberPattern,
    digits: &'a Digits,
    text: String,
    /// Whether the first digit or the point has been written.
    has_begun: bool,
}

impl Formatted<'_> {
    fn finish(mut self) -> String {
        let Self { pattern, digits, .. } = self;
        let is_overflow = digits.integer.len() > pattern.integer_digits;
        // A single zero before the point is hidden, unless the pattern has a `0` there or no other digit is shown.
        let is_hidden = digits.integer == "0" && pattern.fraction_digits > 0 && pattern.first_zero.is_none();
        let fraction = self.shown_fraction(is_overflow);
        let needs_zero = is_hidden && pattern.is_compact && fraction.is_empty();
        let shown = if is_hidden && !needs_zero { 0 } else { digits.integer.len() };
        let start = pattern.integer_digits.saturating_sub(shown);
        let start = if is_overflow { 0 } else { pattern.first_zero.map_or(start, |zero| zero.min(start)) };
        let mut position = 0;
        let mut decimals = fraction.chars();
        let mut has_point = false;
        for part in &pattern.parts {
            match part {
                PatternPart::Digit if has_point => self.text.extend(decimals.next()),
                PatternPart::Digit => {
                    if position >= start {
                        self.begin();
                        let at = (position + digits.integer.len()).checked_sub(pattern.integer_digits);
                        let digit = at.and_then(|at| digits.integer.chars().nth(at)).unwrap_or('0');
                        self.text.push(if is_overflow { '#' } else { digit });
                    } else {
                        self.blank();
                    }
                    position += 1;
                }
                PatternPart::Point => {
                    has_point = true;
                    self.begin();
                    if pattern.fraction_digits > 0 {
                        self.text.push('.');
                    }
                }
                PatternPart::Comma if self.has_begun => self.text.push(','),
                PatternPart::Comma => self.blank(),
                PatternPart::Minus => self.sign_in_place(digits.is_negative.then_some('-')),
                PatternPart::Plus => self.sign_in_place((!digits.is_negative).then_some('+')),
                PatternPart::AnySign => self.text.push(if digits.is_negative { '-' } else { '+' }),
                PatternPart::Ordinal { is_upper } => self.ordinal(*is_upper),
                PatternPart::Other(character) => self.text.push(*character),
            }
        }
        self.end();
        self.text
    }

    fn shown_fraction(&self, is_overflow: bool) -> String {
        let Self { pattern, digits, .. } = self;
        if is_overflow {
            return "#".repeat(pattern.fraction_digits);
        }
        if !pattern.is_compact {
            return digits.fraction.clone();
        }
        let significant = digits.fraction.trim_end_matches('0').len().max(pattern.fraction_digits_min);
        digits.fraction[..significant.min(digits.fraction.len())].to_owned()
    }

    /// Writes the sign or the space before the first digit or the point.
    fn begin(&mut self) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let is_negative = self.digits.is_negative;
        match self.pattern.sign {
            SignStyle::Default if is_negative => self.text.push('-'),
            SignStyle::Brackets if is_negative => self.text.push('<'),
            SignStyle::Default | SignStyle::Brackets => self.blank(),
            SignStyle::Leading => self.text.push(if is_negative { '-' } else { '+' }),
            SignStyle::InPlace => {}
        }
    }

    /// Writes the closing bracket or space of `PR`.
    fn end(&mut self) {
        let is_negative = self.digits.is_negative;
        match self.pattern.sign {
            SignStyle::Brackets if is_negative => self.text.push('>'),
            SignStyle::Brackets => self.blank(),
            _ => {}
        }
    }

    /// Writes a space, unless the pattern has `FM`.
    fn blank(&mut self) {
        if !self.pattern.is_compact {
            self.text.push(' ');
        }
    }

    fn sign_in_place(&mut self, sign: Option<char>) {
        match sign {
            Some(sign) => self.text.push(sign),
            None => self.blank(),
        }
    }

    fn ordinal(&mut self, is_upper: bool) {
        let integer = &self.digits.integer;
        if self.digits.is_negative || self.pattern.fraction_digits > 0 {
            return;
        }
        let is_teen = integer.len() > 1 && integer[..integer.len() - 1].ends_with('1');
        let suffix = match integer.chars().last() {
            Some('1') if !is_teen => "st",
            Some('2') if !is_teen => "nd",
            Some('3') if !is_teen => "rd",
            _ => "th",
        };
        self.text.push_str(&if is_upper { suffix.to_uppercase() } else { suffix.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(number: i128, scale: usize, pattern: &str) -> String {
        let pattern = NumberPattern::parse(pattern).unwrap();
        pattern.format(&Digits::of_decimal(number, scale, pattern.fraction_digits))
    }

    #[test]
    fn numbers_are_written_as_in_postgresql() {
        for (number, scale, pattern, expected) in [
            (12_345, 1, "9,999.99", " 1,234.50"),
            (-1, 1, "9.99", " -.10"),
            (-485, 0, "9SG99", "4-85"),
            (485, 0, "999PR", " 485 "),
            (-1_234, 0, "FM9999.99PR", "<1234.>"),
            (1_234_567, 0, "FM9,999", "#,###"),
            (9_999, 3, "9.99", " #.##"),
            (1_485, 1, "FM999.990", "148.500"),
            (482, 0, "FM999th", "482nd"),
            (5, 0, "9099", "  005"),
            (0, 0, "FM9.99", "0."),
        ] {
            assert_eq!(formatted(number, scale, pattern), expected, "{pattern}");
        }
        assert_eq!([incremented("129"), incremented("999"), incremented("0")], ["130", "1000", "1"]);
    }
}
