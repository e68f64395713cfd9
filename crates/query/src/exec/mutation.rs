//! Splits the rows of a mutation's query: records the ids of rows to remove, and returns the rows to insert. A mutation
//! is a statement that changes rows; its query computes the changes ([`taut_sql::Mutation`]).
//!
//! ```text
//! query       | taut row | taut action | new values |       a row for each change; with a join, one for each match
//!                  │            │             │
//!                  ▼            ▼             ▼
//!             ChangedRows: records the ids of rows that are deleted or replaced, each once
//!                               └─> output: the new rows and the new versions of updated rows, which are then inserted
//! ```

mod first;
#[cfg(test)]
mod tests;

use std::fmt::{self, Formatter};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use parking_lot::Mutex;
use taut_sql::{Action, MutationKind, Outputs};
use taut_store::{RowId, RowSet};

use self::first::FirstRows;
use crate::error::QueryError;

/// Splits a batch of [`ChangedRowsExec::returning_actions`] by the action of each row. Returns two batches without the
/// column of actions: all rows, for `RETURNING`, and the rows to insert.
///
/// # Errors
/// If the last column does not hold actions.
pub fn split_by_action(batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch)> {
    let Some(last) = batch.num_columns().checked_sub(1) else {
        return internal_err!("a batch without a column of actions");
    };
    let actions = cast(batch.column(last), &DataType::Int64)?;
    let actions = actions.as_primitive::<Int64Type>();
    let rows = batch.project(&(0..last).collect::<Vec<_>>())?;
    let is_inserted = actions.values().iter().map(|action| Some(*action != Action::Delete as i64)).collect();
    let inserted = filter_record_batch(&rows, &is_inserted)?;
    Ok((rows, inserted))
}

/// Rows of the table that a mutation removes.
#[derive(Debug, Default)]
pub struct RemovedRows {
    /// Old versions of updated rows.
    pub replaced: RowSet,
    /// Deleted rows.
    pub deleted: RowSet,
}

impl RemovedRows {
    /// Adds rows that are all replaced, or all deleted. Returns a bit for each row, set if the row was in neither set
    /// before.
    fn add(&mut self, kind: MutationKind, rows: &[u64]) -> BooleanBuffer {
        let Self { replaced, deleted } = self;
        let (target, other) = if kind == MutationKind::Update { (replaced, deleted) } else { (deleted, replaced) };
        let rows: Vec<RowId> = rows.iter().copied().map(RowId).collect();
        let mut is_first = BooleanBufferBuilder::new(rows.len());
        // Most rows arrive in the order of their segments, so consecutive rows of a segment are added together.
        for part in rows.chunk_by(|row, next| (row.container(), row.segment()) == (next.container(), next.segment())) {
            if other.is_empty() && target.append(part) {
                is_first.append_n(part.len(), true);
            } else {
                part.iter().for_each(|row| is_first.append(!other.contains(*row) && target.insert(*row)));
            }
        }
        is_first.finish()
    }
}

/// The rows that a running mutation removes, shared by its partitions.
pub type ChangedRows = Arc<Mutex<RemovedRows>>;

/// Operator that records the rows that a mutation removes and returns the rows that it inserts. For a `DELETE`, it
/// returns the deleted rows.
#[derive(Debug)]
pub struct ChangedRowsExec {
    input: Arc<dyn ExecutionPlan>,
    outputs: Outputs,
    kind: MutationKind,
    /// Keys, as ordinals of output columns. Of rows with equal values in the columns of a key, only the first is
    /// returned.
    keys: Vec<Vec<usize>>,
    changed: ChangedRows,
    /// Whether deleted rows are returned too, with the action of each row as the last column.
    returns_actions: bool,
    first: Arc<OnceLock<Mutex<FirstRows>>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl ChangedRowsExec {
    /// Creates the operator over the plan of a mutation's query. Keys are lists of ordinals of output columns. Of rows
    /// with equal values in the columns of a key, only the first is returned.
    ///
    /// # Errors
    /// If the plan lacks a column of `outputs`.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        outputs: Outputs,
        kind: MutationKind,
        keys: Vec<Vec<usize>>,
        changed: ChangedRows,
    ) -> Result<Self> {
        Self::build(input, outputs, kind, keys, changed, false)
    }

    /// Makes the operator return deleted rows too, with the action of each row as the last column.
    ///
    /// # Errors
    /// If the plan lacks a column of `outputs`.
    pub fn returning_actions(self) -> Result<Self> {
        Self::build(self.input, self.outputs, self.kind, self.keys, self.changed, true)
    }

    fn build(
        input: Arc<dyn ExecutionPlan>,
        outputs: Outputs,
        kind: MutationKind,
        keys: Vec<Vec<usize>>,
        changed: ChangedRows,
        returns_actions: bool,
    ) -> Result<Self> {
        let indexes = output_columns(&outputs, returns_actions);
        let schema = Arc::new(input.schema().project(&indexes)?);
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (first, metrics, properties) = (Arc::default(), ExecutionPlanMetricsSet::new(), Arc::new(properties));
        Ok(Self { input, outputs, kind, keys, changed, returns_actions, first, metrics, properties })
    }
}

/// Columns of the query that the operator returns.
fn output_columns(outputs: &Outputs, returns_actions: bool) -> Vec<usize> {
    outputs.columns.clone().chain(outputs.action.filter(|_| returns_actions)).collect()
}

/// Processes the batches of one input partition.
struct ChangeSplitter {
    outputs: Outputs,
    kind: MutationKind,
    returns_actions: bool,
    changed: ChangedRows,
    schema: SchemaRef,
    first: Arc<OnceLock<Mutex<FirstRows>>>,
}

impl ChangeSplitter {
    fn split_batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = self.outputs.row.map(|index| batch.column(index).as_primitive_opt::<UInt64Type>());
        let rows = match rows {
            Some(None) => return internal_err!("row ids are not numbers"),
            rows => rows.flatten(),
        };
        let actions = self.outputs.action.map(|index| cast(batch.column(index), &DataType::Int64)).transpose()?;
        let actions = actions.as_ref().map(|actions| actions.as_primitive::<Int64Type>());
        if let (None, Some(rows)) = (actions, rows.filter(|rows| rows.null_count() == 0))
            && matches!(self.kind, MutationKind::Update | MutationKind::Delete)
        {
            let is_first = self.changed.lock().add(self.kind, rows.values());
            return self.output(batch, is_first);
        }
        let mut changed = self.changed.lock();
        let mut is_returned = BooleanBufferBuilder::new(batch.num_rows());
        for index in 0..batch.num_rows() {
            let row = rows.filter(|rows| rows.is_valid(index)).map(|rows| RowId(rows.value(index)));
            let action = match (actions, self.kind) {
                (Some(actions), _) => Action::from_code(actions.value(index)),
                (None, MutationKind::Insert) => Some(Action::Insert),
                (None, MutationKind::Delete) => Some(Action::Delete),
                (None, MutationKind::Update | MutationKind::Merge) => Some(Action::Update),
            };
            let action = action.ok_or_else(|| internal_datafusion_err!("unknown code of an action"))?;
            let is_first = match action {
                Action::Nothing | Action::Insert => true,
                Action::Update | Action::Delete => {
                    let row = row.ok_or_else(|| internal_datafusion_err!("a changed row without an id"))?;
                    let RemovedRows { replaced, deleted } = &mut *changed;
                    let (target, other) =
                        if action == Action::Update { (replaced, deleted) } else { (deleted, replaced) };
                    !other.contains(row) && target.insert(row)
                }
            };
            if !is_first && matches!(self.kind, MutationKind::Merge | MutationKind::Insert) {
                let error = QueryError::Cardinality { verb: self.kind.verb() };
                return Err(DataFusionError::External(Box::new(error)));
            }
            let has_output = match action {
                Action::Nothing => false,
                Action::Insert | Action::Update => true,
                // `RETURNING` may read deleted rows.
                Action::Delete => self.kind == MutationKind::Delete || self.returns_actions,
            };
            is_returned.append(has_output && is_first);
        }
        drop(changed);
        self.output(batch, is_returned.finish())
    }

    /// Returns the output columns of the rows that `is_returned` selects. Of rows with equal keys, returns only the
    /// first.
    fn output(&self, batch: &RecordBatch, is_returned: BooleanBuffer) -> Result<RecordBatch> {
        let indexes = output_columns(&self.outputs, self.returns_actions);
        let columns: Vec<ArrayRef> = indexes.into_iter().map(|index| Arc::clone(batch.column(index))).collect();
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let output = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let output = filter_record_batch(&output, &BooleanArray::from(is_returned))?;
        match self.first.get() {
            Some(first) => {
                let is_first = first.lock().select_first(&output)?;
                Ok(filter_record_batch(&output, &is_first)?)
            }
            None => Ok(output),
        }
    }
}

impl DisplayAs for ChangedRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "ChangedRows: {}", self.kind.verb())
    }
}

impl ExecutionPlan for ChangedRowsExec {
    fn name(&self) -> &str {
        "ChangedRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => {
                let (outputs, changed) = (self.outputs.clone(), Arc::clone(&self.changed));
                Ok(Arc::new(Self::build(input, outputs, self.kind, self.keys.clone(), changed, self.returns_actions)?))
            }
            _ => internal_err!("changed rows have one input"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let (outputs, kind, changed) = (self.outputs.clone(), self.kind, Arc::clone(&self.changed));
        let returns_actions = self.returns_actions;
        if !self.keys.is_empty() && self.first.get().is_none() {
            // `set` fails if another partition has set a value meanwhile. That value is then used.
            let _ = self.first.set(Mutex::new(FirstRows::new(&self.keys, &schema, &context)?));
        }
        let splitter = ChangeSplitter {
            outputs,
            kind,
            returns_actions,
            changed,
            schema: Arc::clone(&schema),
            first: Arc::clone(&self.first),
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let _timer = metrics.elapsed_compute().timer();
            Ok(splitter.split_batch(&batch?)?.record_output(&metrics))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
