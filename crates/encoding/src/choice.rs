//! Choice of an encoding for an array, and the errors of encoding.

use taut_types::{Encoding, LogicalType};

/// Rule for choosing an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The encoding with the best balance of size and decoding cost, estimated from the values.
    Auto,
    /// The smallest of the encodings that use the order of rows, regardless of the cost of decoding, and even if the
    /// rows are unordered. For numbers: `constant`, `run_length`, `run_length_delta` and `delta`; only `run_length`
    /// if the numbers are too far apart for differences. For text and bytes: `constant`, `run_length` and
    /// `front_coded`.
    Ordered,
    /// The encoding `plain`.
    Plain,
    /// This encoding.
    Forced(Encoding),
}

/// Why an array cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The forced encoding cannot hold these values.
    #[error("encoding {} is impossible: {reason}", encoding.name())]
    Impossible {
        /// The encoding.
        encoding: Encoding,
        /// Why the encoding cannot hold the values.
        reason: &'static str,
    },
    /// The array does not have the Arrow type of the column.
    #[error("a {logical} column takes arrays of {}, not {found}", logical.arrow())]
    WrongType {
        /// Type of the column.
        logical: LogicalType,
        /// Type of the array, in Arrow's notation.
        found: String,
    },
    /// The array does not have between 1 and 65,536 rows.
    #[error("a chunk has 1 to {} rows, not {found}", crate::CHUNK_ROWS_MAX)]
    Rows {
        /// Rows of the array.
        found: usize,
    },
    /// A decimal exceeds the plain width of its type, if that is 4 or 8 bytes. Every decimal fits 16 bytes.
    #[error("a value does not fit {logical}")]
    OutOfRange {
        /// Type of the column.
        logical: LogicalType,
    },
    /// The text or bytes of one chunk exceed 2 GiB.
    #[error("{bytes} bytes of text in one chunk; at most {} are possible", i32::MAX)]
    TooLong {
        /// Bytes of the values.
        bytes: usize,
    },
}
