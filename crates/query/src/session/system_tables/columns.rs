//! `taut.columns`: one row for each column of each block.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringBuilder};
use datafusion::common::{DataFusionError, Result};
use taut_store::{BlockFile, ReadCounters, Table};
use taut_types::{ColumnIndex, datum_text};

use super::{SystemColumn, SystemRows, SystemState, SystemTable, numbers, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "columns",
    description: "How each block stores each of its columns.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::text("block_id", "Id of the block, in hexadecimal."),
        SystemColumn::text("column_name", "Name of the column."),
        SystemColumn::text("type", "SQL type of the column."),
        SystemColumn::number(
            "group_index",
            "Index of the column's group in the block. Null if the column was added after the block was written; all \
             rows of the block then have one value.",
        ),
        SystemColumn::text("group_kind", "`column`, `packed_rows` or `slotted_rows`. Null if the column has no group."),
        SystemColumn::text("encoding", "Encodings of the column's segments, in order; repeated ones are listed once."),
        SystemColumn::number("bytes", "Stored bytes."),
        SystemColumn::number("plain_bytes", "Bytes of the values without encodings."),
        SystemColumn::text("min", "Minimum, as text."),
        SystemColumn::text("max", "Maximum, as text."),
        SystemColumn::number("nulls", "Number of nulls."),
        SystemColumn::number("distinct_estimate", "Estimated number of distinct values."),
    ],
    rows,
};

/// One batch per block.
fn rows(state: &SystemState) -> SystemRows {
    let tables: Vec<_> = state.snapshot.tables().cloned().collect();
    Box::new(
        tables
            .into_iter()
            .flat_map(|table| (0..table.blocks.len()).map(move |index| column_rows(&table, &table.blocks[index]))),
    )
}

/// One row per column of a block. Lists the encodings of the column's segments in order. Consecutive equal encodings
/// are listed once.
fn column_rows(table: &Table, block: &Arc<BlockFile>) -> Result<Vec<ArrayRef>> {
    let external = |error| DataFusionError::External(Box::new(error));
    let open = block.open(&ReadCounters::new()).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let groups = open.block().groups();
    let names = || table.schema.columns().iter();
    let (mut encodings, mut minima, mut maxima) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    let mut measures: [Vec<u64>; 4] = Default::default();
    let (mut group_indexes, mut kinds) = (Vec::new(), Vec::new());
    for (position, column) in names().enumerate() {
        let index = ColumnIndex::from(position);
        let statistics = open.block().statistics(&open, index).map_err(external)?;
        let pieces = open.block().column_storage(&open, index).map_err(external)?;
        let mut distinct: Vec<&str> = pieces.iter().map(|piece| piece.encoding.name()).collect();
        distinct.dedup();
        encodings.append_value(distinct.join(" | "));
        minima.append_option(statistics.min.as_ref().map(|datum| datum_text(datum, column.logical_type)));
        maxima.append_option(statistics.max.as_ref().map(|datum| datum_text(datum, column.logical_type)));
        let group = groups.iter().position(|group| group.columns.contains(&index));
        kinds.push(group.map(|group| groups[group].kind.name().to_owned()));
        group_indexes.push(group.map(|group| group as i64));
        let bytes: u64 = pieces.iter().map(|piece| piece.stored_bytes).sum();
        let values = [bytes, statistics.plain_bytes, statistics.nulls, statistics.distinct_estimate()];
        measures.iter_mut().zip(values).for_each(|(measure, value)| measure.push(value));
    }
    let [bytes, plain_bytes, nulls, distinct_estimates] = measures;
    Ok(vec![
        texts(names().map(|_| Some(table.name.clone()))),
        texts(names().map(|_| Some(block.id().to_string()))),
        texts(names().map(|column| Some(column.name.clone()))),
        texts(names().map(|column| Some(column.logical_type.sql_name()))),
        Arc::new(Int64Array::from(group_indexes)),
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
