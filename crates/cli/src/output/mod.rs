//! Output of results on standard output, in the chosen format.
//!
//! CSV and JSON are written batch by batch while the query runs. A table needs the width of every value first. The rows
//! that a table or Markdown shows are therefore buffered.

pub mod grid;

use std::io::{self, IsTerminal, Write};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Schema};
use taut::{CsvWriter, Rows, with_written_intervals, write_json_lines};

use crate::failure::Failure;
use grid::{Alignment, Grid};

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns, for people.
    #[default]
    Table,
    /// A header line, then a line per row.
    Csv,
    /// One JSON object per row and line.
    Json,
    /// A Markdown table.
    Markdown,
}

/// Buffered standard output that detects when its reader has closed it.
pub struct Output {
    writer: io::BufWriter<io::Stdout>,
    is_terminal: bool,
    is_closed: bool,
}

impl Output {
    /// Creates the output for standard output.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { writer: io::BufWriter::with_capacity(64 << 10, stdout), is_terminal, is_closed: false }
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Characters that fit on a line.
    pub fn width(&self) -> usize {
        const WIDTH_WITHOUT_TERMINAL: usize = 160;
        match console::Term::stdout().size_checked() {
            Some((_, columns)) if self.is_terminal => usize::from(columns).max(40),
            _ => WIDTH_WITHOUT_TERMINAL,
        }
    }

    /// Writes a line.
    pub fn write_line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        let written = writeln!(self, "{text}");
        self.map_write_error(written)
    }

    /// Flushes the buffer.
    pub fn finish(&mut self) -> Result<(), Failure> {
        let written = self.flush();
        self.map_write_error(written)
    }

    fn map_write_error<T, E: Into<Failure>>(&self, result: Result<T, E>) -> Result<T, Failure> {
        result.map_err(|error| if self.is_closed { Failure::Closed } else { error.into() })
    }

    fn note_broken_pipe<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.is_closed |= error.kind() == io::ErrorKind::BrokenPipe;
        }
        result
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes);
        self.note_broken_pipe(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        self.note_broken_pipe(flushed)
    }
}

/// Writes rows and returns their count.
///
/// `rows_max` limits the rows that a table or Markdown shows. The count includes rows that are not shown. If the query
/// of the rows fails, the error is [`Failure::Database`].
pub fn write_rows(output: &mut Output, rows: Rows, format: Format, rows_max: Option<usize>) -> Result<u64, Failure> {
    match format {
        Format::Table | Format::Markdown => write_grid(output, rows, format, rows_max),
        Format::Csv => write_csv(output, rows),
        Format::Json => write_json(output, rows),
    }
}

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIMESTAMP_TZ: &str = "%Y-%m-%d %H:%M:%S%.f%:z";

fn write_csv(output: &mut Output, rows: Rows) -> Result<u64, Failure> {
    let writer = CsvWriter::default();
    let mut header = Vec::new();
    writer.write_header(&rows.schema(), &mut header);
    write_text(output, rows, header, |batch, out| writer.write_rows(batch, out))
}

fn write_json(output: &mut Output, rows: Rows) -> Result<u64, Failure> {
    write_text(output, rows, Vec::new(), write_json_lines)
}

/// Writes the text in `buffer`, then the text that `encode` appends for each batch.
fn write_text(
    output: &mut Output,
    rows: Rows,
    mut buffer: Vec<u8>,
    encode: impl Fn(&RecordBatch, &mut Vec<u8>) -> Result<(), ArrowError>,
) -> Result<u64, Failure> {
    let mut count = 0;
    for batch in rows {
        let batch = batch.map_err(Failure::Database)?;
        count += batch.num_rows() as u64;
        encode(&batch, &mut buffer)?;
        let written = output.write_all(&buffer);
        output.map_write_error(written)?;
        buffer.clear();
    }
    let written = output.write_all(&buffer);
    output.map_write_error(written)?;
    output.finish()?;
    Ok(count)
}

fn write_grid(output: &mut Output, rows: Rows, format: Format, rows_max: Option<usize>) -> Result<u64, Failure> {
    let rows_max = rows_max.unwrap_or(usize::MAX);
    let mut grid = empty_grid(&rows.schema());
    let mut count = 0;
    for batch in rows {
        let batch = batch.map_err(Failure::Database)?;
        let shown = batch.num_rows().min(rows_max.saturating_sub(grid.len()));
        push_rows(&mut grid, &batch.slice(0, shown))?;
        count += batch.num_rows() as u64;
    }
    let text = if format == Format::Table { grid.text() } else { grid.markdown() };
    let written = output.write_all(text.as_bytes());
    output.map_write_error(written)?;
    if grid.len() as u64 != count {
        output.write_line(format!("... {} of {count} rows shown (--max-rows)", grid.len()))?;
    }
    output.finish()?;
    Ok(count)
}

/// Grid with the columns of a schema and without rows. Numbers are aligned to the right.
fn empty_grid(schema: &Schema) -> Grid {
    let alignment = |data_type: &DataType| if data_type.is_numeric() { Alignment::Right } else { Alignment::Left };
    Grid::new(schema.fields().iter().map(|field| (field.name().as_str(), alignment(field.data_type()))))
}

fn push_rows(grid: &mut Grid, batch: &RecordBatch) -> Result<(), Failure> {
    let (options, batch) = (format_options("NULL"), with_written_intervals(batch)?);
    let columns = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let cells = columns.iter().map(|column| column.value(row).try_to_string());
        grid.push(cells.collect::<Result<_, _>>()?);
    }
    Ok(())
}

/// Formatting options for values. `null` is the text of a null.
pub fn format_options(null: &str) -> FormatOptions<'_> {
    FormatOptions::default()
        .with_null(null)
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP_TZ))
}
