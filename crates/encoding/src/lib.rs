//! Encodes one column of values to bytes, decodes them, and evaluates predicates on the encoded bytes.
//!
//! A *chunk* is the encoded values of one column for the rows of one segment. [`encode`] writes a chunk and
//! [`Chunk::parse`] reads it. A chunk decodes ranges of rows, gathers single rows, and evaluates predicates without
//! decoding. This crate knows nothing about blocks or files.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{ArrayRef, Int32Array};
//! use taut_encoding::{Bitmap, Choice, Chunk, encode};
//! use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, LogicalType};
//!
//! let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(9), Some(8)]));
//! let bytes = encode(&values, LogicalType::Integer, Choice::Auto).unwrap();
//! let chunk = Chunk::parse(bytes.into(), LogicalType::Integer, 4).unwrap();
//! assert_eq!(&chunk.decode(0..4), &values);
//!
//! let mut selection = Bitmap::all_set(4);
//! let eight_or_nine = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 8, high: 9 });
//! chunk.filter(&eight_or_nine, 0..4, &mut selection);
//! assert_eq!(selection.positions(), [2, 3]);
//! ```

mod arrays;
mod bitmap;
mod bytes;
mod choice;
mod chunk;
mod codes;
mod distinct;
mod encode;
mod head;
mod kernels;
mod lane_predicate;
mod number_filter;
mod numbers;
mod packed;
mod run_ends;
mod runs;
mod search;

pub use arrays::ArrayBuilder;
pub use bitmap::Bitmap;
pub use choice::{Choice, EncodeError};
pub use chunk::{Chunk, NullableNumbers};
pub use encode::{encode, encode_repeated};
pub use head::CorruptChunk;
pub use kernels::{InstructionSet, LINE_BYTES, prefetch};
pub use number_filter::NumberFilter;
pub use numbers::Extreme;
pub use runs::SelectedRuns;
pub use search::numbers as search_ascending;

/// Number of rows of a vector, the unit in which numbers are packed, unpacked and compared.
pub const VECTOR_ROWS: usize = 1024;
/// Maximum number of rows of a chunk, and of a segment.
pub const CHUNK_ROWS_MAX: usize = 65_536;
