//! From a statement to a physical plan: DataFusion's configuration, planning rules, tables and files as DataFusion sees
//! them, values of parameters, and cached plans.

pub mod assignment_cast;
pub mod cache;
pub mod copied_columns;
mod derived_keys;
pub mod engine;
pub mod files;
pub mod functions;
pub mod insert_columns;
mod order_all;
pub mod parameters;
pub mod row_check;
pub mod rules;
pub mod table;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::{Column, DataFusionError, Result, SchemaError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use taut_sql::{FunctionKind, QualifiedName};

use self::functions::PlannedFunction;
use crate::error::QueryError;

/// Maximum number of aliases that are replaced in a statement.
const ALIASES_MAX: usize = 64;

/// Resolves names without a schema. An extension of the configuration of a statement.
pub struct NameResolver(pub Arc<dyn RelationNames>);

/// Looks up names of relations and functions.
#[async_trait]
pub trait RelationNames: Send + Sync {
    /// Returns the table or view with this name. `None` for files, and for relations that the statement itself defines.
    fn relation(&self, name: &str) -> Option<QualifiedName>;

    /// Whether a function in SQL exists.
    fn has_functions(&self) -> bool;

    /// Returns the function in SQL with this name, with its schema and database if it has several parts. `None` if none
    /// exists.
    ///
    /// # Errors
    /// If the body of the function cannot be planned.
    async fn function(&self, name: &[String]) -> Result<Option<PlannedFunction>>;
}

/// Plans a statement. A name refers to a column of a table, or to an alias of the select list if no such column exists.
/// The rows of a `WITH` query are computed once if PostgreSQL would: see [`rules::with_materialized_rows`].
///
/// # Errors
/// If DataFusion cannot plan the statement.
pub async fn statement_to_plan(state: &SessionState, statement: &Statement) -> Result<LogicalPlan> {
    let plan = rules::with_materialized_rows(unmaterialized_plan(state, statement).await?, statement)?;
    let names = state.config().get_extension::<NameResolver>();
    // A view may call functions even if the statement itself does not.
    if names.is_some_and(|names| names.0.has_functions()) { functions::with_bodies(plan) } else { Ok(plan) }
}

/// Plans a statement like [`statement_to_plan`], but computes a `WITH` query once for each reference to it, and keeps
/// calls of functions in SQL. The place of a `WITH` query in memory identifies it, so nothing may change the plan
/// before [`rules::with_materialized_rows`].
///
/// # Errors
/// If DataFusion cannot plan the statement.
pub async fn unmaterialized_plan(state: &SessionState, statement: &Statement) -> Result<LogicalPlan> {
    // The planner ignores these clauses.
    let checked = taut_sql::check_clauses(statement, |name| {
        if state.aggregate_functions().contains_key(name) {
            None
        } else if state.window_functions().contains_key(name) {
            Some(FunctionKind::Window)
        } else {
            (name == "unnest" || state.scalar_functions().contains_key(name)).then_some(FunctionKind::Scalar)
        }
    });
    checked.map_err(|error| DataFusionError::External(Box::new(QueryError::from(error))))?;
    match functions::with_functions(state, statement).await? {
        Some((state, statement)) => plan_of_relations(&state, &statement).await,
        None => plan_of_relations(state, statement).await,
    }
}

/// Plans a statement in which relations may have the same name.
async fn plan_of_relations(state: &SessionState, statement: &Statement) -> Result<LogicalPlan> {
    let names = state.config().get_extension::<NameResolver>();
    let resolve = |name: &str| names.as_ref().and_then(|names| names.0.relation(name));
    let distinct = taut_sql::with_distinct_relations(statement, &resolve);
    let distinct = distinct.map_err(|error| DataFusionError::External(Box::new(QueryError::from(error))))?;
    let statement = distinct.as_ref().unwrap_or(statement);
    match taut_sql::mark_order_by_all(statement) {
        Some(marked) => order_all::order_by_all_columns(plan_with_any_names(state, &marked).await?),
        None => plan_with_any_names(state, statement).await,
    }
}

/// Plans a statement in which a column may have the name of a column of a wildcard, as in `SELECT a, * FROM t`.
async fn plan_with_any_names(state: &SessionState, statement: &Statement) -> Result<LogicalPlan> {
    let planned = checked_plan(state, statement).await;
    if planned.as_ref().is_err_and(has_equal_names)
        && let Some(marked) = taut_sql::mark_repeated_names(statement)
        && let Ok(plan) = Box::pin(checked_plan(state, &marked)).await
    {
        return with_numbered_names(plan, &marked);
    }
    with_numbered_names(planned?, statement)
}

/// Whether the planner has refused two columns of one name.
fn has_equal_names(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => matches!(
            error.as_ref(),
            SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
                | SchemaError::AmbiguousReference { .. }
        ),
        DataFusionError::Plan(message) => message.starts_with("Projections require unique expression names"),
        _ => false,
    }
}

/// Gives the columns of a plan their names without marks, and replaces marked wildcards by columns. The second column
/// of a name gets a number, as in `a, a_1`.
fn with_numbered_names(plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
    let planned = plan.schema().columns();
    let of_relation = |relation: Option<&str>| {
        let is_of = move |column: &&Column| {
            column.relation.as_ref().is_some_and(|of| relation.is_none_or(|relation| of.table() == relation))
        };
        planned.iter().filter(is_of).cloned().collect::<Vec<_>>()
    };
    let columns: Vec<Column> = planned
        .iter()
        .flat_map(|column| match taut_sql::repeated_wildcard(&column.name) {
            Some(relation) => of_relation(relation),
            None => vec![column.clone()],
        })
        .collect();
    let unmarked = |column: &Column| {
        let name = taut_sql::unmarked_name(&column.name).or_else(|| derived_name(&column.name, &columns, statement));
        name.map(ToOwned::to_owned)
    };
    let unmarked: Vec<Option<String>> = columns.iter().map(unmarked).collect();
    if unmarked.iter().all(Option::is_none) && columns == planned {
        return Ok(plan);
    }
    let named = unmarked.into_iter().zip(&columns);
    let names: Vec<String> = named.map(|(name, column)| name.unwrap_or_else(|| column.name.clone())).collect();
    let mut used: Vec<String> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let mut numbered = (1..).map(|number| format!("{name}_{number}"));
        let is_free = |other: &String| !names.contains(other) && !used.contains(other);
        let new_name = match names[..index].contains(name) {
            true => numbered.find(is_free).unwrap_or_else(|| name.clone()),
            false => name.clone(),
        };
        used.push(new_name);
    }
    let renamed = columns.into_iter().zip(used).map(|(column, name)| Expr::Column(column).alias(name));
    LogicalPlanBuilder::from(plan).project(renamed.collect::<Vec<_>>())?.build()
}

/// Returns the original name of a column that DataFusion has named `a:1`, because a subquery has two columns `a`.
/// Returns `None` for other names, also for those that the statement contains.
fn derived_name<'a>(name: &'a str, columns: &[Column], statement: &Statement) -> Option<&'a str> {
    let (original, number) = name.rsplit_once(':')?;
    number.parse::<usize>().ok()?;
    let is_repeated = columns.iter().any(|column| column.name == original);
    (is_repeated && !statement.to_string().contains(name)).then_some(original)
}

/// Plans a statement. Refuses `* REPLACE` of columns that do not exist.
async fn checked_plan(state: &SessionState, statement: &Statement) -> Result<LogicalPlan> {
    let (planned, plan) = plan_as_written(state, statement).await?;
    if let Some(replaced) = taut_sql::replaced_columns(&planned)
        && let Err(error) = Box::pin(state.statement_to_plan(replaced.statement)).await
        && missing_field(&error).is_some_and(|field| replaced.names.contains(&field.name))
    {
        return Err(error);
    }
    Ok(plan)
}

/// Plans a statement. Also returns the statement that DataFusion accepted, in which names may be replaced.
async fn plan_as_written<'a>(
    state: &SessionState,
    statement: &'a Statement,
) -> Result<(Cow<'a, Statement>, LogicalPlan)> {
    if let Some(by_columns) = taut_sql::order_by_columns(statement)
        && let Ok(plan) = Box::pin(state.statement_to_plan(by_columns.clone())).await
    {
        return Ok((Cow::Owned(by_columns), plan));
    }
    let planned = Box::pin(state.statement_to_plan(statement.clone())).await;
    let planned = planned.map(|plan| (Cow::Borrowed(statement), plan));
    let Some(mut unknown) = planned.as_ref().err().and_then(unknown_column) else { return planned };
    let mut replaced = Cow::Borrowed(statement);
    for _ in 0..ALIASES_MAX {
        let Some(next) = taut_sql::replace_alias(&replaced, &unknown) else { break };
        match Box::pin(state.statement_to_plan(next.clone())).await {
            Ok(plan) => return Ok((Cow::Owned(next), plan)),
            // The error of the statement as it was written is reported.
            Err(error) => match unknown_column(&error) {
                Some(name) => (replaced, unknown) = (Cow::Owned(next), name),
                None => break,
            },
        }
    }
    planned
}

/// The unqualified column that the planner did not find.
fn unknown_column(error: &DataFusionError) -> Option<String> {
    missing_field(error).filter(|field| field.relation.is_none()).map(|field| field.name.clone())
}

/// The column that the planner did not find.
fn missing_field(error: &DataFusionError) -> Option<&Column> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, .. } => Some(field),
            _ => None,
        },
        _ => None,
    }
}
