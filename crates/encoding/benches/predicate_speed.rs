//! Measures the speed of one predicate on one thread, for each instruction set, and prints it as Markdown tables.
//! Columns in cache are grouped by the width of their numbers. Larger columns are compared with the speed at which this
//! machine reads memory.
//!
//! `cargo bench -p taut-encoding --bench predicate_speed`, or `make bench-kernels`, which writes the tables to a file
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array};
use arrow_buffer::{Buffer, MutableBuffer};
use taut_encoding::{Bitmap, Choice, Chunk, InstructionSet, encode};
use taut_testkit::{Random, arguments};
use taut_types::{ColumnIndex, ColumnPredicate, DatumPredicate, Encoding, LogicalType};

const ROWS: usize = 65_536;
/// Number of turns. In each turn, every competitor is timed once.
const TURNS: usize = 9;
/// Approximate time of one competitor in a turn, in seconds, for columns in cache.
const TURN_SECONDS: f64 = 0.002;
/// Size in bytes of a column that is too large for the cache.
const LARGE_COLUMN_BYTES: usize = 380 << 20;
/// Bytes of a large column that a competitor reads in a turn. Turns are short, so that other programs disturb only some
/// of them.
const SLICE_BYTES: usize = 4 << 20;

/// Random number of a row, the same in every execution of the benchmark.
fn random(row: usize) -> u64 {
    Random(row as u64).number()
}

fn i64s(value: impl Fn(usize) -> i64) -> ArrayRef {
    Arc::new((0..ROWS).map(value).map(Some).collect::<Int64Array>())
}

/// Random numbers of at most `width` bits. At least one has exactly `width` bits.
fn numbers_of_width(width: usize) -> ArrayRef {
    i64s(|row| if row == 7 { (1 << (width - 1)) | 1 } else { (random(row) >> (64 - width)) as i64 })
}

fn aligned(bytes: &[u8]) -> Buffer {
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    buffer.into()
}

fn chunk_of(array: &ArrayRef, logical: LogicalType, choice: Choice) -> Chunk {
    Chunk::parse(aligned(&encode(array, logical, choice).unwrap()), logical, ROWS).unwrap()
}

fn range(low: i128, high: i128) -> DatumPredicate {
    DatumPredicate::Range { low, high }
}

/// A range that holds about a tenth of the numbers of `width` bits.
fn range_of_a_tenth(width: usize) -> DatumPredicate {
    let numbers = 1_i128 << width;
    range(numbers / 2, numbers / 2 + numbers / 10)
}

fn select(chunk: &Chunk, predicate: &ColumnPredicate, selection: &mut Bitmap) {
    chunk.select_passing(predicate, selection);
    black_box(selection.words());
}

/// The times of one competitor.
struct Times {
    /// The 5th percentile, in seconds.
    best: f64,
    /// Excess of the median over `best`, as a fraction of `best`.
    spread: f64,
}

/// Times every competitor once in each turn. `time` returns the seconds of the competitor with this index.
fn time_in_turns(turns: usize, competitors: usize, mut time: impl FnMut(usize) -> f64) -> Vec<Times> {
    let mut times = vec![vec![]; competitors];
    for _ in 0..turns {
        (0..competitors).for_each(|competitor| times[competitor].push(time(competitor)));
    }
    let sorted = times.into_iter().map(|mut times| {
        times.sort_by(f64::total_cmp);
        let best = times[times.len() / 20];
        Times { best, spread: times[times.len() / 2] / best - 1.0 }
    });
    sorted.collect()
}

/// The mean time of an execution of `work` over a turn, in seconds.
fn mean_seconds(mut work: impl FnMut()) -> f64 {
    work();
    let (start, mut count) = (Instant::now(), 0);
    loop {
        (0..8).for_each(|_| work());
        count += 8;
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed > TURN_SECONDS {
            return elapsed / f64::from(count);
        }
    }
}

/// The instruction sets that this machine has.
fn available_sets() -> Vec<InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| *set <= InstructionSet::best()).collect()
}

/// Prints a line with the billions of values per second for each instruction set, and the gain of the last set over the
/// second to last.
fn print_sets(name: &str, values: usize, work: impl FnMut()) {
    print_supported_sets(|| true, name, values, work);
}

/// Like [`print_sets`], but skips the instruction sets for which `is_supported` returns false.
fn print_supported_sets(mut is_supported: impl FnMut() -> bool, name: &str, values: usize, mut work: impl FnMut()) {
    let sets = available_sets();
    let are_supported: Vec<_> = sets.iter().map(|set| (set.use_at_most(), is_supported()).1).collect();
    let times = time_in_turns(TURNS, sets.len(), |set| {
        sets[set].use_at_most();
        if are_supported[set] { mean_seconds(&mut work) } else { f64::NAN }
    });
    let number = |number: f64, digits| if number.is_nan() { "–".to_owned() } else { format!("{number:.digits$}") };
    let rate = |times: &Times| format!(" {} |", number(values as f64 / times.best / 1e9, 2));
    let rates = times.iter().map(rate).collect::<String>();
    let last = &times[times.len() - 1];
    let gain = number(times[times.len().saturating_sub(2)].best / last.best, 1);
    println!("| {name} |{rates} {gain} | {} % |", number(100.0 * last.spread, 0));
}

fn print_head(what: &str, values: &str) {
    println!("\n{what} In billions of {values} per second.\n");
    let names = available_sets().iter().map(|set| format!(" {set:?} |")).collect::<String>();
    let (second_best, best) = (second_best_set(), InstructionSet::best());
    println!("| column |{names} {best:?} / {second_best:?} | median above best |");
    println!("|---|{}--:|--:|", available_sets().iter().map(|_| "--:|").collect::<String>());
}

fn in_cache() {
    print_head("## One range test, bit-packed, in cache\n\nA column of 65,536 rows; a tenth of them pass.", "values");
    let mut selection = Bitmap::all_set(ROWS);
    for width in (1..=32).chain([33, 40, 48, 56, 63]) {
        let chunk = chunk_of(&numbers_of_width(width), LogicalType::BigInt, Choice::Forced(Encoding::BitPacked));
        let predicate = ColumnPredicate::new(ColumnIndex(0), range_of_a_tenth(width));
        print_sets(&format!("width {width}"), ROWS, || select(&chunk, &predicate, &mut selection));
    }
}

/// Columns of other encodings: the name of a case, its column and its predicate.
fn other_cases() -> Vec<(&'static str, Chunk, DatumPredicate)> {
    let list = |numbers: &[i128]| DatumPredicate::OneOf(Arc::from(numbers));
    let far: Vec<i128> = (0..20).map(|number| number * 5_000).collect();
    let near: Vec<i128> = (0..20).map(|number| number * 7).collect();
    let integers: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as i32)).collect::<Int32Array>());
    let floats: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as f64)).collect::<Float64Array>());
    let key = |float: f64| i128::from(float.to_bits());
    let (big, packed) = (LogicalType::BigInt, Choice::Forced(Encoding::BitPacked));
    let width = |width| chunk_of(&numbers_of_width(width), big, packed);
    let far_apart = |entries| chunk_of(&i64s(|row| random(random(row) as usize % entries) as i64), big, Choice::Auto);
    let outliers = || {
        let value = |row: usize| if row % 100 == 7 { random(row) >> 20 } else { random(row) & 63 };
        chunk_of(&i64s(|row| value(row) as i64), big, Choice::Forced(Encoding::Patched))
    };
    // Each number occurs about as often as all greater numbers together.
    let skewed =
        || chunk_of(&i64s(|row| (u64::MAX / (random(row) | 1)) as i64), big, Choice::Forced(Encoding::Patched));
    let decimals = || {
        let array: ArrayRef =
            Arc::new((0..ROWS).map(|row| Some((random(row) % 500) as f64 / 10.0)).collect::<Float64Array>());
        chunk_of(&array, LogicalType::Double, Choice::Forced(Encoding::Alp))
    };
    let middle = range(0, i128::from(i64::MAX / 5));
    vec![
        ("plain i32, range", chunk_of(&integers, LogicalType::Integer, Choice::Plain), range(0, 400_000_000)),
        ("plain i64, range", chunk_of(&i64s(|row| random(row) as i64), big, Choice::Plain), middle.clone()),
        ("plain f64, range", chunk_of(&floats, LogicalType::Double, Choice::Plain), range(key(1e18), key(2e18))),
        ("plain i64, 3 values", chunk_of(&i64s(|row| random(row) as i64), big, Choice::Plain), list(&[5, 17, 99])),
        ("width 2, 2 values", width(2), list(&[0, 3])),
        ("width 6, not in range", width(6), range_of_a_tenth(6)),
        ("width 6, 3 values", width(6), list(&[5, 17, 40])),
        ("width 6, 9 values", width(6), list(&[5, 7, 9, 11, 13, 15, 17, 19, 40])),
        ("width 12, 3 values", width(12), list(&[5, 17, 40])),
        ("width 12, 20 values near each other", width(12), list(&near)),
        ("width 20, 3 values", width(20), list(&[5, 17, 40])),
        ("width 20, 20 values near each other", width(20), list(&near)),
        ("width 20, 20 values far apart", width(20), list(&far)),
        ("width 6 and 1 % of exceptions, range", outliers(), range_of_a_tenth(6)),
        ("width 3 and 8 % marked exceptions, range", skewed(), range(2, 9)),
        ("alp of width 9, range", decimals(), range(key(10.0), key(15.0))),
        ("dictionary of 77 i64, range", far_apart(77), middle.clone()),
        (
            "run_length of 50 rows, range",
            chunk_of(&i64s(|row| random(row / 50) as i64), big, Choice::Forced(Encoding::RunLength)),
            middle,
        ),
    ]
}

fn other_columns() {
    print_head("## Other columns and tests, in cache\n\nColumns of 65,536 rows.", "values");
    let mut selection = Bitmap::all_set(ROWS);
    for (name, chunk, predicate) in other_cases() {
        let mut predicate = ColumnPredicate::new(ColumnIndex(0), predicate);
        predicate.negated = name.contains("not in");
        print_sets(name, ROWS, || select(&chunk, &predicate, &mut selection));
    }
}

fn decode_and_gather() {
    print_head(
        "## Reading, in cache\n\nColumns of 65,536 rows. Gather takes the positions of rows, select a bitmap of them.",
        "output values",
    );
    for (logical, width) in [
        (LogicalType::BigInt, 4),
        (LogicalType::BigInt, 8),
        (LogicalType::BigInt, 12),
        (LogicalType::BigInt, 20),
        (LogicalType::BigInt, 32),
        (LogicalType::BigInt, 40),
        (LogicalType::Integer, 12),
        (LogicalType::Integer, 20),
    ] {
        let what = format!("{logical} of width {width}");
        let array = match logical {
            LogicalType::Integer => Arc::new(
                numbers_of_width(width).as_primitive::<Int64Type>().unary::<_, Int32Type>(|value| value as i32),
            ),
            _ => numbers_of_width(width),
        };
        let chunk = chunk_of(&array, logical, Choice::Forced(Encoding::BitPacked));
        print_sets(&format!("decode {what}"), ROWS, || drop(black_box(chunk.decode(0..ROWS))));
        for percent in [1, 6, 12, 25, 50] {
            let mut selection = Bitmap::none(ROWS);
            let is_selected = |row: &usize| random(row + 99) % 100 < percent;
            (0..ROWS).filter(is_selected).for_each(|row| selection.set(row));
            let (positions, selected) = (selection.positions(), selection.count());
            print_sets(&format!("gather {percent} % of {what}"), selected, || {
                drop(black_box(chunk.gather(&positions)))
            });
            let is_supported = || chunk.select(&selection, selected).is_some();
            if is_supported() {
                let select = || drop(black_box(chunk.select(&selection, selected)));
                print_supported_sets(is_supported, &format!("select {percent} % of {what}"), selected, select);
            }
        }
    }
    for permille in [1, 10, 100, 500, 900, 1000] {
        let mut selection = Bitmap::none(ROWS);
        (0..ROWS).filter(|row| random(*row + 99) % 1000 < permille).for_each(|row| selection.set(row));
        let mut positions = vec![];
        let name = format!("positions from bits, {} % set", permille as f64 / 10.0);
        print_sets(&name, selection.count().max(1), || {
            positions.clear();
            selection.append_positions(0..ROWS, &mut positions);
            black_box(&positions);
        });
    }
}

/// The sum of all words, which is the simplest way to read memory.
fn sum(words: &[u64]) -> u64 {
    let (blocks, rest) = words.as_chunks::<32>();
    let mut sums = [0_u64; 32];
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Repeats a chunk until the copies fill `LARGE_COLUMN_BYTES`. Returns all their bytes and the chunks.
fn repeat_chunk(bytes: &[u8], logical: LogicalType) -> (Buffer, Vec<Chunk>) {
    let count = LARGE_COLUMN_BYTES / bytes.len();
    let mut buffer = MutableBuffer::with_capacity(count * bytes.len());
    (0..count).for_each(|_| buffer.extend_from_slice(bytes));
    let buffer = Buffer::from(buffer);
    let part = |index: usize| buffer.slice_with_length(index * bytes.len(), bytes.len());
    let chunks = (0..count).map(|index| Chunk::parse(part(index), logical, ROWS).unwrap()).collect();
    (buffer, chunks)
}

/// Gigabytes per second of a competitor that reads a slice per turn.
fn gigabytes_per_second(times: &Times) -> f64 {
    SLICE_BYTES as f64 / times.best / 1e9
}

/// Prints a line that compares a predicate on a large column with the sum of its words.
fn print_out_of_cache(name: &str, bytes: &[u8], logical: LogicalType, predicate: DatumPredicate) {
    let (buffer, chunks) = repeat_chunk(bytes, logical);
    let predicate = ColumnPredicate::new(ColumnIndex(0), predicate);
    let mut selection = Bitmap::all_set(ROWS);
    let sets = [second_best_set(), InstructionSet::best()];
    let (words, slices) = (buffer.typed_data::<u64>(), buffer.len() / SLICE_BYTES);
    let per_slice = SLICE_BYTES / bytes.len();
    let mut turn = 0;
    // Each call reads another slice. At least half of the buffer is read before a slice is read again.
    let times = time_in_turns(2 * slices, 3, |competitor| {
        turn += 1;
        // The step of 7 shares no factor with the number of slices or of competitors, so every competitor reads every
        // slice.
        let slice = turn * 7 % slices;
        let start = Instant::now();
        if competitor == 2 {
            black_box(sum(&words[slice * SLICE_BYTES / 8..][..SLICE_BYTES / 8]));
            return start.elapsed().as_secs_f64();
        }
        sets[competitor].use_at_most();
        let chunks = &chunks[slice * chunks.len() / slices..][..per_slice];
        chunks.iter().for_each(|chunk| select(chunk, &predicate, &mut selection));
        start.elapsed().as_secs_f64() * SLICE_BYTES as f64 / (per_slice * bytes.len()) as f64
    });
    let values = gigabytes_per_second(&times[1]) * ROWS as f64 / bytes.len() as f64;
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {:.0} % | {values:.1} | {:.0} %, {:.0} % |",
        gigabytes_per_second(&times[2]),
        gigabytes_per_second(&times[0]),
        gigabytes_per_second(&times[1]),
        100.0 * times[2].best / times[1].best,
        100.0 * times[2].spread,
        100.0 * times[1].spread
    );
}

/// The second best instruction set that this machine has.
fn second_best_set() -> InstructionSet {
    InstructionSet::ALL[(InstructionSet::best() as usize).saturating_sub(2)]
}

fn out_of_cache() {
    println!("\n## One range test, out of cache\n");
    println!(
        "{} MiB of chunks of 65,536 rows, read in slices of 4 MiB. The test alternates with a sum of the words, which \
         measures how fast memory is read. Speeds are 95th percentiles of the turns.\n",
        LARGE_COLUMN_BYTES >> 20
    );
    println!(
        "| column | sum, GB/s | {:?}, GB/s | {:?}, GB/s | speed / sum | billion values/s | median above best: sum, test |",
        second_best_set(),
        InstructionSet::best()
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for width in [1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 20, 24, 28, 32, 40, 56] {
        let bytes = encode(&numbers_of_width(width), LogicalType::BigInt, Choice::Forced(Encoding::BitPacked)).unwrap();
        print_out_of_cache(&format!("width {width}"), &bytes, LogicalType::BigInt, range_of_a_tenth(width));
    }
    let bytes = encode(&i64s(|row| random(row) as i64), LogicalType::BigInt, Choice::Plain).unwrap();
    print_out_of_cache("plain i64", &bytes, LogicalType::BigInt, range(0, i128::from(i64::MAX / 5)));
    let floats: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as f64)).collect::<Float64Array>());
    let bytes = encode(&floats, LogicalType::Double, Choice::Plain).unwrap();
    let key = |float: f64| i128::from(float.to_bits());
    print_out_of_cache("plain f64", &bytes, LogicalType::Double, range(key(1e18), key(2e18)));
}

/// Describes the processor. Its model name is known only on Linux.
fn describe_machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {threads} threads, {:?}", name.unwrap_or(std::env::consts::ARCH).trim(), InstructionSet::best())
}

fn main() {
    taut_allocator::set_up();
    println!("# Predicates and decoding, by instruction set\n");
    println!(
        "{}. One thread; best of {TURNS} turns. Median above best is how much longer the median turn took.",
        describe_machine()
    );
    let parts: [(&str, fn()); 4] =
        [("cache", in_cache), ("others", other_columns), ("reads", decode_and_gather), ("large", out_of_cache)];
    let name_filter = arguments().into_iter().next().unwrap_or_default();
    parts.iter().filter(|(name, _)| name.contains(&name_filter)).for_each(|(_, part)| part());
}
