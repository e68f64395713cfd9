//! What a scan did: plain counters that add up over segments and threads, and the ways it took.

use std::ops::BitOrAssign;

macro_rules! scan_report {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a scan.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ScanReport {
            $($(#[$doc])* pub $name: u64,)*
            /// The ways by which rows of the segments were found.
            pub paths: AccessPaths,
        }

        impl ScanReport {
            /// Adds the counters of another report.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.paths |= other.paths;
            }
        }
    };
}

scan_report! {
    /// Segments asked.
    segments,
    /// Segments in which zone maps left no row.
    segments_skipped,
    /// Segments in which a Bloom filter left no row.
    segments_skipped_by_bloom,
    /// Segments in which a csb index left no row.
    segments_skipped_by_csb,
    /// Zones looked at, counted once per test on a column.
    zones,
    /// Zones ruled out.
    zones_skipped,
    /// Rows whose values some test had to look at, excluded ones not counted.
    rows_in,
    /// Rows selected.
    rows_out,
    /// Bytes of the sections that were asked for.
    bytes_read,
    /// Bytes of the arrays that were made, about.
    bytes_decoded,
    /// Pages of rows that were asked for.
    pages_read,
    /// Encoded values that column tests looked at, once per test.
    values_tested,
    /// Column tests evaluated on encoded values.
    column_scans,
    /// Column tests that zone maps answered for all rows left.
    zone_answers,
    /// Column tests answered by binary search, at least in some zones.
    sorted_searches,
    /// Searches in a csb index that told which rows to look at.
    index_searches,
    /// Row tests evaluated once per dictionary entry.
    dictionary_tests,
    /// Row tests evaluated on decoded rows.
    row_tests,
}

impl ScanReport {
    /// Counts a column test that looked at so many encoded values.
    pub(crate) fn saw_column_scan(&mut self, values: u64) {
        self.column_scans += 1;
        self.values_tested += values;
        self.paths |= AccessPaths::ENCODED_SCAN;
    }

    /// Counts a search in a csb index that found no row.
    pub(crate) fn saw_index_find_none(&mut self) {
        self.saw_index_search();
        self.segments_skipped_by_csb += 1;
    }

    /// Counts a search in a csb index that told which rows to look at.
    pub(crate) fn saw_index_search(&mut self) {
        self.index_searches += 1;
        self.paths |= AccessPaths::CSB_TREE;
    }
}

/// A set of ways by which the rows of segments were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessPaths(u16);

impl AccessPaths {
    /// Zone maps left no row, or answered a test for all rows.
    pub const ZONE_MAP: Self = Self(1);
    /// A Bloom filter left no row.
    pub const BLOOM: Self = Self(2);
    /// Binary search in a sorted column.
    pub const SORTED_SEARCH: Self = Self(4);
    /// A csb index.
    pub const CSB_TREE: Self = Self(8);
    /// Extremes of few rows left out most of those that were to be tested.
    pub const EXTREMES: Self = Self(128);
    /// Encoded values were tested.
    pub const ENCODED_SCAN: Self = Self(16);
    /// The entries of a dictionary were tested, and then codes.
    pub const DICTIONARY: Self = Self(32);
    /// Decoded rows were tested.
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

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of some ways are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Their names, in the order in which they are tried.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(path, _)| self.contains(*path)).map(|(_, name)| name)
    }
}

impl BitOrAssign for AccessPaths {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
