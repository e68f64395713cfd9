//! `COPY`, its options, and the formats of files.

use std::path::Path;
use std::sync::Arc;

use datafusion_sql::parser::{CopyToSource, CopyToStatement, Statement as PlannerStatement};
use datafusion_sql::sqlparser::ast::{CopyOption, CopySource, CopyTarget, Value};

use crate::attachment::Attachment;
use crate::error::{Result, SqlError};
use crate::identifiers::{normalize, relation_reference};
use crate::statement::Statement;

/// Supported options of `COPY`, for error messages.
pub const OPTIONS_ALLOWED: &str =
    "COPY takes FORMAT parquet, csv or json, and for csv HEADER, DELIMITER, QUOTE, ESCAPE and NULL";

/// Format of a file that `COPY` reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values, or another delimiter.
    Csv,
    /// One JSON object per line.
    Json,
}

impl FileFormat {
    /// Returns the format with a name such as `csv`, in any case.
    ///
    /// # Errors
    /// If no format has this name.
    pub fn from_name(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "parquet" => Ok(Self::Parquet),
            "csv" | "tsv" => Ok(Self::Csv),
            "json" | "ndjson" | "jsonl" => Ok(Self::Json),
            _ => Err(SqlError::copy_option(format!(
                "COPY format {name:?} not recognized; formats are parquet, csv and json"
            ))),
        }
    }

    /// Returns the format of a file by the extension of its name. An extension such as `.gz` at the end is skipped.
    ///
    /// # Errors
    /// If no format has this extension.
    pub fn of_path(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
        let stem = COMPRESSIONS.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(&name);
        match stem.rsplit_once('.').map(|(_, end)| end) {
            Some("parquet" | "pq" | "parq") => Ok(Self::Parquet),
            Some("csv" | "tsv" | "tbl" | "txt") => Ok(Self::Csv),
            Some("json" | "ndjson" | "jsonl") => Ok(Self::Json),
            _ => Err(SqlError::unsupported(
                format!("the format of {}", path.display()),
                "use FORMAT parquet, csv or json, or a file with such an extension",
            )),
        }
    }
}

/// DataFusion's name of the delimiter option.
const DELIMITER: &str = "format.delimiter";
/// Extensions of compressed text files, and DataFusion's names of the compression formats.
const COMPRESSIONS: [(&str, &str); 4] = [(".gz", "gzip"), (".zst", "zstd"), (".bz2", "bzip2"), (".xz", "xz")];

/// Checks that the delimiter, the quote and the null string of a CSV file can be used together.
///
/// # Errors
/// If the delimiter or the quote is a line break, or both are equal. If the null string contains the delimiter, the
/// quote or a line break.
pub fn check_csv_characters(delimiter: u8, quote: u8, null: &str) -> Result<()> {
    let excluded = |message: &str| Err(SqlError::CopyOption { message: message.to_owned(), sqlstate: "0A000" });
    let is_line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if is_line_end(&delimiter) {
        return Err(SqlError::copy_option("COPY delimiter cannot be newline or carriage return"));
    }
    if is_line_end(&quote) {
        return Err(SqlError::copy_option("COPY quote cannot be newline or carriage return"));
    }
    if null.as_bytes().iter().any(is_line_end) {
        return Err(SqlError::copy_option("COPY null representation cannot use newline or carriage return"));
    }
    if delimiter == quote {
        return Err(SqlError::copy_option("COPY delimiter and quote must be different"));
    }
    if null.as_bytes().contains(&delimiter) {
        return excluded("COPY delimiter must not appear in the NULL specification");
    }
    if null.as_bytes().contains(&quote) {
        return excluded("CSV quote character must not appear in the NULL specification");
    }
    Ok(())
}

/// Checks options of CSV files that DataFusion does not check.
fn check_engine_options(options: &[(String, String)]) -> Result<()> {
    let value = |name: &str| options.iter().rev().find(|(option, _)| option == name).map(|(_, value)| value.as_str());
    let character = |option: &str, default: u8| match value(&format!("format.{option}")).map(str::as_bytes) {
        None => Ok(default),
        Some([byte]) if byte.is_ascii() => Ok(*byte),
        Some(_) => Err(SqlError::not_a_character(option)),
    };
    let (delimiter, quote) = (character("delimiter", b',')?, character("quote", b'"')?);
    character("escape", quote)?;
    check_csv_characters(delimiter, quote, value("format.null_value").unwrap_or_default())
}

fn compression_of(file: &str) -> Option<&'static str> {
    let file = file.to_ascii_lowercase();
    COMPRESSIONS.iter().find(|(ending, _)| file.ends_with(ending)).map(|(_, compression)| *compression)
}

/// Whether the path of a file contains `.tsv`, so that tabs separate its values.
pub fn is_separated_by_tabs(file: &Path) -> bool {
    file.to_str().is_some_and(|file| file.contains(".tsv"))
}

pub(super) fn copy(source: CopySource, to: bool, target: CopyTarget, options: &[CopyOption]) -> Result<Statement> {
    let CopyTarget::File { filename } = target else {
        return Err(SqlError::unsupported("COPY with STDIN, STDOUT or PROGRAM", "COPY takes the name of a file"));
    };
    let options = options.iter().map(copy_option).collect::<Result<Vec<_>>>()?;
    let (source, columns) = match source {
        CopySource::Table { table_name, columns } if to && columns.is_empty() => {
            (CopyToSource::Relation(table_name), Vec::new())
        }
        CopySource::Query(query) if to => (CopyToSource::Query(query), Vec::new()),
        CopySource::Table { table_name, columns } => (CopyToSource::Relation(table_name), columns),
        CopySource::Query(_) => {
            return Err(SqlError::unsupported(
                "COPY (query) FROM",
                "COPY (query) TO 'file' and COPY t FROM 'file' are",
            ));
        }
    };
    match source {
        CopyToSource::Relation(table) if !to => Ok(Statement::CopyFrom {
            name: relation_reference(&table)?,
            columns: columns.iter().map(normalize).collect(),
            file: filename,
            options,
        }),
        source if columns.is_empty() => {
            let (stored_as, options) = engine_options(&filename, options)?;
            let text = |value: String| Value::SingleQuotedString(value);
            let copy = CopyToStatement {
                source,
                target: filename,
                partitioned_by: Vec::new(),
                stored_as: Some(stored_as),
                options: options.into_iter().map(|(name, value)| (name, text(value))).collect(),
            };
            // The query may be long, so the statement is treated as long.
            let statement = Arc::new(PlannerStatement::CopyTo(copy));
            Ok(Statement::Planned { statement, names: None, is_long: true, plan: Attachment::default() })
        }
        _ => Err(SqlError::unsupported("a list of columns in COPY ... TO", "COPY (SELECT a, b FROM t) TO 'file' is")),
    }
}

fn copy_option(option: &CopyOption) -> Result<(String, String)> {
    let pair = |name: &str, value: String| Ok((name.to_owned(), value));
    match option {
        CopyOption::Format(format) => pair("format", format.value.to_ascii_lowercase()),
        CopyOption::Header(header) => pair("header", header.to_string()),
        CopyOption::Delimiter(delimiter) => pair("delimiter", delimiter.to_string()),
        CopyOption::Quote(quote) => pair("quote", quote.to_string()),
        CopyOption::Escape(escape) => pair("escape", escape.to_string()),
        CopyOption::Null(null) => pair("null", null.clone()),
        other => Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS_ALLOWED)),
    }
}

/// Translates the options of `COPY ... TO` into DataFusion's format name and options.
///
/// # Errors
/// If the format or an option is unknown, or if an option does not fit the format.
fn engine_options(file: &str, pairs: Vec<(String, String)>) -> Result<(String, Vec<(String, String)>)> {
    let mut format = None;
    let mut options: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs {
        match name.as_str() {
            "format" => format = Some(FileFormat::from_name(&value)?),
            "header" => options.push(("format.has_header".to_owned(), value)),
            "delimiter" | "quote" | "escape" => options.push((format!("format.{name}"), value)),
            "null" => options.push(("format.null_value".to_owned(), value)),
            _ => return Err(SqlError::unsupported(format!("COPY option {name}"), OPTIONS_ALLOWED)),
        }
    }
    let format = format.map_or_else(|| FileFormat::of_path(Path::new(file)), Ok)?;
    if format != FileFormat::Csv && !options.is_empty() {
        return Err(SqlError::unsupported(format!("COPY option {} for this format", options[0].0), OPTIONS_ALLOWED));
    }
    if format == FileFormat::Csv && is_separated_by_tabs(Path::new(file)) {
        let is_given = options.iter().any(|(name, _)| name == DELIMITER);
        options.extend((!is_given).then(|| (DELIMITER.to_owned(), "\t".to_owned())));
    }
    if format == FileFormat::Csv {
        check_engine_options(&options)?;
    }
    if format != FileFormat::Parquet
        && let Some(compression) = compression_of(file)
    {
        options.push(("format.compression".to_owned(), compression.to_owned()));
    }
    let name = match format {
        FileFormat::Parquet => "PARQUET",
        FileFormat::Csv => "CSV",
        FileFormat::Json => "JSON",
    };
    Ok((name.to_owned(), options))
}
