//! The columns that a query can refer to: columns whose names are among the words of its text. A word is an identifier,
//! quoted or not, or a keyword.
//!
//! Every step of planning handles the whole schema of a table, so a query of three columns pays for all columns of the
//! table. Columns whose name is not a word of the text are therefore left out of the tables for planning. All columns
//! stay if the query has syntax that refers to columns without naming them: `*`, `NATURAL`, lists of column aliases.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Query, Select, SelectItem, SetExpr, Statement as Ast, TableFactor, Visit, Visitor,
};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::mutation::Mutation;

/// Words of a query, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(HashSet<String>);

/// Words by which a query can refer to columns without naming them, or to tables that its text does not name.
const ALL_COLUMNS: [&str; 5] = ["natural", "table", "information_schema", "pivot", "unpivot"];

impl Names {
    /// Words of a statement with these tokens. `None` if the statement may refer to columns whose names are not among
    /// the words.
    pub(crate) fn of_statement<'a>(
        statement: &PlannerStatement,
        tokens: impl Iterator<Item = &'a Token>,
    ) -> Option<Self> {
        if !names_all_its_columns(statement) {
            return None;
        }
        let mut words = HashSet::new();
        let mut after_period = false;
        for token in tokens {
            match token {
                Token::Word(word) => drop(words.insert(word.value.to_lowercase())),
                // `f(t.*)`
                Token::Mul if after_period => return None,
                _ => {}
            }
            after_period = *token == Token::Period;
        }
        let may_refer_to_any = ALL_COLUMNS.iter().any(|word| words.contains(*word));
        (!may_refer_to_any).then_some(Self(words))
    }

    /// Whether the query may refer to a column of this name.
    pub fn contains(&self, column: &str) -> bool {
        match column.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            false => self.0.contains(column),
            true => self.0.contains(&column.to_lowercase()),
        }
    }
}

/// Whether a statement is a query or mutation that names each column that it reads.
fn names_all_its_columns(statement: &PlannerStatement) -> bool {
    match statement {
        PlannerStatement::Statement(ast) => match ast.as_ref() {
            Ast::Query(query) => query.visit(&mut UnnamedColumns).is_continue(),
            // The statement need not name the columns that it writes, because planning uses all columns of the changed
            // table.
            ast if Mutation::is_mutation(ast) => ast.visit(&mut UnnamedColumns).is_continue(),
            Ast::Prepare { statement, .. } => match statement.as_ref() {
                Ast::Query(query) => query.visit(&mut UnnamedColumns).is_continue(),
                _ => false,
            },
            _ => false,
        },
        PlannerStatement::Explain(explain) => names_all_its_columns(&explain.statement),
        _ => false,
    }
}

/// Visitor that stops at syntax that refers to columns without naming them.
struct UnnamedColumns;

impl Visitor for UnnamedColumns {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match query.body.as_ref() {
            SetExpr::Table(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        if select.projection.iter().any(is_wildcard) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            // `t AS u(a, b)` renames columns by position.
            TableFactor::Table { alias: Some(alias), .. } if !alias.columns.is_empty() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::{Statement, parse};

    fn names(sql: &str) -> Option<Names> {
        match parse(sql).unwrap().pop() {
            Some(Statement::Planned { names, .. } | Statement::Mutation { names, .. }) => {
                names.map(|names| (*names).clone())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_match_in_any_case_and_position() {
        let words =
            names("SELECT A, count(*), t.b * 2 FROM t JOIN u USING (k) WHERE \"D d\" > 'e' ORDER BY f").unwrap();
        for name in ["a", "A", "b", "k", "D d", "d D", "f"] {
            assert!(words.contains(name), "{name}");
        }
        for name in ["e", "d", "g", "É"] {
            assert!(!words.contains(name), "{name}");
        }
        assert!(names("SELECT 1; EXPLAIN ANALYZE SELECT \"É\" FROM t").unwrap().contains("É"));
        let words = names("EXPLAIN UPDATE t SET a = u.b FROM u WHERE t.c = u.c RETURNING *").unwrap();
        assert!(words.contains("c") && !words.contains("d"));
        assert!(!names("SELECT x FROM t; SELECT y FROM t").unwrap().contains("x"), "words of the statement before");
    }

    #[test]
    fn columns_that_wildcards_expand_to_are_kept() {
        for sql in [
            "SELECT * FROM t",
            "SELECT a, t.* FROM t",
            "SELECT DISTINCT ON (a) * FROM t",
            "SELECT a FROM t WHERE b IN (SELECT * FROM u)",
            "WITH q AS (SELECT * FROM t) SELECT a FROM q",
            "SELECT a FROM t NATURAL JOIN u",
            "SELECT b FROM t AS q(a, b)",
            "SELECT a FROM t UNION TABLE u",
            "SELECT column_name FROM information_schema.columns",
            "EXPLAIN SELECT * FROM t",
            "INSERT INTO t VALUES (1)",
            "SHOW COLUMNS FROM t",
            "DELETE FROM t WHERE a IN (SELECT * FROM u)",
            "UPDATE t SET a = 1 FROM u AS v(b) WHERE c = b",
        ] {
            assert_eq!(names(sql), None, "{sql}");
        }
    }
}
