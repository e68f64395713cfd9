//! Rows as CSV text, in the format of PostgreSQL's `COPY`.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;

use crate::expressions::write_texts;

/// Writes rows as CSV text. By default, a null is an empty field, and empty text is two quotes.
#[derive(Clone, Debug)]
pub struct CsvWriter {
    /// Delimiter between values.
    pub delimiter: u8,
    /// Quote character.
    pub quote: u8,
    /// Escape character, which precedes a quote or an escape character inside quotes.
    pub escape: u8,
    /// Text of a null.
    pub null: String,
}

impl Default for CsvWriter {
    fn default() -> Self {
        Self { delimiter: b',', quote: b'"', escape: b'"', null: String::new() }
    }
}

impl CsvWriter {
    /// Writes a line with the names of the columns.
    pub fn write_header(&self, schema: &Schema, out: &mut Vec<u8>) {
        let is_single = schema.fields().len() == 1;
        for (index, field) in schema.fields().iter().enumerate() {
            self.write_delimiter(index, out);
            self.write_text(field.name(), is_single, out);
        }
        out.push(b'\n');
    }

    /// Writes a line for each row.
    ///
    /// # Errors
    /// If a value cannot be written as text, for example a date out of range.
    pub fn write_rows(&self, rows: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let columns = rows.columns().iter().map(write_texts).collect::<Result<Vec<_>, _>>()?;
        let is_single = columns.len() == 1;
        for row in 0..rows.num_rows() {
            for (index, texts) in columns.iter().enumerate() {
                self.write_delimiter(index, out);
                match texts.is_null(row) {
                    true => out.extend_from_slice(self.null.as_bytes()),
                    false => self.write_text(texts.as_string_view().value(row), is_single, out),
                }
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn write_delimiter(&self, index: usize, out: &mut Vec<u8>) {
        if index > 0 {
            out.push(self.delimiter);
        }
    }

    fn write_text(&self, text: &str, is_single: bool, out: &mut Vec<u8>) {
        let is_special = |byte: &u8| *byte == self.delimiter || *byte == self.quote || matches!(byte, b'\n' | b'\r');
        // PostgreSQL reads a line of these two characters as the end of the data.
        let is_end_marker = is_single && text == "\\.";
        if text != self.null && !is_end_marker && !text.as_bytes().iter().any(is_special) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        out.push(self.quote);
        for byte in text.bytes() {
            if byte == self.quote || byte == self.escape {
                out.push(self.escape);
            }
            out.push(byte);
        }
        out.push(self.quote);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, BinaryArray, StringArray};

    use super::*;

    #[test]
    fn quotes_are_written_where_they_are_needed() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("a"), Some(""), None, Some("b,\"c"), Some("NA"), Some("\\.")]));
        let bytes: ArrayRef =
            Arc::new(BinaryArray::from(vec![Some(b"\0\xff".as_slice()), None, None, None, None, None]));
        let rows = RecordBatch::try_from_iter_with_nullable([("a b", texts, true), ("\"c\"", bytes, true)]).unwrap();
        let written = |writer: &CsvWriter, rows: &RecordBatch| {
            let mut out = Vec::new();
            writer.write_header(&rows.schema(), &mut out);
            writer.write_rows(rows, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let default = CsvWriter::default();
        let expected = "a b,\"\"\"c\"\"\"\na,\\x00ff\n\"\",\n,\n\"b,\"\"c\",\nNA,\n\\.,\n";
        assert_eq!(written(&default, &rows), expected);
        let first = rows.project(&[0]).unwrap();
        assert_eq!(written(&default, &first), "a b\na\n\"\"\n\n\"b,\"\"c\"\nNA\n\"\\.\"\n");
        let other = CsvWriter { delimiter: b' ', quote: b'\'', escape: b'\\', null: "NA".to_owned() };
        assert_eq!(written(&other, &first), "'a b'\na\n\nNA\nb,\"c\n'NA'\n'\\\\.'\n");
    }
}
