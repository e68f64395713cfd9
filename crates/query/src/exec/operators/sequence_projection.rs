//! Projections that call functions on sequences.
//!
//! Users see which row gets which number. Therefore the operator requires its rows in one partition, in the order that
//! the input had when it was planned. A later rule cannot drop that order. Calls that affect each other, such as
//! `nextval('s')` beside `currval('s')`, are computed for one row after the other, as in PostgreSQL.

use std::fmt::{self, Formatter};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::ProjectionMapping;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{Distribution, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::StreamExt;

use crate::expressions::{SequenceUse, sequence_use};

/// A projection whose expressions call functions on sequences.
#[derive(Debug)]
pub struct SequenceProjectionExec {
    expressions: Arc<[ProjectionExpr]>,
    schema: SchemaRef,
    input: Arc<dyn ExecutionPlan>,
    /// Order of the input when it was planned.
    order: Option<LexOrdering>,
    is_row_by_row: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SequenceProjectionExec {
    /// Returns the operator for a projection, or `None` if the projection calls no functions on sequences.
    ///
    /// # Errors
    /// If DataFusion cannot compute the properties of the projection.
    pub fn from_projection(projection: &ProjectionExec) -> Result<Option<Self>> {
        let is_row_by_row = match sequence_use(projection.expr().iter().map(|item| &item.expr))? {
            SequenceUse::None => return Ok(None),
            SequenceUse::RowsInOrder => false,
            SequenceUse::RowByRow => true,
        };
        let (input, schema) = (Arc::clone(projection.input()), projection.schema());
        let order = input.output_ordering().cloned();
        Self::new(projection.expr().into(), schema, input, order, is_row_by_row).map(Some)
    }

    fn new(
        expressions: Arc<[ProjectionExpr]>,
        schema: SchemaRef,
        input: Arc<dyn ExecutionPlan>,
        order: Option<LexOrdering>,
        is_row_by_row: bool,
    ) -> Result<Self> {
        // DataFusion considers a call with constant arguments a constant, and would drop a sort by it.
        let known = |item: &ProjectionExpr| match is_volatile(&item.expr) {
            true => (Arc::new(UnKnownColumn::new(&item.alias)) as Arc<dyn PhysicalExpr>, item.alias.clone()),
            false => (Arc::clone(&item.expr), item.alias.clone()),
        };
        let mapping = ProjectionMapping::try_new(expressions.iter().map(known), &input.schema())?;
        let properties = PlanProperties::new(
            input.equivalence_properties().project(&mapping, Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { expressions, schema, input, order, is_row_by_row, properties, metrics })
    }
}

/// Computes the columns of a projection.
struct Projected {
    expressions: Arc<[ProjectionExpr]>,
    schema: SchemaRef,
    is_row_by_row: bool,
}

impl Projected {
    fn compute(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = match self.is_row_by_row && rows > 1 {
            true => {
                let of_rows = (0..rows).map(|row| self.evaluate(&batch.slice(row, 1))).collect::<Result<Vec<_>>>()?;
                let column = |index: usize| {
                    let values: Vec<_> = of_rows.iter().map(|columns| columns[index].as_ref()).collect();
                    Ok(concat(&values)?)
                };
                (0..self.expressions.len()).map(column).collect::<Result<Vec<_>>>()?
            }
            false => self.evaluate(batch)?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.expressions.iter().map(|item| item.expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
    }
}

impl DisplayAs for SequenceProjectionExec {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        let items: Vec<_> = self.expressions.iter().map(|item| format!("{} as {}", item.expr, item.alias)).collect();
        write!(formatter, "SequenceProjectionExec: expr=[{}]", items.join(", "))?;
        if self.is_row_by_row { formatter.write_str(", row by row") } else { Ok(()) }
    }
}

impl ExecutionPlan for SequenceProjectionExec {
    fn name(&self) -> &str {
        "SequenceProjectionExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(|order| OrderingRequirements::new(order.into()))]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for item in self.expressions.iter() {
            if visit(&item.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => {
                let (expressions, schema) = (Arc::clone(&self.expressions), Arc::clone(&self.schema));
                Ok(Arc::new(Self::new(expressions, schema, input, self.order.clone(), self.is_row_by_row)?))
            }
            _ => internal_err!("a projection has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (expressions, schema) = (Arc::clone(&self.expressions), Arc::clone(&self.schema));
        let columns = Projected { expressions, schema, is_row_by_row: self.is_row_by_row };
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let _timer = metrics.elapsed_compute().timer();
            let computed = columns.compute(&batch?)?;
            metrics.record_output(computed.num_rows());
            Ok(computed)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// Returns the row count of the input as inexact. With an exact count, the planner could answer an aggregate
    /// without calling the functions.
    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let [input] = inputs else { return internal_err!("a projection has one input") };
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = input.num_rows.to_inexact();
        Ok(Arc::new(statistics))
    }
}
