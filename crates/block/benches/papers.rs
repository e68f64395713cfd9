//! Bytes per row of tables from the literature in a layout, column by column, and the cost of scans.
//!
//! ```sh
//! cargo bench -p taut-block --bench papers -- narrow_s packed_row [rows] [every]
//! ```
//!
//! `bench/selection/tables.py` defines the same tables: ten columns of integers, column `i` in `[1, 2^(2.7 i)]`
//! (`narrow_u`: all in `[1, 100 million]`; `wide_e`: fifty, column `i` in `[1, 2^(4 + 23/50 i)]`). Numbers are
//! uniform, except in `narrow_s`, where they have a Zipf distribution with exponent 2. Rows are sorted by all columns
//! from the left (Holloway and DeWitt, 2008, section 4.1). Rows are generated in order, part by part, so the 60
//! million rows of the paper need little memory. One block in `every` is scanned.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops at what goes wrong")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use arrow_buffer::Buffer;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_block::{Block, BlockBuilder, BlockImage, ScanReport, Selection};
use taut_testkit::{arguments, thread_time};
use taut_types::{
    Column, ColumnIndex, ColumnPredicate, DatumPredicate, Layout, LogicalType, Predicate, Schema, SortColumn,
    TableDesign,
};

const SEED: u64 = 2008;
/// Maximum rows that are drawn and sorted at once.
const PART_ROWS: u64 = 1 << 19;
const BATCH_ROWS: usize = 8192;
const MEASURED_TIME_MIN: Duration = Duration::from_millis(200);

type Row = Vec<i32>;

/// Generator of the rows of a table.
struct RandomTable {
    greatest: Row,
    is_zipf: bool,
    random: StdRng,
}

impl RandomTable {
    fn new(table: &str) -> Self {
        let greatest = match table {
            "narrow_u" => vec![100_000_000; 10],
            "wide_e" => (1..=50).map(|column| 2_f64.powf(4.0 + 23.0 / 50.0 * f64::from(column)) as i32).collect(),
            _ => (1..=10).map(|column| 2_f64.powf(2.7 * f64::from(column)) as i32).collect(),
        };
        Self { greatest, is_zipf: table == "narrow_s", random: StdRng::seed_from_u64(SEED) }
    }

    /// Probability of the numbers from `low` to `high`, up to a constant factor.
    fn weight(&self, low: i32, high: i32) -> f64 {
        if !self.is_zipf {
            return f64::from(high) - f64::from(low) + 1.0;
        }
        // From 1,000 on, an integral approximates the sum.
        let near = (low..=high.min(999)).map(|number| f64::from(number).powi(-2)).sum::<f64>();
        let far = low.max(1000);
        near + if far > high { 0.0 } else { 1.0 / (f64::from(far) - 0.5) - 1.0 / (f64::from(high) + 0.5) }
    }

    /// A number from `low` to `high`. Skewed numbers are drawn by rejection (Devroye 1986, chapter X.6).
    fn number(&mut self, low: i32, high: i32) -> i32 {
        if !self.is_zipf {
            return self.random.random_range(low..=high);
        }
        loop {
            let inverse = self.random.random_range(1.0 / (f64::from(high) + 1.0)..1.0 / f64::from(low));
            let number = (1.0 / inverse).floor();
            if self.random.random::<f64>() <= (1.0 + 1.0 / number) / 2.0 {
                return (number as i32).clamp(low, high);
            }
        }
    }

    /// Draws `rows` rows that begin with `head`, followed by a number from `low` to `high`. Calls `visit` with them in
    /// order, part by part.
    fn draw(&mut self, head: &[i32], (low, high): (i32, i32), rows: u64, visit: &mut dyn FnMut(&[Row])) {
        let column = head.len();
        if rows > PART_ROWS && low == high && column + 1 < self.greatest.len() {
            return self.draw(&[head, &[low]].concat(), (1, self.greatest[column + 1]), rows, visit);
        }
        if rows > PART_ROWS {
            // The number of rows that fall into the lower part of the range has a binomial distribution. It is drawn
            // from the normal distribution that approximates it.
            let middle = if self.is_zipf { low } else { low + (high - low) / 2 };
            let share = self.weight(low, middle) / self.weight(low, high);
            let deviation: f64 = (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0;
            let left = rows as f64 * share + deviation * (rows as f64 * share * (1.0 - share)).sqrt();
            let left = (left.max(0.0) as u64).min(rows);
            self.draw(head, (low, middle), left, visit);
            return self.draw(head, (middle + 1, high), rows - left, visit);
        }
        let mut part: Vec<Row> = Vec::with_capacity(rows as usize);
        for _ in 0..rows {
            let mut row = vec![0; self.greatest.len()];
            row[..column].copy_from_slice(head);
            row[column] = self.number(low, high);
            for (other, number) in row.iter_mut().enumerate().skip(column + 1) {
                *number = self.number(1, self.greatest[other]);
            }
            part.push(row);
        }
        part.sort_unstable();
        visit(&part);
    }
}

fn open(image: &BlockImage) -> (Block, Vec<Buffer>) {
    let sections = image.sections.iter().map(|section| Buffer::from(section.as_slice())).collect();
    (Block::parse(Buffer::from(image.header.as_slice())).unwrap(), sections)
}

/// Statistics of the blocks of a table.
#[derive(Default)]
struct TableStatistics {
    rows: u64,
    bytes: u64,
    blocks: u64,
    /// Bytes of each column, and the number of pieces in each encoding.
    columns: Vec<(u64, HashMap<String, u64>)>,
    scanned: Vec<(Block, Vec<Buffer>)>,
}

impl TableStatistics {
    fn add_block(&mut self, image: &BlockImage, every: u64) {
        self.rows += image.rows;
        self.bytes += image.bytes();
        let (block, sections) = open(image);
        for (column, (bytes, encodings)) in self.columns.iter_mut().enumerate() {
            for piece in block.column_storage(&sections, ColumnIndex::from(column)).unwrap() {
                *bytes += piece.stored_bytes;
                // Descriptions of encodings that differ only in their numbers are counted as one.
                let words = piece.description.replace(|letter: char| letter.is_ascii_digit(), "");
                *encodings.entry(words).or_default() += 1;
            }
        }
        if self.blocks.is_multiple_of(every) {
            self.scanned.push((block, sections));
        }
        self.blocks += 1;
    }
}

/// Nanoseconds per row to filter all segments and read columns of the rows that pass: the best of three measurements.
fn scan(blocks: &[(Block, Vec<Buffer>)], predicate: &Predicate, columns: &[ColumnIndex]) -> f64 {
    let rows: u64 = blocks.iter().map(|(block, _)| block.rows()).sum();
    let mut best = f64::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let (begin, mut runs) = (thread_time(start), 0);
        while thread_time(start) - begin < MEASURED_TIME_MIN {
            runs += 1;
            let mut report = ScanReport::default();
            for (block, sections) in blocks {
                for segment in 0..block.segments() {
                    let mut reader = block.open_segment(sections, segment);
                    let selection = reader.filter(predicate, &mut report).unwrap();
                    for first in (0..selection.len()).step_by(BATCH_ROWS) {
                        let rows = first..selection.len().min(first + BATCH_ROWS);
                        std::hint::black_box(reader.project(&selection, rows, columns, &mut report).unwrap());
                    }
                }
            }
        }
        best = best.min((thread_time(start) - begin).as_secs_f64() * 1e9 / (rows * runs) as f64);
    }
    best
}

/// Microseconds to read a whole row at a random position, through a new reader.
fn look_up(blocks: &[(Block, Vec<Buffer>)]) -> f64 {
    let all: Vec<ColumnIndex> = (0..blocks[0].0.columns()).map(ColumnIndex::from).collect();
    let mut random = StdRng::seed_from_u64(SEED);
    let start = Instant::now();
    let (begin, mut rows) = (thread_time(start), 0);
    while thread_time(start) - begin < MEASURED_TIME_MIN {
        for _ in 0..64 {
            let (block, sections) = &blocks[random.random_range(0..blocks.len())];
            let segment = random.random_range(0..block.segments());
            let position = random.random_range(0..block.segment_rows(segment)) as u32;
            let mut reader = block.open_segment(sections, segment);
            let selection = Selection::Positions(vec![position]);
            std::hint::black_box(reader.project(&selection, 0..1, &all, &mut ScanReport::default()).unwrap());
        }
        rows += 64;
    }
    (thread_time(start) - begin).as_secs_f64() * 1e6 / f64::from(rows)
}

fn main() {
    let arguments = arguments();
    let argument = |position: usize, default: &str| arguments.get(position).map_or(default, String::as_str).to_owned();
    let (table, layout) = (argument(0, "narrow_s"), argument(1, "packed_row"));
    let rows: u64 = argument(2, "10000000").parse().unwrap();
    let every: u64 = argument(3, "4").parse().unwrap();
    let layout = match layout.as_str() {
        "column" => Layout::Column,
        "row" => Layout::Row,
        _ => Layout::PackedRow,
    };
    let mut random_table = RandomTable::new(&table);
    let greatest = random_table.greatest.clone();
    let columns = (1..=greatest.len()).map(|column| Column::new(format!("c{column}"), LogicalType::Integer, false));
    let schema = Arc::new(Schema::new(columns.collect()).unwrap());
    let all: Vec<ColumnIndex> = (0..greatest.len()).map(ColumnIndex::from).collect();
    let sort_by =
        all.iter().map(|column| SortColumn { column: *column, descending: false, nulls_first: false }).collect();
    let design = Arc::new(TableDesign { layout, sort_by, ..TableDesign::default() });
    let mut statistics =
        TableStatistics { columns: vec![Default::default(); greatest.len()], ..TableStatistics::default() };
    let mut builder = BlockBuilder::new(schema.clone(), design.clone());
    let mut building = Duration::ZERO;
    let start = Instant::now();
    random_table.draw(&[], (1, greatest[0]), rows, &mut |part| {
        let begin = thread_time(start);
        for rows in part.chunks(BATCH_ROWS) {
            let array =
                |column: usize| Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row[column]))) as ArrayRef;
            builder
                .push(&RecordBatch::try_new(schema.arrow(), (0..greatest.len()).map(array).collect()).unwrap())
                .unwrap();
            if builder.is_full() {
                let next = BlockBuilder::new(schema.clone(), design.clone());
                statistics.add_block(&std::mem::replace(&mut builder, next).finish().unwrap(), every);
            }
        }
        building += thread_time(start) - begin;
    });
    statistics.add_block(&builder.finish().unwrap(), every);
    let per_row = |bytes: u64| bytes as f64 / statistics.rows as f64;
    println!(
        "{table}, {}: {} rows, {:.2} bytes a row",
        design.layout.name(),
        statistics.rows,
        per_row(statistics.bytes)
    );
    println!("built at {:.2} M rows/s", statistics.rows as f64 / 1e6 / building.as_secs_f64());
    for (column, (bytes, encodings)) in statistics.columns.iter().enumerate() {
        let mut encodings: Vec<(&String, &u64)> = encodings.iter().collect();
        encodings.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        let words = encodings.iter().take(3).map(|(words, count)| format!("{count} {words}"));
        let words = words.collect::<Vec<_>>().join(", ");
        let (block, sections) = &statistics.scanned[statistics.scanned.len() / 2];
        let last = block.column_storage(sections, ColumnIndex::from(column)).unwrap().remove(0).description;
        println!("  c{:<2} {:>6.2} bits   {words}; {last}", column + 1, 8.0 * per_row(*bytes));
    }
    let last = all.len() - 1;
    println!("scans, ns a row:");
    println!("  all columns                   {:>7.2}", scan(&statistics.scanned, &Predicate::default(), &all));
    println!("  c2                            {:>7.2}", scan(&statistics.scanned, &Predicate::default(), &all[1..2]));
    println!("  last column                   {:>7.2}", scan(&statistics.scanned, &Predicate::default(), &all[last..]));
    let in_range = |column: ColumnIndex, low, high| Predicate {
        column_predicates: vec![ColumnPredicate::new(column, DatumPredicate::Range { low, high })],
        row_predicates: vec![],
    };
    println!(
        "  last column where c(n-1) = 1  {:>7.2}",
        scan(&statistics.scanned, &in_range(all[last - 1], 1, 1), &all[last..])
    );
    println!(
        "  all columns where that > 1000 {:>7.2}",
        scan(&statistics.scanned, &in_range(all[last], 1001, 1 << 30), &all)
    );
    println!("whole row by position, new reader: {:.2} us", look_up(&statistics.scanned));
}
