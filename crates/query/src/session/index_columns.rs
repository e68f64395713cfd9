//! Indexes on expressions and partial indexes. The index holds hidden generated columns, which are ordinary columns for
//! storage: see docs/adr/0045-index-columns.md.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{Column as ColumnName, DFSchema};
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast;
use taut_sql::{
    ColumnChange, ConstraintChange, DeclaredCondition, DeclaredConstraint, DeclaredSequence, IdentityChange, IndexPart,
    NewIndex, SchemaChange, names_column, parse_expression, rename_column, stored_text,
};
use taut_store::{CatalogEdit, CommitError, Constraints, IndexColumn, Table, TableId, UniqueKey};
use taut_types::{
    Column, ColumnIndex, IndexDesign, Schema, TableDesign, quote_identifier, sibling_name, unqualified_name,
};

use super::QuerySession;
use super::columns::TypeChange;
use super::constraints::set_constraints;
use crate::constraints::{
    index_column_of, plan_index_clause, plan_index_columns, plan_index_predicate, type_of_index_column,
};
use crate::error::{IndexClause, QueryError, Result};
use crate::exec::scan::implies_all;
use crate::write::changes::Changes;

/// A part of a new index.
pub(super) enum PlannedPart {
    /// A column of the table.
    Stored(String),
    /// A hidden column to add.
    Added(Column, IndexColumn),
}

/// Prefix of the names of an index's hidden columns. A number follows.
fn index_column_prefix(index: &str) -> String {
    format!("taut index {index}.")
}

/// Returns the hidden columns of an index, with their names after the index is renamed.
pub(super) fn renamed_index_columns(table: &Table, index: &str, new_name: &str) -> Vec<(ColumnIndex, String)> {
    let prefix = index_column_prefix(index);
    let renamed = |(column, position): (&Column, usize)| {
        let number = column.name.strip_prefix(&prefix)?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_hidden = table.visible_column(&column.name).is_none();
        let name = format!("{}{number}", index_column_prefix(new_name));
        (is_number && is_hidden).then_some((ColumnIndex::from(position), name))
    };
    table.schema.columns().iter().zip(0..).filter_map(renamed).collect()
}

/// Plans the parts of a new index. A search uses the first `searched` parts. Omits parts that neither a search nor a
/// unique key uses.
///
/// # Errors
/// If a column does not exist, or an expression is not suitable.
pub(super) fn plan_parts(new: &NewIndex, name: &str, table: &Table, searched: usize) -> Result<Vec<PlannedPart>> {
    let visible = visible_schema(table)?;
    let predicate = new.predicate.as_ref().map(|predicate| stored_text(predicate, &unqualified_name(&table.name)));
    if let Some(predicate) = &predicate {
        plan_index_predicate(predicate, &DFSchema::try_from(visible.arrow())?)?;
    }
    let mut parts = Vec::new();
    for (position, part) in new.parts.iter().enumerate() {
        // Only the first part has the predicate: one null part is enough to keep a row out of a partial index.
        let predicate = predicate.clone().filter(|_| position == 0);
        let added = match part {
            IndexPart::Column(column) => {
                if table.visible_column(column).is_none() {
                    return Err(QueryError::no_column(&table.name, column));
                }
                predicate.map(|predicate| index_column_of(column, Some(predicate)))
            }
            IndexPart::Expression(expression) => {
                Some(IndexColumn { expression: stored_text(expression, &unqualified_name(&table.name)), predicate })
            }
        };
        parts.push(match (added, part) {
            (Some(added), _) => {
                let logical_type = type_of_index_column(&added, &visible)?;
                let name = format!("{}{}", index_column_prefix(name), position + 1);
                PlannedPart::Added(Column::new(&name, logical_type, true), added)
            }
            (None, IndexPart::Column(column)) => PlannedPart::Stored(column.clone()),
            (None, IndexPart::Expression(_)) => continue,
        });
    }
    if !new.is_unique {
        parts.truncate(searched);
    }
    Ok(parts)
}

impl QuerySession {
    /// Creates an index on expressions or a partial index in a transaction.
    pub(super) async fn add_computed_index(
        &self,
        target: &Changes,
        (table_name, name): (&str, &str),
        new: &NewIndex,
    ) -> Result<()> {
        let snapshot = target.snapshot();
        let table = snapshot.table(table_name).ok_or_else(|| QueryError::no_relation(table_name))?;
        let parts = plan_parts(new, name, table, new.kind.columns_max())?;
        self.add_index_columns(target, table, &parts).await?;
        let column_name = |part: &PlannedPart| match part {
            PlannedPart::Stored(column) => column.clone(),
            PlannedPart::Added(column, _) => column.name.clone(),
        };
        let columns: Vec<String> = parts.iter().map(column_name).collect();
        if new.is_unique {
            let rule = DeclaredCondition::UniqueIndex { columns };
            let key = ConstraintChange::Add(DeclaredConstraint { name: Some(name.to_owned()), rule });
            return self.change_constraints(target, table_name, &[key]).await.map(drop);
        }
        target.commit(|edit| {
            let relation = sibling_name(table_name, name);
            if !edit.catalog().is_name_free(&relation) {
                return Err(CommitError::NameTaken { name: relation });
            }
            let table = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let columns = columns.iter().filter_map(|column| table.schema.index_of(column)).collect();
            let (id, mut design) = (table.id, table.design.as_ref().clone());
            design.indexes.push(IndexDesign { name: name.to_owned(), kind: new.kind, columns });
            edit.set_design(id, design)
        })?;
        Ok(())
    }

    /// Adds the hidden columns of a new index, and computes them for the rows of the table.
    async fn add_index_columns(&self, target: &Changes, table: &Arc<Table>, parts: &[PlannedPart]) -> Result<()> {
        let added = parts.iter().filter_map(|part| match part {
            PlannedPart::Added(column, part) => Some((column, part)),
            PlannedPart::Stored(_) => None,
        });
        let added: Vec<(&Column, &IndexColumn)> = added.collect();
        target.commit(|edit| {
            added.iter().try_for_each(|(column, _)| edit.add_column(table.id, (*column).clone(), None))
        })?;
        if table.rows() > 0 {
            let values = added.iter().map(|(_, part)| parse_expression(&part.generation_expression()));
            let values = values.collect::<taut_sql::Result<Vec<_>>>()?;
            let filled = added.iter().zip(&values).map(|((column, _), value)| TypeChange {
                column: &column.name,
                logical_type: column.logical_type,
                using: Some(value),
            });
            self.set_column_types(target, &table.name, &filled.collect::<Vec<_>>()).await?;
        }
        target.commit(|edit| {
            let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let (schema, mut constraints) = (Arc::clone(&newest.schema), newest.constraints.as_ref().clone());
            for (column, part) in &added {
                let Some(index) = schema.index_of(&column.name) else { continue };
                constraints.generated.insert(index, part.generation_expression());
                constraints.index_columns.insert(index, (*part).clone());
            }
            set_constraints(edit, table.id, constraints)
        })?;
        Ok(())
    }
}

/// Drops the index columns of a table that no index uses any more.
pub(super) fn drop_unused_index_columns(edit: &mut CatalogEdit, table: TableId) -> Result<(), CommitError> {
    let Some(newest) = edit.catalog().table_of(table).map(Arc::clone) else { return Ok(()) };
    let is_used = |column: &ColumnIndex| {
        newest.design.indexes.iter().any(|index| index.columns.contains(column))
            || newest.constraints.keys.iter().any(|key| key.columns.contains(column))
    };
    // Drops the last column first, because a drop shifts the columns after it.
    let mut unused = newest.constraints.index_columns.keys().rev().filter(|column| !is_used(column));
    unused.try_for_each(|column| edit.drop_column(table, *column))
}

/// The index columns whose expressions or predicates use a column.
pub(super) fn index_columns_from(table: &Table, column: ColumnIndex) -> Result<Vec<ColumnIndex>> {
    let name = &table.schema.column(column).name;
    let mut found = Vec::new();
    for (index_column, part) in &table.constraints.index_columns {
        if names_column(&part.generation_expression(), name)? {
            found.push(*index_column);
        }
    }
    Ok(found)
}

/// Renames a column in the expressions and predicates of indexes.
pub(super) fn rename_in_index_columns(constraints: &mut Constraints, column: &str, new_name: &str) -> Result<()> {
    let rename = |sql: &mut String| -> Result<()> {
        if names_column(sql, column)? {
            *sql = rename_column(sql, column, new_name)?;
        }
        Ok(())
    };
    for part in constraints.index_columns.values_mut() {
        rename(&mut part.expression)?;
        part.predicate.as_mut().map_or(Ok(()), rename)?;
    }
    Ok(())
}

/// Returns the columns whose values may change if the columns `assigned` are assigned. These are `assigned` and all
/// visible generated columns, and the index columns that are computed from one of these columns.
pub(super) fn with_generated(assigned: Vec<usize>, table: &Table) -> Result<BTreeSet<ColumnIndex>> {
    let generated = table.constraints.generated.keys().copied().filter(|column| !table.constraints.is_hidden(*column));
    let changed: BTreeSet<ColumnIndex> = assigned.into_iter().map(ColumnIndex::from).chain(generated).collect();
    let mut with_indexes = changed.clone();
    for (index_column, part) in &table.constraints.index_columns {
        let sql = part.generation_expression();
        for column in &changed {
            if names_column(&sql, &table.schema.column(*column).name)? {
                with_indexes.insert(*index_column);
            }
        }
    }
    Ok(with_indexes)
}

/// The unique key that the parts and the predicate of an `ON CONFLICT` infer: a key on exactly these parts. If the key
/// is partial, it covers all rows for which the predicate is true.
///
/// # Errors
/// If a part or the predicate is not suitable for an index, or a column does not exist.
pub(super) fn inferred_key<'a>(
    table: &'a Table,
    parts: &[IndexPart],
    predicate: Option<&ast::Expr>,
) -> Result<Option<&'a UniqueKey>> {
    let schema = DFSchema::try_from(visible_schema(table)?.arrow())?;
    let column = |name: &str| Expr::Column(ColumnName::new_unqualified(name));
    let part = |part: &IndexPart| match part {
        IndexPart::Column(name) if table.visible_column(name).is_some() => Ok(column(name)),
        IndexPart::Column(name) => Err(QueryError::no_column(&table.name, name)),
        IndexPart::Expression(expression) => plan_index_clause(
            &stored_text(expression, &unqualified_name(&table.name)),
            &schema,
            IndexClause::Expression,
        ),
    };
    let wanted = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
    let conditions = predicate
        .map(|predicate| plan_index_predicate(&stored_text(predicate, &unqualified_name(&table.name)), &schema));
    let conditions = conditions.transpose()?.unwrap_or_default();
    let planned = plan_index_columns(table)?;
    let is_inferred = |key: &&UniqueKey| {
        let mut values = Vec::with_capacity(key.columns.len());
        let mut is_implied = true;
        for index in &key.columns {
            match planned.iter().find(|planned| planned.column == *index) {
                Some(planned) => {
                    is_implied &= implies_all(&conditions, &planned.predicate, table);
                    values.push(planned.value.clone());
                }
                None => values.push(column(&table.schema.column(*index).name)),
            }
        }
        is_implied
            && values.iter().all(|value| wanted.contains(value))
            && wanted.iter().all(|part| values.contains(part))
    };
    Ok(table.constraints.keys.iter().find(is_inferred))
}

/// Schema of a table's visible columns.
pub(super) fn visible_schema(table: &Table) -> Result<Schema> {
    let columns = table.visible_columns().map(|column| table.schema.column(column).clone());
    Ok(Schema::new(columns.collect())?)
}

/// Returns the visible design of a table: without indexes, and without index columns in its column groups.
pub(super) fn visible_design(table: &Table) -> Result<(TableDesign, Schema)> {
    let design = TableDesign { indexes: Vec::new(), ..table.design.as_ref().clone() };
    let hidden = table.constraints.index_columns.keys().rev();
    // Index columns are neither sorted nor partitioned by.
    let design = hidden.fold(design, |design, column| design.without_column(*column).unwrap_or(design));
    Ok((design, visible_schema(table)?))
}

/// Returns the options of a table design with the index columns added to option `groups`, each in its own group.
pub(super) fn with_hidden_groups(options: &[(String, String)], table: &Table) -> Vec<(String, String)> {
    let hidden = table.constraints.index_columns.keys();
    let hidden: String =
        hidden.map(|column| format!(",({})", quote_identifier(&table.schema.column(*column).name))).collect();
    let complete = |(name, value): &(String, String)| match name.eq_ignore_ascii_case("groups") {
        true => (name.clone(), format!("{value}{hidden}")),
        false => (name.clone(), value.clone()),
    };
    options.iter().map(complete).collect()
}

/// Checks that changes of a table name no index column.
///
/// # Errors
/// If a change names an index column, which statements cannot name.
pub(super) fn check_no_hidden_columns(table: &Table, changes: &[SchemaChange]) -> Result<()> {
    let named = |change: &SchemaChange| -> Vec<String> {
        match change {
            SchemaChange::Constraint(
                ConstraintChange::Nullable { column, .. }
                | ConstraintChange::Default { column, .. }
                | ConstraintChange::DropExpression { column, .. },
            )
            | SchemaChange::Identity(
                IdentityChange::Set { column, .. }
                | IdentityChange::Alter { column, .. }
                | IdentityChange::Drop { column, .. }
                | IdentityChange::Add(DeclaredSequence { column, .. }),
            )
            | SchemaChange::Column(ColumnChange::SetType { column, .. }) => vec![column.clone()],
            SchemaChange::Constraint(ConstraintChange::Add(constraint)) => match &constraint.rule {
                DeclaredCondition::Key { columns, .. }
                | DeclaredCondition::UniqueIndex { columns }
                | DeclaredCondition::ForeignKey { columns, .. } => columns.clone(),
                DeclaredCondition::Check { .. } => Vec::new(),
            },
            SchemaChange::Constraint(ConstraintChange::Drop { .. }) | SchemaChange::Column(_) => Vec::new(),
        }
    };
    for hidden in table.constraints.index_columns.keys().map(|column| &table.schema.column(*column).name) {
        for change in changes {
            let is_named = match change {
                SchemaChange::Constraint(ConstraintChange::Add(DeclaredConstraint {
                    rule: DeclaredCondition::Check { condition },
                    ..
                })) => names_column(&condition.to_string(), hidden)?,
                change => named(change).contains(hidden),
            };
            if is_named {
                return Err(QueryError::no_column(&table.name, hidden));
            }
        }
    }
    Ok(())
}
