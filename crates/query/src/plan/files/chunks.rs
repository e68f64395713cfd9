//! Bytes of a CSV file in chunks of whole records, which threads read independently of each other.

use std::io::{self, Read};

use memchr::memchr_iter;

use super::records::Dialect;

/// Bytes that are read at once. A chunk ends with the last record that is complete.
const CHUNK_BYTES: usize = 1 << 20;

/// Whole records of a file.
#[derive(Debug)]
pub(super) struct Chunk {
    pub bytes: Vec<u8>,
    /// Number of the line of the file that the chunk begins with.
    pub first_line: u64,
}

/// Iterator over the chunks of a file.
pub(super) struct Chunks<R> {
    source: R,
    dialect: Dialect,
    /// Beginning of a record that the last chunk did not end.
    rest: Vec<u8>,
    next_line: u64,
    is_at_start: bool,
    is_at_end: bool,
}

impl<R: Read> Chunks<R> {
    pub fn new(source: R, dialect: Dialect) -> Self {
        Self { source, dialect, rest: Vec::new(), next_line: 1, is_at_start: true, is_at_end: false }
    }

    fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        let mut bytes = std::mem::take(&mut self.rest);
        while !self.is_at_end {
            // A record longer than a chunk is searched a second time only after as many bytes have been added.
            let wanted = CHUNK_BYTES.max(bytes.len());
            bytes.reserve(wanted);
            let read = self.source.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
            self.is_at_end = read < wanted;
            if std::mem::take(&mut self.is_at_start) && bytes.starts_with(BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            if self.is_at_end {
                break;
            }
            if let Some(end) = self.dialect.end_of_records(&bytes) {
                self.rest = bytes.split_off(end);
                break;
            }
            if bytes.len() >= RECORD_BYTES_MAX {
                let line = self.next_line;
                let message = format!("the record at line {line} exceeds 256 MiB; a quote may not be closed");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let first_line = self.next_line;
        self.next_line += memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some(Chunk { bytes, first_line }))
    }
}

/// Maximum bytes of a record that does not fit into a chunk. Without it, a quote that is not closed reads the rest of
/// the file into memory.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// Bytes by which some programs mark a file as UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: Read> Iterator for Chunks<R> {
    type Item = io::Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_whole_records() {
        let dialect = Dialect { delimiter: b',', quote: b'"', escape: b'"', null: String::new() };
        let record = "1,\"two\nlines\"\n";
        let mut text = record.repeat(3 * CHUNK_BYTES / record.len());
        text.push_str(&format!("2,\"{}\"\n3,end", "x\n".repeat(2 * CHUNK_BYTES)));
        let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
        let (mut joined, mut lines) = (Vec::new(), 0);
        for chunk in Chunks::new(marked.as_slice(), dialect) {
            let chunk = chunk.unwrap();
            assert_eq!(chunk.first_line, lines + 1);
            lines += memchr_iter(b'\n', &chunk.bytes).count() as u64;
            assert!(joined.is_empty() || chunk.bytes[0].is_ascii_digit());
            joined.extend(chunk.bytes);
        }
        assert!(joined == text.as_bytes());
    }
}
