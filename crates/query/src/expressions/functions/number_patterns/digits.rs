//! Decimal digits of numbers: rounded, in scientific notation, and as Roman numerals.

/// Number of characters of a Roman numeral, spaces before it included. MMMDCCCLXXXVIII has this length.
const ROMAN_WIDTH: usize = 15;

/// A number as decimal digits, such as `12.50`, without its sign.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digits {
    pub is_negative: bool,
    pub text: String,
}

impl Digits {
    /// Writes a decimal, multiplied by ten to the power `shift`, with `fraction` digits after the point. Rounds half
    /// away from zero.
    pub fn of_decimal(unscaled: i128, scale: usize, shift: usize, fraction: usize) -> Self {
        let mut digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
        let scale = match scale.checked_sub(shift) {
            Some(scale) => scale,
            None => {
                digits += &"0".repeat(shift - scale);
                0
            }
        };
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
        let integer = match integer.trim_start_matches('0') {
            "" => "0",
            integer => integer,
        };
        // A decimal that is rounded to zero has no sign.
        let is_zero = digits.bytes().all(|digit| digit == b'0');
        let decimals = if fraction > 0 { format!(".{decimals:0<fraction$}") } else { String::new() };
        Self { is_negative: unscaled < 0 && !is_zero, text: format!("{integer}{decimals}") }
    }

    /// Writes a floating-point number with `fraction` digits after the point. Rounds the exact binary value.
    pub fn of_double(number: f64, fraction: usize) -> Self {
        let text = match number {
            _ if number.is_nan() => "NaN".to_owned(),
            _ if number.is_infinite() => "Infinity".to_owned(),
            _ => format!("{:.fraction$}", number.abs()),
        };
        Self { is_negative: number.is_sign_negative() && !number.is_nan(), text }
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

/// Writes a decimal in scientific notation with `fraction` digits after the point: ` 1.25e+03`, `-1.25e+03`. As in
/// PostgreSQL, the exponent is that of the number before rounding: 99.96 with one digit is ` 10.0e+01`.
pub(super) fn scientific_decimal(unscaled: i128, scale: usize, fraction: usize) -> String {
    let mut digits = unscaled.unsigned_abs().to_string();
    let mut exponent = digits.len() as i64 - 1 - scale as i64;
    if unscaled == 0 {
        exponent = 0;
    }
    if digits.len() > fraction + 1 {
        let dropped = digits.split_off(fraction + 1);
        if dropped.starts_with(['5', '6', '7', '8', '9']) {
            digits = incremented(&digits);
        }
    }
    let (first, decimals) = digits.split_at(digits.len().saturating_sub(fraction).max(1));
    let decimals = if fraction > 0 { format!(".{decimals:0<fraction$}") } else { String::new() };
    with_exponent(unscaled < 0, &format!("{first}{decimals}"), exponent)
}

/// Writes a finite floating-point number in scientific notation with `fraction` digits after the point.
pub(super) fn scientific_double(number: f64, fraction: usize) -> String {
    let text = format!("{:.fraction$e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    with_exponent(number.is_sign_negative(), mantissa, exponent.parse().unwrap_or(0))
}

fn with_exponent(is_negative: bool, mantissa: &str, exponent: i64) -> String {
    let sign = if is_negative { '-' } else { ' ' };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.unsigned_abs())
}

/// Writes a Roman numeral in capitals. A number that has none is shown as `#`.
pub(super) fn roman(number: i64) -> String {
    const NUMERALS: [(i64, &str); 13] = [
        (1_000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4_000).contains(&number) {
        return "#".repeat(ROMAN_WIDTH);
    }
    let mut rest = number;
    let mut text = String::new();
    for (value, numeral) in NUMERALS {
        while rest >= value {
            text.push_str(numeral);
            rest -= value;
        }
    }
    text
}

/// Writes spaces before a Roman numeral, so that all numerals have the same width.
pub(super) fn padded_roman(numeral: &str) -> String {
    format!("{numeral:>ROMAN_WIDTH$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_rounded_and_shifted() {
        let written = |unscaled, scale, shift, fraction| Digits::of_decimal(unscaled, scale, shift, fraction).text;
        assert_eq!(written(12_345, 3, 0, 2), "12.35");
        assert_eq!(written(-999, 3, 0, 1), "1.0");
        assert_eq!(written(5, 2, 1, 0), "1");
        assert_eq!(written(12, 0, 3, 0), "12000");
        assert_eq!(written(0, 0, 0, 2), "0.00");
        assert!(!Digits::of_decimal(-1, 3, 0, 2).is_negative);
        assert_eq!([incremented("129"), incremented("999"), incremented("0")], ["130", "1000", "1"]);
    }

    #[test]
    fn scientific_notation_has_an_exponent_of_two_digits() {
        assert_eq!(scientific_decimal(12_345, 2, 2), " 1.23e+02");
        assert_eq!(scientific_decimal(-9_996, 0, 2), "-10.00e+03");
        assert_eq!(scientific_decimal(25, 0, 0), " 3e+01");
        assert_eq!(scientific_decimal(0, 2, 1), " 0.0e+00");
        assert_eq!(scientific_decimal(1, 3, 1), " 1.0e-03");
        assert_eq!(scientific_double(25.0, 0), " 2e+01");
        assert_eq!(scientific_double(-1.5e-120, 1), "-1.5e-120");
    }

    #[test]
    fn roman_numerals() {
        assert_eq!([roman(485), roman(3_999), roman(4)], ["CDLXXXV", "MMMCMXCIX", "IV"]);
        assert_eq!(roman(3_888).len(), ROMAN_WIDTH);
        assert_eq!(roman(0), "###############");
    }
}
