//! Finds the rows with a given number among 65,536 rows by each kind of index: a Bloom filter, a CSB+-tree and a zone
//! map.
//!
//! `cargo run -p taut-index --example access_paths`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use arrow_buffer::Buffer;
use taut_index::{Bloom, CsbTree, RowRanges, Zone, ZoneMap, bloom_hash};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate};

const ROWS: u32 = 65_536;
const ZONE_ROWS: u32 = 1_024;

fn main() -> Result<(), Box<dyn Error>> {
    // Each number occurs in sixteen consecutive rows. Odd numbers do not occur.
    let numbers: Vec<u64> = (0..u64::from(ROWS)).map(|row| row / 16 * 2).collect();

    let datum = |number: u64| Datum::Number(number.into());
    let hashes: Vec<u64> = numbers.iter().map(|number| bloom_hash(&datum(*number))).collect();
    let bytes: Buffer = Bloom::build(&hashes).into();
    let bloom = Bloom::parse(&bytes)?;
    let may_occur = |number| bloom.may_contain(bloom_hash(&datum(number)));
    println!("filter of {} bytes: 4000 {}, 4001 {}", bytes.len(), may_occur(4_000), may_occur(4_001));

    let bytes: Buffer = CsbTree::build(&numbers).into();
    let tree = CsbTree::parse(&bytes, ROWS as usize)?;
    for positions in tree.search(&[(4_000, 4_000), (4_001, 4_001)]) {
        println!("tree of {} bytes: rows {:?}", bytes.len(), tree.rows_at(&positions));
    }

    let zone = |rows: &[u64], rows_end| Zone {
        rows_end,
        nulls: 0,
        bounds: rows.first().zip(rows.last()).map(|(least, greatest)| (datum(*least), Some(datum(*greatest)))),
        is_ascending: true,
    };
    let zones = numbers.chunks(ZONE_ROWS as usize).zip(1..).map(|(rows, end)| zone(rows, end * ZONE_ROWS));
    let zones = ZoneMap::new(zones.collect());
    let predicate = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low: 4_000, high: 4_001 });
    let mut candidates = RowRanges::full(ROWS);
    zones.prune(&predicate, &mut candidates);
    println!("{} zones: rows {:?}", zones.zones().len(), candidates.iter().collect::<Vec<_>>());
    Ok(())
}
