//! Column names in an expression over one table, such as the condition of a check: finds, renames and normalizes them.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Expr, Ident, ObjectNamePart, visit_expressions_mut};

use crate::dialect::parse_expression;
use crate::error::Result;
use crate::identifiers::normalize;

/// Whether an expression over the columns of one table reads the column `column`.
///
/// # Errors
/// If the text is not an expression.
pub fn names_column(expression: &str, column: &str) -> Result<bool> {
    let mut is_named = false;
    visit_names(&mut parse_expression(expression)?, |name| is_named |= normalize(name) == column);
    Ok(is_named)
}

/// Returns an expression over the columns of one table with column `column` renamed to `new_name`.
///
/// # Errors
/// If the text is not an expression.
pub fn rename_column(expression: &str, column: &str, new_name: &str) -> Result<String> {
    let mut expression = parse_expression(expression)?;
    visit_names(&mut expression, |name| {
        if normalize(name) == column {
            *name = Ident::with_quote('"', new_name);
        }
    });
    Ok(expression.to_string())
}

/// Returns an expression over the columns of one table with each `table.column` shortened to `column`.
pub fn without_table(expression: &Expr, table: &str) -> Expr {
    let mut expression = expression.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expression, |part| {
        if let Expr::CompoundIdentifier(names) = part
            && let [relation, column] = names.as_slice()
            && normalize(relation) == table
        {
            *part = Expr::Identifier(column.clone());
        }
        ControlFlow::Continue(())
    });
    expression
}

/// Returns the text in which the catalog stores an expression over the columns of one table. The text omits the name of
/// the table, and its unquoted names are in lower case.
pub fn stored_text(expression: &Expr, table: &str) -> String {
    let mut expression = without_table(expression, table);
    let fold = |name: &mut Ident| {
        if name.quote_style.is_none() {
            name.value = normalize(name);
        }
    };
    let _: ControlFlow<()> = visit_expressions_mut(&mut expression, |part| {
        match part {
            Expr::Identifier(name) => fold(name),
            Expr::CompoundIdentifier(names) => names.iter_mut().for_each(fold),
            Expr::Function(function) => {
                for part in &mut function.name.0 {
                    if let ObjectNamePart::Identifier(name) = part {
                        fold(name);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    expression.to_string()
}

/// Calls `visit` with the unqualified name of each column in an expression.
fn visit_names(expression: &mut Expr, mut visit: impl FnMut(&mut Ident)) {
    let _: ControlFlow<()> = visit_expressions_mut(expression, |part| {
        match part {
            Expr::Identifier(name) => visit(name),
            Expr::CompoundIdentifier(names) => names.last_mut().into_iter().for_each(&mut visit),
            _ => {}
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_and_renamed_in_any_spelling() {
        let check = "A + t.a > 0 AND \"A\" <> 'a' AND abs(a) < length(b)";
        assert!(names_column(check, "a").unwrap() && names_column(check, "A").unwrap());
        assert!(!names_column(check, "t").unwrap() && !names_column(check, "abs").unwrap());
        let renamed = "\"new name\" + t.\"new name\" > 0 AND \"A\" <> 'a' AND abs(\"new name\") < length(b)";
        assert_eq!(rename_column(check, "a", "new name").unwrap(), renamed);
        let unqualified = without_table(&parse_expression(check).unwrap(), "t").to_string();
        assert_eq!(unqualified, "A + a > 0 AND \"A\" <> 'a' AND abs(a) < length(b)");
    }
}
