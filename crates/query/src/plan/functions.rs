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

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::{Exists, Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Values, Volatility, cast, lit, when,
};
use datafusion::sql::parser::Statement;
use taut_sql::{FunctionDefinition, FunctionResult, RenamedFunction};

use super::rules::{calls_volatile, recompute_schema};
use super::{NameResolver, RelationNames};
use crate::error::{FunctionError, QueryError, type_in_message};

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

#[derive(Debug, PartialEq, Eq, Hash)]
struct SqlFunction {
    header: Header,
    /// The result, in which parameters are outer columns. `None` for a function that returns rows.
    result: Option<Expr>,
    result_type: DataType,
    signature: Signature,
}

#[derive(Debug)]
struct SqlTableFunction {
    header: Header,
    /// The rows, in which parameters are outer columns.
    rows: LogicalPlan,
}

/// Name and parameters of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Header {
    /// Name that is unique among the functions of a statement.
    name: String,
    /// Name of the function in messages.
    shown_name: String,
    parameters: Vec<PlannedParameter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlannedParameter {
    column: Column,
    data_type: DataType,
    default: Option<Expr>,
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
        FunctionResult::Values(_) | FunctionResult::Table(_) => {
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

/// Returns the rows of a body, with columns of these names and types.
fn rows_of(body: &LogicalPlan, names: &[String], types: &[DataType]) -> Result<LogicalPlan> {
    let declared = || types.iter().map(type_in_message).collect::<Vec<_>>().join(", ");
    let columns = body.schema().columns();
    if columns.len() != types.len() {
        return Err(external(FunctionError::Columns { declared: declared(), count: types.len() }));
    }
    let mut projection = Vec::new();
    for ((column, name), target) in columns.into_iter().zip(names).zip(types) {
        let (_, field) = body.schema().qualified_field_from_column(&column)?;
        let actual = field.data_type().clone();
        if !is_assignable(&actual, target) {
            return Err(external(FunctionError::Mismatch { declared: declared(), actual: type_in_message(&actual) }));
        }
        projection.push(as_type(Expr::Column(column), &actual, target).alias(name));
    }
    LogicalPlanBuilder::from(body.clone()).project(projection)?.build()
}

/// Returns the value of the body as a value of the result: the expression of a body without `FROM`, or the first row of
/// the query.
fn single_value(body: Subquery, result_type: &DataType) -> Result<Expr> {
    let [field] = body.subquery.schema().fields().as_ref() else {
        return Err(external(FunctionError::Columns { declared: type_in_message(result_type), count: 1 }));
    };
    let actual = field.data_type().clone();
    if !is_assignable(&actual, result_type) {
        let (declared, actual) = (type_in_message(result_type), type_in_message(&actual));
        return Err(external(FunctionError::Mismatch { declared, actual }));
    }
    Ok(as_type(first_value(body)?, &actual, result_type))
}

/// Returns a value of type `from` as a value of type `target`. As in PostgreSQL, parameters and results of type numeric
/// have no precision and scale of their own, so that decimals keep their digits. Instants keep their unit.
fn as_type(value: Expr, from: &DataType, target: &DataType) -> Expr {
    match (from, target) {
        (from, target) if from == target || is_same_kind(from, target) => value,
        // All digits of a bigint.
        (from, target) if from.is_integer() && target.is_decimal() => cast(value, DataType::Decimal128(20, 0)),
        // More digits before and after the point than the declared type may have.
        (from, target) if from.is_string() && target.is_decimal() => cast(value, DataType::Decimal128(38, 18)),
        (from, target) if from.is_floating() && target.is_decimal() => cast(value, DataType::Decimal128(38, 18)),
        (_, target) => cast(value, target.clone()),
    }
}

/// Whether two types differ only in precision, scale or unit.
fn is_same_kind(from: &DataType, target: &DataType) -> bool {
    match (from, target) {
        (DataType::List(from), DataType::List(target)) => is_same_kind(from.data_type(), target.data_type()),
        (DataType::Timestamp(_, from), DataType::Timestamp(_, target)) => from.is_some() == target.is_some(),
        (from, target) => from.is_decimal() && target.is_decimal(),
    }
}

fn first_value(subquery: Subquery) -> Result<Expr> {
    // Rows of VALUES are in order, but no sort says so.
    let first = subquery.subquery.as_ref().clone().transform_down(|node| {
        Ok(match node {
            LogicalPlan::Values(Values { schema, mut values }) => {
                values.truncate(1);
                let node = LogicalPlan::Values(Values { schema, values });
                Transformed::new(node, true, TreeNodeRecursion::Stop)
            }
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => Transformed::no(node),
            _ => Transformed::new(node, false, TreeNodeRecursion::Stop),
        })
    })?;
    let subquery = subquery.with_plan(Arc::new(first.data));
    let plan = subquery.subquery.as_ref();
    if let LogicalPlan::Projection(Projection { expr, input, .. }) = plan
        && let LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) = input.as_ref()
        && let [value] = expr.as_slice()
    {
        return Ok(value.clone().unalias());
    }
    if plan.max_rows().is_some_and(|rows| rows <= 1) {
        return Ok(Expr::ScalarSubquery(subquery));
    }
    let first = LogicalPlanBuilder::from(plan.clone()).limit(0, Some(1))?.build()?;
    Ok(Expr::ScalarSubquery(subquery.with_plan(Arc::new(first))))
}

/// Whether a body of type `from` is valid for a function that returns `target`. In addition to the casts of arguments,
/// every number is cast to every numeric type.
fn is_assignable(from: &DataType, target: &DataType) -> bool {
    from.is_numeric() && target.is_numeric() || is_implicit(from, target)
}

/// Whether an argument of type `from` is valid for a parameter of type `target`.
fn is_implicit(from: &DataType, target: &DataType) -> bool {
    let rank = |data_type: &DataType| match data_type {
        number if number.is_integer() => Some(0),
        number if number.is_decimal() => Some(1),
        DataType::Float32 => Some(2),
        DataType::Float64 => Some(3),
        _ => None,
    };
    match (from, target) {
        (DataType::Null, _) => true,
        (from, target) if from == target => true,
        (DataType::List(from), DataType::List(target)) => is_implicit(from.data_type(), target.data_type()),
        (DataType::Date32, DataType::Timestamp(..)) | (DataType::Timestamp(_, None), DataType::Timestamp(..)) => true,
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) => false,
        (from, target) if from.is_string() && target.is_string() => true,
        (from, target) => match (rank(from), rank(target)) {
            (Some(from), Some(target)) => from <= target,
            (None, None) => std::mem::discriminant(from) == std::mem::discriminant(target),
            _ => false,
        },
    }
}

fn external(error: FunctionError) -> DataFusionError {
    DataFusionError::External(Box::new(QueryError::from(error)))
}

impl ScalarUDFImpl for SqlFunction {
    fn name(&self) -> &str {
        &self.header.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.result_type.clone())
    }

    /// Accepts all types. [`Header::check`] also knows which arguments are literals.
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if self.result.is_none() {
            return Err(external(FunctionError::Rows { name: self.header.shown_name.clone() }));
        }
        let is_literal = |index: usize| args.scalar_arguments.get(index).is_some_and(Option::is_some);
        let types = args.arg_fields.iter().enumerate().map(|(index, field)| (field.data_type(), is_literal(index)));
        self.header.check(&types.collect::<Vec<_>>())?;
        Ok(Arc::new(Field::new(&self.header.shown_name, self.result_type.clone(), true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("function {} was not replaced by its body", self.header.shown_name)
    }
}

impl Header {
    /// Checks the types of the arguments of a call, each with whether the argument is a literal.
    fn check(&self, arguments: &[(&DataType, bool)]) -> Result<()> {
        let matches = arguments.iter().zip(&self.parameters).all(|((from, is_literal), parameter)| {
            // A text literal takes the type of the parameter.
            from.is_string() && *is_literal || is_implicit(from, &parameter.data_type)
        });
        match self.parameters.get(arguments.len()..) {
            Some(omitted) if matches && omitted.iter().all(|parameter| parameter.default.is_some()) => Ok(()),
            _ => {
                let types: Vec<String> = arguments.iter().map(|(data_type, _)| type_in_message(data_type)).collect();
                let (name, types) = (self.shown_name.clone(), types.join(", "));
                Err(external(FunctionError::NoMatch { name, types }))
            }
        }
    }

    /// The arguments of a call as values of the parameters. `schema` has the columns of the arguments.
    fn values(&self, arguments: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let arguments = arguments.into_iter().map(Some).chain(std::iter::repeat(None)).zip(&self.parameters);
        let value = |(argument, parameter): (Option<Expr>, &PlannedParameter)| match (argument, &parameter.default) {
            (Some(Expr::Placeholder(Placeholder { id, field: None })), _) => {
                let field = Some(Arc::new(Field::new(&id, parameter.data_type.clone(), true)));
                Ok(Expr::Placeholder(Placeholder { id, field }))
            }
            (Some(argument), _) => {
                let from = argument.get_type(schema)?;
                Ok(as_type(argument, &from, &parameter.data_type))
            }
            (None, Some(default)) => Ok(default.clone()),
            (None, None) => internal_err!("a call of function {} lacks an argument", self.shown_name),
        };
        arguments.map(value).collect()
    }

    /// The value of a parameter in a call.
    fn value_of<'a>(&self, column: &Column, values: &'a [Expr]) -> Option<&'a Expr> {
        values.get(self.parameters.iter().position(|parameter| parameter.column == *column)?)
    }

    /// Whether an argument is null. `None` without parameters.
    fn has_null_argument(&self) -> Option<Expr> {
        let argument = |parameter: &PlannedParameter| {
            let field = Arc::new(Field::new(&parameter.column.name, parameter.data_type.clone(), true));
            Expr::OuterReferenceColumn(field, parameter.column.clone())
        };
        self.parameters.iter().map(|parameter| argument(parameter).is_null()).reduce(Expr::or)
    }

    /// A result that is null if an argument is null.
    fn strict(&self, result: Expr, result_type: &DataType) -> Result<Expr> {
        match self.has_null_argument() {
            Some(has_null) => when(has_null, lit(ScalarValue::try_from(result_type)?)).otherwise(result),
            None => Ok(result),
        }
    }

    fn volatile(&self, parameter: &PlannedParameter) -> DataFusionError {
        let (name, parameter) = (self.shown_name.clone(), parameter.column.name.clone());
        external(FunctionError::VolatileArgument { name, parameter })
    }
}

impl SqlFunction {
    /// The result for the arguments of a call. `schema` has the columns of the arguments.
    fn result_of(&self, arguments: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
        let values = self.header.values(arguments, schema)?;
        let Some(result) = &self.result else {
            return Err(external(FunctionError::Rows { name: self.header.shown_name.clone() }));
        };
        for (value, parameter) in values.iter().zip(&self.header.parameters) {
            if value.is_volatile() && uses(result, parameter)? != (1, 0) {
                return Err(self.header.volatile(parameter));
            }
        }
        self.check_relations(result, &values)?;
        let value_of = |column: &Column| self.header.value_of(column, &values);
        let result = result.clone().transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => Ok(match value_of(&column) {
                Some(value) => Transformed::yes(value.clone()),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }),
            other => with_subquery(other, &|plan| {
                let changed = plan.transform_up_with_subqueries(|node| {
                    replaced_columns(node, &|column| value_of(column).map(|value| outer(value, schema)))
                })?;
                Ok(changed.data)
            }),
        })?;
        Ok(result.data)
    }
}

impl SqlFunction {
    /// Checks that no relation of the body captures a column of an argument. The name of an outer column in a nested
    /// subquery would refer to the innermost relation of this name.
    fn check_relations(&self, result: &Expr, values: &[Expr]) -> Result<()> {
        let (mut of_body, mut has_nested) = (BTreeSet::new(), false);
        result.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                subquery.subquery.apply_with_subqueries(|node| {
                    of_body.extend(node.schema().iter().filter_map(|(relation, _)| relation.cloned()));
                    has_nested |= matches!(node, LogicalPlan::Subquery(_));
                    node.apply_expressions(|expression| {
                        has_nested |= expression.exists(|part| Ok(subquery_of(part).is_some()))?;
                        Ok(TreeNodeRecursion::Continue)
                    })
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        for (value, parameter) in values.iter().zip(&self.header.parameters) {
            let mut named: Vec<Column> = value.column_refs().into_iter().cloned().collect();
            let mut has_subquery = false;
            value.apply(|part| {
                if let Some(subquery) = subquery_of(part) {
                    has_subquery = true;
                    named.extend(subquery.outer_ref_columns.iter().filter_map(|outer| match outer {
                        Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
                        _ => None,
                    }));
                }
                if let Expr::OuterReferenceColumn(_, column) = part {
                    named.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            let mut relations = named.iter().filter_map(|column| column.relation.as_ref());
            if (has_nested || has_subquery)
                && let Some(relation) = relations.find(|relation| of_body.contains(*relation))
            {
                let (name, parameter) = (self.header.shown_name.clone(), parameter.column.name.clone());
                let relation = relation.table().to_owned();
                return Err(external(FunctionError::Captured { name, parameter, relation }));
            }
        }
        Ok(())
    }
}

/// Number of times that a result uses a parameter outside and inside of subqueries.
fn uses(result: &Expr, parameter: &PlannedParameter) -> Result<(usize, usize)> {
    let is_use = |part: &Expr| matches!(part, Expr::OuterReferenceColumn(_, column) if *column == parameter.column);
    let (mut outside, mut inside) = (0, 0);
    result.apply(|part| {
        outside += usize::from(is_use(part));
        if let Some(subquery) = subquery_of(part) {
            inside += subquery.outer_ref_columns.iter().filter(|part| is_use(part)).count();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((outside, inside))
}

impl TableFunctionImpl for SqlTableFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let arguments = args.exprs();
        let schema = DFSchema::empty();
        let types = arguments.iter().map(|argument| argument.get_type(&schema)).collect::<Result<Vec<_>>>()?;
        let is_literal = |argument: &Expr| matches!(argument, Expr::Literal(..));
        let types: Vec<_> = types.iter().zip(arguments.iter().map(is_literal)).collect();
        self.header.check(&types)?;
        let values = self.header.values(arguments.to_vec(), &schema)?;
        for (value, parameter) in values.iter().zip(&self.header.parameters) {
            if value.is_volatile() {
                return Err(self.header.volatile(parameter));
            }
        }
        let rows = self.rows.clone().transform_up_with_subqueries(|node| {
            replaced_columns(node, &|column| self.header.value_of(column, &values).cloned().map(Ok))
        })?;
        Ok(Arc::new(ViewTable::new(rows.data, None)))
    }
}

/// Replaces outer columns in the expressions of a node.
fn replaced_columns(
    node: LogicalPlan,
    replacement: &dyn Fn(&Column) -> Option<Result<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Subquery(mut subquery) = node {
        subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        // Without outer columns, it is an ordinary derived table.
        return Ok(Transformed::yes(match subquery.outer_ref_columns.is_empty() {
            true => subquery.subquery.as_ref().clone(),
            false => LogicalPlan::Subquery(subquery),
        }));
    }
    let node = recompute_schema(node)?;
    let names = NamePreserver::new(&node);
    let mapped = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let replaced = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => match replacement(&column) {
                Some(argument) => argument.map(Transformed::yes),
                None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
            },
            // The plans of subqueries were changed before.
            other => with_outer_columns_listed(other),
        })?;
        Ok(replaced.update_data(|expression| name.restore(expression)))
    })?;
    mapped.map_data(LogicalPlan::recompute_schema)
}

/// Columns of an expression as outer columns of a subquery.
fn outer(expression: &Expr, schema: &DFSchema) -> Result<Expr> {
    let changed = expression.clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::InSubquery(part) => Some(&part.subquery),
        Expr::Exists(part) => Some(&part.subquery),
        Expr::SetComparison(part) => Some(&part.subquery),
        _ => None,
    }
}

/// Lists the outer columns of a subquery again, after its plan was changed.
fn with_outer_columns_listed(expression: Expr) -> Result<Transformed<Expr>> {
    with_subquery(expression, &Ok)
}

/// Changes the plan of a subquery, and lists its outer columns again. Returns other expressions unchanged.
fn with_subquery(
    mut expression: Expr,
    change: &dyn Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<Expr>> {
    let subquery = match &mut expression {
        Expr::ScalarSubquery(subquery) => subquery,
        Expr::InSubquery(part) => &mut part.subquery,
        Expr::Exists(part) => &mut part.subquery,
        Expr::SetComparison(part) => &mut part.subquery,
        _ => return Ok(Transformed::no(expression)),
    };
    let plan = change(subquery.subquery.as_ref().clone())?;
    subquery.outer_ref_columns = plan.all_out_ref_exprs();
    subquery.subquery = Arc::new(plan);
    Ok(Transformed::yes(expression))
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
        let node = recompute_schema(node)?;
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let mapped = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(|part| match part {
                Expr::ScalarFunction(ScalarFunction { func, args }) => {
                    match func.inner().downcast_ref::<SqlFunction>() {
                        Some(function) => function.result_of(args, &schema).map(Transformed::yes),
                        None => Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }))),
                    }
                }
                other => with_outer_columns_listed(other),
            })?;
            Ok(replaced.update_data(|expression| name.restore(expression)))
        })?;
        mapped.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(changed.data)
}
