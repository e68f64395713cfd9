//! `taut.indexes`: one row for each index.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::{DataFusionError, Result};
use taut_store::{ReadCounters, Table};
use taut_types::IndexDesign;

use crate::constraints::shown_name;

use super::{SystemColumn, SystemTable, each_table, numbers, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "indexes",
    description: "The indexes of each table.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::text("index_name", "Name of the index."),
        SystemColumn::text("method", "Kind of index: `csb` or `bloom`."),
        SystemColumn::text(
            "columns",
            "Columns and expressions of the index, separated by commas. Searches use at most the first two.",
        ),
        SystemColumn::text("predicate", "Condition of a partial index; the index has only rows for which it is true."),
        SystemColumn::boolean("is_unique", "Whether the index is unique, that is, made by `CREATE UNIQUE INDEX`."),
        SystemColumn::number("blocks", "Blocks of the table."),
        SystemColumn::number("blocks_indexed", "Blocks that already have the index."),
        SystemColumn::number("bytes", "Bytes of the index in all blocks."),
    ],
    rows: |state| each_table(state, index_rows),
};

/// One row per index, with the number of blocks that have it and its size there.
fn index_rows(table: &Table) -> Result<Vec<ArrayRef>> {
    let indexes = &table.design.indexes;
    let mut built = vec![(0, 0); indexes.len()];
    for block in table.blocks.iter().filter(|_| !indexes.is_empty()) {
        let open = block.open(&ReadCounters::new()).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let external = |error| DataFusionError::External(Box::new(error));
        let found = open.block().index_designs(&open).map_err(external)?;
        for (index, (blocks, bytes)) in indexes.iter().zip(&mut built) {
            if let Some(position) = found.iter().position(|found| found.as_ref() == Some(index)) {
                *blocks += 1;
                *bytes += open.block().index_bytes(position);
            }
        }
    }
    let unique_key =
        |index: &IndexDesign| table.constraints.keys.iter().find(|key| key.is_index && key.name == index.name);
    let columns = |index: &IndexDesign| {
        let columns = unique_key(index).map_or(&index.columns, |key| &key.columns);
        columns.iter().map(|column| shown_name(table, *column)).collect::<Vec<_>>().join(", ")
    };
    let predicate = |index: &IndexDesign| {
        let parts = index.columns.iter().filter_map(|column| table.constraints.index_columns.get(column));
        parts.filter_map(|part| part.predicate.clone()).next()
    };
    Ok(vec![
        texts(indexes.iter().map(|_| Some(table.name.clone()))),
        texts(indexes.iter().map(|index| Some(index.name.clone()))),
        texts(indexes.iter().map(|index| Some(index.kind.name().to_owned()))),
        texts(indexes.iter().map(|index| Some(columns(index)))),
        texts(indexes.iter().map(predicate)),
        Arc::new(indexes.iter().map(|index| Some(unique_key(index).is_some())).collect::<BooleanArray>()),
        numbers(indexes.iter().map(|_| table.blocks.len() as u64)),
        numbers(built.iter().map(|(blocks, _)| *blocks)),
        numbers(built.iter().map(|(_, bytes)| *bytes)),
    ])
}
