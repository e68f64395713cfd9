//! Aliases of the select list in `WHERE`, `QUALIFY` and later columns, as in DuckDB.
//!
//! A column of a table takes precedence over an alias. Columns are known only when the statement is planned. Therefore
//! an alias is replaced by its expression only after the planner has found no column of this name.
//!
//! ```text
//! written    SELECT price * amount AS total, total * 1.2 AS gross FROM t WHERE total > 100
//! planned    SELECT price * amount AS total, (price * amount) * 1.2 AS gross FROM t WHERE (price * amount) > 100
//! ```

use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, ObjectNamePart, Query, Select, SelectItem, VisitMut, VisitorMut, visit_expressions,
};

use crate::identifiers::normalize;

/// Functions whose results differ from call to call.
const VOLATILE: [&str; 3] = ["random", "uuid", "gen_random_uuid"];

/// Returns the statement with alias `name` replaced by its expression. Returns `None` if nothing was replaced, or if
/// several `SELECT`s define and use the alias.
pub fn replace_alias(statement: &PlannerStatement, name: &str) -> Option<PlannerStatement> {
    match statement {
        PlannerStatement::Statement(ast) => {
            let mut ast = ast.clone();
            let mut replacer = Replacer { name, selects: 0 };
            let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut replacer);
            // If several SELECTs define the alias, the name may be a column in one of them: then nothing is replaced.
            (replacer.selects == 1).then_some(PlannerStatement::Statement(ast))
        }
        PlannerStatement::Explain(explain) => {
            let mut explain = explain.clone();
            explain.statement = Box::new(replace_alias(&explain.statement, name)?);
            Some(PlannerStatement::Explain(explain))
        }
        _ => None,
    }
}

struct Replacer<'a> {
    name: &'a str,
    /// Number of `SELECT`s in which the name was replaced.
    selects: usize,
}

impl VisitorMut for Replacer<'_> {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let alias = select.projection.iter().enumerate().find_map(|(index, item)| match item {
            SelectItem::ExprWithAlias { expr, alias } if normalize(alias) == self.name => Some((index, expr.clone())),
            _ => None,
        });
        let Some((index, value)) = alias.filter(|(_, value)| is_repeatable(value, self.name)) else {
            return ControlFlow::Continue(());
        };
        let mut uses = Substitution { name: self.name, value: &value, depth: 0, is_replaced: false };
        let Select { projection, selection, qualify, .. } = select;
        for item in &mut projection[index + 1..] {
            item.visit(&mut uses)?;
        }
        selection.visit(&mut uses)?;
        qualify.visit(&mut uses)?;
        self.selects += usize::from(uses.is_replaced);
        ControlFlow::Continue(())
    }
}

/// Whether an expression has the same value each time it is computed, and does not contain `name` itself.
fn is_repeatable(expression: &Expr, name: &str) -> bool {
    let found = visit_expressions(expression, |part| match part {
        Expr::Identifier(column) if normalize(column) == name => ControlFlow::Break(()),
        Expr::Function(function) => match function.name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] if VOLATILE.contains(&name.value.to_lowercase().as_str()) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    found.is_continue()
}

/// Replaces column `name` by the expression `value`, except in subqueries.
struct Substitution<'a> {
    name: &'a str,
    value: &'a Expr,
    /// Number of subqueries around the visited expression.
    depth: usize,
    is_replaced: bool,
}

impl VisitorMut for Substitution<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(column) = &*expression
            && normalize(column) == self.name
        {
            *expression = Expr::Nested(Box::new(self.value.clone()));
            self.is_replaced = true;
        }
        ControlFlow::Continue(())
    }
}
