//! Measures a predicate that few rows pass, on segments of packed numbers that are not in a CPU cache. Prints the times
//! of three methods as a Markdown table: a scan, extremes, and reading the rows that passed other predicates one by
//! one. The cutoffs between these methods come from this benchmark.
//!
//! `cargo bench -p taut-encoding --bench few_rows`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_encoding::{Bitmap, CHUNK_ROWS_MAX, Choice, Chunk, Extreme, encode};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, Encoding, LogicalType};

const ROWS: usize = CHUNK_ROWS_MAX;
/// Number of segments. Together they are larger than the caches, and they are read one after the other.
const SEGMENTS: usize = 700;

fn random_chunk(bits: usize, random: &mut StdRng) -> Chunk {
    let numbers: Int64Array = (0..ROWS).map(|_| Some((random.random::<u64>() >> (64 - bits)) as i64)).collect();
    let array: ArrayRef = Arc::new(numbers);
    let bytes = encode(&array, LogicalType::BigInt, Choice::Forced(Encoding::FrameOfReference)).unwrap();
    Chunk::parse(bytes.into(), LogicalType::BigInt, ROWS).unwrap()
}

/// Median time of `work` on a segment, in microseconds.
fn median_microseconds<T>(segments: &[T], mut work: impl FnMut(&T)) -> f64 {
    let mut times: Vec<f64> = segments
        .iter()
        .map(|segment| {
            let start = Instant::now();
            work(segment);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut random = StdRng::seed_from_u64(5);
    for bits in [20, 27, 40] {
        let chunks: Vec<Chunk> = (0..SEGMENTS).map(|_| random_chunk(bits, &mut random)).collect();
        let build_time = median_microseconds(&chunks, |chunk| drop(black_box(chunk.extremes(Extreme::Greatest))));
        let segments: Vec<_> =
            chunks.into_iter().map(|chunk| (chunk.extremes(Extreme::Greatest).unwrap(), chunk)).collect();
        println!("\n{bits} bits: extremes are made in {build_time:.1} µs a segment\n");
        println!("| one row of | rows read | scan, µs | by extremes, µs | selected rows one by one, µs |");
        println!("|--:|--:|--:|--:|--:|");
        for share in [10_000, 3000, 1000, 500, 300, 250, 200, 100, 60, 40, 30, 20, 10] {
            let low = (1_i128 << bits) - (1 << bits) / share;
            let predicate = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low, high: i128::MAX });
            let upper_half =
                ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 1 << (bits - 1), high: i128::MAX });
            let mut selected_rows = Bitmap::none(ROWS);
            (0..ROWS).filter(|_| random.random_range(0..share) == 0).for_each(|row| selected_rows.set(row));
            let selected_count = selected_rows.count();
            let scan = median_microseconds(&segments, |(_, chunk)| {
                let mut selection = Bitmap::all_set(ROWS);
                chunk.filter(&predicate, 0..ROWS, &mut selection);
                black_box(&selection);
            });
            let mut rows_read = None;
            let by_extremes = median_microseconds(&segments, |(extremes, chunk)| {
                let found = chunk.find_by_extremes(&predicate, (Extreme::Greatest, extremes), 0..ROWS);
                rows_read = black_box(&found).as_ref().map(|(_, rows_read)| *rows_read);
            });
            let one_by_one = median_microseconds(&segments, |(_, chunk)| {
                let mut selection = selected_rows.clone();
                assert!(chunk.filter_selected(&upper_half, selected_count, &mut selection));
                black_box(&selection);
            });
            let rows_read =
                rows_read.map_or("–".to_owned(), |rows| format!("{:.1} %", rows as f64 / ROWS as f64 * 100.0));
            println!("| {share} | {rows_read} | {scan:.1} | {by_extremes:.1} | {one_by_one:.1} |");
        }
    }
}
