//! From keys to row positions: which rows of a segment can pass a test, known without reading them.
//!
//! [`ZoneMap`] holds bounds and null counts of consecutive row ranges (zones) of one column of one segment;
//! [`CsbTree`] leads from ranges of keys to rows; [`Bloom`] tells keys that do not occur; [`RowRanges`] is what zones
//! leave over. An index only ever narrows: leaving it out changes no answer. Nothing here knows of files, pages or
//! encodings.

mod bloom;
mod csb_tree;
mod row_ranges;
mod zone_map;

pub use bloom::{Bloom, bloom_hash};
pub use csb_tree::{CorruptIndex, CsbTree};
pub use row_ranges::RowRanges;
pub use zone_map::{BYTES_PREFIX, CorruptZoneMap, Zone, ZoneForm, ZoneMap, join_alike, lower_prefix, upper_prefix};
