//! Search for rows of a table by the values of some columns, for many keys at once.
//!
//! ```text
//! pages    key entries of the delta (delta/keys.rs), or else the columns of all pages
//! blocks   predicates that all keys pass: sparse index, bounds, Bloom filters and CSB+-trees exclude most rows
//! both     the remaining rows are looked up in a hash table of the keys
//! ```
//!
//! A segment is read once for all keys. Only NaN keys need their own predicate.

mod predicates_of;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::ArrayRef;
use hashbrown::HashTable;
use taut_block::{PrunedSegments, ScanReport};
use taut_types::{ColumnIndex, Predicate};

use crate::delta::{ContainerId, DeltaPage, KeyEntries, RowId};
use crate::error::ReadError;
use crate::keys::KeyValues;
use crate::{BlockFile, BlockId, OpenBlock, ReadCounters, Table};

use predicates_of::predicates_of;

/// A search for the live rows of a table whose values equal one of several keys.
#[derive(Clone, Copy, Debug)]
pub struct KeySearch<'a> {
    table: &'a Table,
    columns: &'a [usize],
    excluded: Option<&'a Table>,
}

impl<'a> KeySearch<'a> {
    /// A search for keys of `columns`, given as column indexes of the table.
    pub fn new(table: &'a Table, columns: &'a [usize]) -> Self {
        Self { table, columns, excluded: None }
    }

    /// Excludes all rows that are also in another version of the table, even if they are deleted there.
    #[must_use]
    pub fn excluding_rows_of(self, excluded: &'a Table) -> Self {
        Self { excluded: Some(excluded), ..self }
    }

    /// The matching rows, each with the index of its key, in ascending order. Equal keys have the same rows. A key with
    /// a null has no rows.
    ///
    /// # Errors
    /// If a block cannot be read.
    ///
    /// # Panics
    /// If the keys are not columns of equal length with the Arrow types of the table's columns.
    pub fn find(&self, keys: &[ArrayRef]) -> Result<Vec<(u32, RowId)>, ReadError> {
        let (columns, keys) = self.in_index_order(keys);
        let mut matches = KeyMatches::new(&keys);
        match self.table.delta.key_entries(&columns) {
            Some(entries) => self.find_by_key_entries(entries, &mut matches),
            None => self.find_in_pages(&columns, &mut matches),
        }
        self.find_in_blocks(&columns, &keys, &mut matches)?;
        Ok(matches.into_sorted_rows())
    }

    /// Searches like [`KeySearch::find`], but only the rows that are in no block. Returns `None` if the delta has no
    /// key entries for these columns: the search would have to read all rows of the delta.
    pub fn find_outside_of_blocks(&self, keys: &[ArrayRef]) -> Option<Vec<(u32, RowId)>> {
        let (columns, keys) = self.in_index_order(keys);
        let entries = self.table.delta.key_entries(&columns)?;
        let mut matches = KeyMatches::new(&keys);
        self.find_by_key_entries(entries, &mut matches);
        Some(matches.into_sorted_rows())
    }

    /// The columns and keys, in the order of the delta's key on these columns if it has one.
    fn in_index_order(&self, keys: &[ArrayRef]) -> (Vec<usize>, Vec<ArrayRef>) {
        self.index_order().iter().map(|index| (self.columns[*index], Arc::clone(&keys[*index]))).unzip()
    }

    /// Indexes in `columns`, in the order of the delta's key on these columns if it has one.
    fn index_order(&self) -> Vec<usize> {
        let index = |column: &usize| self.columns.iter().position(|searched| searched == column);
        let mut orders = self.table.delta.keys().filter(|key| key.len() == self.columns.len());
        let order = orders.find_map(|key| key.iter().map(index).collect::<Option<Vec<_>>>());
        order.unwrap_or_else(|| (0..self.columns.len()).collect())
    }

    /// Number of rows at the start of a page that are also in the other version.
    fn excluded_rows(&self, page: ContainerId) -> usize {
        self.excluded.and_then(|excluded| excluded.delta.page(page)).map_or(0, DeltaPage::rows)
    }

    fn find_by_key_entries(&self, entries: &KeyEntries, matches: &mut KeyMatches) {
        let hashes: HashSet<u64> = matches.probe.hashes().collect();
        let mut pages: BTreeMap<ContainerId, Vec<u32>> = BTreeMap::new();
        for row in hashes.into_iter().flat_map(|hash| entries.rows(hash)) {
            if !self.table.delta.is_deleted(row) {
                pages.entry(row.container()).or_default().push(row.row().into());
            }
        }
        for (container, rows) in pages {
            let Some(page) = self.table.delta.page(container) else { continue };
            let excluded = self.excluded_rows(container) as u32;
            let rows: Vec<u32> = rows.into_iter().filter(|row| *row >= excluded && *row < page.rows() as u32).collect();
            // This cannot fail, because the rows are within the page.
            let Ok(columns) = page.rows_at(entries.columns(), &rows) else { continue };
            matches.add(&columns, |index| Some(RowId::new(container, 0, rows[index] as u16)));
        }
    }

    fn find_in_pages(&self, columns: &[usize], matches: &mut KeyMatches) {
        for page in self.table.delta.pages() {
            let excluded = self.excluded_rows(page.id());
            if excluded >= page.rows() {
                continue;
            }
            let columns = page.columns(columns);
            let columns: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(excluded, page.rows() - excluded)).collect();
            let row = |index: usize| RowId::new(page.id(), 0, (excluded + index) as u16);
            matches.add(&columns, |index| Some(row(index)).filter(|row| !self.table.delta.is_deleted(*row)));
        }
    }

    fn find_in_blocks(&self, columns: &[usize], keys: &[ArrayRef], matches: &mut KeyMatches) -> Result<(), ReadError> {
        let excluded: HashSet<BlockId> = match self.excluded {
            Some(excluded) if Arc::ptr_eq(&excluded.blocks, &self.table.blocks) => return Ok(()),
            Some(excluded) => excluded.blocks.iter().map(|block| block.id()).collect(),
            None => HashSet::new(),
        };
        if self.table.blocks.is_empty() {
            return Ok(());
        }
        let counters = ReadCounters::new();
        for column_predicates in predicates_of(self.table, columns, keys) {
            let predicate = Predicate { column_predicates, row_predicates: Vec::new() };
            for index in self.table.blocks_that_may_match(&predicate.column_predicates) {
                let file = &self.table.blocks[index];
                if !excluded.contains(&file.id()) {
                    self.find_in_block(file, &counters, columns, &predicate, matches)?;
                }
            }
        }
        Ok(())
    }

    fn find_in_block(
        &self,
        file: &Arc<BlockFile>,
        counters: &Arc<ReadCounters>,
        columns: &[usize],
        predicate: &Predicate,
        matches: &mut KeyMatches,
    ) -> Result<(), ReadError> {
        let open = file.open(counters)?;
        let may_match = open.block().may_match(&open, &predicate.column_predicates);
        if !may_match.map_err(|error| open.locate(error))? {
            return Ok(());
        }
        let columns: Vec<ColumnIndex> = columns.iter().map(|column| ColumnIndex::from(*column)).collect();
        let mut report = ScanReport::default();
        let segments: Vec<usize> = (0..open.block().segments()).collect();
        let mut remaining = vec![];
        for chunk in segments.chunks(PrunedSegments::SEGMENTS_MAX) {
            let pruned = open.block().prune(&open, &predicate.column_predicates, chunk.iter().copied());
            remaining.extend(pruned.map_err(|error| open.locate(error))?.remaining());
        }
        for segment in remaining {
            let mut reader = self.table.open_segment(&open, segment);
            // Indexes are used even if the block estimates that a scan is cheaper. Few rows have one of the keys, and
            // the estimate of a scan is too low for comparisons with a long list of values.
            reader.always_use_indexes();
            let selection = reader.filter(predicate, &mut report).map_err(|error| open.locate(error))?;
            if selection.is_empty() {
                continue;
            }
            let arrays = reader.project(&selection, 0..selection.len(), &columns, &mut report);
            let arrays = arrays.map_err(|error| open.locate(error))?;
            matches.add(&arrays, |index| row_id_in_block(&open, segment, selection.position(index)));
        }
        Ok(())
    }
}

/// The row id of a row of a block.
fn row_id_in_block(block: &OpenBlock, segment: usize, row: u32) -> Option<RowId> {
    let (container, segment) = (ContainerId::of(block.file().id())?, u16::try_from(segment).ok()?);
    // A segment has at most 65,536 rows.
    Some(RowId::new(container, segment, row as u16))
}

/// The keys to search for.
struct KeyProbe {
    values: KeyValues,
    /// Indexes of the keys without nulls, by their hashes.
    by_hash: HashTable<u32>,
}

impl KeyProbe {
    fn hashes(&self) -> impl Iterator<Item = u64> {
        (0..self.values.len()).filter_map(|key| self.values.hash(key))
    }
}

/// The rows found so far.
struct KeyMatches {
    probe: KeyProbe,
    rows: Vec<(u32, RowId)>,
}

impl KeyMatches {
    fn new(keys: &[ArrayRef]) -> Self {
        let values = KeyValues::from_columns(keys);
        let mut by_hash = HashTable::with_capacity(values.len());
        for key in 0..values.len() {
            if let Some(hash) = values.hash(key) {
                by_hash.insert_unique(hash, key as u32, |key| values.hash(*key as usize).unwrap_or_default());
            }
        }
        Self { probe: KeyProbe { values, by_hash }, rows: Vec::new() }
    }

    /// The rows found, ascending and distinct.
    fn into_sorted_rows(self) -> Vec<(u32, RowId)> {
        let mut rows = self.rows;
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Adds the rows of `columns` whose values equal one of the keys. `row_id` returns the row id of a row, or `None`
    /// to skip it.
    fn add(&mut self, columns: &[ArrayRef], row_id: impl Fn(usize) -> Option<RowId>) {
        let (values, probe) = (KeyValues::from_columns(columns), &self.probe);
        for row in 0..values.len() {
            let Some(hash) = values.hash(row) else { continue };
            let mut equal_keys = probe.by_hash.iter_hash(hash).copied();
            let mut equal_keys =
                equal_keys.by_ref().filter(|key| values.equals(row, &probe.values, *key as usize)).peekable();
            if equal_keys.peek().is_some()
                && let Some(row_id) = row_id(row)
            {
                self.rows.extend(equal_keys.map(|key| (key, row_id)));
            }
        }
    }
}
