//! Reads numbers.

use datafusion::arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, exec_err};

use super::pattern::{Keyword, NumberPart, NumberPattern};

impl NumberPattern {
    /// Reads a number. Returns its unscaled value at the scale `scale`, rounded half away from zero.
    ///
    /// # Errors
    /// If the text has no digits, or the number is out of range, or the pattern has `RN` or `EEEE`.
    pub fn read(&self, text: &str, scale: usize) -> Result<i128> {
        for (keyword, name) in [(Keyword::Scientific, "EEEE"), (Keyword::Roman, "RN")] {
            if self.has(keyword) {
                return exec_err!("\"{name}\" not supported for input");
            }
        }
        let characters: Vec<char> = text.chars().collect();
        let mut reader =
            NumberReader { pattern: self, text: &characters, at: 0, sign: None, digits: String::new(), point: None };
        reader.read();
        reader.value(scale)
    }
}

/// A text that is being read.
struct NumberReader<'a> {
    pattern: &'a NumberPattern,
    text: &'a [char],
    /// Index of the next character of the text.
    at: usize,
    sign: Option<char>,
    /// The digits read so far, without the point.
    digits: String,
    /// Number of digits before the point, if the point has been read.
    point: Option<usize>,
}

impl NumberReader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn read(&mut self) {
        for part in &self.pattern.parts {
            if self.at >= self.text.len() {
                return;
            }
            match part {
                NumberPart::Digit { .. } => self.read_slot(true),
                NumberPart::Point => self.read_slot(false),
                NumberPart::Comma if !self.pattern.is_compact() && self.peek() == Some(',') => self.at += 1,
                NumberPart::Comma | NumberPart::Roman { .. } => {}
                NumberPart::Currency => self.skip_other_characters(1),
                NumberPart::Ordinal { .. } if self.pattern.has(Keyword::Point) => {}
                NumberPart::Ordinal { .. } => self.skip_other_characters(2),
                NumberPart::Minus => self.read_sign(&['-']),
                NumberPart::Plus => self.read_sign(&['+']),
                NumberPart::PlusOrMinus => self.read_sign(&['-', '+']),
                // Literal text of the pattern skips as many characters, whatever they are.
                NumberPart::Text(_) => self.at += 1,
            }
        }
    }

    /// Reads one of `signs`, or skips a character that does not belong to a number.
    fn read_sign(&mut self, signs: &[char]) {
        match self.peek().filter(|sign| signs.contains(sign)) {
            Some(sign) => {
                self.sign = Some(sign);
                self.at += 1;
            }
            None => self.skip_other_characters(1),
        }
    }

    /// Skips up to `count` characters that do not belong to a number.
    fn skip_other_characters(&mut self, count: usize) {
        for _ in 0..count {
            match self.peek() {
                Some(character) if !"0123456789.,+-".contains(character) => self.at += 1,
                _ => return,
            }
        }
    }

    /// Reads what belongs to a digit or the point of the pattern: a space, a sign, and a digit or the point.
    fn read_slot(&mut self, is_digit: bool) {
        if self.peek() == Some(' ') {
            self.at += 1;
        }
        if is_digit && self.digits.is_empty() && self.sign.is_none() {
            self.read_leading_sign();
        }
        let Some(character) = self.peek() else { return };
        let is_read = match (character, self.point) {
            ('0'..='9', Some(point)) if self.digits.len() - point == self.pattern.fraction_digits => {
                self.at += 1;
                return;
            }
            ('0'..='9', _) => {
                self.digits.push(character);
                true
            }
            ('.', None) if self.pattern.has(Keyword::Point) => {
                self.point = Some(self.digits.len());
                true
            }
            _ => false,
        };
        if self.sign.is_none() && !self.digits.is_empty() {
            self.read_trailing_sign(character, is_read);
        }
        self.at += 1;
    }

    fn read_leading_sign(&mut self) {
        let sign = match self.peek() {
            Some(sign @ ('-' | '+')) => Some(sign),
            Some('<') if self.pattern.has(Keyword::Brackets) => Some('-'),
            _ => None,
        };
        if sign.is_some() {
            self.sign = sign;
            self.at += 1;
        }
    }

    /// Reads a sign after the digits. With `S`, it follows the character just read; with `MI`, `PL` or `SG`, it is in
    /// the place of a digit.
    fn read_trailing_sign(&mut self, character: char, is_read: bool) {
        if self.pattern.sign.is_some() {
            let following = self.text.get(self.at + 1).copied();
            if let Some(sign @ ('-' | '+')) = following.filter(|_| is_read) {
                self.sign = Some(sign);
                self.at += 1;
            }
        } else if !is_read
            && matches!(character, '-' | '+')
            && self.pattern.has_any(&[Keyword::Minus, Keyword::Plus, Keyword::PlusOrMinus])
        {
            self.sign = Some(character);
        }
    }

    fn value(&self, scale: usize) -> Result<i128> {
        let sign = self.sign.unwrap_or(' ');
        if self.digits.is_empty() {
            return exec_err!("invalid input syntax for type numeric: \"{sign}\"");
        }
        let overflow = |message: &str| ArrowError::ArithmeticOverflow(message.to_owned());
        let point = self.point.unwrap_or(self.digits.len());
        let significant = self.digits[..point].trim_start_matches('0').len();
        if significant > self.pattern.integer_digits + self.pattern.shift_digits {
            return Err(overflow("numeric field overflow").into());
        }
        let number = self.digits.trim_start_matches('0');
        let too_large = || overflow("value overflows numeric format");
        let unscaled = if number.is_empty() { 0 } else { number.parse::<i128>().map_err(|_| too_large())? };
        let digits_after_point = self.digits.len() - point + self.pattern.shift_digits;
        let value = rescaled(unscaled, digits_after_point, scale);
        let value =
            value.filter(|value| *value < 10_i128.pow(DECIMAL128_MAX_PRECISION.into())).ok_or_else(too_large)?;
        Ok(if sign == '-' { -value } else { value })
    }
}

/// Converts an unscaled value that is not negative to another scale. Returns `None` if it does not fit.
fn rescaled(unscaled: i128, from: usize, to: usize) -> Option<i128> {
    let power = |exponent: usize| 10_i128.checked_pow(u32::try_from(exponent).ok()?);
    match to.checked_sub(from) {
        Some(added) if unscaled == 0 || added == 0 => Some(unscaled),
        Some(added) => unscaled.checked_mul(power(added)?),
        // A divisor that does not fit is more than twice the value.
        None => {
            Some(power(from - to).map_or(0, |divisor| {
                unscaled / divisor + i128::from(unscaled % divisor >= divisor - unscaled % divisor)
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pattern: &str, scale: usize) -> i128 {
        NumberPattern::parse(pattern).unwrap().read(text, scale).unwrap()
    }

    #[test]
    fn numbers_are_read_as_in_postgresql() {
        for (text, pattern, scale, expected) in [
            ("12,454.8-", "99G999D9S", 1, -124_548),
            ("-34,338,492", "99G999G999", 0, -34_338_492),
            ("<564646.654564>", "999999.999999PR", 6, -564_646_654_564),
            ("$1,234.56", "L9,999.99", 2, 123_456),
            ("123.4-", "FM999.9MI", 1, -1_234),
            ("1234", "99V99", 2, 1_234),
            ("-5", "9.9S", 1, -50),
            ("0.05", "9.99", 1, 1),
            ("1st", "9th", 0, 1),
        ] {
            assert_eq!(read(text, pattern, scale), expected, "{text} {pattern}");
        }
        let fails = |text: &str, pattern: &str| NumberPattern::parse(pattern).unwrap().read(text, 2).is_err();
        assert!(fails("", "9") && fails("x", "9") && fails("123", "9.9") && fails("1", "9EEEE"));
    }

    #[test]
    fn scales_are_converted_with_rounding() {
        assert_eq!([rescaled(125, 2, 1), rescaled(124, 2, 1), rescaled(12, 0, 2)], [Some(13), Some(12), Some(1_200)]);
        assert_eq!([rescaled(9, 40, 0), rescaled(1, 0, 39), rescaled(0, 0, 60)], [Some(0), None, Some(0)]);
    }
}
