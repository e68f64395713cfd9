//! `DELETE FROM t [USING ...] [WHERE ...]`.

use datafusion_sql::sqlparser::ast::{
    Delete as Ast, Expr, FromTable, OrderBy, OrderByExpr, OrderByKind, SelectItem, TableWithJoins,
};

use super::qualify::qualified;
use super::target::Target;
use super::update::{limited, refuse_limit};
use super::{MutationQuery, Outputs, Parts, ROW, TargetColumn, refuse};
use crate::error::{Result, SqlError};
use crate::syntax::{alone, item, select};

/// The parts of a `DELETE`.
#[derive(Clone, Debug)]
pub(super) struct Delete {
    using: Vec<TableWithJoins>,
    selection: Option<Expr>,
    order_by: Vec<OrderByExpr>,
    limit: Option<Expr>,
}

pub(super) fn parts(delete: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = delete.from;
    let allowed = "DELETE FROM t USING u WHERE t.a = u.a RETURNING t.a is";
    refuse(&[(!delete.tables.is_empty(), "DELETE t FROM"), (delete.output.is_some(), "OUTPUT in DELETE")], allowed)?;
    let [table] = from.as_slice() else {
        return Err(SqlError::unsupported("DELETE from several tables", allowed));
    };
    let target = Target::alone("DELETE", table, "DELETE FROM t USING")?;
    let using = delete.using.unwrap_or_default();
    target.check_names(&using)?;
    refuse_limit("DELETE with USING", delete.limit.is_some() && !using.is_empty())?;
    let parts = Delete { using, selection: delete.selection, order_by: delete.order_by, limit: delete.limit };
    Ok((target, Parts::Delete(parts), delete.returning))
}

impl Delete {
    /// Builds the query of the rows to delete. With `returning` it returns their values beside their ids.
    pub fn query(&self, target: &Target, columns: &[TargetColumn<'_>], returning: bool) -> MutationQuery {
        let returned = if returning { columns } else { &[] };
        let values = returned.iter().map(|column| item(target.column(column.name), column.name));
        let projection = std::iter::once(item(target.row(), ROW)).chain(values).collect();
        let from = std::iter::once(alone(target.relation())).chain(self.using.iter().cloned()).collect();
        let mut query = limited(select(projection, from, self.selection.clone()), self.limit.as_ref());
        // The order of rows to delete matters only if there is a limit.
        if self.limit.is_some() && !self.order_by.is_empty() {
            let order = self.order_by.iter().map(|by| {
                let expr = qualified(&by.expr, columns, &target.alias);
                OrderByExpr { expr, ..by.clone() }
            });
            query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(order.collect()), interpolate: None });
        }
        MutationQuery { query, outputs: Outputs::new(true, false, returned.len()) }
    }
}
