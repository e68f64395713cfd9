//! `DELETE FROM t [USING ...] [WHERE ...]`.

use datafusion_sql::sqlparser::ast::{
    Delete as Ast, Expr, FromTable, OrderBy, OrderByExpr, OrderByKind, SelectItem, TableWithJoins,
};

use super::qualify::qualify_columns;
use super::target::Target;
use super::update::{reject_limit, with_limit};
use super::{HiddenColumns, MutationQuery, Outputs, Parts, ROW, TargetColumn, reject_parts};
use crate::error::{Result, SqlError};
use crate::syntax::{aliased, select, without_joins};

/// The parts of a `DELETE`.
#[derive(Clone, Debug)]
pub(super) struct Delete {
    pub using: Vec<TableWithJoins>,
    selection: Option<Expr>,
    order_by: Vec<OrderByExpr>,
    limit: Option<Expr>,
}

pub(super) fn split(delete: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = delete.from;
    let allowed = "DELETE FROM t USING u WHERE t.a = u.a RETURNING t.a is";
    reject_parts(
        &[(!delete.tables.is_empty(), "DELETE t FROM"), (delete.output.is_some(), "OUTPUT in DELETE")],
        allowed,
    )?;
    let [table] = from.as_slice() else {
        return Err(SqlError::unsupported("DELETE from several tables", allowed));
    };
    let mut target = Target::single_table("DELETE", table, "DELETE FROM t USING")?;
    let using = delete.using.unwrap_or_default();
    target.set_apart_from(&using)?;
    reject_limit("DELETE with USING", delete.limit.is_some() && !using.is_empty())?;
    let parts = Delete { using, selection: delete.selection, order_by: delete.order_by, limit: delete.limit };
    Ok((target, Parts::Delete(parts), delete.returning))
}

impl Delete {
    /// Builds the query that returns the ids of the rows to delete. With `returning`, it also returns the values of the
    /// rows.
    pub fn query(&self, target: &Target, columns: &[TargetColumn<'_>], returning: bool) -> MutationQuery {
        let returned = if returning { columns } else { &[] };
        let values = returned.iter().map(|column| aliased(target.column(column.name), column.name));
        let projection = std::iter::once(aliased(target.row_id(), ROW)).chain(values).collect();
        let from = std::iter::once(without_joins(target.relation())).chain(self.using.iter().cloned()).collect();
        let mut query = with_limit(select(projection, from, self.selection.clone()), self.limit.as_ref());
        // The order of rows to delete matters only if there is a limit.
        if self.limit.is_some() && !self.order_by.is_empty() {
            let order = self.order_by.iter().map(|by| {
                let expr = qualify_columns(&by.expr, columns, &target.alias);
                OrderByExpr { expr, ..by.clone() }
            });
            query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(order.collect()), interpolate: None });
        }
        MutationQuery { query, outputs: Outputs::new(HiddenColumns::Row, returned.len()) }
    }
}
