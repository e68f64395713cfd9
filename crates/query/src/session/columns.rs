//! `ALTER TABLE ... ADD`, `DROP` and `RENAME COLUMN`.
//!
//! `DROP` and `RENAME` change only the catalog. So does `ADD`, if all existing rows have the same value in the new
//! column. Otherwise the rows of the table are rewritten: for generated columns, `SERIAL` and identity columns, and
//! volatile defaults.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Expr;
use taut_sql::{
    ColumnChange, ConstraintChange, Declared, DeclaredSequence, ObjectKind, names_column, parse_expression,
    rename_column, without_table,
};
use taut_store::{Catalog, CommitError, Constraints, ForeignKey, Sequence, Table, TableId, Transaction};
use taut_types::{
    Column, ColumnIndex, Datum, Layout, LogicalType, Schema, TableDesign, datum_at, split_relation_name,
    unqualified_name,
};

use super::QuerySession;
use super::constraints::{quote_name, set_constraints};
use super::index_columns::{drop_unused_index_columns, index_columns_from, rename_in_index_columns};
use super::names::{dependent_views, drop_foreign_keys, drop_views, foreign_key_text, view_text};
use super::sequences::{DefaultUse, create_owned_sequence, drop_defaults, skip_numbers, uses_of_column};
use crate::constraints::{DefaultValues, compile_generated, default_expression, qualified_default};
use crate::error::{Dependency, QueryError, Result, Violation};
use crate::exec::reads::withdraw_reads;
use crate::write::changes::Changes;

/// A change of a column's type.
pub(super) struct TypeChange<'a> {
    pub column: &'a str,
    pub logical_type: LogicalType,
    /// Expression over the old row. `None` casts the old value of the column.
    pub using: Option<&'a Expr>,
}

/// Objects that use a column, except its default and its forced encoding.
pub(super) struct Dependents {
    /// Design of the table without the sort order, partitions and indexes that use the column.
    design: TableDesign,
    /// Constraints of the table, except those that use the column.
    constraints: Constraints,
    /// Foreign keys of other tables to a key that uses the column.
    foreign_keys: Vec<(TableId, ForeignKey)>,
    views: Vec<String>,
    pub dependencies: Vec<Dependency>,
}

impl QuerySession {
    /// Changes a column in a transaction. Returns notices.
    pub(super) async fn change_column(
        &self,
        target: &Changes,
        name: &str,
        change: &ColumnChange,
    ) -> Result<Vec<String>> {
        match change {
            ColumnChange::Add { column, declared, if_not_exists } => {
                self.add_column(target, name, column, declared, *if_not_exists).await
            }
            ColumnChange::Drop { column, if_exists, cascade } => {
                self.drop_column(target, name, column, (*if_exists, *cascade)).await
            }
            ColumnChange::Rename { column, name: new_name } => {
                self.rename_column(target, name, column, new_name).await?;
                Ok(Vec::new())
            }
            ColumnChange::SetType { column, logical_type, using } => {
                let change = TypeChange { column, logical_type: *logical_type, using: using.as_deref() };
                self.set_column_types(target, name, &[change]).await.map(|()| Vec::new())
            }
        }
    }

    /// Adds a column with its default. The constraints of the column are added in separate steps.
    async fn add_column(
        &self,
        target: &Changes,
        name: &str,
        column: &Column,
        declared: &Declared,
        if_not_exists: bool,
    ) -> Result<Vec<String>> {
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        if table.schema.index_of(&column.name).is_some() {
            if if_not_exists {
                return Ok(vec![format!("column {:?} of relation {name:?} already exists, skipping", column.name)]);
            }
            return Err(column_exists(name, &column.name));
        }
        if let Some((_, expression)) = declared.generated.first() {
            return self.add_generated_column(target, table, column, expression).await.map(|()| Vec::new());
        }
        let default = declared.defaults.first().map(|(_, default)| default);
        if let Some(sequence) = declared.sequences.first() {
            self.add_numbered_column(target, table, column, sequence).await?;
            let defaults = declared.defaults.iter().map(default_change).collect::<Vec<_>>();
            return self.change_constraints(target, name, &defaults).await;
        }
        if let Some(default) = default.filter(|_| table.rows() > 0)
            && default_expression(&default.to_string(), column.logical_type)?.is_volatile()
        {
            let added = Column { nullable: true, ..column.clone() };
            target.commit(|edit| edit.add_column(table.id, added, None))?;
            // A stored default names sequences of schema `public` without the schema. It is evaluated with the search
            // path of the session, so the schema is added.
            let default = parse_expression(&qualified_default(&default.to_string()))?;
            self.fill_column(target, name, column, &default).await?;
            let defaults = declared.defaults.iter().map(default_change).collect::<Vec<_>>();
            return self.change_constraints(target, name, &defaults).await;
        }
        let value = match default {
            Some(default) if table.rows() > 0 => self.value_of_default(&default.to_string(), column)?,
            _ => None,
        };
        if !column.nullable && value.is_none() && table.rows() > 0 {
            return Err(Violation::Nulls { table: name.to_owned(), column: column.name.clone() }.into());
        }
        // Existing views do not see the new column.
        target.commit(|edit| edit.add_column(table.id, column.clone(), value))?;
        let defaults = declared.defaults.iter().map(default_change).collect::<Vec<_>>();
        self.change_constraints(target, name, &defaults).await
    }

    /// Adds a generated column, and computes it for the rows of the table.
    async fn add_generated_column(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        column: &Column,
        expression: &Expr,
    ) -> Result<()> {
        let text = without_table(expression, &unqualified_name(&table.name)).to_string();
        let mut columns = table.schema.columns().to_vec();
        let index = ColumnIndex::from(columns.len());
        columns.push(column.clone());
        let generated = &table.constraints.generated;
        compile_generated(&text, index, &Schema::new(columns)?, |other| generated.contains_key(&other))?;
        let is_empty = table.rows() == 0;
        let added = Column { nullable: column.nullable || !is_empty, ..column.clone() };
        target.commit(|edit| edit.add_column(table.id, added, None))?;
        if !is_empty {
            self.fill_column(target, &table.name, column, &parse_expression(&text)?).await?;
        }
        target.commit(|edit| {
            let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let mut constraints = newest.constraints.as_ref().clone();
            constraints.generated.insert(index, text);
            set_constraints(edit, table.id, constraints)
        })?;
        Ok(())
    }

    /// Adds a `SERIAL` or identity column. Existing rows get the first numbers of its sequence.
    async fn add_numbered_column(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        column: &Column,
        declared: &DeclaredSequence,
    ) -> Result<()> {
        let rows = table.rows();
        let added = Column { nullable: column.nullable || rows > 0, ..column.clone() };
        let sequence = target.commit(|edit| {
            edit.add_column(table.id, added, None)?;
            let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let (schema, mut constraints) = (Arc::clone(&newest.schema), newest.constraints.as_ref().clone());
            let sequence = create_owned_sequence(edit, (&table.name, &schema), declared, &mut constraints)?;
            set_constraints(edit, table.id, constraints)?;
            Ok::<_, QueryError>(sequence)
        })?;
        if rows == 0 {
            return Ok(());
        }
        // No other transaction sees the sequence yet, so its numbers are computed here.
        let Sequence { start, increment, .. } = sequence;
        let numbers = format!("({start}) + (row_number() OVER () - 1) * ({increment})");
        let numbers = parse_expression(&numbers)?;
        target.commit(|edit| skip_numbers(edit, sequence, rows))?;
        self.fill_column(target, &table.name, column, &numbers).await
    }

    /// Sets the values of a new column, then its nullability.
    async fn fill_column(&self, target: &Changes, name: &str, column: &Column, value: &Expr) -> Result<()> {
        let fill = TypeChange { column: &column.name, logical_type: column.logical_type, using: Some(value) };
        self.set_column_types(target, name, &[fill]).await?;
        if !column.nullable {
            let change = ConstraintChange::Nullable { column: column.name.clone(), nullable: false };
            self.change_constraints(target, name, &[change]).await?;
        }
        Ok(())
    }

    /// Evaluates a default for the rows that exist when its column is added.
    fn value_of_default(&self, default: &str, column: &Column) -> Result<Option<Datum>> {
        let expression = default_expression(default, column.logical_type)?;
        let settings = self.state(None).config_options().clone();
        let array = DefaultValues::at_current_time(&settings).evaluate(expression, 1)?;
        Ok(datum_at(&array, column.logical_type, 0))
    }

    async fn drop_column(
        &self,
        target: &Changes,
        name: &str,
        column: &str,
        (if_exists, cascade): (bool, bool),
    ) -> Result<Vec<String>> {
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        let Some(index) = table.visible_column(column) else {
            return match if_exists {
                true => Ok(vec![format!("column {column:?} of relation {name:?} does not exist, skipping")]),
                false => Err(QueryError::no_column(name, column)),
            };
        };
        let generated = generated_from(table, index)?;
        if cascade && !generated.is_empty() {
            let mut notices = Vec::new();
            for dependent in generated {
                notices.push(format!("drop cascades to {}", column_text(table, &dependent)));
                notices.extend(Box::pin(self.drop_column(target, name, &dependent, (true, true))).await?);
            }
            notices.extend(Box::pin(self.drop_column(target, name, column, (if_exists, cascade))).await?);
            return Ok(notices);
        }
        let mut dependents = self.dependents_of_column(target, table, index).await?;
        dependents.dependencies.extend(
            generated.iter().map(|dependent| Dependency {
                dependent: column_text(table, dependent),
                on: column_text(table, column),
            }),
        );
        dependents.dependencies.extend(uses_of_column(&snapshot, table, index).iter().map(DefaultUse::dependency));
        if !cascade && !dependents.dependencies.is_empty() {
            return Err(QueryError::Dependents {
                verb: "drop",
                object: Some(column_text(table, column)),
                dependencies: dependents.dependencies,
                hint: "Use DROP ... CASCADE to drop the dependent objects too.",
            });
        }
        let Dependents { design, constraints, foreign_keys, views, dependencies } = dependents;
        target.commit(|edit| {
            drop_views(edit, views.iter().map(String::as_str).collect())?;
            let foreign_keys: Vec<_> = foreign_keys.iter().map(|(child, key)| (*child, key)).collect();
            drop_foreign_keys(edit, &foreign_keys)?;
            let newest = edit.catalog().table_of(table.id).map(|table| Arc::clone(&table.constraints));
            let newest = newest.unwrap_or_default();
            let constraints = Constraints { referenced_by: newest.referenced_by.clone(), ..constraints };
            if constraints != *newest {
                set_constraints(edit, table.id, constraints)?;
            }
            if design != *table.design {
                edit.set_design(table.id, design)?;
            }
            drop_unused_index_columns(edit, table.id)?;
            drop_defaults(edit, &uses_of_column(edit.catalog(), table, index))?;
            Ok::<_, QueryError>(edit.drop_column(table.id, index)?)
        })?;
        Ok(dependencies.iter().map(|dependency| format!("drop cascades to {}", dependency.dependent)).collect())
    }

    async fn rename_column(&self, target: &Changes, name: &str, column: &str, new_name: &str) -> Result<()> {
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        let index = table.visible_column(column).ok_or_else(|| QueryError::no_column(name, column))?;
        if table.schema.index_of(new_name).is_some() {
            return Err(column_exists(name, new_name));
        }
        // The text of a view names the column.
        let views = self.views_on_column(target, table, index).await?;
        if !views.is_empty() {
            return Err(QueryError::Dependents {
                verb: "rename",
                object: Some(column_text(table, column)),
                dependencies: views_on(views, table, column),
                hint: "Drop the views first, and create them with the new name of the column.",
            });
        }
        let mut constraints = table.constraints.as_ref().clone();
        for check in &mut constraints.checks {
            if names_column(&check.condition, column)? {
                check.condition = rename_column(&check.condition, column, new_name)?;
            }
        }
        for expression in constraints.generated.values_mut() {
            if names_column(expression, column)? {
                *expression = rename_column(expression, column, new_name)?;
            }
        }
        rename_in_index_columns(&mut constraints, column, new_name)?;
        target.commit(|edit| {
            edit.rename_column(table.id, index, new_name)?;
            if constraints == *table.constraints { Ok(()) } else { edit.set_constraints(table.id, constraints) }
        })?;
        Ok(())
    }

    /// Finds the objects that use a column.
    pub(super) async fn dependents_of_column(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        column: ColumnIndex,
    ) -> Result<Dependents> {
        let snapshot = target.snapshot();
        let name = table.schema.column(column).name.as_str();
        let views = self.views_on_column(target, table, column).await?;
        let mut dependencies = views_on(views.clone(), table, name);
        let mut depends = |dependent: String| {
            dependencies.push(Dependency { dependent, on: column_text(table, name) });
        };
        let constraint_text = |constraint: &str| format!("constraint {constraint:?} on table {:?}", table.name);
        let mut constraints = table.constraints.as_ref().clone();
        let computed = index_columns_from(table, column)?;
        let uses = |columns: &[ColumnIndex]| columns.iter().any(|used| *used == column || computed.contains(used));
        let keys = constraints.keys.iter().filter(|key| uses(&key.columns));
        for key in keys {
            depends(if key.is_index { format!("index {:?}", key.name) } else { constraint_text(&key.name) });
        }
        for key in constraints.foreign_keys.iter().filter(|key| uses(&key.columns)) {
            depends(constraint_text(&key.name));
        }
        let mut checks = Vec::new();
        for check in &table.constraints.checks {
            if names_column(&check.condition, name)? {
                depends(constraint_text(&check.name));
                checks.push(check.name.as_str());
            }
        }
        let references = |key: &&ForeignKey| key.table == table.id && uses(&key.referenced);
        let mut foreign_keys = Vec::new();
        for child in snapshot.tables() {
            for key in child.constraints.foreign_keys.iter().filter(references) {
                let is_listed = child.id == table.id && uses(&key.columns);
                if !is_listed {
                    depends(foreign_key_text(&snapshot, child.id, key));
                }
                if child.id != table.id {
                    foreign_keys.push((child.id, key.clone()));
                }
            }
        }
        constraints.keys.retain(|key| !uses(&key.columns));
        constraints.foreign_keys.retain(|key| !uses(&key.columns) && !references(&key));
        constraints.checks.retain(|check| !checks.contains(&check.name.as_str()));
        let mut design = table.design.as_ref().clone();
        let is_of_key = |index: &str| table.constraints.keys.iter().any(|key| key.name == index);
        for index in design.indexes.iter().filter(|index| uses(&index.columns) && !is_of_key(&index.name)) {
            depends(format!("index {:?}", index.name));
        }
        let is_dropped_key = |index: &str| is_of_key(index) && !constraints.keys.iter().any(|key| key.name == index);
        design.indexes.retain(|index| !uses(&index.columns) && !is_dropped_key(&index.name));
        if let Some(position) = design.sort_by.iter().position(|sort| sort.column == column) {
            depends(format!("option sort_by of table {:?}", table.name));
            design.sort_by.truncate(position);
            design.limit_abstraction();
        }
        if design.partition_by.is_some_and(|partition_by| partition_by.column == column) {
            depends(format!("option partition_by of table {:?}", table.name));
            design.partition_by = None;
        }
        if let Layout::Groups(groups) = &design.layout
            && groups.iter().any(|group| group.len() > 1 && uses(group))
        {
            depends(format!("option groups of table {:?}", table.name));
        }
        let views = views.into_iter().map(|(view, _)| view).collect();
        Ok(Dependents { design, constraints, foreign_keys, views, dependencies })
    }

    /// Returns the views that use a column of a table, each with the table or view that it reads. A view uses the
    /// column if renaming the column changes its plan or makes planning fail.
    async fn views_on_column(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        column: ColumnIndex,
    ) -> Result<Vec<(String, String)>> {
        let before = target.snapshot();
        let views = dependent_views(&before, ObjectKind::Table, [table.name.as_str()].into());
        let Some(transaction) = target.transaction().filter(|_| !views.is_empty()) else { return Ok(Vec::new()) };
        let after = with_column_renamed(transaction, table.id, column)?;
        let mut found = Vec::new();
        for (view, on) in views {
            let text = async |version: &Arc<Catalog>| {
                let plan = self.plan_of_view(version, &view).await.ok()?;
                Some(plan.display_indent().to_string())
            };
            let before = text(&before).await;
            // A view that cannot be planned here, for example because it reads a missing file, may use the column.
            if before.is_none() || before != text(&after).await {
                found.push((view, on));
            }
        }
        Ok(found)
    }

    /// Plans a query that reads a view.
    pub(super) async fn plan_of_view(&self, snapshot: &Arc<Catalog>, view: &str) -> Result<LogicalPlan> {
        let state = self.catalog(Arc::clone(snapshot), None).state(self.context.state());
        let (schema, name) = split_relation_name(view);
        let sql = format!("SELECT * FROM {}.{}", quote_name(&schema), quote_name(&name));
        let plan = state.create_logical_plan(&sql).await;
        withdraw_reads(&state);
        Ok(plan?)
    }
}

/// Names of the generated columns whose expressions use a column.
pub(super) fn generated_from(table: &Table, column: ColumnIndex) -> Result<Vec<String>> {
    let name = &table.schema.column(column).name;
    let mut found = Vec::new();
    let generated = table.constraints.generated.iter().filter(|(column, _)| !table.constraints.is_hidden(**column));
    for (generated, expression) in generated {
        if names_column(expression, name)? {
            found.push(table.schema.column(*generated).name.clone());
        }
    }
    Ok(found)
}

/// Returns the change that sets the default of a column.
fn default_change((column, value): &(String, Expr)) -> ConstraintChange {
    ConstraintChange::Default { column: column.clone(), value: Some(Box::new(value.clone())) }
}

/// Returns the catalog of a transaction with a column renamed to a name that no statement can contain.
fn with_column_renamed(transaction: &Transaction, table: TableId, column: ColumnIndex) -> Result<Arc<Catalog>> {
    let state = transaction.savepoint_state();
    let renamed = transaction.change(|edit| edit.rename_column(table, column, "\0"));
    let snapshot = transaction.snapshot();
    transaction.restore(state);
    renamed?;
    Ok(snapshot)
}

pub(super) fn column_text(table: &Table, column: &str) -> String {
    format!("column {column:?} of table {:?}", table.name)
}

fn views_on(views: Vec<(String, String)>, table: &Table, column: &str) -> Vec<Dependency> {
    let is_table = |on: &str| on == format!("{} {:?}", ObjectKind::Table, table.name);
    let dependency = |(view, on): (String, String)| {
        let on = if is_table(&on) { column_text(table, column) } else { on };
        Dependency { dependent: view_text(&view), on }
    };
    views.into_iter().map(dependency).collect()
}

fn column_exists(table: &str, column: &str) -> QueryError {
    QueryError::Exists { kind: ObjectKind::Column, name: column.to_owned(), relation: Some(table.to_owned()) }
}
