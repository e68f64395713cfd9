//! Cached plans of updates and deletions whose rows a lookup finds, and of inserts with `RETURNING`. They run without a
//! planner.
//!
//! ```text
//! UPDATE t SET v = v + $1 WHERE k = $2
//!
//!   query      Projection: "taut row", k, v + $1        made by `taut_sql::Mutation`, planned and optimized once
//!                TableScan: k = $2                      the lookup
//!   cached     columns of the lookup | parameters  ──>  new values, by expressions over both
//! ```
//!
//! A parameter that is compared with a column has the type of the column. Its value is converted to that type if this
//! does not change its meaning. Any other parameter has the type of the value with which the statement was planned,
//! like a literal. The cached expressions are valid for values of this type only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use taut_sql::{Outputs, Value};
use taut_store::{Catalog, RowId, RowSet, Table, Transaction};
use taut_types::ColumnIndex;

use super::lookup::Lookup;
use super::returning::Returning;
use super::{
    CacheKey, Cached, convert_exactly, is_comparison, is_immutable, is_query, relies_on_keys, replace_tables_by_shapes,
};
use crate::plan::assignment_cast::is_assignment;
use crate::plan::parameters::scalar_of;
use crate::write::coerce::Coercion;

/// Cached plan of a mutation: the lookup of its rows, and expressions for their new values.
#[derive(Debug)]
pub struct CachedDml {
    cache_key: CacheKey,
    /// Parameters of the statement. `None` for a parameter that occurs only in the rows to insert.
    parameters: Vec<Option<Parameter>>,
    /// Lookup of the rows, and the ordinal of their ids in its output. `None` if the statement only inserts.
    lookup: Option<(Lookup, usize)>,
    update: Option<Update>,
    returning: Option<Returning>,
    assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    /// Whether the plan is valid only if the rows obey their keys: see [`super::relies_on_keys`].
    pub relies_on_keys: bool,
}

/// Type of a parameter of a cached mutation, and which values it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    data_type: DataType,
    /// Whether the parameter is only compared with columns. A value of another type is then accepted if its meaning
    /// stays the same in this type.
    is_compared: bool,
    /// Whether an untyped null is accepted. True if each use of the parameter is a comparison, or the direct argument
    /// of a cast or an assignment.
    admits_null: bool,
}

impl Parameter {
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    /// Converts a value to the type of the parameter; `None` if it is not accepted.
    fn value(&self, value: &Value) -> Option<ScalarValue> {
        let is_admitted = match value {
            Value::Null => self.admits_null,
            value => self.is_compared || scalar_of(value).is_ok_and(|scalar| scalar.data_type() == self.data_type),
        };
        convert_exactly(value, &self.data_type).filter(|_| is_admitted)
    }
}

/// Expressions for the new values of rows.
#[derive(Debug)]
struct Update {
    /// One expression per column of the table, over the columns of the lookup.
    values: CompiledExpressions,
    output: Arc<ArrowSchema>,
    coercion: Coercion,
}

/// Compiled expressions over some columns and the parameters.
#[derive(Debug)]
pub(super) struct CompiledExpressions {
    /// Schema of the input: the columns, followed by the parameters.
    input: Arc<ArrowSchema>,
    values: Vec<Arc<dyn PhysicalExpr>>,
}

/// Rows that a mutation changes.
#[derive(Debug)]
pub struct FoundRows {
    /// Ids of the rows.
    pub rows: RowSet,
    /// New versions of the rows. For a deletion, the deleted rows themselves if they are returned.
    pub new: Option<RecordBatch>,
}

/// A plan in which all parameters have types.
pub struct TypedPlan {
    pub(super) plan: LogicalPlan,
    pub(super) parameters: Vec<Option<Parameter>>,
}

/// A planned mutation, as input of [`CachedDml::compile`].
pub struct PlannedDml<'a> {
    /// The mutation's query.
    pub query: TypedPlan,
    /// Columns of the query.
    pub outputs: &'a Outputs,
    /// Columns whose values the mutation may change; `None` for all.
    pub assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    /// Number of leading parameters that belong to the rows to insert. The query need not use them.
    pub insert_parameters: usize,
    /// Whether the mutation deletes rows without inserting any.
    pub is_deletion: bool,
    /// Expressions of the `RETURNING` clause.
    pub returning: Option<Returning>,
}

impl Cached for CachedDml {
    fn is_valid(&self, cache_key: CacheKey, _snapshot: &Catalog) -> bool {
        self.cache_key == cache_key
    }
}

impl CachedDml {
    /// Compiles a mutation for the plan cache; `None` if it cannot be cached.
    pub fn compile(
        planned: PlannedDml<'_>,
        table: &Table,
        (state, cache_key): (&SessionState, CacheKey),
    ) -> Option<Self> {
        let PlannedDml {
            query: TypedPlan { plan, parameters },
            outputs,
            assigned,
            insert_parameters,
            is_deletion,
            returning,
        } = planned;
        if !is_query(&plan) || !is_immutable(&plan).ok()? || !computes_with_arrays(&plan).ok()? {
            return None;
        }
        let is_returned = |index: usize| returning.as_ref().is_some_and(|returning| returning.uses_parameter(index));
        if parameters
            .iter()
            .enumerate()
            .skip(insert_parameters)
            .any(|(index, use_)| use_.is_none() && !is_returned(index))
        {
            return None;
        }
        let relies_on_keys = relies_on_keys(&plan);
        let (plan, tables) = replace_tables_by_shapes(state.optimize(&plan).ok()?).ok()?;
        let [_] = tables.as_slice() else { return None };
        let (input, expressions) = match &plan {
            LogicalPlan::Projection(projection) => (projection.input.as_ref(), projection.expr.clone()),
            other => (other, other.schema().columns().into_iter().map(Expr::Column).collect()),
        };
        let lookup = Lookup::from_plan(input)?;
        let index = |expression: &Expr| match expression.clone().unalias() {
            Expr::Column(column) => input.schema().index_of_column(&column).ok(),
            _ => None,
        };
        let row = index(expressions.get(outputs.row?)?)?;
        let new = expressions.get(outputs.columns.clone())?;
        let update = match new.is_empty() {
            true => None,
            false => Some(Update::compile(new, (input.schema(), &parameters), (table, is_deletion), state).ok()?),
        };
        let lookup = Some((lookup, row));
        Some(Self { cache_key, parameters, lookup, update, returning, assigned, relies_on_keys })
    }

    /// Compiles an `INSERT ... VALUES ... RETURNING` that has `parameters` parameters.
    pub fn for_insert(returning: Returning, parameters: usize, cache_key: CacheKey) -> Self {
        let (parameters, returning) = (vec![None; parameters], Some(returning));
        Self { cache_key, parameters, lookup: None, update: None, returning, assigned: None, relies_on_keys: false }
    }

    /// Evaluates the `RETURNING` clause for written or deleted rows. The first columns of `rows` are the columns of the
    /// table. Returns `None` if there is no `RETURNING` clause.
    ///
    /// # Errors
    /// If an expression cannot be evaluated.
    pub fn evaluate_returning(&self, rows: Option<&RecordBatch>, values: &[Value]) -> Result<Option<RecordBatch>> {
        self.returning.as_ref().map(|returning| returning.evaluate(rows, values)).transpose()
    }

    /// Columns whose values the mutation may change; `None` for all.
    pub fn assigned(&self) -> Option<&Arc<BTreeSet<ColumnIndex>>> {
        self.assigned.as_ref()
    }

    /// Looks up the rows in a snapshot and computes their new values. Returns `None` if there are too many rows, or a
    /// parameter does not accept its value.
    ///
    /// # Errors
    /// If a block cannot be read, or a new value cannot be computed or does not fit its column.
    pub fn find_rows(&self, snapshot: &Catalog, values: &[Value]) -> Result<Option<FoundRows>> {
        let Some(values) = self.values(values) else { return Ok(None) };
        let (mut rows, mut new) = (RowSet::default(), None);
        let Some((lookup, row)) = &self.lookup else { return Ok(Some(FoundRows { rows, new })) };
        let Some(batches) = lookup.run(snapshot, &values)? else { return Ok(None) };
        // There is at most one batch.
        for batch in &batches {
            let ids = batch.column(*row).as_primitive_opt::<UInt64Type>();
            let ids = ids.ok_or_else(|| internal_datafusion_err!("the id of a row is not a number"))?;
            rows.extend(&ids.values().iter().map(|id| RowId(*id)).collect());
            new = self.update.as_ref().map(|update| update.batch(batch, &values)).transpose()?;
        }
        Ok(Some(FoundRows { rows, new }))
    }

    /// Adds the predicates of the lookup to the read set of a transaction. Adds none for a mutation that only inserts.
    pub fn record_reads(&self, transaction: &Transaction, snapshot: &Catalog, values: &[Value]) {
        if let (Some((lookup, _)), Some(values)) = (&self.lookup, self.values(values)) {
            lookup.record_reads(transaction, snapshot, &values);
        }
    }

    /// Whether the parameters accept these values.
    pub fn accepts(&self, values: &[Value]) -> bool {
        self.values(values).is_some() && self.returning.as_ref().is_none_or(|returning| returning.accepts(values))
    }

    fn values(&self, values: &[Value]) -> Option<Vec<ScalarValue>> {
        convert_values(&self.parameters, values)
    }
}

/// Converts values to the types of their parameters, and values of unused parameters to nulls. Returns `None` if a
/// parameter does not accept its value.
pub(super) fn convert_values(parameters: &[Option<Parameter>], values: &[Value]) -> Option<Vec<ScalarValue>> {
    if values.len() != parameters.len() {
        return None;
    }
    let value = |(value, parameter): (&Value, &Option<Parameter>)| match parameter {
        None => Some(ScalarValue::Null),
        Some(parameter) => parameter.value(value),
    };
    values.iter().zip(parameters).map(value).collect()
}

impl Update {
    fn compile(
        values: &[Expr],
        (columns, parameters): (&DFSchema, &[Option<Parameter>]),
        (table, is_deletion): (&Table, bool),
        state: &SessionState,
    ) -> crate::error::Result<Self> {
        let types: Vec<DataType> = columns.fields().iter().map(|column| column.data_type().clone()).collect();
        let values = CompiledExpressions::compile(
            values,
            (&types, |column| columns.index_of_column(column)),
            parameters,
            state,
        )?;
        let output = Arc::new(ArrowSchema::new(values.fields()?));
        let coercion = match is_deletion {
            true => Coercion::new(&output, &table.schema, &table.name)?,
            false => Coercion::for_table(&output, table)?.in_zone(state.config_options()),
        };
        Ok(Self { values, output, coercion })
    }

    fn batch(&self, found: &RecordBatch, values: &[ScalarValue]) -> Result<RecordBatch> {
        let arrays = self.values.arrays(found, values)?;
        self.coercion.coerce(&RecordBatch::try_new(Arc::clone(&self.output), arrays)?)
    }
}

impl CompiledExpressions {
    /// Compiles expressions. `index_of_column` maps the columns in the expressions to ordinals in `columns`.
    ///
    /// # Errors
    /// If an expression refers to an unknown column, or DataFusion cannot compile it.
    pub fn compile(
        values: &[Expr],
        (columns, index_of_column): (&[DataType], impl Fn(&Column) -> Result<usize>),
        parameters: &[Option<Parameter>],
        state: &SessionState,
    ) -> Result<Self> {
        let field = |name: String, data_type: &DataType| Field::new(name, data_type.clone(), true);
        let of_columns = columns.iter().enumerate();
        let of_columns = of_columns.map(|(index, data_type)| field(format!("column {index}"), data_type));
        let of_parameters = parameters.iter().enumerate();
        let type_of = |parameter: &Option<Parameter>| parameter.as_ref().map_or(DataType::Null, Parameter::data_type);
        let of_parameters = of_parameters.map(|(index, parameter)| field(parameter_name(index), &type_of(parameter)));
        let input = Arc::new(ArrowSchema::new(of_columns.chain(of_parameters).collect::<Vec<_>>()));
        let input_schema = DFSchema::try_from(Arc::clone(&input))?;
        let named = |expression: Expr| {
            let name = match &expression {
                Expr::Column(column) => format!("column {}", index_of_column(column)?),
                Expr::Placeholder(placeholder) => parameter_name(parameter_index(&placeholder.id)?),
                _ => return Ok(Transformed::no(expression)),
            };
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        };
        let compiled = |value: &Expr| {
            let value = value.clone().unalias().transform_up(named)?.data;
            state.create_physical_expr(value, &input_schema)
        };
        let values = values.iter().map(compiled).collect::<Result<_>>()?;
        Ok(Self { input, values })
    }

    /// Fields of the results, named by ordinal.
    ///
    /// # Errors
    /// If an expression has no type.
    pub fn fields(&self) -> Result<Vec<Field>> {
        let field = |(index, value): (usize, &Arc<dyn PhysicalExpr>)| {
            Ok(Field::new(format!("value {index}"), value.data_type(&self.input)?, true))
        };
        self.values.iter().enumerate().map(field).collect()
    }

    /// Evaluates the expressions for some rows.
    ///
    /// # Errors
    /// If an expression cannot be evaluated.
    pub fn arrays(&self, rows: &RecordBatch, parameters: &[ScalarValue]) -> Result<Vec<ArrayRef>> {
        let count = rows.num_rows();
        let mut columns = rows.columns().to_vec();
        for value in parameters {
            columns.push(value.to_array_of_size(count)?);
        }
        let input = RecordBatch::try_new(Arc::clone(&self.input), columns)?;
        self.values.iter().map(|value| value.evaluate(&input)?.into_array(count)).collect()
    }
}

fn parameter_name(index: usize) -> String {
    format!("parameter {index}")
}

/// Index of a parameter, from its name in a plan.
fn parameter_index(id: &str) -> Result<usize> {
    taut_sql::parameter_index(id).ok_or_else(|| internal_datafusion_err!("a parameter {id} without a number"))
}

impl TypedPlan {
    /// Assigns types to the parameters of a plan. A parameter has the type of the column that it is compared with, or
    /// else the type of its value. `None` if a parameter would have several types, or the values do not determine one.
    pub fn infer(plan: LogicalPlan, values: &[Value]) -> Option<Self> {
        let mut uses: BTreeMap<usize, Vec<Parameter>> = BTreeMap::new();
        let plan = plan.transform_up_with_subqueries(|node| {
            let typed = node.map_expressions(|expression| {
                expression.transform_down(|part| {
                    let part = without_casts(part);
                    if is_comparison(&part) {
                        uses_in_comparison(&part, &mut uses)?;
                        return Ok(Transformed::new(part, true, TreeNodeRecursion::Jump));
                    }
                    let placeholder = match &part {
                        Expr::Placeholder(placeholder) => Some(placeholder),
                        Expr::Cast(Cast { expr, .. }) => placeholder_of(expr),
                        Expr::ScalarFunction(call) if is_assignment(call) => call.args.first().and_then(placeholder_of),
                        _ => None,
                    };
                    let Some(placeholder) = placeholder.cloned() else { return Ok(Transformed::no(part)) };
                    let index = parameter_index(&placeholder.id)?;
                    let scalar = values.get(index).and_then(|value| scalar_of(value).ok());
                    let data_type = scalar.map_or(DataType::Null, |scalar| scalar.data_type());
                    let field = Field::new(&placeholder.id, data_type.clone(), true);
                    let parameter =
                        Parameter { data_type, is_compared: false, admits_null: !matches!(part, Expr::Placeholder(_)) };
                    uses.entry(index).or_default().push(parameter);
                    let typed = Expr::Placeholder(Placeholder { field: Some(Arc::new(field)), ..placeholder });
                    let typed = match part {
                        Expr::Cast(cast) => Expr::Cast(Cast { expr: Box::new(typed), ..cast }),
                        Expr::ScalarFunction(call) => {
                            Expr::ScalarFunction(ScalarFunction { args: vec![typed], ..call })
                        }
                        _ => typed,
                    };
                    Ok(Transformed::new(typed, true, TreeNodeRecursion::Jump))
                })
            })?;
            let is_typed = typed.transformed;
            let node = if is_typed { typed.data.recompute_schema()? } else { typed.data };
            Ok(Transformed::new(node, is_typed, TreeNodeRecursion::Continue))
        });
        let plan = plan.ok()?.data;
        let mut parameters = vec![None; values.len()];
        for (index, uses) in uses {
            *parameters.get_mut(index)? = Some(common_use(uses)?);
        }
        Some(Self { plan, parameters })
    }
}

fn placeholder_of(expression: &Expr) -> Option<&Placeholder> {
    match expression {
        Expr::Placeholder(placeholder) => Some(placeholder),
        _ => None,
    }
}

/// Replaces a comparison of a column with a cast parameter by a comparison with a parameter of the cast's type.
fn without_casts(part: Expr) -> Expr {
    let bare = |operand: Expr| match operand {
        Expr::Cast(Cast { expr, field }) => match *expr {
            Expr::Placeholder(placeholder) => Expr::Placeholder(Placeholder { field: Some(field), ..placeholder }),
            other => Expr::Cast(Cast { expr: Box::new(other), field }),
        },
        other => other,
    };
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (left, right) = match (left.as_ref(), right.as_ref()) {
                (Expr::Column(_), _) => (left, Box::new(bare(*right))),
                (_, Expr::Column(_)) => (Box::new(bare(*left)), right),
                _ => (left, right),
            };
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        other => other,
    }
}

fn uses_in_comparison(part: &Expr, uses: &mut BTreeMap<usize, Vec<Parameter>>) -> Result<()> {
    part.apply(|operand| {
        if let Expr::Placeholder(placeholder) = operand {
            let data_type = placeholder.field.as_ref().map_or(DataType::Null, |field| field.data_type().clone());
            let parameter = Parameter { data_type, is_compared: true, admits_null: true };
            uses.entry(parameter_index(&placeholder.id)?).or_default().push(parameter);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether parameters occur in arguments of scalar functions only where the function accepts an array of values. Other
/// functions may need one value for all rows, or may derive their type from it.
pub(super) fn computes_with_arrays(plan: &LogicalPlan) -> Result<bool> {
    let is_parameter = |part: &Expr| Ok(matches!(part, Expr::Placeholder(_)));
    let mut computes = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(function) = part {
                    let takes_arrays = matches!(function.name(), "coalesce" | "nullif") || is_assignment(function);
                    computes &= takes_arrays || !part.exists(is_parameter)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(computes)
}

/// Combines the uses of a parameter that occurs several times. `None` if they have different types, or no type.
fn common_use(uses: Vec<Parameter>) -> Option<Parameter> {
    let admits_null = uses.iter().all(|parameter| parameter.admits_null);
    let is_compared = uses.iter().all(|parameter| parameter.is_compared);
    let data_type = uses.first().map(|parameter| parameter.data_type.clone())?;
    let is_one = uses.iter().all(|parameter| parameter.data_type == data_type) && data_type != DataType::Null;
    is_one.then_some(Parameter { data_type, is_compared, admits_null })
}
