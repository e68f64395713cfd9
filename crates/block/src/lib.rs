//! Immutable, self-describing blocks of rows in every layout: builds, filters and reads them.
//!
//! A block is a header and sections (`docs/format.md`). [`BlockBuilder`] builds the bytes, [`Block`] reads them. The
//! rows of a block are cut into *segments* of at most [`SEGMENT_ROWS`] rows. One column group of one segment is a
//! *piece*. It is stored as one encoded column, as pages of packed rows or as pages of slotted rows. Each column of a
//! segment has *zones*: ranges of rows with a minimum and maximum.
//!
//! This crate never opens a file: it gets sections through [`Sections`]. The module [`rows`] encodes rows that are not
//! in a block yet.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{ArrayRef, Int32Array, RecordBatch};
//! use arrow_buffer::Buffer;
//! use taut_block::{Block, BlockBuilder, ScanReport};
//! use taut_types::{Column, ColumnIndex, ColumnPredicate, DatumPredicate, LogicalType, Predicate, Schema, TableDesign};
//!
//! let schema = Arc::new(Schema::new(vec![Column::new("a", LogicalType::Integer, false)]).unwrap());
//! let mut builder = BlockBuilder::new(schema.clone(), Arc::new(TableDesign::default()));
//! let column: ArrayRef = Arc::new(Int32Array::from(vec![5, 6, 7]));
//! builder.push(&RecordBatch::try_new(schema.arrow(), vec![column]).unwrap()).unwrap();
//! let image = builder.finish().unwrap();
//!
//! let block = Block::parse(image.header.into()).unwrap();
//! let sections: Vec<Buffer> = image.sections.into_iter().map(Buffer::from).collect();
//! let mut reader = block.open_segment(&sections, 0);
//! let mut report = ScanReport::default();
//! let at_least_six = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 6, high: i128::MAX });
//! let predicate = Predicate { column_predicates: vec![at_least_six], row_predicates: vec![] };
//! let selection = reader.filter(&predicate, &mut report).unwrap();
//! assert_eq!(selection.len(), 2);
//! let columns = reader.project(&selection, 0..2, &[ColumnIndex(0)], &mut report).unwrap();
//! assert_eq!(columns[0].len(), 2);
//! ```

mod block;
mod builder;
mod bytes;
mod column_map;
mod error;
mod groups;
mod header;
mod index_pruning;
mod indexes;
mod order;
mod report;
pub mod rows;
mod section;
mod segment;
mod selection;
mod statistics;
mod values;

pub use block::{Block, PieceStorage};
pub use builder::{BlockBuilder, BlockImage, Extent, rows_until_full};
pub use column_map::{AddedColumn, ColumnMap, ColumnSource};
pub use error::{BlockError, BuildError, CorruptBlock, CorruptRows, SectionError};
pub use index_pruning::{IndexProbes, PrunedSegments};
pub use order::PredicateHistory;
pub use report::{AccessPaths, ScanReport};
pub use section::{DerivedLookup, SECTION_ALIGNMENT, SectionEntry, Sections, checksum};
pub use segment::{NumberSummary, SegmentReader};
pub use selection::{SelectedBits, Selection};
pub use statistics::ColumnSummary;
pub use taut_encoding::{ArrayBuilder, Extreme, NullableNumbers};

/// Maximum rows of a segment. Positions in a segment fit 16 bits, counts 32.
pub const SEGMENT_ROWS: usize = 65_536;
/// Usual maximum bytes of a page of rows. Pages of long tuples may be longer.
pub const PAGE_BYTES: usize = 32 << 10;
