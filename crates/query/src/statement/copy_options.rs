//! The options of `COPY`, and the formats of files.

use std::path::Path;

use crate::error::{QueryError, Result};

/// Supported options of `COPY`, for error messages.
pub(crate) const OPTIONS_ALLOWED: &str =
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
            _ => Err(QueryError::unsupported(format!("format {name:?}"), "formats are parquet, csv and json")),
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
            _ => Err(QueryError::unsupported(
                format!("the format of {}", path.display()),
                "name it as parquet, csv or json where the file's ending does not tell it",
            )),
        }
    }
}

/// The engine's option for the delimiter.
const DELIMITER: &str = "format.delimiter";
/// Extensions of compressed text files, and the engine's names of their compression.
const COMPRESSIONS: [(&str, &str); 4] = [(".gz", "gzip"), (".zst", "zstd"), (".bz2", "bzip2"), (".xz", "xz")];

fn compression_of(file: &str) -> Option<&'static str> {
    let file = file.to_ascii_lowercase();
    COMPRESSIONS.iter().find(|(ending, _)| file.ends_with(ending)).map(|(_, compression)| *compression)
}

/// Whether the path of a file contains `.tsv`, so that its values are separated by tabs.
pub(crate) fn is_separated_by_tabs(file: &Path) -> bool {
    file.to_str().is_some_and(|file| file.contains(".tsv"))
}

/// Translates the options of `COPY ... TO` into the engine's format name and options.
///
/// # Errors
/// If the format or an option is not known.
pub(crate) fn engine_options(file: &str, pairs: Vec<(String, String)>) -> Result<(String, Vec<(String, String)>)> {
    let mut format = None;
    let mut options: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs {
        match name.as_str() {
            "format" => format = Some(FileFormat::from_name(&value)?),
            "header" => options.push(("format.has_header".to_owned(), value)),
            "delimiter" | "quote" | "escape" => options.push((format!("format.{name}"), value)),
            "null" => options.push(("format.null_value".to_owned(), value)),
            _ => return Err(QueryError::unsupported(format!("COPY option {name}"), OPTIONS_ALLOWED)),
        }
    }
    let format = format.map_or_else(|| FileFormat::of_path(Path::new(file)), Ok)?;
    if format != FileFormat::Csv && !options.is_empty() {
        return Err(QueryError::unsupported(format!("COPY option {} for this format", options[0].0), OPTIONS_ALLOWED));
    }
    if format == FileFormat::Csv && is_separated_by_tabs(Path::new(file)) {
        let is_given = options.iter().any(|(name, _)| name == DELIMITER);
        options.extend((!is_given).then(|| (DELIMITER.to_owned(), "\t".to_owned())));
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
