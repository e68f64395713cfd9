//! Columns of `* REPLACE`, which the planner ignores if the rows have no such column.
//!
//! Whether there is such a column is known only when the statement is planned. Therefore this module builds a second
//! form of the statement, which excludes the columns and adds the new ones. The planner rejects the exclusion of a
//! column that does not exist.
//!
//! ```text
//! written        SELECT * REPLACE (a + 1 AS a) FROM t
//! second form    SELECT * EXCLUDE (a), a + 1 AS a FROM t
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    ExcludeSelectItem, ObjectName, Select, SelectItem, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::syntax::{aliased, wildcard_options};

/// A statement whose `* REPLACE` items are written as `* EXCLUDE`, and the names of the replaced columns.
#[derive(Debug)]
pub struct ReplacedColumns {
    /// The statement. It has the columns of the original in another order, and is for planning only.
    pub statement: PlannerStatement,
    /// Names of the replaced columns.
    pub names: HashSet<String>,
}

/// Returns the second form of a statement. Returns `None` if the statement replaces no columns.
pub fn replaced_columns(statement: &PlannerStatement) -> Option<ReplacedColumns> {
    match statement {
        PlannerStatement::Statement(ast) => {
            let mut ast = ast.clone();
            let mut rewriter = Replacements { names: HashSet::new() };
            let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut rewriter);
            let names = rewriter.names;
            (!names.is_empty()).then(|| ReplacedColumns { statement: PlannerStatement::Statement(ast), names })
        }
        PlannerStatement::Explain(explain) => replaced_columns(&explain.statement),
        _ => None,
    }
}

struct Replacements {
    names: HashSet<String>,
}

impl VisitorMut for Replacements {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut projection = Vec::with_capacity(select.projection.len());
        for mut item in std::mem::take(&mut select.projection) {
            let replaced = wildcard_options(&mut item).and_then(|options| self.exclude(options));
            projection.push(item);
            projection.extend(replaced.into_iter().flatten());
        }
        select.projection = projection;
        ControlFlow::Continue(())
    }
}

impl Replacements {
    /// Turns the replaced columns of a wildcard into excluded ones. Returns the new columns as select items.
    fn exclude(&mut self, options: &mut WildcardAdditionalOptions) -> Option<Vec<SelectItem>> {
        let replaced = options.opt_replace.take()?.items;
        let mut excluded: Vec<ObjectName> = match options.opt_exclude.take() {
            None => Vec::new(),
            Some(ExcludeSelectItem::Single(name)) => vec![name],
            Some(ExcludeSelectItem::Multiple(names)) => names,
        };
        excluded.extend(replaced.iter().map(|item| ObjectName::from(vec![item.column_name.clone()])));
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
        self.names.extend(replaced.iter().map(|item| item.column_name.value.clone()));
        Some(replaced.into_iter().map(|item| aliased(item.expr, &item.column_name.value)).collect())
    }
}
