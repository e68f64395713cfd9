//! Compares selective predicates on unordered numbers with the model, once evaluated by extremes and once on selected
//! rows, for every width of number that has extremes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_encoding::{Bitmap, CHUNK_ROWS_MAX, Choice, Chunk, Extreme, InstructionSet, encode};
use taut_testkit::{Model, array_of};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, Encoding, LogicalType};

/// A chunk of random numbers of `bits` bits, some of them null, with its model and its numbers in ascending order.
fn chunk_of(bits: usize, rows: usize, random: &mut StdRng) -> (Chunk, Model, Vec<i128>) {
    let draw = |random: &mut StdRng| Datum::Number((random.random::<i64>() >> (64 - bits)).into());
    let is_null = |random: &mut StdRng| bits.is_multiple_of(3) && random.random_bool(0.1);
    let values: Vec<_> = (0..rows).map(|_| Some(draw(random)).filter(|_| !is_null(random))).collect();
    let array = array_of(&values, LogicalType::BigInt);
    let bytes = encode(&array, LogicalType::BigInt, Choice::Forced(Encoding::FrameOfReference)).unwrap();
    let mut numbers: Vec<i128> = values.iter().flatten().filter_map(Datum::number).collect();
    numbers.sort_unstable();
    let chunk = Chunk::parse(bytes.into(), LogicalType::BigInt, rows).unwrap();
    (chunk, Model::of_array(&array, LogicalType::BigInt), numbers)
}

#[test]
fn extremes_and_single_rows_agree_with_the_model() {
    let mut random = StdRng::seed_from_u64(13);
    let (mut rows_searched, mut rows_read) = (0, 0);
    for (bits, set) in (17..=64).zip(InstructionSet::ALL.into_iter().cycle()) {
        set.use_at_most();
        let rows = [CHUNK_ROWS_MAX, 5000, 2048, 100][bits % 4];
        let (chunk, model, numbers) = chunk_of(bits, rows, &mut random);
        let (few_rows, last) = (rows / 900, numbers.len() - 1);
        for (low, high) in [
            (numbers[last - few_rows], i128::MAX),
            (numbers[last - few_rows], numbers[last]),
            (numbers[last - 3 * few_rows], i128::MAX),
            (i128::MIN, numbers[3 * few_rows]),
            (numbers[last] + 1, i128::MAX),
            (i128::MIN, numbers[few_rows]),
            (numbers[0], numbers[few_rows]),
            (numbers[0] - 5, numbers[0]),
            (numbers[last / 2], numbers[last / 2 + few_rows]),
            (numbers[few_rows], numbers[few_rows * 2]),
            (i128::MIN, numbers[last / 2]),
        ] {
            let predicate = ColumnPredicate::new(ColumnIndex(0), DatumPredicate::Range { low, high });
            let passing = model.filter(std::slice::from_ref(&predicate));
            let expected = |initial: &Bitmap, range: &std::ops::Range<usize>| {
                let mut expected = initial.clone();
                expected.clear_range(range.clone());
                passing
                    .iter()
                    .filter(|row| range.contains(row) && initial.get(**row))
                    .for_each(|row| expected.set(*row));
                expected
            };
            let mut initial = Bitmap::none(rows);
            (0..rows).filter(|_| random.random_bool(0.02)).for_each(|row| initial.set(row));
            let mut selection = initial.clone();
            let was_filtered = chunk.filter_selected(&predicate, initial.count(), &mut selection);
            assert_eq!(was_filtered, chunk.nulls() == 0, "{bits} bits");
            assert!(
                !was_filtered || selection == expected(&initial, &(0..rows)),
                "{bits} bits, one by one: {predicate:?}"
            );
            for extreme in [Extreme::Least, Extreme::Greatest] {
                // The random numbers may be too close together for extremes.
                let Some(extremes) = chunk.extremes(extreme) else { continue };
                let start = random.random_range(0..rows);
                for range in [0..rows, start..random.random_range(start..=rows)] {
                    let found = chunk.find_by_extremes(&predicate, (extreme, &extremes), range.clone());
                    let Some((found, rows_read_by_call)) = found else { continue };
                    let passing = passing.iter().filter(|row| range.contains(row)).map(|row| *row as u32);
                    assert!(passing.eq(found), "{bits} bits, {extreme:?}: {predicate:?} on {range:?}");
                    rows_searched += range.len();
                    rows_read += rows_read_by_call;
                }
                // Extremes whose length does not fit the chunk must be those of another chunk. They are not used.
                let extremes_of_another_length = (extreme, &extremes.slice(2));
                assert!(chunk.find_by_extremes(&predicate, extremes_of_another_length, 0..rows).is_none());
            }
        }
    }
    // Many searches must succeed, and read less than a twentieth of their rows.
    assert!(rows_searched > 1_000_000 && rows_read * 20 < rows_searched, "{rows_read} of {rows_searched} rows read");
}
