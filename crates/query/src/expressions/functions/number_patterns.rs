//! Patterns of `to_char` and `to_number` for numbers, as in PostgreSQL.
//!
//! ```text
//!   9 0             a digit; leading zeros are shown from the first 0 of the pattern on, spaces before it
//!   . D , G         the decimal point, and a comma between digits
//!   S MI PL SG PR   the sign: beside the number (S), at this position, or as <> around negative numbers (PR)
//!   V               multiplies by ten for each digit after it; to_number divides
//!   TH th           the suffix of an ordinal number
//!   RN rn           a Roman numeral
//!   EEEE            scientific notation
//!   L               the currency symbol, which is a space
//!   FM              no spaces, and no trailing zeros after the last 0 of the pattern
//! ```
//!
//! Without a sign in the pattern, a minus sign or a space precedes the first digit. If a number has more integer digits
//! than the pattern, each digit is shown as `#`. Other characters, and text in double quotes, are written unchanged.

mod digits;
mod pattern;
mod read;
mod write;

pub(super) use self::pattern::NumberPattern;
pub(super) use self::write::Precision;

#[cfg(test)]
mod tests {
    use super::*;

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
            (1_258, 1, "999D99S", "125.80+"),
            (12, 0, "99V999", " 12000"),
            (485, 0, "RN", "        CDLXXXV"),
            (485, 0, "FMrn", "cdlxxxv"),
            (1, 1, "0.99EEEE", " 1.00e-01"),
        ] {
            let pattern = NumberPattern::parse(pattern).unwrap();
            assert_eq!(pattern.write_decimal(number, scale).unwrap(), expected, "{pattern:?}");
        }
        for pattern in ["9S9S", "9.9.9", "V9.9", "9PR9", "SMI", "FM9EEEE", "9EEEE9"] {
            assert!(NumberPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
