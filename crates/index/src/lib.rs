//! Indexes of a segment. They find the rows that can pass a predicate without reading the segment.
//!
//! [`ZoneMap`] holds bounds and null counts of consecutive row ranges (zones) of one column of one segment. [`CsbTree`]
//! maps ranges of keys to rows, and [`Bloom`] excludes keys that do not occur. [`RowRanges`] holds the rows that
//! remain. An index only narrows a scan: results are the same without it. This crate does not depend on files, pages or
//! encodings.
//!
//! ```
//! use arrow_buffer::Buffer;
//! use taut_index::CsbTree;
//!
//! let bytes: Buffer = CsbTree::build(&[30, 10, 30, 20]).into();
//! let tree = CsbTree::parse(&bytes, 4).unwrap();
//! let positions = tree.search(&[(20, 30)]).remove(0);
//! assert_eq!(tree.rows_at(&positions), [3, 0, 2]);
//! ```

mod bloom;
mod csb_tree;
mod little_endian;
mod row_ranges;
mod zone_map;

pub use bloom::{Bloom, bloom_hash};
pub use csb_tree::{CorruptIndex, CsbTree};
pub use row_ranges::RowRanges;
pub use zone_map::{
    BYTES_PREFIX, CorruptZoneMap, Zone, ZoneFormat, ZoneMap, lower_prefix, merge_similar_zones, upper_prefix,
};
