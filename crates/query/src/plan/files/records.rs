//! Records of CSV text, as columns of text. Quotes and nulls are written as in PostgreSQL's `COPY`.
//!
//! ```text
//!   1,,"",a"b,c"d     1   null   empty text   ab,cd
//! ```
//!
//! A field is null if it has no quotes and equals the null text. A quote may begin inside a field. Blank lines are
//! skipped, except in a file of one column, where they are nulls. The first line determines how all lines end.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, NullBufferBuilder, StringArray};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use memchr::{memchr_iter, memchr2};

/// Characters that separate and quote values, and the text of a null.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub delimiter: u8,
    pub quote: u8,
    /// Character before a quote or an escape inside quotes. May be the quote.
    pub escape: u8,
    pub null: String,
}

/// How the lines of a file end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LineEnd {
    #[default]
    Lf,
    CrLf,
    Cr,
}

impl LineEnd {
    /// Last byte of a line.
    pub fn last_byte(self) -> u8 {
        match self {
            Self::Lf | Self::CrLf => b'\n',
            Self::Cr => b'\r',
        }
    }

    /// Length of the line end that begins at a position. `None` if the line does not end there.
    fn length_at(self, text: &[u8], at: usize) -> Option<usize> {
        match (self, text.get(at)?) {
            (Self::Lf, b'\n') | (Self::Cr, b'\r') => Some(1),
            (Self::CrLf, b'\r') if text.get(at + 1) == Some(&b'\n') => Some(2),
            _ => None,
        }
    }

    /// Number of lines that end in a text.
    pub fn count(self, text: &[u8]) -> u64 {
        memchr_iter(self.last_byte(), text).count() as u64
    }
}

impl Dialect {
    /// How the first line outside of quotes ends, in the bytes at the beginning of a file. `None` if more bytes are
    /// needed.
    pub fn first_line_end(&self, bytes: &[u8], is_at_end: bool) -> Option<LineEnd> {
        let mut at = None;
        self.scan(bytes, |end| {
            at = Some(end);
            false
        });
        match at.map(|at| (bytes[at], bytes.get(at + 1))) {
            Some((b'\n', _)) => Some(LineEnd::Lf),
            Some((_, Some(b'\n'))) => Some(LineEnd::CrLf),
            Some((_, Some(_))) => Some(LineEnd::Cr),
            Some((_, None)) => is_at_end.then_some(LineEnd::Cr),
            None => is_at_end.then_some(LineEnd::Lf),
        }
    }

    /// End of the last record that is complete, in bytes that begin with a record.
    pub fn end_of_records(&self, bytes: &[u8], line_end: LineEnd) -> Option<usize> {
        let last_byte = line_end.last_byte();
        if self.escape != self.quote {
            let mut end = None;
            self.scan(bytes, |at| {
                if bytes[at] == last_byte {
                    end = Some(at + 1);
                }
                true
            });
            return end;
        }
        let mut is_quoted = memchr_iter(self.quote, bytes).count() % 2 == 1;
        memchr::memrchr2_iter(self.quote, last_byte, bytes)
            .find(|at| {
                let is_quote = bytes[*at] == self.quote;
                is_quoted ^= is_quote;
                !is_quote && !is_quoted
            })
            .map(|at| at + 1)
    }

    /// Position of the quote that is open at the end of bytes that begin with a record.
    pub fn open_quote(&self, bytes: &[u8]) -> Option<usize> {
        self.scan(bytes, |_| true)
    }

    /// Calls `visit` with the position of each line feed and carriage return outside of quotes, until it returns false.
    /// Returns the position of the quote that is open at the end.
    fn scan(&self, bytes: &[u8], mut visit: impl FnMut(usize) -> bool) -> Option<usize> {
        let (mut opened, mut at) = (None, 0);
        while let Some(byte) = bytes.get(at) {
            let next = bytes.get(at + 1);
            if opened.is_some() && *byte == self.escape && next.is_some_and(|next| self.is_escaped(*next)) {
                at += 1;
            } else if *byte == self.quote {
                opened = if opened.is_none() { Some(at) } else { None };
            } else if opened.is_none() && matches!(byte, b'\n' | b'\r') && !visit(at) {
                break;
            }
            at += 1;
        }
        opened
    }

    /// Whether an escape before this byte makes the byte literal.
    fn is_escaped(&self, byte: u8) -> bool {
        byte == self.quote || byte == self.escape
    }
}

/// Why records cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordError {
    /// The record at position `at` has `found` fields, which is not the number of columns.
    Fields { at: usize, found: usize },
    /// The text ends inside quotes, which begin at position `at`.
    Unterminated { at: usize },
    /// A line feed or carriage return outside of quotes that is not the line end of the file.
    LineEnd { at: usize, byte: u8 },
    /// A field is not UTF-8.
    Encoding { at: usize, byte: u8 },
    /// A column is too large for one batch.
    TooLarge,
}

/// Reads the records of a text one by one.
pub(super) struct Records<'a> {
    text: &'a [u8],
    dialect: &'a Dialect,
    line_end: LineEnd,
    /// Bytes that end or change an unquoted field.
    is_special: [bool; 256],
    at: usize,
    scratch: Vec<u8>,
}

/// What ended after a field was read: only the field, or its record too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldEnd {
    Field,
    Record,
}

impl<'a> Records<'a> {
    pub fn new(text: &'a [u8], dialect: &'a Dialect, line_end: LineEnd) -> Self {
        let mut is_special = [false; 256];
        for byte in [dialect.delimiter, dialect.quote, b'\n', b'\r'] {
            is_special[usize::from(byte)] = true;
        }
        Self { text, dialect, line_end, is_special, at: 0, scratch: Vec::new() }
    }

    /// Position of the next record.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Reads a record and calls `field` with the index and the text of each field, `None` for null. Returns the number
    /// of fields, or `None` at the end of the text. With `skips_blank`, lines without any character are skipped.
    pub fn read(
        &mut self,
        skips_blank: bool,
        mut field: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Option<usize>, RecordError> {
        if skips_blank {
            while let Some(length) = self.line_end.length_at(self.text, self.at) {
                self.at += length;
            }
        }
        if self.at >= self.text.len() {
            return Ok(None);
        }
        let mut count = 0;
        loop {
            let end = self.read_field(|value| field(count, value))?;
            count += 1;
            if end == FieldEnd::Record {
                return Ok(Some(count));
            }
        }
    }

    fn read_field(&mut self, mut field: impl FnMut(Option<&[u8]>)) -> Result<FieldEnd, RecordError> {
        let (text, start) = (self.text, self.at);
        if text.get(start) == Some(&self.dialect.quote) {
            if let Some(end) = self.end_of_simple_quotes(start + 1) {
                field(Some(&text[start + 1..end]));
                return self.pass_end(end + 1);
            }
        } else {
            let length = text[start..].iter().position(|byte| self.is_special[usize::from(*byte)]);
            let end = length.map_or(text.len(), |length| start + length);
            if text.get(end) != Some(&self.dialect.quote) {
                let value = &text[start..end];
                field((value != self.dialect.null.as_bytes()).then_some(value));
                return self.pass_end(end);
            }
        }
        self.unquote(start)?;
        field(Some(&self.scratch));
        self.pass_end(self.at)
    }

    /// Position of the quote that ends a field, if the field has no other quotes and no escapes.
    fn end_of_simple_quotes(&self, start: usize) -> Option<usize> {
        let rest = &self.text[start..];
        let end = start + memchr2(self.dialect.quote, self.dialect.escape, rest)?;
        let ends = match self.text.get(end + 1) {
            Some(next) => *next == self.dialect.delimiter || matches!(next, b'\n' | b'\r'),
            None => true,
        };
        (self.text[end] == self.dialect.quote && ends).then_some(end)
    }

    /// Unquotes a field that has quotes anywhere into `scratch`, up to its end.
    fn unquote(&mut self, start: usize) -> Result<(), RecordError> {
        let Dialect { delimiter, quote, escape, .. } = *self.dialect;
        self.scratch.clear();
        let (mut at, mut is_quoted, mut opened) = (start, false, start);
        while let Some(&byte) = self.text.get(at) {
            let next = self.text.get(at + 1).copied();
            match next {
                Some(next) if is_quoted && byte == escape && self.dialect.is_escaped(next) => {
                    self.scratch.push(next);
                    at += 1;
                }
                _ if byte == quote => {
                    is_quoted = !is_quoted;
                    opened = at;
                }
                _ if !is_quoted && (byte == delimiter || matches!(byte, b'\n' | b'\r')) => break,
                _ => self.scratch.push(byte),
            }
            at += 1;
        }
        self.at = at;
        if is_quoted { Err(RecordError::Unterminated { at: opened }) } else { Ok(()) }
    }

    /// Advances past the end of a field: a delimiter, the end of a line or the end of the text.
    fn pass_end(&mut self, end: usize) -> Result<FieldEnd, RecordError> {
        let (kind, length) = match (self.text.get(end), self.line_end.length_at(self.text, end)) {
            (_, Some(length)) => (FieldEnd::Record, length),
            (Some(byte @ (b'\n' | b'\r')), None) => return Err(RecordError::LineEnd { at: end, byte: *byte }),
            (Some(_), None) => (FieldEnd::Field, 1),
            (None, None) => (FieldEnd::Record, 0),
        };
        self.at = end + length;
        Ok(kind)
    }
}

/// Builds the array of one column of text.
struct TextBuilder {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl TextBuilder {
    fn new(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { bytes: Vec::with_capacity(8 * rows), offsets, nulls: NullBufferBuilder::new(rows) }
    }

    fn append(&mut self, text: Option<&[u8]>) {
        self.bytes.extend_from_slice(text.unwrap_or_default());
        self.offsets.push(i32::try_from(self.bytes.len()).unwrap_or(-1));
        self.nulls.append(text.is_some());
    }

    /// Returns the texts as an array, or `None` if they are not UTF-8.
    fn finish(mut self) -> Result<Option<StringArray>, RecordError> {
        // A length that exceeds the type of offsets was appended as -1.
        if self.offsets.last().is_some_and(|end| *end < 0) || self.bytes.len() > i32::MAX as usize {
            return Err(RecordError::TooLarge);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(StringArray::try_new(offsets, Buffer::from_vec(self.bytes), self.nulls.finish()).ok())
    }
}

/// Texts of some records, and where the records begin.
pub(super) struct TextColumns {
    /// Texts of the requested columns, in the order of the request.
    pub columns: Vec<ArrayRef>,
    /// Positions of the records in the text.
    pub starts: Vec<usize>,
}

/// Reads up to `rows_max` records of `width` fields and returns the columns with the indexes `wanted`, which ascend.
/// Returns no records at the end.
pub(super) fn read_columns(
    records: &mut Records<'_>,
    width: usize,
    wanted: &[usize],
    rows_max: usize,
) -> Result<TextColumns, RecordError> {
    /// Slot of a column that is not requested.
    const UNWANTED: usize = usize::MAX;
    let begin = records.position();
    let mut slots = vec![UNWANTED; width];
    for (slot, column) in wanted.iter().enumerate() {
        slots[*column] = slot;
    }
    let mut builders: Vec<_> = wanted.iter().map(|_| TextBuilder::new(rows_max)).collect();
    let mut starts = Vec::with_capacity(rows_max);
    while starts.len() < rows_max {
        let at = records.position();
        let append = |index: usize, text: Option<&[u8]>| {
            if let Some(slot) = slots.get(index).filter(|slot| **slot != UNWANTED) {
                builders[*slot].append(text);
            }
        };
        match records.read(width != 1, append)? {
            None => break,
            Some(found) if found != width => return Err(RecordError::Fields { at, found }),
            Some(_) => starts.push(at),
        }
    }
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(builders.len());
    for builder in builders {
        let texts = builder.finish()?.ok_or_else(|| first_invalid(&records.text[begin..], begin))?;
        columns.push(Arc::new(texts));
    }
    Ok(TextColumns { columns, starts })
}

/// Error about the first byte that is not UTF-8.
fn first_invalid(text: &[u8], begin: usize) -> RecordError {
    let valid = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
    RecordError::Encoding { at: begin + valid, byte: text.get(valid).copied().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(escape: u8) -> Dialect {
        Dialect { delimiter: b',', quote: b'"', escape, null: String::new() }
    }

    fn fields(text: &str, escape: u8) -> Vec<Vec<Option<String>>> {
        let dialect = dialect(escape);
        let line_end = dialect.first_line_end(text.as_bytes(), true).unwrap();
        let mut records = Records::new(text.as_bytes(), &dialect, line_end);
        let mut all = Vec::new();
        loop {
            let mut record = Vec::new();
            let push = |_: usize, text: Option<&[u8]>| {
                record.push(text.map(|text| String::from_utf8(text.to_vec()).unwrap()));
            };
            match records.read(true, push).unwrap() {
                Some(_) => all.push(record),
                None => return all,
            }
        }
    }

    #[test]
    fn quotes_distinguish_empty_text_from_null() {
        let cases: [(&str, &[&[Option<&str>]]); 10] = [
            ("a,,\"\"\n", &[&[Some("a"), None, Some("")]]),
            ("\"a\"\"b\",c", &[&[Some("a\"b"), Some("c")]]),
            ("a\"b,\n\"c,d\r\n", &[&[Some("ab,\nc"), Some("d")]]),
            ("\"a\"b,\"\"\"\"\n", &[&[Some("ab"), Some("\"")]]),
            ("a\r\n\r\nb\r\n", &[&[Some("a")], &[Some("b")]]),
            ("a\rb\r\rc", &[&[Some("a")], &[Some("b")], &[Some("c")]]),
            ("\n\na,\n\n", &[&[Some("a"), None]]),
            ("a,b", &[&[Some("a"), Some("b")]]),
            ("\"\"", &[&[Some("")]]),
            (",", &[&[None, None]]),
        ];
        for (text, expected) in cases {
            let expected: Vec<Vec<_>> =
                expected.iter().map(|record| record.iter().map(|text| text.map(str::to_owned)).collect()).collect();
            assert_eq!(fields(text, b'"'), expected, "{text:?}");
        }
        let escaped = [[Some("a\"b\\c\\d".to_owned()), Some("e".to_owned())]];
        assert_eq!(fields("\"a\\\"b\\\\c\\d\",e\n", b'\\'), escaped);
    }

    #[test]
    fn records_end_outside_of_quotes() {
        for (text, expected) in [
            ("a,b\nc", Some(4)),
            ("a,\"b\nc\"\nd", Some(8)),
            ("a,\"b\nc", None),
            ("x\na,\"b\nc", Some(2)),
            ("a", None),
            ("\"\"\"\n\"\n", Some(6)),
        ] {
            assert_eq!(dialect(b'"').end_of_records(text.as_bytes(), LineEnd::Lf), expected, "{text:?}");
        }
        assert_eq!(dialect(b'\\').end_of_records(b"\"\\\"\n\"\nx", LineEnd::Lf), Some(6));
        assert_eq!(dialect(b'\\').end_of_records(b"\"\\\"\n", LineEnd::Lf), None);
    }

    #[test]
    fn errors_name_the_position() {
        let dialect = dialect(b'"');
        let read = |text: &str| {
            read_columns(&mut Records::new(text.as_bytes(), &dialect, LineEnd::Lf), 2, &[0, 1], 10)
                .map(|read| read.starts)
        };
        assert_eq!(read("a,b\nc,d"), Ok(vec![0, 4]));
        assert_eq!(read("a,b\nc\n"), Err(RecordError::Fields { at: 4, found: 1 }));
        assert_eq!(read("a,b\nc,d,e\n"), Err(RecordError::Fields { at: 4, found: 3 }));
        assert_eq!(read("a,b\nc,\"d"), Err(RecordError::Unterminated { at: 6 }));
        assert_eq!(read("a,\"b\"x\"c"), Err(RecordError::Unterminated { at: 6 }));
        let mut records = Records::new(b"a,b\nc,\xff", &dialect, LineEnd::Lf);
        let error = read_columns(&mut records, 2, &[0, 1], 10).map(|read| read.starts);
        assert_eq!(error, Err(RecordError::Encoding { at: 6, byte: 0xff }));
    }

    #[test]
    fn lines_end_as_the_first_one() {
        let dialect = dialect(b'"');
        let cases = [
            ("a\nb\n", Some(LineEnd::Lf), None),
            ("\"a\r\"\nb\rc", Some(LineEnd::Lf), Some((6, b'\r'))),
            ("a\nb\r\n", Some(LineEnd::Lf), Some((3, b'\r'))),
            ("a\r\nb\r\n", Some(LineEnd::CrLf), None),
            ("a\r\nb\n", Some(LineEnd::CrLf), Some((4, b'\n'))),
            ("a\r\nb\rc\r\n", Some(LineEnd::CrLf), Some((4, b'\r'))),
            ("a\rb\rc", Some(LineEnd::Cr), None),
            ("a\rb\nc", Some(LineEnd::Cr), Some((3, b'\n'))),
            ("a\r", None, None),
            ("\"a\n", None, None),
        ];
        for (text, line_end, error) in cases {
            assert_eq!(dialect.first_line_end(text.as_bytes(), false), line_end, "{text:?}");
            let Some(line_end) = line_end else { continue };
            let mut records = Records::new(text.as_bytes(), &dialect, line_end);
            let found = read_columns(&mut records, 1, &[0], 10).err();
            let error = error.map(|(at, byte)| RecordError::LineEnd { at, byte });
            assert_eq!(found, error, "{text:?}");
        }
        assert_eq!(dialect.end_of_records(b"a\r\"b\r\"\rc", LineEnd::Cr), Some(7));
    }
}
