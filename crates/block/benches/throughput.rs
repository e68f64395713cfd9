//! Speed of building, scanning, filtering and gathering from blocks of each layout, on a table like TPC-H `lineitem`.
//!
//! ```sh
//! cargo bench -p taut-block --bench throughput -- [rows] [layout]
//! ```
//!
//! All figures are for one thread, with sections in memory and without verifying checksums. Times are CPU times if the
//! system reports them, so that other work on the machine affects them little. Short runs are repeated for a tenth of a
//! second.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops at what goes wrong")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use taut_block::{Block, BlockBuilder, BlockImage, ScanReport, Selection};
use taut_testkit::{arguments, thread_time};
use taut_types::{
    Column, ColumnIndex, ColumnPredicate, Compression, DatumPredicate, Layout, LogicalType, Predicate, Schema,
    TableDesign,
};

const BATCH_ROWS: usize = 8192;
const MEASURED_TIME_MIN: Duration = Duration::from_millis(100);

/// Mean time of one call.
fn measure(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    let begin = thread_time(start);
    for runs in 1.. {
        run();
        let spent = thread_time(start) - begin;
        if spent >= MEASURED_TIME_MIN {
            return spent / runs;
        }
    }
    Duration::ZERO
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn schema() -> Schema {
    let price = LogicalType::Decimal { precision: 15, scale: 2 };
    let columns = [
        ("orderkey", LogicalType::BigInt),
        ("partkey", LogicalType::BigInt),
        ("suppkey", LogicalType::BigInt),
        ("linenumber", LogicalType::Integer),
        ("quantity", price),
        ("extendedprice", price),
        ("discount", price),
        ("tax", price),
        ("returnflag", LogicalType::Varchar),
        ("linestatus", LogicalType::Varchar),
        ("shipdate", LogicalType::Date),
        ("commitdate", LogicalType::Date),
        ("receiptdate", LogicalType::Date),
        ("shipinstruct", LogicalType::Varchar),
        ("shipmode", LogicalType::Varchar),
        ("comment", LogicalType::Varchar),
    ];
    Schema::new(columns.into_iter().map(|(name, logical)| Column::new(name, logical, false)).collect()).unwrap()
}

fn batches(rows: usize) -> Vec<RecordBatch> {
    const WORDS: [&str; 16] = [
        "carefully",
        "final",
        "deposits",
        "sleep",
        "quickly",
        "ironic",
        "requests",
        "above",
        "the",
        "express",
        "packages",
        "haggle",
        "slyly",
        "furiously",
        "regular",
        "accounts",
    ];
    const INSTRUCT: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
    const MODE: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
    let arrow = schema().arrow();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut batches = vec![];
    for first in (0..rows).step_by(BATCH_ROWS) {
        let count = BATCH_ROWS.min(rows - first);
        let mut numbers = |bound: u64| (0..count).map(|_| random.below(bound) as i64).collect::<Vec<_>>();
        let big = |numbers: Vec<i64>| Arc::new(Int64Array::from(numbers)) as ArrayRef;
        let price = |numbers: Vec<i64>| {
            let array = Decimal128Array::from_iter_values(numbers.into_iter().map(i128::from));
            Arc::new(array.with_precision_and_scale(15, 2).unwrap()) as ArrayRef
        };
        let date = |numbers: &[i64]| {
            Arc::new(Date32Array::from_iter_values(numbers.iter().map(|day| 8036 + *day as i32))) as ArrayRef
        };
        let pick = |numbers: Vec<i64>, words: &[&str]| {
            Arc::new(StringViewArray::from_iter_values(numbers.iter().map(|n| words[*n as usize]))) as ArrayRef
        };
        let ship = numbers(2526);
        let receipt: Vec<i64> = ship.iter().zip(numbers(30)).map(|(ship, days)| ship + days + 1).collect();
        let columns: Vec<ArrayRef> = vec![
            big((first..first + count).map(|row| (row / 4 * 4) as i64).collect()),
            big(numbers(200_000)),
            big(numbers(10_000)),
            Arc::new(Int32Array::from_iter_values((0..count).map(|row| (row % 4) as i32 + 1))),
            price(numbers(50).into_iter().map(|n| (n + 1) * 100).collect()),
            price(numbers(10_000_000)),
            price(numbers(11)),
            price(numbers(9)),
            pick(numbers(3), &["A", "N", "R"]),
            pick(numbers(2), &["F", "O"]),
            date(&ship),
            date(&numbers(2500)),
            date(&receipt),
            pick(numbers(4), &INSTRUCT),
            pick(numbers(7), &MODE),
            Arc::new(StringViewArray::from_iter_values((0..count).map(|_| {
                let words = 2 + random.below(5);
                (0..words).map(|_| WORDS[random.below(16) as usize]).collect::<Vec<_>>().join(" ")
            }))),
        ];
        batches.push(RecordBatch::try_new(arrow.clone(), columns).unwrap());
    }
    batches
}

struct Table {
    blocks: Vec<(Block, Vec<Buffer>)>,
    rows: u64,
}

fn build(design: &Arc<TableDesign>, batches: &[RecordBatch]) -> (Table, Duration, u64) {
    let schema = Arc::new(schema());
    let start = Instant::now();
    let begin = thread_time(start);
    let mut images: Vec<BlockImage> = vec![];
    let mut builder = BlockBuilder::new(schema.clone(), design.clone());
    for batch in batches {
        builder.push(batch).unwrap();
        if builder.is_full() {
            let full = std::mem::replace(&mut builder, BlockBuilder::new(schema.clone(), design.clone()));
            images.push(full.finish().unwrap());
        }
    }
    images.push(builder.finish().unwrap());
    let time = thread_time(start) - begin;
    let bytes = images.iter().map(BlockImage::bytes).sum();
    let rows = images.iter().map(|image| image.rows).sum();
    let open = |image: BlockImage| {
        let sections = image.sections.iter().map(|section| Buffer::from(section.as_slice())).collect();
        (Block::parse(image.header.into()).unwrap(), sections)
    };
    (Table { blocks: images.into_iter().map(open).collect(), rows }, time, bytes)
}

/// Filters every segment, and reads columns of the rows that pass, in batches.
fn scan(table: &Table, predicate: &Predicate, columns: &[ColumnIndex]) -> (Duration, u64) {
    let mut selected = 0;
    let time = measure(|| {
        selected = 0;
        let mut report = ScanReport::default();
        for (block, sections) in &table.blocks {
            for segment in 0..block.segments() {
                let mut reader = block.open_segment(sections, segment);
                let selection = reader.filter(predicate, &mut report).unwrap();
                selected += selection.len() as u64;
                let mut row = 0;
                while row < selection.len() && !columns.is_empty() {
                    let end = selection.len().min(row + BATCH_ROWS);
                    std::hint::black_box(reader.project(&selection, row..end, columns, &mut report).unwrap());
                    row = end;
                }
            }
        }
    });
    (time, selected)
}

/// Whether each lookup opens a reader of the segment, or all lookups share one.
#[derive(Clone, Copy, PartialEq)]
enum LookupReader {
    New,
    Shared,
}

/// Time to read a single whole row.
fn gather(table: &Table, lookup_reader: LookupReader) -> Duration {
    let all: Vec<ColumnIndex> = (0..schema().len()).map(ColumnIndex::from).collect();
    let mut random = Random(77);
    let (block, sections) = &table.blocks[0];
    let segment_rows = block.segment_rows(0) as u64;
    let mut reader = block.open_segment(sections, 0);
    let mut report = ScanReport::default();
    const ROWS: u32 = 1000;
    measure(|| {
        for _ in 0..ROWS {
            if lookup_reader == LookupReader::New {
                reader = block.open_segment(sections, 0);
            }
            let selection = Selection::Positions(vec![random.below(segment_rows) as u32]);
            std::hint::black_box(reader.project(&selection, 0..1, &all, &mut report).unwrap());
        }
    }) / ROWS
}

fn range(column: u32, low: i128, high: i128) -> ColumnPredicate {
    ColumnPredicate::new(ColumnIndex(column), DatumPredicate::Range { low, high })
}

fn main() {
    let arguments = arguments();
    let rows = arguments.first().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let batches = batches(rows);
    let designs = [
        ("column", Layout::Column, Compression::Auto),
        ("packed_row", Layout::PackedRow, Compression::Auto),
        ("packed_row, none", Layout::PackedRow, Compression::None),
        ("row", Layout::Row, Compression::Auto),
    ];
    println!("{rows} rows of 16 columns");
    let wanted = arguments.get(1).map_or("", String::as_str);
    for (name, layout, compression) in designs.into_iter().filter(|(name, ..)| name.starts_with(wanted)) {
        let design = Arc::new(TableDesign { layout, compression, ..TableDesign::default() });
        let (table, time, bytes) = build(&design, &batches);
        let per_row = |time: Duration| time.as_secs_f64() * 1e9 / table.rows as f64;
        println!(
            "\n{name}: {:.1} bytes a row, built at {:.2} M rows/s",
            bytes as f64 / rows as f64,
            1e3 / per_row(time)
        );
        let print = |what: &str, predicate: &Predicate, columns: &[u32]| {
            let columns: Vec<ColumnIndex> = columns.iter().copied().map(ColumnIndex).collect();
            let (time, selected) = scan(&table, predicate, &columns);
            println!("  {what:<44} {:>7.2} ns a row, {selected} rows selected", per_row(time));
        };
        let conjuncts = |column_predicates| Predicate { column_predicates, row_predicates: vec![] };
        let all = Predicate::default();
        print("scan bigint partkey", &all, &[1]);
        print("scan decimal extendedprice", &all, &[5]);
        print("scan date shipdate", &all, &[10]);
        print("scan text shipmode", &all, &[14]);
        print("scan text comment", &all, &[15]);
        print("scan all 16 columns", &all, &(0..16).collect::<Vec<_>>());
        print("count where partkey in 1 % range", &conjuncts(vec![range(1, 1000, 3000)]), &[]);
        print("count where shipdate in half range", &conjuncts(vec![range(10, 8036, 9300)]), &[]);
        let mail: Box<[u8]> = b"MAIL".as_slice().into();
        let mode = DatumPredicate::BytesOneOf(vec![mail].into());
        print("count where shipmode = 'MAIL'", &conjuncts(vec![ColumnPredicate::new(ColumnIndex(14), mode)]), &[]);
        let year = vec![range(10, 8766, 9130), range(6, 5, 7), range(4, 0, 2399)];
        print("Q6: three tests, two columns of 2 %", &conjuncts(year), &[5, 6]);
        print(
            "all columns where partkey in 1 % range",
            &conjuncts(vec![range(1, 1000, 3000)]),
            &(0..16).collect::<Vec<_>>(),
        );
        println!(
            "  whole row by position                        {:>7.2} us",
            gather(&table, LookupReader::Shared).as_secs_f64() * 1e6
        );
        println!(
            "  whole row by position, new reader            {:>7.2} us",
            gather(&table, LookupReader::New).as_secs_f64() * 1e6
        );
    }
}
