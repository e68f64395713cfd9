//! Tables that the demo prints.

use std::time::Duration;

use super::VARIANTS;
use super::workload::Measurement;
use crate::output::grid::{Alignment, Grid};
use crate::units::{bytes_text, count_text, duration_text};

const VARIANT_COUNT: usize = VARIANTS.len();

/// Table of measurements with a column per layout.
pub struct Comparison {
    grid: Grid,
}

impl Default for Comparison {
    fn default() -> Self {
        let variants = VARIANTS.iter().map(|variant| (variant.name, Alignment::Right));
        Self { grid: Grid::new(std::iter::once(("", Alignment::Left)).chain(variants)) }
    }
}

impl Comparison {
    /// Adds a row of times and bytes, and marks the shortest time.
    pub fn push_measurements(&mut self, name: &str, values: &[Measurement; VARIANT_COUNT]) {
        let text = |value: &Measurement| match value.bytes_read {
            Some(bytes) => format!("{} / {}", duration_text(value.time), bytes_text(bytes)),
            None => duration_text(value.time),
        };
        self.push(name, values, |value| value.time, text);
    }

    /// Adds a row of times, and marks the shortest.
    pub fn push_times(&mut self, name: &str, values: &[Duration; VARIANT_COUNT]) {
        self.push(name, values, |time| *time, |time| duration_text(*time));
    }

    /// Adds a row of sizes, and marks the smallest.
    pub fn push_sizes(&mut self, name: &str, values: &[u64; VARIANT_COUNT]) {
        self.push(name, values, |bytes| *bytes, |bytes| bytes_text(*bytes));
    }

    /// Adds a row. Marks the cell with the least key by a `*`. All other cells end in a space.
    fn push<T, K: Ord>(
        &mut self,
        name: &str,
        values: &[T; VARIANT_COUNT],
        key: impl Fn(&T) -> K,
        text: impl Fn(&T) -> String,
    ) {
        let best = values.iter().map(&key).min();
        let cell = |value: &T| {
            let mark = if Some(key(value)) == best { '*' } else { ' ' };
            format!("{} {mark}", text(value))
        };
        self.grid.push(std::iter::once(name.to_owned()).chain(values.iter().map(cell)).collect());
    }

    /// The comparison as text.
    pub fn text(&self) -> String {
        self.grid.text()
    }
}

/// Result of a query.
pub struct QueryResult {
    /// Title of the query.
    pub title: &'static str,
    /// Time of the query.
    pub time: Duration,
    /// Count of returned rows.
    pub rows: u64,
}

/// Table of query results as text: a line for each query, numbered from one, and their total.
pub fn queries_text(results: &[QueryResult]) -> String {
    let columns =
        [("query", Alignment::Left), ("", Alignment::Left), ("time", Alignment::Right), ("rows", Alignment::Right)];
    let mut grid = Grid::new(columns);
    for (index, result) in results.iter().enumerate() {
        let name = format!("Q{}", index + 1);
        grid.push(vec![name, result.title.to_owned(), duration_text(result.time), count_text(result.rows)]);
    }
    let total: Duration = results.iter().map(|result| result.time).sum();
    let rows: u64 = results.iter().map(|result| result.rows).sum();
    grid.push(vec!["total".to_owned(), String::new(), duration_text(total), count_text(rows)]);
    grid.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_winner_is_marked() {
        let mut comparison = Comparison::default();
        comparison.push_sizes("stored", &[3, 1, 2, 5]);
        let text = comparison.text();
        let line = text.lines().last().unwrap();
        assert_eq!(line.matches('*').count(), 1);
        assert!(line.contains("1 B *"), "{line}");
    }
}
