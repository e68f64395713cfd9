//! Parses number patterns.

use datafusion::common::{DataFusionError, Result, exec_err};

use super::super::patterns::{literal, starts_with_keyword};
use crate::error::QueryError;

/// A keyword of a number pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    /// `9`
    Nine,
    /// `0`
    Zero,
    /// `.` or `D`
    Point,
    /// `,` or `G`
    Comma,
    /// `L`
    Currency,
    /// `S`
    Sign,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    PlusOrMinus,
    /// `PR`
    Brackets,
    /// `FM`
    Compact,
    /// `V`
    Shift,
    /// `TH`
    Ordinal,
    /// `RN`
    Roman,
    /// `EEEE`
    Scientific,
    /// `B`
    Blank,
    /// `C` or `SP`, which have no effect.
    Ignored,
}

/// Keywords in capitals. Patterns may also have them in small letters. A keyword is listed before its prefixes.
const KEYWORDS: [(&str, Keyword); 20] = [
    ("EEEE", Keyword::Scientific),
    ("FM", Keyword::Compact),
    ("MI", Keyword::Minus),
    ("PL", Keyword::Plus),
    ("PR", Keyword::Brackets),
    ("RN", Keyword::Roman),
    ("SG", Keyword::PlusOrMinus),
    ("SP", Keyword::Ignored),
    ("TH", Keyword::Ordinal),
    (",", Keyword::Comma),
    ("G", Keyword::Comma),
    (".", Keyword::Point),
    ("D", Keyword::Point),
    ("0", Keyword::Zero),
    ("9", Keyword::Nine),
    ("B", Keyword::Blank),
    ("C", Keyword::Ignored),
    ("L", Keyword::Currency),
    ("S", Keyword::Sign),
    ("V", Keyword::Shift),
];

/// Maximum length of a pattern in bytes. Each part is compared with all parts before it.
const LENGTH_MAX: usize = 2_000;

/// Part of a pattern that stands for characters of a formatted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberPart {
    /// A digit. It is `0` in the pattern if `is_zero`, otherwise `9`.
    Digit {
        is_zero: bool,
    },
    Point,
    Comma,
    Currency,
    /// A minus sign for negative numbers.
    Minus,
    /// A plus sign for other numbers.
    Plus,
    /// A minus or plus sign.
    PlusOrMinus,
    Ordinal {
        is_upper: bool,
    },
    Roman {
        is_upper: bool,
    },
    Text(char),
}

/// Where the sign of a number is, if the pattern has an `S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignPosition {
    /// After this number of digits of the pattern, none of them after the point.
    AfterDigits(usize),
    /// After the point of the pattern.
    AfterPoint,
}

/// A parsed pattern.
#[derive(Debug, Default)]
pub struct NumberPattern {
    pub(super) parts: Vec<NumberPart>,
    keywords: Vec<Keyword>,
    pub(super) sign: Option<SignPosition>,
    /// Number of digits before the decimal point, without those after `V`.
    pub(super) integer_digits: usize,
    /// Number of digits after the decimal point.
    pub(super) fraction_digits: usize,
    /// Number of digits after `V`: a formatted number is multiplied by this power of ten.
    pub(super) shift_digits: usize,
    /// Index of the first `0` among the digits before the point. Leading zeros are shown from this digit on.
    pub(super) first_zero: Option<usize>,
    /// Number of digits up to the last `0` of the pattern.
    pub(super) last_zero: usize,
}

impl NumberPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If keywords of the pattern exclude each other.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LENGTH_MAX {
            let what = format!("a pattern of numbers with {} bytes", text.len());
            let error = QueryError::unsupported(what, format!("patterns of at most {LENGTH_MAX} bytes are"));
            return Err(DataFusionError::External(Box::new(error)));
        }
        let mut pattern = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let keyword = KEYWORDS.iter().find(|(name, _)| starts_with_keyword(rest, name));
            if let Some((name, keyword)) = keyword {
                pattern.check(*keyword)?;
                pattern.add(*keyword, rest.starts_with(name));
                rest = &rest[name.len()..];
            } else {
                let (text, after) = literal(rest);
                pattern.parts.extend(text.chars().map(NumberPart::Text));
                rest = after;
            }
        }
        Ok(pattern)
    }

    pub(super) fn has(&self, keyword: Keyword) -> bool {
        self.keywords.contains(&keyword)
    }

    pub(super) fn has_any(&self, keywords: &[Keyword]) -> bool {
        keywords.iter().any(|keyword| self.has(*keyword))
    }

    /// Whether the pattern has `FM`: no spaces, and no trailing zeros after the last `0` of the pattern.
    pub(super) fn is_compact(&self) -> bool {
        self.has(Keyword::Compact)
    }

    /// Checks that a keyword may follow the keywords before it.
    fn check(&self, keyword: Keyword) -> Result<()> {
        use Keyword::{
            Blank, Brackets, Compact, Minus, Nine, Plus, PlusOrMinus, Point, Roman, Scientific, Shift, Sign, Zero,
        };
        let message = match keyword {
            Scientific if self.has(Scientific) => "cannot use \"EEEE\" twice",
            _ if self.has(Scientific) => "\"EEEE\" must be the last pattern used",
            Nine if self.has(Brackets) => "\"9\" must be ahead of \"PR\"",
            Zero if self.has(Brackets) => "\"0\" must be ahead of \"PR\"",
            Point if self.has(Point) => "multiple decimal points",
            Point if self.has(Shift) => "cannot use \"V\" and decimal point together",
            Shift if self.has(Point) => "cannot use \"V\" and decimal point together",
            Sign if self.has(Sign) => "cannot use \"S\" twice",
            Sign if self.has_any(&[Plus, Minus, PlusOrMinus, Brackets]) => {
                "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"
            }
            Minus if self.has(Sign) => "cannot use \"S\" and \"MI\" together",
            Plus if self.has(Sign) => "cannot use \"S\" and \"PL\" together",
            PlusOrMinus if self.has(Sign) => "cannot use \"S\" and \"SG\" together",
            Brackets if self.has_any(&[Sign, Plus, Minus, PlusOrMinus]) => {
                "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"
            }
            Scientific if self.has_any(&[Blank, Compact, Sign, Brackets, Minus, Plus, PlusOrMinus, Roman, Shift]) => {
                "\"EEEE\" is incompatible with other formats"
            }
            _ => return Ok(()),
        };
        exec_err!("{message}")
    }

    fn add(&mut self, keyword: Keyword, is_upper: bool) {
        let part = match keyword {
            Keyword::Nine | Keyword::Zero => {
                let is_zero = keyword == Keyword::Zero;
                self.count_digit(is_zero);
                Some(NumberPart::Digit { is_zero })
            }
            Keyword::Point => Some(NumberPart::Point),
            Keyword::Comma => Some(NumberPart::Comma),
            Keyword::Currency => Some(NumberPart::Currency),
            Keyword::Minus => Some(NumberPart::Minus),
            Keyword::Plus => Some(NumberPart::Plus),
            Keyword::PlusOrMinus => Some(NumberPart::PlusOrMinus),
            Keyword::Ordinal => Some(NumberPart::Ordinal { is_upper }),
            Keyword::Roman => Some(NumberPart::Roman { is_upper }),
            Keyword::Sign => {
                self.sign = Some(match self.has(Keyword::Point) {
                    true => SignPosition::AfterPoint,
                    false => SignPosition::AfterDigits(self.integer_digits),
                });
                None
            }
            // `B` after a digit has no effect.
            Keyword::Blank if self.integer_digits + self.fraction_digits > 0 => return,
            Keyword::Brackets
            | Keyword::Compact
            | Keyword::Shift
            | Keyword::Scientific
            | Keyword::Blank
            | Keyword::Ignored => None,
        };
        self.parts.extend(part);
        self.keywords.push(keyword);
    }

    fn count_digit(&mut self, is_zero: bool) {
        let has_point = self.has(Keyword::Point);
        if !is_zero && self.has(Keyword::Shift) {
            self.shift_digits += 1;
            return;
        }
        if is_zero && !has_point && self.first_zero.is_none() {
            self.first_zero = Some(self.integer_digits);
        }
        if has_point {
            self.fraction_digits += 1;
        } else {
            self.integer_digits += 1;
        }
        if is_zero {
            self.last_zero = self.integer_digits + self.fraction_digits;
        }
    }
}
