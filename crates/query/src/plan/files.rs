//! Files outside the database: their formats, the options for reading them, and readers of their rows.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::StringArray;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::csv::ReaderBuilder as CsvReaderBuilder;
use datafusion::arrow::csv::reader::Format as CsvFormat;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder as JsonReaderBuilder;
use datafusion::arrow::json::reader::infer_json_schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use taut_sql::{FileFormat, OPTIONS_ALLOWED, ObjectKind, is_separated_by_tabs};
use taut_types::{LogicalType, Schema};

use crate::error::{QueryError, Result};

/// Number of records that the types of a CSV or JSON file are inferred from.
const INFERENCE_RECORDS: usize = 100_000;

/// Options for reading files.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Format of the files; `None` derives it from the file name extension.
    pub format: Option<FileFormat>,
    /// Whether the first line of a CSV file names the columns. `None` compares the line with the column names of the
    /// table, or means true if there is no table.
    pub header: Option<bool>,
    /// Delimiter between values; `None` derives it from the file name extension.
    pub delimiter: Option<u8>,
    /// Quote character.
    pub quote: u8,
    /// Escape character for a quote inside a quoted value; `None` if such a quote is doubled.
    pub escape: Option<u8>,
    /// Text that stands for null, in addition to the empty value.
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
        _ => Err(QueryError::unsupported(format!("COPY option {name} = {value:?}"), "allowed are true and false")),
    }
}

impl ReadOptions {
    /// Parses the options of a `COPY ... FROM`.
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

    fn csv_format(&self, path: &Path, header: bool) -> Result<CsvFormat> {
        let mut format =
            CsvFormat::default().with_header(header).with_delimiter(self.delimiter_of(path)).with_quote(self.quote);
        if let Some(escape) = self.escape.filter(|escape| *escape != self.quote) {
            format = format.with_escape(escape);
        }
        if let Some(null) = &self.null {
            format = format.with_null_regex(null_pattern(null)?);
        }
        Ok(format)
    }
}

fn null_pattern(null: &str) -> Result<regex::Regex> {
    regex::Regex::new(&format!("^({})?$", regex::escape(null)))
        .map_err(|error| QueryError::unsupported(format!("NULL {null:?}: {error}"), OPTIONS_ALLOWED))
}

fn parse_ascii_character(option: &str, value: &str) -> Result<u8> {
    match value.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(QueryError::unsupported(format!("COPY option {option} {value:?}"), "it is one ASCII character")),
    }
}

/// Whether a name is a URL with an authority, such as `https://example.org/rows.csv`, and not a path.
pub fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// Reads the rows of files. Columns match by ordinal for `csv`, and by name for `parquet` and `json`.
///
/// For an existing table, `columns` describes the columns of the file, and text is parsed into their types.
///
/// # Errors
/// If a file cannot be opened or its columns cannot be inferred. Errors in the contents appear when the rows are read.
pub async fn read(
    context: &SessionContext,
    files: &[PathBuf],
    options: &ReadOptions,
    columns: Option<&Schema>,
) -> Result<(FileFormat, DataFrame)> {
    let Some(first) = files.first() else {
        return Err(QueryError::unsupported("loading no files", "name at least one"));
    };
    if let Some(missing) = files.iter().find(|file| !file.exists()) {
        let name = missing.display().to_string();
        return Err(match is_url(&name) {
            true => QueryError::unsupported(
                format!("reading {name:?}, which is not a file of this machine,"),
                "a path is; download the file first",
            ),
            false => QueryError::NotFound { kind: ObjectKind::File, name, relation: None },
        });
    }
    let format = options.format_of(first)?;
    if format == FileFormat::Parquet {
        let paths: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let end = first.extension().and_then(|end| end.to_str()).map(|end| format!(".{end}")).unwrap_or_default();
        let frame = context.read_parquet(paths, ParquetReadOptions::default().file_extension(&end)).await?;
        return Ok((format, frame));
    }
    let mut partitions: Vec<Arc<dyn PartitionStream>> = Vec::new();
    let mut schema: Option<SchemaRef> = columns.map(text_schema);
    for file in files {
        let text = TextFile::new(file, format, options, schema.clone())?;
        schema = Some(Arc::clone(&text.schema));
        partitions.push(Arc::new(text));
    }
    let table = StreamingTable::try_new(schema.unwrap_or_else(|| Arc::new(ArrowSchema::empty())), partitions)?;
    Ok((format, context.read_table(Arc::new(table))?))
}

/// Schema that text files are parsed into for the columns of a table.
fn text_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.columns().iter().map(|column| {
        let arrow = match column.logical_type {
            LogicalType::Varchar | LogicalType::Bytea => DataType::Utf8,
            other => other.arrow(),
        };
        // Nulls in NOT NULL columns are found and reported when the rows are converted to the types of the table.
        Field::new(&column.name, arrow, true)
    });
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// A CSV or JSON-lines file. Read in one pass from beginning to end, so that errors can name the line of a bad value.
#[derive(Clone, Debug)]
struct TextFile {
    path: PathBuf,
    format: FileFormat,
    csv: CsvFormat,
    options: ReadOptions,
    header: bool,
    /// Whether `schema` was given, not inferred from this file. In JSON, a key that is not a column is then an error.
    is_strict: bool,
    schema: SchemaRef,
}

impl TextFile {
    fn new(path: &Path, format: FileFormat, options: &ReadOptions, schema: Option<SchemaRef>) -> Result<Self> {
        let header = match (options.header, &schema) {
            (Some(true), Some(schema)) => {
                has_header_line(path, options, schema)?;
                true
            }
            (Some(header), _) => header,
            (None, Some(schema)) => has_header_line(path, options, schema)?,
            (None, None) => true,
        };
        let csv = options.csv_format(path, header)?;
        let is_strict = schema.is_some();
        let schema = match schema {
            Some(schema) => schema,
            None => Arc::new(infer_schema(path, format, &csv).map_err(|error| file_error(path, &error))?),
        };
        if schema.fields().is_empty() {
            return Err(QueryError::File { path: path.display().to_string(), message: "it has no columns".to_owned() });
        }
        let options = options.clone();
        Ok(Self { path: path.to_owned(), format, csv, options, header, is_strict, schema })
    }

    fn batches(&self, batch_rows: usize) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>> {
        let error = |error: ArrowError| self.with_position(&error);
        let source = open_decompressed(&self.path).map_err(error)?;
        Ok(match self.format {
            FileFormat::Json => Box::new(
                JsonReaderBuilder::new(Arc::clone(&self.schema))
                    .with_batch_size(batch_rows)
                    .with_strict_mode(self.is_strict)
                    .build(BufReader::new(source))
                    .map_err(error)?,
            ),
            FileFormat::Csv | FileFormat::Parquet => Box::new(
                CsvReaderBuilder::new(Arc::clone(&self.schema))
                    .with_format(self.csv.clone())
                    .with_batch_size(batch_rows)
                    .build(source)
                    .map_err(error)?,
            ),
        })
    }
}

impl PartitionStream for TextFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        /// Maximum number of batches that are read ahead of the encoder.
        const READ_AHEAD: usize = 4;
        let batch_rows = context.session_config().batch_size();
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), READ_AHEAD);
        let sender = builder.tx();
        let file = self.clone();
        let batches = self.batches(batch_rows);
        builder.spawn_blocking(move || {
            let external = |error: QueryError| DataFusionError::External(Box::new(error));
            for batch in batches.map_err(external)? {
                let batch = batch.map_err(|error| external(file.with_position(&error)));
                let failed = batch.is_err();
                // The receiver is gone if the statement was cancelled or has failed elsewhere.
                if sender.blocking_send(batch).is_err() || failed {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}

/// Reads the bytes of a file, decompressed if its extension names a compression format.
fn open_decompressed(path: &Path) -> Result<Box<dyn Read + Send>, ArrowError> {
    let io = |error: std::io::Error| ArrowError::IoError(error.to_string(), error);
    let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let compression = match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => FileCompressionType::GZIP,
        Some("zst") => FileCompressionType::ZSTD,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        _ => FileCompressionType::UNCOMPRESSED,
    };
    compression.convert_read(file).map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

fn infer_schema(path: &Path, format: FileFormat, csv: &CsvFormat) -> Result<ArrowSchema, ArrowError> {
    let source = open_decompressed(path)?;
    match format {
        FileFormat::Json => Ok(infer_json_schema(BufReader::new(source), Some(INFERENCE_RECORDS))?.0),
        FileFormat::Csv | FileFormat::Parquet => {
            let (schema, _) = csv.infer_schema(source, Some(INFERENCE_RECORDS))?;
            // The type of a column without any value is unknown; it becomes text.
            let with_known_type = |field: &Arc<Field>| match field.data_type() {
                DataType::Null => field.as_ref().clone().with_data_type(DataType::Utf8),
                _ => field.as_ref().clone(),
            };
            Ok(ArrowSchema::new(schema.fields().iter().map(with_known_type).collect::<Vec<_>>()))
        }
    }
}

/// Whether the first line of a CSV file holds the names of the columns.
///
/// # Errors
/// If the names are in another order: the columns of CSV files match by ordinal.
fn has_header_line(path: &Path, options: &ReadOptions, schema: &SchemaRef) -> Result<bool> {
    let csv = options.csv_format(path, true)?;
    let error = |error: ArrowError| file_error(path, &error);
    if options.format_of(path)? != FileFormat::Csv {
        return Ok(false);
    }
    let (first, _) = csv.infer_schema(open_decompressed(path).map_err(error)?, Some(0)).map_err(error)?;
    let names = |schema: &ArrowSchema| -> Vec<String> {
        schema.fields().iter().map(|field| field.name().trim().to_ascii_lowercase()).collect()
    };
    let (found, wanted) = (names(&first), names(schema));
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    if found != wanted && sorted(&found) == sorted(&wanted) {
        let (found, wanted) = (found.join(", "), wanted.join(", "));
        let message = format!(
            "its first line names the columns as ({found}), and CSV is read by index, here ({wanted}); name them: COPY \
             table ({found}) FROM ..."
        );
        return Err(QueryError::File { path: path.display().to_string(), message });
    }
    Ok(found == wanted)
}

/// Adds the path of the file to a reader's error.
fn file_error(path: &Path, error: &ArrowError) -> QueryError {
    let message = match error {
        ArrowError::CsvError(message) | ArrowError::ParseError(message) | ArrowError::JsonError(message) => {
            message.clone()
        }
        other => other.to_string(),
    };
    QueryError::File { path: path.display().to_string(), message }
}

impl TextFile {
    /// Adds line and column to a reader's error. The reader counts records, not lines, and gives no position for some
    /// types. So this reads the file again, up to the value that does not fit.
    fn with_position(&self, error: &ArrowError) -> QueryError {
        let found = match self.format {
            FileFormat::Csv => self.first_bad_record(),
            FileFormat::Json | FileFormat::Parquet => None,
        };
        match found {
            Some(message) => QueryError::File { path: self.path.display().to_string(), message },
            None => file_error(&self.path, error),
        }
    }

    /// Description of the first record that does not match the schema.
    fn first_bad_record(&self) -> Option<String> {
        let quote = self.options.quote;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(self.header)
            .flexible(true)
            .delimiter(self.options.delimiter_of(&self.path))
            .quote(quote)
            .escape(self.options.escape.filter(|escape| *escape != quote))
            .from_reader(open_decompressed(&self.path).ok()?);
        let mut record = csv::StringRecord::new();
        loop {
            match reader.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(error.to_string()),
            }
            let line = record.position().map_or(0, csv::Position::line);
            let (expected, found) = (self.schema.fields().len(), record.len());
            if found != expected {
                return Some(format!("line {line}: expected {expected} values, one for each column, found {found}"));
            }
            for (field, text) in self.schema.fields().iter().zip(&record) {
                if !self.is_null(text) && !can_parse(text, field.data_type()) {
                    let wanted = LogicalType::from_arrow(field.data_type()).map_or_else(String::new, |t| t.sql_name());
                    return Some(format!("line {line}, column {:?}: {text:?} is no {wanted}", field.name()));
                }
            }
        }
    }

    fn is_null(&self, text: &str) -> bool {
        text.is_empty() || self.options.null.as_deref() == Some(text)
    }
}

/// Whether a text can be parsed as a type.
fn can_parse(text: &str, data_type: &DataType) -> bool {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    data_type.is_string() || cast_with_options(&StringArray::from(vec![text]), data_type, &strict).is_ok()
}
