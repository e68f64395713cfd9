//! Rows of `taut.tables`, `taut.blocks` and `taut.columns` as Rust structs.

use arrow_array::{Array, RecordBatch};
use arrow_cast::display::ArrayFormatter;
use taut::{Session, relation_name, split_relation_name};

use crate::failure::Failure;
use crate::output::format_options;

/// A row of `taut.tables`.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Name of the table.
    pub name: String,
    /// Layout of new blocks.
    pub layout: String,
    /// Sort order, or an empty string.
    pub sort_by: String,
    /// Options of the design, as in `CREATE TABLE ... WITH (...)`.
    pub options: String,
    /// Count of rows.
    pub rows: u64,
    /// Count of blocks.
    pub blocks: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Bytes of the values without encoding.
    pub plain_bytes: u64,
}

/// A row of `taut.blocks`.
#[derive(Clone, Debug)]
pub struct BlockInfo {
    /// Id of the block.
    pub id: String,
    /// Layout of the block.
    pub layout: String,
    /// Count of rows.
    pub rows: u64,
}

/// A row of `taut.columns`: one column of one block.
#[derive(Clone, Debug)]
pub struct ColumnInfo {
    /// Id of the block.
    pub block: String,
    /// Name of the column.
    pub name: String,
    /// SQL type of the column.
    pub sql_type: String,
    /// Index of its column group in the block. `None` if the block does not store the column.
    pub group: Option<u64>,
    /// Format of the column group.
    pub group_kind: String,
    /// Encoding of the values. If it differs within the block: all encodings, separated by ` | `.
    pub encoding: String,
    /// Stored bytes.
    pub bytes: u64,
    /// Bytes of the values without encoding.
    pub plain_bytes: u64,
    /// Least value, if there is one.
    pub min: Option<String>,
    /// Greatest value, if there is one and it is known.
    pub max: Option<String>,
    /// Count of nulls.
    pub nulls: u64,
}

/// Rows of `taut.tables`, sorted by table name. With `name`, only the row of that table.
pub fn tables(session: &Session, name: Option<&str>) -> Result<Vec<TableInfo>, Failure> {
    let records = Records::query(session, &(select_sql("taut.tables", name) + " order by table_name"))?;
    let info = |row| TableInfo {
        name: records.text(row, "table_name"),
        layout: records.text(row, "layout"),
        sort_by: records.text(row, "sort_by"),
        options: records.text(row, "options"),
        rows: records.number(row, "rows"),
        blocks: records.number(row, "blocks"),
        bytes: records.number(row, "bytes"),
        plain_bytes: records.number(row, "plain_bytes"),
    };
    Ok((0..records.rows.len()).map(info).collect())
}

/// Row of `taut.tables` for one table. Fails if the table does not exist.
pub fn table(session: &Session, name: &str) -> Result<TableInfo, Failure> {
    if let Some(found) = tables(session, Some(name))?.into_iter().next() {
        return Ok(found);
    }
    let names: Vec<_> = tables(session, None)?.into_iter().map(|table| table.name).collect();
    let names = if names.is_empty() { "the database has none".to_owned() } else { names.join(", ") };
    Err(Failure::InvalidArgument(format!("there is no table {name:?}; tables: {names}")))
}

/// Blocks of a table, in the order of `taut.blocks`.
pub fn blocks(session: &Session, table: &str) -> Result<Vec<BlockInfo>, Failure> {
    let records = Records::query(session, &select_sql("taut.blocks", Some(table)))?;
    let info = |row| BlockInfo {
        id: records.text(row, "block_id"),
        layout: records.text(row, "layout"),
        rows: records.number(row, "rows"),
    };
    Ok((0..records.rows.len()).map(info).collect())
}

/// Columns of each block of a table.
pub fn columns(session: &Session, table: &str) -> Result<Vec<ColumnInfo>, Failure> {
    let records = Records::query(session, &select_sql("taut.columns", Some(table)))?;
    let info = |row| ColumnInfo {
        block: records.text(row, "block_id"),
        name: records.text(row, "column_name"),
        sql_type: records.text(row, "type"),
        group: records.value(row, "group_index").and_then(|text| text.parse().ok()),
        group_kind: records.text(row, "group_kind"),
        encoding: records.text(row, "encoding"),
        bytes: records.number(row, "bytes"),
        plain_bytes: records.number(row, "plain_bytes"),
        min: records.value(row, "min").map(str::to_owned),
        max: records.value(row, "max").map(str::to_owned),
        nulls: records.number(row, "nulls"),
    };
    Ok((0..records.rows.len()).map(info).collect())
}

fn select_sql(from: &str, table: Option<&str>) -> String {
    match table {
        Some(name) => {
            // The system tables omit schema `public` from the names of tables.
            let (schema, name) = split_relation_name(name);
            format!("select * from {from} where table_name = {}", literal(&relation_name(&schema, &name)))
        }
        None => format!("select * from {from}"),
    }
}

/// SQL string literal for a text.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// SQL identifier for a name, quoted if necessary.
pub fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_plain) && name.starts_with(|c: char| !c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Rows of a small query result, as text.
pub struct Records {
    names: Vec<String>,
    /// Rows with one value per column. A null is `None`.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Records {
    /// Runs a query and collects its result.
    pub fn query(session: &Session, sql: &str) -> Result<Self, Failure> {
        let result = session.query(sql)?;
        let names = result.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut rows = Vec::new();
        for batch in result {
            append(&mut rows, &batch?)?;
        }
        Ok(Self { names, rows })
    }

    /// Value by row index and column name. Returns `None` for a null or an unknown name.
    pub fn value(&self, row: usize, name: &str) -> Option<&str> {
        let column = self.names.iter().position(|found| found == name)?;
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// Value as text. Returns an empty string for a null.
    pub fn text(&self, row: usize, name: &str) -> String {
        self.value(row, name).unwrap_or_default().to_owned()
    }

    /// Value as a count. Returns zero for a null, and for a text that is not a number.
    pub fn number(&self, row: usize, name: &str) -> u64 {
        self.value(row, name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

fn append(rows: &mut Vec<Vec<Option<String>>>, batch: &RecordBatch) -> Result<(), Failure> {
    let options = format_options("");
    let formatters = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let cell = |(array, formatter): (&arrow_array::ArrayRef, &ArrayFormatter<'_>)| {
            if array.is_null(row) { Ok(None) } else { formatter.value(row).try_to_string().map(Some) }
        };
        rows.push(batch.columns().iter().zip(&formatters).map(cell).collect::<Result<_, _>>()?);
    }
    Ok(())
}
