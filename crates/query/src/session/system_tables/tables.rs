//! `taut.tables`: one row for each table, with its design and size.

use datafusion::arrow::array::ArrayRef;
use taut_store::Table;

use super::{SystemColumn, SystemTable, each_table, numbers, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "tables",
    description: "The tables of the database, with their design and size.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table."),
        SystemColumn::text("layout", "Option `layout`."),
        SystemColumn::text("groups", "Option `groups`, if set."),
        SystemColumn::text("sort_by", "Option `sort_by`, if set."),
        SystemColumn::text("partition_by", "Option `partition_by`, if set."),
        SystemColumn::text("options", "All options that are not at their default, as in `WITH (...)`."),
        SystemColumn::number("rows", "Visible rows."),
        SystemColumn::number("blocks", "Blocks of the table."),
        SystemColumn::number("bytes", "Bytes of its block files."),
        SystemColumn::number("plain_bytes", "Bytes of its values without encodings."),
    ],
    rows: |state| each_table(state, |table| Ok(table_row(table))),
};

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
