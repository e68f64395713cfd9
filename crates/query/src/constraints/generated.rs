//! Generated columns, whose values are computed from the other columns of their row. Index columns are computed last,
//! because an index may be on a generated column.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
use datafusion::physical_expr::PhysicalExpr;
use taut_store::Table;
use taut_types::ColumnIndex;

use super::expressions::compile_generated;
use crate::error::Result;

/// Compiled expressions of the generated columns of a table.
#[derive(Clone, Debug, Default)]
pub struct GeneratedColumns {
    /// Index of each generated column, with the expression over the row.
    expressions: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    /// Index of each index column, with the expression over the row.
    index_expressions: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    /// Schema of the table in which all columns may hold nulls.
    nullable: Option<SchemaRef>,
}

impl GeneratedColumns {
    /// Compiles the expressions of a table.
    ///
    /// # Errors
    /// If an expression can no longer be planned.
    pub fn compile(table: &Table) -> Result<Self> {
        let generated = &table.constraints.generated;
        if generated.is_empty() {
            return Ok(Self::default());
        }
        let is_hidden = |column: &ColumnIndex| table.constraints.is_hidden(*column);
        let compile = |(column, sql): (&ColumnIndex, &String)| {
            let is_unusable = |other| generated.contains_key(&other) && (is_hidden(&other) || !is_hidden(column));
            Ok((column.index(), compile_generated(sql, *column, &table.schema, is_unusable)?))
        };
        let (hidden, others): (Vec<_>, Vec<_>) = generated.iter().partition(|(column, _)| is_hidden(column));
        let fields = table.schema.arrow().fields().clone();
        let nullable: Vec<Field> = fields.iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        Ok(Self {
            expressions: others.into_iter().map(compile).collect::<Result<_>>()?,
            index_expressions: hidden.into_iter().map(compile).collect::<Result<_>>()?,
            nullable: Some(Arc::new(ArrowSchema::new(nullable))),
        })
    }

    /// Whether the column at an index is generated.
    pub fn contains(&self, index: usize) -> bool {
        let mut all = self.expressions.iter().chain(&self.index_expressions);
        all.any(|(generated, _)| *generated == index)
    }

    /// Overwrites the generated columns with values that are computed from the other columns. `columns` has the columns
    /// of the table, in order and in their types, with `rows` rows.
    ///
    /// # Errors
    /// If an expression cannot be computed for a row.
    pub fn compute(&self, columns: &mut [ArrayRef], rows: usize) -> EngineResult<()> {
        let Some(schema) = &self.nullable else { return Ok(()) };
        let nulls = |index: usize| new_null_array(schema.field(index).data_type(), rows);
        let all = self.expressions.iter().chain(&self.index_expressions);
        all.for_each(|(index, _)| columns[*index] = nulls(*index));
        for expressions in [&self.expressions, &self.index_expressions].into_iter().filter(|list| !list.is_empty()) {
            let batch = RecordBatch::try_new(Arc::clone(schema), columns.to_vec())?;
            for (index, expression) in expressions {
                columns[*index] = expression.evaluate(&batch)?.into_array(rows)?;
            }
        }
        Ok(())
    }
}
