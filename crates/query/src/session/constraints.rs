//! Constraints of tables: declaration, changes, and checks of many rows by queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use taut_sql::{ColumnChange, ConstraintChange, Declared, DeclaredCondition, IdentityChange, SchemaChange};
use taut_store::{
    BlockFile, Catalog, CatalogEdit, CommentTarget, CommitError, Constraints, ForeignKey, KeyMode, Table, TableId,
    Transaction, UniqueKey,
};
use taut_types::{ColumnIndex, IndexDesign, Schema, TableDesign, is_temporary_relation};

use super::columns::TypeChange;
use super::index_columns::check_no_hidden_columns;
use super::keys::{format_key, format_row, not_referenced};
use super::sequences::create_owned_sequence;
use super::{Done, Outcome, QuerySession};
use crate::constraints::{AlteredTable, add_key_indexes, apply_changes, declare_constraints, sequences_of_default};
use crate::error::{QueryError, Result, Violation};
use crate::exec::operators::make_interruptible;
use crate::exec::scan::TautTable;
use crate::write::changes::Changes;

/// Name of the relation with the rows to check, in queries that check constraints. [`OTHERS`] holds the rows to compare
/// them with, and [`PARENT`] the rows of the referenced table.
pub(super) const ROWS: &str = "taut rows";
const OTHERS: &str = "taut others";
const PARENT: &str = "taut parent";

impl QuerySession {
    /// Creates a table with its constraints and defaults.
    pub(super) fn define_table(
        edit: &mut CatalogEdit,
        name: &str,
        schema: &Schema,
        mut design: TableDesign,
        declaration: &Declared,
    ) -> Result<()> {
        let table = edit.create_table(name, schema.clone(), design.clone())?;
        for (column, comment) in &declaration.comments {
            let column = schema.index_of(column).ok_or_else(|| QueryError::no_column(name, column))?;
            edit.set_comment(CommentTarget::Column(table, column), Some(comment.clone()))?;
        }
        let mut constraints = declare_constraints(declaration, (table, name, schema), edit.catalog())?;
        for sequence in &declaration.sequences {
            create_owned_sequence(edit, (name, schema), sequence, &mut constraints)?;
        }
        if constraints.is_empty() {
            return Ok(());
        }
        let before = design.indexes.len();
        add_key_indexes((name, &mut design), &constraints, edit.catalog())?;
        if design.indexes.len() > before {
            edit.set_design(table, design)?;
        }
        Ok(set_constraints(edit, table, constraints)?)
    }

    /// Changes the columns and constraints of a table, after checking that its rows obey new constraints.
    pub(super) async fn alter_schema(&self, name: &str, changes: &[SchemaChange]) -> Result<Outcome> {
        let table = self.table(name)?;
        check_no_hidden_columns(&table, changes)?;
        let without_nulls = |change: &SchemaChange| match change {
            SchemaChange::Constraint(ConstraintChange::Nullable { nullable, .. }) => !nullable,
            SchemaChange::Constraint(ConstraintChange::Add(constraint)) => {
                matches!(constraint.rule, DeclaredCondition::Key { is_primary: true, .. })
            }
            SchemaChange::Column(ColumnChange::Add { column, .. }) => !column.nullable,
            _ => false,
        };
        // Removes deleted rows first, because their nulls would prevent NOT NULL.
        if changes.iter().any(without_nulls) && !table.delta.is_empty() && !self.is_in_transaction() {
            self.vacuum(true, &[name.to_owned()]).await?;
        }
        let _lock = self.lock_for_maintenance(table.id).await;
        let altered = self.in_transaction(async |target: Changes| {
            let mut notices = Vec::new();
            for step in schema_steps(changes) {
                notices.extend(match step {
                    SchemaStep::Column(change) => self.change_column(&target, name, change).await?,
                    SchemaStep::Types(changes) => {
                        self.set_column_types(&target, name, &changes).await?;
                        Vec::new()
                    }
                    SchemaStep::Identity(change) => {
                        self.change_identity(&target, name, change)?;
                        Vec::new()
                    }
                    SchemaStep::Constraint(change) => {
                        self.change_constraints(&target, name, std::slice::from_ref(&change)).await?
                    }
                });
            }
            Ok(notices)
        });
        let notices = altered.await?;
        self.rebuild(table.id, &format!("index {name}"), &[]).await?;
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("ALTER TABLE") }))
    }

    /// Changes the constraints of a table in a transaction. Returns notices.
    pub(super) async fn change_constraints(
        &self,
        target: &Changes,
        name: &str,
        changes: &[ConstraintChange],
    ) -> Result<Vec<String>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        let AlteredTable { constraints, columns, notices } = apply_changes(changes, table, &snapshot)?;
        let before = table.schema.columns().iter().zip(&columns).enumerate();
        let nullable: Vec<(ColumnIndex, bool)> = before
            .filter(|(_, (before, after))| before.nullable != after.nullable)
            .map(|(position, (_, after))| (ColumnIndex::from(position), after.nullable))
            .collect();
        let not_null: Vec<ColumnIndex> =
            nullable.iter().filter(|(_, nullable)| !nullable).map(|(column, _)| *column).collect();
        for column in &not_null {
            self.check_no_nulls(&snapshot, table, *column).await?;
        }
        if !not_null.is_empty() && !table.delta.is_empty() {
            self.rewrite_rows(target, table).await?;
        }
        self.check_all(&snapshot, table, &constraints).await?;
        target.commit(|edit| {
            let mut design = table.design.as_ref().clone();
            let dropped = |index: &IndexDesign| {
                let has_key = |constraints: &Constraints| constraints.keys.iter().any(|key| key.name == index.name);
                has_key(&table.constraints) && !has_key(&constraints)
            };
            design.indexes.retain(|index| !dropped(index));
            add_key_indexes((name, &mut design), &constraints, edit.catalog())?;
            if design != *table.design {
                edit.set_design(table.id, design)?;
            }
            // Columns become NOT NULL before a key is added, and nullable only after a key is dropped.
            let set = |edit: &mut CatalogEdit, wanted: bool| {
                let mut columns = nullable.iter().filter(|(_, nullable)| *nullable == wanted);
                columns.try_for_each(|(column, nullable)| edit.set_nullable(table.id, *column, *nullable))
            };
            set(edit, false)?;
            set_constraints(edit, table.id, constraints)?;
            Ok::<_, QueryError>(set(edit, true)?)
        })?;
        Ok(notices)
    }

    async fn check_no_nulls(&self, snapshot: &Arc<Catalog>, table: &Arc<Table>, column: ColumnIndex) -> Result<()> {
        let column = table.schema.column(column).name.clone();
        let sql = format!("SELECT 1 FROM \"{ROWS}\" WHERE {} IS NULL LIMIT 1", quote_name(&column));
        match self.first_row(snapshot, vec![(ROWS, Arc::clone(table))], &sql).await? {
            Some(_) => Err(Violation::Nulls { table: table.name.clone(), column }.into()),
            None => Ok(()),
        }
    }

    /// Checks the rows of a table against the constraints in `constraints` that the table does not have yet.
    async fn check_all(&self, snapshot: &Arc<Catalog>, table: &Arc<Table>, constraints: &Constraints) -> Result<()> {
        let rows = (ROWS, Arc::clone(table));
        for check in constraints.checks.iter().filter(|check| !table.constraints.checks.contains(check)) {
            let sql = format!("SELECT * FROM \"{ROWS}\" WHERE NOT ({}) LIMIT 1", check.condition);
            if let Some(row) = self.first_row(snapshot, vec![rows.clone()], &sql).await? {
                return Err(Violation::CheckOfTable {
                    table: table.name.clone(),
                    constraint: check.name.clone(),
                    row: format_row(table, &row)?,
                }
                .into());
            }
        }
        for key in constraints.keys.iter().filter(|key| !table.constraints.keys.contains(key)) {
            if let Some(row) = self.first_duplicate(snapshot, table, key).await? {
                return Err(Violation::NotUniqueInTable {
                    table: table.name.clone(),
                    constraint: key.name.clone(),
                    key: format_key(table, &key.columns, row.columns(), 0)?,
                }
                .into());
            }
        }
        for key in constraints.foreign_keys.iter().filter(|key| !table.constraints.foreign_keys.contains(key)) {
            self.check_references(snapshot, table, table, key).await?;
        }
        Ok(())
    }

    /// Checks that the keys of the rows in new blocks are unique in the table.
    pub(super) async fn check_unique_blocks(
        &self,
        transaction: &Transaction,
        table: &Table,
        key: &UniqueKey,
        blocks: &[Arc<BlockFile>],
    ) -> Result<()> {
        transaction.lock_all_keys(table.id, KeyMode::Exclusive).await?;
        let preview = transaction.preview()?;
        let newest = preview.table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
        let (new, others) = newest.split_by_blocks(blocks);
        let (new, others) = (Arc::new(new), Arc::new(others));
        if let Some(row) = self.first_duplicate(&preview, &new, key).await? {
            return duplicate_key(table, key, &row);
        }
        if others.rows() == 0 {
            return Ok(());
        }
        let names = quoted_names(&table.schema, &key.columns);
        let equal: Vec<String> = names.iter().map(|name| format!("r.{name} = o.{name}")).collect();
        let columns: Vec<String> = names.iter().map(|name| format!("r.{name}")).collect();
        let sql = format!(
            "SELECT {} FROM \"{ROWS}\" r JOIN \"{OTHERS}\" o ON {} LIMIT 1",
            columns.join(", "),
            equal.join(" AND ")
        );
        match self.first_row(&preview, vec![(ROWS, new), (OTHERS, others)], &sql).await? {
            Some(row) => duplicate_key(table, key, &row),
            None => Ok(()),
        }
    }

    /// Checks that the referenced table has the keys of the rows in new blocks.
    pub(super) async fn check_referenced_blocks(
        &self,
        transaction: &Transaction,
        table: &Table,
        key: &ForeignKey,
        blocks: &[Arc<BlockFile>],
    ) -> Result<()> {
        transaction.lock_all_keys(key.table, KeyMode::Shared).await?;
        let preview = transaction.preview()?;
        let newest = preview.table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
        let (new, _) = newest.split_by_blocks(blocks);
        self.check_references(&preview, table, &Arc::new(new), key).await
    }

    /// Returns the first key that several rows have. Returns `None` if all keys are unique.
    async fn first_duplicate(
        &self,
        catalog: &Arc<Catalog>,
        rows: &Arc<Table>,
        key: &UniqueKey,
    ) -> Result<Option<RecordBatch>> {
        let names = quoted_names(&rows.schema, &key.columns);
        let (columns, not_null) = (names.join(", "), not_null_condition(&names));
        let sql =
            format!("SELECT {columns} FROM \"{ROWS}\" WHERE {not_null} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1");
        self.first_row(catalog, vec![(ROWS, Arc::clone(rows))], &sql).await
    }

    async fn check_references(
        &self,
        catalog: &Arc<Catalog>,
        table: &Table,
        rows: &Arc<Table>,
        key: &ForeignKey,
    ) -> Result<()> {
        let parent = catalog.table_of(key.table).ok_or(CommitError::NoTable { table: key.table })?;
        let (own, referenced) =
            (quoted_names(&table.schema, &key.columns), quoted_names(&parent.schema, &key.referenced));
        let equal: Vec<String> =
            own.iter().zip(&referenced).map(|(own, referenced)| format!("r.{own} = p.{referenced}")).collect();
        let sql = format!(
            "SELECT {} FROM \"{ROWS}\" r WHERE {} AND NOT EXISTS (SELECT 1 FROM \"{PARENT}\" p WHERE {}) LIMIT 1",
            own.join(", "),
            not_null_condition(&own),
            equal.join(" AND ")
        );
        match self.first_row(catalog, vec![(ROWS, Arc::clone(rows)), (PARENT, Arc::clone(parent))], &sql).await? {
            Some(row) => Err(not_referenced(catalog, table, key, format_key(table, &key.columns, row.columns(), 0)?)),
            None => Ok(()),
        }
    }

    /// Returns the first row of a query over the given versions of tables.
    pub(super) async fn first_row(
        &self,
        snapshot: &Arc<Catalog>,
        relations: Vec<(&'static str, Arc<Table>)>,
        sql: &str,
    ) -> Result<Option<RecordBatch>> {
        let mut catalog = self.catalog(Arc::clone(snapshot), None);
        for (name, table) in relations {
            let table = TautTable::whole(Arc::clone(self.store()), table).without_keys();
            catalog.relations.push((name.into(), Arc::new(table) as Arc<dyn TableProvider>));
        }
        let state = catalog.state(self.context.state());
        let plan = state.create_logical_plan(sql).await?;
        let plan = make_interruptible(state.create_physical_plan(&plan).await?, &self.interrupt())?;
        let mut rows = execute_stream(plan, state.task_ctx())?;
        while let Some(batch) = rows.try_next().await? {
            if batch.num_rows() > 0 {
                return Ok(Some(batch.slice(0, 1)));
            }
        }
        Ok(None)
    }
}

/// A step of `ALTER TABLE`.
enum SchemaStep<'a> {
    Column(&'a ColumnChange),
    /// Type changes, whose values are all computed from the same old rows.
    Types(Vec<TypeChange<'a>>),
    Constraint(ConstraintChange),
    Identity(&'a IdentityChange),
}

/// The steps of a statement in PostgreSQL's order. First come drops of constraints, `NOT NULL` and defaults. Type
/// changes, drops of columns and additions of columns follow, and then all other changes.
fn schema_steps(changes: &[SchemaChange]) -> Vec<SchemaStep<'_>> {
    let (mut before, mut types, mut drops) = (Vec::new(), Vec::new(), Vec::new());
    let (mut adds, mut after) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            SchemaChange::Constraint(
                change @ (ConstraintChange::Drop { .. }
                | ConstraintChange::Nullable { nullable: true, .. }
                | ConstraintChange::Default { value: None, .. }),
            ) => before.push(SchemaStep::Constraint(change.clone())),
            SchemaChange::Identity(change @ IdentityChange::Drop { .. }) => before.push(SchemaStep::Identity(change)),
            SchemaChange::Identity(change) => after.push(SchemaStep::Identity(change)),
            SchemaChange::Constraint(change) => after.push(SchemaStep::Constraint(change.clone())),
            SchemaChange::Column(ColumnChange::SetType { column, logical_type, using }) => {
                types.push(TypeChange { column, logical_type: *logical_type, using: using.as_deref() });
            }
            SchemaChange::Column(change @ ColumnChange::Add { declared, .. }) => {
                adds.push(SchemaStep::Column(change));
                let added = declared.constraints.iter().cloned().map(ConstraintChange::Add);
                after.extend(added.map(SchemaStep::Constraint));
            }
            SchemaChange::Column(change) => drops.push(SchemaStep::Column(change)),
        }
    }
    if !types.is_empty() {
        before.push(SchemaStep::Types(types));
    }
    before.into_iter().chain(drops).chain(adds).chain(after).collect()
}

/// Checks that the defaults of a permanent table use no temporary sequence.
///
/// # Errors
/// If a default of a permanent table uses a temporary sequence.
fn check_no_temporary_defaults(
    catalog: &Catalog,
    table: TableId,
    constraints: &Constraints,
) -> Result<(), CommitError> {
    if table.is_temporary() {
        return Ok(());
    }
    let used = constraints.defaults.values().flat_map(|default| sequences_of_default(default));
    match used.into_iter().find(|sequence| is_temporary_relation(sequence)) {
        None => Ok(()),
        Some(relation) => {
            let other = catalog.table_of(table).map(|table| table.name.clone()).unwrap_or_default();
            Err(CommitError::Temporary { relation, other })
        }
    }
}

/// Sets the constraints of a table, and updates `referenced_by` of the tables that it references.
pub(super) fn set_constraints(
    edit: &mut CatalogEdit,
    table: TableId,
    constraints: Constraints,
) -> Result<(), CommitError> {
    let before = edit.catalog().table_of(table).map(|table| Arc::clone(&table.constraints)).unwrap_or_default();
    let parents = |constraints: &Constraints| -> Vec<TableId> {
        constraints.foreign_keys.iter().map(|key| key.table).filter(|parent| *parent != table).collect()
    };
    let (old, new) = (parents(&before), parents(&constraints));
    let is_new = |key: &&ForeignKey| key.table != table && !before.foreign_keys.contains(key);
    let newly_referenced: BTreeSet<TableId> =
        constraints.foreign_keys.iter().filter(is_new).map(|key| key.table).collect();
    let mut new_constraints = constraints;
    check_no_temporary_defaults(edit.catalog(), table, &new_constraints)?;
    if !new_constraints.foreign_keys.iter().any(|key| key.table == table) {
        new_constraints.referenced_by.remove(&table);
    }
    edit.set_constraints(table, new_constraints)?;
    let set_referenced_by = |edit: &mut CatalogEdit, parent: TableId, is_referenced: bool| {
        let parent_table = edit.catalog().table_of(parent).ok_or(CommitError::NoTable { table: parent })?;
        let mut parent_constraints = parent_table.constraints.as_ref().clone();
        match is_referenced {
            true => parent_constraints.referenced_by.insert(table),
            false => parent_constraints.referenced_by.remove(&table),
        };
        // Set even if the value stays the same: the commit then fails if rows of the referenced table have changed.
        edit.set_constraints(parent, parent_constraints)
    };
    for parent in old.iter().filter(|parent| !new.contains(parent)) {
        set_referenced_by(edit, *parent, false)?;
    }
    for parent in newly_referenced {
        set_referenced_by(edit, parent, true)?;
    }
    Ok(())
}

/// Removes the foreign keys among tables that are dropped together.
pub(super) fn drop_references_between(edit: &mut CatalogEdit, dropped: &[TableId]) -> Result<(), CommitError> {
    for table in dropped {
        let Some(child) = edit.catalog().table_of(*table) else { continue };
        let mut constraints = child.constraints.as_ref().clone();
        constraints.foreign_keys.retain(|key| key.table == *table || !dropped.contains(&key.table));
        if constraints.foreign_keys.len() < child.constraints.foreign_keys.len() {
            set_constraints(edit, *table, constraints)?;
        }
    }
    Ok(())
}

/// Returns the error of an `INSERT` with a duplicate key.
fn duplicate_key(table: &Table, key: &UniqueKey, row: &RecordBatch) -> Result<()> {
    Err(Violation::NotUnique {
        table: table.name.clone(),
        constraint: key.name.clone(),
        key: format_key(table, &key.columns, row.columns(), 0)?,
        is_concurrent: false,
    }
    .into())
}

fn quoted_names(schema: &Schema, columns: &[ColumnIndex]) -> Vec<String> {
    columns.iter().map(|column| quote_name(&schema.column(*column).name)).collect()
}

pub(super) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn not_null_condition(names: &[String]) -> String {
    names.iter().map(|name| format!("{name} IS NOT NULL")).collect::<Vec<_>>().join(" AND ")
}
