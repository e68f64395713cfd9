//! What a caller says of the encoding of an array, and why that may be impossible.

use taut_types::{Encoding, LogicalType};

/// How an encoding is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By size and cost of decoding, estimated from the values.
    Auto,
    /// The smallest of those that live on the order of rows, whatever decoding costs: `constant`, `run_length`,
    /// `run_length_delta` and `delta`, of text and bytes `front_coded`; also where rows are in no order. For numbers that
    /// are too far apart for differences, `run_length`.
    Ordered,
    /// Plain values.
    Plain,
    /// This one.
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
        /// What stands against it.
        reason: &'static str,
    },
    /// The array is not of the Arrow type of the column.
    #[error("a {logical} column takes arrays of {}, not {found}", logical.arrow())]
    WrongType {
        /// Type of the column.
        logical: LogicalType,
        /// Type of the array, as Arrow writes it.
        found: String,
    },
    /// A chunk has between 1 and 65,536 rows.
    #[error("a chunk has 1 to {} rows, not {found}", crate::CHUNK_ROWS_MAX)]
    Rows {
        /// How many there are.
        found: usize,
    },
    /// A decimal has more digits than its type.
    #[error("a value does not fit {logical}")]
    OutOfRange {
        /// Type of the column.
        logical: LogicalType,
    },
    /// Text or bytes of one chunk reach past 2 GiB.
    #[error("{bytes} bytes of text in one chunk; at most {} are possible", i32::MAX)]
    TooLong {
        /// How many there are.
        bytes: usize,
    },
}
