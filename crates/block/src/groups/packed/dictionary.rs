//! Finds the distinct values of a column of packed rows, for its dictionary. Stops early if there are too many.

use std::hash::Hash;
use std::sync::Arc;

use arrow_array::BinaryViewArray;
use hashbrown::{HashMap, HashSet};

use crate::values::{ColumnValues, Datums};

/// Number of rows in the sample that is read first.
const SAMPLE_ROWS: usize = 1024;

/// Distinct values of a column, and a code for each row.
pub(crate) struct Distinct {
    /// For each distinct value, in ascending order: the first row with this value.
    pub rows: Vec<u32>,
    /// For each row, the ordinal of its value in `rows`. The code of a null row has no meaning.
    pub codes: Arc<Vec<u32>>,
}

/// Limits on a dictionary.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of entries.
    pub entries: usize,
    /// Maximum bytes of all entries without compression.
    pub bytes: usize,
    /// Whether to read a sample first, and to stop if more than half of its rows are distinct.
    pub sample: bool,
}

/// Finds the distinct values of a column. Returns `None` if they exceed the limits.
pub(crate) fn distinct(values: &ColumnValues, limits: Limits) -> Option<Distinct> {
    match &values.datums {
        Datums::Narrow(numbers) => {
            let entries = limits.entries.min(limits.bytes / values.logical.plain_bytes().unwrap_or(8).max(1));
            let mut found = collect_distinct(values, Limits { entries, ..limits }, |row| numbers[row])?;
            found.sort(|row| numbers[row as usize]);
            Some(found)
        }
        Datums::Wide(numbers) => {
            let entries = limits.entries.min(limits.bytes / size_of::<i128>());
            let mut found = collect_distinct(values, Limits { entries, ..limits }, |row| numbers[row])?;
            found.sort(|row| numbers[row as usize]);
            Some(found)
        }
        Datums::Bytes(views) => {
            let mut found = if views.data_buffers().is_empty() {
                collect_distinct(values, limits, |row| views.views()[row])?
            } else {
                collect_distinct(values, limits, |row| BytesKey::new(views, row))?
            };
            let bytes: usize = found.rows.iter().map(|row| views.value(*row as usize).len() + 4).sum();
            if bytes > limits.bytes {
                return None;
            }
            found.sort(|row| views.value(row as usize));
            Some(found)
        }
    }
}

/// Hash key of a byte string: its Arrow view if the view contains all bytes, else the bytes.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum BytesKey<'a> {
    Short(u128),
    Long(&'a [u8]),
}

impl<'a> BytesKey<'a> {
    fn new(views: &'a BinaryViewArray, row: usize) -> Self {
        let view = views.views()[row];
        if view as u32 <= 12 { Self::Short(view) } else { Self::Long(views.value(row)) }
    }
}

fn collect_distinct<K: Hash + Eq + Copy>(
    values: &ColumnValues,
    limits: Limits,
    key: impl Fn(usize) -> K,
) -> Option<Distinct> {
    let rows = values.rows();
    if limits.sample && rows > 2 * SAMPLE_ROWS {
        let sample: HashSet<K> = (0..SAMPLE_ROWS)
            .map(|index| index * rows / SAMPLE_ROWS)
            .filter(|row| !values.is_null(*row))
            .map(&key)
            .collect();
        if sample.len() > SAMPLE_ROWS / 2 || sample.len() > limits.entries {
            return None;
        }
    }
    let nulls = values.nulls();
    let mut code_of: HashMap<K, u32> = HashMap::new();
    let (mut first_rows, mut codes) = (vec![], Vec::with_capacity(rows));
    let mut last: Option<(K, u32)> = None;
    for row in 0..rows {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            codes.push(0);
            continue;
        }
        let row_key = key(row);
        if let Some((key, code)) = last
            && key == row_key
        {
            codes.push(code);
            continue;
        }
        // A segment has at most 65,536 rows.
        let next = first_rows.len() as u32;
        let code = *code_of.entry(row_key).or_insert(next);
        if code == next {
            if first_rows.len() == limits.entries {
                return None;
            }
            first_rows.push(row as u32);
        }
        codes.push(code);
        last = Some((row_key, code));
    }
    Some(Distinct { rows: first_rows, codes: Arc::new(codes) })
}

impl Distinct {
    /// Sorts the values and renumbers the codes.
    fn sort<K: Ord>(&mut self, key: impl Fn(u32) -> K) {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        order.sort_unstable_by_key(|code| key(self.rows[*code as usize]));
        let mut ranks = vec![0; order.len()];
        for (rank, code) in order.iter().enumerate() {
            ranks[*code as usize] = rank as u32;
        }
        self.rows = order.iter().map(|code| self.rows[*code as usize]).collect();
        if !ranks.is_empty() {
            Arc::make_mut(&mut self.codes).iter_mut().for_each(|code| *code = ranks[*code as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int32Array, StringViewArray};
    use taut_types::LogicalType;

    use super::*;

    const LIMITS: Limits = Limits { entries: 100, bytes: 1000, sample: true };

    #[test]
    fn codes_are_ranks() {
        let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(9), None, Some(-1), Some(9), Some(4)]));
        let found = distinct(&ColumnValues::new(array, LogicalType::Integer).unwrap(), LIMITS).unwrap();
        assert_eq!((found.rows, [0, 2, 3, 4].map(|row| found.codes[row])), (vec![2, 4, 0], [2, 0, 2, 1]));
        let text = ["b", "a longer value than a view holds", "b", "a"];
        let array: ArrayRef = Arc::new(StringViewArray::from(text.to_vec()));
        let values = ColumnValues::new(array, LogicalType::Varchar).unwrap();
        let found = distinct(&values, LIMITS).unwrap();
        assert_eq!((found.rows, &**found.codes), (vec![3, 1, 0], &[2, 1, 2, 0][..]));
        assert!(distinct(&values, Limits { bytes: 20, ..LIMITS }).is_none());
        assert!(distinct(&values, Limits { entries: 2, ..LIMITS }).is_none());
    }
}
