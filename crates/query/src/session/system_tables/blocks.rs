//! `taut.blocks`: one row for each block.

use datafusion::arrow::array::ArrayRef;
use taut_store::Table;

use super::{SystemColumn, SystemTable, each_table, numbers, partition_numbers, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "blocks",
    description: "The blocks of each table, in order.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::text("block_id", "Id of the block, in hexadecimal."),
        SystemColumn::text("layout", "Layout that the block was written with."),
        SystemColumn::number("partition", "Number of the block's partition; null if the block is unpartitioned."),
        SystemColumn::number("rows", "Number of rows, including deleted ones."),
        SystemColumn::number("segments", "Number of segments, the units of encodings and zone maps."),
        SystemColumn::number("bytes", "Bytes of the file."),
        SystemColumn::number("plain_bytes", "Bytes of the values without encodings."),
        SystemColumn::text("file", "Path of the file, relative to the database."),
    ],
    rows: |state| each_table(state, |table| Ok(block_rows(table))),
};

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
