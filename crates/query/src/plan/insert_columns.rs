//! Forms of `INSERT` that DataFusion plans differently from PostgreSQL: with fewer values than the table has columns,
//! and with queries that contain `VALUES`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    Analyze, Explain, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, PlanType, Prepare,
    Statement as PlannedStatement, ToStringifiedPlan, lit,
};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    Ident, Insert, ObjectName, Query, SetExpr, Statement as Ast, TableObject, Visit, Visitor,
};
use taut_sql::{SqlError, column_count, single_name, values_error};
use taut_types::ColumnIndex;

use super::statement_to_plan;
use crate::error::QueryError;
use crate::exec::scan::TautTable;

/// Adds the list of columns to an `INSERT` that has fewer values than its table has columns. As in PostgreSQL, the
/// values fill the first columns. Returns `None` for all other statements, which are planned unchanged.
///
/// # Errors
/// If the statement has more values than columns to fill, or fewer than it names, or its rows differ in length.
pub async fn with_first_columns(
    state: &SessionState,
    statement: &PlannerStatement,
) -> Result<Option<PlannerStatement>, QueryError> {
    let mut completed = statement.clone();
    let Some(insert) = insert_of(&mut completed) else { return Ok(None) };
    let (TableObject::TableName(name), Some(source)) = (&insert.table, &insert.source) else { return Ok(None) };
    let table = object_name_to_table_reference(name.clone(), true)?;
    let provider = state.schema_for_ref(table.clone())?.table(table.table()).await?;
    let Some(schema) = provider.map(|provider| provider.schema()) else { return Ok(None) };
    let values = match column_count(source)? {
        Some(values) => values,
        None => {
            let query = PlannerStatement::Statement(Box::new(Ast::Query(source.clone())));
            statement_to_plan(state, &query).await?.schema().fields().len()
        }
    };
    check_width(insert, &table, &schema, values)?;
    if !insert.columns.is_empty() || values == schema.fields().len() {
        return Ok(None);
    }
    let first = schema.fields().iter().take(values);
    insert.columns = first.map(|field| ObjectName::from(Ident::with_quote('"', field.name()))).collect();
    Ok(Some(completed))
}

/// Checks that an `INSERT` gives no value to a column that is `GENERATED ALWAYS`.
///
/// # Errors
/// If the `INSERT` gives such a value, or cannot be planned.
pub async fn check_given_values(state: &SessionState, statement: &PlannerStatement) -> Result<(), QueryError> {
    let Some(Ast::Insert(Insert { table: TableObject::TableName(name), columns, source: Some(source), .. })) =
        insert_ast(statement)
    else {
        return Ok(());
    };
    let reference = object_name_to_table_reference(name.clone(), true)?;
    let provider = state.schema_for_ref(reference.clone())?.table(reference.table()).await?;
    let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<TautTable>()) else {
        return Ok(());
    };
    let table = table.stored();
    // Pairs each column with its position among the columns that the statement sees.
    let visible = table.visible_columns().enumerate();
    let mut generated = visible.filter(|(_, column)| table.constraints.is_always_generated(*column)).peekable();
    if generated.peek().is_none() {
        return Ok(());
    }
    let width = match column_count(source)? {
        _ if !columns.is_empty() => 0,
        Some(width) => width,
        None => {
            let query = PlannerStatement::Statement(Box::new(Ast::Query(source.clone())));
            statement_to_plan(state, &query).await?.schema().fields().len()
        }
    };
    let named: Vec<String> = columns.iter().filter_map(|column| single_name(column).ok()).collect();
    let is_given = |(position, column): &(usize, ColumnIndex)| {
        *position < width || named.contains(&table.schema.column(*column).name)
    };
    match generated.find(is_given) {
        Some((_, column)) => {
            let is_identity = !table.constraints.generated.contains_key(&column);
            let column = table.schema.column(column).name.clone();
            Err(SqlError::GeneratedAlways { column, is_update: false, is_identity }.into())
        }
        None => Ok(()),
    }
}

/// Whether a statement is an `INSERT` of a query with a `VALUES` list somewhere inside, or an `EXPLAIN` or `PREPARE` of
/// one. False for `INSERT ... VALUES`.
pub fn inserts_query_of_values(statement: &PlannerStatement) -> bool {
    struct ListFinder;
    impl Visitor for ListFinder {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if has_values_list(&query.body) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    fn inside(ast: &Ast) -> Option<&Insert> {
        match ast {
            Ast::Insert(insert) => Some(insert),
            Ast::Explain { statement, .. } | Ast::Prepare { statement, .. } => inside(statement),
            _ => None,
        }
    }
    let ast = match statement {
        PlannerStatement::Statement(ast) => ast,
        PlannerStatement::Explain(explain) => return inserts_query_of_values(&explain.statement),
        _ => return false,
    };
    let Some(Insert { source: Some(source), .. }) = inside(ast) else { return false };
    !matches!(source.body.as_ref(), SetExpr::Values(_)) && source.visit(&mut ListFinder).is_break()
}

/// Plans an `INSERT` of a query with a `VALUES` list somewhere inside, such as `INSERT INTO t SELECT v FROM (VALUES
/// (1.5)) AS x(v)`. DataFusion's planner treats every list of values in an `INSERT` as rows of the table. It casts the
/// values to the types of the table's columns before the query uses them. Returns `None` if the table or a named column
/// does not exist, or if a column is named twice.
///
/// # Errors
/// If the query cannot be planned, or has another number of columns than the statement fills.
pub async fn insert_of_listed_values(
    state: &SessionState,
    statement: &PlannerStatement,
) -> Result<Option<LogicalPlan>, QueryError> {
    let mut query = statement.clone();
    let Some(inner) = insert_ast_of(&mut query) else { return Ok(None) };
    let Ast::Insert(insert) = inner.clone() else { return Ok(None) };
    let (TableObject::TableName(name), Some(source)) = (&insert.table, &insert.source) else { return Ok(None) };
    let table = object_name_to_table_reference(name.clone(), true)?;
    let Some(provider) = state.schema_for_ref(table.clone())?.table(table.table()).await? else { return Ok(None) };
    let schema = provider.schema();
    // The query is planned instead of the `INSERT`, so that it keeps the parameters of `PREPARE`.
    *inner = Ast::Query(source.clone());
    let planned = statement_to_plan(state, &query).await?;
    let rows = query_of(&planned);
    let width = rows.schema().fields().len();
    check_width(&insert, &table, &schema, width)?;
    let names: Vec<String> = match insert.columns.as_slice() {
        [] => schema.fields().iter().take(width).map(|field| field.name().clone()).collect(),
        columns => columns.iter().filter_map(|column| single_name(column).ok()).collect(),
    };
    let is_known = |name: &String| schema.column_with_name(name).is_some();
    if names.len() != width || !names.iter().all(is_known) || names.iter().collect::<HashSet<_>>().len() != width {
        return Ok(None);
    }
    let value = |field: &Arc<Field>| {
        let value = match names.iter().position(|name| name == field.name()) {
            Some(index) => Expr::Column(Column::from(rows.schema().qualified_field(index))),
            None => provider.get_column_default(field.name()).cloned().unwrap_or(lit(ScalarValue::Null)),
        };
        Ok(value.cast_to(field.data_type(), rows.schema())?.alias(field.name()))
    };
    let values = schema.fields().iter().map(value).collect::<Result<Vec<_>>>()?;
    let rows = LogicalPlanBuilder::from(rows.clone()).project(values)?.build()?;
    let target = provider_as_source(Arc::clone(&provider));
    let insert = LogicalPlanBuilder::insert_into(rows, table, target, InsertOp::Append)?.build()?;
    Ok(Some(with_query(planned, insert)))
}

/// Returns the plan of the query of a statement, without `EXPLAIN` and `PREPARE`.
fn query_of(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Explain(Explain { plan: query, .. })
        | LogicalPlan::Analyze(Analyze { input: query, .. })
        | LogicalPlan::Statement(PlannedStatement::Prepare(Prepare { input: query, .. })) => query,
        query => query,
    }
}

/// Replaces the query of a statement.
fn with_query(plan: LogicalPlan, query: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Explain(explain) => {
            let stringified_plans = vec![query.to_stringified(PlanType::InitialLogicalPlan)];
            LogicalPlan::Explain(Explain { plan: Arc::new(query), stringified_plans, ..explain })
        }
        LogicalPlan::Analyze(analyze) => LogicalPlan::Analyze(Analyze { input: Arc::new(query), ..analyze }),
        LogicalPlan::Statement(PlannedStatement::Prepare(prepare)) => {
            LogicalPlan::Statement(PlannedStatement::Prepare(Prepare { input: Arc::new(query), ..prepare }))
        }
        _ => query,
    }
}

/// Whether a query is a `VALUES` list, or a set operation with one. False for a list in a subquery.
fn has_values_list(body: &SetExpr) -> bool {
    match body {
        SetExpr::Values(_) => true,
        SetExpr::SetOperation { left, right, .. } => has_values_list(left) || has_values_list(right),
        _ => false,
    }
}

fn check_width(insert: &Insert, table: &TableReference, schema: &Schema, values: usize) -> Result<(), QueryError> {
    let columns = if insert.columns.is_empty() { schema.fields().len() } else { insert.columns.len() };
    match values > columns || (values < columns && !insert.columns.is_empty()) {
        true => Err(values_error(table.table(), columns, values).into()),
        false => Ok(()),
    }
}

fn insert_of(statement: &mut PlannerStatement) -> Option<&mut Insert> {
    match insert_ast_of(statement)? {
        Ast::Insert(insert) => Some(insert),
        _ => None,
    }
}

/// Returns the `INSERT` of a statement, which may be inside of `EXPLAIN` or `PREPARE`.
fn insert_ast(statement: &PlannerStatement) -> Option<&Ast> {
    fn inside(ast: &Ast) -> Option<&Ast> {
        match ast {
            Ast::Insert(_) => Some(ast),
            Ast::Explain { statement, .. } | Ast::Prepare { statement, .. } => inside(statement),
            _ => None,
        }
    }
    match statement {
        PlannerStatement::Statement(ast) => inside(ast),
        PlannerStatement::Explain(explain) => insert_ast(&explain.statement),
        _ => None,
    }
}

/// Mutable variant of [`insert_ast`].
fn insert_ast_of(statement: &mut PlannerStatement) -> Option<&mut Ast> {
    fn inside(ast: &mut Ast) -> Option<&mut Ast> {
        match ast {
            Ast::Insert(_) => Some(ast),
            Ast::Explain { statement, .. } | Ast::Prepare { statement, .. } => inside(statement),
            _ => None,
        }
    }
    match statement {
        PlannerStatement::Statement(ast) => inside(ast),
        PlannerStatement::Explain(explain) => insert_ast_of(&mut explain.statement),
        _ => None,
    }
}
