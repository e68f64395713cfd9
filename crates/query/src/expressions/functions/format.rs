//! PostgreSQL's `format`: replaces the specifiers of a format string by the other arguments.
//!
//! ```text
//!   %[position$][-][width]type      type s: the text of the argument, I: a quoted name, L: a quoted literal
//!   %%                              a percent sign
//!   format('%1$s %-5s|%*L', 'a', 'b', 6, 'c')      a b    |   'c'
//! ```
//!
//! The width is a number, or it is `*` or `*n$` for the value of an argument. With `-` or a negative width, the padding
//! follows the text.

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::common::{Result, exec_err};

use super::definition::ArgumentType::{Text, VariadicText};
use super::definition::{Definition, result, texts};
use super::text::{PADDED_BYTES_MAX, quoted_literal, quoted_name};

pub(super) const FORMAT: Definition =
    Definition { name: "format", arguments: &[&[Text, VariadicText]], result: result::text, compute: format_rows };

fn format_rows(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let rows = texts(&arguments[0]).iter().enumerate().map(|(row, pattern)| {
        let arguments = arguments[1..].iter().map(|argument| text_of(argument, row)).collect();
        pattern.map(|pattern| Formatter { arguments, next: 0 }.format(pattern)).transpose()
    });
    Ok(Arc::new(rows.collect::<Result<StringViewArray>>()?))
}

fn text_of(argument: &ArrayRef, row: usize) -> Option<&str> {
    if argument.is_null(row) {
        return None;
    }
    match argument.as_boolean_opt() {
        Some(booleans) => Some(if booleans.value(row) { "t" } else { "f" }),
        None => Some(texts(argument).value(row)),
    }
}

/// One row of arguments, and the index of the next argument to use.
struct Formatter<'a> {
    arguments: Vec<Option<&'a str>>,
    next: usize,
}

/// The argument of a format specifier and its minimum width in characters. If the width is negative, the padding
/// follows the text.
struct Specifier<'a> {
    argument: Option<&'a str>,
    width: i64,
}

impl<'a> Formatter<'a> {
    fn format(mut self, pattern: &str) -> Result<String> {
        let mut formatted = String::with_capacity(pattern.len());
        let mut rest = pattern.chars().peekable();
        while let Some(character) = rest.next() {
            if character != '%' {
                formatted.push(character);
            } else if rest.next_if_eq(&'%').is_some() {
                formatted.push('%');
            } else {
                let position = position(&mut rest)?;
                let width = self.width(&mut rest, position.1)?;
                let Some(kind) = rest.next() else { return unterminated() };
                if !matches!(kind, 's' | 'I' | 'L') {
                    return exec_err!("unrecognized format() type specifier \"{kind}\"");
                }
                let argument = self.argument(position.0)?;
                append(&mut formatted, kind, &Specifier { argument, width })?;
            }
        }
        Ok(formatted)
    }

    /// Returns the argument at a 1-based position, or the next argument if `position` is `None`.
    fn argument(&mut self, position: Option<i64>) -> Result<Option<&'a str>> {
        let index = match position {
            Some(0) => return exec_err!("format specifies argument 0, but arguments are numbered from 1"),
            Some(position) => usize::try_from(position - 1).unwrap_or(usize::MAX),
            None => self.next,
        };
        let Some(argument) = self.arguments.get(index) else {
            return exec_err!("too few arguments for format()");
        };
        self.next = index + 1;
        Ok(*argument)
    }

    /// Parses the flag `-` and the width. If `digits` is not `None`, the width is already parsed, and is `digits`.
    fn width(&mut self, rest: &mut Peekable<Chars<'_>>, digits: Option<i64>) -> Result<i64> {
        if let Some(width) = digits {
            return Ok(width);
        }
        let mut is_left = false;
        while rest.next_if_eq(&'-').is_some() {
            is_left = true;
        }
        let width = if rest.next_if_eq(&'*').is_some() {
            let position = number(rest)?;
            if position.is_some() && rest.next_if_eq(&'$').is_none() {
                return exec_err!("width argument position must be ended by \"$\"");
            }
            match self.argument(position)?.map(str::parse) {
                None => 0,
                Some(Ok(width)) => width,
                Some(Err(_)) => return exec_err!("the width of format() is not an integer"),
            }
        } else {
            number(rest)?.unwrap_or(0)
        };
        let width = width.clamp(-i64::from(i32::MAX), i32::MAX.into());
        Ok(if is_left { -width.abs() } else { width })
    }
}

fn unterminated<T>() -> Result<T> {
    exec_err!("unterminated format() type specifier")
}

/// Parses a number. Returns the position if `$` follows the number, otherwise the width. The other value is `None`.
fn position(rest: &mut Peekable<Chars<'_>>) -> Result<(Option<i64>, Option<i64>)> {
    let digits = number(rest)?;
    Ok(match digits {
        Some(_) if rest.next_if_eq(&'$').is_some() => (digits, None),
        _ => (None, digits),
    })
}

fn number(rest: &mut Peekable<Chars<'_>>) -> Result<Option<i64>> {
    let mut number: Option<i64> = None;
    while let Some(digit) = rest.peek().and_then(|character| character.to_digit(10)) {
        rest.next();
        let larger = number.unwrap_or(0) * 10 + i64::from(digit);
        if larger > i32::MAX.into() {
            return exec_err!("number is out of range");
        }
        number = Some(larger);
    }
    if rest.peek().is_none() { unterminated() } else { Ok(number) }
}

fn append(formatted: &mut String, kind: char, specifier: &Specifier<'_>) -> Result<()> {
    let text = match (kind, specifier.argument) {
        ('I', None) => return exec_err!("null values cannot be formatted as an SQL identifier"),
        ('I', Some(name)) => quoted_name(name),
        ('L', None) => "NULL".to_owned(),
        ('L', Some(text)) => quoted_literal(text),
        (_, argument) => argument.unwrap_or_default().to_owned(),
    };
    let width = usize::try_from(specifier.width.unsigned_abs()).unwrap_or(0);
    if width > PADDED_BYTES_MAX {
        return exec_err!("requested length too large");
    }
    let padding = " ".repeat(width.saturating_sub(text.chars().count()));
    let parts = if specifier.width < 0 { [text, padding] } else { [padding, text] };
    formatted.extend(parts);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(pattern: &str, arguments: &[Option<&str>]) -> Result<String> {
        Formatter { arguments: arguments.to_vec(), next: 0 }.format(pattern)
    }

    #[test]
    fn places_are_filled() {
        for (pattern, arguments, expected) in [
            ("Hello %s, %1$s", vec![Some("World")], "Hello World, World"),
            ("%I.%L", vec![Some("my col"), Some("it's")], "\"my col\".'it''s'"),
            ("%-4s|%4s|%*s", vec![Some("a"), Some("b"), Some("3"), Some("c")], "a   |   b|  c"),
            ("%1$*2$s|", vec![Some("a"), Some("-4")], "a   |"),
            ("100%% %s%L", vec![None, None], "100% NULL"),
            ("%2$s %1$s %s", vec![Some("a"), Some("b")], "b a b"),
        ] {
            assert_eq!(formatted(pattern, &arguments).unwrap(), expected, "{pattern}");
        }
        for pattern in ["%", "%5", "%d", "%s%s", "%0$s", "%1$"] {
            assert!(formatted(pattern, &[Some("a")]).is_err(), "{pattern}");
        }
    }
}
