//! The columns that `COPY t TO 'file'` writes: all except generated columns, which `COPY t FROM 'file'` does not
//! accept.

use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use taut_types::ColumnIndex;

use crate::exec::scan::TautTable;

/// Removes the generated columns from a plan that copies a whole table. Returns other plans unchanged, for example the
/// plan of `COPY (SELECT * FROM t) TO 'file'`.
///
/// # Errors
/// If all columns of the table are generated.
pub fn without_generated_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Copy(copy) = plan else { return Ok(plan) };
    let LogicalPlan::TableScan(scan) = copy.input.as_ref() else { return Ok(LogicalPlan::Copy(copy)) };
    let source = source_as_provider(&scan.source)?;
    let Some(table) = source.downcast_ref::<TautTable>().map(TautTable::stored) else {
        return Ok(LogicalPlan::Copy(copy));
    };
    let is_generated = |name: &str| {
        let column: Option<ColumnIndex> = table.schema.index_of(name);
        column.is_some_and(|column| table.constraints.generated.contains_key(&column))
    };
    let columns = copy.input.schema().columns().into_iter().filter(|column: &Column| !is_generated(&column.name));
    let columns: Vec<Expr> = columns.map(Expr::Column).collect();
    if columns.len() == copy.input.schema().fields().len() {
        return Ok(LogicalPlan::Copy(copy));
    }
    let input = LogicalPlanBuilder::from(copy.input.as_ref().clone()).project(columns)?.build()?;
    let CopyTo { output_url, partition_by, file_type, options, .. } = copy;
    Ok(LogicalPlan::Copy(CopyTo::new(Arc::new(input), output_url, partition_by, file_type, options)))
}
