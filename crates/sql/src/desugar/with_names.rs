//! Names of `WITH` queries that the planner confuses with others. It refuses a name that a query around also defines,
//! and takes `"s.t"` for the relation `t` in schema `s`. Such queries get other names.
//!
//! ```text
//! written      WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH a AS (SELECT x + 1 AS x FROM a) SELECT a.x FROM a) AS q
//! rewritten    ... FROM (WITH "taut a 1" AS (SELECT x + 1 AS x FROM a) SELECT a.x FROM "taut a 1" AS "a") AS q
//! ```
//!
//! Inner queries are renamed before outer ones. So within a renamed query, no other query has its old name.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, TableAlias, TableFactor, VisitMut, VisitorMut,
};

use crate::identifiers::normalize;
use crate::syntax::quoted;

/// The `WITH` clauses around the visited part of a statement.
#[derive(Default)]
pub(super) struct WithScopes {
    /// Names that each enclosing query defines.
    names: Vec<Vec<String>>,
    /// Number of renamed queries.
    renamed: usize,
}

impl WithScopes {
    /// Enters the scope of a query.
    pub fn enter(&mut self, query: &Query) {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| normalize(&table.alias.name));
        self.names.push(names.collect());
    }

    /// Leaves the scope of a query, and renames the queries of its `WITH` that need another name.
    pub fn leave(&mut self, query: &mut Query) {
        let own = self.names.pop().unwrap_or_default();
        for (index, name) in own.iter().enumerate() {
            // The planner refuses a name that one WITH defines twice.
            let is_unique = own.iter().filter(|other| *other == name).count() == 1;
            if is_unique && (name.contains('.') || self.names.iter().any(|names| names.contains(name))) {
                self.renamed += 1;
                let new_name = format!("taut {} {}", name.replace('.', " "), self.renamed);
                rename(query, index, &Renaming { name: name.clone(), new_name: quoted(&new_name) });
            }
        }
    }
}

/// Renames a query of `WITH`, and the references to it.
fn rename(query: &mut Query, index: usize, renaming: &Renaming) {
    let Query { with, body, order_by, .. } = query;
    let Some(with) = with else { return };
    // Without RECURSIVE, a query sees only the queries before it.
    let first_reader = if with.recursive { 0 } else { index + 1 };
    for table in &mut with.cte_tables[first_reader..] {
        renaming.apply(&mut table.query);
    }
    with.cte_tables[index].alias.name = renaming.new_name.clone();
    renaming.apply(body);
    renaming.apply(order_by);
}

struct Renaming {
    name: String,
    new_name: Ident,
}

impl Renaming {
    fn apply(&self, part: &mut impl VisitMut) {
        let _: ControlFlow<()> = part.visit(&mut References(self));
    }
}

/// Visitor that renames references. A reference without an alias gets the old name as its alias, which qualifies
/// columns.
struct References<'a>(&'a Renaming);

impl VisitorMut for References<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name: ObjectName(parts), alias, args: None, .. } = factor
            && let [ObjectNamePart::Identifier(name)] = parts.as_mut_slice()
            && normalize(name) == self.0.name
        {
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: quoted(&self.0.name),
                columns: Vec::new(),
                at: None,
            });
            *name = self.0.new_name.clone();
        }
        ControlFlow::Continue(())
    }
}
