//! Prints, as Markdown, how fast one test runs over a column on one thread, for each set of instructions: in cache
//! by the width of numbers, and out of it beside the speed at which this machine reads memory.
//!
//! `cargo bench -p taut-encoding --bench predicate_speed`, or `make bench-kernels`, which keeps it
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
/// Turns that each competitor gets, one after the other.
const TURNS: usize = 9;
/// Seconds of a turn in cache, about.
const SECONDS: f64 = 0.002;
/// Bytes of the column that is not in cache.
const LARGE: usize = 380 << 20;
/// Bytes of it that are read in a turn: few, so that some turns are not disturbed by other programs.
const SLICE: usize = 4 << 20;

/// Numbers that repeat from run to run.
fn random(row: usize) -> u64 {
    Random(row as u64).number()
}

fn i64s(value: impl Fn(usize) -> i64) -> ArrayRef {
    Arc::new((0..ROWS).map(value).map(Some).collect::<Int64Array>())
}

/// Random numbers of so many bits, at least one of which has them all.
fn of_width(width: usize) -> ArrayRef {
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

/// About a tenth of the numbers of so many bits.
fn tenth(width: usize) -> DatumPredicate {
    let numbers = 1_i128 << width;
    range(numbers / 2, numbers / 2 + numbers / 10)
}

fn select(chunk: &Chunk, predicate: &ColumnPredicate, selection: &mut Bitmap) {
    chunk.select_passing(predicate, selection);
    black_box(selection.words());
}

/// Times of competitors that take turns: of each one of the best, and how much longer its median is.
struct Times {
    best: f64,
    spread: f64,
}

fn take_turns(turns: usize, competitors: usize, mut turn: impl FnMut(usize) -> f64) -> Vec<Times> {
    let mut times = vec![vec![]; competitors];
    for _ in 0..turns {
        (0..competitors).for_each(|competitor| times[competitor].push(turn(competitor)));
    }
    let sorted = times.into_iter().map(|mut times| {
        times.sort_by(f64::total_cmp);
        let best = times[times.len() / 20];
        Times { best, spread: times[times.len() / 2] / best - 1.0 }
    });
    sorted.collect()
}

/// Seconds that one execution takes, of as many as fill a turn.
fn seconds(mut work: impl FnMut()) -> f64 {
    work();
    let (start, mut count) = (Instant::now(), 0);
    loop {
        (0..8).for_each(|_| work());
        count += 8;
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed > SECONDS {
            return elapsed / f64::from(count);
        }
    }
}

/// The sets of instructions that this machine has.
fn sets() -> Vec<InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| *set <= InstructionSet::best()).collect()
}

/// A line of billions of values per second for each set, and the gain of the last over the last but one.
fn print_sets(name: &str, values: usize, work: impl FnMut()) {
    print_sets_that(|| true, name, values, work);
}

/// As [`print_sets`], of those sets that do the work.
fn print_sets_that(mut can: impl FnMut() -> bool, name: &str, values: usize, mut work: impl FnMut()) {
    let sets = sets();
    let able: Vec<_> = sets.iter().map(|set| (set.use_at_most(), can()).1).collect();
    let times = take_turns(TURNS, sets.len(), |set| {
        sets[set].use_at_most();
        if able[set] { seconds(&mut work) } else { f64::NAN }
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
    let names = sets().iter().map(|set| format!(" {set:?} |")).collect::<String>();
    println!("| column |{names} last over last but one | median above best |");
    println!("|---|{}--:|--:|", sets().iter().map(|_| "--:|").collect::<String>());
}

fn in_cache() {
    print_head("## One range test, bit-packed, in cache\n\nA column of 65,536 rows; a tenth of them pass.", "values");
    let mut selection = Bitmap::all_set(ROWS);
    for width in (1..=32).chain([33, 40, 48, 56, 63]) {
        let chunk = chunk_of(&of_width(width), LogicalType::BigInt, Choice::Forced(Encoding::BitPacked));
        let predicate = ColumnPredicate::new(ColumnIndex(0), tenth(width));
        print_sets(&format!("width {width}"), ROWS, || select(&chunk, &predicate, &mut selection));
    }
}

/// Other encodings and tests: name, column, test.
fn other_cases() -> Vec<(&'static str, Chunk, DatumPredicate)> {
    let list = |numbers: &[i128]| DatumPredicate::OneOf(Arc::from(numbers));
    let far: Vec<i128> = (0..20).map(|number| number * 5_000).collect();
    let near: Vec<i128> = (0..20).map(|number| number * 7).collect();
    let integers: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as i32)).collect::<Int32Array>());
    let floats: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as f64)).collect::<Float64Array>());
    let key = |float: f64| i128::from(float.to_bits());
    let (big, packed) = (LogicalType::BigInt, Choice::Forced(Encoding::BitPacked));
    let width = |width| chunk_of(&of_width(width), big, packed);
    let far_apart = |entries| chunk_of(&i64s(|row| random(random(row) as usize % entries) as i64), big, Choice::Auto);
    let outliers = || {
        let value = |row: usize| if row % 100 == 7 { random(row) >> 20 } else { random(row) & 63 };
        chunk_of(&i64s(|row| value(row) as i64), big, Choice::Forced(Encoding::Patched))
    };
    // About as many of each number as of all that are greater.
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
        ("width 6, not in range", width(6), tenth(6)),
        ("width 6, 3 values", width(6), list(&[5, 17, 40])),
        ("width 6, 9 values", width(6), list(&[5, 7, 9, 11, 13, 15, 17, 19, 40])),
        ("width 12, 3 values", width(12), list(&[5, 17, 40])),
        ("width 12, 20 values close", width(12), list(&near)),
        ("width 20, 3 values", width(20), list(&[5, 17, 40])),
        ("width 20, 20 values close", width(20), list(&near)),
        ("width 20, 20 values far apart", width(20), list(&far)),
        ("width 6 and 1 % of exceptions, range", outliers(), tenth(6)),
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

fn others() {
    print_head("## Other columns and tests, in cache\n\nColumns of 65,536 rows.", "values");
    let mut selection = Bitmap::all_set(ROWS);
    for (name, chunk, predicate) in other_cases() {
        let mut predicate = ColumnPredicate::new(ColumnIndex(0), predicate);
        predicate.negated = name.contains("not in");
        print_sets(name, ROWS, || select(&chunk, &predicate, &mut selection));
    }
}

fn reads() {
    print_head("## Reading, in cache\n\nColumns of 65,536 rows.", "values that come out");
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
            LogicalType::Integer => {
                Arc::new(of_width(width).as_primitive::<Int64Type>().unary::<_, Int32Type>(|value| value as i32))
            }
            _ => of_width(width),
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
            let can = || chunk.select(&selection, selected).is_some();
            if can() {
                let select = || drop(black_box(chunk.select(&selection, selected)));
                print_sets_that(can, &format!("select {percent} % of {what}"), selected, select);
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

/// The sum of all words: the plainest way to read memory.
fn sum(words: &[u64]) -> u64 {
    let (blocks, rest) = words.as_chunks::<32>();
    let mut sums = [0_u64; 32];
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// One chunk over and over, until it fills `LARGE` bytes.
fn large(bytes: &[u8], logical: LogicalType) -> (Buffer, Vec<Chunk>) {
    let count = LARGE / bytes.len();
    let mut buffer = MutableBuffer::with_capacity(count * bytes.len());
    (0..count).for_each(|_| buffer.extend_from_slice(bytes));
    let buffer = Buffer::from(buffer);
    let part = |index: usize| buffer.slice_with_length(index * bytes.len(), bytes.len());
    let chunks = (0..count).map(|index| Chunk::parse(part(index), logical, ROWS).unwrap()).collect();
    (buffer, chunks)
}

/// Gigabytes per second, from seconds for a slice.
fn rate(times: &Times) -> f64 {
    SLICE as f64 / times.best / 1e9
}

fn out_of_cache_line(name: &str, bytes: &[u8], logical: LogicalType, predicate: DatumPredicate) {
    let (buffer, chunks) = large(bytes, logical);
    let predicate = ColumnPredicate::new(ColumnIndex(0), predicate);
    let mut selection = Bitmap::all_set(ROWS);
    let sets = [last_but_one(), InstructionSet::best()];
    let (words, slices) = (buffer.typed_data::<u64>(), buffer.len() / SLICE);
    let per_slice = SLICE / bytes.len();
    let mut turn = 0;
    // Whoever's turn it is takes the next slice; half of the buffer has been read since it was read last.
    let times = take_turns(2 * slices, 3, |competitor| {
        turn += 1;
        // A step that shares no factor with the slices or the turns, so that all visit all of them.
        let slice = turn * 7 % slices;
        let start = Instant::now();
        if competitor == 2 {
            black_box(sum(&words[slice * SLICE / 8..][..SLICE / 8]));
            return start.elapsed().as_secs_f64();
        }
        sets[competitor].use_at_most();
        let chunks = &chunks[slice * chunks.len() / slices..][..per_slice];
        chunks.iter().for_each(|chunk| select(chunk, &predicate, &mut selection));
        start.elapsed().as_secs_f64() * SLICE as f64 / (per_slice * bytes.len()) as f64
    });
    let values = rate(&times[1]) * ROWS as f64 / bytes.len() as f64;
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {:.0} % | {values:.1} | {:.0} %, {:.0} % |",
        rate(&times[2]),
        rate(&times[0]),
        rate(&times[1]),
        100.0 * times[2].best / times[1].best,
        100.0 * times[2].spread,
        100.0 * times[1].spread
    );
}

/// The set of instructions before the best.
fn last_but_one() -> InstructionSet {
    InstructionSet::ALL[(InstructionSet::best() as usize).saturating_sub(2)]
}

fn out_of_cache() {
    println!("\n## One range test, out of cache\n");
    println!(
        "{} MiB of chunks of 65,536 rows, 4 MiB by turns with the sum of \
         their words, which is how fast memory is read; of each the turn that a twentieth are faster than.\n",
        LARGE >> 20
    );
    println!(
        "| column | sum, GB/s | {:?}, GB/s | {:?}, GB/s | of the sum | billion values/s | median above best: sum, test |",
        last_but_one(),
        InstructionSet::best()
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for width in [1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 20, 24, 28, 32, 40, 56] {
        let bytes = encode(&of_width(width), LogicalType::BigInt, Choice::Forced(Encoding::BitPacked)).unwrap();
        out_of_cache_line(&format!("width {width}"), &bytes, LogicalType::BigInt, tenth(width));
    }
    let bytes = encode(&i64s(|row| random(row) as i64), LogicalType::BigInt, Choice::Plain).unwrap();
    out_of_cache_line("plain i64", &bytes, LogicalType::BigInt, range(0, i128::from(i64::MAX / 5)));
    let floats: ArrayRef = Arc::new((0..ROWS).map(|row| Some(random(row) as f64)).collect::<Float64Array>());
    let bytes = encode(&floats, LogicalType::Double, Choice::Plain).unwrap();
    let key = |float: f64| i128::from(float.to_bits());
    out_of_cache_line("plain f64", &bytes, LogicalType::Double, range(key(1e18), key(2e18)));
}

/// The name of the processor, where Linux tells.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {threads} threads, {:?}", name.unwrap_or(std::env::consts::ARCH).trim(), InstructionSet::best())
}

fn main() {
    taut_allocator::set_up();
    println!("# Tests on columns, by the loop\n");
    println!("{}. One thread; best of {TURNS} turns.", machine());
    let parts: [(&str, fn()); 4] = [("cache", in_cache), ("others", others), ("reads", reads), ("large", out_of_cache)];
    let wanted = arguments().into_iter().next().unwrap_or_default();
    parts.iter().filter(|(name, _)| name.contains(&wanted)).for_each(|(_, part)| part());
}
