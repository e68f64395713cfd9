//! An edit of a catalog: changes that one commit publishes together.

mod apply;

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use taut_types::{Column, ColumnIndex, Datum, LogicalType, Partitioning, Schema, TableDesign, is_temporary_relation};

use super::change::{Change, OldRows};
use super::{BlockId, Catalog, CommentTarget, Constraints, Function, Sequence, SequenceId, Table, TableId, View};
use crate::delta::{ContainerId, Delta, RowSet};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::relocations::RowRelocations;
use crate::{BlockFile, NewBlock};

/// A catalog being changed. It may be newer than the snapshot in which a caller found a table or block. If that table
/// or block no longer exists, the change is an error.
#[derive(Clone, Debug)]
pub struct CatalogEdit {
    catalog: Catalog,
    directory: Arc<Directory>,
    /// Directory of the blocks of temporary tables, if the edit may change them.
    temporary: Option<Arc<Directory>>,
    changes: Vec<Change>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
    relocations: Vec<(TableId, Arc<RowRelocations>)>,
}

/// Result of an edit: a new catalog, and the blocks by which it differs from the previous one. A block in both lists is
/// in neither catalog.
#[derive(Debug)]
pub(crate) struct AppliedEdit {
    pub catalog: Catalog,
    pub changes: Vec<Change>,
    pub added: Vec<Arc<BlockFile>>,
    pub removed: Vec<Arc<BlockFile>>,
    /// Row relocations, as far as they are known.
    pub relocations: Vec<(TableId, Arc<RowRelocations>)>,
}

/// Order of the rows of new blocks, compared with the blocks that they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// Each new block has the rows of one old block at the same positions, deleted ones included. Deletions stay valid.
    #[serde(rename = "same")]
    SamePositions,
    /// The order of the old blocks. The new blocks take the position of the old ones in their run.
    #[serde(rename = "kept")]
    SameOrder,
    /// The sort order of the table's design. The new blocks form a separate run.
    Sorted,
}

impl CatalogEdit {
    pub(crate) fn new(catalog: &Catalog, directory: &Arc<Directory>) -> Self {
        let (catalog, directory) = (catalog.clone(), Arc::clone(directory));
        let (changes, added, removed, relocations) = (vec![], vec![], vec![], vec![]);
        Self { catalog, directory, temporary: None, changes, added, removed, relocations }
    }

    /// Allows changes of temporary relations, whose blocks are in `directory`.
    pub(crate) fn with_temporary(self, directory: Option<&Arc<Directory>>) -> Self {
        Self { temporary: directory.cloned(), ..self }
    }

    /// Ends the edit and returns its result.
    pub(crate) fn finish(mut self) -> AppliedEdit {
        self.catalog.version += 1;
        let Self { catalog, changes, added, removed, relocations, .. } = self;
        AppliedEdit { catalog, changes, added, removed, relocations }
    }

    /// The catalog after the changes so far.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether this edit adds the container as a block.
    pub(crate) fn has_added(&self, container: ContainerId) -> bool {
        self.added.iter().any(|block| ContainerId::of(block.id()) == Some(container))
    }

    /// Assigns a new [`Catalog::definitions_id()`].
    pub(crate) fn renew_definitions_id(&mut self) {
        self.catalog.definitions_id = self.directory.allocate_definitions_id();
    }

    /// Begins a timeline with the commit of this edit. Called when a commit is replayed.
    pub(crate) fn begin_timeline(&mut self, time: i64) {
        self.catalog.timelines = self.catalog.timelines.with(self.catalog.version + 1, time);
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.catalog.version = version;
    }

    /// The catalog after all changes, without the changes.
    pub(crate) fn into_catalog(self) -> Catalog {
        self.catalog
    }

    /// Creates a schema.
    ///
    /// # Errors
    /// If it exists.
    pub fn create_schema(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::CreateSchema { name: name.to_owned() })
    }

    /// Drops a schema.
    ///
    /// # Errors
    /// If it does not exist, is `public`, or has tables, views or sequences.
    pub fn drop_schema(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropSchema { name: name.to_owned() })
    }

    /// Creates an empty table. Returns its id.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or the design does not fit the schema.
    pub fn create_table(&mut self, name: &str, schema: Schema, design: TableDesign) -> Result<TableId, CommitError> {
        let table = match is_temporary_relation(name) {
            true => TableId::allocate_temporary(),
            false => self.directory.allocate_table(),
        };
        let (name, schema, design) = (name.to_owned(), Arc::new(schema), Arc::new(design));
        self.apply_and_record(Change::CreateTable { table, name, schema, design })?;
        Ok(table)
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// If the table does not exist, another table has a foreign key to it, or a view reads it.
    pub fn drop_table(&mut self, table: TableId) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropTable { table })
    }

    /// Removes all rows of a table.
    ///
    /// # Errors
    /// If the table does not exist.
    pub fn truncate(&mut self, table: TableId) -> Result<(), CommitError> {
        self.apply_and_record(Change::Truncate { table })
    }

    /// Renames a table.
    ///
    /// # Errors
    /// If the table or the schema of the new name does not exist, the name is taken, or a view reads the table.
    pub fn rename_table(&mut self, table: TableId, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::RenameTable { table, name: name.to_owned() })
    }

    /// Adds the blocks of one load. Their rows are in the sort order of the table's design across the blocks, or across
    /// the blocks of each partition. A range partitioning without boundaries takes its boundaries from the blocks.
    ///
    /// # Errors
    /// If the table does not exist, or a block does not have its columns.
    pub fn append_blocks(&mut self, table: TableId, blocks: Vec<NewBlock>) -> Result<(), CommitError> {
        self.apply_and_record(Change::AppendBlocks { table, blocks })
    }

    /// Replaces blocks without deleted rows by blocks with the same rows, for example after a change of the table's
    /// design. See [`CatalogEdit::replace_rows`].
    ///
    /// # Errors
    /// If the rows cannot be replaced, as for [`CatalogEdit::replace_rows`].
    pub fn replace_blocks(
        &mut self,
        table: TableId,
        old: &[BlockId],
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.replace_rows(table, OldRows::of_blocks(old), new, order)
    }

    /// Replaces blocks and pages by blocks with the same live rows. If `old` has row relocations, rows that were
    /// deleted since they were read are deleted in the new blocks.
    ///
    /// The new blocks take the position of the first of the old ones. To keep the order of their rows, the old blocks
    /// must be neighbours in one run.
    ///
    /// # Errors
    /// If
    /// - the table or an old block does not exist,
    /// - a page has another number of rows than `old` states,
    /// - other rows were deleted meanwhile and their relocations are not known, or
    /// - the new blocks have other columns than the table, or another number of rows than they replace.
    pub fn replace_rows(
        &mut self,
        table: TableId,
        old: OldRows,
        new: Vec<NewBlock>,
        order: RowOrder,
    ) -> Result<(), CommitError> {
        self.apply_and_record(Change::ReplaceRows { table, old, new, order })
    }

    /// Sets the design of future blocks of a table. Existing blocks are not rewritten. If the design changes the
    /// partitioning, they become unpartitioned.
    ///
    /// # Errors
    /// If the table does not exist, or the design does not fit its columns.
    pub fn set_design(&mut self, table: TableId, design: TableDesign) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetDesign { table, design: Arc::new(design) })
    }

    /// Sets the partitioning of a table, for example its range boundaries. It must match the design. Existing blocks
    /// become unpartitioned.
    ///
    /// # Errors
    /// If the table does not exist, or the partitioning does not match its design.
    pub fn set_partitioning(&mut self, table: TableId, partitioning: Partitioning) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetPartitioning { table, partitioning: Arc::new(partitioning) })
    }

    /// Sets the constraints of a table. Its existing rows must satisfy them.
    ///
    /// Adding a foreign key requires two calls: first for the referencing table, then for `referenced_by` of the
    /// referenced table.
    ///
    /// # Errors
    /// If the table does not exist, or the constraints do not fit it and the tables that they reference.
    pub fn set_constraints(&mut self, table: TableId, constraints: Constraints) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetConstraints { table, constraints: Arc::new(constraints) })
    }

    /// Sets whether a column may hold nulls. If not, the existing rows must not have any.
    ///
    /// # Errors
    /// If the table or the column does not exist. If a column of the primary key would become nullable. If a column
    /// would become NOT NULL while the table has deleted rows or rows in no block.
    pub fn set_nullable(&mut self, table: TableId, column: ColumnIndex, nullable: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetNullable { table, column, nullable })
    }

    /// Appends a column to a table. Its value in all existing rows is `value`, or null. No block is rewritten.
    ///
    /// # Errors
    /// If
    /// - the table does not exist, has a column of that name, or has as many columns as a table can have,
    /// - the value is not of the type of the column, or
    /// - the column is not nullable, there is no value, and the table has rows, deleted ones included.
    pub fn add_column(&mut self, table: TableId, column: Column, value: Option<Datum>) -> Result<(), CommitError> {
        self.apply_and_record(Change::AddColumn { table, column, value })
    }

    /// Drops a column with its default and its forced encoding. The indexes of the columns after it decrease by one, in
    /// foreign keys of other tables too. No block is rewritten.
    ///
    /// # Errors
    /// If the table or the column does not exist, it is the only column, or a key, foreign key, index, sort order or
    /// partitioning uses it. The conditions of checks are not examined.
    pub fn drop_column(&mut self, table: TableId, column: ColumnIndex) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropColumn { table, column })
    }

    /// Renames a column. The conditions of checks are not changed.
    ///
    /// # Errors
    /// If the table or the column does not exist, or the name is taken.
    pub fn rename_column(&mut self, table: TableId, column: ColumnIndex, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::RenameColumn { table, column, name: name.to_owned() })
    }

    /// Sets the type of a column of a table without rows. To change the type of a column with values, one edit
    /// truncates the table, sets the type, and appends blocks with the converted rows.
    ///
    /// # Errors
    /// If the table or the column does not exist, the table has rows, or the design or a foreign key does not allow the
    /// type.
    pub fn set_type(
        &mut self,
        table: TableId,
        column: ColumnIndex,
        logical_type: LogicalType,
    ) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetType { table, column, logical_type })
    }

    /// Creates a view, or replaces the view of its name if `replaces`.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or a permanent view reads a temporary relation.
    pub fn create_view(&mut self, view: View, replaces: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::CreateView { view, replaces })
    }

    /// Drops a view.
    ///
    /// # Errors
    /// If there is no view of that name, or another view reads it.
    pub fn drop_view(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropView { name: name.to_owned() })
    }

    /// Creates a function, or replaces the function of its name if `replaces`.
    ///
    /// # Errors
    /// If the name is taken, or its schema does not exist.
    pub fn create_function(&mut self, function: Function, replaces: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::CreateFunction { function, replaces })
    }

    /// Drops a function.
    ///
    /// # Errors
    /// If there is no function of that name, or a view calls it.
    pub fn drop_function(&mut self, name: &str) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropFunction { name: name.to_owned() })
    }

    /// Creates a sequence. Assigns its id, and returns it.
    ///
    /// # Errors
    /// If the name is taken, its schema does not exist, or its numbers are not within its limits.
    pub fn create_sequence(&mut self, sequence: Sequence) -> Result<SequenceId, CommitError> {
        let id = match is_temporary_relation(&sequence.name) {
            true => SequenceId::allocate_temporary(),
            false => SequenceId(self.directory.allocate_table().0),
        };
        self.apply_and_record(Change::CreateSequence { sequence: Sequence { id, ..sequence } })?;
        Ok(id)
    }

    /// Drops a sequence that belongs to no column.
    ///
    /// # Errors
    /// If the sequence does not exist, or a column owns it.
    pub fn drop_sequence(&mut self, sequence: SequenceId) -> Result<(), CommitError> {
        self.apply_and_record(Change::DropSequence { sequence })
    }

    /// Replaces the definition of a sequence, its name included. If `restarts`, its last number is also replaced.
    ///
    /// # Errors
    /// If the sequence does not exist, the name is taken, or its numbers are not within its limits.
    pub fn alter_sequence(&mut self, sequence: Sequence, restarts: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::AlterSequence { sequence, restarts })
    }

    /// Sets the comment on an object, or removes it if `comment` is `None`.
    ///
    /// # Errors
    /// If the object does not exist.
    pub fn set_comment(&mut self, on: CommentTarget, comment: Option<String>) -> Result<(), CommitError> {
        self.apply_and_record(Change::SetComment { on, comment })
    }

    /// Takes the next numbers of a sequence.
    ///
    /// # Errors
    /// If the sequence does not exist, or has fewer than `count` numbers left.
    pub(crate) fn next_values(&mut self, sequence: SequenceId, count: usize) -> Result<Vec<i64>, CommitError> {
        let mut advanced = self.find_sequence(sequence)?.clone();
        let numbers = advanced.take(count)?;
        if let Some(last) = numbers.last() {
            self.apply_and_record(Change::AdvanceSequence { sequence, last: *last, is_called: true })?;
        }
        Ok(numbers)
    }

    /// Sets the last number of a sequence, or the next one if `is_called` is false.
    ///
    /// # Errors
    /// If the sequence does not exist, or the number is not within its limits.
    pub(crate) fn set_value(&mut self, sequence: SequenceId, last: i64, is_called: bool) -> Result<(), CommitError> {
        self.apply_and_record(Change::AdvanceSequence { sequence, last, is_called })
    }

    /// Applies a change and records it. If it replaces rows, rows that were deleted since the caller read them are
    /// deleted in the new blocks, and these deletions are recorded too.
    ///
    /// # Errors
    /// If the change cannot be made. Nothing has changed then.
    pub(crate) fn apply_and_record(&mut self, change: Change) -> Result<(), CommitError> {
        let Change::ReplaceRows { table, old, order, .. } = &change else {
            self.apply(&change)?;
            self.record(change);
            return Ok(());
        };
        let table = *table;
        let deleted = match order {
            RowOrder::SamePositions => RowSet::default(),
            _ => old.later_deletions(self.find(table)?)?,
        };
        self.apply(&change)?;
        self.changes.push(change);
        for (container, segment, rows) in deleted.segments() {
            // These rows were already deleted, so this does not count as a change of rows.
            self.change_rows(table, |delta| delta.delete(container, segment, rows))?;
            self.changes.push(Change::DeleteRows { table, container, segment, rows: rows.clone() });
        }
        Ok(())
    }

    /// Adds a change to the list. Consecutive advances of one sequence are recorded as one.
    fn record(&mut self, change: Change) {
        let sequence_of = |change: &Change| match change {
            Change::AdvanceSequence { sequence, .. } => Some(*sequence),
            _ => None,
        };
        match self.changes.last_mut() {
            Some(last) if sequence_of(&change).is_some() && sequence_of(last) == sequence_of(&change) => *last = change,
            _ => self.changes.push(change),
        }
    }

    /// Repeats a change from the log, without recording it.
    ///
    /// # Errors
    /// If the change cannot be made.
    pub(crate) fn redo(&mut self, change: &Change) -> Result<(), CommitError> {
        match change.has_relation_name() {
            true => self.apply(&change.with_upgraded_names(&self.catalog)),
            false => self.apply(change),
        }
    }

    /// Replaces a table by another version of it, without recording a change.
    pub(crate) fn put_table(&mut self, table: Table) {
        self.catalog.tables.insert(Arc::new(table));
    }

    /// Inserts rows with the columns of the table.
    ///
    /// # Errors
    /// If the table does not exist.
    pub(crate) fn insert_rows(&mut self, table: TableId, rows: RecordBatch) -> Result<(), CommitError> {
        let mut rest = Some(rows);
        while let Some(rows) = rest.filter(|rows| rows.num_rows() > 0) {
            let directory = self.directory_of(table);
            let position = self.find(table)?.delta.append_position(rows.num_rows(), |page| directory.may_grow(page));
            let page = position.page.or_else(|| directory.allocate_page()).ok_or(CommitError::TooLarge)?;
            let (here, after) = split_at(rows, position.rows);
            self.apply_and_record(Change::InsertRows { table, page, first: position.first, rows: here })?;
            rest = after;
        }
        Ok(())
    }

    /// Changes the delta of a table, without recording a change.
    pub(crate) fn change_rows<T>(
        &mut self,
        table: TableId,
        change: impl FnOnce(&mut Delta) -> T,
    ) -> Result<T, CommitError> {
        self.change_table(table, |table| Ok(change(&mut table.delta)))
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Directory of the blocks and pages of a table.
    fn directory_of(&self, table: TableId) -> &Arc<Directory> {
        self.temporary.as_ref().filter(|_| table.is_temporary()).unwrap_or(&self.directory)
    }

    fn find_sequence(&self, sequence: SequenceId) -> Result<&Sequence, CommitError> {
        self.catalog.sequence_of(sequence).ok_or(CommitError::NoSequence { sequence })
    }

    fn find(&self, table: TableId) -> Result<&Arc<Table>, CommitError> {
        self.catalog.table_of(table).ok_or(CommitError::NoTable { table })
    }

    /// Replaces a table by a changed copy.
    fn change_table<T>(
        &mut self,
        table: TableId,
        change: impl FnOnce(&mut Table) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let mut changed = self.find(table)?.as_ref().clone();
        let blocks = Arc::clone(&changed.blocks);
        let value = change(&mut changed)?;
        if !Arc::ptr_eq(&blocks, &changed.blocks) {
            changed.sparse_index = Arc::default();
        }
        self.catalog.tables.insert(Arc::new(changed));
        Ok(value)
    }
}

/// Splits rows into the first `first` rows and the rest, which is `None` if it is empty.
pub(crate) fn split_at(rows: RecordBatch, first: usize) -> (RecordBatch, Option<RecordBatch>) {
    match rows.num_rows() - first {
        0 => (rows, None),
        after => (rows.slice(0, first), Some(rows.slice(first, after))),
    }
}
