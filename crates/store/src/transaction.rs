//! A transaction: changes that no other transaction sees until all of them are committed at once.
//!
//! A transaction works on a private version of the catalog. It sees its own writes, and nothing that was committed
//! since it began. To commit, its changes are repeated on the newest version of the catalog. The commit fails without
//! effect if another transaction deleted or replaced a row that this transaction deleted. It also fails if another
//! transaction changed a table so that a change cannot be repeated.

mod keys;
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter_record_batch;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use taut_types::ColumnPredicate;

use crate::catalog::change::Change;
use crate::catalog::{Function, split_at};
use crate::delta::{ContainerId, DeletedRows, DeltaPage, RowSet, intersects};
use crate::error::{CommitError, TransactionError};
use crate::locks::{LockConflict, TransactionId};
use crate::relocations::RelocationsSince;
use crate::{Catalog, CatalogEdit, Sequence, SequenceId, Store, Synchronous, Table, TableId};

use self::reads::ReadSet;

/// A running transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction {
    store: Store,
    id: TransactionId,
    state: Mutex<TransactionState>,
    /// Read set of a serializable transaction: other transactions must not have changed it when this one commits.
    reads: Mutex<Option<ReadSet>>,
    /// The last result of [`Transaction::preview`]. Several constraint checks of one statement need the same one.
    preview: Mutex<Option<Preview>>,
}

#[derive(Debug)]
struct Preview {
    newest: Arc<Catalog>,
    own_snapshot: Arc<Catalog>,
    preview: Arc<Catalog>,
}

/// State of a transaction at one moment. [`Transaction::restore`] returns to it, for example after a failed statement.
#[derive(Debug)]
pub struct SavepointState(TransactionChanges);

/// Changes and savepoints of a running transaction.
#[derive(Clone, Debug)]
struct TransactionState {
    changes: TransactionChanges,
    savepoints: Vec<(String, TransactionChanges)>,
}

/// All changes of a transaction.
#[derive(Clone, Debug)]
struct TransactionChanges {
    /// The transaction's version of the catalog. It has all changes, but its list of changes leaves out inserts into
    /// the delta and deletions.
    edit: CatalogEdit,
    /// Inserts into the delta and deletions.
    rows: BTreeMap<TableId, TableRows>,
    /// Shared copy of the edit's catalog.
    snapshot: Arc<Catalog>,
    /// The snapshot that the transaction started from.
    base: Arc<Catalog>,
    /// Tables whose rows no other transaction may change, each with its content version in `base`.
    unchanged: BTreeMap<TableId, u64>,
    /// Sequences from which no other transaction may take numbers, because this one has altered them. Each has its last
    /// number and whether that was taken.
    altered: BTreeMap<SequenceId, (i64, bool)>,
}

/// Inserts of a transaction into the delta of one table, and its deletions from the table.
#[derive(Clone, Debug, Default)]
struct TableRows {
    /// Pages that hold rows inserted by the transaction.
    pages: Vec<ContainerId>,
    /// Rows that the transaction deleted, including rows that it inserted itself.
    deleted: RowSet,
}

impl TransactionChanges {
    fn new(snapshot: Arc<Catalog>, store: &Store) -> Self {
        let edit = store.edit(&snapshot);
        let (rows, unchanged, altered) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { edit, rows, base: Arc::clone(&snapshot), snapshot, unchanged, altered }
    }

    /// Whether a change relocates rows that the transaction inserted or deleted.
    fn relocates_own_rows(&self, change: &Change) -> bool {
        let Change::ReplaceRows { table, old, .. } = change else { return false };
        let Some(rows) = self.rows.get(table) else { return false };
        let is_deleted = |container| rows.deleted.segments().any(|(deleted_from, ..)| deleted_from == container);
        old.blocks.iter().filter_map(|block| ContainerId::of(*block)).any(is_deleted)
            || old.pages.iter().any(|(page, _)| rows.pages.contains(page) || is_deleted(*page))
    }

    /// Ids of the sequences that the transaction has created, altered or restarted.
    fn own_sequences(&self) -> BTreeSet<SequenceId> {
        let own = self.edit.changes().iter().filter_map(|change| match change {
            Change::CreateSequence { sequence } | Change::AlterSequence { sequence, restarts: true } => {
                Some(sequence.id)
            }
            _ => None,
        });
        own.collect()
    }

    /// Takes over the numbers that a later state of the transaction has taken from sequences of this state. The numbers
    /// that it took after it altered such a sequence again belong to the altered sequence.
    fn keep_numbers(&mut self, later: &Self) -> Result<(), CommitError> {
        let mut own = self.own_sequences();
        let known = self.edit.changes().len();
        let (before, since) = later.edit.changes().split_at(known.min(later.edit.changes().len()));
        // A later number replaces an earlier one at the end of the list.
        let replaced = before.last().filter(|change| matches!(change, Change::AdvanceSequence { .. }));
        for change in replaced.into_iter().chain(since) {
            match change {
                Change::AdvanceSequence { sequence, .. } if own.contains(sequence) => {
                    self.edit.apply_and_record(change.clone())?;
                }
                Change::AlterSequence { sequence, restarts } => {
                    let old = self.edit.catalog().sequence_of(sequence.id);
                    let is_renamed =
                        |old: &Sequence| old.is_defined_as(&Sequence { name: old.name.clone(), ..sequence.clone() });
                    if *restarts || !old.is_some_and(is_renamed) {
                        own.remove(&sequence.id);
                    }
                }
                _ => {}
            }
        }
        self.publish();
        Ok(())
    }

    /// Updates the snapshot to the current catalog of the edit.
    fn publish(&mut self) {
        // Inserts into the delta and deletions are not in the edit's list of changes.
        if !self.edit.changes().is_empty() && !self.edit.catalog().has_same_definitions(&self.snapshot) {
            self.edit.renew_definitions_id();
        }
        self.snapshot = Arc::new(self.edit.catalog().clone());
    }

    /// Repeats the same changes on another version of the catalog.
    fn rebased_on(&self, snapshot: Arc<Catalog>, store: &Store) -> Result<Self, CommitError> {
        let mut changes = Self::new(snapshot, store);
        changes.unchanged.clone_from(&self.unchanged);
        changes.altered.clone_from(&self.altered);
        self.redo_changes(&mut changes.edit)?;
        for (table, rows) in &self.rows {
            let Some(own_table) = self.edit.catalog().table_of(*table) else { continue };
            let newest_table = changes.edit.catalog().table_of(*table).ok_or(CommitError::NoTable { table: *table })?;
            let outside = deleted_outside_own_pages(own_table, newest_table, rows, &self.base.relocations)?;
            let pages: Vec<&DeltaPage> = rows.pages.iter().filter_map(|page| own_table.delta.page(*page)).collect();
            changes.edit.change_rows(*table, |delta| pages.iter().for_each(|page| delta.add_page(page)))?;
            let mut deleted = rows.deleted.clone();
            deleted.retain(|container| rows.pages.contains(&container) && own_table.has_container(container));
            deleted.extend(&outside);
            changes.edit.change_rows(*table, |delta| {
                deleted.segments().for_each(|(container, segment, rows)| delta.delete(container, segment, rows));
            })?;
            changes.rows.insert(*table, TableRows { pages: rows.pages.clone(), deleted });
        }
        changes.publish();
        Ok(changes)
    }
}

/// Rows that a transaction deleted, except those in its own pages, by their row ids in `newest_table`. `own_table` is
/// the transaction's version of the table. Returns an error if the rows cannot be deleted in `newest_table`.
fn deleted_outside_own_pages(
    own_table: &Table,
    newest_table: &Table,
    rows: &TableRows,
    since: &RelocationsSince,
) -> Result<RowSet, CommitError> {
    let mut outside = rows.deleted.clone();
    outside.retain(|container| !rows.pages.contains(&container) && own_table.has_container(container));
    let is_deleted = |(container, segment, rows): (ContainerId, u16, &RoaringBitmap)| {
        let deleted = newest_table.delta.deleted(container).and_then(|deleted| deleted.segment(usize::from(segment)));
        deleted.is_some_and(|deleted| intersects(deleted, rows))
    };
    match since.row_ids_in(newest_table, outside) {
        Some(outside) if !outside.segments().any(is_deleted) => Ok(outside),
        _ => Err(CommitError::RowsChanged { table: own_table.name.clone() }),
    }
}

impl Transaction {
    pub(crate) fn new(store: Store, id: TransactionId) -> Self {
        let changes = TransactionChanges::new(store.snapshot(), &store);
        let state = Mutex::new(TransactionState { changes, savepoints: Vec::new() });
        Self { store, id, state, reads: Mutex::new(None), preview: Mutex::new(None) }
    }

    /// Makes the transaction serializable, or not. A serializable transaction fails to commit if another one has
    /// changed rows that it has read. The committed transactions are then equivalent to a serial execution.
    pub fn set_serializable(&self, is_serializable: bool) {
        let reads = &mut *self.reads.lock();
        *reads = is_serializable.then(|| reads.take().unwrap_or_default());
    }

    /// Whether the transaction is serializable, so that its reads must be recorded.
    pub fn is_serializable(&self) -> bool {
        self.reads.lock().is_some()
    }

    /// Records that the transaction reads all rows of a table.
    pub fn record_table_read(&self, table: TableId) {
        if let Some(reads) = &mut *self.reads.lock() {
            reads.add_table(table);
        }
    }

    /// Records that the transaction reads only the rows of a table that pass all of `predicates`, whether such rows
    /// exist or not. Without predicates it reads all rows.
    pub fn record_reads_where(&self, table: TableId, predicates: Vec<ColumnPredicate>) {
        if let Some(reads) = &mut *self.reads.lock() {
            reads.add(table, predicates);
        }
    }

    /// Undoes `times` calls of [`Transaction::record_table_read`] for a table, once it is known that the transaction
    /// reads fewer rows.
    pub fn withdraw_table_reads(&self, table: TableId, times: usize) {
        if let Some(reads) = &mut *self.reads.lock() {
            reads.remove_table(table, times);
        }
    }

    /// Makes the transaction fail to commit if others have changed rows of a table since its snapshot. A statement that
    /// copies the rows of a table and then drops it needs this. Has no effect on a table that the transaction created.
    pub fn require_unchanged(&self, table: TableId) {
        let changes = &mut self.state.lock().changes;
        if let Some(before) = changes.base.table_of(table) {
            changes.unchanged.entry(table).or_insert(before.content_version);
        }
    }

    /// The database as it would be if the transaction committed now. Repeats all changes of the transaction, unless
    /// nothing has changed since the last call.
    ///
    /// # Errors
    /// If the transaction could not commit now.
    pub fn preview(&self) -> Result<Arc<Catalog>, CommitError> {
        let newest = self.store.newest_unpublished();
        let changes = &self.state.lock().changes;
        if Arc::ptr_eq(&newest, &changes.base) {
            return Ok(Arc::clone(&changes.snapshot));
        }
        let mut last = self.preview.lock();
        if let Some(last) = &*last
            && Arc::ptr_eq(&last.newest, &newest)
            && Arc::ptr_eq(&last.own_snapshot, &changes.snapshot)
        {
            return Ok(Arc::clone(&last.preview));
        }
        let preview = changes.rebased_on(Arc::clone(&newest), &self.store)?.snapshot;
        *last = Some(Preview { newest, own_snapshot: Arc::clone(&changes.snapshot), preview: Arc::clone(&preview) });
        Ok(preview)
    }

    /// Takes the next `count` numbers of a sequence. A rollback does not undo this, unless this transaction has
    /// created, altered or restarted the sequence.
    ///
    /// # Errors
    /// If the sequence does not exist, has fewer than `count` numbers left, or the log cannot be written.
    pub fn next_values(&self, sequence: SequenceId, count: usize) -> Result<Vec<i64>, CommitError> {
        match self.has_own_version(sequence) {
            true => self.change(|edit| edit.next_values(sequence, count)),
            false => self.store.next_values(sequence, count),
        }
    }

    /// Sets the last number of a sequence, or the next one if `is_called` is false. A rollback does not undo this,
    /// unless this transaction has created, altered or restarted the sequence.
    ///
    /// # Errors
    /// If the sequence does not exist, the number is not within its limits, or the log cannot be written.
    pub fn set_value(&self, sequence: SequenceId, last: i64, is_called: bool) -> Result<(), CommitError> {
        match self.has_own_version(sequence) {
            true => self.change(|edit| edit.set_value(sequence, last, is_called)),
            false => self.store.set_value(sequence, last, is_called),
        }
    }

    /// Whether this transaction has created, altered or restarted a sequence. No other transaction then sees this
    /// version of it.
    fn has_own_version(&self, id: SequenceId) -> bool {
        self.state.lock().changes.own_sequences().contains(&id)
    }

    /// Prepares a change of the definition of a sequence. The transaction then has its own version of the sequence,
    /// which continues after the numbers taken so far. It fails to commit if others take numbers meanwhile.
    ///
    /// # Errors
    /// If the sequence does not exist.
    pub fn alter_own_sequence(&self, id: SequenceId) -> Result<(), CommitError> {
        if self.has_own_version(id) {
            return Ok(());
        }
        let newest = self.store.newest_unpublished();
        let missing = || CommitError::NoSequence { sequence: id };
        let &Sequence { last, is_called, .. } = newest.sequence_of(id).ok_or_else(missing)?;
        let mut state = self.state.lock();
        let mut changes = state.changes.clone();
        let own = changes.edit.catalog().sequence_of(id).cloned().ok_or_else(missing)?;
        changes.edit.alter_sequence(Sequence { last, is_called, ..own }, true)?;
        changes.altered.insert(id, (last, is_called));
        changes.publish();
        state.changes = changes;
        Ok(())
    }

    /// The database as this transaction sees it.
    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.state.lock().changes.snapshot)
    }

    /// Whether the transaction has changed nothing.
    pub fn is_read_only(&self) -> bool {
        let changes = &self.state.lock().changes;
        changes.rows.is_empty() && changes.edit.changes().is_empty()
    }

    /// Whether the transaction has changed anything but temporary relations.
    pub fn has_permanent_changes(&self) -> bool {
        let changes = &self.state.lock().changes;
        let has_rows = changes.rows.keys().any(|table| !table.is_temporary());
        has_rows || changes.edit.changes().iter().any(|change| !change.is_temporary())
    }

    /// Whether other transactions may wait for this one, because it has changed or locked rows of permanent tables.
    /// Locks remain after the changes are undone.
    pub fn may_block_others(&self) -> bool {
        self.has_permanent_changes() || self.store.locks().has_permanent_locks(self.id)
    }

    /// Whether this is a transaction of the database of `store`.
    pub fn is_on(&self, store: &Store) -> bool {
        self.store.is_same_database(store)
    }

    /// Makes the transaction see all commits so far, in addition to its own changes.
    ///
    /// # Errors
    /// If its changes conflict with one of these commits.
    pub fn refresh(&self) -> Result<(), CommitError> {
        let newest = self.store.snapshot();
        let mut state = self.state.lock();
        state.changes = state.changes.rebased_on(newest, &self.store)?;
        Ok(())
    }

    /// Refreshes a transaction that has changed nothing yet, as [`Transaction::refresh`] does. Its savepoints get the
    /// new snapshot too.
    ///
    /// # Errors
    /// If [`Transaction::refresh`] fails.
    pub fn refresh_with_savepoints(&self) -> Result<(), CommitError> {
        self.refresh()?;
        let state = &mut *self.state.lock();
        state.savepoints.iter_mut().for_each(|(_, changes)| *changes = state.changes.clone());
        Ok(())
    }

    /// Changes the catalog atomically. Others see the changes when the transaction commits.
    ///
    /// # Errors
    /// If `change` returns an error, or relocates rows that this transaction inserted or deleted, because the
    /// transaction has recorded their old row ids. Nothing changes then.
    pub fn change<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.state.lock();
        let mut changes = state.changes.clone();
        let before = changes.edit.changes().len();
        let value = change(&mut changes.edit)?;
        if let Some(change) = changes.edit.changes()[before..].iter().find(|change| changes.relocates_own_rows(change))
        {
            let table = change.table().and_then(|table| changes.edit.catalog().table_of(table));
            return Err(
                CommitError::OwnRows { table: table.map(|table| table.name.clone()).unwrap_or_default() }.into()
            );
        }
        changes.publish();
        state.changes = changes;
        Ok(value)
    }

    /// Inserts rows with the columns of the table.
    ///
    /// # Errors
    /// If the table no longer exists.
    pub fn insert_rows(&self, table: TableId, rows: &RecordBatch) -> Result<(), CommitError> {
        let changes = &mut self.state.lock().changes;
        let mut rest = Some(rows.clone());
        while let Some(rows) = rest.filter(|rows| rows.num_rows() > 0) {
            let stored = changes.edit.catalog().table_of(table).ok_or(CommitError::NoTable { table })?;
            let own_rows = changes.rows.entry(table).or_default();
            let position = stored.delta.append_position(rows.num_rows(), |page| own_rows.pages.contains(&page));
            let page = match position.page {
                Some(page) => page,
                None => {
                    let page = self.store.allocate_page(table)?;
                    own_rows.pages.push(page);
                    page
                }
            };
            let (schema, name) = (Arc::clone(&stored.schema), stored.name.clone());
            let (here, after) = split_at(rows, position.rows);
            let appended =
                changes.edit.change_rows(table, |delta| delta.append(&schema, (page, position.first), &here))?;
            appended.map_err(|_| CommitError::Misplaced { table: name })?;
            rest = after;
        }
        changes.publish();
        Ok(())
    }

    /// Deletes rows that this transaction sees, and locks them until it ends. Waits for transactions that hold locks on
    /// them.
    ///
    /// # Errors
    /// If another transaction has deleted or replaced one of the rows since this one began, or waiting would be a
    /// deadlock.
    pub async fn delete_rows(&self, table: TableId, rows: &RowSet) -> Result<(), TransactionError> {
        // No other transaction sees the rows in containers that this one has added.
        let rows_to_lock = {
            let changes = &self.state.lock().changes;
            let own_rows = changes.rows.get(&table);
            let is_own = |container| {
                own_rows.is_some_and(|own_rows| own_rows.pages.contains(&container))
                    || changes.edit.has_added(container)
            };
            let mut rows_to_lock = rows.clone();
            rows_to_lock.retain(|container| !is_own(container));
            rows_to_lock
        };
        let base = Arc::clone(&self.state.lock().changes.base);
        loop {
            match self.store.locks().lock(self.id, table, &rows_to_lock, &base.relocations) {
                Ok(()) => break,
                Err(LockConflict::Deadlock) => return Err(TransactionError::Deadlock),
                Err(LockConflict::Wait(ended)) => {
                    let _waiting = Waiting(self);
                    ended.await;
                }
            }
        }
        let newest = self.store.newest_unpublished();
        let changes = &mut self.state.lock().changes;
        let own_table = changes.edit.catalog().table_of(table).ok_or(CommitError::NoTable { table })?;
        if let Some(newest_table) = newest.table_of(table) {
            let deleted = TableRows { pages: vec![], deleted: rows_to_lock };
            deleted_outside_own_pages(own_table, newest_table, &deleted, &base.relocations)?;
        }
        changes.edit.change_rows(table, |delta| {
            rows.segments().for_each(|(container, segment, rows)| delta.delete(container, segment, rows));
        })?;
        changes.rows.entry(table).or_default().deleted.extend(rows);
        changes.publish();
        Ok(())
    }

    /// The current state of the transaction. [`Transaction::restore`] returns to it.
    pub fn savepoint_state(&self) -> SavepointState {
        SavepointState(self.state.lock().changes.clone())
    }

    /// Undoes all changes since [`Transaction::savepoint_state`] returned `state`. The transaction sees the snapshot of
    /// that moment again.
    pub fn restore(&self, state: SavepointState) {
        self.state.lock().changes = state.0;
    }

    /// Creates a savepoint.
    pub fn savepoint(&self, name: &str) {
        let state = &mut *self.state.lock();
        state.savepoints.push((name.to_owned(), state.changes.clone()));
    }

    /// Names of the savepoints, from the oldest to the newest.
    pub fn savepoint_names(&self) -> Vec<String> {
        self.state.lock().savepoints.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Undoes all changes since the newest savepoint with this name, except for the numbers that were taken from
    /// sequences. The savepoint remains.
    ///
    /// # Errors
    /// If there is no savepoint of that name.
    pub fn roll_back_to(&self, name: &str) -> Result<(), TransactionError> {
        let state = &mut *self.state.lock();
        let index = savepoint_index(&state.savepoints, name)?;
        state.savepoints.truncate(index + 1);
        let mut changes = state.savepoints[index].1.clone();
        changes.keep_numbers(&state.changes)?;
        state.changes = changes;
        Ok(())
    }

    /// Removes the newest savepoint with this name, and all later savepoints.
    ///
    /// # Errors
    /// If there is no savepoint of that name.
    pub fn release(&self, name: &str) -> Result<(), TransactionError> {
        let state = &mut *self.state.lock();
        let index = savepoint_index(&state.savepoints, name)?;
        state.savepoints.truncate(index);
        Ok(())
    }

    fn commit_to_store(
        &self,
        changes: &TransactionChanges,
        reads: &ReadSet,
        synchronous: Synchronous,
    ) -> Result<(), CommitError> {
        let mut checked = Arc::clone(&changes.base);
        if !reads.is_empty() {
            // Other transactions can commit during this check. The check under the commit lock covers only their
            // changes.
            let newest = self.store.newest_unpublished();
            reads.check(&checked, &newest)?;
            checked = newest;
        }
        self.store.commit_changes((Some(self.id), synchronous), |edit| {
            reads.check(&checked, edit.catalog())?;
            changes.redo_in_commit(edit)
        })
    }

    /// Commits all changes. This ends the transaction, even if the commit fails.
    ///
    /// # Errors
    /// If the commit fails. Nothing has changed then, unless the error is [`CommitError::Uncertain`].
    pub fn commit(&self, synchronous: Synchronous) -> Result<(), CommitError> {
        let changes = self.state.lock().changes.clone();
        let reads = self.reads.lock().take().unwrap_or_default();
        let result = match self.is_read_only() {
            true => Ok(()),
            false => self.commit_to_store(&changes, &reads, synchronous),
        };
        self.store.locks().end(self.id);
        // Releases its snapshots and writes, so that their files can be removed.
        let state = &mut *self.state.lock();
        state.savepoints.clear();
        *self.preview.lock() = None;
        state.changes = TransactionChanges::new(self.store.snapshot(), &self.store);
        result
    }
}

/// Checks that a change made under one design of a table ([`TableDesign`](taut_types::TableDesign)) can be made under
/// another.
fn check_design(change: &Change, before: &Table, newest: &Table) -> Result<(), CommitError> {
    let is_same = match change {
        // The rows of the blocks are in the order of the design.
        Change::AppendBlocks { .. } => before.design.sort_by == newest.design.sort_by,
        Change::ReplaceRows { .. } | Change::SetDesign { .. } | Change::SetPartitioning { .. } => {
            before.design == newest.design
        }
        // `SetConstraints` and `SetNullable` were checked only against the rows of `before`, and `SetType` comes with
        // converted copies of only those rows. So the rows must not have changed since.
        Change::SetConstraints { constraints, .. } if constraints.is_weaker_than(&before.constraints) => true,
        Change::SetNullable { nullable: true, .. } => true,
        Change::SetConstraints { .. } | Change::SetNullable { .. } | Change::SetType { .. } => {
            return match before.content_version == newest.content_version {
                true => Ok(()),
                false => Err(CommitError::ConstraintsChanged { table: newest.name.clone() }),
            };
        }
        _ => true,
    };
    match is_same {
        true => Ok(()),
        false => Err(CommitError::Design { table: newest.name.clone() }),
    }
}

impl TransactionChanges {
    /// Repeats the changes in the edit's list. Returns an error if other transactions have changed what they depend on,
    /// such as the design of a table.
    fn redo_changes(&self, edit: &mut CatalogEdit) -> Result<(), CommitError> {
        for (table, version) in &self.unchanged {
            let newest = edit.catalog().table_of(*table).ok_or(CommitError::NoTable { table: *table })?;
            if newest.content_version != *version {
                return Err(CommitError::RowsChanged { table: newest.name.clone() });
            }
        }
        for (id, (last, is_called)) in &self.altered {
            let newest = edit.catalog().sequence_of(*id).ok_or(CommitError::NoSequence { sequence: *id })?;
            if (newest.last, newest.is_called) != (*last, *is_called) {
                return Err(CommitError::SequenceChanged { sequence: newest.name.clone() });
            }
        }
        for change in self.edit.changes() {
            self.check_views(change, edit.catalog())?;
            self.check_sequence(change, edit.catalog())?;
            if let Some(table) = change.table()
                && let (Some(before), Some(newest)) = (self.base.table_of(table), edit.catalog().table_of(table))
            {
                check_design(change, before, newest)?;
            }
        }
        self.check_constraints(edit.catalog())?;
        self.edit.changes().iter().try_for_each(|change| edit.apply_and_record(change.clone()))
    }

    /// Checks that no other transaction has created a view on a table whose columns this one drops or changes, or on a
    /// sequence that it drops. Also checks that none has changed what a new view of this one reads or calls, the view
    /// that it replaces, or a function that it replaces or drops.
    fn check_views(&self, change: &Change, newest: &Catalog) -> Result<(), CommitError> {
        match change {
            Change::DropColumn { table, .. } | Change::RenameColumn { table, .. } | Change::SetType { table, .. } => {
                let Some(before) = self.base.table_of(*table) else { return Ok(()) };
                match self.base.views_on(&before.name).eq(newest.views_on(&before.name)) {
                    true => Ok(()),
                    false => Err(CommitError::ConstraintsChanged { table: before.name.clone() }),
                }
            }
            Change::DropSequence { sequence } => {
                let Some(before) = self.base.sequence_of(*sequence) else { return Ok(()) };
                match self.base.views_on(&before.name).eq(newest.views_on(&before.name)) {
                    true => Ok(()),
                    false => Err(CommitError::SequenceChanged { sequence: before.name.clone() }),
                }
            }
            Change::CreateView { view, .. } => {
                let schema = |catalog: &Catalog, name: &str| catalog.table(name).map(|table| Arc::clone(&table.schema));
                let sequence = |catalog: &Catalog, name: &str| catalog.sequence(name).map(|sequence| sequence.id);
                let is_same = |name: &String| {
                    schema(&self.base, name) == schema(newest, name)
                        && self.base.view(name) == newest.view(name)
                        && sequence(&self.base, name) == sequence(newest, name)
                };
                let has_same_readers = self.base.views_on(&view.name).eq(newest.views_on(&view.name));
                let has_function = |name: &String| newest.function(name).is_some();
                let is_valid = view.relations.keys().all(is_same) && view.functions.iter().all(has_function);
                match is_valid && has_same_readers && is_same(&view.name) {
                    true => Ok(()),
                    false => Err(CommitError::ViewChanged { view: view.name.clone() }),
                }
            }
            Change::CreateFunction { function: Function { name, .. }, .. } | Change::DropFunction { name } => {
                match self.base.function(name) == newest.function(name) {
                    true => Ok(()),
                    false => Err(CommitError::FunctionChanged { function: name.clone() }),
                }
            }
            _ => Ok(()),
        }
    }

    /// Checks that no other transaction has changed the definition of a sequence that this one changes.
    fn check_sequence(&self, change: &Change, newest: &Catalog) -> Result<(), CommitError> {
        let Change::AlterSequence { sequence, .. } = change else { return Ok(()) };
        match (self.base.sequence_of(sequence.id), newest.sequence_of(sequence.id)) {
            (Some(before), Some(newest)) if !before.is_defined_as(newest) => {
                Err(CommitError::SequenceChanged { sequence: newest.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the changed tables still have the constraints against which the changes were checked.
    fn check_constraints(&self, catalog: &Catalog) -> Result<(), CommitError> {
        let changed = self.edit.changes().iter().filter_map(Change::table).chain(self.rows.keys().copied());
        for table in changed {
            let (Some(before), Some(newest)) = (self.base.table_of(table), catalog.table_of(table)) else { continue };
            let foreign_keys_of = |version: &Catalog, child: &TableId| {
                version.table_of(*child).map(|child| child.constraints.foreign_keys.clone())
            };
            let mut children = newest.constraints.referenced_by.iter();
            let is_same = before.constraints == newest.constraints
                && before.schema == newest.schema
                && children.all(|child| foreign_keys_of(&self.base, child) == foreign_keys_of(catalog, child));
            if !is_same {
                return Err(CommitError::ConstraintsChanged { table: newest.name.clone() });
            }
        }
        Ok(())
    }

    /// Repeats all changes in the edit of a commit. Unlike [`Self::rebased_on`], this records all of them for the log,
    /// and inserts only the rows that the transaction has not deleted again.
    fn redo_in_commit(&self, edit: &mut CatalogEdit) -> Result<(), CommitError> {
        self.redo_changes(edit)?;
        for (table, rows) in &self.rows {
            let Some(own_table) = self.edit.catalog().table_of(*table) else { continue };
            let newest_table = edit.catalog().table_of(*table).ok_or(CommitError::NoTable { table: *table })?;
            let outside = deleted_outside_own_pages(own_table, newest_table, rows, &self.base.relocations)?;
            for (container, segment, deleted) in outside.segments() {
                edit.apply_and_record(Change::DeleteRows { table: *table, container, segment, rows: deleted.clone() })?;
            }
            for page in rows.pages.iter().filter_map(|page| own_table.delta.page(*page)) {
                let batch = live_rows(own_table, page)?;
                edit.insert_rows(*table, batch)?;
            }
        }
        Ok(())
    }
}

/// The rows of a page that are not deleted.
pub(crate) fn live_rows(table: &Table, page: &DeltaPage) -> Result<RecordBatch, CommitError> {
    let misplaced = |_| CommitError::Misplaced { table: table.name.clone() };
    let batch = page.batch(&table.schema).map_err(misplaced)?;
    match table.delta.deleted(page.id()).and_then(|deleted: &Arc<DeletedRows>| deleted.segment(0)) {
        None => Ok(batch),
        Some(deleted) => {
            let is_live = BooleanBuffer::collect_bool(batch.num_rows(), |row| !deleted.contains(row as u32));
            filter_record_batch(&batch, &BooleanArray::new(is_live, None)).map_err(misplaced)
        }
    }
}

fn savepoint_index(savepoints: &[(String, TransactionChanges)], name: &str) -> Result<usize, TransactionError> {
    let index = savepoints.iter().rposition(|(savepoint, _)| savepoint == name);
    index.ok_or_else(|| TransactionError::NoSavepoint { name: name.to_owned() })
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.store.locks().end(self.id);
    }
}

/// Drop guard: removes a transaction from the wait graph, even if its future is dropped early.
struct Waiting<'a>(&'a Transaction);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store.locks().stop_waiting(self.0.id);
    }
}
