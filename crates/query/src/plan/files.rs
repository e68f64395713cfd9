//! Files outside the database: options for reading them, readers of their rows, and writers of text formats.

mod chunks;
mod csv_file;
mod csv_writer;
mod inference;
mod json_file;
mod json_writer;
mod patterns;
mod records;
mod sink;
mod text_table;
mod values;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::catalog::TableProvider;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use taut_sql::{FileFormat, OPTIONS_ALLOWED, ObjectKind, SqlError, check_csv_characters, is_separated_by_tabs};
use taut_types::Schema;

pub use self::csv_writer::CsvWriter;
pub use self::json_writer::write_json_lines;
pub use self::sink::with_text_formats;
use crate::error::{QueryError, Result};
use records::Dialect;
use text_table::TextTable;

/// Maximum number of records from which the columns of a CSV or JSON file are inferred.
const INFERENCE_RECORDS: usize = 100_000;

/// Options for reading files.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Format of the files. `None` derives it from the extension of the file name.
    pub format: Option<FileFormat>,
    /// Whether the first line of a CSV file is a header with the column names. `None` compares the line with the column
    /// names of the table; without a table, it means true.
    pub header: Option<bool>,
    /// Delimiter between values. `None` derives it from the extension of the file name.
    pub delimiter: Option<u8>,
    /// Quote character.
    pub quote: u8,
    /// Escape character for a quote inside a quoted value. `None` if such a quote is doubled.
    pub escape: Option<u8>,
    /// Unquoted text that is read as null. `None` means empty text.
    pub null: Option<String>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { format: None, header: None, delimiter: None, quote: b'"', escape: None, null: None }
    }
}

fn parse_boolean(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(SqlError::syntax(format!("{name} requires a Boolean value")).into()),
    }
}

impl ReadOptions {
    /// Parses the options of `COPY ... FROM`.
    ///
    /// # Errors
    /// If an option is unknown or its value is not allowed.
    pub fn from_pairs(pairs: &[(String, String)]) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "format" => options.format = Some(FileFormat::from_name(value)?),
                "header" => options.header = Some(parse_boolean(name, value)?),
                "delimiter" => options.delimiter = Some(parse_ascii_character(name, value)?),
                "quote" => options.quote = parse_ascii_character(name, value)?,
                "escape" => options.escape = Some(parse_ascii_character(name, value)?),
                "null" => options.null = Some(value.clone()),
                _ => return Err(QueryError::unsupported(format!("COPY option {name}"), OPTIONS_ALLOWED)),
            }
        }
        let is_csv = options.format.is_none_or(|format| format == FileFormat::Csv);
        match pairs.iter().find(|(name, _)| name != "format") {
            Some((name, _)) if !is_csv => {
                Err(QueryError::unsupported(format!("COPY option {name} for this format"), OPTIONS_ALLOWED))
            }
            _ => Ok(options),
        }
    }

    fn format_of(&self, path: &Path) -> Result<FileFormat> {
        Ok(self.format.map_or_else(|| FileFormat::of_path(path), Ok)?)
    }

    fn delimiter_of(&self, path: &Path) -> u8 {
        self.delimiter.unwrap_or(if is_separated_by_tabs(path) { b'\t' } else { b',' })
    }

    /// Delimiter, quote, escape character and null text of a CSV file.
    ///
    /// # Errors
    /// If two of them conflict, for example because they are the same character.
    fn dialect(&self, path: &Path) -> Result<Dialect> {
        let (delimiter, quote) = (self.delimiter_of(path), self.quote);
        let null = self.null.clone().unwrap_or_default();
        check_csv_characters(delimiter, quote, &null)?;
        Ok(Dialect { delimiter, quote, escape: self.escape.unwrap_or(quote), null })
    }
}

fn parse_ascii_character(option: &str, value: &str) -> Result<u8> {
    match value.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(SqlError::not_a_character(option).into()),
    }
}

/// Whether a name is a URL with an authority, such as `https://example.org/rows.csv`, and not a path.
pub fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// Columns of a table that files are read into.
#[derive(Clone, Debug)]
pub struct FileColumns {
    /// The columns, in the order in which a CSV file has them.
    pub schema: Schema,
    /// Whether the statement lists the columns. Every file must then have all of them.
    pub are_listed: bool,
    /// Whether each column has a default.
    pub have_defaults: Vec<bool>,
}

/// Reads the rows of files. Columns match by ordinal for `csv`, and by name for `parquet` and `json`.
///
/// For an existing table, `columns` describes the columns of the files, and text is parsed into their types. If the
/// statement does not list the columns, the returned frame may have fewer. It lacks columns that are not in the header
/// of a CSV file. It also lacks columns with a default that are not among the keys of a JSON file.
///
/// # Errors
/// If a file cannot be opened or its columns cannot be inferred. Errors in the contents appear when the rows are read.
pub async fn read(
    context: &SessionContext,
    files: &[PathBuf],
    options: &ReadOptions,
    columns: Option<&FileColumns>,
) -> Result<(FileFormat, DataFrame)> {
    let Some(first) = files.first() else {
        return Err(QueryError::unsupported("loading no files", "name at least one"));
    };
    if let Some(missing) = files.iter().find(|file| !file.exists()) {
        let name = missing.display().to_string();
        return Err(match is_url(&name) {
            true => QueryError::unsupported(
                format!("reading {name:?}, which is not a local file,"),
                "a path is; download the file first",
            ),
            false => QueryError::NotFound { kind: ObjectKind::File, name, relation: None },
        });
    }
    let format = options.format_of(first)?;
    if format == FileFormat::Parquet {
        let paths: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let extension = first.extension().and_then(|extension| extension.to_str());
        let extension = extension.map(|extension| format!(".{extension}")).unwrap_or_default();
        let frame = context.read_parquet(paths, ParquetReadOptions::default().file_extension(&extension)).await?;
        return Ok((format, frame));
    }
    let table = TextTable::open(files, format, options, columns)?;
    Ok((format, context.read_table(Arc::new(table))?))
}

/// Returns the table for a name in a query that is the path or pattern of CSV or JSON files. Returns `None` for other
/// names.
///
/// # Errors
/// If the columns of the files cannot be inferred.
pub fn text_table(name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some((format, files)) = patterns::text_files(name.strip_prefix("file://").unwrap_or(name))? else {
        return Ok(None);
    };
    Ok(Some(Arc::new(TextTable::open(&files, format, &ReadOptions::default(), None)?)))
}

/// Opens a file for reading. Its bytes are decompressed if its extension names a compression format.
fn open_decompressed(path: &Path) -> Result<Box<dyn Read + Send>> {
    let io = |error: std::io::Error| file_error(path, &ArrowError::IoError(error.to_string(), error));
    let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let compression = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => FileCompressionType::GZIP,
        Some("zst") => FileCompressionType::ZSTD,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        _ => FileCompressionType::UNCOMPRESSED,
    };
    Ok(compression.convert_read(file)?)
}

/// Adds the path of the file to the error of a reader.
fn file_error(path: &Path, error: &ArrowError) -> QueryError {
    match error {
        ArrowError::ParseError(message) | ArrowError::JsonError(message) => message_error(path, message.clone()),
        other => message_error(path, other.to_string()),
    }
}

fn message_error(path: &Path, message: String) -> QueryError {
    /// `bad_copy_file_format`: the SQLSTATE of files whose content cannot be read.
    const BAD_FORMAT: &str = "22P04";
    QueryError::File { path: path.display().to_string(), message, hint: None, sqlstate: BAD_FORMAT }
}
