//! A stored table in one snapshot, with the columns that a statement sees.

mod statistics;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema as ArrowSchema, SchemaRef};
use datafusion::common::{Constraint, Constraints, Result, internal_datafusion_err};
use datafusion::logical_expr::Expr;
use taut_sql::{Names, ROW};
use taut_store::{Store, Table, UniqueKey};
use taut_types::{ColumnIndex, ColumnStatistics, LogicalType, Predicate};

/// A table of a snapshot, with all or some of its columns.
#[derive(Debug)]
pub struct TautTable {
    pub(crate) store: Arc<Store>,
    pub(crate) stored: Arc<Table>,
    pub(crate) rows: u64,
    /// Columns that a statement sees, in order, as ordinals in the stored table. The ordinal after the last column
    /// stands for row ids.
    pub(crate) visible: Vec<usize>,
    pub(crate) visible_arrow: SchemaRef,
    /// Keys that the planner may use, as ordinals of visible columns. Computed on first use.
    pub(crate) keys: OnceLock<Option<Constraints>>,
    /// Whether the rows are known to obey the keys of the stored table.
    pub(crate) obeys_keys: bool,
    /// Whether the table is in another database than the statement changes. Its id may equal that of a table there.
    pub(crate) is_attached: bool,
    /// Default expressions by column name. Computed when a statement inserts.
    pub(crate) defaults: OnceLock<HashMap<String, Expr>>,
}

impl TautTable {
    /// Creates a provider for a table of a snapshot. With `names` or `columns`, a statement sees only columns with
    /// these names, or the first column if the table has none of them.
    pub fn new(store: Arc<Store>, stored: Arc<Table>, names: Option<&Names>, columns: Option<&[String]>) -> Self {
        let (rows, arrow) = (stored.rows(), stored.schema.arrow());
        let is_named = |index: &usize| {
            let name = arrow.field(*index).name();
            names.is_none_or(|names| names.contains(name)) && columns.is_none_or(|columns| columns.contains(name))
        };
        let not_hidden = || stored.visible_columns().map(ColumnIndex::index);
        let mut visible: Vec<_> = not_hidden().filter(is_named).collect();
        if visible.is_empty() {
            visible.extend(not_hidden().next());
        }
        let visible_arrow = match visible.len() == arrow.fields().len() {
            true => arrow,
            false => {
                let fields = visible.iter().map(|index| Arc::clone(&arrow.fields()[*index]));
                Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
            }
        };
        let (keys, defaults) = (OnceLock::new(), OnceLock::new());
        Self { store, stored, rows, visible, visible_arrow, keys, obeys_keys: true, is_attached: false, defaults }
    }

    /// Creates a provider with all columns of the table, index columns included.
    pub fn whole(store: Arc<Store>, stored: Arc<Table>) -> Self {
        let (visible, arrow) = ((0..stored.schema.len()).collect(), stored.schema.arrow());
        Self::with_visible(store, stored, visible, arrow)
    }

    /// Creates a provider with all columns of the table, followed by a column of row ids named [`ROW`].
    pub fn with_row_ids(store: Arc<Store>, stored: Arc<Table>) -> Self {
        let visible: Vec<usize> = (0..=stored.schema.len()).collect();
        let arrow = stored.schema.arrow();
        let fields: Vec<FieldRef> = arrow.fields().iter().cloned().chain([Arc::new(row_id_field())]).collect();
        Self::with_visible(store, stored, visible, Arc::new(ArrowSchema::new(fields)))
    }

    /// Returns the same table without keys. Used to check whether the rows obey the keys, and for snapshots whose rows
    /// may not.
    pub fn without_keys(self) -> Self {
        Self { keys: OnceLock::from(None), obeys_keys: false, ..self }
    }

    /// The same table as one of another database. It has no keys for the planner, because foreign keys refer to tables
    /// by id.
    pub fn attached(self) -> Self {
        Self { is_attached: true, ..self.without_keys() }
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
        Self { store, stored, rows, visible, visible_arrow, keys, obeys_keys: true, is_attached: false, defaults }
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
        self.visible.iter().any(|index| self.is_row_id(*index))
    }

    /// Whether an ordinal stands for the row ids.
    pub(crate) fn is_row_id(&self, index: usize) -> bool {
        index == self.stored.schema.len()
    }

    /// Arrow schema of the columns with these ordinals.
    ///
    /// # Errors
    /// If a column does not exist.
    pub(crate) fn output(&self, indexes: &[usize]) -> Result<ArrowSchema> {
        let arrow = self.arrow();
        let field = |index: &usize| match arrow.fields().get(*index) {
            Some(field) => Ok(Arc::clone(field)),
            None if self.is_row_id(*index) => Ok(Arc::new(row_id_field())),
            None => Err(internal_datafusion_err!("table {} has no column {index}", self.stored.name)),
        };
        Ok(ArrowSchema::new(indexes.iter().map(field).collect::<Result<Vec<_>>>()?))
    }

    /// Keys whose columns are all visible, for the planner. Keys with nullable columns are omitted, because
    /// DataFusion's rules treat all nulls as equal.
    pub(crate) fn visible_keys(&self) -> Option<Constraints> {
        let index = |column: &ColumnIndex| self.visible.iter().position(|visible| *visible == column.index());
        let key = |key: &UniqueKey| {
            let indexes = key.columns.iter().map(index).collect::<Option<Vec<_>>>()?;
            Some(if key.is_primary { Constraint::PrimaryKey(indexes) } else { Constraint::Unique(indexes) })
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

    /// Estimated number of distinct values of a column. All values of a key of one column are distinct. For other
    /// columns, delta rows are assumed to bring new values at the same rate as rows in blocks.
    pub fn distinct_estimate_of(&self, name: &str) -> Option<f64> {
        let (_, statistics) = self.statistics_of(name)?;
        let is_key = |key: &UniqueKey| self.stored.schema.index_of(name).is_some_and(|column| key.columns == [column]);
        if self.stored.constraints.keys.iter().any(is_key) {
            return Some((self.rows as f64 - statistics.nulls as f64).max(0.0));
        }
        let distinct = statistics.distinct_estimate() as f64;
        Some(distinct + distinct / (statistics.rows as f64).max(1.0) * self.stored.delta.rows() as f64)
    }

    /// For each partition of the table, whether rows in it may pass the predicate. `None` if the table is not
    /// partitioned.
    pub(crate) fn admitted_partitions(&self, predicate: &Predicate) -> Option<Vec<bool>> {
        self.stored.admitted_partitions(&predicate.column_predicates)
    }
}

/// The column of row ids.
fn row_id_field() -> Field {
    Field::new(ROW, DataType::UInt64, false)
}
