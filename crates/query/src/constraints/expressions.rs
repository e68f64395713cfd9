//! Expressions that the catalog stores as text: check conditions, defaults and generated columns. They are planned
//! without the settings of a session, so that they mean the same for every user.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ExprSchemable, Volatility};
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyContext};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::prelude::SessionConfig;
use taut_sql::{has_subquery, parse_expression};
use taut_types::{ColumnIndex, LogicalType, Schema};

use super::sequence_names::qualified_default;
use crate::error::{GeneratedColumnError, IndexClause, IndexError, QueryError, Result};
use crate::expressions::{
    coerce_operands, guarded, in_zone, session_state, session_zone, set_parser_options, statement_cast,
    with_checked_arithmetic, with_statement_casts,
};

/// Session state for planning only. No query runs in it.
static STATE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut config = SessionConfig::new();
    set_parser_options(config.options_mut());
    session_state().with_config(config).build()
});

/// Compiles a condition over the columns of a table.
///
/// # Errors
/// If the text is not a condition, or its result does not depend on the row alone.
pub fn compile_condition(sql: &str, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = DFSchema::try_from(schema.arrow())?;
    let expression = plan_expression(sql, &schema)?;
    if expression.get_type(&schema)? != DataType::Boolean {
        return Err(QueryError::unsupported(format!("CHECK ({sql})"), "a condition is true, false or null"));
    }
    check_single_row(&expression, "CHECK", sql)?;
    if !is_immutable(&expression)? {
        return Err(QueryError::unsupported(
            format!("CHECK ({sql})"),
            "a condition gives the same whenever it is evaluated",
        ));
    }
    compile(expression, &schema)
}

/// Compiles the expression of a generated column over the other columns of its table, cast to the type of the column.
///
/// # Errors
/// If the text is not an expression over other columns that are not generated, or its type does not fit the column.
/// Also if the result does not depend on these columns alone.
pub fn compile_generated(
    sql: &str,
    column: ColumnIndex,
    schema: &Schema,
    is_generated: impl Fn(ColumnIndex) -> bool,
) -> Result<Arc<dyn PhysicalExpr>> {
    let (target, planned) = (schema.column(column), DFSchema::try_from(schema.arrow())?);
    let expression = plan_expression(sql, &planned)?;
    check_single_row(&expression, "GENERATED ALWAYS AS", sql)?;
    if !is_immutable(&expression)? {
        return Err(QueryError::Generated(GeneratedColumnError::NotImmutable));
    }
    for used in expression.column_refs() {
        let index = ColumnIndex::from(planned.index_of_column(used)?);
        if index == column || is_generated(index) {
            return Err(QueryError::Generated(GeneratedColumnError::UsesGenerated { column: used.name.clone() }));
        }
    }
    let expression = with_statement_casts(expression, &planned)?;
    let (from, arrow) = (expression.get_type(&planned)?, target.logical_type.arrow());
    let is_number_to_time = from.is_numeric() && arrow.is_temporal();
    if is_number_to_time || !datafusion::arrow::compute::can_cast_types(&from, &arrow) {
        return Err(QueryError::Generated(GeneratedColumnError::Type {
            column: target.name.clone(),
            logical_type: target.logical_type.sql_name(),
            expression: LogicalType::from_arrow(&from).map_or_else(|| from.to_string(), |from| from.sql_name()),
        }));
    }
    compile(statement_cast(expression, &from, arrow), &planned)
}

/// Plans an expression or the predicate of an index over the columns of its table. The result is simplified like the
/// conditions of queries.
///
/// # Errors
/// If the text is not an expression over single rows, or its result does not depend on the row alone.
pub fn plan_index_clause(sql: &str, schema: &DFSchema, clause: IndexClause) -> Result<Expr> {
    // Subqueries are found before they are planned, because the planner needs tables for them.
    if has_subquery(&parse_expression(sql)?) {
        return Err(IndexError::Subquery { clause }.into());
    }
    let expression = plan_expression(sql, schema)?;
    match unsuitable_part(&expression)? {
        Some(Unsuitable::Subquery) => return Err(IndexError::Subquery { clause }.into()),
        Some(Unsuitable::Aggregate) => return Err(IndexError::Aggregate { clause }.into()),
        Some(Unsuitable::Window) => return Err(IndexError::Window { clause }.into()),
        Some(Unsuitable::Parameter) => return Err(IndexError::Parameter { clause }.into()),
        None => {}
    }
    if !is_immutable(&expression)? {
        return Err(IndexError::NotImmutable { clause }.into());
    }
    let expression = with_statement_casts(expression, schema)?;
    let found = expression.get_type(schema)?;
    if clause == IndexClause::Predicate && found != DataType::Boolean {
        let found = LogicalType::from_arrow(&found).map_or_else(|| found.to_string(), |found| found.sql_name());
        return Err(IndexError::NotBoolean { found: found.to_lowercase() }.into());
    }
    simplified(expression, schema)
}

/// Compiles an expression over the columns of a table.
fn compile(expression: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(STATE.create_physical_expr(simplified(expression, schema)?, schema)?)
}

/// Simplifies an expression over the columns of a table.
fn simplified(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let coerced = expression.transform_up(|expression| coerce_operands(expression, schema))?.data;
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(STATE.config_options()))
        .build();
    let simplifier = ExprSimplifier::new(context);
    let checked = with_checked_arithmetic(simplifier.coerce(coerced, schema)?, schema)?;
    Ok(simplifier.simplify(guarded(checked, schema)?)?)
}

/// Whether the functions of an expression always return the same results for the same arguments.
fn is_immutable(expression: &Expr) -> Result<bool> {
    let changes = |part: &Expr| match part {
        Expr::ScalarFunction(function) => Ok(function.func.signature().volatility != Volatility::Immutable),
        _ => Ok(false),
    };
    Ok(!expression.exists(changes)?)
}

/// Plans the default of a column, cast to the type of the column.
///
/// # Errors
/// If the text is not an expression, or its type does not fit the column.
pub fn default_expression(sql: &str, logical_type: LogicalType) -> Result<Expr> {
    let no_columns = DFSchema::empty();
    let expression = plan_expression(&qualified_default(sql), &no_columns)?;
    check_single_row(&expression, "DEFAULT", sql)?;
    let expression = with_statement_casts(expression, &no_columns)?;
    let arrow = logical_type.arrow();
    let from = expression.get_type(&no_columns)?;
    let is_number_to_time = from.is_numeric() && arrow.is_temporal();
    if is_number_to_time || !datafusion::arrow::compute::can_cast_types(&from, &arrow) {
        let allowed = format!("the column is {}", logical_type.sql_name());
        return Err(QueryError::unsupported(format!("DEFAULT {sql}"), allowed));
    }
    // A plain cast would silently drop the fraction of a number, even during planning, where constants are computed.
    with_checked_arithmetic(statement_cast(expression, &from, arrow), &no_columns).map_err(QueryError::from)
}

/// Evaluates the defaults of one statement. Functions of time return the same value for all columns and rows.
pub struct DefaultValues {
    simplifier: ExprSimplifier,
    settings: Arc<ConfigOptions>,
}

impl DefaultValues {
    /// Creates an evaluator with the current time.
    pub fn at_current_time(settings: &Arc<ConfigOptions>) -> Self {
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(DFSchema::empty()))
            .with_config_options(Arc::clone(settings))
            .with_current_time();
        Self { simplifier: ExprSimplifier::new(context.build()), settings: Arc::clone(settings) }
    }

    /// Evaluates a default for some number of rows.
    ///
    /// # Errors
    /// If the default cannot be evaluated.
    pub fn evaluate(&self, default: Expr, rows: usize) -> Result<ArrayRef> {
        let no_columns = DFSchema::empty();
        let coerced = self.simplifier.coerce(default, &no_columns)?;
        let zoned = match session_zone(&self.settings) {
            Some(zone) => in_zone(coerced, &no_columns, &zone)?.data,
            None => coerced,
        };
        let checked = with_checked_arithmetic(zoned, &no_columns)?;
        let simple = self.simplifier.simplify(checked)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), vec![], &options);
        let batch = batch.map_err(DataFusionError::from)?;
        let context = PhysicalPlanningContext::default();
        // Sequences of the session are among its settings.
        let execution = ExecutionProps { config_options: Some(Arc::clone(&self.settings)), ..ExecutionProps::new() };
        Ok(create_physical_expr(&simple, &no_columns, &execution, &context)?.evaluate(&batch)?.into_array(rows)?)
    }
}

fn plan_expression(sql: &str, schema: &DFSchema) -> Result<Expr> {
    Ok(STATE.create_logical_expr(sql, schema)?)
}

/// A part of an expression that the catalog does not store.
enum Unsuitable {
    Subquery,
    Aggregate,
    Window,
    Parameter,
}

/// Finds a part that cannot be computed from one row, or a parameter, which would never get a value.
fn unsuitable_part(expression: &Expr) -> Result<Option<Unsuitable>> {
    let mut found = None;
    expression.apply(|part| {
        found = match part {
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
                Some(Unsuitable::Subquery)
            }
            Expr::AggregateFunction(_) => Some(Unsuitable::Aggregate),
            Expr::WindowFunction(_) => Some(Unsuitable::Window),
            Expr::Placeholder(_) => Some(Unsuitable::Parameter),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Refuses parts that cannot be computed from one row, and parameters.
fn check_single_row(expression: &Expr, what: &str, sql: &str) -> Result<()> {
    let refused = match unsuitable_part(expression)? {
        None => return Ok(()),
        Some(Unsuitable::Subquery) => "a subquery",
        Some(Unsuitable::Aggregate) => "an aggregation",
        Some(Unsuitable::Window) => "a window function",
        Some(Unsuitable::Parameter) => "a parameter",
    };
    Err(QueryError::unsupported(format!("{refused} in {what} {sql}"), "operators and functions of one row are"))
}
