//! Report of a scan: counters that are summed over segments and threads, and the access paths used.

use std::ops::BitOrAssign;

macro_rules! scan_report {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a scan, and the access paths that it used.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ScanReport {
            $($(#[$doc])* pub $name: u64,)*
            /// Access paths by which the scan found rows.
            pub paths: AccessPaths,
        }

        impl ScanReport {
            /// Adds the counters and access paths of another report.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.paths |= other.paths;
            }
        }
    };
}

scan_report! {
    /// Segments filtered or skipped.
    segments,
    /// Segments skipped because zone maps ruled out all rows.
    segments_skipped,
    /// Segments skipped because a Bloom filter ruled out all rows.
    segments_skipped_by_bloom,
    /// Segments skipped because a CSB+-tree index ruled out all rows.
    segments_skipped_by_csb,
    /// Zones checked, counted once per column predicate.
    zones,
    /// Zones in which zone maps ruled out all rows, counted once per column predicate.
    zones_skipped,
    /// Rows that zone maps and binary search did not rule out. Does not count excluded rows, or rows of segments that
    /// are read without predicates.
    rows_in,
    /// Rows selected.
    rows_out,
    /// Bytes of the sections that were read.
    bytes_read,
    /// Estimated bytes of the decoded arrays.
    bytes_decoded,
    /// Pages of rows that were read.
    pages_read,
    /// Encoded values that were compared, counted once per column predicate.
    values_tested,
    /// Column predicates evaluated on encoded values.
    column_scans,
    /// Column predicates that zone maps decided for all remaining rows.
    predicates_decided_by_zone_maps,
    /// Column predicates evaluated by binary search in at least one zone of a segment.
    sorted_searches,
    /// Searches in a CSB+-tree index that determined the rows to read.
    index_searches,
    /// Row predicates evaluated once per dictionary entry.
    dictionary_predicates,
    /// Row predicates evaluated on decoded rows.
    row_predicates,
}

impl ScanReport {
    /// Counts the evaluation of a column predicate that compared `values` encoded values.
    pub(crate) fn count_column_scan(&mut self, values: u64) {
        self.column_scans += 1;
        self.values_tested += values;
        self.paths |= AccessPaths::ENCODED_SCAN;
    }

    /// Counts column predicates that zone maps decided for all remaining rows.
    pub(crate) fn count_decided_by_zone_maps(&mut self, predicates: usize) {
        if predicates > 0 {
            self.predicates_decided_by_zone_maps += predicates as u64;
            self.paths |= AccessPaths::ZONE_MAP;
        }
    }

    /// Counts a segment in which zone maps ruled out all rows.
    pub(crate) fn count_skip_by_zone_maps(&mut self) {
        self.segments_skipped += 1;
        self.paths |= AccessPaths::ZONE_MAP;
    }

    /// Counts a segment in which a Bloom filter ruled out all rows.
    pub(crate) fn count_skip_by_bloom(&mut self) {
        self.segments_skipped_by_bloom += 1;
        self.paths |= AccessPaths::BLOOM;
    }

    /// Counts a segment in which a CSB+-tree index found no row.
    pub(crate) fn count_skip_by_csb(&mut self) {
        self.count_index_search();
        self.segments_skipped_by_csb += 1;
    }

    /// Counts a search in a CSB+-tree index that determined the rows to read.
    pub(crate) fn count_index_search(&mut self) {
        self.index_searches += 1;
        self.paths |= AccessPaths::CSB_TREE;
    }
}

/// A set of access paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessPaths(u16);

impl AccessPaths {
    /// Zone maps ruled out all rows, or decided a predicate for all rows.
    pub const ZONE_MAP: Self = Self(1);
    /// A Bloom filter ruled out all rows.
    pub const BLOOM: Self = Self(2);
    /// Binary search in a sorted column found rows.
    pub const SORTED_SEARCH: Self = Self(4);
    /// A CSB+-tree index found rows.
    pub const CSB_TREE: Self = Self(8);
    /// Cached extremes of a column found rows.
    pub const EXTREMES: Self = Self(128);
    /// A predicate was evaluated on encoded values.
    pub const ENCODED_SCAN: Self = Self(16);
    /// A predicate was evaluated on the entries of a dictionary, then on codes.
    pub const DICTIONARY: Self = Self(32);
    /// A predicate was evaluated on decoded rows.
    pub const DECODED_SCAN: Self = Self(64);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::ZONE_MAP, "zone_map"),
        (Self::BLOOM, "bloom"),
        (Self::SORTED_SEARCH, "sorted_search"),
        (Self::CSB_TREE, "csb"),
        (Self::EXTREMES, "extremes"),
        (Self::ENCODED_SCAN, "scan"),
        (Self::DICTIONARY, "dictionary"),
        (Self::DECODED_SCAN, "decoded_scan"),
    ];

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this set contains all access paths of another set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names of the access paths in the set, in the order in which a scan tries them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(path, _)| self.contains(*path)).map(|(_, name)| name)
    }
}

impl BitOrAssign for AccessPaths {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
