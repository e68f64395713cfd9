//! Statements about relations of an attached database, which another database runs: the table that they insert into,
//! calls that depend on the database, and the text of a view without the name of the database.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use datafusion_common::TableReference;
use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, Function, Ident, Insert, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind,
    Statement as Ast, TableObject, Visit, VisitMut, VisitorMut, visit_expressions,
};

use crate::error::Result;
use crate::identifiers::{PUBLIC, normalize, relation_reference, single_name};
use crate::parse::parse;
use crate::statement::Statement;

/// Functions that read or change sequences. Without the name of a database, they refer to the session's own.
const SEQUENCE_FUNCTIONS: [&str; 4] = ["nextval", "currval", "setval", "lastval"];

/// The table that an `INSERT` inserts into, or that of an `EXPLAIN` or `PREPARE` of one. Returns `None` for other
/// statements.
pub fn insert_target(statement: &PlannerStatement) -> Option<TableReference> {
    fn of_ast(ast: &Ast) -> Option<TableReference> {
        match ast {
            Ast::Insert(Insert { table: TableObject::TableName(name), .. }) => relation_reference(name).ok(),
            Ast::Explain { statement, .. } | Ast::Prepare { statement, .. } => of_ast(statement),
            _ => None,
        }
    }
    match statement {
        PlannerStatement::Statement(ast) => of_ast(ast),
        PlannerStatement::Explain(explain) => insert_target(&explain.statement),
        _ => None,
    }
}

/// Name of the prepared statement that an `EXECUTE` runs. Returns `None` for other statements.
pub fn executed_statement(statement: &PlannerStatement) -> Option<String> {
    match statement {
        PlannerStatement::Statement(ast) => match ast.as_ref() {
            Ast::Execute { name: Some(name), .. } => single_name(name).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the function of sequences that the query of a view calls.
pub fn sequence_function_of_query(sql: &str) -> Option<&'static str> {
    match parse(sql).ok()?.as_slice() {
        [Statement::Planned { statement, .. }] => sequence_function(statement),
        _ => None,
    }
}

/// Returns the function of sequences that a statement calls.
pub fn sequence_function(statement: &PlannerStatement) -> Option<&'static str> {
    match statement {
        PlannerStatement::Statement(ast) => sequence_function_in(ast.as_ref()),
        PlannerStatement::Explain(explain) => sequence_function(&explain.statement),
        _ => None,
    }
}

/// Returns the function of sequences that a part of a statement calls.
pub fn sequence_function_in(part: &impl Visit) -> Option<&'static str> {
    let found = visit_expressions(part, |expression| {
        let Expr::Function(Function { name, .. }) = expression else { return ControlFlow::Continue(()) };
        let name = name.0.last().and_then(ObjectNamePart::as_ident).map(normalize);
        match SEQUENCE_FUNCTIONS.into_iter().find(|function| name.as_deref() == Some(function)) {
            Some(function) => ControlFlow::Break(function),
            None => ControlFlow::Continue(()),
        }
    });
    found.break_value()
}

/// Returns a query in which the names of relations have a schema, but no longer the name of their database:
/// `SELECT a.t.x FROM a.t` becomes `SELECT public.t.x FROM public.t`.
///
/// # Errors
/// If the text is not a statement.
pub fn without_database(sql: &str, database: &str) -> Result<String> {
    let Some(Statement::Planned { statement, .. }) = parse(sql)?.pop() else { return Ok(sql.to_owned()) };
    let PlannerStatement::Statement(ast) = statement.as_ref() else { return Ok(sql.to_owned()) };
    let mut ast = ast.clone();
    let _: ControlFlow<()> = VisitMut::visit(&mut ast, &mut Remover { database });
    Ok(ast.to_string())
}

struct Remover<'a> {
    database: &'a str,
}

impl Remover<'_> {
    /// Removes the name of the database, if it is the first of `parts`. The name of a schema takes its place in a name
    /// with `schema_parts` parts.
    fn remove(&self, parts: &mut Vec<Ident>, schema_parts: usize) {
        if parts.first().map(normalize).as_deref() != Some(self.database) {
            return;
        }
        match parts.len().cmp(&schema_parts) {
            Ordering::Less => {}
            Ordering::Equal => parts[0] = Ident::new(PUBLIC),
            Ordering::Greater => drop(parts.remove(0)),
        }
    }

    fn remove_from_name(&self, name: &mut ObjectName) {
        let parts: Option<Vec<Ident>> = name.0.iter().map(|part| part.as_ident().cloned()).collect();
        if let Some(mut parts) = parts {
            self.remove(&mut parts, 2);
            name.0 = parts.into_iter().map(ObjectNamePart::Identifier).collect();
        }
    }
}

impl VisitorMut for Remover<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        self.remove_from_name(relation);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expression {
            self.remove(parts, 3);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item {
                self.remove_from_name(name);
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn one(sql: &str) -> PlannerStatement {
        match parse(sql).unwrap().pop() {
            Some(Statement::Planned { statement, .. }) => statement.as_ref().clone(),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn names_lose_their_database() {
        let sql =
            "WITH a AS (SELECT a.t.x, a.s.t.*, a.t.* FROM a.t JOIN A.s.t ON (SELECT a.y FROM b.t)) SELECT a.x FROM a";
        let expected = "WITH a AS (SELECT public.t.x, s.t.*, public.t.* FROM public.t JOIN s.t ON \
                        (SELECT a.y FROM b.t)) SELECT a.x FROM a";
        assert_eq!(without_database(sql, "a").unwrap(), expected);
    }

    #[test]
    fn targets_and_calls_are_found() {
        let target = |sql: &str| insert_target(&one(sql)).map(|table| table.to_string());
        assert_eq!(target("EXPLAIN INSERT INTO a.s.t SELECT 1").as_deref(), Some("a.s.t"));
        assert_eq!(target("PREPARE p AS INSERT INTO a.t VALUES ($1)").as_deref(), Some("a.t"));
        assert_eq!(target("SELECT * FROM a.t"), None);
        assert_eq!(sequence_function(&one("INSERT INTO t SELECT x FROM y WHERE NextVal('q') > 1")), Some("nextval"));
        assert_eq!(sequence_function(&one("INSERT INTO t VALUES ('nextval')")), None);
    }
}
