//! A stored table in one snapshot, as a DataFusion table provider.

mod statistics;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Constraint, Constraints, DFSchema, Result, internal_datafusion_err, not_impl_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use taut_sql::{Names, ROW};
use taut_store::{Store, Table, UniqueKey};
use taut_types::{ColumnIndex, ColumnStatistics, LogicalType, Predicate};

use crate::constraints::default_expression;
use crate::load::InsertExec;
use crate::reads::StatementReads;
use crate::rules::selectivity;
use crate::scan::{ScanSource, map_columns, translate};

/// A table of a snapshot, with all or some of its columns.
#[derive(Debug)]
pub struct TautTable {
    store: Arc<Store>,
    stored: Arc<Table>,
    rows: u64,
    /// Columns that a statement sees, in order, as ordinals in the stored table. The ordinal after the last column
    /// stands for row ids.
    visible: Vec<usize>,
    visible_arrow: SchemaRef,
    /// Keys that the planner may use, as ordinals of visible columns. Computed on first use.
    keys: OnceLock<Option<Constraints>>,
    /// Whether the rows are known to obey the keys of the stored table.
    obeys_keys: bool,
    /// Default expressions by column name. Computed when a statement inserts.
    defaults: OnceLock<HashMap<String, Expr>>,
}

impl TautTable {
    /// Creates a provider for a table of a snapshot. With `names`, a statement sees only columns with these names, or
    /// the first column if the table has none of them.
    pub fn new(store: Arc<Store>, stored: Arc<Table>, names: Option<&Names>) -> Self {
        let (rows, arrow) = (stored.rows(), stored.schema.arrow());
        let is_visible = |place: &usize| names.is_none_or(|names| names.contains(arrow.field(*place).name()));
        let mut visible: Vec<_> = (0..arrow.fields().len()).filter(is_visible).collect();
        if visible.is_empty() {
            visible.push(0);
        }
        let visible_arrow = match visible.len() == arrow.fields().len() {
            true => arrow,
            false => {
                let fields = visible.iter().map(|place| Arc::clone(&arrow.fields()[*place]));
                Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
            }
        };
        let (keys, defaults) = (OnceLock::new(), OnceLock::new());
        Self { store, stored, rows, visible, visible_arrow, keys, obeys_keys: true, defaults }
    }

    /// Creates a provider with all columns of the table, followed by a column of row ids named [`ROW`].
    pub fn with_row_ids(store: Arc<Store>, stored: Arc<Table>) -> Self {
        let visible: Vec<usize> = (0..=stored.schema.len()).collect();
        let arrow = stored.schema.arrow();
        let fields: Vec<FieldRef> = arrow.fields().iter().cloned().chain([Arc::new(row_id_field())]).collect();
        Self::with_visible(store, stored, visible, Arc::new(ArrowSchema::new(fields)))
    }

    /// The same table without keys. For checks of whether its rows obey the keys, and for snapshots whose rows may not.
    pub fn without_keys(self) -> Self {
        Self { keys: OnceLock::from(None), obeys_keys: false, ..self }
    }

    /// As [`TautTable::new`], for visible columns that are already known: their ordinals and their Arrow schema.
    pub(crate) fn with_visible(
        store: Arc<Store>,
        stored: Arc<Table>,
        visible: Vec<usize>,
        visible_arrow: SchemaRef,
    ) -> Self {
        let rows = stored.rows();
        let (keys, defaults) = (OnceLock::new(), OnceLock::new());
        Self { store, stored, rows, visible, visible_arrow, keys, obeys_keys: true, defaults }
    }

    /// Columns that a statement sees: their ordinals in the stored table and their Arrow schema.
    pub(crate) fn visible(&self) -> (&[usize], &SchemaRef) {
        (&self.visible, &self.visible_arrow)
    }

    /// The stored table behind the provider.
    pub fn stored(&self) -> &Arc<Table> {
        &self.stored
    }

    /// Whether the rows are known to obey the keys of the stored table.
    pub fn obeys_keys(&self) -> bool {
        self.obeys_keys
    }

    /// Arrow schema of the stored table.
    pub fn arrow(&self) -> SchemaRef {
        self.stored.schema.arrow()
    }

    /// Whether a statement sees row ids.
    pub(crate) fn has_row_ids(&self) -> bool {
        self.visible.iter().any(|place| self.is_row_id(*place))
    }

    /// Whether an ordinal stands for the row ids.
    pub(crate) fn is_row_id(&self, place: usize) -> bool {
        place == self.stored.schema.len()
    }

    /// Arrow schema of the columns with these ordinals.
    ///
    /// # Errors
    /// If a column does not exist.
    pub(crate) fn output(&self, places: &[usize]) -> Result<ArrowSchema> {
        let arrow = self.arrow();
        let field = |place: &usize| match arrow.fields().get(*place) {
            Some(field) => Ok(Arc::clone(field)),
            None if self.is_row_id(*place) => Ok(Arc::new(row_id_field())),
            None => Err(internal_datafusion_err!("table {} has no column {place}", self.stored.name)),
        };
        Ok(ArrowSchema::new(places.iter().map(field).collect::<Result<Vec<_>>>()?))
    }

    /// Keys whose columns are all visible, for the planner. Keys with nullable columns are left out, because
    /// DataFusion's rules treat all nulls as equal.
    fn visible_keys(&self) -> Option<Constraints> {
        let place = |column: &ColumnIndex| self.visible.iter().position(|visible| *visible == column.index());
        let key = |key: &UniqueKey| {
            let places = key.columns.iter().map(place).collect::<Option<Vec<_>>>()?;
            Some(if key.is_primary { Constraint::PrimaryKey(places) } else { Constraint::Unique(places) })
        };
        let holds_nulls =
            |key: &&UniqueKey| key.columns.iter().any(|column| self.stored.schema.column(*column).nullable);
        let keys = self.stored.constraints.keys.iter().filter(|key| !holds_nulls(key));
        let keys: Vec<Constraint> = keys.filter_map(key).collect();
        (!keys.is_empty()).then(|| Constraints::new_unverified(keys))
    }

    /// Number of rows of the table in this snapshot.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Type of a column, and statistics of its values in blocks. `None` if the column does not exist, or if only the
    /// delta has rows.
    pub fn statistics_of(&self, name: &str) -> Option<(LogicalType, &ColumnStatistics)> {
        let column = self.stored.schema.index_of(name)?;
        let statistics = self.stored.statistics.get(column.index())?;
        let is_known = statistics.rows > 0 || self.stored.delta.has_no_pages();
        is_known.then(|| (self.stored.schema.column(column).logical_type, statistics))
    }

    /// Estimated number of distinct values of a column. Assumes that delta rows bring new values at the same rate as
    /// rows in blocks.
    pub fn distinct_of(&self, name: &str) -> Option<f64> {
        let (_, statistics) = self.statistics_of(name)?;
        let is_key = |key: &UniqueKey| self.stored.schema.index_of(name).is_some_and(|column| key.columns == [column]);
        if self.stored.constraints.keys.iter().any(is_key) {
            return Some((self.rows as f64 - statistics.nulls as f64).max(0.0));
        }
        let distinct = statistics.distinct_estimate() as f64;
        Some(distinct + distinct / (statistics.rows as f64).max(1.0) * self.stored.delta.rows() as f64)
    }

    /// Estimated share of rows that pass all conditions. At most the share of rows in partitions that the conditions
    /// admit.
    pub fn selectivity(&self, conditions: &[Expr]) -> f64 {
        let share = selectivity(conditions, &|column: &Column| self.statistics_of(column.name()));
        conditions.iter().filter_map(|condition| self.admitted_share(condition)).fold(share, f64::min)
    }

    /// Scan of `columns` of the stored table, for rows that pass conditions on visible columns.
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
            reads.scan(self.stored.id);
        }
        let table = Arc::new(Self::new(Arc::clone(&self.store), Arc::clone(&self.stored), None));
        let share = (!filters.is_empty()).then(|| self.selectivity(filters));
        let mut conditions = Vec::with_capacity(filters.len());
        if !filters.is_empty() {
            let schema = DFSchema::try_from(Arc::clone(&self.visible_arrow))?;
            for filter in filters {
                let condition = state.create_physical_expr(filter.clone(), &schema)?;
                let stored = |column: &PhysicalColumn| {
                    Some(PhysicalColumn::new(column.name(), *self.visible.get(column.index())?))
                };
                conditions.push(map_columns(&condition, stored)?);
            }
        }
        let partitions = state.config().target_partitions();
        ScanSource::try_new(table, columns, conditions, share, limit, partitions)
    }

    /// For each partition, whether rows in it may pass the predicate. `None` if the table is not partitioned.
    pub(crate) fn admitted_partitions(&self, predicate: &Predicate) -> Option<Vec<bool>> {
        self.stored.admitted_partitions(&predicate.column_tests)
    }

    /// Share of rows that a condition on the partition column admits: rows in blocks of admitted or no partition, and
    /// delta rows. `None` for conditions on other columns.
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
        let is_admitted = |place: usize| {
            let partition = self.stored.partition_of(place);
            partition.is_none_or(|partition| admitted.get(partition as usize).copied().unwrap_or(true))
        };
        let places = (0..self.stored.blocks.len()).filter(|place| is_admitted(*place));
        let left: u64 = places.map(|place| self.stored.blocks[place].entry().rows).sum();
        let elsewhere = self.stored.delta.rows();
        Some((left + elsewhere) as f64 / ((self.stored.block_rows() + elsewhere) as f64).max(1.0))
    }
}

/// The column of row ids.
fn row_id_field() -> Field {
    Field::new(ROW, DataType::UInt64, false)
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
                // The default was planned when it was declared.
                Some((column.name.clone(), default_expression(sql, column.logical_type).ok()?))
            });
            columns.collect()
        };
        self.defaults.get_or_init(defaults).get(column)
    }

    /// The scan evaluates every condition exactly, except for conditions on row ids.
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
            Some(places) => places.iter().map(|place| self.visible[*place]).collect(),
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
            reads.insert_into(self.stored.id);
        }
        if insert_op != InsertOp::Append {
            return not_impl_err!("INSERT {insert_op} into table {}; INSERT INTO adds rows", self.stored.name);
        }
        Ok(Arc::new(InsertExec::into_table(Arc::clone(&self.store), Arc::clone(&self.stored), input)))
    }
}
