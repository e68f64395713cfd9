//! Statements that change rows in `WITH`, such as `WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d`.
//!
//! Each such statement becomes a separate [`Mutation`], together with the preceding queries of the `WITH`. The rest of
//! the statement reads the returned rows from a relation that the caller provides:
//!
//! ```text
//!   WITH d AS (SELECT * FROM "taut with 0") SELECT * FROM d
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_common::TableReference;
use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::resolve::resolve_table_references;
use datafusion_sql::sqlparser::ast::{
    Cte, Expr, Query, SelectItem, Statement as Ast, TableFactor, Visit, Visitor, WildcardAdditionalOptions, With,
    visit_expressions,
};

use super::{Mutation, mutation_after_with};
use crate::error::{Result, SqlError};
use crate::identifiers::normalize;
use crate::syntax::{select, table, without_joins};

/// Functions whose results differ from call to call.
const VOLATILE: [&str; 8] =
    ["clock_timestamp", "currval", "gen_random_uuid", "lastval", "nextval", "random", "setval", "uuid"];

/// A statement with statements in `WITH` that change rows.
#[derive(Clone, Debug)]
pub struct ModifyingWith {
    /// The whole statement as parsed.
    pub statement: Arc<PlannerStatement>,
    /// The statements in `WITH` that run once, in order.
    pub parts: Vec<WithPart>,
    /// The statement after `WITH`.
    pub main: PartStatement,
}

/// A statement in `WITH` that runs once: one that changes rows, or a query with volatile functions.
#[derive(Clone, Debug)]
pub struct WithPart {
    /// Name of the statement in `WITH`.
    pub name: String,
    /// Name of the relation with the rows that the statement returns, in the statements after it.
    pub relation: String,
    /// The statement.
    pub statement: PartStatement,
}

/// A part of a statement with statements in `WITH` that change rows.
#[derive(Clone, Debug)]
pub enum PartStatement {
    /// A query.
    Query(Arc<PlannerStatement>),
    /// A statement that changes rows.
    Mutation(Arc<Mutation>),
}

impl ModifyingWith {
    /// Whether a statement changes rows in its `WITH`.
    pub(crate) fn is_modifying_with(ast: &Ast) -> bool {
        matches!(ast, Ast::Query(query) if query.with.iter().any(|with| with.cte_tables.iter().any(changes_rows)))
    }

    /// Converts a statement that changes rows in its `WITH`. `None` for other statements.
    ///
    /// # Errors
    /// If one of its parts is not supported, or reads a part that returns no rows.
    pub(crate) fn from_ast(ast: &Ast) -> Result<Option<Self>> {
        let Ast::Query(query) = ast else { return Ok(None) };
        let Some(with) = query.with.as_ref().filter(|with| with.cte_tables.iter().any(changes_rows)) else {
            return Ok(None);
        };
        let mut parts: Vec<WithPart> = Vec::new();
        let mut without_rows: Vec<String> = Vec::new();
        let mut visible = With { cte_tables: Vec::new(), ..with.clone() };
        for cte in &with.cte_tables {
            check_references(&cte.query, &without_rows)?;
            let mut cte = cte.clone();
            let name = normalize(&cte.alias.name);
            if changes_rows(&cte) {
                let mutation = mutation(cte.query.as_ref().clone(), &visible)?;
                let relation = format!("taut with {}", parts.len());
                let returns_rows = mutation.returning.is_some();
                cte.query = all_rows(&relation);
                let statement = PartStatement::Mutation(Arc::new(mutation));
                parts.push(WithPart { name: name.clone(), relation, statement });
                if !returns_rows {
                    without_rows.push(name);
                    continue;
                }
            } else if is_volatile(&cte.query) && !with.recursive {
                let relation = format!("taut with {}", parts.len());
                let query = std::mem::replace(&mut cte.query, all_rows(&relation));
                parts.push(WithPart { name, relation, statement: query_part(*query, &visible) });
            }
            visible.cte_tables.push(cte);
        }
        let mut main = query.as_ref().clone();
        main.with = None;
        check_references(&main, &without_rows)?;
        let main = if mutation_after_with(&main).is_some() {
            PartStatement::Mutation(Arc::new(mutation(main, &visible)?))
        } else {
            query_part(main, &visible)
        };
        let statement = Arc::new(PlannerStatement::Statement(Box::new(ast.clone())));
        Ok(Some(Self { statement, parts, main }))
    }

    /// The parts that change rows.
    pub fn mutations(&self) -> impl Iterator<Item = &Mutation> {
        let parts = self.parts.iter().map(|part| &part.statement).chain([&self.main]);
        parts.filter_map(|part| match part {
            PartStatement::Mutation(mutation) => Some(mutation.as_ref()),
            PartStatement::Query(_) => None,
        })
    }

    /// Tables that the statement reads. Changed tables are not included.
    pub fn read_tables(&self) -> Vec<TableReference> {
        let changed: Vec<&TableReference> = self.mutations().map(|mutation| &mutation.table).collect();
        let (tables, _) = resolve_table_references(&self.statement, true).unwrap_or_default();
        tables.into_iter().filter(|table| !changed.contains(&table)).collect()
    }
}

/// Returns an error if a statement changes rows in a `WITH` that is not at the top level.
pub(crate) fn check_nested_with(statement: &PlannerStatement) -> Result<()> {
    let ast = match statement {
        PlannerStatement::Statement(ast) => ast,
        PlannerStatement::Explain(explain) => return check_nested_with(&explain.statement),
        _ => return Ok(()),
    };
    match ast.visit(&mut NestedFinder { allowed: whole_with(ast) }) {
        ControlFlow::Break(name) => Err(SqlError::NestedModifyingWith { name }),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The top-level `WITH` of a statement, or of the statement in a `PREPARE`.
fn whole_with(ast: &Ast) -> Option<&With> {
    match ast {
        Ast::Query(query) => query.with.as_ref(),
        Ast::Prepare { statement, .. } => whole_with(statement),
        _ => None,
    }
}

/// Visitor that stops at a `WITH`, other than the allowed one, in which a statement changes rows.
struct NestedFinder<'a> {
    allowed: Option<&'a With>,
}

impl Visitor for NestedFinder<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        if self.allowed.is_some_and(|allowed| std::ptr::eq(allowed, with)) {
            return ControlFlow::Continue(());
        }
        match with.cte_tables.iter().find(|cte| changes_rows(cte)) {
            Some(cte) => ControlFlow::Break(normalize(&cte.alias.name)),
            None => ControlFlow::Continue(()),
        }
    }
}

fn changes_rows(cte: &Cte) -> bool {
    mutation_after_with(&cte.query).is_some()
}

/// Whether a query calls a function whose results differ from call to call.
fn is_volatile(query: &Query) -> bool {
    let is_call = |part: &Expr| match part {
        Expr::Function(function) => VOLATILE.iter().any(|name| function.name.to_string().eq_ignore_ascii_case(name)),
        _ => false,
    };
    visit_expressions(query, |part| if is_call(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        .is_break()
}

/// Converts a query to a part. Adds the preceding queries of the outer `WITH`, `visible`, to it.
fn query_part(query: Query, visible: &With) -> PartStatement {
    let query = Box::new(with_visible(query, visible));
    PartStatement::Query(Arc::new(PlannerStatement::Statement(Box::new(Ast::Query(query)))))
}

/// Converts a statement to a mutation. Adds the preceding queries of the outer `WITH`, `visible`, to its own ones.
fn mutation(query: Query, visible: &With) -> Result<Mutation> {
    let query = with_visible(query, visible);
    match query.with {
        Some(_) => Mutation::from_ast(Ast::Query(Box::new(query))),
        None => match mutation_after_with(&query) {
            Some(ast) => Mutation::from_ast(ast.clone()),
            None => Mutation::from_ast(Ast::Query(Box::new(query))),
        },
    }
}

/// Adds the preceding queries of the outer `WITH`, `visible`, to the `WITH` of a query. Their names differ, because
/// desugaring renames an inner query that has the name of an outer one.
fn with_visible(mut query: Query, visible: &With) -> Query {
    let mut with = visible.clone();
    if let Some(own) = query.with.take() {
        with.recursive |= own.recursive;
        with.cte_tables.extend(own.cte_tables);
    }
    query.with = Some(with).filter(|with| !with.cte_tables.is_empty());
    query
}

/// `SELECT * FROM relation`.
fn all_rows(relation: &str) -> Box<Query> {
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    select(vec![all], vec![without_joins(table(relation, relation))], None)
}

/// Returns an error if a query reads a statement in `WITH` that returns no rows.
fn check_references(query: &Query, without_rows: &[String]) -> Result<()> {
    struct ReadFinder<'a> {
        names: &'a [String],
    }
    impl Visitor for ReadFinder<'_> {
        type Break = String;

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
            let TableFactor::Table { name, .. } = factor else { return ControlFlow::Continue(()) };
            let name = match name.0.as_slice() {
                [part] => part.as_ident().map(normalize),
                _ => None,
            };
            match name.filter(|name| self.names.contains(name)) {
                Some(name) => ControlFlow::Break(name),
                None => ControlFlow::Continue(()),
            }
        }
    }
    match query.visit(&mut ReadFinder { names: without_rows }) {
        ControlFlow::Break(name) => Err(SqlError::NoReturning { name }),
        ControlFlow::Continue(()) => Ok(()),
    }
}
