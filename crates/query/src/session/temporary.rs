//! Temporary relations: detects statements that define or change no other relations, and runs `ON COMMIT` actions.

use std::collections::BTreeMap;

use taut_sql::{CommentedObject, ObjectKind, OnCommit, Statement};
use taut_store::{CatalogEdit, CommitError, TableId, Transaction};
use taut_types::is_temporary_relation;

use super::QuerySession;
use super::constraints::drop_references_between;
use super::names::{dependent_views, drop_foreign_keys, drop_views};
use super::sequences::{drop_defaults, uses_of_owned};
use crate::error::{Result, TemporaryError};
use crate::write::changes::Changes;

/// `ON COMMIT` actions of the temporary tables that do not preserve their rows. Some of the tables may no longer exist.
#[derive(Debug, Default)]
pub(super) struct OnCommitActions(BTreeMap<TableId, OnCommit>);

impl OnCommitActions {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deletes rows and drops tables, as part of a transaction that is about to commit.
    ///
    /// # Errors
    /// If a table that preserves its rows references a table whose rows are deleted.
    pub fn apply(&self, transaction: &Transaction) -> Result<()> {
        let snapshot = transaction.snapshot();
        match self.0.keys().any(|table| snapshot.table_of(*table).is_some()) {
            true => transaction.change(|edit| self.apply_to(edit)),
            false => Ok(()),
        }
    }

    fn apply_to(&self, edit: &mut CatalogEdit) -> Result<()> {
        let with =
            |action: OnCommit| self.0.iter().filter(move |(_, known)| **known == action).map(|(table, _)| *table);
        let exists = |table: &TableId| edit.catalog().table_of(*table).is_some();
        let dropped: Vec<TableId> = with(OnCommit::Drop).filter(exists).collect();
        drop_tables(edit, &dropped)?;
        for table in with(OnCommit::DeleteRows) {
            let Some(stored) = edit.catalog().table_of(table).cloned() else { continue };
            let keeps_rows = |child: &&TableId| !self.0.contains_key(*child);
            if let Some(child) = stored.constraints.referenced_by.iter().find(keeps_rows) {
                let child = edit.catalog().table_of(*child).map(|child| child.name.clone()).unwrap_or_default();
                return Err(TemporaryError::OnCommitReferenced { child, parent: stored.name.clone() }.into());
            }
            if stored.rows() > 0 {
                edit.truncate(table)?;
            }
        }
        Ok(())
    }
}

/// Drops tables and the objects that depend on them.
fn drop_tables(edit: &mut CatalogEdit, tables: &[TableId]) -> std::result::Result<(), CommitError> {
    let catalog = edit.catalog().clone();
    let names = tables.iter().filter_map(|table| Some(catalog.table_of(*table)?.name.as_str())).collect();
    let views = dependent_views(&catalog, ObjectKind::Table, names);
    let others = catalog.tables().filter(|table| !tables.contains(&table.id));
    let keys = others.flat_map(|table| table.constraints.foreign_keys.iter().map(|key| (table.id, key)));
    let keys: Vec<_> = keys.filter(|(_, key)| tables.contains(&key.table)).collect();
    drop_defaults(edit, &uses_of_owned(&catalog, tables))?;
    drop_foreign_keys(edit, &keys)?;
    drop_references_between(edit, tables)?;
    drop_views(edit, views.iter().map(|(view, _)| view.as_str()).collect())?;
    tables.iter().try_for_each(|table| edit.drop_table(*table))
}

impl QuerySession {
    /// Records the `ON COMMIT` action of a new table.
    pub(super) fn set_on_commit(&self, table: &str, action: Option<OnCommit>) {
        let Some(action @ (OnCommit::DeleteRows | OnCommit::Drop)) = action else { return };
        let Some(table) = self.snapshot().table(table).map(|table| table.id) else { return };
        self.transactions.lock().on_commit.0.insert(table, action);
    }

    /// Runs the `ON COMMIT` actions after a statement or load that committed outside of a transaction.
    pub(super) fn apply_on_commit(&self) -> Result<()> {
        if self.is_in_transaction() || self.transactions.lock().on_commit.is_empty() {
            return Ok(());
        }
        let snapshot = self.store.snapshot();
        let state = &mut *self.transactions.lock();
        state.on_commit.0.retain(|table, _| snapshot.table_of(*table).is_some());
        Changes::autocommit(self.store.clone()).commit(|edit| state.on_commit.apply_to(edit))
    }

    /// Whether a statement defines or changes only temporary relations. May be false for a statement that will fail.
    pub(super) fn is_of_temporary(&self, statement: &Statement) -> bool {
        let is_temporary = |name: Result<String>| name.is_ok_and(|name| is_temporary_relation(&name));
        match statement {
            Statement::CreateTable { name, temporary, .. } | Statement::CreateSequence { name, temporary, .. } => {
                is_temporary(self.new_name(name, *temporary))
            }
            Statement::CreateView { name, temporary, sql, .. } => {
                is_temporary(self.new_view_name(name, *temporary, sql).map(|(name, _)| name))
            }
            Statement::CreateIndex(index) => is_temporary(self.name(&index.table)),
            Statement::Drop { names, .. } => names.iter().all(|name| is_temporary(self.name(name))),
            Statement::AlterTable { name, .. }
            | Statement::AlterView { name, .. }
            | Statement::AlterSequence { name, .. }
            | Statement::CopyFrom { name, .. }
            | Statement::Comment { on: CommentedObject::Relation { name, .. }, .. }
            | Statement::Comment { on: CommentedObject::Column { relation: name, .. }, .. } => {
                is_temporary(self.name(name))
            }
            _ => false,
        }
    }
}
