//! Key entries of a delta: pairs of a hash and a row id, in sorted runs.
//!
//! ```text
//! runs    |----------------|  |--------|  |---|  |-|      each at least twice as long as the next one
//! added                                            |-|    merged with the last runs until each is long enough
//! ```
//!
//! This is the logarithmic method (Bentley & Saxe 1980): each row costs O(log n) moved entries over time, and a lookup
//! searches O(log n) runs. Runs never change, so versions of a delta share them. A merge drops entries of deleted rows,
//! so a row that is updated often has few entries.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::RowId;
use crate::keys::KeyValues;

/// Hash of a key without nulls, and its row.
type Entry = (u64, RowId);

/// The entries of one key.
#[derive(Clone, Debug)]
pub(crate) struct KeyEntries {
    columns: Arc<[usize]>,
    runs: Vec<Arc<[Entry]>>,
}

impl KeyEntries {
    /// A key without entries. Its columns are given by their indexes in the table.
    pub fn new(columns: &[usize]) -> Self {
        Self { columns: columns.into(), runs: Vec::new() }
    }

    /// Columns of the key, by their indexes in the table.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Adds consecutive rows of a page, from row `first` on. A merge of runs drops the rows for which `is_deleted`
    /// returns true.
    pub fn add(&mut self, columns: &[ArrayRef], first: RowId, is_deleted: impl Fn(RowId) -> bool) {
        let values = KeyValues::from_columns(columns);
        let rows = (0..values.len()).filter_map(|row| Some((values.hash(row)?, RowId(first.0 + row as u64))));
        let mut added: Vec<Entry> = rows.collect();
        added.sort_unstable();
        self.push(added.into(), is_deleted);
    }

    /// Adds a run. Merges it with the last runs, from the end, as long as a run is less than twice as long as the runs
    /// after it together. Drops deleted rows in the merge.
    fn push(&mut self, run: Arc<[Entry]>, is_deleted: impl Fn(RowId) -> bool) {
        let mut total = run.len();
        if total == 0 {
            return;
        }
        let is_merged = |run: &&Arc<[Entry]>| {
            let is_short = run.len() < 2 * total;
            total += if is_short { run.len() } else { 0 };
            is_short
        };
        let merged = self.runs.iter().rev().take_while(is_merged).count();
        let mut parts = self.runs.split_off(self.runs.len() - merged);
        if parts.is_empty() {
            return self.runs.push(run);
        }
        parts.push(run);
        let mut entries = parts.concat();
        entries.retain(|(_, row)| !is_deleted(*row));
        // A stable sort detects the sorted runs and merges them.
        entries.sort();
        if !entries.is_empty() {
            self.runs.push(entries.into());
        }
    }

    /// Removes the entries of rows for which `is_kept` returns false.
    pub fn retain(&mut self, is_kept: impl Fn(RowId) -> bool) {
        for run in std::mem::take(&mut self.runs) {
            let is_whole = run.iter().all(|(_, row)| is_kept(*row));
            let kept = || run.iter().filter(|(_, row)| is_kept(*row)).copied().collect();
            self.push(if is_whole { Arc::clone(&run) } else { kept() }, |row| !is_kept(row));
        }
    }

    /// The rows whose keys have the given hash.
    pub fn rows(&self, hash: u64) -> impl Iterator<Item = RowId> {
        self.runs.iter().flat_map(move |run| {
            let first = run.partition_point(|(other, _)| *other < hash);
            run[first..].iter().take_while(move |(other, _)| *other == hash).map(|(_, row)| *row)
        })
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| size_of_val::<[Entry]>(run)).sum()
    }

    #[cfg(test)]
    pub fn run_lengths(&self) -> Vec<usize> {
        self.runs.iter().map(|run| run.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow_array::{Array, Int64Array, RecordBatch, StringViewArray};
    use taut_testkit::Random;
    use taut_types::{Column, LogicalType, Schema};

    use super::*;
    use crate::delta::Delta;
    use crate::keys::key_hashes;

    const KEYS: [&[usize]; 3] = [&[0], &[1, 0], &[2]];

    fn schema() -> Schema {
        let column = |name, logical_type| Column::new(name, logical_type, true);
        let numbers = [column("a", LogicalType::BigInt), column("b", LogicalType::BigInt)];
        Schema::new(numbers.into_iter().chain([column("c", LogicalType::Varchar)]).collect()).unwrap()
    }

    /// Between one and `most` rows with few distinct values, some of them null.
    fn rows(random: &mut Random, most: usize) -> RecordBatch {
        let count = 1 + random.below(most);
        let mut numbers =
            || (0..count).map(|_| Some(random.below(40) as i64).filter(|n| *n > 0)).collect::<Int64Array>();
        let (a, b) = (numbers(), numbers());
        let text = |n: Option<i64>| n.map(|n| format!("a text of {n} that is not short"));
        let c: StringViewArray = b.iter().map(text).collect();
        RecordBatch::try_new(schema().arrow(), vec![Arc::new(a), Arc::new(b), Arc::new(c)]).unwrap()
    }

    fn append(delta: &mut Delta, next: &mut u32, rows: RecordBatch, may_grow: bool) {
        crate::delta::tests::append(delta, &schema(), next, rows, may_grow);
    }

    /// The expected entries: all rows of pages without nulls in a key, deleted ones included.
    fn expected(delta: &Delta, key: &[usize]) -> BTreeSet<Entry> {
        let of_page = |page: &crate::DeltaPage| {
            let hashes = key_hashes(&page.columns(key)).into_iter().zip(0..);
            let id = page.id();
            hashes.filter_map(move |(hash, row)| Some((hash?, RowId::new(id, 0, row)))).collect::<Vec<_>>()
        };
        delta.pages().iter().flat_map(of_page).collect()
    }

    fn check(delta: &Delta, context: &str) {
        let mut bytes = 0;
        for key in KEYS {
            let (entries, expected) = (delta.key_entries(key).unwrap(), expected(delta, key));
            let live: BTreeSet<Entry> = expected.iter().copied().filter(|(_, row)| !delta.is_deleted(*row)).collect();
            let lengths = entries.run_lengths();
            let count = lengths.iter().sum::<usize>();
            assert!(lengths.windows(2).all(|pair| pair[0] >= 2 * pair[1]), "{context}: {lengths:?}");
            let hashes: BTreeSet<u64> = expected.iter().map(|(hash, _)| *hash).chain([0, u64::MAX]).collect();
            let found = hashes.iter().flat_map(|hash| entries.rows(*hash).map(|row| (*hash, row)));
            let found = found.collect::<BTreeSet<_>>();
            assert!(found.len() == count && found.is_subset(&expected), "{context}: {key:?}");
            assert!(found.is_superset(&live), "{context}: {key:?}");
            // An entry has a hash and a row id, of eight bytes each.
            bytes += 16 * count;
        }
        assert_eq!(delta.page_bytes() - delta.page_bytes, bytes, "{context}");
    }

    #[test]
    fn every_version_has_the_entries_of_its_rows() {
        for seed in 0..8 {
            let (mut random, mut next) = (Random(seed), 0);
            let mut first = Delta::default();
            append(&mut first, &mut next, rows(&mut random, 100), true);
            first.set_keys(KEYS);
            let mut versions = vec![first];
            for step in 0..40 {
                // Usually the newest version changes, sometimes an older one.
                let of = if random.below(4) > 0 { versions.len() - 1 } else { random.below(versions.len()) };
                let (mut delta, context) = (versions[of].clone(), format!("seed {seed}, step {step}"));
                match random.below(8) {
                    0 => {
                        let removed = random.below(3);
                        delta.remove_pages(|page| page.0 as usize % 3 == removed);
                    }
                    1 => {
                        let other = &versions[random.below(versions.len())];
                        let pages: Vec<_> =
                            other.pages().iter().filter(|page| delta.page(page.id()).is_none()).collect();
                        pages.into_iter().take(2).for_each(|page| delta.add_page(page));
                    }
                    2 => {
                        let rows = rows(&mut random, 2_000);
                        append(&mut delta, &mut next, rows, true);
                    }
                    3 => {
                        let page = delta.pages().last().map(crate::DeltaPage::id);
                        page.into_iter().for_each(|page| delta.delete(page, 0, &[0].into_iter().collect()));
                    }
                    _ => {
                        let (rows, grows) = (rows(&mut random, 3), random.below(5) > 0);
                        append(&mut delta, &mut next, rows, grows);
                    }
                }
                check(&delta, &context);
                versions.push(delta);
            }
            versions.iter().step_by(5).for_each(|delta| check(delta, &format!("seed {seed}, at last")));
        }
    }

    #[test]
    fn a_row_updated_repeatedly_has_few_entries() {
        let (mut delta, mut next) = (Delta::default(), 0);
        delta.set_keys([KEYS[0]]);
        let row = |key: i64| {
            let numbers = || Arc::new(Int64Array::from(vec![key]));
            let text = StringViewArray::from(vec!["a text"]);
            RecordBatch::try_new(schema().arrow(), vec![numbers(), numbers(), Arc::new(text)]).unwrap()
        };
        (0..100).for_each(|key| append(&mut delta, &mut next, row(key), true));
        let hash = key_hashes(&[Arc::new(Int64Array::from(vec![7]))])[0].unwrap();
        for update in 0..5_000 {
            let found: Vec<RowId> = delta.key_entries(KEYS[0]).unwrap().rows(hash).collect();
            assert!(found.len() < 16, "{} entries after {update} updates", found.len());
            let live: Vec<RowId> = found.into_iter().filter(|row| !delta.is_deleted(*row)).collect();
            let [live] = live.as_slice() else { panic!("{live:?} after {update} updates") };
            delta.delete(live.container(), 0, &[u32::from(live.row())].into_iter().collect());
            append(&mut delta, &mut next, row(7), true);
        }
    }

    #[test]
    fn keys_outlive_the_rows_and_are_replaced_as_a_whole() {
        let (mut delta, mut next) = (Delta::default(), 0);
        delta.set_keys(KEYS);
        append(&mut delta, &mut next, rows(&mut Random(1), 50), true);
        let mut empty = delta.without_rows();
        assert!(empty.is_empty() && empty.keys().eq(KEYS));
        append(&mut empty, &mut next, rows(&mut Random(2), 10), true);
        check(&empty, "after all rows were removed");
        delta.set_keys([KEYS[2]]);
        assert!(delta.keys().eq([KEYS[2]]) && delta.key_entries(KEYS[0]).is_none());
        let texts = delta.pages()[0].columns(&[2]).remove(0);
        assert_eq!(delta.key_entries(KEYS[2]).unwrap().run_lengths(), [texts.len() - texts.null_count()]);
    }

    #[test]
    fn inserting_a_row_moves_few_entries() {
        let mut entries = KeyEntries::new(&[0]);
        let mut moved = 0;
        for row in 0..10_000_u64 {
            let before = entries.runs.clone();
            let column: ArrayRef = Arc::new(Int64Array::from(vec![row as i64]));
            entries.add(&[column], RowId(row), |_| false);
            let new = entries.runs.iter().filter(|run| !before.iter().any(|known| Arc::ptr_eq(known, run)));
            moved += new.map(|run| run.len()).sum::<usize>();
        }
        // The binary logarithm of 10,000 is 13.3: at most 14 runs, and each entry is moved at most 14 times.
        assert!(entries.run_lengths().len() <= 14 && moved <= 14 * 10_000, "{moved}: {:?}", entries.run_lengths());
    }
}
