//! Overlap of the value ranges of blocks: how many blocks a search for one value reads.
//!
//! ```text
//!   block 1  |-----|                 |----------|
//!   block 2        |-----|             |--------|
//!   block 3              |----|      |------|
//!            sorted: 1.0 of 3        unsorted: 3.0 of 3
//! ```
//! Each block counts the ranges that contain the middle of its own range. The mean of these counts over all rows
//! estimates how many blocks a search for one value reads. The middle of a range is the mean of the ranks of its bounds
//! among the sorted bounds of all blocks. Only the order of values therefore matters, not their distance.

use std::cmp::Ordering;

use crate::system_tables::ColumnInfo;

/// Value ranges of one column, one per block.
pub struct Ranges<'a> {
    is_number: bool,
    ranges: Vec<Range<'a>>,
}

struct Range<'a> {
    min: &'a str,
    /// Greatest value. `None` if it is not known.
    max: Option<&'a str>,
    rows: u64,
}

impl<'a> Ranges<'a> {
    /// Ranges of a column, given the information on its values in each block. Blocks without values are skipped.
    pub fn new(sql_type: &str, parts: &[&'a ColumnInfo], rows_of: impl Fn(&str) -> u64) -> Self {
        const NUMBERS: [&str; 6] = ["smallint", "integer", "bigint", "real", "double", "decimal"];
        let is_number = NUMBERS.iter().any(|name| sql_type.starts_with(name));
        let range = |part: &&'a ColumnInfo| {
            Some(Range { min: part.min.as_deref()?, max: part.max.as_deref(), rows: rows_of(&part.block) })
        };
        Self { is_number, ranges: parts.iter().filter_map(range).collect() }
    }

    /// Least and greatest value of all blocks, if known.
    pub fn bounds(&self) -> (Option<&'a str>, Option<&'a str>) {
        let min = self.ranges.iter().map(|range| range.min).min_by(|a, b| self.compare(a, b));
        let maxima: Option<Vec<_>> = self.ranges.iter().map(|range| range.max).collect();
        let max = maxima.and_then(|maxima| maxima.into_iter().max_by(|a, b| self.compare(a, b)));
        (min, max)
    }

    /// Average count of blocks that a search for one value reads. Returns `None` if there are no values.
    pub fn blocks_per_value(&self) -> Option<f64> {
        let mut bounds: Vec<&str> =
            self.ranges.iter().flat_map(|range| [Some(range.min), range.max]).flatten().collect();
        bounds.sort_by(|a, b| self.compare(a, b));
        bounds.dedup_by(|a, b| self.compare(a, b) == Ordering::Equal);
        let rank = |value: &str| bounds.partition_point(|bound| self.compare(bound, value) == Ordering::Less);
        let unknown = bounds.len();
        let ranked: Vec<_> =
            self.ranges.iter().map(|range| (rank(range.min), range.max.map_or(unknown, rank), range.rows)).collect();
        // Ranks are doubled, so that the middle of two neighbours differs from both.
        let mut starts: Vec<_> = ranked.iter().map(|(min, _, _)| 2 * min).collect();
        let mut ends: Vec<_> = ranked.iter().map(|(_, max, _)| 2 * max).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let ranges_containing =
            |point: usize| starts.partition_point(|start| *start <= point) - ends.partition_point(|end| *end < point);
        let rows: u64 = ranked.iter().map(|(_, _, rows)| rows).sum();
        let weighted: f64 =
            ranked.iter().map(|(min, max, rows)| ranges_containing(min + max) as f64 * *rows as f64).sum();
        (rows > 0).then(|| weighted / rows as f64)
    }

    fn compare(&self, left: &str, right: &str) -> Ordering {
        match (left.parse::<f64>(), right.parse::<f64>()) {
            (Ok(left), Ok(right)) if self.is_number => left.total_cmp(&right),
            _ => left.cmp(right),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_per_value(sql_type: &str, bounds: &[(&str, Option<&str>)]) -> f64 {
        let part = |(block, (min, max)): (usize, &(&str, Option<&str>))| ColumnInfo {
            block: block.to_string(),
            name: String::new(),
            sql_type: String::new(),
            group: Some(0),
            group_kind: String::new(),
            encoding: String::new(),
            bytes: 0,
            plain_bytes: 0,
            min: Some((*min).to_owned()),
            max: max.map(str::to_owned),
            nulls: 0,
        };
        let parts: Vec<_> = bounds.iter().enumerate().map(part).collect();
        Ranges::new(sql_type, &parts.iter().collect::<Vec<_>>(), |_| 10).blocks_per_value().unwrap()
    }

    #[test]
    fn a_value_in_disjoint_or_adjacent_ranges_is_in_one_block() {
        assert_eq!(blocks_per_value("bigint", &[("1", Some("9")), ("10", Some("99")), ("100", Some("200"))]), 1.0);
        assert_eq!(blocks_per_value("bigint", &[("1", Some("9")), ("9", Some("20")), ("20", Some("200"))]), 1.0);
        assert_eq!(blocks_per_value("varchar", &[("a", Some("b")), ("c", Some("d"))]), 1.0);
    }

    #[test]
    fn overlapping_ranges_are_counted() {
        assert_eq!(blocks_per_value("date", &[("1992-01-01", Some("1998-12-01")); 4]), 4.0);
        assert_eq!(blocks_per_value("integer", &[("1", Some("99")), ("2", Some("98")), ("0", Some("100"))]), 3.0);
        assert_eq!(blocks_per_value("varchar", &[("a", None), ("b", None)]), 2.0);
    }
}
