//! Plain data types that all crates of Taut share: logical types, schemas, datums, predicates, statistics and table
//! designs.
//!
//! This crate does no I/O and does not depend on how values are stored.
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

mod datum;
mod design;
mod logical_type;
mod partitioning;
mod predicate;
mod relation_name;
mod schema;
mod sketch;
mod statistics;

pub use datum::{
    Datum, array_of_datum, datum_at, datum_text, equal_numbers, f32_from_ordered, f32_to_ordered, f64_from_ordered,
    f64_to_ordered,
};
pub use design::{
    Abstraction, BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MIN, BlockSize, Compression, DesignError, Encoding, Group, GroupKind,
    IndexDesign, IndexKind, Layout, LevelColumns, PARTITIONS_MAX, PartitionDesign, PartitionMethod, SortColumn,
    TableDesign, TableOption, quote_identifier,
};
pub use logical_type::{LogicalType, UnsupportedType};
pub use partitioning::Partitioning;
pub use predicate::{ColumnPredicate, DatumPredicate, NonNullPredicate, Predicate, RowPredicate};
pub use relation_name::{
    PUBLIC_SCHEMA, TEMPORARY_SCHEMA, is_temporary_relation, relation_name, relation_sql, sibling_name,
    split_relation_name, unqualified_name,
};
pub use schema::{Column, ColumnIndex, Schema, SchemaError};
pub use sketch::DistinctSketch;
pub use statistics::ColumnStatistics;
