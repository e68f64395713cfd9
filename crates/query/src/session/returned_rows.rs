//! Rows of a mutation with `RETURNING`: those that it returns, and those that go into the table.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::datasource::MemTable;
use taut_sql::MutationKind;
use taut_store::Table;

use crate::error::{QueryError, Result};
use crate::exec::mutation::split_by_action;
use crate::write::coerce::Coercion;

/// Rows of a mutation with `RETURNING`.
pub(super) struct ReturnedRows {
    /// Rows that `RETURNING` reads.
    pub returned: MemTable,
    /// Rows that go into the table.
    pub inserted: MemTable,
}

impl ReturnedRows {
    /// Converts the output of the operator above the mutation's query. `schema` is the schema of this output.
    ///
    /// # Errors
    /// If a row does not meet the constraints of the table.
    pub fn of(batches: Vec<RecordBatch>, schema: &SchemaRef, table: &Table, kind: MutationKind) -> Result<Self> {
        let table_of = |batches| Ok::<_, QueryError>(MemTable::try_new(table.schema.arrow(), vec![batches])?);
        let conformed = |conform: Coercion, batches: &[RecordBatch]| {
            batches.iter().map(|batch| conform.batch(batch)).collect::<datafusion::common::Result<Vec<_>>>()
        };
        if kind == MutationKind::Merge {
            let split = batches.iter().map(split_by_action).collect::<datafusion::common::Result<Vec<_>>>()?;
            let (rows, inserted): (Vec<_>, Vec<_>) = split.into_iter().unzip();
            let columns =
                Arc::new(schema.project(&(0..table.schema.len()).collect::<Vec<_>>()).map_err(DataFusionError::from)?);
            // Deleted rows may not meet the current checks: they were written under others, or none.
            let returned = conformed(Coercion::new(&columns, &table.schema, &table.name)?, &rows)?;
            let inserted = conformed(Coercion::of_table(&columns, table)?, &inserted)?;
            return Ok(Self { returned: table_of(returned)?, inserted: table_of(inserted)? });
        }
        let conform = match kind {
            MutationKind::Delete => Coercion::new(schema, &table.schema, &table.name)?,
            _ => Coercion::of_table(schema, table)?,
        };
        let batches = conformed(conform, &batches)?;
        Ok(Self { returned: table_of(batches.clone())?, inserted: table_of(batches)? })
    }
}
