//! Encodes arbitrary values in every encoding: the result is an error, or a chunk whose read methods all return the
//! same values.
//!
//! ```text
//! byte 0    the type; bit 7: with nulls
//! byte 1    the encoding
//! then      steps: kind and length (u8 each), and a number (i16, little-endian) whose use depends on the kind
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_encoding::{Bitmap, Choice, Chunk, encode};
use taut_fuzz::{array, check_array, predicates, types};
use taut_types::{Encoding, datum_at};

/// Maximum number of rows: about two vectors, the last of them incomplete.
const ROWS_MAX: usize = 2_100;

/// Values that the steps of an input generate.
fn values(steps: &[u8], has_nulls: bool) -> Vec<Option<i64>> {
    let (mut values, mut last, mut step) = (Vec::new(), 0_i64, 1_i64);
    for [kind, length, low, high] in steps.as_chunks::<4>().0 {
        let number = i64::from(i16::from_le_bytes([*low, *high]));
        let count = usize::from(*length).min(ROWS_MAX - values.len());
        match kind % 6 {
            0 => last = number,
            1 => last = number << (kind >> 2),
            2 => step = number,
            3 => last = i64::MIN.wrapping_add(number),
            4 if has_nulls => {
                values.extend(std::iter::repeat_n(None, count));
                continue;
            }
            _ => {}
        }
        for row in 0..count as i64 {
            last = match kind >> 6 {
                0 => last,
                1 => last.wrapping_add(step),
                2 => last.wrapping_add(row % 3 * step),
                _ => last.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number) >> (kind & 31),
            };
            values.push(Some(last));
        }
    }
    values
}

fuzz_target!(|input: &[u8]| {
    let [types_and_nulls, choice, ref steps @ ..] = *input else { return };
    let logical = types()[usize::from(types_and_nulls & 127) % types().len()];
    let choices: Vec<Choice> =
        [Choice::Auto, Choice::Plain].into_iter().chain(Encoding::ALL.map(Choice::Forced)).collect();
    let values = values(steps, types_and_nulls > 127);
    if values.is_empty() {
        return;
    }
    let (array, rows) = (array(logical, &values), values.len());
    let Ok(bytes) = encode(&array, logical, choices[usize::from(choice) % choices.len()]) else { return };
    let chunk = Chunk::parse(bytes.into(), logical, rows).expect("what was encoded can be parsed");
    chunk.check().expect("what was encoded is sound");
    let all = chunk.decode(0..rows);
    check_array(&all, logical, rows);
    let what = chunk.description();
    for row in 0..rows {
        assert_eq!(datum_at(&all, logical, row), datum_at(&array, logical, row), "row {row} of {logical} as {what}");
    }
    let (from, to) = (rows / 3, rows - rows / 4);
    let part = chunk.decode(from..to);
    let positions: Vec<u32> = (0..rows as u32).filter(|row| row % 7 == 2).collect();
    let gathered = chunk.gather(&positions);
    for row in from..to {
        assert_eq!(datum_at(&part, logical, row - from), datum_at(&array, logical, row), "part of {logical} as {what}");
    }
    for (index, row) in positions.iter().enumerate() {
        assert_eq!(
            datum_at(&gathered, logical, index),
            datum_at(&array, logical, *row as usize),
            "{logical} as {what}"
        );
    }
    for predicate in predicates(0, logical) {
        let mut selection = Bitmap::all_set(rows);
        chunk.filter(&predicate, from..rows, &mut selection);
        for row in from..rows {
            let admitted = predicate.admits(datum_at(&array, logical, row).as_ref());
            assert_eq!(selection.get(row), admitted, "{predicate:?} at row {row} of {logical} as {what}");
        }
    }
});
