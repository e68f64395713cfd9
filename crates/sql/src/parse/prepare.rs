//! `PREPARE` of statements that change rows.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{CastKind, DataType, Expr, Statement as Ast, visit_expressions_mut};

use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::mutation::{ModifyingWith, Mutation};
use crate::parameters::parameter;

/// Whether a statement is a `PREPARE` whose body changes rows, either in its main statement or in its `WITH`.
pub(super) fn is_mutation(ast: &Ast) -> bool {
    let changes_rows = |ast: &Ast| Mutation::is_mutation(ast) || ModifyingWith::is_modifying_with(ast);
    matches!(ast, Ast::Prepare { statement, .. } if changes_rows(statement))
}

/// Splits a `PREPARE` into its name and its body. Casts each parameter in the body to its declared type.
///
/// # Errors
/// If the statement is not a `PREPARE`, or if it declares more types than its body has parameters.
pub(super) fn split(ast: Ast) -> Result<(String, Ast)> {
    let Ast::Prepare { name, data_types, mut statement } = ast else {
        return Err(SqlError::unsupported("PREPARE of another statement", "queries, and what changes rows, are"));
    };
    let mut used = 0;
    let _: ControlFlow<()> = visit_expressions_mut(statement.as_mut(), |expression| {
        if let Some(index) = parameter(expression) {
            used = used.max(index + 1);
            if let Some(data_type) = data_types.get(index) {
                *expression = cast(expression.clone(), data_type.clone());
            }
        }
        ControlFlow::Continue(())
    });
    if used < data_types.len() {
        let feature = format!("PREPARE {name} with {} types for {used} parameters", data_types.len());
        return Err(SqlError::unsupported(feature, "a type for each parameter that the statement uses is"));
    }
    Ok((normalize(&name), *statement))
}

fn cast(expression: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expression), data_type, array: false, format: None }
}
