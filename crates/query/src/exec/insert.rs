//! Writes rows into blocks: the operator under `INSERT`, `COPY ... FROM` and `CREATE TABLE AS`.
//!
//! ```text
//! input partition 0 ──> batches until a block is full ──┐ encode and write, as many blocks at once as threads
//! input partition 1 ──> batches until a block is full ──┤
//!                                                       ▼
//!                               all blocks, in order ──> one commit
//! ```
//!
//! Nothing is visible before the commit. If an error occurs before the commit, nothing changes.
//!
//! If the rows for a sorted table do not arrive in its order, the load sorts them: see `insert/sorted.rs`. Rows for a
//! partitioned table are merged into one stream and then grouped by partition: see `write/partitioner.rs`.

mod small_insert;
mod sorted;

use std::fmt::{self, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, EvaluationType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning as OutputPartitioning,
    PlanProperties,
};
use futures::StreamExt;
use taut_store::{CommitError, NewBlock, OldRows, RowOrder, Store, Table, TableId};
use taut_types::{BlockSize, ColumnIndex, PartitionDesign, Partitioning, Schema, TableDesign};

use crate::exec::batches::with_config;
use crate::runtime::pace::Pace;
use crate::runtime::progress::ProgressCounter;
use crate::write::blocks::{BlockWriter, CoercedStream, write_streams};
use crate::write::changes::{Changes, WrittenRows};
use crate::write::coerce::Coercion;
use crate::write::commit::{check_constraints, check_design, partitioning_of, replace_all};
use crate::write::external;
use crate::write::live::old_rows;
use crate::write::repartition::complete_partitions;
use crate::write::rewrite::rebuild_indexes;
use crate::write::row_ids::{CoercionWithRowIds, OldIds};

pub(crate) use small_insert::fits_in_delta;
use small_insert::{BufferedInput, buffer_input, may_fit_in_delta};
pub(crate) use sorted::with_table_order;
use sorted::{InputOrder, PartitionEnds, SortKey, can_rerun, is_out_of_order};

/// Destination of a load.
#[derive(Clone, Debug)]
pub enum Target {
    /// An existing table.
    Table(Arc<Table>),
    /// A table that the commit creates.
    NewTable {
        /// Name of the table.
        name: String,
        /// Columns of the table.
        schema: Arc<Schema>,
        /// Design of the table.
        design: Arc<TableDesign>,
    },
    /// A table in which new blocks, sorted by `design`, replace the delta rows and some blocks. The rows stay the same.
    Sorted {
        /// The table with only the blocks that the load replaces.
        table: Arc<Table>,
        /// Design of the table after the commit.
        design: Arc<TableDesign>,
        /// Partitions of the table after the commit, if they are known.
        partitioning: Option<Arc<Partitioning>>,
    },
    /// A table in which new blocks of the same design replace some blocks and delta pages. The rows stay the same. If
    /// the input has row ids after the columns, row relocations are stored, so that a row is still found by its old id.
    Moved {
        /// The table with only the blocks and delta pages that the load replaces.
        table: Arc<Table>,
        /// Order of the rows after the commit.
        order: RowOrder,
    },
    /// A table in which new blocks replace all rows because some columns change their types.
    Retyped {
        /// The table before the commit.
        table: Arc<Table>,
        /// Columns of the table after the commit.
        schema: Arc<Schema>,
        /// The columns that change their types.
        columns: Vec<ColumnIndex>,
    },
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Table(table)
            | Self::Sorted { table, .. }
            | Self::Moved { table, .. }
            | Self::Retyped { table, .. } => &table.name,
            Self::NewTable { name, .. } => name,
        }
    }

    fn schema(&self) -> &Arc<Schema> {
        match self {
            Self::Table(table) | Self::Sorted { table, .. } | Self::Moved { table, .. } => &table.schema,
            Self::NewTable { schema, .. } | Self::Retyped { schema, .. } => schema,
        }
    }

    /// Whether one of the columns at these indexes is a generated column, which the load computes.
    fn has_generated(&self, mut columns: impl Iterator<Item = usize>) -> bool {
        match self {
            Self::Table(table) => {
                columns.any(|column| table.constraints.generated.contains_key(&ColumnIndex::from(column)))
            }
            _ => false,
        }
    }

    fn design(&self) -> &Arc<TableDesign> {
        match self {
            Self::Table(table) | Self::Moved { table, .. } | Self::Retyped { table, .. } => &table.design,
            Self::NewTable { design, .. } | Self::Sorted { design, .. } => design,
        }
    }

    /// Partitioning of the design, and the partitions of the table if they are known. `None` if the design has no
    /// partitioning.
    fn partitions(&self) -> Option<(PartitionDesign, Option<Arc<Partitioning>>)> {
        let known = match self {
            Self::Table(table) | Self::Moved { table, .. } | Self::Retyped { table, .. } => partitioning_of(table),
            Self::NewTable { .. } => None,
            Self::Sorted { partitioning, .. } => partitioning.clone(),
        };
        self.design().partition_by.map(|design| (design, known))
    }
}

/// Insert-only table over the target of a load, for logical plans that write to it.
#[derive(Debug)]
pub struct TargetTable {
    /// The store of the target.
    pub store: Arc<Store>,
    /// Destination of the rows.
    pub target: Target,
}

#[async_trait]
impl TableProvider for TargetTable {
    fn schema(&self) -> SchemaRef {
        self.target.schema().arrow()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        datafusion::common::internal_err!("the target of an insert is not read")
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        _insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(InsertExec::plan(Arc::clone(&self.store), self.target.clone(), input, state)?))
    }
}

/// Whether a plan contains a sort.
pub(crate) fn has_sort(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<SortExec>()))
}

/// Operator that writes the rows of its input to a table and commits them. Returns the number of rows as `count`.
#[derive(Debug)]
pub struct InsertExec {
    store: Arc<Store>,
    target: Target,
    input: Arc<dyn ExecutionPlan>,
    order: InputOrder,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl InsertExec {
    /// Creates an insert from a physical plan that is not optimized yet. A table without a sort order stores rows in
    /// the order of the query's `ORDER BY`.
    ///
    /// # Errors
    /// If DataFusion cannot traverse or rewrite the plan.
    pub fn plan(store: Arc<Store>, target: Target, input: Arc<dyn ExecutionPlan>, state: &dyn Session) -> Result<Self> {
        // The optimizer would drop a sort that no operator requires.
        let input = match target.design().sort_by.is_empty() && has_sort(&input)? {
            true => OutputRequirements::new_add_mode().optimize(input, state.config_options())?,
            false => input,
        };
        Ok(Self::new(store, target, input))
    }

    /// Creates an insert into a table from a physical plan that is not optimized further. The insert sorts the rows if
    /// necessary, unless `is_in_order` is true: callers set it for plans of [`with_table_order`].
    pub fn from_physical_plan(
        store: Arc<Store>,
        table: Arc<Table>,
        input: Arc<dyn ExecutionPlan>,
        is_in_order: bool,
    ) -> Self {
        let target = Target::Table(table);
        let order = match is_in_order {
            true => InputOrder::required(&target),
            false => InputOrder::for_physical_plan(&target, &input),
        };
        Self { order, ..Self::new(store, target, input) }
    }

    /// The plan that returns the rows to insert.
    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Whether the table has a sort order. The insert then writes the rows in that order.
    pub(crate) fn has_table_order(&self) -> bool {
        !matches!(self.order, InputOrder::Any)
    }

    /// Creates an insert in which the columns of the input match the target's columns by ordinal.
    fn new(store: Arc<Store>, target: Target, input: Arc<dyn ExecutionPlan>) -> Self {
        let order = InputOrder::for_input(&target, &input);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            OutputPartitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Eager);
        Self { store, target, input, order, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for InsertExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        let design = self.target.design();
        write!(formatter, "InsertExec: table={}, layout={}", self.target.name(), design.layout.name())?;
        match design.to_options(self.target.schema()).into_iter().find(|(option, _)| *option == "sort_by") {
            Some((_, columns)) => write!(formatter, ", sort_by=[{columns}]"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for InsertExec {
    fn name(&self) -> &str {
        "InsertExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // More partitions would lose the order of the rows.
        vec![false]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        match self.order {
            InputOrder::Required(_) => vec![Distribution::SinglePartition],
            InputOrder::Any | InputOrder::Checked(_) | InputOrder::Sorted(_) => {
                vec![Distribution::UnspecifiedDistribution]
            }
        }
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let requirement = match &self.order {
            InputOrder::Required(key) => key.ordering(&self.input.schema()),
            InputOrder::Any | InputOrder::Checked(_) | InputOrder::Sorted(_) => None,
        };
        vec![requirement.map(|ordering| OrderingRequirements::new(ordering.into()))]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => {
                let order = self.order.clone();
                Ok(Arc::new(Self { order, ..Self::new(Arc::clone(&self.store), self.target.clone(), input) }))
            }
            _ => datafusion::common::internal_err!("an insert has one input"),
        }
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let changes = context.session_config().get_extension::<Changes>();
        let changes =
            changes.map_or_else(|| Changes::autocommit(Arc::clone(&self.store)), |changes| changes.as_ref().clone());
        let (target, mut input) = (self.target.clone(), Arc::clone(&self.input));
        let mut order = self.order.clone();
        let bytes_written = MetricBuilder::new(&self.metrics).counter("bytes_written", 0);
        let blocks_written = MetricBuilder::new(&self.metrics).counter("blocks_written", 0);
        let rows_sorted = MetricBuilder::new(&self.metrics).counter("rows_sorted", 0);
        let insert = async move {
            let progress = context.session_config().get_extension::<ProgressCounter>();
            if let (Target::Table(table), Some(transaction)) = (&target, changes.transaction())
                && may_fit_in_delta(&input, table)
            {
                match buffer_input(&input, table, &context).await? {
                    BufferedInput::FitsInDelta(batches) => {
                        check_constraints(table, &transaction.snapshot()).map_err(external)?;
                        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                        for batch in batches {
                            transaction.insert_rows(table.id, &batch).map_err(external)?;
                            changes.record_written(table, WrittenRows::New(batch));
                        }
                        return count_batch(rows);
                    }
                    BufferedInput::TooLarge(replay) if matches!(order, InputOrder::Required(_)) => input = replay,
                    BufferedInput::TooLarge(replay) => {
                        // One stream, so that rows of all input partitions fill the same blocks.
                        input = Arc::new(CoalescePartitionsExec::new(replay));
                        order = InputOrder::for_physical_plan(&target, &input);
                    }
                }
            }
            let written =
                write_blocks(&changes, &target, input, order, Arc::clone(&context), progress.as_deref()).await?;
            let WrittenBlocks { blocks, is_sorted, old_ids } = written;
            let rows: u64 = blocks.iter().map(|block| block.entry().rows).sum();
            rows_sorted.add(if is_sorted { rows as usize } else { 0 });
            bytes_written.add(blocks.iter().map(|block| block.entry().file_bytes as usize).sum());
            blocks_written.add(blocks.len());
            let threads = context.session_config().target_partitions();
            let files = blocks.iter().map(|block| Arc::clone(block.file())).collect();
            let table = commit(&changes, &target, blocks, &old_ids)?;
            if let Target::Table(table) = &target {
                changes.record_written(table, WrittenRows::Blocks(files));
            }
            // The rows are committed already, so errors of this work are ignored. Queries return the right results
            // without it. `taut.partitions` and `taut.indexes` show what is missing. The next load, or CREATE INDEX IF
            // NOT EXISTS, completes it.
            if changes.transaction().is_none() {
                let completion = async {
                    let _ = complete_partitions(&changes, table, threads).await;
                    let _ = complete_indexes(&changes, &target, threads).await;
                };
                changes.run_after_commit(completion).await;
            }
            count_batch(rows)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(count_schema(), futures::stream::once(insert).boxed())))
    }
}

fn count_schema() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

fn count_batch(rows: u64) -> Result<RecordBatch> {
    let count: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
    Ok(RecordBatch::try_new(count_schema(), vec![count])?)
}

fn commit(changes: &Changes, target: &Target, blocks: Vec<NewBlock>, old_ids: &OldIds) -> Result<TableId> {
    let mut old = match target {
        Target::Sorted { table: part, .. } | Target::Moved { table: part, .. } => {
            old_rows(part, &part.blocks, true).map_err(external)?
        }
        Target::Table(_) | Target::NewTable { .. } | Target::Retyped { .. } => OldRows::default(),
    };
    if matches!(target, Target::Moved { .. }) {
        old.relocations = old_ids.relocations(&blocks).map_err(external)?.map(Arc::new);
    }
    changes
        .commit_last(|edit| match target {
            Target::Table(table) => {
                // The catalog assumes that the new sort run has the current sort order of the table.
                let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
                let sort_by = &newest.design.sort_by;
                if !sort_by.is_empty() && *sort_by != table.design.sort_by {
                    return Err(CommitError::SortOrder { table: table.name.clone() });
                }
                check_constraints(table, edit.catalog())?;
                edit.append_blocks(table.id, blocks).map(|()| table.id)
            }
            Target::NewTable { name, schema, design } => {
                let table = edit.create_table(name, schema.as_ref().clone(), design.as_ref().clone())?;
                edit.append_blocks(table, blocks)?;
                Ok(table)
            }
            Target::Sorted { table, design, partitioning } => {
                replace_all(edit, table, old, (design, partitioning.as_deref()), blocks)?;
                Ok(table.id)
            }
            Target::Moved { table: part, order } => {
                let newest = edit.catalog().table_of(part.id).ok_or(CommitError::NoTable { table: part.id })?;
                check_design(part, newest)?;
                edit.replace_rows(part.id, old, blocks, *order)?;
                Ok(part.id)
            }
            Target::Retyped { table, schema, columns } => {
                check_constraints(table, edit.catalog())?;
                edit.truncate(table.id)?;
                for column in columns {
                    edit.set_type(table.id, *column, schema.column(*column).logical_type)?;
                }
                edit.append_blocks(table.id, blocks)?;
                Ok(table.id)
            }
        })
        .map_err(external)
}

/// Adds or drops indexes in the new blocks if a `CREATE INDEX` or `DROP INDEX` committed while the blocks were written.
async fn complete_indexes(changes: &Changes, target: &Target, threads: usize) -> Result<()> {
    let (Target::Table(table)
    | Target::Sorted { table, .. }
    | Target::Moved { table, .. }
    | Target::Retyped { table, .. }) = target
    else {
        return Ok(());
    };
    let newest = changes.snapshot().table_of(table.id).map(|table| table.design.indexes.clone());
    match newest {
        Some(indexes) if indexes != target.design().indexes => {
            rebuild_indexes(changes, table.id, &indexes, threads, None).await.map_err(external)
        }
        _ => Ok(()),
    }
}

/// Input of a load, with the conversion of its rows to the types of the table.
struct LoadInput {
    input: Arc<dyn ExecutionPlan>,
    coercion: Arc<CoercionWithRowIds>,
    schema: Arc<Schema>,
    progress: Option<ProgressCounter>,
}

impl LoadInput {
    /// Returns the rows of one input partition, converted to the types of the table.
    fn partition(&self, partition: usize, context: Arc<TaskContext>) -> Result<CoercedStream> {
        let (coercion, progress) = (Arc::clone(&self.coercion), self.progress.clone());
        let pace = context.session_config().get_extension::<Pace>();
        let paced = self.input.execute(partition, context)?.then(move |batch| {
            let pace = pace.clone();
            async move {
                if let Some(pace) = pace {
                    pace.rest().await;
                }
                batch
            }
        });
        let coerced = paced.map(move |batch| {
            let batch = coercion.coerce(&batch?)?;
            if let Some(progress) = &progress {
                progress.add(batch.num_rows() as u64);
            }
            Ok(batch)
        });
        Ok(coerced.boxed())
    }
}

/// Blocks that a load has written.
struct WrittenBlocks {
    blocks: Vec<NewBlock>,
    /// Whether the load itself sorted the rows. False if they arrived in order or the table has no sort order.
    is_sorted: bool,
    old_ids: OldIds,
}

/// Writes all rows of a plan as blocks, in the sort order of the table's design. Without a sort order, the blocks of
/// one input partition come before the blocks of the next partition.
async fn write_blocks(
    changes: &Changes,
    target: &Target,
    input: Arc<dyn ExecutionPlan>,
    order: InputOrder,
    context: Arc<TaskContext>,
    progress: Option<&ProgressCounter>,
) -> Result<WrittenBlocks> {
    let threads = context.session_config().target_partitions();
    let context = with_file_order(&context);
    let writer = BlockWriter::new(changes, (target.name(), target.schema()), target.design(), threads);
    let old_ids = writer.old_ids.clone();
    let schema = Arc::clone(target.schema());
    let config = context.session_config().options();
    let coercion = match target {
        Target::Table(table) => {
            CoercionWithRowIds::without_ids(Coercion::for_table(&input.schema(), table)?.in_zone(config))
        }
        Target::Moved { .. } if input.schema().fields().len() > schema.len() => {
            CoercionWithRowIds::with_ids(&input.schema(), &schema, target.name())?
        }
        _ => CoercionWithRowIds::without_ids(Coercion::new(&input.schema(), &schema, target.name())?.in_zone(config)),
    };
    let coercion = Arc::new(coercion);
    let rows = Arc::new(LoadInput { input, coercion, schema, progress: progress.cloned() });
    let streams = || -> Result<Vec<CoercedStream>> {
        let partitions = 0..rows.input.output_partitioning().partition_count();
        partitions.map(|partition| rows.partition(partition, Arc::clone(&context))).collect()
    };
    // Blocks with rows of several input partitions are filled from one stream.
    let design = target.design();
    let is_single_stream = design.partition_by.is_some() || design.block_size == BlockSize::File;
    let check_order = |key: &SortKey| -> Result<(Arc<PartitionEnds>, Vec<CoercedStream>)> {
        let streams =
            if is_single_stream { vec![futures::stream::iter(streams()?).flatten().boxed()] } else { streams()? };
        let ends = PartitionEnds::new(key.clone(), streams.len());
        let check = |(partition, rows)| ends.check_order(partition, rows);
        let watched = streams.into_iter().enumerate().map(check).collect();
        Ok((ends, watched))
    };
    let (key, is_checked) = match order {
        InputOrder::Any => {
            let parts = write_streams(writer, &target.partitions(), streams()?).await?;
            return Ok(WrittenBlocks { blocks: parts.into_iter().flatten().collect(), is_sorted: false, old_ids });
        }
        InputOrder::Required(key) => {
            // The order is checked, because the plan may not return the order that it declares.
            let (ends, watched) = check_order(&key)?;
            let parts = write_streams(writer, &target.partitions(), watched).await?;
            return Ok(WrittenBlocks { blocks: ends.concatenate(parts)?, is_sorted: false, old_ids });
        }
        // `Checked` needs an input that can run twice. The optimizer may have added an operator that can run only once.
        InputOrder::Checked(key) => (key, can_rerun(&rows.input)),
        InputOrder::Sorted(key) => (key, false),
    };
    if is_checked {
        let (ends, watched) = check_order(&key)?;
        let written = write_streams(writer.clone(), &target.partitions(), watched).await;
        match written.and_then(|parts| ends.concatenate(parts)) {
            Err(error) if is_out_of_order(&error) => {}
            result => return result.map(|blocks| WrittenBlocks { blocks, is_sorted: false, old_ids }),
        }
        if let Some(progress) = &rows.progress {
            progress.restart();
        }
    }
    let sorted = sorted::sort_rows(&key, &rows, context)?;
    let parts = write_streams(writer, &target.partitions(), vec![sorted]).await?;
    Ok(WrittenBlocks { blocks: parts.into_iter().flatten().collect(), is_sorted: true, old_ids })
}

/// Returns a context in which each stream reads only the files of its own partition. Rows are then in the order of the
/// files, and the files can be read twice.
fn with_file_order(context: &TaskContext) -> Arc<TaskContext> {
    let mut config = context.session_config().clone();
    config.options_mut().execution.enable_file_stream_work_stealing = false;
    with_config(context, config)
}
