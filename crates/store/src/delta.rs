//! Rows and deletions that are in no block yet, as one snapshot of a table sees them.
//!
//! ```text
//! Table ── blocks      immutable files
//!       └─ Delta ── pages    rows that are in no block; the last page may be open: it grows
//!                └─ deleted  the deleted rows of each container
//! ```
//!
//! A delta never changes: a commit creates a new one that shares all unchanged parts. So a reader needs no timestamps,
//! and memory is freed as soon as no snapshot references it (docs/adr/0016-versions-are-values.md).
//!
//! Recent writes are Arrow columns, like all data in memory. Erling (2012) and Chasseur (2013, section 3.1) store them
//! as rows.

mod keys;
mod page;
mod row_sets;

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;
use roaring::RoaringBitmap;
use rpds::HashTrieMapSync;
use serde::{Deserialize, Serialize};
use taut_types::Schema;

use crate::{BlockFile, BlockId};

pub(crate) use keys::KeyEntries;
use page::OpenPage;
pub(crate) use row_sets::intersects;
pub use row_sets::{DeletedRows, RowSet};

/// Maximum rows of a delta page. In a row id, a page is one segment.
pub(crate) const PAGE_ROWS_MAX: usize = 65_536;
/// Maximum rows of an open page.
const OPEN_ROWS_MAX: usize = 4_096;
/// Minimum number of rows in one insert for which it begins a new page.
const OWN_PAGE_ROWS: usize = 1_024;
/// Bytes per column by which the buffers of a small page may exceed twice its values. Values in larger buffers are
/// copied.
const BUFFER_ALLOWANCE_BYTES: usize = 1_024;
/// Bytes of a string view, without the bytes of long strings.
const VIEW_BYTES: usize = size_of::<u128>();

/// Permanent id of a container: a block or a delta page. Both get their ids from one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub u32);

impl ContainerId {
    /// The container id of a block. `None` if the block id exceeds 32 bits, so that its rows cannot have row ids.
    pub fn of(block: BlockId) -> Option<Self> {
        u32::try_from(block.0).ok().map(Self)
    }
}

/// Row id, valid as long as the container of the row exists: container in 32 bits, segment in 16, position in the
/// segment in 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    /// The row id of a row of a segment. A delta page has one segment, 0.
    pub fn new(container: ContainerId, segment: u16, row: u16) -> Self {
        Self(u64::from(container.0) << 32 | u64::from(segment) << 16 | u64::from(row))
    }

    /// Container of the row.
    pub fn container(self) -> ContainerId {
        ContainerId((self.0 >> 32) as u32)
    }

    /// Segment of the row in its container.
    pub fn segment(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Position of the row in its segment.
    pub fn row(self) -> u16 {
        self.0 as u16
    }
}

impl Display for RowId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "row {} of segment {} of {:08x}", self.row(), self.segment(), self.container().0)
    }
}

/// The rows of a table that are in no block, and its deleted rows.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pages: Arc<Vec<DeltaPage>>,
    /// By container.
    deleted: HashTrieMapSync<ContainerId, Arc<DeletedRows>>,
    /// Rows of all pages, deleted ones included, and their bytes.
    page_rows: u64,
    page_bytes: usize,
    /// Deleted rows of pages, and of blocks.
    deleted_page_rows: u64,
    deleted_block_rows: u64,
    /// For each indexed key, entries of all live rows of pages, and of some deleted ones.
    keys: Arc<Vec<KeyEntries>>,
}

/// A page of a delta.
#[derive(Clone, Debug)]
pub struct DeltaPage {
    id: ContainerId,
    /// Number of its rows that this snapshot sees.
    rows: u32,
    content: PageContent,
}

/// Rows of a delta page, in memory.
#[derive(Clone, Debug)]
enum PageContent {
    /// Rows that were inserted by one call, with none appended since.
    Closed(RecordBatch),
    /// Growable columns, which versions of the delta may share.
    Open(Arc<OpenPage>),
}

impl DeltaPage {
    /// Container id of the page.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// Rows of the page that this snapshot sees, deleted ones included.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Some columns of the page, by their indexes in the table.
    pub fn columns(&self, columns: &[usize]) -> Vec<ArrayRef> {
        match &self.content {
            PageContent::Closed(batch) => {
                columns.iter().map(|column| batch.column(*column).slice(0, self.rows())).collect()
            }
            PageContent::Open(page) => page.columns(columns, self.rows()),
        }
    }

    /// The given rows of the given columns, by column index in the table. Copies only these rows, whereas
    /// [`DeltaPage::columns`] copies all rows of an open page.
    ///
    /// # Errors
    /// If a row does not exist.
    pub fn rows_at(&self, columns: &[usize], rows: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        if let Some(row) = rows.iter().find(|row| **row >= self.rows) {
            return Err(ArrowError::InvalidArgumentError(format!("row {row} of a page of {}", self.rows)));
        }
        match (&self.content, rows) {
            (PageContent::Open(page), _) => Ok(page.rows_at(columns, rows)),
            (PageContent::Closed(batch), [row]) => {
                Ok(columns.iter().map(|column| batch.column(*column).slice(*row as usize, 1)).collect())
            }
            (PageContent::Closed(batch), _) => {
                let rows = UInt32Array::from(rows.to_vec());
                columns.iter().map(|column| take(batch.column(*column), &rows, None)).collect()
            }
        }
    }

    /// All columns of the page as a batch.
    ///
    /// # Errors
    /// If the columns do not match the schema.
    pub fn batch(&self, schema: &Schema) -> Result<RecordBatch, ArrowError> {
        if let PageContent::Closed(batch) = &self.content
            && batch.num_rows() == self.rows()
            && *batch.schema_ref() == schema.arrow()
        {
            return Ok(batch.clone());
        }
        let all: Vec<usize> = (0..schema.len()).collect();
        RecordBatch::try_new(schema.arrow(), self.columns(&all))
    }

    /// Number of rows of the page, including rows that this snapshot does not see.
    fn rows_in_any_snapshot(&self) -> usize {
        match &self.content {
            PageContent::Closed(batch) => batch.num_rows(),
            PageContent::Open(page) => page.rows(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.content {
            PageContent::Closed(batch) => approximate_bytes(batch),
            PageContent::Open(page) => page.bytes(),
        }
    }
}

impl Delta {
    /// Pages in the order in which their rows were inserted.
    pub fn pages(&self) -> &[DeltaPage] {
        &self.pages
    }

    /// The deleted rows of a container. `None` if there are none.
    pub fn deleted(&self, container: ContainerId) -> Option<&Arc<DeletedRows>> {
        self.deleted.get(&container)
    }

    /// The deleted rows of a block. `None` if there are none.
    pub fn deleted_of_block(&self, block: BlockId) -> Option<&Arc<DeletedRows>> {
        self.deleted.get(&ContainerId::of(block)?)
    }

    /// All containers with deleted rows.
    pub fn all_deleted(&self) -> impl Iterator<Item = (ContainerId, &Arc<DeletedRows>)> {
        self.deleted.iter().map(|(container, rows)| (*container, rows))
    }

    /// Whether there are no pages and no deleted rows.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.deleted.is_empty()
    }

    /// Whether there are no pages.
    pub fn has_no_pages(&self) -> bool {
        self.pages.is_empty()
    }

    /// Live rows of all pages.
    pub fn rows(&self) -> u64 {
        self.page_rows - self.deleted_page_rows
    }

    /// Deleted rows of blocks.
    pub fn deleted_block_rows(&self) -> u64 {
        self.deleted_block_rows
    }

    /// Rows of all pages, deleted ones included.
    pub fn page_rows(&self) -> u64 {
        self.page_rows
    }

    /// Approximate bytes of pages in memory, key entries included.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes + self.keys.iter().map(KeyEntries::bytes).sum::<usize>()
    }

    /// Keys by which rows of pages are found without a scan, each as column indexes of the table.
    pub fn keys(&self) -> impl Iterator<Item = &[usize]> {
        self.keys.iter().map(KeyEntries::columns)
    }

    /// Replaces the indexed keys. They are not stored.
    ///
    /// # Panics
    /// If the delta has pages, and the table has no column at one of the indexes.
    pub fn set_keys<'a>(&mut self, keys: impl IntoIterator<Item = &'a [usize]>) {
        self.keys = Arc::new(keys.into_iter().map(KeyEntries::new).collect());
        let pages = Arc::clone(&self.pages);
        for page in pages.iter() {
            self.add_to_keys(page.id, 0, |columns| page.columns(columns));
        }
    }

    /// An empty delta with the same indexed keys.
    #[must_use]
    pub fn without_rows(&self) -> Self {
        let mut empty = Self::default();
        empty.set_keys(self.keys());
        empty
    }

    /// The entries of the key on exactly these columns, in this order.
    pub(crate) fn key_entries(&self, columns: &[usize]) -> Option<&KeyEntries> {
        self.keys.iter().find(|key| key.columns() == columns)
    }

    /// Whether a row is deleted.
    pub(crate) fn is_deleted(&self, row: RowId) -> bool {
        contains_row(&self.deleted, row)
    }

    /// Page and position for the next rows, and how many of them fit there. The page is the last one if it is small and
    /// may grow, and otherwise a new one without an id.
    pub(crate) fn append_position(&self, rows: usize, may_grow: impl FnOnce(ContainerId) -> bool) -> AppendPosition {
        let new_page = AppendPosition { page: None, first: 0, rows: rows.min(PAGE_ROWS_MAX) };
        if rows >= OWN_PAGE_ROWS {
            return new_page;
        }
        let Some(last) = self.pages.last() else { return new_page };
        let rows_max = match last.content {
            PageContent::Closed(_) => OWN_PAGE_ROWS,
            PageContent::Open(_) => OPEN_ROWS_MAX,
        };
        match last.rows_in_any_snapshot() == last.rows() && last.rows() < rows_max && may_grow(last.id) {
            true => {
                AppendPosition { page: Some(last.id), first: last.rows, rows: rows.min(OPEN_ROWS_MAX - last.rows()) }
            }
            false => new_page,
        }
    }

    /// Replaces the columns of all pages, which have `columns` columns. `change` gets the columns of a page and its
    /// number of rows, and returns columns of `schema`. Row ids, deletions and indexed keys stay.
    ///
    /// # Errors
    /// If `change` fails, or returns columns that do not fit the schema.
    pub(crate) fn change_columns(
        &mut self,
        columns: usize,
        schema: &Schema,
        change: impl Fn(Vec<ArrayRef>, usize) -> Result<Vec<ArrayRef>, ArrowError>,
    ) -> Result<(), ArrowError> {
        let all: Vec<usize> = (0..columns).collect();
        let changed = self.pages.iter().map(|page| {
            let batch = RecordBatch::try_new(schema.arrow(), change(page.columns(&all), page.rows())?)?;
            Ok(DeltaPage { content: PageContent::Closed(batch), ..page.clone() })
        });
        let pages = changed.collect::<Result<Vec<_>, ArrowError>>()?;
        self.page_bytes = pages.iter().map(DeltaPage::bytes).sum();
        self.pages = Arc::new(pages);
        Ok(())
    }

    /// Adds a page of another version of this delta.
    pub(crate) fn add_page(&mut self, page: &DeltaPage) {
        self.page_rows += u64::from(page.rows);
        self.page_bytes += page.bytes();
        Arc::make_mut(&mut self.pages).push(page.clone());
        self.add_to_keys(page.id, 0, |columns| page.columns(columns));
    }

    /// Appends rows at the position that [`Delta::append_position`] returned.
    ///
    /// # Errors
    /// If rows cannot be appended there.
    pub(crate) fn append(
        &mut self,
        schema: &Schema,
        (page, first): (ContainerId, u32),
        rows: &RecordBatch,
    ) -> Result<(), Misplaced> {
        let count = u32::try_from(rows.num_rows()).map_err(|_| Misplaced)?;
        let pages = Arc::make_mut(&mut self.pages);
        match pages.last_mut() {
            Some(last) if last.id == page => {
                if first != last.rows || first as usize + rows.num_rows() > OPEN_ROWS_MAX {
                    return Err(Misplaced);
                }
                let is_appended = match &last.content {
                    PageContent::Open(open) => open.append_at(first as usize, rows),
                    PageContent::Closed(_) => false,
                };
                if !is_appended {
                    // The page already has other rows at this position, of a commit that failed or of a concurrent one.
                    let copy = OpenPage::new(schema);
                    let before = last.batch(schema).map_err(|_| Misplaced)?;
                    copy.append_at(0, &before);
                    copy.append_at(first as usize, rows);
                    last.content = PageContent::Open(Arc::new(copy));
                }
                last.rows += count;
            }
            _ => {
                let exists = pages.iter().any(|existing| existing.id == page);
                if first != 0 || exists || rows.num_rows() > PAGE_ROWS_MAX {
                    return Err(Misplaced);
                }
                // Growable columns are created only when more rows are appended, because most pages of transactions
                // contain the rows of one statement. The exception: a small batch of slices of much larger buffers is
                // copied to growable columns, so that the page does not keep these buffers in memory.
                let allowance = BUFFER_ALLOWANCE_BYTES * rows.num_columns();
                let is_small = rows.num_rows() < OWN_PAGE_ROWS;
                let content = if is_small && rows.get_array_memory_size() > 2 * approximate_bytes(rows) + allowance {
                    let open = OpenPage::new(schema);
                    open.append_at(0, rows);
                    PageContent::Open(Arc::new(open))
                } else {
                    PageContent::Closed(rows.clone())
                };
                pages.push(DeltaPage { id: page, rows: count, content });
            }
        }
        self.page_rows += u64::from(count);
        self.page_bytes += approximate_bytes(rows);
        self.add_to_keys(page, first, |columns| {
            columns.iter().map(|column| Arc::clone(rows.column(*column))).collect()
        });
        Ok(())
    }

    /// Adds rows of a page to the key entries. `columns` returns the columns of these rows.
    fn add_to_keys(&mut self, page: ContainerId, first: u32, columns: impl Fn(&[usize]) -> Vec<ArrayRef>) {
        if self.keys.is_empty() {
            return;
        }
        let (deleted, has_deleted) = (&self.deleted, self.deleted_page_rows > 0);
        for key in Arc::make_mut(&mut self.keys) {
            // A page has at most 65,536 rows.
            let first = RowId::new(page, 0, first as u16);
            key.add(&columns(key.columns()), first, |row| has_deleted && contains_row(deleted, row));
        }
    }

    /// Marks rows of a segment as deleted. Rows that are already deleted stay deleted.
    pub(crate) fn delete(&mut self, container: ContainerId, segment: u16, rows: &RoaringBitmap) {
        let mut deleted = self.deleted.get(&container).map(|deleted| deleted.as_ref().clone()).unwrap_or_default();
        let before = deleted.count();
        deleted.add(segment, rows);
        let added = deleted.count() - before;
        match self.is_page(container) {
            true => self.deleted_page_rows += added,
            false => self.deleted_block_rows += added,
        }
        self.deleted.insert_mut(container, Arc::new(deleted));
    }

    /// Removes the deleted rows of a block that is no longer in the table.
    pub(crate) fn forget_block(&mut self, container: ContainerId) {
        if let Some(deleted) = self.deleted.get(&container) {
            self.deleted_block_rows -= deleted.count();
            self.deleted.remove_mut(&container);
        }
    }

    /// Removes the deleted rows of all blocks except `blocks`.
    pub(crate) fn forget_blocks_except(&mut self, blocks: &[Arc<BlockFile>]) {
        let kept_blocks: HashSet<u64> = blocks.iter().map(|block| block.id().0).collect();
        let is_forgotten =
            |container: &ContainerId| !kept_blocks.contains(&u64::from(container.0)) && !self.is_page(*container);
        let forgotten: Vec<ContainerId> = self.deleted.keys().copied().filter(is_forgotten).collect();
        forgotten.into_iter().for_each(|container| self.forget_block(container));
    }

    /// Removes pages with their deleted rows and key entries.
    pub(crate) fn remove_pages(&mut self, is_removed: impl Fn(ContainerId) -> bool) {
        let removed: HashSet<ContainerId> =
            self.pages.iter().map(DeltaPage::id).filter(|page| is_removed(*page)).collect();
        if removed.is_empty() {
            return;
        }
        for page in self.pages.iter().filter(|page| removed.contains(&page.id)) {
            self.page_rows -= page.rows as u64;
            self.page_bytes = self.page_bytes.saturating_sub(page.bytes());
            if let Some(deleted) = self.deleted.get(&page.id) {
                self.deleted_page_rows -= deleted.count();
                self.deleted.remove_mut(&page.id);
            }
        }
        Arc::make_mut(&mut self.pages).retain(|page| !removed.contains(&page.id));
        if !self.keys.is_empty() {
            let keys = Arc::make_mut(&mut self.keys);
            keys.iter_mut().for_each(|key| key.retain(|row| !removed.contains(&row.container())));
        }
    }

    /// The page with this id.
    pub fn page(&self, container: ContainerId) -> Option<&DeltaPage> {
        self.pages.iter().rev().find(|page| page.id == container)
    }

    fn is_page(&self, container: ContainerId) -> bool {
        self.page(container).is_some()
    }
}

fn contains_row(deleted: &HashTrieMapSync<ContainerId, Arc<DeletedRows>>, row: RowId) -> bool {
    let deleted_in_segment = deleted.get(&row.container()).and_then(|deleted| deleted.segment(row.segment().into()));
    deleted_in_segment.is_some_and(|deleted| deleted.contains(row.row().into()))
}

/// Approximate bytes of some rows.
fn approximate_bytes(rows: &RecordBatch) -> usize {
    let value_bytes = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => column.len() * VIEW_BYTES + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.len() * VIEW_BYTES + column.as_binary_view().total_buffer_bytes_used(),
        DataType::Boolean => column.len().div_ceil(8),
        fixed => column.len() * fixed.primitive_width().unwrap_or(0),
    };
    let null_bytes = |column: &ArrayRef| column.nulls().map_or(0, |nulls| nulls.len().div_ceil(8));
    rows.columns().iter().map(|column| value_bytes(column) + null_bytes(column)).sum()
}

/// Page of a delta, and position in it, at which rows are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendPosition {
    /// An existing page, or `None` for a new one.
    pub page: Option<ContainerId>,
    /// Position of the first of the rows in the page.
    pub first: u32,
    /// Number of rows.
    pub rows: usize,
}

/// Rows cannot be appended at the given position.
#[derive(Debug)]
pub(crate) struct Misplaced;

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use taut_types::{Column, LogicalType};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![Column::new("a", LogicalType::BigInt, true)]).unwrap()
    }

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        RecordBatch::try_new(schema().arrow(), vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
    }

    fn values(delta: &Delta) -> Vec<i64> {
        let values = |page: &DeltaPage| page.columns(&[0])[0].as_primitive::<Int64Type>().values().to_vec();
        delta.pages().iter().flat_map(values).collect()
    }

    /// Appends rows to pages that may grow, then to new ones. `next` is the id of the newest page.
    pub(in crate::delta) fn append(
        delta: &mut Delta,
        schema: &Schema,
        next: &mut u32,
        mut rows: RecordBatch,
        may_grow: bool,
    ) {
        while rows.num_rows() > 0 {
            let position = delta.append_position(rows.num_rows(), |_| may_grow);
            let page = position.page.unwrap_or_else(|| {
                *next += 1;
                ContainerId(*next)
            });
            delta.append(schema, (page, position.first), &rows.slice(0, position.rows)).unwrap();
            rows = rows.slice(position.rows, rows.num_rows() - position.rows);
        }
    }

    fn push(delta: &mut Delta, next: &mut u32, rows: std::ops::Range<i64>) {
        append(delta, &schema(), next, batch(rows), true);
    }

    #[test]
    fn versions_do_not_see_later_changes() {
        let (mut delta, mut next) = (Delta::default(), 0);
        let mut versions = vec![delta.clone()];
        for number in 0..6_000 {
            push(&mut delta, &mut next, number..number + 1);
            versions.push(delta.clone());
        }
        assert_eq!(delta.pages().len(), 2);
        for (rows, version) in versions.iter().enumerate().step_by(371) {
            assert_eq!(values(version), (0..rows as i64).collect::<Vec<_>>());
        }
        push(&mut delta, &mut next, 6_000..80_000);
        assert_eq!(values(&delta), (0..80_000).collect::<Vec<_>>());
        assert_eq!((delta.rows(), delta.pages().len()), (80_000, 4));
    }

    #[test]
    fn versions_of_a_delta_grow_independently() {
        let (mut delta, mut next) = (Delta::default(), 0);
        push(&mut delta, &mut next, 0..10);
        let mut failed = delta.clone();
        push(&mut failed, &mut next, 100..110);
        push(&mut delta, &mut next, 10..20);
        assert_eq!(values(&delta), (0..20).collect::<Vec<_>>());
        assert_eq!(values(&failed), (0..10).chain(100..110).collect::<Vec<_>>());
    }

    #[test]
    fn deletions_are_counted_once() {
        let (mut delta, mut next) = (Delta::default(), 6);
        push(&mut delta, &mut next, 0..10);
        let before = delta.clone();
        delete(&mut delta, 7, &[1, 2]);
        delete(&mut delta, 7, &[2, 3]);
        delete(&mut delta, 5, &[9]);
        assert_eq!((delta.rows(), delta.deleted_block_rows(), before.rows()), (7, 1, 10));
        assert!(before.deleted(ContainerId(7)).is_none());
        delta.forget_block(ContainerId(5));
        delta.remove_pages(|page| page == ContainerId(7));
        assert!(delta.is_empty());
        assert_eq!((delta.rows(), delta.deleted_block_rows()), (0, 0));
    }

    fn delete(delta: &mut Delta, container: u32, rows: &[u32]) {
        delta.delete(ContainerId(container), 0, &rows.iter().copied().collect());
    }
}
