//! Collects the partitions of a plan into one stream, in the order of the table or of the files.
//!
//! A scan of a table is divided into runs: consecutive segments and pages. Threads compute the next runs ahead, and the
//! reader returns the rows of one run after the other:
//!
//! ```text
//!   runs of the table   0    1    2    3    4    5   ...
//!                       │    │    │    │
//!                     read  done  computed by threads, which wait when their buffers are full
//! ```
//!
//! While the first run is not ready, the reader's thread computes a later run. At first no other thread is started,
//! because the first rows may be enough, for example for a `LIMIT`. Other plans, such as scans of files, have one run
//! for each partition.

use std::collections::VecDeque;
use std::fmt::{self, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{Stream, StreamExt};
use taut_block::SEGMENT_ROWS;

use crate::exec::batches::with_config;
use crate::exec::scan::ScanRuns;

/// Maximum number of open runs per thread. A finished run is open until the runs before it are read.
const RUNS_PER_THREAD: usize = 2;

/// Operator that returns the rows of its input in order, in one partition.
#[derive(Debug)]
pub struct OrderedCollectExec {
    input: Arc<dyn ExecutionPlan>,
    /// Whether the input is one table scan, or row-wise operators above one.
    is_scan: bool,
    /// Number of rows after which the operator ends.
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl OrderedCollectExec {
    /// Collects an input that is one table scan, or row-wise operators above one.
    pub fn of_scan(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        Self::new(input, true, fetch)
    }

    /// Collects an input in which the rows of each partition follow the rows of the previous partition.
    pub fn of_partitions(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        Self::new(input, false, fetch)
    }

    fn new(input: Arc<dyn ExecutionPlan>, is_scan: bool, fetch: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, is_scan, fetch, properties: Arc::new(properties) }
    }
}

impl DisplayAs for OrderedCollectExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("OrderedCollectExec")?;
        match self.fetch {
            Some(fetch) => write!(formatter, ": fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for OrderedCollectExec {
    fn name(&self) -> &str {
        "OrderedCollectExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => Ok(Arc::new(Self::new(input, self.is_scan, self.fetch))),
            _ => internal_err!("a collector has one input"),
        }
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut config = context.session_config().clone();
        let (threads, batch_rows) = (config.target_partitions().max(1), config.batch_size().max(1));
        let batches_max = (SEGMENT_ROWS / batch_rows).max(1);
        let runs = self.is_scan.then(|| Arc::new(ScanRuns::new(batches_max * batch_rows, threads * RUNS_PER_THREAD)));
        match &runs {
            Some(runs) => config.set_extension(Arc::clone(runs)),
            // Each stream reads the files of its own partition.
            None => config.options_mut().execution.enable_file_stream_work_stealing = false,
        }
        let collector = Collector {
            input: Arc::clone(&self.input),
            context: with_config(&context, config),
            runs,
            threads,
            batches_max,
            opened: 0,
            window: VecDeque::new(),
            is_parallel: false,
            rows_left: self.fetch.unwrap_or(usize::MAX),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), collector)))
    }

    fn child_stats_requests(&self, _partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::new(input.as_ref().clone().with_fetch(self.fetch, 0, 1)?)),
            _ => internal_err!("a collector has one input"),
        }
    }
}

/// A run that is being computed, or has rows that are not read yet.
struct Run {
    rows: SendableRecordBatchStream,
    /// Whether a task computes the run.
    is_task: bool,
    has_ended: bool,
    /// Batches that the reader has computed ahead.
    buffered: VecDeque<Result<RecordBatch>>,
    returned_rows: usize,
}

struct Collector {
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// `None` if each partition of the input is a run.
    runs: Option<Arc<ScanRuns>>,
    threads: usize,
    /// Maximum number of batches that wait in a run.
    batches_max: usize,
    /// Number of runs opened so far.
    opened: usize,
    /// Open runs, in order. The reader reads the first one.
    window: VecDeque<Run>,
    /// Whether tasks compute runs ahead.
    is_parallel: bool,
    rows_left: usize,
}

impl Collector {
    /// Opens the next run. Returns `false` if there is none.
    fn open(&mut self, is_task: bool) -> Result<bool> {
        let partitions = self.input.output_partitioning().partition_count();
        let partition = match &self.runs {
            Some(runs) if runs.are_exhausted() => return Ok(false),
            Some(_) => self.opened % partitions,
            None if self.opened >= partitions => return Ok(false),
            None => self.opened,
        };
        // `execute` assigns a run to the scan, so runs are assigned in order.
        let rows = self.input.execute(partition, Arc::clone(&self.context))?;
        let rows = if is_task { spawn_buffered(rows, self.batches_max) } else { rows };
        self.opened += 1;
        self.window.push_back(Run { rows, is_task, has_ended: false, buffered: VecDeque::new(), returned_rows: 0 });
        Ok(true)
    }

    /// Opens runs until each thread has one, or the window of open runs is full.
    fn fill_window(&mut self) -> Result<()> {
        let runs_max = self.threads * RUNS_PER_THREAD;
        let running = |window: &VecDeque<Run>, is_task: bool| {
            window.iter().filter(|run| run.is_task == is_task && !run.has_ended).count()
        };
        let mut tasks = running(&self.window, true);
        while tasks + 1 < self.threads && self.window.len() < runs_max && self.open(true)? {
            tasks += 1;
        }
        if running(&self.window, false) == 0 && self.window.len() < runs_max {
            self.open(false)?;
        }
        Ok(())
    }

    /// Returns the next batch of the first run, or `None` if the run has ended.
    fn poll_first(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let Some(run) = self.window.front_mut() else { return Poll::Ready(None) };
        if let Some(batch) = run.buffered.pop_front() {
            return Poll::Ready(Some(batch));
        }
        let next = if run.has_ended { None } else { ready!(run.rows.poll_next_unpin(task)) };
        Poll::Ready(next)
    }

    /// Computes a batch of a later run on the thread of the reader. Pending if no later run can be advanced.
    fn poll_ahead(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let batches_max = self.batches_max;
        let ahead = self.window.iter_mut().skip(1).find(|run| !run.is_task && !run.has_ended);
        let Some(run) = ahead.filter(|run| run.buffered.len() < batches_max) else { return Poll::Pending };
        match ready!(run.rows.poll_next_unpin(task)) {
            Some(batch) => {
                run.has_ended = batch.is_err();
                run.buffered.push_back(batch);
            }
            None => run.has_ended = true,
        }
        Poll::Ready(())
    }

    fn poll_batch(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if self.window.is_empty() && !self.open(false)? {
                return Poll::Ready(None);
            }
            if self.is_parallel {
                self.fill_window()?;
            }
            match self.poll_first(task) {
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(batch))) => {
                    if let Some(run) = self.window.front_mut() {
                        run.returned_rows += batch.num_rows();
                    }
                    return Poll::Ready(Some(Ok(batch)));
                }
                Poll::Ready(None) => {
                    let run = self.window.pop_front();
                    if let (Some(run), Some(runs)) = (run, &self.runs) {
                        runs.adapt(run.returned_rows);
                    }
                }
                Poll::Pending if !self.is_parallel && self.threads > 1 => self.is_parallel = true,
                Poll::Pending => ready!(self.poll_ahead(task)),
            }
        }
    }
}

impl Stream for Collector {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rows_left == 0 {
            self.window.clear();
            return Poll::Ready(None);
        }
        let next = match ready!(self.poll_batch(task)) {
            Some(Ok(batch)) => {
                // The first batch may not be enough, so other threads start to compute runs.
                self.is_parallel = self.threads > 1;
                let batch = if batch.num_rows() > self.rows_left { batch.slice(0, self.rows_left) } else { batch };
                self.rows_left -= batch.num_rows();
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.rows_left = 0;
                Some(Err(error))
            }
            None => None,
        };
        Poll::Ready(next)
    }
}
