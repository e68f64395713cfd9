//! Names of the queries in `WITH`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{CteAsMaterialized, Query, Visit, Visitor};

use crate::identifiers::normalize;

/// Names of the `WITH` queries of a statement, subqueries included. The value of a name is true if at least one query
/// of this name is declared `AS MATERIALIZED`.
pub fn with_queries(statement: &PlannerStatement) -> BTreeMap<String, bool> {
    let mut found = WithQueries::default();
    match statement {
        PlannerStatement::Statement(ast) => {
            let _: ControlFlow<()> = ast.visit(&mut found);
        }
        PlannerStatement::Explain(explain) => return with_queries(&explain.statement),
        _ => {}
    }
    found.0
}

#[derive(Default)]
struct WithQueries(BTreeMap<String, bool>);

impl Visitor for WithQueries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for query in query.with.iter().flat_map(|with| &with.cte_tables) {
            let is_materialized = matches!(query.materialized, Some(CteAsMaterialized::Materialized));
            *self.0.entry(normalize(&query.alias.name)).or_default() |= is_materialized;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion_sql::parser::DFParser;

    use super::*;
    use crate::dialect::Grammar;

    #[test]
    fn names_of_all_levels_are_found() {
        let sql = "WITH a AS MATERIALIZED (SELECT 1), \"B\" AS NOT MATERIALIZED (WITH c AS (SELECT 2) SELECT * FROM c) \
                   SELECT (WITH d AS MATERIALIZED (SELECT 3) SELECT * FROM d)";
        for sql in [sql.to_owned(), format!("EXPLAIN {sql}"), format!("INSERT INTO t {sql}")] {
            let statement = DFParser::parse_sql_with_dialect(&sql, &Grammar).unwrap().pop_front().unwrap();
            let expected = [("B", false), ("a", true), ("c", false), ("d", true)];
            let expected = expected.map(|(name, is_materialized)| (name.to_owned(), is_materialized));
            assert_eq!(with_queries(&statement), BTreeMap::from(expected), "{sql}");
        }
    }
}
