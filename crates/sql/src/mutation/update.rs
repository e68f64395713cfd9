//! `UPDATE t SET ... [FROM ...] [WHERE ...]`.

use datafusion_sql::sqlparser::ast::{
    Assignment, Expr, LimitClause, Query, SelectItem, TableWithJoins, Update as Ast, UpdateTableFromKind,
};

use super::assign::assigned_values;
use super::target::Target;
use super::{HiddenColumns, MutationQuery, Outputs, Parts, ROW, TargetColumn, reject_parts};
use crate::error::{Result, SqlError};
use crate::syntax::{aliased, select, without_joins};

/// The parts of an `UPDATE`.
#[derive(Clone, Debug)]
pub(super) struct Update {
    assignments: Vec<Assignment>,
    pub from: Vec<TableWithJoins>,
    selection: Option<Expr>,
    limit: Option<Expr>,
}

/// Splits an `UPDATE` into its target, its parts and its `RETURNING` clause.
pub(super) fn split(update: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    reject_parts(
        &[
            (update.or.is_some(), "UPDATE OR"),
            (update.output.is_some(), "OUTPUT in UPDATE"),
            (!update.order_by.is_empty(), "ORDER BY in UPDATE"),
            (matches!(update.from, Some(UpdateTableFromKind::BeforeSet(_))), "FROM before SET"),
        ],
        "UPDATE t SET a = 1 FROM u WHERE t.b = u.b RETURNING t.a is",
    )?;
    let mut target = Target::single_table("UPDATE", &update.table, "UPDATE t SET ... FROM")?;
    let from = match update.from {
        Some(UpdateTableFromKind::AfterSet(from)) => from,
        _ => Vec::new(),
    };
    target.set_apart_from(&from)?;
    reject_limit("UPDATE with FROM", update.limit.is_some() && !from.is_empty())?;
    let parts = Update { assignments: update.assignments, from, selection: update.selection, limit: update.limit };
    Ok((target, Parts::Update(parts), update.returning))
}

impl Update {
    /// Builds an update of all rows for which `selection` is true.
    pub fn where_holds(assignments: Vec<Assignment>, selection: Option<Expr>) -> Self {
        Self { assignments, from: Vec::new(), selection, limit: None }
    }

    /// Indexes of the columns that the statement assigns to.
    pub fn assigned_columns(&self, target: &Target, columns: &[TargetColumn<'_>]) -> Result<Vec<usize>> {
        let values = assigned_values(&self.assignments, target, columns)?;
        Ok(values.iter().enumerate().filter_map(|(index, value)| value.as_ref().map(|_| index)).collect())
    }

    /// Builds the query that returns the row ids and the new values of all columns.
    pub fn query(&self, target: &Target, columns: &[TargetColumn<'_>]) -> Result<MutationQuery> {
        let values = assigned_values(&self.assignments, target, columns)?;
        let values = columns
            .iter()
            .zip(values)
            .map(|(column, value)| aliased(value.unwrap_or_else(|| target.column(column.name)), column.name));
        let projection = std::iter::once(aliased(target.row_id(), ROW)).chain(values).collect();
        let from = std::iter::once(without_joins(target.relation())).chain(self.from.iter().cloned()).collect();
        let query = with_limit(select(projection, from, self.selection.clone()), self.limit.as_ref());
        Ok(MutationQuery { query, outputs: Outputs::new(HiddenColumns::Row, columns.len()) })
    }
}

/// Returns an error for `LIMIT` with a join, because the limit would count rows of the join. A row of the target may
/// have several rows in the join.
pub(super) fn reject_limit(what: &str, is_given: bool) -> Result<()> {
    match is_given {
        true => Err(SqlError::unsupported(
            format!("LIMIT in {what}"),
            "WHERE with a subquery that has a LIMIT chooses rows by other tables",
        )),
        false => Ok(()),
    }
}

/// Adds a `LIMIT` clause to a query.
pub(super) fn with_limit(mut query: Box<Query>, limit: Option<&Expr>) -> Box<Query> {
    query.limit_clause =
        limit.map(|limit| LimitClause::LimitOffset { limit: Some(limit.clone()), offset: None, limit_by: Vec::new() });
    query
}
