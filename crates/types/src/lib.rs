//! The plain data that every room of Taut agrees on: logical types and schemas,
//! comparison keys, tests on columns, statistics, and the design of a table.
//!
//! Nothing here does I/O, and nothing here knows how a value is stored.
//!
//! ```
//! use taut_types::{Column, LogicalType, Schema, TableDesign};
//!
//! let schema = Schema::new(vec![
//!     Column::new("id", LogicalType::BigInt, false),
//!     Column::new("name", LogicalType::Varchar, true),
//! ])
//! .unwrap();
//! let design = TableDesign::from_options([("layout", "packed_row"), ("sort_by", "id")], &schema).unwrap();
//! assert_eq!(design.groups(&schema).len(), 1);
//! ```

mod design;
mod key;
mod logical_type;
mod partitioning;
mod predicate;
mod schema;
mod sketch;
mod statistics;

pub use design::{
    Abstraction, BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MIN, BlockSize, Compression, DesignError, Encoding, Group, GroupKind,
    IndexDesign, IndexKind, Layout, LevelColumns, PARTITIONS_MAX, PartitionDesign, PartitionMethod, SortColumn,
    TableDesign, quote_identifier,
};
pub use key::{Key, equal_numbers, f32_from_key, f32_to_key, f64_from_key, f64_to_key, key_at, text_of};
pub use logical_type::{LogicalType, UnsupportedType};
pub use partitioning::Partitioning;
pub use predicate::{ColumnTest, Predicate, RowTest, Test, UnlessNull};
pub use schema::{Column, ColumnIndex, Schema, SchemaError};
pub use sketch::DistinctSketch;
pub use statistics::ColumnStatistics;
