//! Encodes columns, prints the encoding that was chosen for each, and reads them back.
//!
//! `cargo run -p taut-encoding --example choose_encoding`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, Float64Array, Int64Array, StringViewArray};
use taut_encoding::{Bitmap, Choice, Chunk, encode};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, LogicalType};

const ROWS: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let modes = ["AIR", "MAIL", "RAIL", "SHIP", "TRUCK"];
    let hash = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let ids = Int64Array::from_iter_values((0..ROWS).map(|row| 1_000_000 + 4 * row as i64));
    let days = Date32Array::from_iter_values((0..ROWS).map(|row| 9_000 + row as i32 / 100));
    let prices = Float64Array::from_iter_values((0..ROWS).map(|row| (hash(row) % 100_000) as f64 / 100.0));
    let texts = StringViewArray::from_iter_values((0..ROWS).map(|row| modes[hash(row) as usize % modes.len()]));
    let columns: [(&str, LogicalType, ArrayRef); 4] = [
        ("ascending ids", LogicalType::BigInt, Arc::new(ids)),
        ("sorted days", LogicalType::Date, Arc::new(days)),
        ("prices", LogicalType::Double, Arc::new(prices)),
        ("ship modes", LogicalType::Varchar, Arc::new(texts)),
    ];
    for (name, logical, array) in columns {
        let bytes = encode(&array, logical, Choice::Auto)?;
        let bits = 8.0 * bytes.len() as f64 / ROWS as f64;
        let chunk = Chunk::parse(bytes.into(), logical, ROWS)?;
        assert_eq!(&chunk.decode(0..ROWS), &array);
        println!("{name:<14} {bits:>5.2} bits a value, {}", chunk.description());
        if logical == LogicalType::Date {
            // A filter works on the encoded bytes.
            let week = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 9_010, high: 9_016 });
            let mut selection = Bitmap::all_set(ROWS);
            chunk.filter(&week, 0..ROWS, &mut selection);
            let rows = selection.positions();
            println!("{:<14} {} rows in a week, from row {}", "", rows.len(), rows[0]);
        }
    }
    Ok(())
}
