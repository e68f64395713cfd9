//! System tables that describe storage: `taut.tables`, `taut.blocks`, `taut.columns`, `taut.indexes`,
//! `taut.partitions`, `taut.constraints` and `taut.mover`.

mod constraints;
mod mover;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use taut_store::{BlockEntry, BlockFile, Catalog, ReadCounters, Store, Table};
use taut_types::{ColumnIndex, Datum, IndexDesign, datum_text};

use crate::mover::Shared;

/// A system table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SystemTable {
    Tables,
    Blocks,
    Columns,
    Indexes,
    Partitions,
    Constraints,
    Mover,
}

impl SystemTable {
    const ALL: [Self; 7] =
        [Self::Tables, Self::Blocks, Self::Columns, Self::Indexes, Self::Partitions, Self::Constraints, Self::Mover];

    fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Blocks => "blocks",
            Self::Columns => "columns",
            Self::Indexes => "indexes",
            Self::Partitions => "partitions",
            Self::Constraints => "constraints",
            Self::Mover => "mover",
        }
    }

    fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let number = |name: &str| Field::new(name, DataType::Int64, true);
        let fields = match self {
            Self::Tables => vec![
                text("table_name"),
                text("layout"),
                text("groups"),
                text("sort_by"),
                text("partition_by"),
                text("options"),
                number("rows"),
                number("blocks"),
                number("bytes"),
                number("plain_bytes"),
            ],
            Self::Blocks => vec![
                text("table_name"),
                text("block_id"),
                text("layout"),
                number("partition"),
                number("rows"),
                number("segments"),
                number("bytes"),
                number("plain_bytes"),
                text("file"),
            ],
            Self::Columns => vec![
                text("table_name"),
                text("block_id"),
                text("column_name"),
                text("type"),
                number("group_index"),
                text("group_kind"),
                text("encoding"),
                number("bytes"),
                number("plain_bytes"),
                text("min"),
                text("max"),
                number("nulls"),
                number("distinct_estimate"),
            ],
            Self::Indexes => vec![
                text("table_name"),
                text("index_name"),
                text("method"),
                text("columns"),
                number("blocks"),
                number("blocks_indexed"),
                number("bytes"),
            ],
            Self::Partitions => vec![
                text("table_name"),
                number("partition"),
                text("holds"),
                text("low"),
                text("high"),
                number("rows"),
                number("blocks"),
                number("bytes"),
                number("plain_bytes"),
            ],
            Self::Constraints => vec![
                text("table_name"),
                text("constraint_name"),
                text("constraint_type"),
                text("columns"),
                text("definition"),
            ],
            Self::Mover => mover::fields(),
        };
        Arc::new(ArrowSchema::new(fields))
    }
}

/// The schema `taut`.
#[derive(Debug)]
pub struct SystemSchema {
    pub store: Arc<Store>,
    pub snapshot: Arc<Catalog>,
    pub mover: Arc<Shared>,
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        SystemTable::ALL.iter().map(|table| table.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = SystemTable::ALL.into_iter().find(|table| table.name() == name) else { return Ok(None) };
        let snapshot = Arc::clone(&self.snapshot);
        let contents: Arc<dyn PartitionStream> = match table {
            SystemTable::Mover => {
                let (store, mover) = (Arc::clone(&self.store), Arc::clone(&self.mover));
                Arc::new(mover::MoverRows { store, snapshot, mover, schema: table.schema() })
            }
            _ => Arc::new(TableContents { table, schema: table.schema(), snapshot }),
        };
        Ok(Some(Arc::new(StreamingTable::try_new(table.schema(), vec![contents])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        SystemTable::ALL.iter().any(|table| table.name() == name)
    }
}

/// Rows of a system table: one batch per table; for `taut.columns`, one per block.
#[derive(Debug)]
struct TableContents {
    table: SystemTable,
    schema: SchemaRef,
    snapshot: Arc<Catalog>,
}

impl PartitionStream for TableContents {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let tables: Vec<_> = self.snapshot.tables().cloned().collect();
        let (schema, kind, catalog) = (Arc::clone(&self.schema), self.table, Arc::clone(&self.snapshot));
        let batches = tables.into_iter().flat_map(move |table| {
            let parts: Vec<_> = match kind {
                SystemTable::Columns => table.blocks.iter().cloned().map(Some).collect(),
                _ => vec![None],
            };
            let (schema, catalog) = (Arc::clone(&schema), Arc::clone(&catalog));
            parts.into_iter().map(move |block| {
                let columns = match (kind, block) {
                    (SystemTable::Tables, _) => table_row(&table),
                    (SystemTable::Indexes, _) => index_rows(&table)?,
                    (SystemTable::Partitions, _) => partition_rows(&table),
                    (SystemTable::Constraints, _) => constraints::rows(&table, &catalog),
                    (_, Some(block)) => column_rows(&table, &block)?,
                    (_, None) => block_rows(&table),
                };
                Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
            })
        });
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

fn table_row(table: &Table) -> Vec<ArrayRef> {
    let options = table.design.to_options(&table.schema);
    let option = |name: &str| options.iter().find(|(option, _)| *option == name).map(|(_, value)| value.clone());
    let all = options.iter().map(|(name, value)| format!("{name}='{}'", value.replace('\'', "''")));
    vec![
        texts([Some(table.name.clone())]),
        texts([option("layout")]),
        texts([option("groups")]),
        texts([option("sort_by")]),
        texts([option("partition_by")]),
        texts([Some(all.collect::<Vec<_>>().join(", "))]),
        numbers([table.rows()]),
        numbers([table.blocks.len() as u64]),
        numbers([table.file_bytes()]),
        numbers([table.plain_bytes()]),
    ]
}

fn block_rows(table: &Table) -> Vec<ArrayRef> {
    let entries = || table.blocks.iter().map(|block| block.entry());
    vec![
        texts(entries().map(|_| Some(table.name.clone()))),
        texts(entries().map(|entry| Some(entry.id.to_string()))),
        texts(entries().map(|entry| Some(entry.layout.to_string()))),
        partition_numbers((0..table.blocks.len()).map(|position| table.partition_of(position))),
        numbers(entries().map(|entry| entry.rows)),
        numbers(entries().map(|entry| entry.segments)),
        numbers(entries().map(|entry| entry.file_bytes)),
        numbers(entries().map(|entry| entry.plain_bytes)),
        texts(entries().map(|entry| Some(format!("blocks/{}.block", entry.id)))),
    ]
}

/// One row per index, with the number of blocks that have it and its size there.
fn index_rows(table: &Table) -> Result<Vec<ArrayRef>> {
    let indexes = &table.design.indexes;
    let mut built = vec![(0, 0); indexes.len()];
    for block in table.blocks.iter().filter(|_| !indexes.is_empty()) {
        let open = block.open(&ReadCounters::new()).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let external = |error| DataFusionError::External(Box::new(error));
        let found = open.block().description(&open).map_err(external)?.1.indexes;
        for (index, (blocks, bytes)) in indexes.iter().zip(&mut built) {
            if let Some(position) = found.iter().position(|found| found == index) {
                *blocks += 1;
                *bytes += open.block().index_bytes(position);
            }
        }
    }
    let columns = |index: &IndexDesign| {
        let names = index.columns.iter().map(|column| table.schema.column(*column).name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    Ok(vec![
        texts(indexes.iter().map(|_| Some(table.name.clone()))),
        texts(indexes.iter().map(|index| Some(index.name.clone()))),
        texts(indexes.iter().map(|index| Some(index.kind.name().to_owned()))),
        texts(indexes.iter().map(|index| Some(columns(index)))),
        numbers(indexes.iter().map(|_| table.blocks.len() as u64)),
        numbers(built.iter().map(|(blocks, _)| *blocks)),
        numbers(built.iter().map(|(_, bytes)| *bytes)),
    ])
}

/// One row per partition, even if it is empty. Blocks in no partition share one row, whose partition number is null.
fn partition_rows(table: &Table) -> Vec<ArrayRef> {
    let known = table.partitions.as_ref().map(|partitions| &partitions.partitioning);
    let mut parts: Vec<Option<u32>> = Vec::new();
    if let Some(partitioning) = known {
        let of_nulls = Some(partitioning.nulls());
        let is_nullable = table.schema.column(partitioning.design().column).nullable;
        parts.extend((0..partitioning.values()).map(Some).chain(is_nullable.then_some(of_nulls)));
    }
    let positions =
        |part: Option<u32>| (0..table.blocks.len()).filter(move |position| table.partition_of(*position) == part);
    if table.design.partition_by.is_some() && positions(None).next().is_some() {
        parts.push(None);
    }
    let holds = |part: &Option<u32>| match (known, part) {
        (Some(partitioning), Some(part)) if *part == partitioning.nulls() => "nulls",
        (_, Some(_)) => "values",
        (_, None) => "any",
    };
    let bounds = |part: &Option<u32>| known.zip(*part).map_or((None, None), |(known, part)| known.bounds(part));
    let text = |key: Option<&Datum>| {
        let column = table.design.partition_by?.column;
        Some(datum_text(key?, table.schema.column(column).logical_type))
    };
    let sum =
        |part: &Option<u32>, of: fn(&BlockEntry) -> u64| positions(*part).map(|at| of(table.blocks[at].entry())).sum();
    let measure = |of: fn(&BlockEntry) -> u64| numbers(parts.iter().map(|part| sum(part, of)));
    vec![
        texts(parts.iter().map(|_| Some(table.name.clone()))),
        partition_numbers(parts.iter().copied()),
        texts(parts.iter().map(|part| Some(holds(part).to_owned()))),
        texts(parts.iter().map(|part| text(bounds(part).0))),
        texts(parts.iter().map(|part| text(bounds(part).1))),
        measure(|entry| entry.rows),
        measure(|_| 1),
        measure(|entry| entry.file_bytes),
        measure(|entry| entry.plain_bytes),
    ]
}

/// One row per column of a block. Lists the encodings of the column's segments in order. Consecutive equal encodings
/// are listed once.
fn column_rows(table: &Table, block: &Arc<BlockFile>) -> Result<Vec<ArrayRef>> {
    let external = |error| DataFusionError::External(Box::new(error));
    let open = block.open(&ReadCounters::new()).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let groups = open.block().groups();
    let names = || table.schema.columns().iter();
    let (mut encodings, mut minima, mut maxima) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    let mut measures: [Vec<u64>; 5] = Default::default();
    let mut kinds = Vec::new();
    for (position, column) in names().enumerate() {
        let index = ColumnIndex::from(position);
        let statistics = open.block().statistics(&open, index).map_err(external)?;
        let pieces = open.block().column_storage(&open, index).map_err(external)?;
        let mut distinct: Vec<&str> = pieces.iter().map(|piece| piece.encoding.name()).collect();
        distinct.dedup();
        encodings.append_value(distinct.join(" | "));
        minima.append_option(statistics.min.as_ref().map(|key| datum_text(key, column.logical_type)));
        maxima.append_option(statistics.max.as_ref().map(|key| datum_text(key, column.logical_type)));
        let group = groups.iter().position(|group| group.columns.contains(&index)).unwrap_or_default();
        kinds.push(groups.get(group).map(|group| group.kind.name().to_owned()));
        let bytes: u64 = pieces.iter().map(|piece| piece.stored_bytes).sum();
        let values = [group as u64, bytes, statistics.plain_bytes, statistics.nulls, statistics.distinct_estimate()];
        measures.iter_mut().zip(values).for_each(|(measure, value)| measure.push(value));
    }
    let [group_indexes, bytes, plain_bytes, nulls, distinct_estimates] = measures;
    Ok(vec![
        texts(names().map(|_| Some(table.name.clone()))),
        texts(names().map(|_| Some(block.id().to_string()))),
        texts(names().map(|column| Some(column.name.clone()))),
        texts(names().map(|column| Some(column.logical_type.sql_name()))),
        numbers(group_indexes),
        texts(kinds),
        Arc::new(encodings.finish()),
        numbers(bytes),
        numbers(plain_bytes),
        Arc::new(minima.finish()),
        Arc::new(maxima.finish()),
        numbers(nulls),
        numbers(distinct_estimates),
    ])
}
