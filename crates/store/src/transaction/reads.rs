//! What a serializable transaction has read, and whether others have changed any of it.
//!
//! ```text
//! read      of each table: all rows, or those that pass some conjunctions of tests, found or not
//! changed   rows that are in one version of the table and not in the other: inserted, or deleted since
//! ```
//!
//! A transaction may commit where no changed row passes what it has read. An update is a deletion and an insertion, so that
//! rows count which come to pass, which cease to, and which do before and after. Where it cannot be told which rows were
//! changed, as where they were moved to other blocks meanwhile, all may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use roaring::RoaringBitmap;
use taut_block::ScanReport;
use taut_types::{ColumnIndex, ColumnTest, Predicate, key_at};

use crate::delta::{DeltaPage, UnitId};
use crate::error::ReadError;
use crate::{BlockFile, Catalog, CommitError, ReadCounters, Table, TableId};

/// So many conjunctions are compared at most; who has read by more has read all of a table.
const CONJUNCTIONS_MAX: usize = 1_000;
/// Changed rows of a table times conjunctions that are compared at most: other commits wait meanwhile.
const COMPARISONS_MAX: u64 = 400_000;
/// Segments of blocks times conjunctions that are read at most, for rows that were deleted there.
const FILTERS_MAX: usize = 256;

/// What a transaction has read.
#[derive(Debug, Default)]
pub(super) struct Reads(BTreeMap<TableId, TableReads>);

#[derive(Debug, Default)]
struct TableReads {
    /// How often all rows were read.
    whole: usize,
    /// Of others those that pass all tests of one of these.
    conjunctions: Vec<Vec<ColumnTest>>,
}

impl Reads {
    /// All rows of a table.
    pub fn add_whole(&mut self, table: TableId) {
        self.0.entry(table).or_default().whole += 1;
    }

    /// The rows that pass some tests.
    pub fn add(&mut self, table: TableId, tests: Vec<ColumnTest>) {
        let reads = self.0.entry(table).or_default();
        match tests.is_empty() || reads.conjunctions.len() >= CONJUNCTIONS_MAX {
            true => reads.whole += 1,
            false if reads.conjunctions.contains(&tests) => {}
            false => reads.conjunctions.push(tests),
        }
    }

    /// That it was said so many times in vain that all rows of a table are read.
    pub fn remove_whole(&mut self, table: TableId, times: usize) {
        if let Some(reads) = self.0.get_mut(&table) {
            reads.whole = reads.whole.saturating_sub(times);
        }
    }

    /// Whether what was read is as it was.
    ///
    /// # Errors
    /// When another transaction has changed some of it.
    pub fn check(&self, base: &Catalog, newest: &Catalog) -> Result<(), CommitError> {
        for (table, reads) in &self.0 {
            let Some(before) = base.table_of(*table) else { continue };
            let is_same = newest.table_of(*table).is_some_and(|now| {
                now.name == before.name && (now.contents == before.contents || !reads.may_have_changed(before, now))
            });
            if !is_same {
                return Err(CommitError::Serialization { table: before.name.clone() });
            }
        }
        Ok(())
    }
}

impl TableReads {
    fn may_have_changed(&self, before: &Table, now: &Table) -> bool {
        if self.whole > 0 || before.schema != now.schema {
            return true;
        }
        let changed = ChangedRows { before, now, conjunctions: &self.conjunctions };
        // What cannot be read counts as changed.
        !self.conjunctions.is_empty() && changed.any_is_read().unwrap_or(true)
    }
}

/// The rows by which two versions of a table differ, beside what was read of one of them.
struct ChangedRows<'a> {
    before: &'a Table,
    now: &'a Table,
    conjunctions: &'a [Vec<ColumnTest>],
}

impl ChangedRows<'_> {
    fn any_is_read(&self) -> Result<bool, ReadError> {
        let is_there = |page: &DeltaPage| self.now.delta.page(page.id()).is_some();
        if !self.before.delta.pages().iter().all(is_there) || self.any_block_may_be_read()? {
            return Ok(true);
        }
        let (mut rows, rows_max) = (0, COMPARISONS_MAX / self.conjunctions.len().max(1) as u64);
        for page in self.now.delta.pages() {
            let known = self.before.delta.page(page.id()).map_or(0, DeltaPage::rows);
            rows += page.rows().saturating_sub(known) as u64;
            if rows > rows_max || self.any_of_page_is_read(page, inserted(self.now, page, known)) {
                return Ok(true);
            }
        }
        let mut filters = 0;
        for (unit, segment, deleted) in self.deleted() {
            rows += deleted.len();
            if rows > rows_max {
                return Ok(true);
            }
            let is_read = match self.before.delta.page(unit) {
                Some(page) => {
                    let known = deleted.iter().map(|row| row as usize).take_while(|row| *row < page.rows());
                    self.any_of_page_is_read(page, known)
                }
                // Of a page that came meanwhile, whose rows that are deleted nobody has seen.
                None if self.now.delta.page(unit).is_some() => false,
                None => {
                    filters += self.conjunctions.len();
                    let block = self.before.blocks.iter().find(|block| UnitId::of(block.id()) == Some(unit));
                    match block.filter(|_| filters <= FILTERS_MAX) {
                        Some(block) => self.any_of_segment_is_read(block, segment.into(), &deleted)?,
                        None => true,
                    }
                }
            };
            if is_read {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether blocks are gone, or others came that may have rows which are read.
    fn any_block_may_be_read(&self) -> Result<bool, ReadError> {
        if Arc::ptr_eq(&self.before.blocks, &self.now.blocks) {
            return Ok(false);
        }
        let has = |table: &Table, block: &BlockFile| table.blocks.iter().any(|other| other.id() == block.id());
        if !self.before.blocks.iter().all(|block| has(self.now, block)) {
            return Ok(true);
        }
        for tests in self.conjunctions {
            let blocks = self.now.blocks_that_may_match(tests).map(|place| &self.now.blocks[place]);
            for block in blocks.filter(|block| !has(self.before, block)) {
                let open = block.open(&ReadCounters::new())?;
                if open.block().may_match(&open, tests).map_err(|error| open.locate(error))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The rows that are deleted now and were not before.
    fn deleted(&self) -> impl Iterator<Item = (UnitId, u16, RoaringBitmap)> {
        self.now.delta.all_deleted().flat_map(|(unit, now)| {
            let before = self.before.delta.deleted(unit);
            let is_same = before.is_some_and(|before| Arc::ptr_eq(before, now));
            let segments = (!is_same).then(|| now.segments()).into_iter().flatten();
            segments.filter_map(move |(segment, now)| {
                let rows = match before.and_then(|before| before.segment(usize::from(segment))) {
                    Some(before) if Arc::ptr_eq(before, now) => return None,
                    Some(before) => now.as_ref() - before.as_ref(),
                    None => now.as_ref().clone(),
                };
                (!rows.is_empty()).then_some((unit, segment, rows))
            })
        })
    }

    fn any_of_page_is_read(&self, page: &DeltaPage, rows: impl Iterator<Item = usize>) -> bool {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return false;
        }
        let mut columns: BTreeMap<ColumnIndex, ArrayRef> = BTreeMap::new();
        for test in self.conjunctions.iter().flatten() {
            columns.entry(test.column).or_insert_with(|| page.columns(&[test.column.index()]).remove(0));
        }
        let passes = |test: &ColumnTest, row: usize| {
            let logical_type = self.before.schema.column(test.column).logical_type;
            let value = columns.get(&test.column).and_then(|column| key_at(column, logical_type, row));
            test.admits(value.as_ref())
        };
        rows.any(|row| self.conjunctions.iter().any(|tests| tests.iter().all(|test| passes(test, row))))
    }

    fn any_of_segment_is_read(
        &self,
        block: &Arc<BlockFile>,
        segment: usize,
        deleted: &RoaringBitmap,
    ) -> Result<bool, ReadError> {
        let open = block.open(&ReadCounters::new())?;
        for tests in self.conjunctions {
            let mut reader = self.before.open_segment(&open, segment);
            let predicate = Predicate { column_tests: tests.clone(), row_tests: Vec::new() };
            let selection = reader.filter(&predicate, &mut ScanReport::default());
            let selection = selection.map_err(|error| open.locate(error))?;
            if !selection.places(deleted).is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The rows of a page behind those that were known which are not deleted.
fn inserted(now: &Table, page: &DeltaPage, known: usize) -> impl Iterator<Item = usize> {
    let deleted = now.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0)).cloned();
    (known..page.rows()).filter(move |row| deleted.as_ref().is_none_or(|deleted| !deleted.contains(*row as u32)))
}
