//! Prints how fast columns are encoded, decoded, gathered and filtered: millions of values per second on one
//! thread, on segments of 65,536 rows, and bytes per value.
//!
//! `cargo bench -p taut-encoding --bench throughput -- [part of a name]`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, StringViewArray,
};
use arrow_buffer::MutableBuffer;
use taut_encoding::{Bitmap, Choice, Chunk, encode};
use taut_testkit::{Random, arguments, thread_time};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, Encoding, LogicalType, datum_at};

const ROWS: usize = 65_536;
/// Minimum CPU time of each measurement, in seconds.
const SECONDS_MIN: f64 = 0.1;
/// How often the work is repeated before the clock is read. Reading the clock takes about a microsecond.
const REPEATS_PER_CLOCK_READ: usize = 8;

/// A column and how it is encoded.
struct Case {
    name: &'static str,
    logical: LogicalType,
    array: ArrayRef,
    choice: Choice,
}

/// Random number of a row, the same in every execution of the benchmark.
fn random(row: usize) -> u64 {
    Random(row as u64).number()
}

fn cases() -> Vec<Case> {
    let decimal = LogicalType::Decimal { precision: 15, scale: 2 };
    let i64s =
        |value: &dyn Fn(usize) -> i64| Arc::new((0..ROWS).map(value).map(Some).collect::<Int64Array>()) as ArrayRef;
    let i32s =
        |value: &dyn Fn(usize) -> i32| Arc::new((0..ROWS).map(value).map(Some).collect::<Int32Array>()) as ArrayRef;
    let doubles =
        |value: &dyn Fn(usize) -> f64| Arc::new((0..ROWS).map(value).map(Some).collect::<Float64Array>()) as ArrayRef;
    let texts =
        |value: &dyn Fn(usize) -> String| Arc::new(StringViewArray::from_iter_values((0..ROWS).map(value))) as ArrayRef;
    let decimals = |value: &dyn Fn(usize) -> i128| {
        let array = (0..ROWS).map(value).map(Some).collect::<Decimal128Array>();
        Arc::new(array.with_precision_and_scale(15, 2).unwrap()) as ArrayRef
    };
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    let instructions = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"];
    let words =
        ["carefully", "final", "deposits", "sleep", "furiously", "above", "the", "ironic", "requests", "quickly"];
    let comment = |row: usize| {
        (0..3 + random(row) % 4)
            .map(|word| words[random(row * 8 + word as usize) as usize % 10])
            .collect::<Vec<_>>()
            .join(" ")
    };
    // Ascending numbers: noisy timestamps, ascending numbers with about half of them missing, and the keys of TPC-H.
    let noise = |row: usize| row as i64 * 1_000_000 + (random(row) % 1000) as i64;
    let seconds: Vec<i64> = (0..).filter(|number| random(*number as usize) & 1 != 0).take(ROWS).collect();
    let second = |row: usize| seconds[row];
    let order_keys: Vec<i64> = (0..ROWS as i64)
        .flat_map(|order| std::iter::repeat_n(order / 8 * 32 + order % 8, 1 + random(order as usize) as usize % 7))
        .take(ROWS)
        .collect();
    // A hundredth of the numbers are far above the others.
    let outliers = |row: usize| (random(row) % 1000 + if row % 100 == 7 { random(row) >> 30 } else { 0 }) as i64;
    // Each number occurs about as often as all greater numbers together: about two in five are 1, and about one in a
    // thousand is above 600.
    let skewed = |row: usize| ((u64::MAX / (random(row) | 1)).min(100_000_000)) as i64;
    let price = |row: usize| (random(row) % 100_000) as f64 / 100.0;
    let fraction = |row: usize| (random(row) >> 11) as f64 / (1_u64 << 53) as f64;
    let url = |row: usize| format!("https://example.org/category/{:03}/item/{:08}", row / 500, row * 37);
    let path = |row: usize| format!("/usr/share/doc/package-{}/{:x}.txt", row / 90, random(row) as u32);
    let case = |name, logical, array, choice| Case { name, logical, array, choice };
    let forced = Choice::Forced;
    vec![
        case("i32 width 20", LogicalType::Integer, i32s(&|row| (random(row) % 1_000_000) as i32), Choice::Auto),
        case("i64 width 20", LogicalType::BigInt, i64s(&|row| (random(row) % 1_000_000) as i64), Choice::Auto),
        case("i64 width 40", LogicalType::BigInt, i64s(&|row| (random(row) >> 24) as i64 - 5), Choice::Auto),
        case("i64 width 6", LogicalType::BigInt, i64s(&|row| (random(row) % 50) as i64), Choice::Auto),
        case("i64 orderkey", LogicalType::BigInt, i64s(&|row| (row / 4 + 1_000_000) as i64), Choice::Auto),
        case(
            "i64 orderkey run_length",
            LogicalType::BigInt,
            i64s(&|row| (row / 4) as i64),
            forced(Encoding::RunLength),
        ),
        case("i64 runs of 50", LogicalType::BigInt, i64s(&|row| random(row / 50) as i64 >> 30), Choice::Auto),
        case("i64 few far apart", LogicalType::BigInt, i64s(&|row| random(row % 77) as i64), Choice::Auto),
        case("i64 plain", LogicalType::BigInt, i64s(&|row| random(row) as i64), Choice::Plain),
        case("i64 constant", LogicalType::BigInt, i64s(&|_| 5), Choice::Auto),
        case(
            "date",
            LogicalType::Date,
            Arc::new((0..ROWS).map(|row| Some(8000 + (random(row) % 2526) as i32)).collect::<Date32Array>()),
            Choice::Auto,
        ),
        case("outliers auto", LogicalType::BigInt, i64s(&outliers), Choice::Auto),
        case("outliers unpatched", LogicalType::BigInt, i64s(&outliers), forced(Encoding::FrameOfReference)),
        case("outliers plain", LogicalType::BigInt, i64s(&outliers), Choice::Plain),
        case("outliers i32 auto", LogicalType::Integer, i32s(&|row| outliers(row) as i32 / 64), Choice::Auto),
        case("skewed i32 auto", LogicalType::Integer, i32s(&|row| skewed(row) as i32), Choice::Auto),
        case("skewed i32 packed", LogicalType::Integer, i32s(&|row| skewed(row) as i32), forced(Encoding::BitPacked)),
        case(
            "skewed i32 dictionary",
            LogicalType::Integer,
            i32s(&|row| skewed(row) as i32),
            forced(Encoding::Dictionary),
        ),
        case("skewed i64 auto", LogicalType::BigInt, i64s(&skewed), Choice::Auto),
        case("skewed i64 packed", LogicalType::BigInt, i64s(&skewed), forced(Encoding::BitPacked)),
        case("double price auto", LogicalType::Double, doubles(&price), Choice::Auto),
        case("double price packed", LogicalType::Double, doubles(&price), forced(Encoding::FrameOfReference)),
        case("double price plain", LogicalType::Double, doubles(&price), Choice::Plain),
        case("double fraction auto", LogicalType::Double, doubles(&fraction), Choice::Auto),
        case("double fraction patched", LogicalType::Double, doubles(&fraction), forced(Encoding::Patched)),
        case(
            "real price auto",
            LogicalType::Real,
            Arc::new((0..ROWS).map(|row| Some(price(row) as f32)).collect::<Float32Array>()),
            Choice::Auto,
        ),
        case("ordered: ascending noise", LogicalType::BigInt, i64s(&noise), Choice::Auto),
        case("ordered: ascending noise", LogicalType::BigInt, i64s(&noise), forced(Encoding::FrameOfReference)),
        case("ordered: ascending noise", LogicalType::BigInt, i64s(&noise), forced(Encoding::Delta)),
        case("ordered: serial", LogicalType::BigInt, i64s(&|row| row as i64 + 5_000_000), Choice::Auto),
        case("ordered: serial", LogicalType::BigInt, i64s(&|row| row as i64), forced(Encoding::Delta)),
        case("ordered: serial", LogicalType::BigInt, i64s(&|row| row as i64), forced(Encoding::Bitmap)),
        case("ordered: serial", LogicalType::BigInt, i64s(&|row| row as i64), forced(Encoding::TwoByteDelta)),
        case("ordered: i32 serial", LogicalType::Integer, i32s(&|row| row as i32 * 3), Choice::Auto),
        case("ordered: i32 serial", LogicalType::Integer, i32s(&|row| row as i32 * 3), forced(Encoding::Delta)),
        case("ordered: every second", LogicalType::BigInt, i64s(&second), Choice::Auto),
        case("ordered: every second", LogicalType::BigInt, i64s(&second), forced(Encoding::FrameOfReference)),
        case("ordered: every second", LogicalType::BigInt, i64s(&second), forced(Encoding::Delta)),
        case("ordered: every second", LogicalType::BigInt, i64s(&second), forced(Encoding::Bitmap)),
        case("ordered: l_orderkey", LogicalType::BigInt, i64s(&|row| order_keys[row]), Choice::Auto),
        case(
            "ordered: l_orderkey",
            LogicalType::BigInt,
            i64s(&|row| order_keys[row]),
            forced(Encoding::FrameOfReference),
        ),
        case("ordered: l_orderkey", LogicalType::BigInt, i64s(&|row| order_keys[row]), forced(Encoding::Delta)),
        case("ordered: l_orderkey", LogicalType::BigInt, i64s(&|row| order_keys[row]), forced(Encoding::RunLength)),
        case(
            "ordered: l_orderkey",
            LogicalType::BigInt,
            i64s(&|row| order_keys[row]),
            forced(Encoding::RunLengthDelta),
        ),
        case("ordered: l_linenumber", LogicalType::Integer, i32s(&|row| row as i32 % 4), Choice::Auto),
        case("ordered: width 16", LogicalType::BigInt, i64s(&|row| (random(row) >> 48) as i64 - 9), Choice::Auto),
        case(
            "ordered: width 16",
            LogicalType::BigInt,
            i64s(&|row| (random(row) >> 48) as i64 - 9),
            forced(Encoding::FrameOfReference),
        ),
        case(
            "ordered: width 16",
            LogicalType::BigInt,
            i64s(&|row| (random(row) >> 48) as i64 - 9),
            forced(Encoding::TwoByteDelta),
        ),
        case(
            "ordered: i32 width 16",
            LogicalType::Integer,
            i32s(&|row| (random(row) >> 48) as i32 - 9),
            forced(Encoding::FrameOfReference),
        ),
        case(
            "ordered: i32 width 16",
            LogicalType::Integer,
            i32s(&|row| (random(row) >> 48) as i32 - 9),
            forced(Encoding::TwoByteDelta),
        ),
        case(
            "ordered: runs of 20",
            LogicalType::BigInt,
            i64s(&|row| random(row / 20) as i64 >> 38),
            forced(Encoding::RunLength),
        ),
        case(
            "ordered: runs of 20",
            LogicalType::Integer,
            i32s(&|row| random(row / 20) as i32 >> 8),
            forced(Encoding::RunLength),
        ),
        case("ordered: decimal steps", decimal, decimals(&|row| noise(row).into()), Choice::Auto),
        case("decimal price", decimal, decimals(&|row| 90_000 + (random(row) % 10_000_000) as i128), Choice::Auto),
        case("decimal discount", decimal, decimals(&|row| (random(row) % 11) as i128), Choice::Auto),
        case("decimal plain", decimal, decimals(&|row| (random(row) % 10_000_000) as i128), Choice::Plain),
        case(
            "text ship mode",
            LogicalType::Varchar,
            texts(&|row| modes[random(row) as usize % 7].into()),
            Choice::Auto,
        ),
        case(
            "text instruction",
            LogicalType::Varchar,
            texts(&|row| instructions[random(row) as usize % 4].into()),
            Choice::Auto,
        ),
        case(
            "text 10,000 names",
            LogicalType::Varchar,
            texts(&|row| format!("Customer#{:09}", random(row) % 10_000)),
            Choice::Auto,
        ),
        case("text comment auto", LogicalType::Varchar, texts(&comment), Choice::Auto),
        case("text comment plain", LogicalType::Varchar, texts(&comment), Choice::Plain),
        case("text comment fsst", LogicalType::Varchar, texts(&comment), forced(Encoding::Fsst)),
        case("url auto", LogicalType::Varchar, texts(&url), Choice::Auto),
        case("url fsst", LogicalType::Varchar, texts(&url), forced(Encoding::Fsst)),
        case("url plain", LogicalType::Varchar, texts(&url), Choice::Plain),
        case("path auto", LogicalType::Varchar, texts(&path), Choice::Auto),
        case("path front_coded", LogicalType::Varchar, texts(&path), forced(Encoding::FrontCoded)),
        case("path plain", LogicalType::Varchar, texts(&path), Choice::Plain),
        case(
            "text short plain",
            LogicalType::Varchar,
            texts(&|row| format!("{:x}", random(row) as u32)),
            Choice::Plain,
        ),
    ]
}

/// Millions of rows per second of work that handles `rows` rows.
fn measure(rows: usize, mut work: impl FnMut()) -> f64 {
    let origin = Instant::now();
    work();
    let (start, mut repeats) = (thread_time(origin).as_secs_f64(), 0);
    loop {
        (0..REPEATS_PER_CLOCK_READ).for_each(|_| work());
        repeats += REPEATS_PER_CLOCK_READ;
        let elapsed = thread_time(origin).as_secs_f64() - start;
        if elapsed > SECONDS_MIN {
            return (rows * repeats) as f64 / elapsed / 1e6;
        }
    }
}

/// Range predicate that about `percent` percent of the rows pass.
fn predicate_for(case: &Case, percent: usize) -> ColumnPredicate {
    let mut keys: Vec<Datum> =
        (0..ROWS).step_by(97).filter_map(|row| datum_at(&case.array, case.logical, row)).collect();
    keys.sort_unstable();
    let (low, high) = (&keys[keys.len() / 2], &keys[keys.len() * (50 + percent) / 100]);
    let predicate = match (low, high) {
        (Datum::Number(low), Datum::Number(high)) => DatumPredicate::Range { low: *low, high: *high },
        (Datum::Bytes(low), Datum::Bytes(high)) => DatumPredicate::BytesRange {
            low: std::ops::Bound::Included(low.clone()),
            high: std::ops::Bound::Included(high.clone()),
        },
        _ => DatumPredicate::Null,
    };
    ColumnPredicate::new(ColumnIndex(0), predicate)
}

fn main() {
    taut_allocator::set_up();
    let name_filter = arguments().into_iter().next().unwrap_or_default();
    println!(
        "{:<24} {:<44} {:>7} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8}",
        "column", "encoding", "B/value", "encode", "parse us", "decode", "decode8k", "gather1%", "filter1%", "filter"
    );
    for case in cases().into_iter().filter(|case| case.name.contains(&name_filter)) {
        let bytes = encode(&case.array, case.logical, case.choice).unwrap();
        let bytes_per_value = bytes.len() as f64 / ROWS as f64;
        let encode_rate = measure(ROWS, || drop(black_box(encode(&case.array, case.logical, case.choice))));
        let mut aligned = MutableBuffer::with_capacity(bytes.len());
        aligned.extend_from_slice(&bytes);
        let buffer: arrow_buffer::Buffer = aligned.into();
        let chunk = Chunk::parse(buffer.clone(), case.logical, ROWS).unwrap();
        let parse_microseconds = 1.0 / measure(1, || drop(black_box(Chunk::parse(buffer.clone(), case.logical, ROWS))));
        let decode_rate = measure(ROWS, || drop(black_box(chunk.decode(0..ROWS))));
        let batch_rate =
            measure(ROWS, || (0..8).for_each(|part| drop(black_box(chunk.decode(part * 8192..part * 8192 + 8192)))));
        let positions: Vec<u32> =
            (0..ROWS as u32).filter(|row| random(*row as usize + 7).is_multiple_of(100)).collect();
        let gather_rate = measure(positions.len(), || drop(black_box(chunk.gather(&positions))));
        let [filter_1_rate, filter_10_rate] = [1, 10].map(|percent| {
            let predicate = predicate_for(&case, percent);
            measure(ROWS, || {
                let mut selection = Bitmap::all_set(ROWS);
                chunk.filter(&predicate, 0..ROWS, &mut selection);
                black_box(&selection);
            })
        });
        println!(
            "{:<24} {:<44} {bytes_per_value:>7.2} {encode_rate:>8.0} {parse_microseconds:>8.2} {decode_rate:>8.0} {batch_rate:>9.0} {gather_rate:>9.0} {filter_1_rate:>9.0} {filter_10_rate:>8.0}",
            case.name,
            chunk.description()
        );
    }
}
