//! Checks keys and foreign keys after a statement has written its rows.
//!
//! ```text
//! rows written ── lock their keys until the transaction ends
//!              ── look them up in the database as if the transaction committed now
//!              ── if another transaction has locked a found row: wait for its end, then look up again
//! ```
//!
//! Every transaction locks a key before it looks it up. If two transactions write a key concurrently, one of them
//! therefore finds the row of the other. Keys of a few rows are looked up through indexes. Keys of rows that were
//! loaded as blocks are compared by queries, with all keys of the table locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt32Array, new_null_array};
use datafusion::arrow::compute::take;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use taut_store::{
    Catalog, CommitError, ForeignKey, KeyMode, KeySearch, ReferentialAction, RowId, RowSet, Table, TableId,
    Transaction, UniqueKey, key_hashes,
};
use taut_types::ColumnIndex;

use super::QuerySession;
use crate::constraints::shown_name;
use crate::error::{QueryError, Result, Violation};
use crate::expressions::write_value;
use crate::write::changes::{ChangedTable, Changes, WrittenRows};
use crate::write::coerce::Coercion;
use crate::write::live::read_rows;

/// Maximum number of keys in one lookup.
const KEYS_AT_ONCE: usize = 4_096;

impl QuerySession {
    /// Checks the keys of the rows that a statement wrote, and runs the actions of foreign keys.
    ///
    /// # Errors
    /// If a key is not unique, or a foreign key references no row. The caller must then undo the statement.
    pub(super) async fn check_keys(&self, changes: &Changes) -> Result<()> {
        let Some(transaction) = changes.transaction() else { return Ok(()) };
        loop {
            let written = changes.take_written();
            if written.is_empty() {
                return Ok(());
            }
            for ChangedTable { table, rows } in &written {
                match rows {
                    WrittenRows::Deleted(rows) => {
                        self.run_referential_actions(changes, transaction, table, rows, false).await?
                    }
                    WrittenRows::Replaced(rows) => {
                        self.run_referential_actions(changes, transaction, table, rows, true).await?
                    }
                    WrittenRows::New(_) | WrittenRows::Blocks(_) => {}
                }
            }
            for ChangedTable { table, rows } in &written {
                for key in &table.constraints.keys {
                    match rows {
                        WrittenRows::New(rows) => check_unique(transaction, table, key, rows).await?,
                        WrittenRows::Blocks(blocks) => {
                            Box::pin(self.check_unique_blocks(transaction, table, key, blocks)).await?;
                        }
                        WrittenRows::Deleted(_) | WrittenRows::Replaced(_) => {}
                    }
                }
            }
            for ChangedTable { table, rows } in &written {
                for key in &table.constraints.foreign_keys {
                    match rows {
                        WrittenRows::New(rows) => check_referenced(transaction, table, key, rows).await?,
                        WrittenRows::Blocks(blocks) => {
                            Box::pin(self.check_referenced_blocks(transaction, table, key, blocks)).await?;
                        }
                        WrittenRows::Deleted(_) | WrittenRows::Replaced(_) => {}
                    }
                }
            }
        }
    }

    /// Runs the actions of foreign keys whose referenced rows are deleted or updated.
    async fn run_referential_actions(
        &self,
        changes: &Changes,
        transaction: &Arc<Transaction>,
        table: &Arc<Table>,
        rows: &RowSet,
        is_replaced: bool,
    ) -> Result<()> {
        for child in &table.constraints.referenced_by {
            let snapshot = transaction.snapshot();
            let Some(child) = snapshot.table_of(*child) else { continue };
            for key in child.constraints.foreign_keys.iter().filter(|key| key.table == table.id) {
                for batch in read_rows(table, rows, &key.referenced)? {
                    self.run_actions_of_keys(
                        changes,
                        transaction,
                        RemovedKeys { table, child, key, is_replaced },
                        batch.columns(),
                    )
                    .await?;
                }
            }
        }
        Ok(())
    }

    async fn run_actions_of_keys(
        &self,
        changes: &Changes,
        transaction: &Arc<Transaction>,
        removed: RemovedKeys<'_>,
        keys: &[ArrayRef],
    ) -> Result<()> {
        let RemovedKeys { table, child, key, is_replaced } = removed;
        for keys in chunks(keys) {
            transaction.lock_keys(table.id, &non_null_hashes(&keys), KeyMode::Exclusive).await?;
            loop {
                // Skips keys that now belong to another row of the referenced table.
                let mut found = key_ordinals(find_at_commit(transaction, table.id, &key.referenced, &keys)?);
                let rows = find_at_commit(transaction, child.id, &key.columns, &keys)?;
                found = rows.iter().map(|(ordinal, _)| *ordinal).filter(|ordinal| !found.contains(ordinal)).collect();
                let rows: Vec<RowId> =
                    rows.into_iter().filter(|(ordinal, _)| found.contains(ordinal)).map(|(_, row)| row).collect();
                let Some(first) = found.first() else { break };
                if wait_for(transaction, child.id, &rows).await? {
                    continue;
                }
                let action = if is_replaced { ReferentialAction::NoAction } else { key.on_delete };
                if action == ReferentialAction::NoAction {
                    return Err(Violation::StillReferenced {
                        table: table.name.clone(),
                        key: format_key(table, &key.referenced, &keys, *first)?,
                        by: child.name.clone(),
                        constraint: key.name.clone(),
                    }
                    .into());
                }
                // Finds the same rows in the snapshot of this transaction.
                let snapshot = transaction.snapshot();
                let visible_child = snapshot.table_of(child.id).ok_or(CommitError::NoTable { table: child.id })?;
                let visible_rows = find_in_version(visible_child, &key.columns, &keys)?;
                let visible_rows =
                    visible_rows.into_iter().filter(|(ordinal, _)| found.contains(ordinal)).map(|(_, row)| row);
                let visible_rows: RowSet = visible_rows.collect();
                if visible_rows.len() < rows.into_iter().collect::<RowSet>().len() {
                    return Err(CommitError::RowsChanged { table: child.name.clone() }.into());
                }
                let (child, rows) = (visible_child, visible_rows);
                if action == ReferentialAction::SetNull {
                    set_null(changes, transaction, child, key, &rows)?;
                }
                transaction.delete_rows(child.id, &rows).await?;
                changes.record_written(
                    child,
                    match action {
                        ReferentialAction::SetNull => WrittenRows::Replaced(rows),
                        _ => WrittenRows::Deleted(rows),
                    },
                );
                break;
            }
        }
        Ok(())
    }
}

/// Keys of deleted or updated rows, and a foreign key of another table that may reference them.
#[derive(Clone, Copy)]
struct RemovedKeys<'a> {
    table: &'a Arc<Table>,
    child: &'a Arc<Table>,
    key: &'a ForeignKey,
    /// Whether the rows are updated. False if they are deleted.
    is_replaced: bool,
}

/// Inserts new versions of the referencing rows `rows`, with nulls in the columns of the foreign key.
fn set_null(
    changes: &Changes,
    transaction: &Arc<Transaction>,
    child: &Arc<Table>,
    key: &ForeignKey,
    rows: &RowSet,
) -> Result<()> {
    let snapshot = transaction.snapshot();
    let current = snapshot.table_of(child.id).ok_or(CommitError::NoTable { table: child.id })?;
    let all: Vec<ColumnIndex> = (0..child.schema.len()).map(ColumnIndex::from).collect();
    for batch in read_rows(current, rows, &all)? {
        let mut columns = batch.columns().to_vec();
        for column in &key.columns {
            let column = column.index();
            columns[column] = new_null_array(columns[column].data_type(), batch.num_rows());
        }
        let nullable = datafusion::arrow::datatypes::Schema::new(
            batch.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>(),
        );
        let batch = RecordBatch::try_new(Arc::new(nullable), columns).map_err(DataFusionError::from)?;
        let batch = Coercion::for_table(&batch.schema(), child)?.coerce(&batch)?;
        transaction.insert_rows(child.id, &batch)?;
        changes.record_written(child, WrittenRows::New(batch));
    }
    Ok(())
}

/// Checks that each key of the new rows belongs to only one row of the table.
async fn check_unique(transaction: &Transaction, table: &Table, key: &UniqueKey, rows: &RecordBatch) -> Result<()> {
    for keys in chunks(&key_columns(rows, &key.columns)) {
        transaction.lock_keys(table.id, &non_null_hashes(&keys), KeyMode::Exclusive).await?;
        loop {
            let mut rows_of_keys: BTreeMap<u32, Vec<RowId>> = BTreeMap::new();
            for (ordinal, row) in find_at_commit(transaction, table.id, &key.columns, &keys)? {
                rows_of_keys.entry(ordinal).or_default().push(row);
            }
            rows_of_keys.retain(|_, rows| rows.len() > 1);
            let Some(first) = rows_of_keys.keys().next().copied() else { break };
            let duplicates: Vec<RowId> = rows_of_keys.into_values().flatten().collect();
            if wait_for(transaction, table.id, &duplicates).await? {
                continue;
            }
            let visible = transaction.snapshot();
            let visible = visible.table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let wanted: Vec<ArrayRef> = keys.iter().map(|column| column.slice(first as usize, 1)).collect();
            return Err(Violation::NotUnique {
                table: table.name.clone(),
                constraint: key.name.clone(),
                key: format_key(table, &key.columns, &keys, first)?,
                is_concurrent: find_in_version(visible, &key.columns, &wanted)?.len() < 2,
            }
            .into());
        }
    }
    Ok(())
}

/// Checks that the referenced table has the foreign key of each new row.
async fn check_referenced(
    transaction: &Transaction,
    table: &Table,
    key: &ForeignKey,
    rows: &RecordBatch,
) -> Result<()> {
    for keys in chunks(&key_columns(rows, &key.columns)) {
        transaction.lock_keys(key.table, &non_null_hashes(&keys), KeyMode::Shared).await?;
        let found = key_ordinals(find_at_commit(transaction, key.table, &key.referenced, &keys)?);
        let wanted = key_hashes(&keys).into_iter().zip(0_u32..).filter_map(|(hash, ordinal)| hash.map(|_| ordinal));
        if let Some(missing) = wanted.into_iter().find(|ordinal| !found.contains(ordinal)) {
            return Err(not_referenced(
                &transaction.snapshot(),
                table,
                key,
                format_key(table, &key.columns, &keys, missing)?,
            ));
        }
    }
    Ok(())
}

pub(super) fn not_referenced(catalog: &Catalog, table: &Table, key: &ForeignKey, key_text: String) -> QueryError {
    Violation::NotReferenced {
        table: table.name.clone(),
        constraint: key.name.clone(),
        key: key_text,
        referenced: catalog.table_of(key.table).map(|parent| parent.name.clone()).unwrap_or_default(),
    }
    .into()
}

/// Waits for the end of a transaction that has locked one of `rows`. Returns false if no transaction has.
async fn wait_for(transaction: &Transaction, table: TableId, rows: &[RowId]) -> Result<bool> {
    for row in rows {
        if transaction.wait_for_row(table, *row).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn key_columns(rows: &RecordBatch, columns: &[ColumnIndex]) -> Vec<ArrayRef> {
    columns.iter().map(|column| Arc::clone(rows.column(column.index()))).collect()
}

/// Finds the rows of a table that would have one of `keys` if the transaction committed now. Returns them with the
/// ordinals of their keys.
fn find_at_commit(
    transaction: &Transaction,
    table: TableId,
    columns: &[ColumnIndex],
    keys: &[ArrayRef],
) -> Result<Vec<(u32, RowId)>> {
    let columns: Vec<usize> = columns.iter().map(|column| column.index()).collect();
    Ok(transaction.find_keys(table, &columns, keys)?)
}

/// Finds the rows with one of `keys` in one version of a table. Returns them with the ordinals of their keys.
fn find_in_version(table: &Table, columns: &[ColumnIndex], keys: &[ArrayRef]) -> Result<Vec<(u32, RowId)>> {
    let columns: Vec<usize> = columns.iter().map(|column| column.index()).collect();
    Ok(KeySearch::new(table, &columns).find(keys)?)
}

fn key_ordinals(found: Vec<(u32, RowId)>) -> BTreeSet<u32> {
    found.into_iter().map(|(ordinal, _)| ordinal).collect()
}

fn non_null_hashes(keys: &[ArrayRef]) -> Vec<u64> {
    key_hashes(keys).into_iter().flatten().collect()
}

/// Divides keys into chunks of at most [`KEYS_AT_ONCE`].
fn chunks(keys: &[ArrayRef]) -> impl Iterator<Item = Vec<ArrayRef>> {
    let rows = keys.first().map_or(0, |column| column.len());
    (0..rows).step_by(KEYS_AT_ONCE).map(move |first| {
        let count = KEYS_AT_ONCE.min(rows - first);
        keys.iter().map(|column| column.slice(first, count)).collect()
    })
}

/// Formats a key for a message: `(a, b)=(1, x)`.
pub(super) fn format_key(table: &Table, columns: &[ColumnIndex], keys: &[ArrayRef], ordinal: u32) -> Result<String> {
    let names: Vec<String> = columns.iter().map(|column| shown_name(table, *column)).collect();
    let row = UInt32Array::from(vec![ordinal]);
    let value = |column: &ArrayRef| write_value(&take(column, &row, None)?, 0);
    let values = keys.iter().map(value).collect::<datafusion::arrow::error::Result<Vec<_>>>();
    Ok(format!("({})=({})", names.join(", "), values.map_err(DataFusionError::from)?.join(", ")))
}

/// Formats the visible columns of the first row of a batch for a message. The batch has all columns of the table.
pub(super) fn format_row(table: &Table, rows: &RecordBatch) -> Result<String> {
    let visible: Vec<ColumnIndex> = table.visible_columns().collect();
    format_key(table, &visible, &key_columns(rows, &visible), 0)
}
