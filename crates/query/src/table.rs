//! A stored table as DataFusion sees it, in one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ColumnStatistics as EngineStatistics, DFSchema, Result, ScalarValue, not_impl_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use taut_store::{Store, Table};
use taut_types::{ColumnIndex, ColumnStatistics, Key, LogicalType, Predicate};

use crate::load::InsertExec;
use crate::rules::selectivity;
use crate::scan::{ScanSource, map_columns, translate};
use crate::statement::Names;

/// A table of a snapshot, or some of its columns.
#[derive(Debug)]
pub struct TautTable {
    store: Arc<Store>,
    stored: Arc<Table>,
    rows: u64,
    /// The columns that a statement sees, in order, by their places in the stored table.
    visible: Vec<usize>,
    visible_arrow: SchemaRef,
}

impl TautTable {
    /// The table of a store, as a snapshot has it. Where names are given, a statement sees no other columns, but one.
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
        Self { store, stored, rows, visible, visible_arrow }
    }

    /// As [`TautTable::new`], for columns that are known already by their places, and in Arrow.
    pub(crate) fn with_visible(
        store: Arc<Store>,
        stored: Arc<Table>,
        visible: Vec<usize>,
        visible_arrow: SchemaRef,
    ) -> Self {
        let rows = stored.rows();
        Self { store, stored, rows, visible, visible_arrow }
    }

    /// The columns that a statement sees, by their places in the stored table, and in Arrow.
    pub(crate) fn visible(&self) -> (&[usize], &SchemaRef) {
        (&self.visible, &self.visible_arrow)
    }

    /// The stored table.
    pub fn stored(&self) -> &Arc<Table> {
        &self.stored
    }

    /// The columns of the stored table in Arrow.
    pub fn arrow(&self) -> SchemaRef {
        self.stored.schema.arrow()
    }

    /// Rows of the table in this snapshot.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The type and statistics of a column, by its name.
    pub fn statistics_of(&self, name: &str) -> Option<(LogicalType, &ColumnStatistics)> {
        let column = self.stored.schema.index_of(name)?;
        Some((self.stored.schema.column(column).logical_type, self.stored.statistics.get(column.index())?))
    }

    /// The share of rows that pass a condition, about; not more than lie in partitions that it leaves.
    pub fn selectivity(&self, condition: &Expr) -> f64 {
        let share = selectivity(condition, &|column: &Column| self.statistics_of(column.name()));
        self.admitted_share(condition).map_or(share, |admitted| share.min(admitted))
    }

    /// For each partition of the table, whether rows in it may pass; `None` where it has no partitions.
    pub(crate) fn admitted_partitions(&self, predicate: &Predicate) -> Option<Vec<bool>> {
        self.stored.admitted_partitions(&predicate.column_tests)
    }

    /// The share of rows in blocks of partitions that a condition leaves, where it is one on their column.
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
        let predicate = translate(&[condition], &self.stored.schema, &self.arrow()).ok()?;
        let admitted = self.admitted_partitions(&predicate)?;
        let is_admitted = |place: usize| {
            let partition = self.stored.partition_of(place);
            partition.is_none_or(|partition| admitted.get(partition as usize).copied().unwrap_or(true))
        };
        let places = (0..self.stored.blocks.len()).filter(|place| is_admitted(*place));
        let rows: u64 = places.map(|place| self.stored.blocks[place].entry().rows).sum();
        Some(rows as f64 / (self.rows as f64).max(1.0))
    }

    /// A column's statistics for the engine: exact where they are values of the column and its order is that of SQL.
    pub(crate) fn column_statistics(&self, column: usize) -> EngineStatistics {
        let logical_type = self.stored.schema.column(ColumnIndex::from(column)).logical_type;
        let Some(statistics) = self.stored.statistics.get(column) else { return EngineStatistics::new_unknown() };
        let bound = |key: &Option<Key>| match key.as_ref().and_then(|key| scalar_of(key, logical_type)) {
            Some(value) if statistics.exact && !is_floating(logical_type) => Precision::Exact(value),
            Some(value) => Precision::Inexact(value),
            None => Precision::Absent,
        };
        EngineStatistics {
            null_count: Precision::Exact(usize::try_from(statistics.nulls).unwrap_or(usize::MAX)),
            min_value: bound(&statistics.min),
            max_value: bound(&statistics.max),
            sum_value: Precision::Absent,
            distinct_count: Precision::Inexact(statistics.distinct_estimate() as usize),
            byte_size: Precision::Absent,
        }
    }

    /// Bytes of one value of a column in Arrow, about.
    pub(crate) fn row_bytes(&self, column: usize) -> f64 {
        /// Bytes of a string's view.
        const VIEW_BYTES: f64 = 16.0;
        match self.stored.schema.column(ColumnIndex::from(column)).logical_type {
            LogicalType::Decimal { .. } => 16.0,
            logical_type => match logical_type.plain_bytes() {
                Some(bytes) => bytes as f64,
                None => {
                    let plain = self.stored.statistics.get(column).map_or(0, |statistics| statistics.plain_bytes);
                    VIEW_BYTES + plain as f64 / (self.rows as f64).max(1.0)
                }
            },
        }
    }
}

fn is_floating(logical_type: LogicalType) -> bool {
    matches!(logical_type, LogicalType::Real | LogicalType::Double)
}

/// A key as a value of the engine, where it has one.
fn scalar_of(key: &Key, logical_type: LogicalType) -> Option<ScalarValue> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(match (key, logical_type) {
        (Key::Number(number), LogicalType::Boolean) => ScalarValue::Boolean(Some(*number != 0)),
        (Key::Number(number), LogicalType::SmallInt) => ScalarValue::Int16(Some(i16::try_from(*number).ok()?)),
        (Key::Number(number), LogicalType::Integer) => ScalarValue::Int32(Some(i32::try_from(*number).ok()?)),
        (Key::Number(number), LogicalType::BigInt) => ScalarValue::Int64(Some(i64::try_from(*number).ok()?)),
        (Key::Number(number), LogicalType::Real) => {
            ScalarValue::Float32(Some(taut_types::f32_from_key(i32::try_from(*number).ok()?)))
        }
        (Key::Number(number), LogicalType::Double) => {
            ScalarValue::Float64(Some(taut_types::f64_from_key(i64::try_from(*number).ok()?)))
        }
        (Key::Number(number), LogicalType::Decimal { precision, scale }) => {
            ScalarValue::Decimal128(Some(*number), precision, scale as i8)
        }
        (Key::Number(number), LogicalType::Date) => ScalarValue::Date32(Some(i32::try_from(*number).ok()?)),
        (Key::Number(number), LogicalType::Timestamp) => {
            ScalarValue::TimestampMicrosecond(Some(i64::try_from(*number).ok()?), None)
        }
        (Key::Number(number), LogicalType::TimestampTz) => {
            ScalarValue::TimestampMicrosecond(Some(i64::try_from(*number).ok()?), Some("+00:00".into()))
        }
        (Key::Bytes(bytes), LogicalType::Varchar) => ScalarValue::Utf8View(Some(text(bytes)?)),
        (Key::Bytes(bytes), LogicalType::Bytea) => ScalarValue::BinaryView(Some(bytes.to_vec())),
        _ => return None,
    })
}

#[async_trait]
impl TableProvider for TautTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.visible_arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Every condition that is offered is evaluated in the scan, exactly.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Exact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = Arc::new(Self::new(Arc::clone(&self.store), Arc::clone(&self.stored), None));
        let columns = match projection {
            Some(places) => places.iter().map(|place| self.visible[*place]).collect(),
            None => self.visible.clone(),
        };
        let share = filters.iter().map(|filter| self.selectivity(filter)).reduce(|left, right| left * right);
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
        let source = ScanSource::try_new(table, columns, conditions, share, limit, partitions)?;
        Ok(DataSourceExec::from_data_source(source))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if insert_op != InsertOp::Append {
            return not_impl_err!("INSERT {insert_op} into table {}; INSERT INTO adds rows", self.stored.name);
        }
        Ok(Arc::new(InsertExec::into_table(Arc::clone(&self.store), Arc::clone(&self.stored), input)))
    }
}
