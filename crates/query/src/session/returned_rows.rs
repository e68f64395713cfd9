//! Rows of a mutation with `RETURNING`: the rows that `RETURNING` reads, and the rows to insert.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::Result as ArrowResult;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, plan_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::LogicalPlan;
use taut_sql::MutationKind;
use taut_store::Table;
use taut_types::ColumnIndex;

use crate::error::{QueryError, Result};
use crate::exec::mutation::split_by_action;
use crate::write::coerce::Coercion;

/// Rejects aggregates and window functions in `RETURNING`, outside of its subqueries.
pub(super) fn check_returning(plan: &LogicalPlan) -> datafusion::common::Result<()> {
    let mut refused = None;
    plan.apply(|node| {
        refused = match node {
            LogicalPlan::Aggregate(_) => Some("aggregate"),
            LogicalPlan::Window(_) => Some("window"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    })?;
    match refused {
        Some(kind) => plan_err!("{kind} functions are not allowed in RETURNING"),
        None => Ok(()),
    }
}

/// Rows of a mutation with `RETURNING`.
pub(super) struct ReturnedRows {
    /// Rows that `RETURNING` reads: the visible columns of the table, then columns of joined relations.
    pub returned: MemTable,
    /// Rows to insert into the table. Not used for `DELETE`.
    pub inserted: MemTable,
}

impl ReturnedRows {
    /// Converts the output of `ChangedRowsExec`, which has `schema`, to the column types of the table.
    ///
    /// # Errors
    /// If a row does not meet the constraints of the table.
    pub fn new(
        batches: Vec<RecordBatch>,
        schema: &SchemaRef,
        (table, kind): (&Table, MutationKind),
        config: &ConfigOptions,
    ) -> Result<Self> {
        let mem_table = |batches| Ok::<_, QueryError>(MemTable::try_new(table.schema.arrow(), vec![batches])?);
        let visible: Vec<usize> = table.visible_columns().map(ColumnIndex::index).collect();
        let visible_table = |batches: Vec<RecordBatch>| {
            let batches = batches.iter().map(|batch| batch.project(&visible)).collect::<ArrowResult<Vec<_>>>();
            let schema = table.schema.arrow().project(&visible).map_err(DataFusionError::from)?;
            Ok::<_, QueryError>(MemTable::try_new(Arc::new(schema), vec![batches.map_err(DataFusionError::from)?])?)
        };
        let coerce_all = |coercion: Coercion, batches: &[RecordBatch]| {
            batches.iter().map(|batch| coercion.coerce(batch)).collect::<datafusion::common::Result<Vec<_>>>()
        };
        if kind == MutationKind::Merge {
            let split = batches.iter().map(split_by_action).collect::<datafusion::common::Result<Vec<_>>>()?;
            let (rows, inserted): (Vec<_>, Vec<_>) = split.into_iter().unzip();
            let columns =
                Arc::new(schema.project(&(0..table.schema.len()).collect::<Vec<_>>()).map_err(DataFusionError::from)?);
            // Deleted rows may not meet the current checks, which may be newer than the rows.
            let returned = coerce_all(Coercion::without_checks(&columns, table)?.in_zone(config), &rows)?;
            let inserted = coerce_all(Coercion::for_table(&columns, table)?.in_zone(config), &inserted)?;
            return Ok(Self { returned: visible_table(returned)?, inserted: mem_table(inserted)? });
        }
        let (own, joined): (Vec<usize>, Vec<usize>) =
            (0..schema.fields().len()).partition(|index| *index < table.schema.len());
        let own_schema = Arc::new(schema.project(&own).map_err(DataFusionError::from)?);
        let own_batches = batches.iter().map(|batch| batch.project(&own)).collect::<ArrowResult<Vec<_>>>();
        let coercion = match kind {
            MutationKind::Delete => Coercion::new(&own_schema, &table.schema, &table.name)?,
            _ => Coercion::for_table(&own_schema, table)?.in_zone(config),
        };
        let own_batches = coerce_all(coercion, &own_batches.map_err(DataFusionError::from)?)?;
        if joined.is_empty() {
            return Ok(Self { returned: visible_table(own_batches.clone())?, inserted: mem_table(own_batches)? });
        }
        let columns = table.visible_columns().map(|column| table.schema.arrow().field(column.index()).clone());
        let joined_fields = joined.iter().map(|index| schema.field(*index).clone());
        let returned = Arc::new(Schema::new(columns.chain(joined_fields).collect::<Vec<_>>()));
        let rows = own_batches.iter().zip(&batches).map(|(own, whole)| {
            let columns = visible.iter().map(|index| own.column(*index));
            let columns = columns.chain(joined.iter().map(|index| whole.column(*index))).cloned().collect();
            RecordBatch::try_new(Arc::clone(&returned), columns)
        });
        let rows = rows.collect::<ArrowResult<Vec<_>>>().map_err(DataFusionError::from)?;
        Ok(Self { returned: MemTable::try_new(returned, vec![rows])?, inserted: mem_table(own_batches)? })
    }
}
