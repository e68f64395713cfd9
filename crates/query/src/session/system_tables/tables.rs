//! `taut.tables`: one row for each table, with its design (layout, sort order and others) and its size.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::{DataFusionError, Result};
use taut_store::Table;

use crate::session::index_columns::visible_design;

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
        SystemColumn::number("plain_bytes", "Bytes of the values without encodings."),
    ],
    rows: |state| each_table(state, table_row),
};

fn table_row(table: &Table) -> Result<Vec<ArrayRef>> {
    let (design, schema) = visible_design(table).map_err(|error| DataFusionError::External(Box::new(error)))?;
    let options = design.to_options(&schema);
    let option = |name: &str| options.iter().find(|(option, _)| *option == name).map(|(_, value)| value.clone());
    let all = options.iter().map(|(name, value)| format!("{name}='{}'", value.replace('\'', "''")));
    Ok(vec![
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
    ])
}
