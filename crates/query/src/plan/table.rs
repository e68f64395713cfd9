//! A stored table in one snapshot, as a DataFusion table provider: its scans, inserts, defaults and estimates.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Constraints, DFSchema, Result, ScalarValue, internal_err, not_impl_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use taut_sql::ROW;
use taut_types::ColumnIndex;

use crate::constraints::default_expression;
use crate::exec::insert::{InsertExec, Target};
use crate::exec::reads::StatementReads;
use crate::exec::scan::{IndexedConditions, ScanSource, TautTable, translate};
use crate::plan::rules::selectivity;

impl TautTable {
    /// Estimated share of rows that pass all conditions. It is at most the share of rows in partitions that the
    /// conditions admit.
    pub fn selectivity(&self, conditions: &[Expr]) -> f64 {
        let share = selectivity(conditions, &|column: &Column| self.statistics_of(column.name()));
        conditions.iter().filter_map(|condition| self.admitted_share(condition)).fold(share, f64::min)
    }

    /// Creates a scan of `columns` of the stored table, for rows that pass conditions on visible columns.
    ///
    /// # Errors
    /// If a condition cannot be computed, or a column does not exist.
    pub fn source(
        &self,
        state: &dyn Session,
        columns: Vec<usize>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<ScanSource> {
        if let Some(reads) = state.config().get_extension::<StatementReads>() {
            reads.record_scan(&self.store, self.stored.id);
        }
        let whole = Self::whole(Arc::clone(&self.store), Arc::clone(&self.stored));
        let table = Arc::new(Self { is_attached: self.is_attached, ..whole });
        let IndexedConditions { conditions: filters, implied } = IndexedConditions::new(filters, &self.stored)?;
        let share = (!filters.is_empty()).then(|| self.selectivity(&filters));
        let mut conditions = Vec::with_capacity(filters.len());
        if !filters.is_empty() {
            let schema = DFSchema::try_from(self.arrow())?;
            for filter in filters.into_iter().chain(implied) {
                conditions.push(state.create_physical_expr(filter, &schema)?);
            }
        }
        let partitions = state.config().target_partitions();
        ScanSource::try_new(table, columns, conditions, share, limit, partitions)
    }

    /// Adds the hidden columns to rows of the visible columns, with nulls. Their values are computed when the rows are
    /// written.
    fn with_hidden_columns(&self, rows: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if self.stored.constraints.index_columns.is_empty() {
            return Ok(rows);
        }
        let (schema, arrow) = (rows.schema(), self.arrow());
        let mut given = schema.fields().iter().enumerate();
        let value = |index: usize| -> Result<(Arc<dyn PhysicalExpr>, String)> {
            let name = arrow.field(index).name().clone();
            if self.stored.constraints.is_hidden(ColumnIndex::from(index)) {
                return Ok((lit(ScalarValue::try_from(arrow.field(index).data_type())?), name));
            }
            match given.next() {
                Some((position, field)) => Ok((Arc::new(PhysicalColumn::new(field.name(), position)), name)),
                None => internal_err!("too few columns for table {}", self.stored.name),
            }
        };
        let values = (0..arrow.fields().len()).map(value).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(values, rows)?))
    }

    /// Share of rows that a condition on the partition column admits: rows in admitted partitions, in unpartitioned
    /// blocks and in the delta. `None` for conditions on other columns.
    fn admitted_share(&self, condition: &Expr) -> Option<f64> {
        let partitioning = &self.stored.partitions.as_ref()?.partitioning;
        let name = &self.stored.schema.column(partitioning.design().column).name;
        if !condition.column_refs().iter().any(|column| column.name() == name) {
            return None;
        }
        let unqualified = condition.clone().transform(|node| match node {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))),
            node => Ok(Transformed::no(node)),
        });
        let schema = DFSchema::try_from(self.arrow()).ok()?;
        let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let condition = create_physical_expr(&unqualified.ok()?.data, &schema, &properties, &planning).ok()?;
        let predicate = translate(&[condition], &self.stored.schema, &self.arrow(), None).ok()?;
        let admitted = self.admitted_partitions(&predicate)?;
        let is_admitted = |index: usize| {
            let partition = self.stored.partition_of(index);
            partition.is_none_or(|partition| admitted.get(partition as usize).copied().unwrap_or(true))
        };
        let indexes = (0..self.stored.blocks.len()).filter(|index| is_admitted(*index));
        let admitted_rows: u64 = indexes.map(|index| self.stored.blocks[index].entry().rows).sum();
        let delta_rows = self.stored.delta.rows();
        Some((admitted_rows + delta_rows) as f64 / ((self.stored.block_rows() + delta_rows) as f64).max(1.0))
    }
}

#[async_trait]
impl TableProvider for TautTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.visible_arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.keys.get_or_init(|| self.visible_keys()).as_ref()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        let defaults = || {
            let columns = self.stored.constraints.defaults.iter().filter_map(|(column, sql)| {
                let column = self.stored.schema.column(*column);
                // The default was planned when it was declared, so it is valid.
                Some((column.name.clone(), default_expression(sql, column.logical_type).ok()?))
            });
            columns.collect()
        };
        self.defaults.get_or_init(defaults).get(column)
    }

    /// The scan evaluates every condition exactly, except conditions on row ids.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let has_row_ids = self.has_row_ids();
        let reads_ids = |filter: &Expr| has_row_ids && filter.column_refs().iter().any(|column| column.name() == ROW);
        let answer = |filter: &&Expr| match reads_ids(filter) {
            true => TableProviderFilterPushDown::Unsupported,
            false => TableProviderFilterPushDown::Exact,
        };
        Ok(filters.iter().map(answer).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(indexes) => indexes.iter().map(|index| self.visible[*index]).collect(),
            None => self.visible.clone(),
        };
        Ok(DataSourceExec::from_data_source(self.source(state, columns, filters, limit)?))
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(reads) = state.config().get_extension::<StatementReads>() {
            reads.record_target(&self.store, self.stored.id);
        }
        if insert_op != InsertOp::Append {
            return not_impl_err!("INSERT {insert_op} into table {}; INSERT INTO adds rows", self.stored.name);
        }
        if self.is_attached {
            return not_impl_err!("INSERT into table {} of another database", self.stored.name);
        }
        let input = self.with_hidden_columns(input)?;
        let target = Target::Table(Arc::clone(&self.stored));
        Ok(Arc::new(InsertExec::plan(Arc::clone(&self.store), target, input, state)?))
    }
}
