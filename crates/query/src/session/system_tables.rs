//! System tables: the schema `taut`. Each table has a module, which declares the table and computes its rows. The
//! declarations are also the source of `information_schema`, of completion in the shell, and of
//! docs/reference/system-tables.md.

mod blocks;
mod columns;
mod comments;
mod constraints;
mod databases;
mod functions;
mod indexes;
mod mover;
mod partitions;
mod sequences;
mod settings;
mod table_options;
mod tables;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use taut_store::{Catalog, Store, Table};

use super::settings::SettingValues;
use crate::mover::MoverState;

/// Time zone of timestamps in system tables.
const ZONE: &str = "+00:00";

/// Declaration of a system table. Its descriptions are Markdown without links.
pub struct SystemTable {
    /// Name in schema `taut`.
    pub name: &'static str,
    /// Description of its rows.
    pub description: &'static str,
    /// The columns, in order.
    pub columns: &'static [SystemColumn],
    /// Computes batches of its rows, one array per column.
    rows: fn(&SystemState) -> SystemRows,
}

impl SystemTable {
    /// All system tables, ordered by name.
    pub const ALL: [Self; 13] = [
        blocks::TABLE,
        columns::TABLE,
        comments::TABLE,
        constraints::TABLE,
        databases::TABLE,
        functions::TABLE,
        indexes::TABLE,
        mover::TABLE,
        partitions::TABLE,
        sequences::TABLE,
        settings::TABLE,
        table_options::TABLE,
        tables::TABLE,
    ];

    fn schema(&self) -> SchemaRef {
        let field = |column: &SystemColumn| Field::new(column.name, column.kind.arrow(), true);
        Arc::new(ArrowSchema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}

/// Declaration of a column of a system table.
pub struct SystemColumn {
    /// Name of the column.
    pub name: &'static str,
    /// Type of the column.
    kind: ColumnKind,
    /// Meaning, in Markdown without links.
    pub description: &'static str,
}

#[derive(Clone, Copy)]
enum ColumnKind {
    Text,
    Number,
    Double,
    Boolean,
    Timestamp,
}

impl ColumnKind {
    fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Number => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())),
        }
    }
}

impl SystemColumn {
    const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: ColumnKind::Text, description }
    }

    const fn number(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: ColumnKind::Number, description }
    }

    const fn double(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: ColumnKind::Double, description }
    }

    const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: ColumnKind::Boolean, description }
    }

    const fn timestamp(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: ColumnKind::Timestamp, description }
    }

    /// SQL type of the column.
    pub fn sql_type(&self) -> &'static str {
        match self.kind {
            ColumnKind::Text => "text",
            ColumnKind::Number => "bigint",
            ColumnKind::Double => "double precision",
            ColumnKind::Boolean => "boolean",
            ColumnKind::Timestamp => "timestamp with time zone",
        }
    }
}

/// Batches of the rows of a system table, one array per column. Each batch is computed when it is read.
type SystemRows = Box<dyn Iterator<Item = Result<Vec<ArrayRef>>> + Send>;

/// State that system tables show.
#[derive(Clone)]
pub struct SystemState {
    pub store: Arc<Store>,
    pub snapshot: Arc<Catalog>,
    /// State of the background thread that runs compaction.
    pub mover: Arc<MoverState>,
    pub settings: Arc<SettingValues>,
    /// Whether `store` and `snapshot` are of an attached database. `mover` and `settings` never are.
    pub is_attached: bool,
}

/// Computes one batch for each table of the snapshot, by a call of `rows`.
fn each_table(state: &SystemState, rows: impl Fn(&Table) -> Result<Vec<ArrayRef>> + Send + 'static) -> SystemRows {
    let tables: Vec<_> = state.snapshot.tables().cloned().collect();
    Box::new(tables.into_iter().map(move |table| rows(&table)))
}

/// The schema `taut`.
pub struct SystemSchema(pub SystemState);

impl Debug for SystemSchema {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("SystemSchema")
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        SystemTable::ALL.iter().map(|table| table.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let is_of_session = [databases::TABLE.name, mover::TABLE.name, settings::TABLE.name].contains(&name);
        if self.0.is_attached && is_of_session {
            return Ok(None);
        }
        let Some(table) = SystemTable::ALL.into_iter().find(|table| table.name == name) else { return Ok(None) };
        let schema = table.schema();
        let contents = TableContents { rows: table.rows, schema: Arc::clone(&schema), state: self.0.clone() };
        Ok(Some(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(contents)])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        SystemTable::ALL.iter().any(|table| table.name == name)
    }
}

/// Contents of a system table, read when the plan runs.
struct TableContents {
    rows: fn(&SystemState) -> SystemRows,
    schema: SchemaRef,
    state: SystemState,
}

impl Debug for TableContents {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("TableContents")
    }
}

impl PartitionStream for TableContents {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches =
            (self.rows)(&self.state).map(move |columns| Ok(RecordBatch::try_new(Arc::clone(&schema), columns?)?));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(batches)))
    }
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| i64::try_from(value).unwrap_or(i64::MAX)).collect::<Int64Array>())
}

fn partition_numbers(values: impl IntoIterator<Item = Option<u32>>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| value.map(i64::from)).collect::<Int64Array>())
}
