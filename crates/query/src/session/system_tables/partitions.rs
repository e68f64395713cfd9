//! `taut.partitions`: one row for each partition of a table.

use datafusion::arrow::array::ArrayRef;
use taut_store::{BlockEntry, Table};
use taut_types::{Datum, datum_text};

use super::{SystemColumn, SystemTable, each_table, numbers, partition_numbers, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "partitions",
    description: "The partitions of each table that has option `partition_by`.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::number("partition", "Number of the partition; null for unpartitioned blocks."),
        SystemColumn::text("holds", "Values in the partition: `values`, `nulls`, or `any` for unpartitioned blocks."),
        SystemColumn::text("low", "Lower bound of a range, inclusive; null if unbounded."),
        SystemColumn::text("high", "Upper bound of a range, exclusive; null if unbounded."),
        SystemColumn::number("rows", "Number of rows in blocks, including deleted ones."),
        SystemColumn::number("blocks", "Blocks of the partition."),
        SystemColumn::number("bytes", "Bytes of its block files."),
        SystemColumn::number("plain_bytes", "Bytes of the values without encodings."),
    ],
    rows: |state| each_table(state, |table| Ok(partition_rows(table))),
};

/// One row per partition, even if it is empty. Blocks in no partition share one row, whose partition number is null.
fn partition_rows(table: &Table) -> Vec<ArrayRef> {
    let known = table.partitions.as_ref().map(|partitions| &partitions.partitioning);
    let mut parts: Vec<Option<u32>> = Vec::new();
    if let Some(partitioning) = known {
        let of_nulls = Some(partitioning.null_partition());
        let is_nullable = table.schema.column(partitioning.design().column).nullable;
        parts.extend((0..partitioning.value_partitions()).map(Some).chain(is_nullable.then_some(of_nulls)));
    }
    let positions =
        |part: Option<u32>| (0..table.blocks.len()).filter(move |position| table.partition_of(*position) == part);
    if table.design.partition_by.is_some() && positions(None).next().is_some() {
        parts.push(None);
    }
    let holds = |part: &Option<u32>| match (known, part) {
        (Some(partitioning), Some(part)) if *part == partitioning.null_partition() => "nulls",
        (_, Some(_)) => "values",
        (_, None) => "any",
    };
    let bounds = |part: &Option<u32>| known.zip(*part).map_or((None, None), |(known, part)| known.bounds(part));
    let text = |datum: Option<&Datum>| {
        let column = table.design.partition_by?.column;
        Some(datum_text(datum?, table.schema.column(column).logical_type))
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
