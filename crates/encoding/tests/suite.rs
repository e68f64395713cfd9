//! One suite for every encoding. It encodes each column of each generated table in every encoding that its type allows,
//! and compares the results of all chunk methods with the model.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_select::take::take;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_encoding::{
    ArrayBuilder, Bitmap, CHUNK_ROWS_MAX, Choice, Chunk, EncodeError, Extreme, InstructionSet, NullableNumbers,
    SelectedRuns, encode, encode_repeated,
};
use taut_testkit::{Model, TestTable, agree, array_of, predicates_for, tables};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, DatumPredicate, Encoding, GroupKind, LogicalType, datum_at};

const COLUMN: [ColumnIndex; 1] = [ColumnIndex(0)];

/// A column of a table, and the rows that pass each predicate.
struct Column {
    name: String,
    logical: LogicalType,
    array: ArrayRef,
    model: Model,
    predicates: Vec<(ColumnPredicate, Vec<usize>)>,
}

/// The columns of a table as arrays of at most `rows_max` rows. Every second array is a slice that does not begin at
/// the start of its buffers.
fn columns(table: &TestTable, rows_max: usize, random: &mut StdRng) -> Vec<Column> {
    let model = Model::of(table);
    let rows = model.rows.len().min(rows_max);
    let mut column = |(index, column): (usize, &taut_types::Column)| {
        let skip = if index % 2 == 0 { 0 } else { rows.min(5) };
        let padding = (0..skip).map(|_| None);
        let values: Vec<_> = padding.chain(model.rows[..rows].iter().map(|row| row[index].clone())).collect();
        let logical = column.logical_type;
        let array = array_of(&values, logical).slice(skip, rows);
        let model = Model::of_array(&array, logical);
        agree(&model, &(0..rows).collect::<Vec<_>>(), &COLUMN, std::slice::from_ref(&array));
        let predicates = predicates_for(&model, random).into_iter();
        let predicates = predicates.map(|predicate| (predicate.clone(), model.filter(&[predicate]))).collect();
        Column { name: format!("{}.{}", table.name, column.name), logical, array, model, predicates }
    };
    table.schema.columns().iter().enumerate().map(&mut column).collect()
}

/// Ordered columns, because `tables` has few. They are dense or have gaps, have duplicates or none, and ascend, descend
/// or step back, up to the limits of the type. Each has several vectors.
fn ordered_columns(random: &mut StdRng) -> Vec<Column> {
    let decimal = |precision| LogicalType::Decimal { precision, scale: 0 };
    let mut columns = vec![];
    for (logical, far) in [
        (LogicalType::SmallInt, 0),
        (LogicalType::Integer, 0),
        (LogicalType::BigInt, 0),
        (LogicalType::BigInt, i128::from(i64::MIN)),
        (LogicalType::BigInt, i128::from(i64::MAX) - (1 << 22)),
        (LogicalType::Timestamp, 1 << 50),
        (LogicalType::Double, 1 << 60),
        (decimal(9), 0),
        (decimal(15), 1 << 40),
        (decimal(38), 10_i128.pow(37)),
        (decimal(20), (1 << 63) - 1000),
        (decimal(38), -(1 << 64)),
    ] {
        for (name, step, run) in [
            ("serial", 1..2_i128, 1..2_usize),
            ("tight", 1..4, 1..2),
            ("gaping", 1..40, 1..2),
            ("with duplicates", 1..4, 1..8),
            ("with long runs", 1..9, 1..3000),
            ("rising and falling", -8..9, 1..3),
            ("falling", -5..0, 1..4),
            ("restarting", 1..4, 1..2),
            ("with jumps", 1..4, 1..2),
        ] {
            let mut number = far + if step.start < 0 { 1 << 14 } else { 0 };
            let mut numbers = vec![];
            while numbers.len() < 3500 {
                let rows = random.random_range(run.clone());
                numbers.extend(std::iter::repeat_n(Some(Datum::Number(number)), rows));
                number += random.random_range(step.clone());
                match name {
                    "restarting" if random.random_bool(0.005) => number = far,
                    "with jumps" if random.random_bool(0.005) => number += 500,
                    _ => {}
                }
            }
            let array = array_of(&numbers, logical);
            let model = Model::of_array(&array, logical);
            let predicates = predicates_for(&model, random).into_iter();
            let predicates = predicates.map(|predicate| (predicate.clone(), model.filter(&[predicate]))).collect();
            columns.push(Column { name: format!("{name} {logical} from {far}"), logical, array, model, predicates });
        }
    }
    columns
}

fn choices(logical: LogicalType) -> impl Iterator<Item = Choice> {
    let forced = Encoding::ALL.into_iter().filter(move |encoding| encoding.is_allowed(logical, GroupKind::Column));
    [Choice::Auto, Choice::Ordered, Choice::Plain].into_iter().chain(forced.map(Choice::Forced))
}

/// Ranges of rows near the ends of vectors, and random ones.
fn ranges(rows: usize, random: &mut StdRng) -> Vec<std::ops::Range<usize>> {
    let mut ranges = vec![0..rows, 0..0, rows..rows, 0..1, rows - 1..rows, 0..rows.min(1024)];
    for _ in 0..4 {
        let start = random.random_range(0..rows);
        ranges.push(start..random.random_range(start..=rows));
    }
    ranges
}

/// Compares an array with the encoded one. If they differ, the model reports the first difference.
#[track_caller]
fn check_array(column: &Column, positions: &[u32], found: ArrayRef) {
    found.to_data().validate_full().unwrap();
    let expected = take(&column.array, &UInt32Array::from(positions.to_vec()), None).unwrap();
    if found != expected {
        agree(&column.model, &positions.iter().map(|row| *row as usize).collect::<Vec<_>>(), &COLUMN, &[found]);
        panic!("{}: the arrays differ, the model does not see where", column.name);
    }
}

fn check_reads(chunk: &Chunk, column: &Column, random: &mut StdRng) {
    let rows = column.array.len();
    // All reads are also appended to one array, whose positions `appended_positions` holds.
    let (mut appended, mut appended_positions) = (ArrayBuilder::new(column.logical, 7), vec![]);
    for range in ranges(rows, random) {
        let positions: Vec<u32> = (range.start as u32..range.end as u32).collect();
        check_array(column, &positions, chunk.decode(range.clone()));
        if let Some(array) = &mut appended {
            chunk.append(range, array);
            appended_positions.extend(positions);
        }
    }
    for share in [1.0, 0.3, 0.01, 0.002] {
        let positions: Vec<u32> = (0..rows as u32).filter(|_| random.random_bool(share)).collect();
        check_array(column, &positions, chunk.gather(&positions));
        let mut selection = Bitmap::none(rows);
        positions.iter().for_each(|row| selection.set(*row as usize));
        let selected = chunk.select(&selection, positions.len());
        if let Some(array) = &mut appended {
            chunk.append_at(&positions, array);
            appended_positions.extend_from_slice(&positions);
            let is_appended = chunk.append_selected(&selection, positions.len(), array);
            assert_eq!(is_appended, selected.is_some(), "{}", column.name);
            appended_positions.extend(is_appended.then_some(&positions).into_iter().flatten());
        }
        if let Some(selected) = selected {
            check_array(column, &positions, selected);
        }
    }
    if let Some(array) = appended {
        check_array(column, &appended_positions, array.finish());
    }
    check_runs(chunk, column, random);
}

/// Checks that reading runs of rows returns the same values, codes and numbers as reading their positions.
fn check_runs(chunk: &Chunk, column: &Column, random: &mut StdRng) {
    let rows = column.array.len();
    for share in [0.001, 0.02, 0.3] {
        let mut selection = Bitmap::all_set(rows);
        (0..rows).filter(|_| random.random_bool(share)).for_each(|row| selection.clear(row));
        let ranges = selection.runs();
        let start = random.random_range(0..=rows as u32);
        for part in [0..rows as u32, start..random.random_range(start..=rows as u32)] {
            let runs = SelectedRuns::new(&ranges, part.clone());
            let mut positions = vec![];
            selection.append_positions(part.start as usize..part.end as usize, &mut positions);
            check_array(column, &positions, chunk.decode_runs(&runs));
            if let Some(mut array) = ArrayBuilder::new(column.logical, 0) {
                chunk.append_runs(&runs, &mut array);
                chunk.append_runs(&runs, &mut array);
                check_array(column, &positions.repeat(2), array.finish());
            }
            assert_eq!(chunk.codes_of_runs(&runs), chunk.codes_at(&positions), "{}", column.name);
            let (found, expected) = (chunk.numbers_of_runs(&runs), chunk.numbers_at(&positions));
            let valid = |numbers: Option<NullableNumbers>| {
                let (numbers, nulls) = numbers?;
                assert!(nulls.as_ref().is_none_or(|nulls| nulls.null_count() > 0));
                let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                Some(
                    numbers
                        .iter()
                        .enumerate()
                        .map(|(row, number)| is_valid(row).then_some(*number))
                        .collect::<Vec<_>>(),
                )
            };
            assert_eq!(valid(found), valid(expected), "{}", column.name);
        }
    }
}

/// Selects random ranges of rows, completely or in part.
fn random_selection(rows: usize, random: &mut StdRng) -> Bitmap {
    let mut selection = Bitmap::none(rows);
    let mut row = 0;
    while row < rows {
        let end = rows.min(row + random.random_range(1..3000));
        match random.random_range(0..3) {
            0 => selection.set_range(row..end),
            1 => (row..end).filter(|_| random.random_bool(0.5)).for_each(|row| selection.set(row)),
            _ => {}
        }
        row = end;
    }
    selection
}

fn check_filters(chunk: &Chunk, column: &Column, random: &mut StdRng) {
    let rows = column.array.len();
    for (predicate, passing) in &column.predicates {
        let range = ranges(rows, random)[random.random_range(0..7)].clone();
        let initial = random_selection(rows, random);
        let mut selection = initial.clone();
        chunk.filter(predicate, range.clone(), &mut selection);
        let mut expected = initial.clone();
        expected.clear_range(range.clone());
        passing.iter().filter(|row| range.contains(row) && initial.get(**row)).for_each(|row| expected.set(*row));
        assert!(selection == expected, "{}, {}: {predicate:?} on {range:?}", column.name, chunk.description());
        let mut selected = initial.clone();
        chunk.select_passing(predicate, &mut selected);
        assert_eq!(selected.len(), rows);
        assert!(passing.iter().copied().eq(selected.positions().iter().map(|row| *row as usize)), "{predicate:?}");
        let mut by_position = initial.clone();
        let was_filtered = chunk.filter_selected(predicate, initial.count(), &mut by_position);
        let are_all_kept = || passing.iter().all(|row| !initial.get(*row) || by_position.get(*row));
        assert!(
            !was_filtered
                || are_all_kept() && by_position.count() == passing.iter().filter(|row| initial.get(**row)).count()
        );
        assert!(was_filtered || by_position == initial, "{}", chunk.description());
        for extreme in [Extreme::Least, Extreme::Greatest] {
            let Some(extremes) = chunk.extremes(extreme) else { continue };
            let Some((found, _)) = chunk.find_by_extremes(predicate, (extreme, &extremes), range.clone()) else {
                continue;
            };
            let passing = passing.iter().filter(|row| range.contains(row)).map(|row| *row as u32);
            assert!(passing.eq(found), "{}, {extreme:?}: {predicate:?} on {range:?}", column.name);
        }
    }
}

/// Checks that binary search over ascending ranges of rows finds the rows that a filter finds, and that the codes that
/// pass a predicate are the codes of the entries that pass it.
fn check_searches(chunk: &Chunk, column: &Column, random: &mut StdRng) {
    let value = |row: usize| column.model.value(row, COLUMN[0]);
    for range in ranges(column.array.len(), random) {
        let Some(first) = range.clone().find(|row| value(*row).is_some()) else { continue };
        let ascends = |row: &usize| *row == first || value(*row) >= value(*row - 1);
        let ascending = first..range.clone().skip_while(|row| *row < first).take_while(ascends).count() + first;
        for (predicate, passing) in column
            .predicates
            .iter()
            .filter(|(predicate, _)| !predicate.negated && predicate.condition != DatumPredicate::Null)
        {
            let found = chunk.search(&predicate.condition, ascending.clone());
            if let DatumPredicate::Range { .. } = predicate.condition {
                let encoding = chunk.description();
                // Exceptions that are marked, and not searched, are in an encoding of their own.
                let is_searched = ["two_byte_delta", "patched", "alp"].iter().any(|name| encoding.starts_with(name))
                    && !encoding.contains(" exceptions in ");
                assert!(found.is_some() || !is_searched, "{encoding} has a search");
            }
            let Some(found) = found else { continue };
            let found: Vec<usize> = found.into_iter().flatten().collect();
            let expected: Vec<usize> = passing.iter().copied().filter(|row| ascending.contains(row)).collect();
            assert_eq!(found, expected, "{}, {}: {predicate:?} on {ascending:?}", column.name, chunk.description());
        }
    }
    let Some(entries) = chunk.dictionary() else { return };
    for (predicate, _) in column
        .predicates
        .iter()
        .filter(|(predicate, _)| !predicate.negated && predicate.condition != DatumPredicate::Null)
    {
        let Some(codes) = chunk.codes_that_pass(&predicate.condition) else { continue };
        let passes = |code: &usize| predicate.admits(datum_at(&entries, column.logical, *code).as_ref());
        let expected: Vec<usize> = (0..entries.len()).filter(passes).collect();
        assert_eq!(
            codes.into_iter().flatten().map(|code| code as usize).collect::<Vec<_>>(),
            expected,
            "{predicate:?}"
        );
    }
}

fn check_dictionary(chunk: &Chunk, logical: LogicalType, model: &Model, random: &mut StdRng) {
    let Some(entries) = chunk.dictionary() else { return };
    entries.to_data().validate_full().unwrap();
    let rows = model.rows.len();
    let flags: Vec<bool> = (0..entries.len()).map(|_| random.random_bool(0.5)).collect();
    let flag_by_value: std::collections::HashMap<_, _> =
        flags.iter().enumerate().map(|(entry, flag)| (datum_at(&entries, logical, entry), *flag)).collect();
    for null_passes in [false, true] {
        let range = ranges(rows, random)[random.random_range(0..7)].clone();
        let initial = random_selection(rows, random);
        let mut selection = initial.clone();
        chunk.filter_codes(&BooleanBuffer::from(flags.clone()), null_passes, range.clone(), &mut selection);
        for row in 0..rows {
            let passes = match model.value(row, COLUMN[0]) {
                None => null_passes,
                value => flag_by_value[&value.cloned()],
            };
            let expected = initial.get(row) && (passes || !range.contains(&row));
            assert_eq!(selection.get(row), expected, "row {row} of {range:?}, nulls {null_passes}");
        }
    }
}

/// Checks that rows with equal codes have equal values, and that runs agree with codes.
fn check_codes(chunk: &Chunk, model: &Model, random: &mut StdRng) {
    let rows = model.rows.len();
    let Some(count) = chunk.code_count() else {
        assert!(chunk.codes_of(0..rows).is_none() && chunk.codes_at(&[]).is_none());
        return;
    };
    let mut values = vec![None; count];
    let mut check = |row: usize, code: u16| {
        let value = model.value(row, COLUMN[0]);
        assert_eq!(*values[usize::from(code)].get_or_insert(value), value, "row {row}, {}", chunk.description());
    };
    for range in ranges(rows, random) {
        let codes = chunk.codes_of(range.clone()).unwrap();
        assert_eq!(codes.len(), range.len());
        range.clone().zip(&codes).for_each(|(row, code)| check(row, *code));
        if let Some(runs) = chunk.code_runs(range.clone()) {
            let mut row = range.start;
            for (code, end) in runs {
                assert!(row < end && end <= range.end);
                codes[row - range.start..end - range.start].iter().for_each(|found| assert_eq!(*found, code));
                row = end;
            }
            assert_eq!(row, range.end);
        }
    }
    let positions: Vec<u32> = (0..rows as u32).filter(|_| random.random_bool(0.3)).collect();
    let codes = chunk.codes_at(&positions).unwrap();
    assert_eq!(codes.len(), positions.len());
    positions.iter().zip(codes).for_each(|(row, code)| check(*row as usize, code));
}

/// Checks that the sum of runs, if the chunk has it, equals the sum of all rows.
fn check_sum(chunk: &Chunk, model: &Model) {
    let numbers = || (0..model.rows.len()).filter_map(|row| model.value(row, COLUMN[0])?.number());
    if let Some(sum) = chunk.sum_of_runs() {
        assert_eq!(Some(sum), numbers().try_fold(0, i128::checked_add), "{}", chunk.description());
    }
}

/// Checks that the numbers are the low 64 bits of the values.
fn check_numbers(chunk: &Chunk, column: &Column, random: &mut StdRng) {
    let rows = column.array.len();
    let has_numbers = !column.logical.is_bytes() && !matches!(column.logical, LogicalType::Real | LogicalType::Double);
    let check = |positions: &[u32], found: Option<NullableNumbers>| {
        assert_eq!(found.is_some(), has_numbers);
        let Some((numbers, nulls)) = found else { return };
        assert_eq!(numbers.len(), positions.len());
        for (index, position) in positions.iter().enumerate() {
            let expected = column.model.value(*position as usize, COLUMN[0]).and_then(taut_types::Datum::number);
            let found = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index)).then_some(numbers[index]);
            assert_eq!(found, expected.map(|number| number as i64), "{}, row {position}", column.name);
        }
    };
    for range in ranges(rows, random) {
        check(&(range.start as u32..range.end as u32).collect::<Vec<_>>(), chunk.numbers(range));
    }
    let positions: Vec<u32> = (0..rows as u32).filter(|_| random.random_bool(0.3)).collect();
    check(&positions, chunk.numbers_at(&positions));
}

#[test]
fn every_encoding_agrees_with_the_model() {
    let mut random = StdRng::seed_from_u64(11);
    let mut encodings_seen = std::collections::HashMap::<Encoding, usize>::new();
    let mut nested_chunks = 0;
    let mut sets = InstructionSet::ALL.into_iter().cycle();
    let check_column = &mut |column: &Column, random: &mut StdRng| {
        // Tests that run at the same time use this instruction set too, which is harmless: their results do not depend
        // on it.
        sets.next().map(InstructionSet::use_at_most);
        let (name, logical, array) = (&column.name, column.logical, &column.array);
        for choice in choices(logical) {
            let bytes = match encode(array, logical, choice) {
                Ok(bytes) => bytes,
                Err(EncodeError::Impossible { .. }) => continue,
                Err(error) => panic!("{name} {choice:?}: {error}"),
            };
            let chunk = Chunk::parse(bytes.into(), logical, array.len()).unwrap();
            *encodings_seen.entry(chunk.encoding()).or_default() += 1;
            nested_chunks += usize::from(chunk.description().contains("exceptions in"));
            if let Choice::Forced(encoding) = choice
                && array.null_count() < array.len()
            {
                assert_eq!(chunk.encoding(), encoding, "{name}");
            }
            assert_eq!((chunk.rows(), chunk.nulls()), (array.len(), array.null_count()));
            assert_eq!(chunk.check(), Ok(()));
            assert!(!chunk.description().is_empty() && chunk.decoded_bytes_per_row() > 0);
            check_reads(&chunk, column, random);
            check_filters(&chunk, column, random);
            check_searches(&chunk, column, random);
            check_dictionary(&chunk, logical, &column.model, random);
            check_codes(&chunk, &column.model, random);
            check_sum(&chunk, &column.model);
            check_numbers(&chunk, column, random);
        }
    };
    for table in tables(11) {
        for column in columns(&table, CHUNK_ROWS_MAX, &mut random) {
            check_column(&column, &mut random);
        }
    }
    for column in ordered_columns(&mut random) {
        check_column(&column, &mut random);
    }
    assert!(nested_chunks > 10, "{nested_chunks} chunks of exceptions");
    assert!(
        Encoding::ALL.iter().all(|encoding| encodings_seen.get(encoding).is_some_and(|count| *count > 10)),
        "{encodings_seen:?}"
    );
}

#[test]
fn automatic_encodings_are_never_much_larger_than_plain() {
    let mut random = StdRng::seed_from_u64(12);
    for table in tables(12) {
        for Column { name, logical, array, .. } in columns(&table, 9000, &mut random) {
            let size = |choice| encode(&array, logical, choice).unwrap().len();
            let (automatic, plain) = (size(Choice::Auto), size(Choice::Plain));
            assert!(automatic <= plain + 256, "{name}: {automatic} bytes, plain {plain}");
        }
    }
}

/// Calls the read methods of a damaged chunk. They may return wrong results but must not panic, and Arrow must accept
/// the arrays.
fn read_damaged(bytes: &[u8], logical: LogicalType, model: &Model, predicates: &[ColumnPredicate]) {
    let rows = model.rows.len();
    let Ok(chunk) = Chunk::parse(Buffer::from(bytes), logical, rows) else { return };
    let _ = (chunk.check(), chunk.description(), chunk.decoded_bytes_per_row());
    let positions: Vec<u32> = (0..rows as u32).step_by(3).collect();
    for array in [chunk.decode(0..rows), chunk.decode(rows / 3..rows / 2), chunk.gather(&positions), chunk.gather(&[0])]
    {
        if logical.is_bytes() {
            array.to_data().validate_full().unwrap();
        }
    }
    for predicate in predicates {
        chunk.filter(predicate, rows / 5..rows, &mut Bitmap::all_set(rows));
        for extreme in [Extreme::Least, Extreme::Greatest] {
            if let Some(extremes) = chunk.extremes(extreme) {
                chunk.find_by_extremes(predicate, (extreme, &extremes), rows / 5..rows);
            }
        }
    }
    if let Some(entries) = chunk.dictionary() {
        entries.to_data().validate_full().unwrap();
        let flags = BooleanBuffer::collect_bool(entries.len(), |entry| entry % 3 == 0);
        chunk.filter_codes(&flags, true, 0..rows, &mut Bitmap::all_set(rows));
    }
}

/// Number of bytes of the head of a chunk that are damaged, one at a time, and as many of its body. Fewer in builds
/// without optimization, which are slow.
const DAMAGED_BYTES: usize = if cfg!(debug_assertions) { 8 } else { 60 };

#[test]
fn damaged_bytes_never_panic() {
    let mut random = StdRng::seed_from_u64(13);
    for (table_number, table) in tables(13).iter().enumerate() {
        // Every second table has chunks of several vectors, the others of less than one vector.
        for column in columns(table, [9, 1100][table_number % 2], &mut random) {
            check_damaged(&column, &mut random);
        }
    }
    for column in ordered_columns(&mut random).into_iter().step_by(3) {
        check_damaged(&column, &mut random);
    }
    // These columns are long enough that their exceptions are encoded as a nested chunk.
    let skewed = tables(13).into_iter().find(|table| table.name == "skewed").unwrap();
    for column in columns(&skewed, 16_000, &mut random) {
        let bytes = encode(&column.array, column.logical, Choice::Forced(Encoding::Patched)).unwrap();
        let chunk = Chunk::parse(bytes.into(), column.logical, 16_000).unwrap();
        assert!(chunk.description().contains("exceptions in"), "{}: {}", column.name, chunk.description());
        check_damaged(&column, &mut random);
    }
}

/// Encodes a column in every encoding, and reads damaged chunks.
fn check_damaged(column: &Column, random: &mut StdRng) {
    let Column { logical, array, model, predicates, .. } = column;
    let predicates: Vec<_> = predicates.iter().map(|(predicate, _)| predicate.clone()).step_by(3).collect();
    for choice in choices(*logical) {
        let Ok(bytes) = encode(array, *logical, choice) else { continue };
        let mut offsets: Vec<usize> = (0..64.min(DAMAGED_BYTES)).map(|_| random.random_range(0..64)).collect();
        let step = (bytes.len() - 64).div_ceil(DAMAGED_BYTES).max(1);
        offsets.extend((64..bytes.len()).step_by(step));
        for at in offsets {
            let mut damaged = bytes.clone();
            damaged[at] = match random.random_range(0..4) {
                0 => 0,
                1 => 255,
                2 => random.random(),
                _ => damaged[at] ^ 1 << random.random_range(0..8),
            };
            read_damaged(&damaged, *logical, model, &predicates);
        }
        read_damaged(&bytes[..random.random_range(0..bytes.len())], *logical, model, &predicates);
        let mut damaged = bytes.clone();
        damaged[64..].iter_mut().for_each(|byte| *byte = random.random());
        read_damaged(&damaged, *logical, model, &predicates);
    }
}

#[test]
fn a_chunk_without_nulls_has_no_null_mask() {
    // 1,024 numbers of 10 bits or of 8 bytes: only the head is added, whether or not the array has a null mask.
    let numbers = || (0..1024).map(|row| row * 7919 % 1024);
    let unmasked = arrow_array::Int64Array::from_iter_values(numbers());
    let masked =
        arrow_array::Int64Array::new(unmasked.values().clone(), Some(arrow_buffer::NullBuffer::new_valid(1024)));
    for array in [&(std::sync::Arc::new(unmasked) as ArrayRef), &(std::sync::Arc::new(masked) as ArrayRef)] {
        assert_eq!(encode(array, LogicalType::BigInt, Choice::Auto).unwrap().len(), 64 + 1280);
        assert_eq!(encode(array, LogicalType::BigInt, Choice::Plain).unwrap().len(), 64 + 8192);
    }
    // One null costs one bit per row. A chunk of nulls has only a head.
    let one_null: ArrayRef = std::sync::Arc::new(
        numbers().map(|number| (number != 7).then_some(number)).collect::<arrow_array::Int64Array>(),
    );
    assert_eq!(encode(&one_null, LogicalType::BigInt, Choice::Auto).unwrap().len(), 64 + 128 + 1280);
    let nulls = arrow_array::new_null_array(&LogicalType::BigInt.arrow(), 1024);
    assert_eq!(encode(&nulls, LogicalType::BigInt, Choice::Auto).unwrap().len(), 64);
}

#[test]
fn a_repeated_row_is_encoded_like_an_array_of_equal_rows() {
    let mut random = StdRng::seed_from_u64(71);
    let columns = tables(71).iter().flat_map(|table| columns(table, 1, &mut random)).collect::<Vec<_>>();
    for Column { name, logical, array, .. } in columns.iter().filter(|column| column.array.len() == 1) {
        for array in [Arc::clone(array), new_null_array(array.data_type(), 1)] {
            for rows in [1, 2, 1024, CHUNK_ROWS_MAX] {
                let equal_rows = take(&array, &UInt32Array::from(vec![0; rows]), None).unwrap();
                let expected = encode(&equal_rows, *logical, Choice::Forced(Encoding::Constant)).unwrap();
                assert_eq!(encode_repeated(&array, *logical, rows).unwrap(), expected, "{name}, {rows} rows");
            }
        }
    }
    let two = take(&columns[0].array, &UInt32Array::from(vec![0; 2]), None).unwrap();
    assert!(matches!(encode_repeated(&two, columns[0].logical, 5), Err(EncodeError::Rows { found: 2 })));
}

#[test]
fn text_with_shared_prefixes_is_front_coded() {
    let encoding = |text: &dyn Fn(usize) -> String| {
        let array: ArrayRef = std::sync::Arc::new(arrow_array::StringViewArray::from_iter_values((0..9000).map(text)));
        let bytes = encode(&array, LogicalType::Varchar, Choice::Auto).unwrap();
        let plain = encode(&array, LogicalType::Varchar, Choice::Plain).unwrap();
        assert!(bytes.len() <= plain.len());
        Chunk::parse(bytes.into(), LogicalType::Varchar, 9000).unwrap().encoding()
    };
    assert_eq!(encoding(&|row| format!("https://example.org/articles/2026/{:08}", row * 7)), Encoding::FrontCoded);
    // Text that differs at the front has no common prefixes, so FSST is smaller.
    let mixed = |row: usize| row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    assert_eq!(encoding(&|row| format!("{}/https://example.org/articles", mixed(row))), Encoding::Fsst);
}

#[test]
fn invalid_front_coded_text_affects_values_only_until_the_next_whole_one() {
    let texts: Vec<String> = (0..2000).map(|row| format!("some text {row:04}")).collect();
    let array: ArrayRef = std::sync::Arc::new(arrow_array::StringViewArray::from_iter_values(&texts));
    let mut bytes = encode(&array, LogicalType::Varchar, Choice::Forced(Encoding::FrontCoded)).unwrap();
    let at = bytes.windows(14).position(|window| window == b"some text 0032").unwrap();
    bytes[at] = 0xff;
    let chunk = Chunk::parse(bytes.into(), LogicalType::Varchar, texts.len()).unwrap();
    assert!(chunk.check().is_err());
    for (first, values) in [(0, chunk.decode(0..2000)), (30, chunk.gather(&(30..60).collect::<Vec<u32>>()))] {
        for (row, text) in texts.iter().enumerate().take(60).skip(30) {
            let expected = if (32..48).contains(&row) { "" } else { text };
            let found = datum_at(&values, LogicalType::Varchar, row - first).unwrap();
            assert_eq!(found.bytes(), Some(expected.as_bytes()), "row {row}");
        }
    }
}

#[test]
fn invalid_utf8_is_found_and_reads_as_empty() {
    let texts: Vec<String> = (0..2000).map(|row| format!("{:03} some text that repeats itself", row % 300)).collect();
    let array: ArrayRef = std::sync::Arc::new(arrow_array::StringViewArray::from_iter_values(&texts));
    for encoding in [Encoding::Plain, Encoding::Dictionary] {
        let mut bytes = encode(&array, LogicalType::Varchar, Choice::Forced(encoding)).unwrap();
        let at = bytes.windows(4).position(|window| window == b"005 ").unwrap();
        bytes[at] = 0xff;
        let chunk = Chunk::parse(bytes.into(), LogicalType::Varchar, texts.len()).unwrap();
        assert!(chunk.check().is_err());
        let values = chunk.decode(0..texts.len());
        let text = |row: u32| datum_at(&values, LogicalType::Varchar, row as usize).unwrap();
        assert_eq!(text(5).bytes(), Some(&b""[..]), "{encoding:?}");
        assert_eq!(text(6).bytes(), Some(texts[6].as_bytes()));
        assert_eq!(&chunk.gather(&[4, 5, 6]).slice(1, 1), &values.slice(5, 1));
    }
}

#[test]
fn arrays_that_cannot_be_encoded_are_rejected() {
    let numbers: ArrayRef = std::sync::Arc::new(arrow_array::Int32Array::from(vec![1, 2]));
    assert!(matches!(encode(&numbers, LogicalType::BigInt, Choice::Auto), Err(EncodeError::WrongType { .. })));
    assert_eq!(encode(&numbers.slice(0, 0), LogicalType::Integer, Choice::Auto), Err(EncodeError::Rows { found: 0 }));
    let negative: ArrayRef = std::sync::Arc::new(arrow_array::Int32Array::from(vec![1, -2]));
    let error = encode(&negative, LogicalType::Integer, Choice::Forced(Encoding::BitPacked)).unwrap_err();
    assert_eq!(error.to_string(), "encoding bit_packed is impossible: a number is negative");
    let decimals: ArrayRef = std::sync::Arc::new(arrow_array::Decimal128Array::from(vec![1_i128 << 90]));
    assert!(matches!(
        encode(&decimals, LogicalType::Decimal { precision: 12, scale: 2 }, Choice::Auto),
        Err(EncodeError::OutOfRange { .. })
    ));
}
