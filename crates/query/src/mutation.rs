//! The rows of a mutation's query, told apart: which rows of the table go, and which come.
//!
//! ```text
//! query       | taut row | taut action | new values |       one row for each row to change, or more where a join has more
//!                  │            │             │
//!                  ▼            ▼             ▼
//!             ChangedRows: the ids of rows that are deleted or replaced, each once
//!                               └─> rows to insert, and rows with new values: the output, which is inserted
//! ```

mod first;

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
use taut_store::{RowId, RowSet};

use self::first::FirstRows;
use crate::error::QueryError;
use crate::statement::{Action, MutationKind, Outputs};

/// Rows of [`ChangedRowsExec::telling_actions`] as `RETURNING` sees them, and those of them that are inserted.
///
/// # Errors
/// When the actions are not behind the columns.
pub fn split_by_action(batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch)> {
    let Some(last) = batch.num_columns().checked_sub(1) else {
        return internal_err!("rows without actions");
    };
    let actions = cast(batch.column(last), &DataType::Int64)?;
    let actions = actions.as_primitive::<Int64Type>();
    let rows = batch.project(&(0..last).collect::<Vec<_>>())?;
    let is_inserted = actions.values().iter().map(|action| Some(*action != Action::Delete as i64)).collect();
    let inserted = filter_record_batch(&rows, &is_inserted)?;
    Ok((rows, inserted))
}

/// The rows that a mutation takes away.
#[derive(Debug, Default)]
pub struct Changed {
    /// Those that others replace.
    pub replaced: RowSet,
    /// Those that no other replaces.
    pub deleted: RowSet,
}

impl Changed {
    /// Takes in rows that are all replaced, or all deleted, and tells which of them come the first time.
    fn add(&mut self, kind: MutationKind, rows: &[u64]) -> BooleanBuffer {
        let Self { replaced, deleted } = self;
        let (to, other) = if kind == MutationKind::Update { (replaced, deleted) } else { (deleted, replaced) };
        let rows: Vec<RowId> = rows.iter().copied().map(RowId).collect();
        let mut is_first = BooleanBufferBuilder::new(rows.len());
        // They mostly come segment by segment.
        for part in rows.chunk_by(|row, next| (row.unit(), row.segment()) == (next.unit(), next.segment())) {
            if other.is_empty() && to.append(part) {
                is_first.append_n(part.len(), true);
            } else {
                part.iter().for_each(|row| is_first.append(!other.contains(*row) && to.insert(*row)));
            }
        }
        is_first.finish()
    }
}

/// The same while the mutation runs.
pub type ChangedRows = Arc<Mutex<Changed>>;

/// Notes the rows that a mutation takes away, and hands on those that it inserts; of a deletion, the deleted ones.
#[derive(Debug)]
pub struct ChangedRowsExec {
    input: Arc<dyn ExecutionPlan>,
    outputs: Outputs,
    kind: MutationKind,
    /// Keys, by the places of their columns in the output, of which each is inserted once.
    keys: Vec<Vec<usize>>,
    changed: ChangedRows,
    /// Whether deleted rows are handed on, too, and which are deleted in a column behind the others: [`ACTION`].
    tells_actions: bool,
    first: Arc<OnceLock<Mutex<FirstRows>>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl ChangedRowsExec {
    /// The operator over the plan of a mutation's query. Of rows that have one of `keys` in common, columns by their places
    /// in the table, the first alone is handed on.
    ///
    /// # Errors
    /// When the plan does not have the columns of the query.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        outputs: Outputs,
        kind: MutationKind,
        keys: Vec<Vec<usize>>,
        changed: ChangedRows,
    ) -> Result<Self> {
        Self::over(input, outputs, kind, keys, changed, false)
    }

    /// As [`ChangedRowsExec::try_new`], for a mutation that hands on deleted rows, too, with the action behind the columns.
    ///
    /// # Errors
    /// When the plan does not have the columns of the query, or no actions.
    pub fn telling_actions(self) -> Result<Self> {
        Self::over(self.input, self.outputs, self.kind, self.keys, self.changed, true)
    }

    fn over(
        input: Arc<dyn ExecutionPlan>,
        outputs: Outputs,
        kind: MutationKind,
        keys: Vec<Vec<usize>>,
        changed: ChangedRows,
        tells_actions: bool,
    ) -> Result<Self> {
        let places = places_of(&outputs, tells_actions);
        let schema = Arc::new(input.schema().project(&places)?);
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (first, metrics, properties) = (Arc::default(), ExecutionPlanMetricsSet::new(), Arc::new(properties));
        Ok(Self { input, outputs, kind, keys, changed, tells_actions, first, metrics, properties })
    }
}

/// The columns of a query that are handed on.
fn places_of(outputs: &Outputs, tells_actions: bool) -> Vec<usize> {
    outputs.columns.clone().chain(outputs.action.filter(|_| tells_actions)).collect()
}

/// What is done to the rows of a batch.
struct Sorter {
    outputs: Outputs,
    kind: MutationKind,
    tells_actions: bool,
    changed: ChangedRows,
    schema: SchemaRef,
    first: Arc<OnceLock<Mutex<FirstRows>>>,
}

impl Sorter {
    fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = self.outputs.row.map(|place| batch.column(place).as_primitive_opt::<UInt64Type>());
        let rows = match rows {
            Some(None) => return internal_err!("the id of a row is no number"),
            rows => rows.flatten(),
        };
        let actions = self.outputs.action.map(|place| cast(batch.column(place), &DataType::Int64)).transpose()?;
        let actions = actions.as_ref().map(|actions| actions.as_primitive::<Int64Type>());
        if let (None, Some(rows)) = (actions, rows.filter(|rows| rows.null_count() == 0))
            && matches!(self.kind, MutationKind::Update | MutationKind::Delete)
        {
            let is_first = self.changed.lock().add(self.kind, rows.values());
            return self.output(batch, is_first);
        }
        let mut changed = self.changed.lock();
        let mut is_written = BooleanBufferBuilder::new(batch.num_rows());
        for place in 0..batch.num_rows() {
            let row = rows.filter(|rows| rows.is_valid(place)).map(|rows| RowId(rows.value(place)));
            let action = match (actions, self.kind) {
                (Some(actions), _) => Action::from_code(actions.value(place)),
                (None, MutationKind::Insert) => Some(Action::Insert),
                (None, MutationKind::Delete) => Some(Action::Delete),
                (None, MutationKind::Update | MutationKind::Merge) => Some(Action::Update),
            };
            let action = action.ok_or_else(|| internal_datafusion_err!("an action without a meaning"))?;
            let is_first = match action {
                Action::Nothing | Action::Insert => true,
                Action::Update | Action::Delete => {
                    let row = row.ok_or_else(|| internal_datafusion_err!("a row to change without an id"))?;
                    let Changed { replaced, deleted } = &mut *changed;
                    let (to, other) = if action == Action::Update { (replaced, deleted) } else { (deleted, replaced) };
                    !other.contains(row) && to.insert(row)
                }
            };
            if !is_first && matches!(self.kind, MutationKind::Merge | MutationKind::Insert) {
                let error = QueryError::Cardinality { verb: self.kind.verb() };
                return Err(DataFusionError::External(Box::new(error)));
            }
            let is_output = match action {
                Action::Nothing => false,
                Action::Insert | Action::Update => true,
                // For RETURNING.
                Action::Delete => self.kind == MutationKind::Delete || self.tells_actions,
            };
            is_written.append(is_output && is_first);
        }
        drop(changed);
        self.output(batch, is_written.finish())
    }

    /// The new values of those rows of a batch that are written.
    fn output(&self, batch: &RecordBatch, is_written: BooleanBuffer) -> Result<RecordBatch> {
        let places = places_of(&self.outputs, self.tells_actions);
        let columns: Vec<ArrayRef> = places.into_iter().map(|place| Arc::clone(batch.column(place))).collect();
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let output = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let output = filter_record_batch(&output, &BooleanArray::from(is_written))?;
        match self.first.get() {
            Some(first) => {
                let is_first = first.lock().of_batch(&output)?;
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
                Ok(Arc::new(Self::over(input, outputs, self.kind, self.keys.clone(), changed, self.tells_actions)?))
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
        let tells_actions = self.tells_actions;
        if !self.keys.is_empty() && self.first.get().is_none() {
            // Another partition may be faster.
            let _ = self.first.set(Mutex::new(FirstRows::of(&self.keys, &schema, &context)?));
        }
        let sorter = Sorter {
            outputs,
            kind,
            tells_actions,
            changed,
            schema: Arc::clone(&schema),
            first: Arc::clone(&self.first),
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let _timer = metrics.elapsed_compute().timer();
            Ok(sorter.batch(&batch?)?.record_output(&metrics))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
