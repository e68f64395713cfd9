//! Search for rows of a table by the values of some columns, for many keys at once.
//!
//! ```text
//! pages    key entries of the delta (delta/keys.rs), or else the columns of all pages
//! blocks   predicates that all keys pass: sparse index, bounds, Bloom filters and CSB+-trees lead to few rows
//! both     the remaining rows are compared with the keys by a hash table of the keys
//! ```
//!
//! A segment is read once for all keys. NaN keys are the exception: they need a predicate of their own.

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
    known: Option<&'a Table>,
}

impl<'a> KeySearch<'a> {
    /// A search for keys of `columns`, given as column indexes of the table.
    pub fn new(table: &'a Table, columns: &'a [usize]) -> Self {
        Self { table, columns, known: None }
    }

    /// Excludes all rows that another version of the table has too, deleted there or not.
    #[must_use]
    pub fn but_rows_of(self, known: &'a Table) -> Self {
        Self { known: Some(known), ..self }
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
        let (columns, keys) = self.in_order(keys);
        let mut found = KeyMatches::new(&keys);
        match self.table.delta.key_entries(&columns) {
            Some(entries) => self.find_by_entries(entries, &mut found),
            None => self.find_in_pages(&columns, &mut found),
        }
        self.find_in_blocks(&columns, &keys, &mut found)?;
        Ok(found.ended())
    }

    /// Searches like [`KeySearch::find`], but only the rows that are in no block. Returns `None` if the delta has no
    /// key entries for these columns, because it would have to read all of these rows.
    pub fn find_outside_of_blocks(&self, keys: &[ArrayRef]) -> Option<Vec<(u32, RowId)>> {
        let (columns, keys) = self.in_order(keys);
        let entries = self.table.delta.key_entries(&columns)?;
        let mut found = KeyMatches::new(&keys);
        self.find_by_entries(entries, &mut found);
        Some(found.ended())
    }

    /// The columns and keys in the column order of a matching key of the delta, if there is one.
    fn in_order(&self, keys: &[ArrayRef]) -> (Vec<usize>, Vec<ArrayRef>) {
        self.order().iter().map(|index| (self.columns[*index], Arc::clone(&keys[*index]))).unzip()
    }

    fn order(&self) -> Vec<usize> {
        let index = |column: &usize| self.columns.iter().position(|known| known == column);
        let mut orders = self.table.delta.keys().filter(|key| key.len() == self.columns.len());
        let known = orders.find_map(|key| key.iter().map(index).collect::<Option<Vec<_>>>());
        known.unwrap_or_else(|| (0..self.columns.len()).collect())
    }

    /// Number of rows of a page, from the first, that the other version has too.
    fn known_rows(&self, page: ContainerId) -> usize {
        self.known.and_then(|known| known.delta.page(page)).map_or(0, DeltaPage::rows)
    }

    fn find_by_entries(&self, entries: &KeyEntries, found: &mut KeyMatches) {
        let hashes: HashSet<u64> = found.probe.hashes().collect();
        let mut pages: BTreeMap<ContainerId, Vec<u32>> = BTreeMap::new();
        for row in hashes.into_iter().flat_map(|hash| entries.rows(hash)) {
            if !self.table.delta.is_deleted(row) {
                pages.entry(row.container()).or_default().push(row.row().into());
            }
        }
        for (container, rows) in pages {
            let Some(page) = self.table.delta.page(container) else { continue };
            let known = self.known_rows(container) as u32;
            let rows: Vec<u32> = rows.into_iter().filter(|row| *row >= known && *row < page.rows() as u32).collect();
            // Cannot fail: the rows are within the page.
            let Ok(columns) = page.rows_at(entries.columns(), &rows) else { continue };
            found.add(&columns, |at| Some(RowId::new(container, 0, rows[at] as u16)));
        }
    }

    fn find_in_pages(&self, columns: &[usize], found: &mut KeyMatches) {
        for page in self.table.delta.pages() {
            let known = self.known_rows(page.id());
            if known >= page.rows() {
                continue;
            }
            let columns = page.columns(columns);
            let columns: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(known, page.rows() - known)).collect();
            let row = |at: usize| RowId::new(page.id(), 0, (known + at) as u16);
            found.add(&columns, |at| Some(row(at)).filter(|row| !self.table.delta.is_deleted(*row)));
        }
    }

    fn find_in_blocks(&self, columns: &[usize], keys: &[ArrayRef], found: &mut KeyMatches) -> Result<(), ReadError> {
        let known: HashSet<BlockId> = match self.known {
            Some(known) if Arc::ptr_eq(&known.blocks, &self.table.blocks) => return Ok(()),
            Some(known) => known.blocks.iter().map(|block| block.id()).collect(),
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
                if !known.contains(&file.id()) {
                    self.find_in_block(file, &counters, columns, &predicate, found)?;
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
        found: &mut KeyMatches,
    ) -> Result<(), ReadError> {
        let open = file.open(counters)?;
        let may_match = open.block().may_match(&open, &predicate.column_predicates);
        if !may_match.map_err(|error| open.locate(error))? {
            return Ok(());
        }
        let columns: Vec<ColumnIndex> = columns.iter().map(|column| ColumnIndex::from(*column)).collect();
        let mut report = ScanReport::default();
        let segments: Vec<usize> = (0..open.block().segments()).collect();
        let mut left = vec![];
        for together in segments.chunks(PrunedSegments::SEGMENTS_MAX) {
            let ruled_out = open.block().prune(&open, &predicate.column_predicates, together.iter().copied());
            left.extend(ruled_out.map_err(|error| open.locate(error))?.remaining());
        }
        for segment in left {
            let mut reader = self.table.open_segment(&open, segment);
            // Few rows have one of the keys, and comparing rows with a list of values costs more than the block
            // estimates.
            reader.always_use_indexes();
            let selection = reader.filter(predicate, &mut report).map_err(|error| open.locate(error))?;
            if selection.is_empty() {
                continue;
            }
            let arrays = reader.project(&selection, 0..selection.len(), &columns, &mut report);
            let arrays = arrays.map_err(|error| open.locate(error))?;
            found.add(&arrays, |at| row_of(&open, segment, selection.position(at)));
        }
        Ok(())
    }
}

/// The row id of a row of a block.
fn row_of(block: &OpenBlock, segment: usize, row: u32) -> Option<RowId> {
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
        let values = KeyValues::of(keys);
        let mut by_hash = HashTable::with_capacity(values.len());
        for key in 0..values.len() {
            if let Some(hash) = values.hash(key) {
                by_hash.insert_unique(hash, key as u32, |key| values.hash(*key as usize).unwrap_or_default());
            }
        }
        Self { probe: KeyProbe { values, by_hash }, rows: Vec::new() }
    }

    /// The rows found, ascending and distinct.
    fn ended(self) -> Vec<(u32, RowId)> {
        let mut rows = self.rows;
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Adds the rows of `columns` whose values equal one of the keys. `name` returns the row id of a row, or `None` to
    /// skip it.
    fn add(&mut self, columns: &[ArrayRef], name: impl Fn(usize) -> Option<RowId>) {
        let (values, probe) = (KeyValues::of(columns), &self.probe);
        for row in 0..values.len() {
            let Some(hash) = values.hash(row) else { continue };
            let mut same = probe.by_hash.iter_hash(hash).copied();
            let mut same = same.by_ref().filter(|key| values.equals(row, &probe.values, *key as usize)).peekable();
            if same.peek().is_some()
                && let Some(name) = name(row)
            {
                self.rows.extend(same.map(|key| (key, name)));
            }
        }
    }
}
