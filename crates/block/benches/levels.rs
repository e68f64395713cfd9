//! Bytes that levels (column abstraction) save, and time that they cost, on the sorted tables of Holloway and DeWitt
//! (2008), section 4.1.
//!
//! ```sh
//! cargo bench -p taut-block --bench levels -- [rows]
//! ```
//!
//! The tables have 10 columns of integers and are sorted by all of them: narrow_e (column i uniform in 1..=2^(2.7 i)),
//! narrow_u (uniform in 1..=100 million) and narrow_s (ranges of narrow_e, Zipf with exponent 2). All rows, of 40 bytes
//! each, are drawn and sorted. Evenly spaced blocks are built from them and measured. Times are nanoseconds per row, of
//! one thread with sections in memory. The designs of a layout are measured alternately. The result for a design is
//! its least time, which other work on the machine affects least. The ratio to the time of the same layout without
//! levels follows each time in parentheses.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops at what goes wrong")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use arrow_buffer::Buffer;
use taut_block::{Block, BlockBuilder, SEGMENT_ROWS, ScanReport, Selection};
use taut_testkit::{arguments, thread_time};
use taut_types::{Column, ColumnIndex, ColumnPredicate, DatumPredicate, LogicalType, Predicate, Schema, TableDesign};

const COLUMNS: usize = 10;
/// Rows with 16 MiB of plain values.
const BLOCK_ROWS: usize = (16 << 20) / (4 * COLUMNS);
const BLOCKS: usize = 4;
const REPETITIONS: usize = 41;
const LOOKUPS: usize = 200;

type Row = [i32; COLUMNS];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// A uniform number from 1 to `greatest`.
    fn uniform(&mut self, greatest: u64) -> u64 {
        self.next() % greatest + 1
    }

    /// A number from 1 to `greatest`. The probability of `n` is proportional to `1 / n^2` (Devroye, 1986, X.6.1).
    fn zipf(&mut self, greatest: u64) -> u64 {
        loop {
            let (first, second) = (self.fraction(), self.fraction());
            let number = (1.0 / first).floor();
            let scale = 1.0 + 1.0 / number;
            if number <= greatest as f64 && second * number * (scale - 1.0) <= scale / 2.0 {
                return number as u64;
            }
        }
    }

    /// A uniform number above 0 and at most 1.
    fn fraction(&mut self) -> f64 {
        (self.next() + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// The rows of a table in order.
fn sorted_rows(table: &str, rows: usize) -> Vec<Row> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let greatest = |column: usize| match table {
        "narrow_u" => 100_000_000,
        _ => 2_f64.powf(2.7 * (column + 1) as f64) as u64,
    };
    let mut draw = |column: usize| match table {
        "narrow_s" => random.zipf(greatest(column)),
        _ => random.uniform(greatest(column)),
    };
    let mut drawn: Vec<Row> = (0..rows).map(|_| std::array::from_fn(|column| draw(column) as i32)).collect();
    drawn.sort_unstable();
    drawn
}

fn schema() -> Arc<Schema> {
    let columns = (1..=COLUMNS).map(|number| Column::new(format!("c{number}"), LogicalType::Integer, false));
    Arc::new(Schema::new(columns.collect()).unwrap())
}

fn design(layout: &str, abstraction: &str) -> TableDesign {
    let sort_by = (1..=COLUMNS).map(|number| format!("c{number}")).collect::<Vec<_>>().join(", ");
    let options = [("layout", layout), ("sort_by", sort_by.as_str()), ("abstraction", abstraction)];
    TableDesign::from_options(options, &schema()).unwrap()
}

/// A block with its sections.
type BlockInMemory = (Block, Vec<Buffer>);

struct Built {
    blocks: Vec<BlockInMemory>,
    rows: usize,
    bytes: u64,
    time: Duration,
}

fn build(design: &TableDesign, parts: &[&[Row]]) -> Built {
    let mut built = Built { blocks: vec![], rows: 0, bytes: 0, time: Duration::ZERO };
    let start = Instant::now();
    for part in parts {
        let array = |column: usize| Arc::new(part.iter().map(|row| row[column]).collect::<Int32Array>()) as ArrayRef;
        let batch = RecordBatch::try_new(schema().arrow(), (0..COLUMNS).map(array).collect()).unwrap();
        let begin = thread_time(start);
        let mut builder = BlockBuilder::new(schema(), Arc::new(design.clone()));
        builder.push(&batch).unwrap();
        let image = builder.finish().unwrap();
        built.time += thread_time(start) - begin;
        built.rows += part.len();
        built.bytes += image.bytes();
        let sections = image.sections.iter().map(|section| Buffer::from(section.as_slice())).collect();
        built.blocks.push((Block::parse(image.header.into()).unwrap(), sections));
    }
    built
}

/// Filters a segment and reads columns of the rows that pass.
fn scan((block, sections): &(Block, Vec<Buffer>), segment: usize, conjuncts: &[ColumnPredicate], columns: &[usize]) {
    let columns: Vec<ColumnIndex> = columns.iter().copied().map(ColumnIndex::from).collect();
    let predicate = Predicate { column_predicates: conjuncts.to_vec(), row_predicates: vec![] };
    let mut report = ScanReport::default();
    let mut reader = block.open_segment(sections, segment);
    let selection = reader.filter(&predicate, &mut report).unwrap();
    for first in (0..selection.len()).step_by(8192) {
        let rows = first..selection.len().min(first + 8192);
        std::hint::black_box(reader.project(&selection, rows, &columns, &mut report).unwrap());
    }
}

/// Whether each lookup opens a reader of the segment, or all lookups share one.
#[derive(Clone, Copy, PartialEq)]
enum LookupReader {
    New,
    Shared,
}

/// Reads whole rows at random positions.
fn look_up((block, sections): &(Block, Vec<Buffer>), segment: usize, lookup_reader: LookupReader) {
    let all: Vec<ColumnIndex> = (0..COLUMNS).map(ColumnIndex::from).collect();
    let (mut random, mut report) = (Random(77), ScanReport::default());
    let rows = block.segment_rows(segment) as u64;
    let mut reader = block.open_segment(sections, segment);
    for _ in 0..LOOKUPS {
        if lookup_reader == LookupReader::New {
            reader = block.open_segment(sections, segment);
        }
        let selection = Selection::Positions(vec![(random.uniform(rows) - 1) as u32]);
        std::hint::black_box(reader.project(&selection, 0..1, &all, &mut report).unwrap());
    }
}

/// For each design, the least nanoseconds that `run` takes on the middle segment of a block, averaged over the blocks.
/// The designs are measured alternately.
fn measure(built: &[Built], run: &dyn Fn(&BlockInMemory, usize)) -> Vec<f64> {
    let mut times = vec![0.0; built.len()];
    for block in 0..BLOCKS {
        let mut least = vec![f64::INFINITY; built.len()];
        for _ in 0..REPETITIONS {
            for (built, least) in built.iter().zip(&mut least) {
                let block = &built.blocks[block];
                let begin = Instant::now();
                run(block, block.0.segments() / 2);
                *least = least.min(begin.elapsed().as_nanos() as f64);
            }
        }
        times.iter_mut().zip(least).for_each(|(time, least)| *time += least / BLOCKS as f64);
    }
    times
}

fn between(column: usize, (low, high): (i32, i32)) -> ColumnPredicate {
    ColumnPredicate::new(ColumnIndex::from(column), DatumPredicate::Range { low: low.into(), high: high.into() })
}

fn main() {
    let rows = arguments().first().and_then(|rows| rows.parse().ok()).unwrap_or(10_000_000);
    for table in ["narrow_e", "narrow_u", "narrow_s"] {
        let all = sorted_rows(table, rows);
        let stride = rows / BLOCKS;
        let parts: Vec<&[Row]> =
            (0..BLOCKS).map(|part| &all[part * stride..rows.min(part * stride + BLOCK_ROWS)]).collect();
        println!("\n{table}, {BLOCKS} blocks from {rows} rows");
        println!(
            "| layout | abstraction | bytes a row | build | scan all, c1 to c4, c8, count c4 in half, c8 in half, all \
             where both | a row by position, new reader, same reader | levels |"
        );
        println!("|---|---|--:|--:|---|---|---|");
        for (layout, abstractions) in
            [("packed_row", ["0", "auto", "4"]), ("row", ["0", "auto", "4"]), ("column", ["0", "auto", "4"])]
        {
            let built: Vec<Built> = abstractions.iter().map(|levels| build(&design(layout, levels), &parts)).collect();
            let quartiles = |column: usize| {
                let mut values: Vec<i32> = parts[0].iter().map(|row| row[column]).collect();
                values.sort_unstable();
                (values[values.len() / 4], values[values.len() * 3 / 4])
            };
            let half = [between(3, quartiles(3)), between(7, quartiles(7))];
            let everything: Vec<usize> = (0..COLUMNS).collect();
            let scans: Vec<Vec<f64>> = [
                measure(&built, &|block, segment| scan(block, segment, &[], &everything)),
                measure(&built, &|block, segment| scan(block, segment, &[], &[0, 1, 2, 3])),
                measure(&built, &|block, segment| scan(block, segment, &[], &[7])),
                measure(&built, &|block, segment| scan(block, segment, &half[..1], &[])),
                measure(&built, &|block, segment| scan(block, segment, &half[1..], &[])),
                measure(&built, &|block, segment| scan(block, segment, &half, &everything)),
            ]
            .into();
            let lookups = [
                measure(&built, &|block, segment| look_up(block, segment, LookupReader::New)),
                measure(&built, &|block, segment| look_up(block, segment, LookupReader::Shared)),
            ];
            for (index, (abstraction, built)) in abstractions.iter().zip(&built).enumerate() {
                let cells = |times: &[Vec<f64>], divisor: usize| {
                    let cell = |times: &Vec<f64>| {
                        format!("{:.2} ({:.2})", times[index] / divisor as f64, times[index] / times[0].max(1.0))
                    };
                    times.iter().map(cell).collect::<Vec<_>>().join(", ")
                };
                let (block, sections) = &built.blocks[0];
                let level = |column: usize| {
                    let storage = block.column_storage(sections, ColumnIndex::from(column)).unwrap();
                    storage[0]
                        .description
                        .starts_with("level")
                        .then(|| format!("c{}: {}", column + 1, storage[0].description))
                };
                println!(
                    "| {layout} | {abstraction} | {:.2} | {:.0} | {} | {} | {} |",
                    built.bytes as f64 / built.rows as f64,
                    built.time.as_nanos() as f64 / built.rows as f64,
                    cells(&scans, SEGMENT_ROWS),
                    cells(&lookups, LOOKUPS),
                    (0..COLUMNS).filter_map(level).collect::<Vec<_>>().join("; ")
                );
            }
        }
    }
}
