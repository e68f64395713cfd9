//! `RETURNING` of changes that run without a planner: expressions over parameters and the columns of written or deleted
//! rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Column, Result, internal_datafusion_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use taut_sql::Value;
use taut_store::Table;

use super::dml::{CompiledExpressions, Parameter, TypedPlan, computes_with_arrays, convert_values};
use super::is_immutable;

/// Compiled expressions of a `RETURNING` clause.
#[derive(Debug)]
pub struct Returning {
    parameters: Vec<Option<Parameter>>,
    values: CompiledExpressions,
    output: SchemaRef,
}

impl Returning {
    /// Compiles the query of a `RETURNING` clause. Returns `None` if the query does anything but compute expressions
    /// over the rows of the table.
    pub fn compile(query: TypedPlan, table: &Table, state: &SessionState) -> Option<Self> {
        let TypedPlan { plan, parameters } = query;
        if !is_immutable(&plan).ok()? || !computes_with_arrays(&plan).ok()? {
            return None;
        }
        // Only the optimizer resolves some functions and the types of numbers.
        let plan = state.optimize(&plan).ok()?;
        let (input, expressions) = match &plan {
            LogicalPlan::Projection(projection) => (projection.input.as_ref(), projection.expr.clone()),
            other => (other, other.schema().columns().into_iter().map(Expr::Column).collect()),
        };
        if !is_relation(input) {
            return None;
        }
        let index = |column: &Column| {
            let index = table.schema.index_of(&column.name).map(|index| index.index());
            index.ok_or_else(|| internal_datafusion_err!("no column {}", column.name))
        };
        let types: Vec<DataType> = table.schema.columns().iter().map(|column| column.logical_type.arrow()).collect();
        let values = CompiledExpressions::compile(&expressions, (&types, index), &parameters, state).ok()?;
        let output = Arc::clone(plan.schema().inner());
        let computed = values.fields().ok()?;
        let mut types = output.fields().iter().zip(&computed);
        types.all(|(wanted, found)| wanted.data_type() == found.data_type()).then_some(Self {
            parameters,
            values,
            output,
        })
    }

    /// Whether the expressions use a parameter, given by its index.
    pub fn uses_parameter(&self, parameter: usize) -> bool {
        self.parameters.get(parameter).is_some_and(Option::is_some)
    }

    /// Whether the parameters accept these values.
    pub fn accepts(&self, values: &[Value]) -> bool {
        convert_values(&self.parameters, values).is_some()
    }

    /// Evaluates the expressions for some rows. Returns an empty batch if `rows` is `None`.
    ///
    /// # Errors
    /// If an expression cannot be evaluated.
    pub fn evaluate(&self, rows: Option<&RecordBatch>, values: &[Value]) -> Result<RecordBatch> {
        let Some(rows) = rows else { return Ok(RecordBatch::new_empty(Arc::clone(&self.output))) };
        let values = convert_values(&self.parameters, values);
        let values = values.ok_or_else(|| internal_datafusion_err!("values for other parameters"))?;
        Ok(RecordBatch::try_new(Arc::clone(&self.output), self.values.arrays(rows, &values)?)?)
    }
}

/// Whether a plan returns all rows of a relation.
fn is_relation(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.filters.is_empty() && scan.fetch.is_none(),
        LogicalPlan::SubqueryAlias(alias) => is_relation(&alias.input),
        _ => false,
    }
}
