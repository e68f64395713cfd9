//! Functions in SQL. When a statement is planned, each call becomes the body of the function, with the arguments in the
//! place of the parameters. So the planner sees the whole expression. An argument is repeated where the body repeats
//! the parameter.
//!
//! ```text
//!   CREATE FUNCTION net(price numeric, tax numeric) RETURNS numeric LANGUAGE SQL AS 'SELECT price / (1 + tax)'
//!
//!   net(p, 0.19)           CAST(CAST(p AS numeric) / (1 + CAST(0.19 AS numeric)) AS numeric)
//! ```
//!
//! A body with `FROM` becomes a scalar subquery. Columns in the arguments become its outer columns, so that no relation
//! of the body captures their names. A function that returns rows becomes a derived table.

mod header;
mod rows;
mod subqueries;
mod types;
mod value;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableFunctionImpl;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError, Result, internal_err};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::{Exists, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, ScalarUDF, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use taut_sql::{FunctionDefinition, FunctionResult, RenamedFunction};

use self::header::{Header, PlannedParameter};
use self::rows::{SqlTableFunction, rows_of};
use self::subqueries::{subquery_of, with_outer_columns_listed};
use self::types::as_type;
use self::value::{SqlFunction, single_value};
use super::rules::{calls_volatile, recompute_schema};
use super::{NameResolver, RelationNames};
use crate::error::{FunctionError, QueryError};

/// A function in SQL whose body is planned.
pub struct PlannedFunction {
    /// The function in expressions. [`with_bodies`] replaces its calls.
    pub value: ScalarUDF,
    /// The function in `FROM`.
    pub rows: Arc<dyn TableFunctionImpl>,
    /// Whether the columns of the rows have names.
    pub has_names: bool,
    /// Whether the value is a subquery.
    pub is_query: bool,
}

/// Returns a function that the planner accepts in calls under a name that is unique in the statement. `plan` is the
/// plan of [`FunctionDefinition::query`].
///
/// # Errors
/// If the types of the body cannot be assigned to those of the result.
pub fn planned_function(
    name: &str,
    shown_name: &str,
    definition: &FunctionDefinition,
    plan: &LogicalPlan,
) -> Result<PlannedFunction> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else {
        return internal_err!("the query of function {shown_name} is not a projection");
    };
    let mut values = expr.iter().map(|value| value.clone().unalias());
    let body = values.next();
    let results = values.by_ref().take(definition.returns.types().len()).map(|value| value.get_type(input.schema()));
    let results: Vec<DataType> = results.collect::<Result<_>>()?;
    let mut defaults = definition.parameters.iter().map(|parameter| match parameter.default {
        Some(_) => values.next(),
        None => None,
    });
    let fields = if definition.parameters.is_empty() { &[][..] } else { input.schema().fields() };
    let parameters = fields.iter().zip(input.schema().columns()).map(|(field, column)| {
        let (data_type, default) = (field.data_type().clone(), defaults.next().flatten());
        let typed = |default: Expr| {
            let from = default.get_type(input.schema())?;
            Ok::<Expr, DataFusionError>(as_type(default, &from, &data_type))
        };
        Ok(PlannedParameter { default: default.map(typed).transpose()?, column, data_type })
    });
    let parameters: Vec<PlannedParameter> = parameters.collect::<Result<_>>()?;
    let header = Header { name: name.to_owned(), shown_name: shown_name.to_owned(), parameters };
    let (Some(Expr::Exists(Exists { subquery: body, .. })), Some(result_type)) = (body, results.first()) else {
        return internal_err!("the body of function {shown_name} is not a query");
    };
    let names: Vec<String> = match &definition.returns {
        FunctionResult::Table(columns) => columns.iter().map(|(name, _)| name.clone()).collect(),
        _ => vec![shown_name.to_owned()],
    };
    let (result, rows) = match &definition.returns {
        FunctionResult::Value(_) => {
            let result = single_value(body, result_type)?;
            if result.exists(|part| subquery_of(part).map_or(Ok(false), |query| calls_volatile(&query.subquery)))? {
                return Err(external(FunctionError::VolatileQuery { name: shown_name.to_owned() }));
            }
            let result = if definition.is_strict { header.strict(result, result_type)? } else { result };
            let row = LogicalPlanBuilder::empty(true).project([result.clone().alias(shown_name)])?;
            (Some(result), row.build()?)
        }
        FunctionResult::Set(_) | FunctionResult::Table(_) => {
            let rows = rows_of(body.subquery.as_ref(), &names, &results)?;
            let rows = match header.has_null_argument().filter(|_| definition.is_strict) {
                Some(has_null) => LogicalPlanBuilder::from(rows).filter(has_null.is_not_true())?.build()?,
                None => rows,
            };
            (None, rows)
        }
    };
    let is_volatile = result.as_ref().is_some_and(Expr::is_volatile);
    let signature = Signature::user_defined(if is_volatile { Volatility::Volatile } else { Volatility::Immutable });
    let parameter_names = header.parameters.iter().map(|parameter| parameter.column.name.clone()).collect();
    let signature = Signature { parameter_names: Some(parameter_names), ..signature };
    let value = SqlFunction { header: header.clone(), result, result_type: result_type.clone(), signature };
    let is_query = value
        .result
        .as_ref()
        .is_some_and(|result| matches!(result.exists(|part| Ok(subquery_of(part).is_some())), Ok(true)));
    let value = ScalarUDF::new_from_impl(value);
    let has_names = matches!(definition.returns, FunctionResult::Table(_));
    Ok(PlannedFunction { value, rows: Arc::new(SqlTableFunction { header, rows }), has_names, is_query })
}

fn external(error: FunctionError) -> DataFusionError {
    DataFusionError::External(Box::new(QueryError::from(error)))
}

/// Registers the functions in SQL that a statement calls under unique names. Returns the state with these functions,
/// and the statement with these names. Returns `None` if it calls none.
///
/// # Errors
/// If the body of a function cannot be planned.
pub async fn with_functions(state: &SessionState, statement: &Statement) -> Result<Option<(SessionState, Statement)>> {
    let Some(names) = state.config().get_extension::<NameResolver>() else { return Ok(None) };
    let names: &dyn RelationNames = names.0.as_ref();
    if !names.has_functions() {
        return Ok(None);
    }
    let (mut state, mut unique_names) = (state.clone(), Vec::new());
    for name in taut_sql::called_functions(statement) {
        if let Some(PlannedFunction { value, rows, has_names, is_query }) = names.function(&name).await? {
            let unique_name = value.name().to_owned();
            state.register_udtf(&unique_name, rows);
            state.register_udf(Arc::new(value))?;
            unique_names.push((name, RenamedFunction { name: unique_name, has_names, is_query }));
        }
    }
    if unique_names.is_empty() {
        return Ok(None);
    }
    let renamed = |name: &[String]| Some(unique_names.iter().find(|(known, _)| known == name)?.1.clone());
    let statement = taut_sql::with_renamed_functions(statement, renamed);
    let statement = statement.map_err(|error| DataFusionError::External(Box::new(QueryError::from(error))))?;
    Ok(Some((state, statement)))
}

/// Replaces the calls of functions in SQL by their bodies.
///
/// # Errors
/// If an argument is volatile and the body does not use it exactly once.
pub fn with_bodies(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| {
        // A call in a node below may have changed the type of a column.
        replaced_calls(with_computed_groups(recompute_schema(node)?)?)
    })?;
    Ok(changed.data)
}

/// Replaces the calls in the expressions of a node.
fn replaced_calls(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let mapped = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let replaced = expression.transform_up(|part| match part {
            Expr::ScalarFunction(ScalarFunction { func, args }) => match func.inner().downcast_ref::<SqlFunction>() {
                Some(function) => function.result_of(args, &schema).map(Transformed::yes),
                None => Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
            },
            other => with_outer_columns_listed(other),
        })?;
        Ok(replaced.update_data(|expression| name.restore(expression)))
    })?;
    mapped.map_data(LogicalPlan::recompute_schema)
}

/// Computes the calls in grouping sets below the aggregation, because an expression in a grouping set has no name that
/// could be kept. Returns other nodes unchanged.
fn with_computed_groups(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(node) };
    let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() else { return Ok(node) };
    let calls = |part: &Expr| match part {
        Expr::ScalarFunction(call) => Ok(call.func.inner().downcast_ref::<SqlFunction>().is_some()),
        _ => Ok(false),
    };
    let mut computed: Vec<Expr> = Vec::new();
    for group in set.distinct_expr() {
        if group.exists(calls)? {
            computed.push(group.clone());
        }
    }
    if computed.is_empty() {
        return Ok(node);
    }
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let named = computed.iter().map(|group| group.clone().alias(group.schema_name().to_string()));
    let input = Projection::try_new(columns.chain(named).collect(), Arc::clone(&aggregate.input))?;
    let input = replaced_calls(LogicalPlan::Projection(input))?.data;
    let by_name = |expressions: &[Expr]| {
        let expressions = expressions.iter().cloned().map(|expression| {
            let by_name = expression.transform_down(|part| match computed.contains(&part) {
                true => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(part.schema_name().to_string())))),
                false => Ok(Transformed::no(part)),
            })?;
            Ok(by_name.data)
        });
        expressions.collect::<Result<Vec<_>>>()
    };
    let (groups, aggregates) = (by_name(&aggregate.group_expr)?, by_name(&aggregate.aggr_expr)?);
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, aggregates)?))
}
