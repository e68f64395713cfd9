//! Converts declared constraints to the constraints that the catalog stores.

use std::collections::BTreeSet;

use taut_sql::{
    ConstraintChange, Declared, DeclaredCondition, DeclaredConstraint, ObjectKind, name_of_reference, names_column,
    without_table,
};
use taut_store::{Catalog, Check, Constraints, ForeignKey, ReferentialAction, TableId, UniqueKey};
use taut_types::{Column, ColumnIndex, Schema, sibling_name, unqualified_name};

use super::expressions::{compile_condition, compile_generated, default_expression};
use crate::error::{GeneratedColumnError, QueryError, Result, SequenceError};

/// A table whose constraints are being declared.
#[derive(Clone, Copy)]
struct DeclaredTable<'a> {
    id: TableId,
    name: &'a str,
    schema: &'a Schema,
}

/// Returns the constraints of a new table.
///
/// # Errors
/// If a constraint names something that does not exist, or does not fit the table.
pub fn declare_constraints(
    declared: &Declared,
    table: (TableId, &str, &Schema),
    catalog: &Catalog,
) -> Result<Constraints> {
    let (id, name, schema) = table;
    let subject = DeclaredTable { id, name, schema };
    let mut constraints = Constraints::default();
    // Keys are added first: a foreign key may reference a key of its own table.
    let is_foreign = |constraint: &&DeclaredConstraint| matches!(constraint.rule, DeclaredCondition::ForeignKey { .. });
    let (foreign, own): (Vec<_>, Vec<_>) = declared.constraints.iter().partition(is_foreign);
    own.into_iter()
        .chain(foreign)
        .try_for_each(|constraint| add_constraint(&mut constraints, constraint, subject, catalog))?;
    for (column, value) in &declared.defaults {
        set_default(&mut constraints, column, &value.to_string(), subject)?;
    }
    for (column, expression) in &declared.generated {
        let text = without_table(expression, &unqualified_name(name)).to_string();
        constraints.generated.insert(subject.column(column)?, text);
    }
    check_generated(&constraints, schema)?;
    Ok(constraints)
}

/// A table after changes of its constraints.
#[derive(Debug)]
pub struct AlteredTable {
    /// Constraints of the table.
    pub constraints: Constraints,
    /// Columns of the table. Their nullability may have changed.
    pub columns: Vec<Column>,
    /// Notices for the user.
    pub notices: Vec<String>,
}

/// Returns the constraints and columns of a table after some changes.
///
/// # Errors
/// If a change names something that does not exist, or does not fit the table.
pub fn apply_changes(
    changes: &[ConstraintChange],
    table: &taut_store::Table,
    catalog: &Catalog,
) -> Result<AlteredTable> {
    let (mut constraints, mut notices) = (table.constraints.as_ref().clone(), Vec::new());
    let mut columns = table.schema.columns().to_vec();
    for change in changes {
        let schema = Schema::new(columns.clone())?;
        let mut subject = DeclaredTable { id: table.id, name: &table.name, schema: &schema };
        match change {
            ConstraintChange::Add(constraint) => {
                let primary = match &constraint.rule {
                    DeclaredCondition::Key { columns, is_primary: true } => subject.columns(columns)?,
                    _ => Vec::new(),
                };
                primary.iter().for_each(|column| columns[column.index()].nullable = false);
                let schema = Schema::new(columns.clone())?;
                subject.schema = &schema;
                add_constraint(&mut constraints, constraint, subject, catalog)?;
            }
            ConstraintChange::Drop { name, if_exists } => {
                let is_index = constraints.keys.iter().any(|key| key.is_index && key.name == *name);
                let known = !is_index && constraints.names().any(|known| known == name);
                if !known && !if_exists {
                    return Err(QueryError::NotFound {
                        kind: ObjectKind::Constraint,
                        name: name.clone(),
                        relation: Some(table.name.clone()),
                    });
                }
                if !known {
                    notices.push(format!("constraint {name:?} of table {:?} does not exist", table.name));
                    continue;
                }
                constraints.keys.retain(|key| key.name != *name);
                constraints.checks.retain(|check| check.name != *name);
                constraints.foreign_keys.retain(|key| key.name != *name);
            }
            ConstraintChange::Nullable { column, nullable } => {
                if *nullable {
                    check_not_identity(&constraints, column, subject)?;
                }
                columns[subject.column(column)?.index()].nullable = *nullable;
            }
            ConstraintChange::Default { column, value: Some(value) } => {
                check_not_identity(&constraints, column, subject)?;
                check_not_generated(&constraints, column, subject)?;
                set_default(&mut constraints, column, &value.to_string(), subject)?;
            }
            ConstraintChange::Default { column, value: None } => {
                check_not_identity(&constraints, column, subject)?;
                check_not_generated(&constraints, column, subject)?;
                constraints.defaults.remove(&subject.column(column)?);
            }
            ConstraintChange::DropExpression { column, if_exists } => {
                let is_generated = constraints.generated.remove(&subject.column(column)?).is_some();
                if !is_generated {
                    let (table, column) = (table.name.clone(), column.clone());
                    let error = GeneratedColumnError::NotGenerated { table, column };
                    match if_exists {
                        true => notices.push(format!("{error}, skipping")),
                        false => return Err(error.into()),
                    }
                }
            }
        }
    }
    Ok(AlteredTable { constraints, columns, notices })
}

/// Refuses to change the default or nullability of an identity column.
///
/// # Errors
/// If the column is an identity column, or does not exist.
fn check_not_identity(constraints: &Constraints, column: &str, subject: DeclaredTable<'_>) -> Result<()> {
    let owned = constraints.sequences.get(&subject.column(column)?);
    match owned.is_some_and(|owned| owned.identity.is_some()) {
        true => Err(SequenceError::Identity {
            table: subject.name.to_owned(),
            column: column.to_owned(),
            problem: "is an identity column",
        }
        .into()),
        false => Ok(()),
    }
}

/// Refuses to change the default of a generated column.
///
/// # Errors
/// If the column is generated, or does not exist.
fn check_not_generated(constraints: &Constraints, column: &str, subject: DeclaredTable<'_>) -> Result<()> {
    match constraints.generated.contains_key(&subject.column(column)?) {
        true => {
            Err(GeneratedColumnError::NoDefault { table: subject.name.to_owned(), column: column.to_owned() }.into())
        }
        false => Ok(()),
    }
}

/// Checks that the expressions of generated columns can be computed, and that no foreign key changes their results.
fn check_generated(constraints: &Constraints, schema: &Schema) -> Result<()> {
    for (column, sql) in &constraints.generated {
        compile_generated(sql, *column, schema, |other| constraints.generated.contains_key(&other))?;
    }
    constraints.foreign_keys.iter().try_for_each(|key| check_action(constraints, key))
}

/// Refuses a foreign key that sets a generated column to null.
///
/// # Errors
/// If the foreign key does so.
fn check_action(constraints: &Constraints, key: &ForeignKey) -> Result<()> {
    let is_generated = |column: &ColumnIndex| constraints.generated.contains_key(column);
    match key.on_delete == ReferentialAction::SetNull && key.columns.iter().any(is_generated) {
        true => Err(GeneratedColumnError::ForeignKeyAction.into()),
        false => Ok(()),
    }
}

fn set_default(constraints: &mut Constraints, column: &str, value: &str, subject: DeclaredTable<'_>) -> Result<()> {
    let column = subject.column(column)?;
    default_expression(value, subject.schema.column(column).logical_type)?;
    constraints.defaults.insert(column, value.to_owned());
    Ok(())
}

fn add_constraint(
    constraints: &mut Constraints,
    constraint: &DeclaredConstraint,
    subject: DeclaredTable<'_>,
    catalog: &Catalog,
) -> Result<()> {
    match &constraint.rule {
        DeclaredCondition::Key { columns, is_primary } => {
            if *is_primary && constraints.primary_key().is_some() {
                return Err(QueryError::SecondPrimaryKey { table: subject.name.to_owned() });
            }
            let positions = subject.columns(columns)?;
            let suffix = if *is_primary { "pkey".to_owned() } else { format!("{}_key", columns.join("_")) };
            let name = constraint_name(constraints, constraint, (subject, catalog), &suffix)?;
            constraints.keys.push(UniqueKey { name, columns: positions, is_primary: *is_primary, is_index: false });
        }
        DeclaredCondition::UniqueIndex { columns } => {
            let positions = subject.columns(columns)?;
            let suffix = format!("{}_idx", columns.join("_"));
            let name = constraint_name(constraints, constraint, (subject, catalog), &suffix)?;
            constraints.keys.push(UniqueKey { name, columns: positions, is_primary: false, is_index: true });
        }
        DeclaredCondition::Check { condition: expression } => {
            let text = without_table(expression, &unqualified_name(subject.name)).to_string();
            compile_condition(&text, subject.schema)?;
            let suffix = check_suffix(&text, subject.schema)?;
            let name = constraint_name(constraints, constraint, (subject, catalog), &suffix)?;
            constraints.checks.push(Check { name, condition: text });
        }
        DeclaredCondition::ForeignKey { columns, table, referenced, on_delete } => {
            let name =
                constraint_name(constraints, constraint, (subject, catalog), &format!("{}_fkey", columns.join("_")))?;
            let own = subject.columns(columns)?;
            let table = name_of_reference(table);
            let (parent, parent_constraints) = match catalog.table(&table) {
                _ if table == subject.name => (subject, &*constraints),
                Some(parent) => {
                    (DeclaredTable { id: parent.id, name: &parent.name, schema: &parent.schema }, &*parent.constraints)
                }
                None => return Err(QueryError::no_relation(table)),
            };
            let referenced = match (referenced.as_slice(), parent_constraints.primary_key()) {
                ([], Some(key)) => key.columns.clone(),
                ([], None) => return Err(QueryError::NoPrimaryKey { table: table.clone() }),
                (names, _) => parent.columns(names)?,
            };
            let mut key = ForeignKey { name, columns: own, table: parent.id, referenced, on_delete: *on_delete };
            if !key.references(subject.schema, parent.schema, parent_constraints) {
                return Err(QueryError::unsupported(
                    format!("foreign key {:?} of table {:?}", key.name, subject.name),
                    format!(
                        "the columns of a PRIMARY KEY or UNIQUE constraint of table {table:?}, of the same types, are"
                    ),
                ));
            }
            check_action(constraints, &key)?;
            key.match_key_order(parent_constraints);
            constraints.foreign_keys.push(key);
            if parent.id == subject.id {
                constraints.referenced_by.insert(subject.id);
            }
        }
    }
    Ok(())
}

/// Suffix of the name of a check. As in PostgreSQL, it has the column if the condition names exactly one.
fn check_suffix(condition: &str, schema: &Schema) -> Result<String> {
    let mut named = Vec::new();
    for column in schema.columns() {
        if names_column(condition, &column.name)? {
            named.push(&column.name);
        }
    }
    Ok(match named.as_slice() {
        [column] => format!("{column}_check"),
        _ => "check".to_owned(),
    })
}

/// Name of a constraint. Generates one if none is given, and refuses a name that the table already uses for another
/// constraint.
fn constraint_name(
    constraints: &Constraints,
    constraint: &DeclaredConstraint,
    (subject, catalog): (DeclaredTable<'_>, &Catalog),
    suffix: &str,
) -> Result<String> {
    let used_names: BTreeSet<&str> = constraints.names().collect();
    match &constraint.name {
        Some(name) if used_names.contains(name.as_str()) => Err(QueryError::Exists {
            kind: ObjectKind::Constraint,
            name: name.clone(),
            relation: Some(subject.name.to_owned()),
        }),
        Some(name) => Ok(name.clone()),
        None => {
            let base = format!("{}_{suffix}", unqualified_name(subject.name));
            let mut numbered = (1..).map(|number| format!("{base}{number}"));
            // The index of a key gets the name of the key, so nothing else in the schema may have it.
            let free = |name: &String| {
                !used_names.contains(name.as_str()) && catalog.is_name_free(&sibling_name(subject.name, name))
            };
            Ok(Some(base.clone()).filter(free).or_else(|| numbered.find(free)).unwrap_or(base))
        }
    }
}

impl DeclaredTable<'_> {
    fn column(&self, name: &str) -> Result<ColumnIndex> {
        let found = self.schema.index_of(name);
        found.ok_or_else(|| QueryError::no_column(self.name, name))
    }

    fn columns(&self, names: &[String]) -> Result<Vec<ColumnIndex>> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let column = self.column(name)?;
            if columns.contains(&column) {
                return Err(QueryError::Duplicate { name: name.clone() });
            }
            columns.push(column);
        }
        Ok(columns)
    }
}
