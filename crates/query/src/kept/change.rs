//! Updates and deletions of rows that are looked up: what is kept of them, and how they run without a planner.
//!
//! ```text
//! UPDATE t SET v = v + $1 WHERE k = $2
//!
//!   query      Projection: "taut row", k, v + $1        made by `statement::mutation`, planned and optimized once
//!                TableScan: k = $2                      the lookup
//!   kept       columns of the lookup | parameters  ──>  new values, by expressions over both
//! ```
//!
//! A value of a parameter that is compared with a column is taken in the type of that column, where it is the same in it.
//! Everywhere else a parameter has the type of the value for which the statement was planned, as a literal in its place
//! would, and the kept expressions are for values of this type alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use taut_store::{Catalog, RowId, RowSet, Table};
use taut_types::ColumnIndex;

use super::lookup::Lookup;
use super::{Basis, Kept, exact, is_comparison, is_immutable, is_query, relies_on_keys, without_rows};
use crate::conform::Conform;
use crate::parameters::{self, Value, scalar_of};
use crate::statement::Outputs;

/// An `UPDATE` or `DELETE` whose rows are looked up.
#[derive(Debug)]
pub struct KeptChange {
    basis: Basis,
    /// `None` for those that are for rows to insert alone.
    parameters: Vec<Option<Parameter>>,
    lookup: Lookup,
    /// The place of the ids of rows in what is looked up.
    row: usize,
    update: Option<Update>,
    assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    /// See [`super::relies_on_keys`].
    pub relies_on_keys: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    data_type: DataType,
    /// Whether it is compared with columns alone: then a value of another type will do that is the same in this one.
    is_compared: bool,
    /// Whether null is the same as any null of this type: it is compared, or cast as it is.
    admits_null: bool,
}

impl Parameter {
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    /// A value in this type.
    fn value(&self, value: &Value) -> Option<ScalarValue> {
        let is_admitted = match value {
            Value::Null => self.admits_null,
            value => self.is_compared || scalar_of(value).data_type() == self.data_type,
        };
        exact(value, &self.data_type).filter(|_| is_admitted)
    }
}

/// How rows get new values.
#[derive(Debug)]
struct Update {
    /// Columns of the lookup, and then the parameters.
    input: Arc<ArrowSchema>,
    /// For each column of the table.
    values: Vec<Arc<dyn PhysicalExpr>>,
    output: Arc<ArrowSchema>,
    conform: Conform,
}

/// The rows that a change concerns.
#[derive(Debug)]
pub struct FoundRows {
    /// Which they are.
    pub rows: RowSet,
    /// Those that take their place; `None` where they are deleted.
    pub new: Option<RecordBatch>,
}

/// A plan in which all parameters have types.
pub struct Typed {
    plan: LogicalPlan,
    parameters: Vec<Option<Parameter>>,
}

/// A mutation that was planned.
pub struct Planned<'a> {
    /// Its query.
    pub query: Typed,
    /// The columns of the query.
    pub outputs: &'a Outputs,
    /// The columns that it may give other values; `None` for all.
    pub assigned: Option<Arc<BTreeSet<ColumnIndex>>>,
    /// How many parameters may be missing in the query, the first ones: those of rows to insert.
    pub given: usize,
}

impl Kept for KeptChange {
    fn holds(&self, basis: Basis, _snapshot: &Catalog) -> bool {
        self.basis == basis
    }
}

impl KeptChange {
    /// A mutation of a table as one to keep; `None` where it cannot be.
    pub fn of(planned: Planned<'_>, table: &Table, (state, basis): (&SessionState, Basis)) -> Option<Self> {
        let Planned { query: Typed { plan, parameters }, outputs, assigned, given } = planned;
        if !is_query(&plan) || !is_immutable(&plan).ok()? || !computes_with_arrays(&plan).ok()? {
            return None;
        }
        if parameters.iter().skip(given).any(Option::is_none) {
            return None;
        }
        let relies_on_keys = relies_on_keys(&plan);
        let (plan, tables) = without_rows(state.optimize(&plan).ok()?).ok()?;
        let [_] = tables.as_slice() else { return None };
        let (input, expressions) = match &plan {
            LogicalPlan::Projection(projection) => (projection.input.as_ref(), projection.expr.clone()),
            other => (other, other.schema().columns().into_iter().map(Expr::Column).collect()),
        };
        let lookup = Lookup::of(input)?;
        let place = |expression: &Expr| match expression.clone().unalias() {
            Expr::Column(column) => input.schema().index_of_column(&column).ok(),
            _ => None,
        };
        let row = place(expressions.get(outputs.row?)?)?;
        let new = expressions.get(outputs.columns.clone())?;
        let update = match new.is_empty() {
            true => None,
            false => Some(Update::of(new, (input.schema(), &parameters), table, state).ok()?),
        };
        Some(Self { basis, parameters, lookup, row, update, assigned, relies_on_keys })
    }

    /// The columns that it may give other values; `None` for all.
    pub fn assigned(&self) -> Option<&Arc<BTreeSet<ColumnIndex>>> {
        self.assigned.as_ref()
    }

    /// The rows of a snapshot, and their new values. `None` where they are too many, or the values of other types.
    ///
    /// # Errors
    /// When a block cannot be read, or a new value cannot be computed or does not fit its column.
    pub fn find(&self, snapshot: &Catalog, values: &[Value]) -> Result<Option<FoundRows>> {
        let Some(values) = self.values(values) else { return Ok(None) };
        let Some(batches) = self.lookup.run(snapshot, &values)? else { return Ok(None) };
        let mut rows = RowSet::default();
        let mut new = None;
        // There is one batch at most.
        for batch in &batches {
            let ids = batch.column(self.row).as_primitive_opt::<UInt64Type>();
            let ids = ids.ok_or_else(|| internal_datafusion_err!("the id of a row is no number"))?;
            rows.extend(&ids.values().iter().map(|id| RowId(*id)).collect());
            new = self.update.as_ref().map(|update| update.batch(batch, &values)).transpose()?;
        }
        Ok(Some(FoundRows { rows, new }))
    }

    /// Whether it is for values of these types.
    pub fn is_for(&self, values: &[Value]) -> bool {
        self.values(values).is_some()
    }

    fn values(&self, values: &[Value]) -> Option<Vec<ScalarValue>> {
        if values.len() != self.parameters.len() {
            return None;
        }
        let value = |(value, parameter): (&Value, &Option<Parameter>)| match parameter {
            None => Some(ScalarValue::Null),
            Some(parameter) => parameter.value(value),
        };
        values.iter().zip(&self.parameters).map(value).collect()
    }
}

impl Update {
    fn of(
        values: &[Expr],
        (columns, parameters): (&DFSchema, &[Option<Parameter>]),
        table: &Table,
        state: &SessionState,
    ) -> crate::error::Result<Self> {
        let field = |name: String, data_type: &DataType| Field::new(name, data_type.clone(), true);
        let of_columns = columns.fields().iter().enumerate();
        let of_columns = of_columns.map(|(place, column)| field(format!("column {place}"), column.data_type()));
        let of_parameters = parameters.iter().enumerate();
        let type_of = |parameter: &Option<Parameter>| parameter.as_ref().map_or(DataType::Null, Parameter::data_type);
        let of_parameters = of_parameters.map(|(place, parameter)| field(parameter_name(place), &type_of(parameter)));
        let input = Arc::new(ArrowSchema::new(of_columns.chain(of_parameters).collect::<Vec<_>>()));
        let input_schema = DFSchema::try_from(Arc::clone(&input))?;
        let named = |expression: Expr| {
            let name = match &expression {
                Expr::Column(column) => format!("column {}", columns.index_of_column(column)?),
                Expr::Placeholder(placeholder) => parameter_name(place_of(&placeholder.id)?),
                _ => return Ok(Transformed::no(expression)),
            };
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        };
        let mut compiled: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(values.len());
        let mut fields = Vec::with_capacity(values.len());
        for (place, value) in values.iter().enumerate() {
            let value = value.clone().unalias().transform_up(named)?.data;
            let value = state.create_physical_expr(value, &input_schema)?;
            fields.push(field(format!("value {place}"), &value.data_type(&input)?));
            compiled.push(value);
        }
        let output = Arc::new(ArrowSchema::new(fields));
        let conform = Conform::of_table(&output, table)?;
        Ok(Self { input, values: compiled, output, conform })
    }

    fn batch(&self, found: &RecordBatch, values: &[ScalarValue]) -> Result<RecordBatch> {
        let rows = found.num_rows();
        let mut columns = found.columns().to_vec();
        for value in values {
            columns.push(value.to_array_of_size(rows)?);
        }
        let input = RecordBatch::try_new(Arc::clone(&self.input), columns)?;
        let values = self.values.iter().map(|value| value.evaluate(&input)?.into_array(rows));
        let new = RecordBatch::try_new(Arc::clone(&self.output), values.collect::<Result<_>>()?)?;
        self.conform.batch(&new)
    }
}

fn parameter_name(place: usize) -> String {
    format!("parameter {place}")
}

/// The place of a parameter, by its name in a plan.
fn place_of(id: &str) -> Result<usize> {
    parameters::place_of(id).ok_or_else(|| internal_datafusion_err!("a parameter {id} without a number"))
}

impl Typed {
    /// A plan with types for its parameters: those of the columns that they are compared with, else those of their values.
    /// `None` where one would have several, or the values do not say.
    pub fn of(plan: LogicalPlan, values: &[Value]) -> Option<Self> {
        let mut uses: BTreeMap<usize, Vec<Parameter>> = BTreeMap::new();
        let plan = plan.transform_up_with_subqueries(|node| {
            let typed = node.map_expressions(|expression| {
                expression.transform_down(|part| {
                    let part = without_casts(part);
                    if is_comparison(&part) {
                        uses_in_comparison(&part, &mut uses)?;
                        return Ok(Transformed::new(part, true, TreeNodeRecursion::Jump));
                    }
                    let (placeholder, cast) = match part {
                        Expr::Placeholder(placeholder) => (placeholder, None),
                        Expr::Cast(Cast { expr, field }) => match *expr {
                            Expr::Placeholder(placeholder) => (placeholder, Some(field)),
                            other => return Ok(Transformed::no(Expr::Cast(Cast { expr: Box::new(other), field }))),
                        },
                        other => return Ok(Transformed::no(other)),
                    };
                    let place = place_of(&placeholder.id)?;
                    let data_type = values.get(place).map_or(DataType::Null, |value| scalar_of(value).data_type());
                    let field = Field::new(&placeholder.id, data_type.clone(), true);
                    let parameter = Parameter { data_type, is_compared: false, admits_null: cast.is_some() };
                    uses.entry(place).or_default().push(parameter);
                    let typed = Expr::Placeholder(Placeholder { field: Some(Arc::new(field)), ..placeholder });
                    let typed = match cast {
                        Some(field) => Expr::Cast(Cast { expr: Box::new(typed), field }),
                        None => typed,
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
        for (place, uses) in uses {
            *parameters.get_mut(place)? = Some(common_use(uses)?);
        }
        Some(Self { plan, parameters })
    }
}

/// A comparison of a column with a parameter that is cast: with one of this type instead.
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
            uses.entry(place_of(&placeholder.id)?).or_default().push(parameter);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether no function is given a parameter that may have to be one value for all rows, or decide about the function's type.
fn computes_with_arrays(plan: &LogicalPlan) -> Result<bool> {
    let is_parameter = |part: &Expr| Ok(matches!(part, Expr::Placeholder(_)));
    let mut computes = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(function) = part {
                    computes &= matches!(function.name(), "coalesce" | "nullif") || !part.exists(is_parameter)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(computes)
}

/// What a parameter is that is used several times.
fn common_use(uses: Vec<Parameter>) -> Option<Parameter> {
    let admits_null = uses.iter().all(|parameter| parameter.admits_null);
    let is_compared = uses.iter().all(|parameter| parameter.is_compared);
    let data_type = uses.first().map(|parameter| parameter.data_type.clone())?;
    let is_one = uses.iter().all(|parameter| parameter.data_type == data_type) && data_type != DataType::Null;
    is_one.then_some(Parameter { data_type, is_compared, admits_null })
}
