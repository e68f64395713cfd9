//! Bytes of a CSV file in chunks of whole records, which threads read independently of each other.

use std::io::{self, Read};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;

use super::records::{Dialect, LineEnd};

/// Bytes that are read at once. A chunk ends with the last record that is complete.
const CHUNK_BYTES: usize = 1 << 20;

/// Whole records of a file.
#[derive(Debug)]
pub(super) struct Chunk {
    pub bytes: Vec<u8>,
    /// Number of the line of the file that the chunk begins with.
    pub first_line: u64,
    /// How the lines of the file end.
    pub line_end: LineEnd,
    /// Memory of a chunk that is larger than others, because it has a long record. Released with the chunk.
    _memory: Option<MemoryReservation>,
}

impl Chunk {
    /// Number of the line of the file at a position of the chunk.
    pub fn line_at(&self, at: usize) -> u64 {
        self.first_line + self.line_end.count(&self.bytes[..at.min(self.bytes.len())])
    }
}

/// Maximum bytes of a record. Without it, a quote that is not closed reads the rest of the file into memory.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 20;

/// Why a chunk cannot be read.
#[derive(Debug)]
pub(super) enum ChunkError {
    Read(io::Error),
    /// A long record exceeds the remaining memory.
    Memory(DataFusionError),
    /// A record exceeds the maximum length.
    TooLong {
        bytes_max: usize,
        /// Line that the record begins in.
        line: u64,
        /// Line of a quote that is not closed within the maximum.
        quote_line: Option<u64>,
    },
}

/// Iterator over the chunks of a file.
pub(super) struct Chunks<R> {
    source: R,
    dialect: Dialect,
    record_bytes_max: usize,
    /// Beginning of a record that is incomplete in the last chunk.
    rest: Vec<u8>,
    next_line: u64,
    /// How lines end. `None` before the end of the first line.
    line_end: Option<LineEnd>,
    is_at_start: bool,
    is_at_end: bool,
    /// Reservation for long records. `None` if the memory limit does not apply to them.
    memory: Option<MemoryReservation>,
}

impl<R: Read> Chunks<R> {
    pub fn new(source: R, dialect: Dialect, record_bytes_max: usize) -> Self {
        let (rest, next_line, line_end, memory) = (Vec::new(), 1, None, None);
        let (is_at_start, is_at_end) = (true, false);
        Self { source, dialect, record_bytes_max, rest, next_line, line_end, is_at_start, is_at_end, memory }
    }

    /// Reserves the memory of long records in the pool of `memory`.
    pub fn with_memory(self, memory: MemoryReservation) -> Self {
        Self { memory: Some(memory), ..self }
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, ChunkError> {
        let mut bytes = std::mem::take(&mut self.rest);
        let memory = self.memory.as_ref().map(MemoryReservation::new_empty);
        while !self.is_at_end {
            // For a record longer than a chunk, the bytes double before each search for its end.
            let wanted = CHUNK_BYTES.max(bytes.len()).min(self.record_bytes_max + 1 - bytes.len());
            if let Some(memory) = &memory
                && bytes.len() >= CHUNK_BYTES
            {
                memory.try_resize(bytes.len() + wanted).map_err(ChunkError::Memory)?;
            }
            bytes.reserve_exact(wanted);
            let read = self.source.by_ref().take(wanted as u64).read_to_end(&mut bytes).map_err(ChunkError::Read)?;
            self.is_at_end = read < wanted;
            if std::mem::take(&mut self.is_at_start) && bytes.starts_with(BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            self.line_end = self.line_end.or_else(|| self.dialect.first_line_end(&bytes, self.is_at_end));
            if self.is_at_end {
                break;
            }
            if let Some(line_end) = self.line_end
                && let Some(end) = self.dialect.end_of_records(&bytes, line_end)
            {
                self.rest = bytes.split_off(end);
                break;
            }
            if bytes.len() > self.record_bytes_max {
                return Err(self.too_long(&bytes));
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let (first_line, line_end) = (self.next_line, self.line_end.unwrap_or_default());
        self.next_line += line_end.count(&bytes);
        Ok(Some(Chunk { bytes, first_line, line_end, _memory: memory }))
    }

    /// Returns the error about a record that is too long. `bytes` is the beginning of the record.
    fn too_long(&self, bytes: &[u8]) -> ChunkError {
        let (bytes_max, line) = (self.record_bytes_max, self.next_line);
        let lines_before = |at: usize| self.line_end.unwrap_or_default().count(&bytes[..at]);
        let quote_line = self.dialect.open_quote(bytes).map(|at| line + lines_before(at));
        ChunkError::TooLong { bytes_max, line, quote_line }
    }
}

/// Bytes by which some programs mark a file as UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: Read> Iterator for Chunks<R> {
    type Item = Result<Chunk, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::*;

    const DIALECT: Dialect = Dialect { delimiter: b',', quote: b'"', escape: b'"', null: String::new() };

    #[test]
    fn chunks_hold_whole_records() {
        let record = "1,\"two\nlines\"\n";
        let mut text = record.repeat(3 * CHUNK_BYTES / record.len());
        text.push_str(&format!("2,\"{}\"\n3,end", "x\n".repeat(2 * CHUNK_BYTES)));
        let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
        let (mut joined, mut lines) = (Vec::new(), 0);
        for chunk in Chunks::new(marked.as_slice(), DIALECT, RECORD_BYTES_MAX) {
            let chunk = chunk.unwrap();
            assert_eq!(chunk.first_line, lines + 1);
            lines += chunk.line_end.count(&chunk.bytes);
            assert!(joined.is_empty() || chunk.bytes[0].is_ascii_digit());
            joined.extend(chunk.bytes);
        }
        assert!(joined == text.as_bytes());
    }

    #[test]
    fn long_records_are_within_the_memory_limit() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(4 * CHUNK_BYTES));
        let read = |text: &str| -> Result<Vec<()>, ChunkError> {
            let memory = MemoryConsumer::new("test").register(&pool);
            Chunks::new(text.as_bytes(), DIALECT, RECORD_BYTES_MAX)
                .with_memory(memory)
                .map(|chunk| chunk.map(drop))
                .collect()
        };
        let long = |bytes: usize| format!("1,\"{}\"\n", "x\n".repeat(bytes / 2));
        assert!(read(&long(3 * CHUNK_BYTES)).is_ok());
        assert_eq!(pool.reserved(), 0);
        assert!(matches!(read(&long(5 * CHUNK_BYTES)), Err(ChunkError::Memory(_))));
        assert!(read(&"1,x\n".repeat(3 * CHUNK_BYTES)).is_ok());
    }

    #[test]
    fn records_have_a_maximum() {
        let bytes_max = 2 * CHUNK_BYTES;
        let read = |text: &str| Chunks::new(text.as_bytes(), DIALECT, bytes_max).collect::<Result<Vec<_>, _>>();
        let rows = "3,y\n".repeat(CHUNK_BYTES);
        for (begin, expected) in [
            // The quotes of the first value are closed.
            ("1,x\n2,\"a\n\"\"b\",\"y\n", Some(3)),
            ("1,x\n2,\"\"\"", Some(2)),
            ("1,x\n2,\"y\n\"\n", None),
        ] {
            let quote_line = match read(&format!("{begin}{rows}")) {
                Err(ChunkError::TooLong { line: 2, quote_line, .. }) => quote_line,
                other => other.map(|_| None).unwrap(),
            };
            assert_eq!(quote_line, expected, "{begin}");
        }
        let unquoted = "x".repeat(bytes_max + 1);
        assert!(matches!(read(&unquoted), Err(ChunkError::TooLong { line: 1, quote_line: None, .. })));
        assert!(read(&unquoted[1..]).is_ok());
    }
}
