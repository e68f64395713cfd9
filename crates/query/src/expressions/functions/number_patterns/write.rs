//! Formats numbers.

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, exec_err};

use super::super::patterns::ordinal_suffix;
use super::digits::{Digits, padded_roman, roman, scientific_decimal, scientific_double};
use super::pattern::{Keyword, NumberPart, NumberPattern, SignPosition};

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Single,
    Double,
}

impl Precision {
    /// Maximum number of significant digits that are shown.
    fn digits_max(self) -> usize {
        match self {
            Self::Single => 6,
            Self::Double => 15,
        }
    }
}

impl NumberPattern {
    /// Formats a decimal or an integer.
    ///
    /// # Errors
    /// If the pattern does not apply to the number.
    pub fn write_decimal(&self, unscaled: i128, scale: usize) -> Result<String> {
        if self.has(Keyword::Scientific) {
            return Ok(scientific_decimal(unscaled, scale, self.fraction_digits));
        }
        if self.has(Keyword::Roman) {
            let rounded = Digits::of_decimal(unscaled, scale, 0, 0);
            let integer = rounded.text.parse::<i32>();
            let integer = integer.map_err(|_| ArrowError::ArithmeticOverflow("integer out of range".to_owned()))?;
            return Ok(self.write_roman(&roman(if rounded.is_negative { -1 } else { integer.into() })));
        }
        let digits = Digits::of_decimal(unscaled, scale, self.shift_digits, self.fraction_digits);
        self.write_digits(digits, self.fraction_digits)
    }

    /// Whether the product of an integer and the power of ten of `V` has at most 64 bits, as PostgreSQL requires.
    pub fn fits_bigint(&self, number: i128) -> bool {
        let power = u32::try_from(self.shift_digits).ok().and_then(|digits| 10_i128.checked_pow(digits));
        let product = power.and_then(|power| number.checked_mul(power));
        self.shift_digits == 0 || product.is_some_and(|product| i64::try_from(product).is_ok())
    }

    /// Formats an integer of at most 32 bits. Unlike that of other numbers, its scientific notation rounds half to
    /// even.
    ///
    /// # Errors
    /// If the pattern does not apply to the number.
    pub fn write_small_integer(&self, number: i32) -> Result<String> {
        match self.has(Keyword::Scientific) {
            true => Ok(scientific_double(number.into(), self.fraction_digits)),
            false => self.write_decimal(number.into(), 0),
        }
    }

    /// Formats a floating-point number.
    ///
    /// # Errors
    /// If the pattern does not apply to the number.
    pub fn write_double(&self, number: f64, precision: Precision) -> Result<String> {
        if self.has(Keyword::Scientific) {
            return Ok(match number.is_finite() {
                true => scientific_double(number, self.fraction_digits),
                false => format!(" {}.{}", "#".repeat(self.integer_digits), "#".repeat(self.fraction_digits + 4)),
            });
        }
        if self.has(Keyword::Roman) {
            return Ok(self.write_roman(&roman(number.round_ties_even() as i64)));
        }
        let power = i32::try_from(self.shift_digits).unwrap_or(i32::MAX);
        let number = match precision {
            _ if power == 0 => number,
            Precision::Single => f64::from(number as f32 * 10_f32.powi(power)),
            Precision::Double => number * 10_f64.powi(power),
        };
        let integer_digits = Digits::of_double(number, 0).text.len();
        let fraction = self.fraction_digits.min(precision.digits_max().saturating_sub(integer_digits));
        self.write_digits(Digits::of_double(number, fraction), fraction)
    }

    /// Writes the literal text of the pattern, and a numeral for `RN`.
    fn write_roman(&self, numeral: &str) -> String {
        let blank = if self.is_compact() { "" } else { " " };
        let mut result = String::new();
        for part in &self.parts {
            match part {
                NumberPart::Text(character) => result.push(*character),
                NumberPart::Roman { is_upper } => {
                    let numeral = if *is_upper { numeral.to_owned() } else { numeral.to_ascii_lowercase() };
                    result += &if self.is_compact() { numeral } else { padded_roman(&numeral) };
                }
                NumberPart::Currency => result.push(' '),
                NumberPart::Comma | NumberPart::Minus | NumberPart::Plus => result += blank,
                // Numerals have no sign.
                NumberPart::PlusOrMinus => return result,
                NumberPart::Digit { .. } | NumberPart::Point | NumberPart::Ordinal { .. } => {}
            }
        }
        result
    }

    /// Formats digits, of which `fraction` are after the point. If the pattern has too few digits, each is shown as
    /// `#`.
    fn write_digits(&self, digits: Digits, fraction: usize) -> Result<String> {
        let available = self.integer_digits + self.shift_digits;
        let needed = digits.text.find('.').unwrap_or(digits.text.len());
        let text = match needed > available {
            true => format!("{}.{}", "#".repeat(available), "#".repeat(fraction)),
            false => digits.text,
        };
        let leading = available.saturating_sub(needed);
        NumberWriter::new(self, &text, digits.is_negative, leading, fraction).finish()
    }
}

/// A number that is being formatted. Each digit or point of the pattern is a slot. The first `leading` slots have no
/// character of the number:
///
/// ```text
///   pattern     9 9 9 9 . 9 9
///   slot        0 1 2 3 4 5 6
///   number          1 2 . 5 0        leading = 2
/// ```
struct NumberWriter<'a> {
    pattern: &'a NumberPattern,
    number: &'a str,
    is_negative: bool,
    leading: usize,
    /// Whether a zero before the point is not shown.
    hides_zero: bool,
    /// With `FM`, index of the last character of the number that is shown even for a `9`.
    last_shown: Option<usize>,
    /// Whether the number still needs a sign, or a space for it, before its first digit.
    needs_sign: bool,
    /// Whether `PR` writes brackets or spaces.
    has_brackets: bool,
    slot: usize,
    /// Number of slots up to the last digit of the number.
    slots: usize,
    /// Index of the next character of the number.
    next: usize,
    /// Whether the previous slot shows a digit.
    follows_digit: bool,
    result: String,
}

impl<'a> NumberWriter<'a> {
    fn new(pattern: &'a NumberPattern, number: &'a str, is_negative: bool, leading: usize, fraction: usize) -> Self {
        let is_compact = pattern.is_compact();
        let needs_sign = match pattern.has_any(&[Keyword::Minus, Keyword::Plus, Keyword::PlusOrMinus]) {
            true => !pattern.has_any(&[Keyword::Minus, Keyword::PlusOrMinus]),
            false => !is_compact || is_negative || pattern.sign.is_some(),
        };
        let last_shown = number.find('.').filter(|_| is_compact && pattern.has(Keyword::Point)).map(|point| {
            let significant = number.trim_end_matches('0').len().saturating_sub(1).max(point);
            let required = pattern.last_zero.saturating_sub(leading);
            significant.max(required.min(number.len() - 1))
        });
        Self {
            pattern,
            number,
            is_negative,
            leading,
            hides_zero: pattern.first_zero.is_none() && number.starts_with('0') && fraction > 0,
            last_shown,
            needs_sign,
            has_brackets: pattern.has(Keyword::Brackets) && (is_negative || !is_compact),
            slot: 0,
            slots: pattern.integer_digits + pattern.shift_digits + fraction + usize::from(pattern.has(Keyword::Point)),
            next: 0,
            follows_digit: false,
            result: String::new(),
        }
    }

    fn finish(mut self) -> Result<String> {
        for part in &self.pattern.parts {
            match part {
                NumberPart::Digit { .. } | NumberPart::Point => {
                    // PostgreSQL ends the text at a slot after the last digit of the number.
                    if !self.write_slot(*part == NumberPart::Digit { is_zero: true }) {
                        return Ok(self.result);
                    }
                    if self.slot + 1 == self.slots {
                        self.close();
                    }
                    self.slot += 1;
                }
                NumberPart::Comma if self.follows_digit => self.result.push(','),
                NumberPart::Comma => self.blank(),
                NumberPart::Currency => self.result.push(' '),
                NumberPart::Minus if self.is_negative => self.result.push('-'),
                NumberPart::Plus if !self.is_negative => self.result.push('+'),
                NumberPart::Minus | NumberPart::Plus => self.blank(),
                NumberPart::PlusOrMinus => self.result.push(if self.is_negative { '-' } else { '+' }),
                NumberPart::Ordinal { is_upper } => self.write_ordinal(*is_upper)?,
                NumberPart::Text(character) => self.result.push(*character),
                NumberPart::Roman { .. } => {}
            }
        }
        Ok(self.result)
    }

    /// Whether the number has only the point to show, which is the case for 0 in `FM9.99`.
    fn shows_only_point(&self) -> bool {
        self.last_shown.is_some_and(|last| self.number.as_bytes().get(last) == Some(&b'.'))
    }

    /// Writes a digit, the point or a space. Returns false if the number has no more characters.
    fn write_slot(&mut self, is_zero: bool) -> bool {
        self.follows_digit = false;
        let first_zero = self.pattern.first_zero;
        let is_hidden = self.hides_zero && self.next == 0;
        let is_begun = self.slot >= self.leading || first_zero == Some(self.slot);
        if self.needs_sign && is_begun && (!is_hidden || self.shows_only_point()) {
            self.open();
        }
        if self.slot < self.leading {
            if first_zero.is_some_and(|zero| zero <= self.slot) {
                self.result.push('0');
                self.follows_digit = true;
            } else {
                self.blank();
            }
            return true;
        }
        match self.number.as_bytes().get(self.next) {
            Some(b'.') => self.result.push('.'),
            _ if !is_zero && self.last_shown.is_some_and(|last| self.next > last) => {}
            _ if is_hidden && self.pattern.is_compact() => {
                if self.shows_only_point() {
                    self.result.push('0');
                }
            }
            _ if is_hidden => self.result.push(' '),
            Some(digit) => {
                self.result.push(char::from(*digit));
                self.follows_digit = true;
            }
            None => return false,
        }
        self.next = (self.next + 1).min(self.number.len());
        true
    }

    /// Writes the sign or the space before the first digit or the point.
    fn open(&mut self) {
        let sign = match (self.pattern.sign, self.is_negative) {
            (Some(_), _) if self.is_sign_last() => return,
            (Some(_), is_negative) => Some(if is_negative { '-' } else { '+' }),
            (None, true) if self.has_brackets => Some('<'),
            (None, true) => Some('-'),
            (None, false) => (!self.pattern.is_compact()).then_some(' '),
        };
        self.result.extend(sign);
        self.needs_sign = false;
    }

    fn is_sign_last(&self) -> bool {
        match self.pattern.sign {
            Some(SignPosition::AfterPoint) => true,
            Some(SignPosition::AfterDigits(count)) => count == self.pattern.integer_digits + self.pattern.shift_digits,
            None => false,
        }
    }

    /// Writes the closing bracket of `PR`, or the sign of an `S` after the digits.
    fn close(&mut self) {
        if self.has_brackets {
            if !self.needs_sign {
                self.result.push(if self.is_negative { '>' } else { ' ' });
            }
        } else if self.is_sign_last() {
            self.result.push(if self.is_negative { '-' } else { '+' });
        }
    }

    /// Writes a space, unless the pattern has `FM`.
    fn blank(&mut self) {
        if !self.pattern.is_compact() {
            self.result.push(' ');
        }
    }

    fn write_ordinal(&mut self, is_upper: bool) -> Result<()> {
        if self.number.starts_with('#') || self.is_negative || self.pattern.has(Keyword::Point) {
            return Ok(());
        }
        if !self.number.ends_with(|character: char| character.is_ascii_digit()) {
            return exec_err!("\"{}\" is not a number", self.number);
        }
        self.result += ordinal_suffix(self.number, is_upper);
        Ok(())
    }
}
