//! Functions in SQL in `FROM`.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DFSchema, Result};
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};

use super::header::Header;
use super::subqueries::replaced_columns;
use super::types::{as_type, checked_columns};

#[derive(Debug)]
pub(super) struct SqlTableFunction {
    pub(super) header: Header,
    /// The rows, in which parameters are outer columns.
    pub(super) rows: LogicalPlan,
}

/// Returns the rows of a body, with columns of these names and types.
pub(super) fn rows_of(body: &LogicalPlan, names: &[String], targets: &[DataType]) -> Result<LogicalPlan> {
    let types = checked_columns(body.schema(), targets)?;
    let columns = body.schema().columns().into_iter().zip(&types).zip(targets).zip(names);
    let columns =
        columns.map(|(((column, from), target), name)| as_type(Expr::Column(column), from, target).alias(name));
    LogicalPlanBuilder::from(body.clone()).project(columns.collect::<Vec<_>>())?.build()
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
