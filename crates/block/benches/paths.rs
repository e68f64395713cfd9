//! Cost of a filter by a scan and by a CSB+-tree index, in every layout. The costs in `src/segment/index_choice.rs` and
//! `src/segment/scan_cost.rs` come from here.
//!
//! ```text
//! cargo bench -p taut-block --bench paths
//! ```
//!
//! One segment of 65,536 rows of ten integer columns and one of text, as in Chasseur and Patel (2013), section 3.1
//! (narrow_u). The filters are a range on an unsorted column, for a growing share of rows, and lists of values.
//! Prints medians in microseconds per segment. Both paths are measured alternately, on more copies of the segment
//! than fit the cache.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use taut_block::{Block, BlockBuilder, ScanReport, SegmentReader};
use taut_types::{
    Column, ColumnIndex, ColumnPredicate, DatumPredicate, IndexDesign, IndexKind, Layout, LogicalType, Predicate,
    Schema, TableDesign,
};

const ROWS: usize = 65_536;
const COLUMNS: usize = 10;
const DOMAIN: u64 = 100_000_000;
const REPETITIONS: usize = 201;
const COPIES: usize = 101;

fn table() -> (Arc<Schema>, RecordBatch) {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % DOMAIN
    };
    let mut columns: Vec<Column> =
        (0..COLUMNS).map(|column| Column::new(format!("c{column}"), LogicalType::Integer, false)).collect();
    columns.push(Column::new("text", LogicalType::Varchar, false));
    let schema = Arc::new(Schema::new(columns).unwrap());
    let mut arrays: Vec<ArrayRef> =
        (0..COLUMNS).map(|_| Arc::new((0..ROWS).map(|_| next() as i32).collect::<Int32Array>()) as ArrayRef).collect();
    arrays.push(Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|_| format!("{:08} and more", next())))));
    let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
    (schema, batch)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let (schema, batch) = table();
    println!("| layout | test | rows found | scan µs | index µs | chosen |\n|---|---|--:|--:|--:|---|");
    for layout in [Layout::Column, Layout::PackedRow, Layout::Row] {
        let index = |name: &str, column: usize| IndexDesign {
            name: name.to_owned(),
            kind: IndexKind::CsbTree,
            columns: vec![ColumnIndex::from(column)],
        };
        let indexes = vec![index("number", 4), index("text", COLUMNS)];
        let design = Arc::new(TableDesign { layout, indexes, ..TableDesign::default() });
        let mut builder = BlockBuilder::new(schema.clone(), design.clone());
        builder.push(&batch).unwrap();
        let image = builder.finish().unwrap();
        let block = Block::parse(image.header.into()).unwrap();
        let copy = |_| image.sections.iter().map(|section| Buffer::from(section.as_slice())).collect();
        let copies: Vec<Vec<Buffer>> = (0..COPIES).map(copy).collect();
        let mut conjuncts: Vec<(String, usize, DatumPredicate)> = vec![];
        for share in [0.00002, 0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5] {
            let bound = (DOMAIN as f64 * share) as u64;
            let number = DatumPredicate::Range { low: i128::MIN, high: bound.into() };
            let high = std::ops::Bound::Included(format!("{bound:08}").into_bytes().into());
            let text = DatumPredicate::BytesRange { low: std::ops::Bound::Unbounded, high };
            conjuncts.extend([("number".to_owned(), 4, number), ("text".to_owned(), COLUMNS, text)]);
        }
        for count in [1, 5, 20, 50, 100, 200, 500, 1000, 2000] {
            let list: Arc<[i128]> = (0..count).map(|number| number * (DOMAIN as i128 / count) + 7).collect();
            conjuncts.push((format!("{count} of a list"), 4, DatumPredicate::OneOf(list)));
        }
        for (name, column, conjunct) in conjuncts {
            let conjunct = ColumnPredicate::new(ColumnIndex::from(column), conjunct);
            let predicate = Predicate { column_predicates: vec![conjunct], row_predicates: vec![] };
            let mut times = [vec![], vec![]];
            let mut rows_found = 0;
            for repetition in 0..REPETITIONS {
                let access_paths = [SegmentReader::ignore_indexes, SegmentReader::always_use_indexes];
                for (ordinal, (force_path, times)) in access_paths.into_iter().zip(&mut times).enumerate() {
                    // The two paths read different copies, so that neither profits from data that the other has
                    // cached.
                    let sections = &copies[(2 * repetition + ordinal * COPIES / 2) % COPIES];
                    let start = Instant::now();
                    let mut reader = block.open_segment(sections, 0);
                    force_path(&mut reader);
                    rows_found = reader.filter(&predicate, &mut ScanReport::default()).unwrap().len();
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            let mut report = ScanReport::default();
            block.open_segment(&copies[0], 0).filter(&predicate, &mut report).unwrap();
            let chosen = if report.index_searches > 0 { "index" } else { "scan" };
            let (scan, index) = (median(&mut times[0]), median(&mut times[1]));
            println!("| {} | {name} | {rows_found} | {scan:.1} | {index:.1} | {chosen} |", design.layout.name());
        }
    }
}
