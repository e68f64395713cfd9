//! Rewrites statements that change rows into queries that compute the changes.
//!
//! `UPDATE`, `DELETE`, `MERGE` and `INSERT ... ON CONFLICT` become a `SELECT`. It returns the hidden id and the new
//! values of every row to change. The planner treats it like any other query, so subqueries, joins and limits work as
//! in a query. The caller applies the rows that the query returns.
//!
//! The relation `"taut target"` holds the rows of the changed table, under the table's name or alias. Where the
//! statement names the table again in a `FROM` or `USING`, it reads the stored table. Several rows of the output may
//! change one row of the table, as after a join. Rows to insert may conflict with each other. The operator that runs
//! the changes handles both cases.

mod assign;
mod conflict_target;
mod delete;
mod do_nothing;
mod insert;
mod insert_modifiers;
mod merge;
mod modifying_with;
mod qualify;
mod target;
#[cfg(test)]
mod tests;
mod update;

use std::ops::Range;

use datafusion_common::TableReference;
use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::resolve::resolve_table_references;
use datafusion_sql::sqlparser::ast::{
    Expr, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement as Ast, TableWithJoins,
    WildcardAdditionalOptions, With,
};

use crate::databases::sequence_function_in;
use crate::desugar::{expand_wildcard, make_names_distinct, merges_columns};
use crate::error::{Result, SqlError};
use crate::listed_values::lists_values;
use crate::syntax;

use self::target::Target;

pub(crate) use self::conflict_target::replace_conflict_targets;
pub(crate) use self::do_nothing::replace_do_nothing;
pub use self::insert::{Conflict, ConflictTarget, ListedRows, column_count, values_error};
pub(crate) use self::insert_modifiers::mark_insert_modifiers;
pub(crate) use self::modifying_with::check_nested_with;
pub use self::modifying_with::{ModifyingWith, PartStatement, WithPart};
pub use self::target::{GeneratedAlways, TargetColumn, assignment_function};

/// Relation of the rows that a statement may change, with their ids.
pub const TARGET: &str = "taut target";
/// Relation of the rows that a statement changed, for `RETURNING`.
pub const WRITTEN: &str = "taut written";
/// Function that fails if a row to insert by `INSERT ... ON CONFLICT` violates a constraint. Its arguments are a value,
/// which it returns, and the values of all columns of the table.
pub const CHECK_ROW: &str = "taut check row";
/// Column with the id of a row, in [`TARGET`] and in the result of the query. It is null for rows to insert.
pub const ROW: &str = "taut row";
/// Column with the code of an [`Action`], in the result of the query.
pub const ACTION: &str = "taut action";

/// Kind of a statement that changes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    /// `INSERT`
    Insert,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
    /// `MERGE`
    Merge,
}

impl MutationKind {
    /// The SQL keyword of this kind.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Merge => "MERGE",
        }
    }
}

/// Change of one row. Its code is the value in the column [`ACTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// The row is skipped.
    Nothing = 0,
    /// A row is inserted.
    Insert = 1,
    /// The row gets new values.
    Update = 2,
    /// The row is deleted.
    Delete = 3,
}

impl Action {
    /// Returns the action with a code; `None` if no action has it.
    pub fn from_code(code: i64) -> Option<Self> {
        [Self::Nothing, Self::Insert, Self::Update, Self::Delete].into_iter().find(|action| *action as i64 == code)
    }

    fn code(self) -> Expr {
        syntax::integer(self as u8)
    }
}

/// A statement that changes rows of one table.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Name of the table that is changed.
    pub table: TableReference,
    /// Name by which the statement refers to rows of the table: its alias, or its own name.
    pub alias: String,
    /// Kind of the statement.
    pub kind: MutationKind,
    /// Items of `RETURNING`.
    pub returning: Option<Vec<SelectItem>>,
    /// Tables that the statement names, the changed one included. Empty for an `INSERT` of listed values that has
    /// neither `ON CONFLICT` nor `RETURNING`.
    pub named_tables: Vec<TableReference>,
    /// A function of sequences that the statement calls.
    pub sequence_function: Option<&'static str>,
    with: Option<With>,
    parts: Parts,
}

#[derive(Clone, Debug)]
enum Parts {
    Insert(insert::Insert),
    Update(update::Update),
    Delete(delete::Delete),
    Merge(Box<merge::Merge>),
}

/// Query that computes the changes of a [`Mutation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationQuery {
    /// The `SELECT` that returns the changes.
    pub query: Box<Query>,
    /// Meaning of the query's columns.
    pub outputs: Outputs,
}

/// Meaning of the columns of a [`MutationQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// Index of [`ROW`]. `None` if all rows are to be inserted.
    pub row: Option<usize>,
    /// Index of [`ACTION`]. `None` if the kind of the mutation determines the action.
    pub action: Option<usize>,
    /// Indexes of the table's columns, in table order. They hold new values, or the old values of rows to delete. Empty
    /// for a delete without `RETURNING`.
    pub columns: Range<usize>,
}

/// Columns that a query of changes returns before the columns of the table.
#[derive(Clone, Copy, Debug)]
enum HiddenColumns {
    /// All rows are inserted.
    None,
    /// [`ROW`].
    Row,
    /// [`ROW`] and [`ACTION`].
    RowAndAction,
}

impl Outputs {
    /// Meaning of `hidden` columns followed by `columns` columns of the table.
    fn new(hidden: HiddenColumns, columns: usize) -> Self {
        let (row, action, first) = match hidden {
            HiddenColumns::None => (None, None, 0),
            HiddenColumns::Row => (Some(0), None, 1),
            HiddenColumns::RowAndAction => (Some(0), Some(1), 2),
        };
        Self { row, action, columns: first..first + columns }
    }
}

/// Tables that a statement names. Empty for an `INSERT` of listed values without `ON CONFLICT` and `RETURNING`. A name
/// that matches no table becomes an error when the statement is planned.
fn named_tables(ast: &Ast) -> Vec<TableReference> {
    if let Ast::Insert(insert) = ast
        && insert.source.as_ref().is_some_and(|source| lists_values(source))
        && insert.on.is_none()
        && insert.returning.is_none()
    {
        return Vec::new();
    }
    let statement = PlannerStatement::Statement(Box::new(ast.clone()));
    resolve_table_references(&statement, true).map(|(tables, _)| tables).unwrap_or_default()
}

impl Mutation {
    /// Whether a statement changes rows in a way that DataFusion does not plan.
    pub(crate) fn is_mutation(ast: &Ast) -> bool {
        match ast {
            Ast::Update(_) | Ast::Delete(_) | Ast::Merge(_) => true,
            Ast::Insert(insert) => insert::needs_mutation(insert),
            Ast::Query(query) => mutation_after_with(query).is_some(),
            _ => false,
        }
    }

    /// Converts a statement for which [`Mutation::is_mutation`] returns true.
    ///
    /// # Errors
    /// If the statement has parts that are not supported.
    pub(crate) fn from_ast(ast: Ast) -> Result<Self> {
        let (named_tables, sequence_function) = (named_tables(&ast), sequence_function_in(&ast));
        Ok(Self { named_tables, sequence_function, ..Self::without_named_tables(ast)? })
    }

    fn without_named_tables(ast: Ast) -> Result<Self> {
        let (kind, (target, parts, returning)) = match ast {
            Ast::Insert(insert) => (MutationKind::Insert, insert::split(insert)?),
            Ast::Update(update) => (MutationKind::Update, update::split(update)?),
            Ast::Delete(delete) => (MutationKind::Delete, delete::split(delete)?),
            Ast::Merge(merge) => (MutationKind::Merge, merge::split(merge)?),
            Ast::Query(query) if mutation_after_with(&query).is_some() => {
                let with = query.with.clone();
                check_with(with.as_ref())?;
                let Some(body) = mutation_after_with(&query) else { return Err(unsupported_statement()) };
                return Ok(Self { with, ..Self::without_named_tables(body.clone())? });
            }
            _ => return Err(unsupported_statement()),
        };
        Ok(Self {
            table: target.table,
            alias: target.alias,
            kind,
            returning,
            named_tables: Vec::new(),
            sequence_function: None,
            with: None,
            parts,
        })
    }

    /// The `ON CONFLICT` clause, if there is one.
    pub fn conflict(&self) -> Option<&Conflict> {
        match &self.parts {
            Parts::Insert(insert) => insert.conflict.as_ref(),
            _ => None,
        }
    }

    /// Rows of an `INSERT ... VALUES`. Returns `None` for other statements.
    pub fn listed_rows(&self) -> Option<ListedRows<'_>> {
        match &self.parts {
            Parts::Insert(insert) => insert.listed_rows(),
            _ => None,
        }
    }

    /// Returns the query of an `INSERT ... BY NAME`, whose column names are the names of the target columns. Returns
    /// `None` for other statements, and after [`Mutation::with_columns`].
    pub fn query_by_name(&self) -> Option<Box<Query>> {
        let Parts::Insert(insert) = &self.parts else { return None };
        let mut query = insert.query_by_name()?;
        query.with = self.with.clone();
        Some(query)
    }

    /// Returns an `INSERT ... BY NAME` with its target columns. `names` are the column names of its query.
    pub fn with_columns<'a>(&self, names: impl Iterator<Item = &'a str>) -> Self {
        let mut mutation = self.clone();
        if let Parts::Insert(insert) = &mut mutation.parts {
            insert.set_columns(names);
        }
        mutation
    }

    /// Converts an `INSERT` of one row into the `UPDATE` that runs when a row with its key exists. The update for `DO
    /// NOTHING` sets no column. Returns `None` for statements that one such update cannot express.
    ///
    /// # Errors
    /// If [`Mutation::query`] fails on the same names or values.
    pub fn conflict_update(&self, columns: &[TargetColumn<'_>], key: &[String]) -> Result<Option<Self>> {
        let (Parts::Insert(insert), None) = (&self.parts, &self.with) else { return Ok(None) };
        let target = Target { table: self.table.clone(), alias: self.alias.clone() };
        let update = insert.update(&target, columns, key)?;
        Ok(update.map(|update| Self { kind: MutationKind::Update, parts: Parts::Update(update), ..self.clone() }))
    }

    /// Indexes of the table's columns to which the statement may assign new values. `None` means all columns.
    ///
    /// # Errors
    /// If [`Mutation::query`] fails on the same names or values.
    pub fn assigned_columns(&self, columns: &[TargetColumn<'_>]) -> Result<Option<Vec<usize>>> {
        let target = Target { table: self.table.clone(), alias: self.alias.clone() };
        match &self.parts {
            Parts::Update(update) => update.assigned_columns(&target, columns).map(Some),
            _ => Ok(None),
        }
    }

    /// Builds the query that returns the rows to insert, update or delete, for a table with these columns. Only `ON
    /// CONFLICT` uses `conflict_keys`. A row to insert conflicts with an existing row if, for one of these keys, both
    /// have equal values in all columns. Without keys, no row conflicts.
    ///
    /// # Errors
    /// If the statement names a column that the table does not have, names one twice, or has more or fewer values than
    /// columns.
    pub fn query(&self, columns: &[TargetColumn<'_>], conflict_keys: &[Vec<String>]) -> Result<MutationQuery> {
        let target = Target { table: self.table.clone(), alias: self.alias.clone() };
        let mut query = match &self.parts {
            Parts::Insert(insert) => insert.query(&target, columns, conflict_keys)?,
            Parts::Update(update) => update.query(&target, columns)?,
            Parts::Delete(delete) => delete.query(&target, columns, self.returning.is_some()),
            Parts::Merge(merge) => merge.query(&target, columns)?,
        };
        query.query.with = self.with.clone();
        Ok(query)
    }

    /// Builds the query of `RETURNING`, over the rows of the relation [`WRITTEN`] and the other relations of an
    /// `UPDATE` or `DELETE`. The caller provides the rows of the other relations with those of [`WRITTEN`], see
    /// [`Mutation::returns_joined_rows`].
    ///
    /// The source of a `MERGE` is not visible in it: its columns cannot be returned.
    pub fn returning_query(&self) -> Option<Box<Query>> {
        let mut items = self.returning.clone()?;
        make_names_distinct(&mut items);
        let mut from = vec![syntax::without_joins(syntax::table(WRITTEN, &self.alias))];
        let expanded = self.joined().iter().map(expand_wildcard).collect::<Option<Vec<_>>>();
        match expanded.filter(|_| self.joined().iter().any(merges_columns)) {
            Some(expanded) => {
                let of_target = SelectItemQualifiedWildcardKind::ObjectName(syntax::quoted(&self.alias).into());
                let mut all = vec![SelectItem::QualifiedWildcard(of_target, WildcardAdditionalOptions::default())];
                for (joined, columns) in expanded {
                    from.push(joined);
                    all.extend(columns);
                }
                let is_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default());
                items =
                    items.into_iter().flat_map(|item| if is_all(&item) { all.clone() } else { vec![item] }).collect();
            }
            None => from.extend(self.joined().iter().cloned()),
        }
        let mut query = syntax::select(items, from, None);
        query.with = self.with.clone();
        Some(query)
    }

    /// Whether `RETURNING` can name columns of other relations. The query of the changes must then return the columns
    /// of all its relations, behind the other columns.
    pub fn returns_joined_rows(&self) -> bool {
        self.returning.is_some() && !self.joined().is_empty()
    }

    /// Relations in the `FROM` of an `UPDATE`, or the `USING` of a `DELETE`.
    fn joined(&self) -> &[TableWithJoins] {
        match &self.parts {
            Parts::Update(update) => &update.from,
            Parts::Delete(delete) => &delete.using,
            Parts::Insert(_) | Parts::Merge(_) => &[],
        }
    }
}

/// Returns the statement that changes rows after `WITH`, if the query has one.
fn mutation_after_with(query: &Query) -> Option<&Ast> {
    match query.body.as_ref() {
        SetExpr::Insert(ast) | SetExpr::Update(ast) | SetExpr::Delete(ast) | SetExpr::Merge(ast) => Some(ast),
        _ => None,
    }
}

fn unsupported_statement() -> SqlError {
    SqlError::unsupported("a statement that changes rows in another way", "INSERT, UPDATE, DELETE and MERGE are")
}

/// Returns an error if a `WITH` query changes rows.
fn check_with(with: Option<&With>) -> Result<()> {
    match with.iter().flat_map(|with| &with.cte_tables).find(|table| mutation_after_with(&table.query).is_some()) {
        Some(table) => Err(SqlError::unsupported(
            format!("a statement that changes rows as WITH {}", table.alias.name),
            "WITH names queries",
        )),
        None => Ok(()),
    }
}

/// Returns an error if a statement has one of these parts. The error names the first one.
fn reject_parts(parts: &[(bool, &str)], allowed: &str) -> Result<()> {
    match parts.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(SqlError::unsupported(*what, allowed)),
        None => Ok(()),
    }
}
