//! `CHECK` constraints, which apply to each row alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use taut_store::Table;

use super::expressions::compile_condition;
use crate::error::{QueryError, Result, Violation};
use crate::expressions::write_value;

/// Compiled `CHECK` constraints of a table.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    table: String,
    conditions: Vec<(String, Arc<dyn PhysicalExpr>)>,
}

impl Checks {
    /// Compiles the check constraints of a table.
    ///
    /// # Errors
    /// If a condition can no longer be planned.
    pub fn compile(table: &Table) -> Result<Self> {
        let conditions = table.constraints.checks.iter();
        let conditions =
            conditions.map(|check| Ok((check.name.clone(), compile_condition(&check.condition, &table.schema)?)));
        Ok(Self { table: table.name.clone(), conditions: conditions.collect::<Result<_>>()? })
    }

    /// Checks that no condition is false for a row of the batch.
    ///
    /// # Errors
    /// If a condition is false for a row, or cannot be evaluated.
    pub fn check(&self, rows: &RecordBatch) -> EngineResult<()> {
        for (name, condition) in &self.conditions {
            let results = condition.evaluate(rows)?.into_array(rows.num_rows())?;
            let results = results.as_boolean();
            if results.true_count() + results.null_count() == rows.num_rows() {
                continue;
            }
            let Some(row) = results.iter().position(|result| result == Some(false)) else { continue };
            let error = Violation::Check {
                table: self.table.clone(),
                constraint: name.clone(),
                row: format_row(condition, rows, row)?,
            };
            return Err(DataFusionError::External(Box::new(QueryError::from(error))));
        }
        Ok(())
    }
}

/// Formats the values of the columns that a condition reads.
fn format_row(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, row: usize) -> EngineResult<String> {
    let columns: BTreeSet<usize> = collect_columns(condition).iter().map(|column| column.index()).collect();
    let schema = rows.schema();
    let value = |index: &usize| Ok(write_value(rows.column(*index), row)?);
    let names: Vec<&str> = columns.iter().map(|index| schema.field(*index).name().as_str()).collect();
    let values = columns.iter().map(value).collect::<EngineResult<Vec<_>>>()?;
    Ok(format!("({})=({})", names.join(", "), values.join(", ")))
}
