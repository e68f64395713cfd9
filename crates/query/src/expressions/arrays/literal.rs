//! Parses array literals such as `{1,2,NULL}`, with the states and error details of PostgreSQL's parser.

use datafusion::arrow::error::ArrowError;

/// Maximum number of dimensions, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;

/// A parsed array literal: the number of elements in each dimension, and all elements as text. `None` is a null.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Literal {
    sizes: Vec<usize>,
    pub elements: Vec<Option<String>>,
}

/// State of the parser, named after the last part that it has read. A level is one pair of braces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    NoLevel,
    LevelStarted,
    ElementStarted,
    QuotesStarted,
    QuotesEnded,
    ElementDelimited,
    LevelEnded,
    LevelDelimited,
}

/// Reason why a string is rejected as an array literal of a type.
enum Fault {
    Malformed(&'static str),
    /// The literal has this number of dimensions, but the type has another.
    Dimensions(usize),
    /// The literal begins with bounds, such as `[2:3]={1,2}`.
    Bounds,
}

impl Literal {
    /// Parses a literal of an array type with the given number of dimensions.
    ///
    /// # Errors
    /// If the text is malformed, begins with bounds, or has another number of dimensions.
    pub fn parse(text: &str, dimensions: usize) -> Result<Self, ArrowError> {
        Parser::new(text, dimensions).parse().map_err(|fault| match fault {
            Fault::Malformed(detail) => {
                ArrowError::CastError(format!("malformed array literal ({detail}): \"{text}\""))
            }
            Fault::Dimensions(found) => ArrowError::NotYetImplemented(format!(
                "the array literal \"{text}\" of {found} dimensions for a type of {dimensions} is not supported; write \
                 the type with [] for each dimension"
            )),
            Fault::Bounds => ArrowError::NotYetImplemented(format!(
                "bounds in the array literal \"{text}\" are not supported; the first element has index 1"
            )),
        })
    }

    /// Returns the number of elements of each array at a nesting level. Level 0 is the outermost.
    pub fn lengths(&self, level: usize) -> Vec<usize> {
        let arrays = self.sizes[..level].iter().product();
        vec![self.sizes[level]; arrays]
    }
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    text: &'a str,
    dimensions: usize,
    state: Reached,
    /// Number of elements read so far in each open level, the outermost first.
    open: Vec<usize>,
    /// Number of elements of each array at a level. `None` until the first array of the level has ended.
    sizes: Vec<Option<usize>>,
    elements: Vec<Option<String>>,
    element: Element,
}

/// The element that is being read.
#[derive(Default)]
struct Element {
    text: String,
    /// Length in bytes without trailing unquoted spaces.
    length: usize,
    /// Whether a character is quoted or follows a backslash. If so, `null` is a string, not a null.
    is_literal: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, dimensions: usize) -> Self {
        Self {
            rest: text.chars().peekable(),
            text,
            dimensions,
            state: Reached::NoLevel,
            open: Vec::new(),
            sizes: Vec::new(),
            elements: Vec::new(),
            element: Element::default(),
        }
    }

    fn parse(mut self) -> Result<Literal, Fault> {
        match self.text.trim_matches(is_space_character).chars().next() {
            Some('{') => {}
            Some('[') => return Err(Fault::Bounds),
            _ => return Err(Fault::Malformed("Array value must start with \"{\" or dimension information.")),
        }
        while self.state == Reached::NoLevel || !self.open.is_empty() {
            let Some(character) = self.rest.next() else { return Err(Fault::Malformed("Unexpected end of input.")) };
            self.accept(character)?;
        }
        if self.rest.any(|character| !is_space_character(character)) {
            return Err(Fault::Malformed("Junk after closing right brace."));
        }
        let sizes: Vec<usize> = self.sizes.iter().map(|size| size.unwrap_or_default()).collect();
        match sizes.as_slice() {
            // An empty array has no dimensions.
            [0] => Ok(Literal { sizes: vec![0; self.dimensions], elements: Vec::new() }),
            sizes if sizes.len() != self.dimensions => Err(Fault::Dimensions(sizes.len())),
            _ => Ok(Literal { sizes, elements: self.elements }),
        }
    }

    fn accept(&mut self, character: char) -> Result<(), Fault> {
        use Reached::{
            ElementDelimited, ElementStarted, LevelDelimited, LevelEnded, LevelStarted, NoLevel, QuotesEnded,
            QuotesStarted,
        };
        match character {
            '\\' => {
                self.expect(
                    &[LevelStarted, ElementStarted, QuotesStarted, ElementDelimited],
                    || "Unexpected \"\\\" character.",
                )?;
                let Some(next) = self.rest.next() else { return Err(Fault::Malformed("Unexpected end of input.")) };
                self.start_element();
                self.element.push_literally(next);
            }
            '"' if self.state == QuotesStarted => self.state = QuotesEnded,
            '"' => {
                self.expect(&[LevelStarted, ElementDelimited], || "Unexpected array element.")?;
                self.state = QuotesStarted;
                self.element.is_literal = true;
            }
            character if self.state == QuotesStarted => self.element.push_literally(character),
            '{' => {
                self.expect(&[NoLevel, LevelStarted, LevelDelimited], || "Unexpected \"{\" character.")?;
                self.open_level()?;
            }
            '}' => {
                let is_empty = self.open.len() == 1 && self.state == LevelStarted;
                if !is_empty {
                    self.expect(&[ElementStarted, QuotesEnded, LevelEnded], || "Unexpected \"}\" character.")?;
                }
                self.end_element();
                self.close_level()?;
            }
            ',' => {
                self.expect(&[ElementStarted, QuotesEnded, LevelEnded], || "Unexpected \",\" character.")?;
                self.end_element();
                self.state = if self.state == LevelEnded { LevelDelimited } else { ElementDelimited };
            }
            character if is_space_character(character) => {
                if self.state == ElementStarted {
                    self.element.text.push(character);
                }
            }
            character => {
                self.expect(&[LevelStarted, ElementStarted, ElementDelimited], || "Unexpected array element.")?;
                self.start_element();
                self.element.push(character);
            }
        }
        Ok(())
    }

    fn expect(&self, states: &[Reached], detail: impl Fn() -> &'static str) -> Result<(), Fault> {
        if states.contains(&self.state) { Ok(()) } else { Err(Fault::Malformed(detail())) }
    }

    fn start_element(&mut self) {
        if self.state != Reached::QuotesStarted {
            self.state = Reached::ElementStarted;
        }
    }

    fn end_element(&mut self) {
        if matches!(self.state, Reached::ElementStarted | Reached::QuotesEnded) {
            self.elements.push(std::mem::take(&mut self.element).finish());
            if let Some(count) = self.open.last_mut() {
                *count += 1;
            }
        }
    }

    fn open_level(&mut self) -> Result<(), Fault> {
        if self.open.len() == DIMENSIONS_MAX {
            return Err(Fault::Malformed("The number of array dimensions exceeds the maximum of 6."));
        }
        self.open.push(0);
        if self.sizes.len() < self.open.len() {
            self.sizes.push(None);
        }
        self.state = Reached::LevelStarted;
        Ok(())
    }

    fn close_level(&mut self) -> Result<(), Fault> {
        let count = self.open.pop().unwrap_or_default();
        let size = &mut self.sizes[self.open.len()];
        if size.is_some_and(|size| size != count) {
            return Err(Fault::Malformed("Multidimensional arrays must have sub-arrays with matching dimensions."));
        }
        *size = Some(count);
        if let Some(outer) = self.open.last_mut() {
            *outer += 1;
        }
        self.state = Reached::LevelEnded;
        Ok(())
    }
}

impl Element {
    fn push(&mut self, character: char) {
        self.text.push(character);
        self.length = self.text.len();
    }

    /// Appends a character that is literal, because it is quoted or follows a backslash.
    fn push_literally(&mut self, character: char) {
        self.push(character);
        self.is_literal = true;
    }

    fn finish(mut self) -> Option<String> {
        self.text.truncate(self.length);
        let is_null = !self.is_literal && self.text.eq_ignore_ascii_case("null");
        (!is_null).then_some(self.text)
    }
}

/// Whether a byte is a space between elements.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn is_space_character(character: char) -> bool {
    u8::try_from(character).is_ok_and(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_literals_have_details() {
        let dimensions = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        let start = "Array value must start with \"{\" or dimension information.";
        for (text, detail) in [
            ("{{},{}}", "Unexpected \"}\" character."),
            ("{{1,2},{3}}", dimensions),
            ("{1,{2}}", "Unexpected \"{\" character."),
            ("{{1},2}", "Unexpected array element."),
            ("abc", start),
            ("", start),
            ("{1,2", "Unexpected end of input."),
            ("{1,2}}", "Junk after closing right brace."),
            ("{1,2} x", "Junk after closing right brace."),
            ("{1,,2}", "Unexpected \",\" character."),
            ("{1,}", "Unexpected \"}\" character."),
            ("{,1}", "Unexpected \",\" character."),
            ("{\"a\"b}", "Unexpected array element."),
            ("{a\"b\"}", "Unexpected array element."),
            ("{a b{c}}", "Unexpected \"{\" character."),
            ("{{1,2}{3,4}}", "Unexpected \"{\" character."),
            ("{\"a", "Unexpected end of input."),
            ("{a\\", "Unexpected end of input."),
        ] {
            let error = Literal::parse(text, 1).unwrap_err().to_string();
            assert!(error.contains(&format!("({detail}): \"{text}\"")), "{text}: {error}");
        }
        assert!(matches!(Literal::parse("{{1}}", 1), Err(ArrowError::NotYetImplemented(_))));
        assert!(matches!(Literal::parse("[2:3]={1,2}", 1), Err(ArrowError::NotYetImplemented(_))));
    }
}
