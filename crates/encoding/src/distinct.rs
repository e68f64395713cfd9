//! Sorted distinct values of a column. The code of each row is the index of its value among them.
//!
//! Values are found in a hash table with open addressing. The caller limits the number of distinct values, and the pass
//! over the values stops when there are more.

use arrow_array::{Array, BinaryViewArray};

use crate::kernels::Native;

/// Sorted distinct values, and for each row the index of its value.
#[derive(Clone, Debug)]
pub(crate) struct Distinct<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) codes: Vec<i32>,
}

/// Factor of hashes: an odd number with evenly spread bits, derived from the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const INLINE_BYTES_MAX: u32 = 12;

/// Both halves of a 128-bit product, combined by XOR. Every bit of the factors affects every bit of the result.
#[inline(always)]
fn fold_product(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// Hash table of indexes into a list of entries. The caller holds the list.
struct IndexTable {
    /// One more than the index of the entry, 0 if the slot is free. The number of slots is a power of two.
    slots: Vec<u32>,
    hashes: Vec<u64>,
}

impl IndexTable {
    fn new() -> Self {
        Self { slots: vec![0; 1024], hashes: vec![] }
    }

    /// Returns the index of the entry that has this hash and for which `is_same` returns true. If there is none,
    /// inserts an entry and returns `None`.
    #[inline(always)]
    fn find_or_insert(&mut self, hash: u64, is_same: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = (hash >> 20) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => break,
                stored => {
                    let index = stored as usize - 1;
                    if self.hashes[index] == hash && is_same(index) {
                        return Some(index);
                    }
                }
            }
            slot = (slot + 1) & mask;
        }
        self.hashes.push(hash);
        // A column has at most 2^16 rows.
        self.slots[slot] = self.hashes.len() as u32;
        if self.hashes.len() * 2 > self.slots.len() {
            self.grow();
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        self.slots = vec![0; mask + 1];
        for (index, hash) in self.hashes.iter().enumerate() {
            let mut slot = (hash >> 20) as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = index as u32 + 1;
        }
    }
}

/// Distinct numbers. Returns `None` if there are more than `entries_max`.
pub(crate) fn of_numbers<N: Native>(values: &[N], entries_max: usize) -> Option<Distinct<N>> {
    let (mut entries, mut codes) = (Vec::<N>::new(), Vec::with_capacity(values.len()));
    let mut table = IndexTable::new();
    let mut last: Option<(N, i32)> = None;
    for value in values {
        let code = match last {
            Some((last_value, code)) if last_value == *value => code,
            _ => {
                let number = value.to_number();
                let hash = fold_product(number as u64 ^ MIX, (number >> 64) as u64 ^ MIX);
                let index = table.find_or_insert(hash, |index| entries[index] == *value).unwrap_or_else(|| {
                    entries.push(*value);
                    entries.len() - 1
                });
                index as i32
            }
        };
        if entries.len() > entries_max {
            return None;
        }
        last = Some((*value, code));
        codes.push(code);
    }
    Some(sorted(entries, codes, |left, right| left.cmp(right)))
}

/// Distinct values of the rows that are not null. Each value is represented by its first row. Returns `None` if there
/// are more than `entries_max`. A null row gets the code of the previous row. At least one row must not be null.
pub(crate) fn of_bytes(array: &BinaryViewArray, entries_max: usize) -> Option<Distinct<u32>> {
    let (mut entries, mut codes) = (Vec::<u32>::new(), Vec::with_capacity(array.len()));
    let mut table = IndexTable::new();
    let views = array.views();
    let mut last = (0, 0);
    for (row, view) in views.iter().enumerate() {
        if array.is_null(row) {
            codes.push(last.1);
            continue;
        }
        if last.0 != *view || entries.is_empty() {
            let is_same = |index: usize| is_same_value(array, *view, row, entries[index] as usize);
            let index = table.find_or_insert(hash_of(array, *view, row), is_same).unwrap_or_else(|| {
                entries.push(row as u32);
                entries.len() - 1
            });
            last = (*view, index as i32);
        }
        if entries.len() > entries_max {
            return None;
        }
        codes.push(last.1);
    }
    let value = |row: &u32| array.value(*row as usize);
    // The eight bytes after the prefix that all entries share decide most comparisons.
    let first = entries.first().map_or(&[][..], value);
    let shared =
        entries.iter().map(|row| first.iter().zip(value(row)).take_while(|(left, right)| left == right).count());
    let shared = shared.min().unwrap_or(0);
    let prefixed: Vec<(u64, u32)> = entries.iter().map(|row| (prefix(&value(row)[shared..]), *row)).collect();
    let compare =
        |left: &(u64, u32), right: &(u64, u32)| left.0.cmp(&right.0).then_with(|| value(&left.1).cmp(value(&right.1)));
    let Distinct { entries, codes } = sorted(prefixed, codes, compare);
    Some(Distinct { entries: entries.into_iter().map(|(_, row)| row).collect(), codes })
}

/// First eight bytes of a value as a number, padded with zeros. Two values compare like their numbers, unless the
/// numbers are equal.
#[inline(always)]
pub(crate) fn prefix(value: &[u8]) -> u64 {
    match value.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => value.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

/// Number of distinct values of some rows. Skips null rows.
pub(crate) fn count_of_bytes(array: &BinaryViewArray, rows: impl Iterator<Item = usize>) -> usize {
    let mut table = IndexTable::new();
    let mut entries: Vec<usize> = vec![];
    for row in rows.filter(|row| !array.is_null(*row)) {
        let view = array.views()[row];
        let is_same = |index: usize| is_same_value(array, view, row, entries[index]);
        if table.find_or_insert(hash_of(array, view, row), is_same).is_none() {
            entries.push(row);
        }
    }
    entries.len()
}

/// Whether the values of two rows are equal. `view` is the view of `row`.
#[inline(always)]
fn is_same_value(array: &BinaryViewArray, view: u128, row: usize, other: usize) -> bool {
    let other_view = array.views()[other];
    if view as u32 <= INLINE_BYTES_MAX {
        return view == other_view;
    }
    // The lower half of a view holds the length and the first four bytes.
    view as u64 == other_view as u64 && array.value(row) == array.value(other)
}

#[inline(always)]
fn hash_of(array: &BinaryViewArray, view: u128, row: usize) -> u64 {
    if view as u32 <= INLINE_BYTES_MAX {
        return fold_product(view as u64 ^ MIX, (view >> 64) as u64 ^ MIX.rotate_left(32));
    }
    let bytes = array.value(row);
    let mut hash = bytes.len() as u64 ^ MIX;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold_product(u64::from_le_bytes(*word) ^ hash, MIX.rotate_left(32));
    }
    // The value has more than twelve bytes, so the last eight exist. They may overlap bytes that are already hashed.
    match bytes.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => fold_product(u64::from_le_bytes(*last) ^ hash, MIX.rotate_left(17)),
        _ => hash,
    }
}

/// Sorts the entries and renumbers the codes to match.
fn sorted<T: Copy>(
    entries: Vec<T>,
    mut codes: Vec<i32>,
    mut compare: impl FnMut(&T, &T) -> std::cmp::Ordering,
) -> Distinct<T> {
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    order.sort_unstable_by(|left, right| compare(&entries[*left as usize], &entries[*right as usize]));
    let mut ranks = vec![0_i32; entries.len()];
    for (rank, index) in order.iter().enumerate() {
        ranks[*index as usize] = rank as i32;
    }
    codes.iter_mut().for_each(|code| *code = ranks[*code as usize]);
    Distinct { entries: order.iter().map(|index| entries[*index as usize]).collect(), codes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_numbers_round_trip() {
        let values: Vec<i64> = (0..20_000).map(|row: i64| (row * 7919) % 3001 - 1500).collect();
        let distinct = of_numbers(&values, 3001).unwrap();
        assert_eq!(distinct.entries, (-1500..=1500).collect::<Vec<i64>>());
        for (value, code) in values.iter().zip(&distinct.codes) {
            assert_eq!(distinct.entries[*code as usize], *value);
        }
        assert!(of_numbers(&values, 3000).is_none());
    }

    #[test]
    fn codes_of_bytes_round_trip() {
        let text = |row: usize| format!("{}{}", "long enough not to be inline "[..row % 29].to_owned(), row % 37);
        let values: Vec<Option<Vec<u8>>> =
            (0..9000).map(|row| (row % 11 != 0).then(|| text(row).into_bytes())).collect();
        let array = BinaryViewArray::from_iter(values.iter().map(|value| value.as_deref()));
        let distinct = of_bytes(&array, 9000).unwrap();
        let entries: Vec<&[u8]> = distinct.entries.iter().map(|row| array.value(*row as usize)).collect();
        assert!(entries.is_sorted_by(|left, right| left < right));
        for (row, value) in values.iter().enumerate() {
            if let Some(value) = value {
                assert_eq!(entries[distinct.codes[row] as usize], value, "row {row}");
            }
        }
        assert_eq!(count_of_bytes(&array, 0..array.len()), entries.len());
        assert!(of_bytes(&array, entries.len() - 1).is_none());
    }
}
