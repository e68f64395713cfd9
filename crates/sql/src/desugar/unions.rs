//! Balancing of long chains of `SELECT ... UNION ALL SELECT ...`.
//!
//! The parser makes a tree that is as deep as the chain is long. The planner's work on each level grows with the size
//! of the subtree, so it is quadratic in the number of queries. A balanced tree of the same queries returns the same
//! rows in the same order, with the column names of the first query.

use datafusion_sql::sqlparser::ast::{SetExpr, SetOperator, SetQuantifier, Values};

/// Minimum number of queries in a chain that is balanced.
const BALANCED_QUERIES_MIN: usize = 64;

/// Balances the tree of a chain of at least [`BALANCED_QUERIES_MIN`] queries with `UNION ALL`.
pub(super) fn balance(body: &mut SetExpr) {
    let levels = std::iter::successors(Some(&*body), |body| match body {
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, .. } => {
            Some(left.as_ref())
        }
        _ => None,
    });
    if levels.count() < BALANCED_QUERIES_MIN {
        return;
    }
    let (mut queries, mut rest) = (Vec::new(), std::mem::replace(body, union_all(Vec::new())));
    while let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } = rest {
        queries.push(*right);
        rest = *left;
    }
    queries.push(rest);
    queries.reverse();
    *body = union_all(queries);
}

/// `UNION ALL` of all parts, as a balanced tree.
pub(super) fn union_all(mut parts: Vec<SetExpr>) -> SetExpr {
    let right = parts.split_off(parts.len() / 2);
    if parts.is_empty() {
        return right.into_iter().next().unwrap_or_else(|| {
            SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: Vec::new() })
        });
    }
    SetExpr::SetOperation {
        left: Box::new(union_all(parts)),
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        right: Box::new(union_all(right)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion_sql::sqlparser::ast::Statement;
    use datafusion_sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion_sql::sqlparser::parser::Parser;

    use super::*;

    fn body(sql: &str) -> SetExpr {
        let Statement::Query(query) = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0) else {
            panic!("no query: {sql}")
        };
        *query.body
    }

    fn depth(body: &SetExpr) -> usize {
        match body {
            SetExpr::SetOperation { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    #[test]
    fn long_unions_become_balanced_and_keep_their_order() {
        for count in [BALANCED_QUERIES_MIN, BALANCED_QUERIES_MIN + 1, 1000] {
            let queries: Vec<_> = (0..count).map(|number| format!("SELECT {number}")).collect();
            let sql = queries.join(" UNION ALL ");
            let mut balanced = body(&sql);
            assert_eq!(depth(&balanced), count - 1);
            balance(&mut balanced);
            assert!(depth(&balanced) <= count.ilog2() as usize + 1, "{count}");
            assert_eq!(balanced.to_string(), sql);
        }
    }

    #[test]
    fn short_chains_and_other_operations_do_not_change() {
        let queries = vec!["SELECT 1"; BALANCED_QUERIES_MIN].join(" UNION ALL ");
        for sql in [
            "SELECT 1 UNION ALL SELECT 2".to_owned(),
            format!("{queries} UNION SELECT 2"),
            vec!["SELECT 1"; BALANCED_QUERIES_MIN].join(" UNION "),
        ] {
            let mut balanced = body(&sql);
            balance(&mut balanced);
            assert_eq!(balanced, body(&sql));
        }
    }
}
