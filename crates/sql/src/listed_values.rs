//! Recognizes statements whose rows are literals and parameters. Such statements read no table.

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{Expr, Query, SetExpr, Statement as Ast};

/// Whether a statement is an `INSERT` of literals and parameters only.
pub fn inserts_values(statement: &PlannerStatement) -> bool {
    let PlannerStatement::Statement(ast) = statement else { return false };
    matches!(ast.as_ref(), Ast::Insert(insert) if insert.source.as_ref().is_some_and(|source| lists_values(source)))
}

/// Whether a query is a `VALUES` list of literals and parameters only.
pub fn lists_values(query: &Query) -> bool {
    let is_value = |expression: &Expr| matches!(expression, Expr::Value(_));
    let SetExpr::Values(values) = query.body.as_ref() else { return false };
    query.with.is_none() && values.rows.iter().flat_map(|row| &row.content).all(is_value)
}
