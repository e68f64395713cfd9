//! What `taut.tables`, `taut.blocks` and `taut.columns` say, as plain data.

use arrow_array::{Array, RecordBatch};
use arrow_cast::display::ArrayFormatter;
use taut::Session;

use crate::failure::Failure;
use crate::output::format_options;

/// A row of `taut.tables`.
#[derive(Clone, Debug)]
pub struct TableFacts {
    /// Its name.
    pub name: String,
    /// The layout of new blocks.
    pub layout: String,
    /// The order that is kept, or nothing.
    pub sort_by: String,
    /// The whole design.
    pub options: String,
    /// Rows.
    pub rows: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes stored.
    pub bytes: u64,
    /// Bytes of the plain values.
    pub plain_bytes: u64,
}

/// A row of `taut.blocks`.
#[derive(Clone, Debug)]
pub struct BlockFacts {
    /// Its name.
    pub id: String,
    /// Its layout.
    pub layout: String,
    /// Rows.
    pub rows: u64,
}

/// A row of `taut.columns`: one column of one block.
#[derive(Clone, Debug)]
pub struct ColumnFacts {
    /// The block.
    pub block: String,
    /// The column.
    pub name: String,
    /// Its type in SQL.
    pub sql_type: String,
    /// The group in its block.
    pub group: u64,
    /// The format of the group.
    pub group_kind: String,
    /// How its values are encoded; where that differs within the block, all ways, separated by ` | `.
    pub encoding: String,
    /// Bytes stored.
    pub bytes: u64,
    /// Bytes of the plain values.
    pub plain_bytes: u64,
    /// Least value, where there is one.
    pub min: Option<String>,
    /// Greatest value, where there is one that is known.
    pub max: Option<String>,
    /// Nulls.
    pub nulls: u64,
}

/// The facts of all tables, or of one, by name.
pub fn tables(session: &Session, name: Option<&str>) -> Result<Vec<TableFacts>, Failure> {
    let records = Records::query(session, &(select("taut.tables", name) + " order by table_name"))?;
    let facts = |row| TableFacts {
        name: records.text(row, "table_name"),
        layout: records.text(row, "layout"),
        sort_by: records.text(row, "sort_by"),
        options: records.text(row, "options"),
        rows: records.number(row, "rows"),
        blocks: records.number(row, "blocks"),
        bytes: records.number(row, "bytes"),
        plain_bytes: records.number(row, "plain_bytes"),
    };
    Ok((0..records.rows.len()).map(facts).collect())
}

/// The facts of one table, which must exist.
pub fn table(session: &Session, name: &str) -> Result<TableFacts, Failure> {
    if let Some(found) = tables(session, Some(name))?.into_iter().next() {
        return Ok(found);
    }
    let names: Vec<_> = tables(session, None)?.into_iter().map(|table| table.name).collect();
    let names = if names.is_empty() { "the database has none".to_owned() } else { names.join(", ") };
    Err(Failure::Refused(format!("there is no table {name:?}; tables: {names}")))
}

/// The blocks of a table, in order.
pub fn blocks(session: &Session, table: &str) -> Result<Vec<BlockFacts>, Failure> {
    let records = Records::query(session, &select("taut.blocks", Some(table)))?;
    let facts = |row| BlockFacts {
        id: records.text(row, "block_id"),
        layout: records.text(row, "layout"),
        rows: records.number(row, "rows"),
    };
    Ok((0..records.rows.len()).map(facts).collect())
}

/// The columns of each block of a table.
pub fn columns(session: &Session, table: &str) -> Result<Vec<ColumnFacts>, Failure> {
    let records = Records::query(session, &select("taut.columns", Some(table)))?;
    let facts = |row| ColumnFacts {
        block: records.text(row, "block_id"),
        name: records.text(row, "column_name"),
        sql_type: records.text(row, "type"),
        group: records.number(row, "group_index"),
        group_kind: records.text(row, "group_kind"),
        encoding: records.text(row, "encoding"),
        bytes: records.number(row, "bytes"),
        plain_bytes: records.number(row, "plain_bytes"),
        min: records.value(row, "min").map(str::to_owned),
        max: records.value(row, "max").map(str::to_owned),
        nulls: records.number(row, "nulls"),
    };
    Ok((0..records.rows.len()).map(facts).collect())
}

fn select(from: &str, table: Option<&str>) -> String {
    match table {
        Some(name) => format!("select * from {from} where table_name = {}", literal(name)),
        None => format!("select * from {from}"),
    }
}

/// A text as a literal in SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name in SQL, quoted where it must be.
pub fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_plain) && name.starts_with(|c: char| !c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A small result as text.
pub struct Records {
    names: Vec<String>,
    /// The rows, each with a value per name.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Records {
    /// Runs a query and keeps its result.
    pub fn query(session: &Session, sql: &str) -> Result<Self, Failure> {
        let result = session.query(sql)?;
        let names = result.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut rows = Vec::new();
        for batch in result {
            append(&mut rows, &batch?)?;
        }
        Ok(Self { names, rows })
    }

    /// A value by the name of its column; `None` for a null or an unknown name.
    pub fn value(&self, row: usize, name: &str) -> Option<&str> {
        let column = self.names.iter().position(|found| found == name)?;
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// A value as text; nothing for a null.
    pub fn text(&self, row: usize, name: &str) -> String {
        self.value(row, name).unwrap_or_default().to_owned()
    }

    /// A value as a count; zero for a null.
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
