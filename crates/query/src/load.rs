//! Rows into blocks: the operator under `INSERT`, `COPY ... FROM` and `CREATE TABLE AS`.
//!
//! ```text
//! input partition 0 ──> batches until a block is full ──┐ encode and write, as many at once as there are threads
//! input partition 1 ──> batches until a block is full ──┤
//!                                                       ▼
//!                               all blocks, in order ──> one commit
//! ```
//!
//! Nothing is visible before the commit, and an error before it leaves no trace.
//!
//! Rows of a table that is sorted are looked at on the way, and sorted first if they are not in order: see `sorted.rs`.
//! Rows of a table that is divided into partitions come together first, and are gathered by partition: see `divide.rs`.

mod blocks;
mod divide;
mod few;
mod moved;
mod sorted;

use std::fmt::{self, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, EvaluationType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning as OutputPartitioning,
    PlanProperties,
};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use taut_store::{Catalog, CatalogEdit, CommitError, NewBlock, OldRows, RowOrder, Store, Table, TableId};
use taut_types::{BlockSize, Partitioning, Schema, TableDesign};

use crate::changes::{Changes, WrittenRows};
use crate::conform::Conform;
use crate::constraints::index_keys;
use crate::live::old_rows;
use crate::mover::Pace;
use crate::progress::ProgressCounter;
use crate::repartition::complete_partitions;
use crate::rewrite::rebuild_indexes;

pub(crate) use blocks::{BlockWriter, string_bytes};
use blocks::{Conformed, parts_of};
pub(crate) use divide::{Divider, SAMPLE_ROWS, settles, settling_rows};
pub(crate) use few::is_few;
use few::{Gathered, gather, may_be_few};
use moved::{Moving, OldIds};
pub(crate) use sorted::in_order;
use sorted::{Ends, InputOrder, SortKey, can_rerun, is_out_of_order};

/// Where rows go.
#[derive(Clone, Debug)]
pub enum Target {
    /// A table that exists.
    Table(Arc<Table>),
    /// A table that the commit creates.
    NewTable {
        /// Its name.
        name: String,
        /// Its columns.
        schema: Arc<Schema>,
        /// Its design.
        design: Arc<TableDesign>,
    },
    /// A table of which some blocks and all rows that are in none are replaced by the same rows in the order of a design.
    Sorted {
        /// The table as it is read: with these blocks alone.
        table: Arc<Table>,
        /// Its design from then on.
        design: Arc<TableDesign>,
        /// Its partitions from then on, where they are known.
        partitioning: Option<Arc<Partitioning>>,
    },
    /// A table of which the rows of some blocks and pages go to other blocks of its design. Where the input has the ids of
    /// rows behind the columns, whoever knows a row by its id finds it again.
    Moved {
        /// The table as it is read: with these blocks and pages alone.
        part: Arc<Table>,
        /// How the rows lie afterwards.
        order: RowOrder,
    },
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Table(table) | Self::Sorted { table, .. } | Self::Moved { part: table, .. } => &table.name,
            Self::NewTable { name, .. } => name,
        }
    }

    fn schema(&self) -> &Arc<Schema> {
        match self {
            Self::Table(table) | Self::Sorted { table, .. } | Self::Moved { part: table, .. } => &table.schema,
            Self::NewTable { schema, .. } => schema,
        }
    }

    fn design(&self) -> &Arc<TableDesign> {
        match self {
            Self::Table(table) | Self::Moved { part: table, .. } => &table.design,
            Self::NewTable { design, .. } | Self::Sorted { design, .. } => design,
        }
    }

    /// The partitions of the rows, where they are known.
    fn partitioning(&self) -> Option<Arc<Partitioning>> {
        match self {
            Self::Table(table) | Self::Moved { part: table, .. } => partitioning_of(table),
            Self::NewTable { .. } => None,
            Self::Sorted { partitioning, .. } => partitioning.clone(),
        }
    }
}

/// The partitions of a table, where they are known.
pub(crate) fn partitioning_of(table: &Table) -> Option<Arc<Partitioning>> {
    table.partitions.as_ref().map(|partitions| Arc::new(partitions.partitioning.clone()))
}

/// A target as a table that can only be inserted into: what a plan that fills it names.
#[derive(Debug)]
pub struct TargetTable {
    /// The store.
    pub store: Arc<Store>,
    /// Where rows go.
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
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        _insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(InsertExec::new(Arc::clone(&self.store), self.target.clone(), input)))
    }
}

/// Writes the rows of its input to a table, commits, and yields their number as `count`.
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
    /// Inserts into a table that exists.
    pub fn into_table(store: Arc<Store>, table: Arc<Table>, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(store, Target::Table(table), input)
    }

    /// Inserts the rows of a plan into a table, of which nothing is planned any more. They are sorted, unless the plan is
    /// one that [`in_order`] made.
    pub fn of_planned(store: Arc<Store>, table: Arc<Table>, input: Arc<dyn ExecutionPlan>, is_in_order: bool) -> Self {
        let target = Target::Table(table);
        let order = match is_in_order {
            true => InputOrder::required(&target),
            false => InputOrder::of_planned(&target, &input),
        };
        Self { order, ..Self::new(store, target, input) }
    }

    /// Inserts the rows of an input, whose columns are those of the target by place.
    pub fn new(store: Arc<Store>, target: Target, input: Arc<dyn ExecutionPlan>) -> Self {
        let order = InputOrder::of(&target, &input);
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
        // A partition more would tear the order of arrival apart.
        vec![false]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        match self.order {
            InputOrder::Required(_) => vec![Distribution::SinglePartition],
            InputOrder::Any | InputOrder::Watched(_) | InputOrder::Sorted(_) => {
                vec![Distribution::UnspecifiedDistribution]
            }
        }
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let requirement = match &self.order {
            InputOrder::Required(key) => key.ordering(&self.input.schema()),
            InputOrder::Any | InputOrder::Watched(_) | InputOrder::Sorted(_) => None,
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
            changes.map_or_else(|| Changes::at_once(Arc::clone(&self.store)), |changes| changes.as_ref().clone());
        let (target, mut input) = (self.target.clone(), Arc::clone(&self.input));
        let mut order = self.order.clone();
        let bytes_written = MetricBuilder::new(&self.metrics).counter("bytes_written", 0);
        let blocks_written = MetricBuilder::new(&self.metrics).counter("blocks_written", 0);
        let rows_sorted = MetricBuilder::new(&self.metrics).counter("rows_sorted", 0);
        let insert = async move {
            let progress = context.session_config().get_extension::<ProgressCounter>();
            if let (Target::Table(table), Some(transaction)) = (&target, changes.transaction())
                && may_be_few(&input, table)
            {
                match gather(&input, table, &context).await? {
                    Gathered::Few(batches) => {
                        check_constraints(table, &transaction.snapshot()).map_err(external)?;
                        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                        for batch in batches {
                            transaction.insert_rows(table.id, &batch).map_err(external)?;
                            changes.wrote(table, WrittenRows::New(batch));
                        }
                        return count_batch(rows);
                    }
                    Gathered::Many(rest) if matches!(order, InputOrder::Required(_)) => input = rest,
                    Gathered::Many(rest) => {
                        // Rows of all partitions fill the same blocks.
                        input = Arc::new(CoalescePartitionsExec::new(rest));
                        order = InputOrder::of_planned(&target, &input);
                    }
                }
            }
            let written =
                write_blocks(&changes, &target, input, order, Arc::clone(&context), progress.as_deref()).await?;
            let Written { blocks, is_sorted, old_ids } = written;
            let rows: u64 = blocks.iter().map(|block| block.entry().rows).sum();
            rows_sorted.add(if is_sorted { rows as usize } else { 0 });
            bytes_written.add(blocks.iter().map(|block| block.entry().file_bytes as usize).sum());
            blocks_written.add(blocks.len());
            let threads = context.session_config().target_partitions();
            let files = blocks.iter().map(|block| Arc::clone(block.file())).collect();
            let table = commit(&changes, &target, blocks, &old_ids)?;
            if let Target::Table(table) = &target {
                changes.wrote(table, WrittenRows::Blocks(files));
            }
            // The rows are in, whatever comes of this. What is left over answers as well, shows in `taut.partitions` and
            // `taut.indexes`, and is taken up by the next load, or by CREATE INDEX IF NOT EXISTS.
            if changes.transaction().is_none() {
                let leftover = async {
                    let _ = complete_partitions(&changes, table, threads).await;
                    let _ = complete_indexes(&changes, &target, threads).await;
                };
                changes.run_leftover(leftover).await;
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

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn commit(changes: &Changes, target: &Target, blocks: Vec<NewBlock>, old_ids: &OldIds) -> Result<TableId> {
    let mut old = match target {
        Target::Sorted { table: part, .. } | Target::Moved { part, .. } => {
            old_rows(part, &part.blocks, true).map_err(external)?
        }
        Target::Table(_) | Target::NewTable { .. } => OldRows::default(),
    };
    if matches!(target, Target::Moved { .. }) {
        old.moves = old_ids.moves(&blocks).map_err(external)?.map(Arc::new);
    }
    changes
        .commit(|edit| match target {
            Target::Table(table) => {
                // The new run counts as sorted by what the table is sorted by now.
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
            Target::Moved { part, order } => {
                let newest = edit.catalog().table_of(part.id).ok_or(CommitError::NoTable { table: part.id })?;
                check_design(part, newest)?;
                edit.replace_rows(part.id, old, blocks, *order)?;
                Ok(part.id)
            }
        })
        .map_err(external)
}

/// Refuses rows that were compared with other constraints than a table has by now.
///
/// # Errors
/// When its constraints, or the foreign keys to it, are others than when it was looked up.
pub(crate) fn check_constraints(looked_up: &Table, catalog: &Catalog) -> std::result::Result<(), CommitError> {
    match catalog.table_of(looked_up.id).is_none_or(|newest| newest.constraints == looked_up.constraints) {
        true => Ok(()),
        false => Err(CommitError::ConstraintsChanged { table: looked_up.name.clone() }),
    }
}

/// Refuses to overwrite what another statement has changed in the design of a table, indexes aside.
///
/// # Errors
/// When it is not that of the table as it was looked up.
pub(crate) fn check_design(looked_up: &Table, newest: &Table) -> std::result::Result<(), CommitError> {
    let indexes = || looked_up.design.indexes.clone();
    let newest_design = TableDesign { indexes: indexes(), ..newest.design.as_ref().clone() };
    match newest_design == *looked_up.design {
        true => Ok(()),
        false => Err(CommitError::Design { table: looked_up.name.clone() }),
    }
}

/// Replaces rows of a table by blocks of another design and other partitions, in the order of the design.
pub(crate) fn replace_all(
    edit: &mut CatalogEdit,
    table: &Table,
    old: OldRows,
    (design, partitioning): (&TableDesign, Option<&Partitioning>),
    blocks: Vec<NewBlock>,
) -> std::result::Result<(), CommitError> {
    // Indexes are not this statement's: another one may have changed them.
    let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
    check_design(table, newest)?;
    // Rows that came meanwhile are sorted as the table was before.
    if design.sort_by != newest.design.sort_by && newest.blocks.len() > old.blocks.len() {
        return Err(CommitError::SortOrder { table: table.name.clone() });
    }
    let mut design = TableDesign { indexes: newest.design.indexes.clone(), ..design.clone() };
    index_keys(&mut design, &newest.constraints, edit.catalog())?;
    let known = newest.partitions.as_ref().map(|partitions| partitions.partitioning.clone());
    edit.set_design(table.id, design)?;
    if let Some(partitioning) = partitioning
        && known.as_ref() != Some(partitioning)
    {
        edit.set_partitioning(table.id, partitioning.clone())?;
    }
    edit.replace_rows(table.id, old, blocks, RowOrder::Sorted)
}

/// Gives the new blocks the indexes that were created, and takes those that were dropped, while they were written.
async fn complete_indexes(changes: &Changes, target: &Target, threads: usize) -> Result<()> {
    let (Target::Table(table) | Target::Sorted { table, .. } | Target::Moved { part: table, .. }) = target else {
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

/// The rows of a load.
struct Rows {
    input: Arc<dyn ExecutionPlan>,
    moving: Arc<Moving>,
    schema: Arc<Schema>,
    progress: Option<ProgressCounter>,
}

impl Rows {
    /// The rows of a partition of the input, in the types of the table.
    fn partition(&self, partition: usize, context: Arc<TaskContext>) -> Result<Conformed> {
        let (moving, progress) = (Arc::clone(&self.moving), self.progress.clone());
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
        let conformed = paced.map(move |batch| {
            let batch = moving.batch(&batch?)?;
            if let Some(progress) = &progress {
                progress.add(batch.num_rows() as u64);
            }
            Ok(batch)
        });
        Ok(conformed.boxed())
    }
}

/// What a load has written.
struct Written {
    blocks: Vec<NewBlock>,
    /// Whether the rows went through a sort.
    is_sorted: bool,
    old_ids: OldIds,
}

/// Writes all rows of a plan as blocks, in the order of the table's design; where it has none, a partition's blocks come
/// before those of the next.
async fn write_blocks(
    changes: &Changes,
    target: &Target,
    input: Arc<dyn ExecutionPlan>,
    order: InputOrder,
    context: Arc<TaskContext>,
    progress: Option<&ProgressCounter>,
) -> Result<Written> {
    let threads = context.session_config().target_partitions();
    let context = in_order_of_files(&context);
    let writer = BlockWriter::new(changes, target.schema(), target.design(), threads);
    let old_ids = writer.old_ids.clone();
    let schema = Arc::clone(target.schema());
    let moving = match target {
        Target::Table(table) => Moving::of(Conform::of_table(&input.schema(), table)?),
        Target::Moved { .. } if input.schema().fields().len() > schema.len() => {
            Moving::with_ids(&input.schema(), &schema, target.name())?
        }
        _ => Moving::of(Conform::new(&input.schema(), &schema, target.name())?),
    };
    let moving = Arc::new(moving);
    let rows = Arc::new(Rows { input, moving, schema, progress: progress.cloned() });
    let streams = || -> Result<Vec<Conformed>> {
        let partitions = 0..rows.input.output_partitioning().partition_count();
        partitions.map(|partition| rows.partition(partition, Arc::clone(&context))).collect()
    };
    // Blocks for rows of all partitions of the input are filled from one stream.
    let design = target.design();
    let is_one = design.partition_by.is_some() || design.block_size == BlockSize::File;
    let watched = |key: &SortKey| -> Result<(Arc<Ends>, Vec<Conformed>)> {
        let streams = if is_one { vec![futures::stream::iter(streams()?).flatten().boxed()] } else { streams()? };
        let ends = Ends::new(key.clone(), streams.len());
        let watch = |(partition, rows)| ends.watch(partition, rows);
        let watched = streams.into_iter().enumerate().map(watch).collect();
        Ok((ends, watched))
    };
    let (key, is_watched) = match order {
        InputOrder::Any => {
            let parts = parts_of(writer, target, streams()?).await?;
            return Ok(Written { blocks: parts.into_iter().flatten().collect(), is_sorted: false, old_ids });
        }
        InputOrder::Required(key) => {
            // A plan that is wrong about its order must not make a table of it.
            let (ends, watched) = watched(&key)?;
            let parts = parts_of(writer, target, watched).await?;
            return Ok(Written { blocks: ends.in_order(parts)?, is_sorted: false, old_ids });
        }
        // Planning may have put an operator into the input that runs once.
        InputOrder::Watched(key) => (key, can_rerun(&rows.input)),
        InputOrder::Sorted(key) => (key, false),
    };
    if is_watched {
        let (ends, watched) = watched(&key)?;
        let written = parts_of(writer.clone(), target, watched).await;
        match written.and_then(|parts| ends.in_order(parts)) {
            Err(error) if is_out_of_order(&error) => {}
            result => return result.map(|blocks| Written { blocks, is_sorted: false, old_ids }),
        }
        if let Some(progress) = &rows.progress {
            progress.restart();
        }
    }
    let sorted = sorted::sorted(&key, &rows, context)?;
    let parts = parts_of(writer, target, vec![sorted]).await?;
    Ok(Written { blocks: parts.into_iter().flatten().collect(), is_sorted: true, old_ids })
}

/// A context in which a partition of files is read by its own stream alone, so that rows come in the order of files, and
/// can be read twice.
fn in_order_of_files(context: &TaskContext) -> Arc<TaskContext> {
    let mut config = context.session_config().clone();
    config.options_mut().execution.enable_file_stream_work_stealing = false;
    with_config(context, config)
}

fn with_config(context: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}
