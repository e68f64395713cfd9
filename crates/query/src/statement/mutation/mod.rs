//! Statements that change rows, as queries that say how.
//!
//! `UPDATE`, `DELETE`, `MERGE` and `INSERT ... ON CONFLICT` become a `SELECT` that gives for every row to change its
//! hidden id and its new values. It is planned as any other, so that subqueries, joins and limits are what they are there;
//! whoever runs it applies the rows.
//!
//! The rows of the table itself are those of the relation `"taut target"`, under the table's name or alias; the same table
//! mentioned elsewhere in the statement is the ordinary one. Rows of the output may concern one row of the table several
//! times, as a join does, and rows to insert may conflict with each other: that is for the executor.

mod assign;
mod build;
mod delete;
mod insert;
mod merge;
mod nothing;
mod qualify;
mod target;
#[cfg(test)]
mod tests;
mod update;

use std::ops::Range;

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Statement as Ast, With};

use crate::error::{QueryError, Result};
use crate::statement::forms::distinct_names;
use crate::statement::lists_values;

use self::target::Target;

pub(super) use self::build::{all_of, alone, any_of, case, column, derived, equal, is_null, item, null, select};
pub use self::insert::{Conflict, ConflictTarget, Listed};
pub(super) use self::nothing::with_nothing;
pub(super) use self::target::is_default;
pub use self::target::{TargetColumn, assignment_function};

/// The relation of the rows that a statement may change, with their ids.
pub const TARGET: &str = "taut target";
/// The relation of the rows that a statement changed, for `RETURNING`.
pub const WRITTEN: &str = "taut written";
/// The column of [`TARGET`], and of the query, that holds the id of a row; null for rows to insert.
pub const ROW: &str = "taut row";
/// The column of the query that holds the code of an [`Action`].
pub const ACTION: &str = "taut action";

/// What a statement does to rows.
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
    /// Its word in SQL.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Merge => "MERGE",
        }
    }
}

/// What is done to a row. The code is its value in the column [`ACTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// The row is passed over.
    Nothing = 0,
    /// A row is inserted.
    Insert = 1,
    /// The row gets new values.
    Update = 2,
    /// The row is deleted.
    Delete = 3,
}

impl Action {
    /// The action of a code.
    pub fn from_code(code: i64) -> Option<Self> {
        [Self::Nothing, Self::Insert, Self::Update, Self::Delete].into_iter().find(|action| *action as i64 == code)
    }

    fn code(self) -> Expr {
        build::integer(self as u8)
    }
}

/// A statement that changes rows of one table.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The table.
    pub table: String,
    /// The name by which the statement means rows of the table.
    pub alias: String,
    /// What it does.
    pub kind: MutationKind,
    /// What `RETURNING` asks for.
    pub returning: Option<Vec<SelectItem>>,
    /// The tables that it names, that which it changes too.
    pub named: Vec<TableReference>,
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

/// The query of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationQuery {
    /// The query.
    pub query: Box<Query>,
    /// What its columns are.
    pub outputs: Outputs,
}

/// What the columns of a mutation's query are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The place of [`ROW`]; `None` where all rows are to be inserted.
    pub row: Option<usize>,
    /// The place of [`ACTION`]; `None` where the kind of the mutation says it.
    pub action: Option<usize>,
    /// The places of the table's columns, in table order: new values, or of rows to delete the old ones. Empty where rows
    /// are deleted and nobody asks for them.
    pub columns: Range<usize>,
}

impl Outputs {
    fn new(has_row: bool, has_action: bool, columns: usize) -> Self {
        let first = usize::from(has_row) + usize::from(has_action);
        Self {
            row: has_row.then_some(0),
            action: has_action.then_some(usize::from(has_row)),
            columns: first..first + columns,
        }
    }
}

/// The tables that a statement names. A name that is none is an error when it is planned.
fn named_tables(ast: &Ast) -> Vec<TableReference> {
    if let Ast::Insert(insert) = ast
        && insert.source.as_ref().is_some_and(|source| lists_values(source))
        && insert.on.is_none()
        && insert.returning.is_none()
    {
        return Vec::new();
    }
    let statement = EngineStatement::Statement(Box::new(ast.clone()));
    resolve_table_references(&statement, true).map(|(tables, _)| tables).unwrap_or_default()
}

impl Mutation {
    /// Whether a statement changes rows in a way that DataFusion does not plan.
    pub(super) fn is(ast: &Ast) -> bool {
        match ast {
            Ast::Update(_) | Ast::Delete(_) | Ast::Merge(_) => true,
            Ast::Insert(insert) => insert::is_ours(insert),
            Ast::Query(query) => body_of(query).is_some(),
            _ => false,
        }
    }

    /// The mutation of a statement for which [`Mutation::is`].
    ///
    /// # Errors
    /// When it has parts that are not supported.
    pub(super) fn of(ast: Ast) -> Result<Self> {
        let named = named_tables(&ast);
        Ok(Self { named, ..Self::without_names(ast)? })
    }

    fn without_names(ast: Ast) -> Result<Self> {
        let (kind, (target, parts, returning)) = match ast {
            Ast::Insert(insert) => (MutationKind::Insert, insert::parts(insert)?),
            Ast::Update(update) => (MutationKind::Update, update::parts(update)?),
            Ast::Delete(delete) => (MutationKind::Delete, delete::parts(delete)?),
            Ast::Merge(merge) => (MutationKind::Merge, merge::parts(merge)?),
            Ast::Query(query) if body_of(&query).is_some() => {
                let with = query.with.clone();
                check_with(with.as_ref())?;
                let Some(body) = body_of(&query) else { return Err(no_mutation()) };
                return Ok(Self { with, ..Self::without_names(body.clone())? });
            }
            _ => return Err(no_mutation()),
        };
        Ok(Self { table: target.table, alias: target.alias, kind, returning, named: Vec::new(), with: None, parts })
    }

    /// What `ON CONFLICT` says, where it is there.
    pub fn conflict(&self) -> Option<&Conflict> {
        match &self.parts {
            Parts::Insert(insert) => insert.conflict.as_ref(),
            _ => None,
        }
    }

    /// The rows of values of an `INSERT`, where it gives nothing else.
    pub fn listed(&self) -> Option<Listed<'_>> {
        match &self.parts {
            Parts::Insert(insert) => insert.listed(),
            _ => None,
        }
    }

    /// What an `INSERT` of one row does where there is a row with its key: an `UPDATE` of that row, of nothing for `DO
    /// NOTHING`. `None` for all that is more than that.
    ///
    /// # Errors
    /// As [`Mutation::query`].
    pub fn on_conflict(&self, columns: &[TargetColumn<'_>], key: &[String]) -> Result<Option<Self>> {
        let (Parts::Insert(insert), None) = (&self.parts, &self.with) else { return Ok(None) };
        let target = Target { table: self.table.clone(), alias: self.alias.clone() };
        let update = insert.update(&target, columns, key)?;
        Ok(update.map(|update| Self { kind: MutationKind::Update, parts: Parts::Update(update), ..self.clone() }))
    }

    /// The columns of the table, by their places, to which it may give other values; `None` for all.
    ///
    /// # Errors
    /// As [`Mutation::query`].
    pub fn assigned(&self, columns: &[TargetColumn<'_>]) -> Result<Option<Vec<usize>>> {
        let target = Target { table: self.table.clone(), alias: self.alias.clone() };
        match &self.parts {
            Parts::Update(update) => update.assigned(&target, columns).map(Some),
            _ => Ok(None),
        }
    }

    /// The query that gives the rows, for a table with these columns. Rows to insert conflict with those that are equal
    /// in the columns of any of the keys, which matter to `ON CONFLICT` only; without any, no row conflicts.
    ///
    /// # Errors
    /// When the statement names columns that the table has not, or one twice, or more or fewer values than columns.
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

    /// The query of `RETURNING`, over the rows of the relation [`WRITTEN`].
    ///
    /// Other tables of the statement are not there: their columns cannot be returned.
    pub fn returning_query(&self) -> Option<Box<Query>> {
        let mut items = self.returning.clone()?;
        distinct_names(&mut items);
        let mut query = build::select(items, vec![build::alone(build::table(WRITTEN, &self.alias))], None);
        query.with = self.with.clone();
        Some(query)
    }
}

/// The statement that changes rows behind `WITH`.
fn body_of(query: &Query) -> Option<&Ast> {
    match query.body.as_ref() {
        SetExpr::Insert(ast) | SetExpr::Update(ast) | SetExpr::Delete(ast) | SetExpr::Merge(ast) => Some(ast),
        _ => None,
    }
}

fn no_mutation() -> QueryError {
    QueryError::unsupported("a statement that changes rows in another way", "INSERT, UPDATE, DELETE and MERGE are")
}

/// Refuses `WITH` queries that change rows themselves.
fn check_with(with: Option<&With>) -> Result<()> {
    match with.iter().flat_map(|with| &with.cte_tables).find(|table| body_of(&table.query).is_some()) {
        Some(table) => Err(QueryError::unsupported(
            format!("a statement that changes rows as WITH {}", table.alias.name),
            "WITH names queries",
        )),
        None => Ok(()),
    }
}

/// Refuses the first of the parts that is given.
fn refuse(parts: &[(bool, &str)], allowed: &str) -> Result<()> {
    match parts.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(QueryError::unsupported(*what, allowed)),
        None => Ok(()),
    }
}
