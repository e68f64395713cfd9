//! Decodes arbitrary bytes as a chunk: parsing fails, or the chunk returns valid Arrow data and predicates agree with
//! it.
//!
//! ```text
//! byte 0    0: the rest of the input is a chunk
//!           n: the rest damages the valid chunk with index n - 1 + 255 * (high 4 bits of byte 1), modulo their count
//! byte 1    for a chunk: its type (high 4 bits) and its number of rows (1 + 300 * low 4 bits)
//!           for damage: bit 0 truncates the chunk
//! then      the chunk, or its damage: see `taut_fuzz::damaged`
//! ```

#![no_main]

use std::sync::OnceLock;

use arrow_array::Array;
use libfuzzer_sys::fuzz_target;
use taut_encoding::{Bitmap, Choice, Chunk, Extreme, encode};
use taut_fuzz::{Shape, check_array, column, damaged, predicates, types};
use taut_types::{DatumPredicate, Encoding, LogicalType, datum_at};

/// Rows of a valid chunk: more than two vectors, the last of them incomplete.
const ROWS: usize = 2_500;

struct ValidChunk {
    logical: LogicalType,
    bytes: Vec<u8>,
}

/// One valid chunk for each compatible combination of type, shape and encoding.
fn valid_chunks() -> &'static [ValidChunk] {
    static VALID: OnceLock<Vec<ValidChunk>> = OnceLock::new();
    VALID.get_or_init(|| {
        let choices = || [Choice::Auto, Choice::Plain].into_iter().chain(Encoding::ALL.map(Choice::Forced));
        let mut valid = Vec::new();
        for logical in types() {
            for shape in Shape::ALL {
                let array = column(logical, shape, ROWS);
                valid.extend(choices().filter_map(|choice| {
                    let bytes = encode(&array, logical, choice).ok()?;
                    Some(ValidChunk { logical, bytes })
                }));
            }
        }
        valid
    })
}

fuzz_target!(|input: &[u8]| {
    let [first_byte, flags, ..] = *input else { return };
    // There are more valid chunks than values of one byte.
    let valid_index = |start: usize| (start + 255 * usize::from(flags >> 4)) % valid_chunks().len();
    let Some(bytes) = damaged(input, |start| &valid_chunks()[valid_index(start)].bytes) else { return };
    let (logical, rows) = match usize::from(first_byte).checked_sub(1) {
        Some(start) => (valid_chunks()[valid_index(start)].logical, ROWS),
        None => (types()[usize::from(flags >> 4) % types().len()], 1 + usize::from(flags & 15) * 300),
    };
    let Ok(chunk) = Chunk::parse(bytes.clone().into(), logical, rows) else { return };
    assert_eq!(chunk.rows(), rows);
    assert!(!chunk.description().is_empty());
    let all = chunk.decode(0..rows);
    check_array(&all, logical, rows);
    check_array(&chunk.decode(rows / 3..rows / 2), logical, rows / 2 - rows / 3);
    let positions: Vec<u32> = (0..rows as u32).filter(|row| row % 7 == 2).collect();
    let gathered = chunk.gather(&positions);
    check_array(&gathered, logical, positions.len());
    // Damaged bytes may fail the check, but it must not panic.
    let _ = chunk.check();
    // Read methods may return different values for damaged bytes, but not for valid ones.
    let is_sound = valid_chunks().iter().any(|valid| valid.logical == logical && valid.bytes == bytes);
    for (index, row) in positions.iter().enumerate().filter(|_| is_sound) {
        assert_eq!(datum_at(&gathered, logical, index), datum_at(&all, logical, *row as usize), "row {row}");
    }
    if let Some(dictionary) = chunk.dictionary() {
        check_array(&dictionary, logical, dictionary.len());
    }
    // Search requires ascending values without nulls. For other values it may return any ranges of rows.
    let datums = || (0..rows).map(|row| datum_at(&all, logical, row));
    let is_ascending = is_sound && datums().all(|datum| datum.is_some()) && datums().is_sorted();
    for predicate in predicates(0, logical) {
        let mut selection = Bitmap::all_set(rows);
        chunk.filter(&predicate, 0..rows, &mut selection);
        let mut selected = Bitmap::none(0);
        chunk.select_passing(&predicate, &mut selected);
        assert_eq!(selected, selection, "{predicate:?} on {logical} as {}", chunk.description());
        for extreme in [Extreme::Least, Extreme::Greatest] {
            let Some(extremes) = chunk.extremes(extreme) else { continue };
            if let Some((found, _)) = chunk.find_by_extremes(&predicate, (extreme, &extremes), 0..rows) {
                assert_eq!(found, selection.positions(), "{predicate:?} on {logical} as {}", chunk.description());
            }
        }
        let is_searchable = !predicate.negated && predicate.condition != DatumPredicate::Null;
        if let Some(ranges) = is_searchable.then(|| chunk.search(&predicate.condition, 0..rows)).flatten() {
            assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= rows), "{ranges:?}");
            let found: Vec<u32> = ranges.into_iter().flatten().map(|row| row as u32).collect();
            assert!(
                !is_ascending || found == selection.positions(),
                "{predicate:?} on {logical} as {}",
                chunk.description()
            );
        }
        let positions = selection.positions();
        if let Some(selected) = chunk.select(&selection, positions.len()) {
            check_array(&selected, logical, positions.len());
            for (index, row) in positions.iter().enumerate().filter(|_| is_sound) {
                assert_eq!(datum_at(&selected, logical, index), datum_at(&all, logical, *row as usize), "row {row}");
            }
        }
        if is_sound {
            for row in (0..rows).step_by(13) {
                let admitted = predicate.admits(datum_at(&all, logical, row).as_ref());
                assert_eq!(
                    selection.get(row),
                    admitted,
                    "{predicate:?} at row {row} of {logical} as {}",
                    chunk.description()
                );
            }
        }
    }
});
