//! The read set of a serializable transaction, and whether others have changed any of it.
//!
//! ```text
//! read      for each table: all rows, or the rows that pass one of several conjunctions, also if inserted later
//! changed   rows that are in only one of two versions of the table: inserted or deleted since
//! ```
//!
//! A transaction may commit if no changed row is in its read set. An update is a deletion and an insertion, so an
//! updated row is in the read set if its old or its new version is. If it is not known which rows were changed, for
//! example because they were relocated to other blocks meanwhile, all rows are treated as changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow_array::ArrayRef;
use roaring::RoaringBitmap;
use taut_block::{ScanReport, Selection};
use taut_types::{ColumnIndex, ColumnPredicate, datum_at};

use crate::delta::{ContainerId, DeltaPage};
use crate::error::ReadError;
use crate::{BlockFile, BlockId, Catalog, CommitError, ReadCounters, Table, TableId};

/// Maximum number of conjunctions per table. A transaction with more is treated as a reader of the whole table.
const CONJUNCTIONS_MAX: usize = 1_000;
/// Maximum number of comparisons per table: changed rows and new blocks, times conjunctions. There is a limit because
/// other commits may wait meanwhile.
const COMPARISONS_MAX: usize = 400_000;
/// Maximum number of segments that are read for rows deleted from blocks.
const SEGMENTS_MAX: usize = 64;

/// Read set of a transaction.
#[derive(Debug, Default)]
pub(super) struct ReadSet(BTreeMap<TableId, TableReads>);

#[derive(Debug, Default)]
struct TableReads {
    /// Number of reads of the whole table.
    whole_table_reads: usize,
    /// If `whole_table_reads` is zero, only the rows that pass all predicates of one of these conjunctions are read.
    conjunctions: Vec<Vec<ColumnPredicate>>,
}

impl ReadSet {
    /// Adds all rows of a table.
    pub fn add_table(&mut self, table: TableId) {
        self.0.entry(table).or_default().whole_table_reads += 1;
    }

    /// Adds the rows that pass all of `predicates`.
    pub fn add(&mut self, table: TableId, predicates: Vec<ColumnPredicate>) {
        let reads = self.0.entry(table).or_default();
        match predicates.is_empty() || reads.conjunctions.len() >= CONJUNCTIONS_MAX {
            true => reads.whole_table_reads += 1,
            false if reads.conjunctions.contains(&predicates) => {}
            false => reads.conjunctions.push(predicates),
        }
    }

    /// Undoes `times` calls of [`ReadSet::add_table`] for a table.
    pub fn remove_table(&mut self, table: TableId, times: usize) {
        if let Some(reads) = self.0.get_mut(&table) {
            reads.whole_table_reads = reads.whole_table_reads.saturating_sub(times);
        }
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that nothing in the read set has changed between `base` and `newest`.
    ///
    /// # Errors
    /// If another transaction has changed part of the read set.
    pub fn check(&self, base: &Catalog, newest: &Catalog) -> Result<(), CommitError> {
        for (table, reads) in &self.0 {
            let Some(before) = base.table_of(*table) else { continue };
            let is_same = newest.table_of(*table).is_some_and(|newest| {
                // A plan may depend on constraints, and predicates name columns by their indexes.
                (&newest.name, &newest.constraints, &newest.schema)
                    == (&before.name, &before.constraints, &before.schema)
                    && (newest.content_version == before.content_version || !reads.may_have_changed(before, newest))
            });
            if !is_same {
                return Err(CommitError::Serialization { table: before.name.clone() });
            }
        }
        Ok(())
    }
}

impl TableReads {
    fn may_have_changed(&self, before: &Table, newest: &Table) -> bool {
        if self.whole_table_reads > 0 || before.schema != newest.schema {
            return true;
        }
        // A read error is treated as a change.
        !self.conjunctions.is_empty()
            && ChangedRows::new(before, newest, &self.conjunctions).any_is_read().unwrap_or(true)
    }
}

/// Compares two versions of a table, and checks whether changed rows pass one of the conjunctions that were read.
struct ChangedRows<'a> {
    before: &'a Table,
    newest: &'a Table,
    conjunctions: &'a [Vec<ColumnPredicate>],
    /// The columns of all predicates.
    columns: Vec<ColumnIndex>,
}

impl<'a> ChangedRows<'a> {
    fn new(before: &'a Table, newest: &'a Table, conjunctions: &'a [Vec<ColumnPredicate>]) -> Self {
        let columns: BTreeSet<ColumnIndex> = conjunctions.iter().flatten().map(|predicate| predicate.column).collect();
        Self { before, newest, conjunctions, columns: columns.into_iter().collect() }
    }

    fn any_is_read(&self) -> Result<bool, ReadError> {
        let mut comparisons_left = COMPARISONS_MAX / self.conjunctions.len().max(1);
        if self.any_block_may_be_read(&mut comparisons_left)? {
            return Ok(true);
        }
        let mut pages: HashMap<ContainerId, &DeltaPage> =
            self.before.delta.pages().iter().map(|page| (page.id(), page)).collect();
        let mut deleted_rows_of_pages: HashMap<ContainerId, (&DeltaPage, usize, Vec<u32>)> = HashMap::new();
        for page in self.newest.delta.pages() {
            let rows_before = pages.remove(&page.id()).map_or(0, DeltaPage::rows);
            let rows = inserted_rows(self.newest, page, rows_before);
            let exceeds_limit = comparisons_left < rows.len();
            comparisons_left = comparisons_left.saturating_sub(rows.len());
            if exceeds_limit || self.any_page_row_is_read(page, &rows) {
                return Ok(true);
            }
            deleted_rows_of_pages.insert(page.id(), (page, rows_before, Vec::new()));
        }
        // The rows of a page that is removed were moved to blocks. It is not known which rows of the blocks these are.
        if !pages.is_empty() {
            return Ok(true);
        }
        let mut segments = 0;
        for (container, segment, deleted) in self.newly_deleted() {
            let count = deleted.len() as usize;
            if comparisons_left < count {
                return Ok(true);
            }
            comparisons_left -= count;
            if let Some((_, rows_before, rows)) = deleted_rows_of_pages.get_mut(&container) {
                // Skips rows that were inserted since `before`: this transaction has not seen them.
                rows.extend(deleted.into_iter().take_while(|row| (*row as usize) < *rows_before));
                continue;
            }
            segments += 1;
            let block = self.before.blocks.iter().find(|block| ContainerId::of(block.id()) == Some(container));
            let Some(block) = block.filter(|_| segments <= SEGMENTS_MAX) else { return Ok(true) };
            if self.any_segment_row_is_read(block, segment.into(), deleted.into_iter().collect())? {
                return Ok(true);
            }
        }
        Ok(deleted_rows_of_pages.into_values().any(|(page, _, rows)| self.any_page_row_is_read(page, &rows)))
    }

    /// Whether blocks are removed, or new blocks may contain rows that were read.
    fn any_block_may_be_read(&self, comparisons_left: &mut usize) -> Result<bool, ReadError> {
        if Arc::ptr_eq(&self.before.blocks, &self.newest.blocks) {
            return Ok(false);
        }
        let mut removed: HashSet<BlockId> = self.before.blocks.iter().map(|block| block.id()).collect();
        let new: Vec<_> = self.newest.blocks.iter().filter(|block| !removed.remove(&block.id())).collect();
        if !removed.is_empty() || new.len() > *comparisons_left {
            return Ok(true);
        }
        *comparisons_left -= new.len();
        for block in new {
            let open = block.open(&ReadCounters::new())?;
            for predicates in self.conjunctions {
                if open.block().may_match(&open, predicates).map_err(|error| open.locate(error))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The rows that are deleted in `newest` but not in `before`.
    fn newly_deleted(&self) -> impl Iterator<Item = (ContainerId, u16, RoaringBitmap)> {
        self.newest.delta.all_deleted().flat_map(|(container, newest)| {
            let before = self.before.delta.deleted(container);
            let is_same = before.is_some_and(|before| Arc::ptr_eq(before, newest));
            let segments = (!is_same).then(|| newest.segments()).into_iter().flatten();
            segments.filter_map(move |(segment, newest)| {
                let rows = match before.and_then(|before| before.segment(usize::from(segment))) {
                    Some(before) if Arc::ptr_eq(before, newest) => return None,
                    Some(before) => newest.as_ref() - before.as_ref(),
                    None => newest.as_ref().clone(),
                };
                (!rows.is_empty()).then_some((container, segment, rows))
            })
        })
    }

    fn any_page_row_is_read(&self, page: &DeltaPage, rows: &[u32]) -> bool {
        if rows.is_empty() {
            return false;
        }
        let columns: Vec<usize> = self.columns.iter().map(|column| column.index()).collect();
        match page.rows_at(&columns, rows) {
            Ok(values) => self.any_passes(&values, rows.len()),
            Err(_) => true,
        }
    }

    fn any_segment_row_is_read(
        &self,
        block: &Arc<BlockFile>,
        segment: usize,
        deleted: Vec<u32>,
    ) -> Result<bool, ReadError> {
        let (open, rows) = (block.open(&ReadCounters::new())?, deleted.len());
        let mut reader = open.block().open_segment(&open, segment);
        let selection = Selection::Positions(deleted);
        let values = reader.project(&selection, 0..rows, &self.columns, &mut ScanReport::default());
        Ok(self.any_passes(&values.map_err(|error| open.locate(error))?, rows))
    }

    /// Whether any row passes all predicates of a conjunction. `values` holds the columns of all predicates.
    fn any_passes(&self, values: &[ArrayRef], rows: usize) -> bool {
        let passes = |predicate: &ColumnPredicate, row: usize| {
            let logical_type = self.before.schema.column(predicate.column).logical_type;
            let index = self.columns.binary_search(&predicate.column);
            let values = index.ok().and_then(|index| values.get(index));
            values.is_none_or(|values| predicate.admits(datum_at(values, logical_type, row).as_ref()))
        };
        (0..rows).any(|row| {
            self.conjunctions.iter().any(|predicates| predicates.iter().all(|predicate| passes(predicate, row)))
        })
    }
}

/// The live rows of a page from row `rows_before` on.
fn inserted_rows(newest: &Table, page: &DeltaPage, rows_before: usize) -> Vec<u32> {
    if page.rows() <= rows_before {
        return Vec::new();
    }
    let deleted = newest.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
    // A page has at most 65,536 rows.
    (rows_before as u32..page.rows() as u32)
        .filter(|row| deleted.is_none_or(|deleted| !deleted.contains(*row)))
        .collect()
}
