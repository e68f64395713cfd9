//! CSV files. One thread reads a file in chunks, several threads read the records of the chunks, and the rows keep the
//! order of the file.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion_common_runtime::SpawnedTask;
use taut_types::{LogicalType, Schema};
use tokio::sync::mpsc::Sender;

use super::chunks::{Chunk, ChunkError, Chunks, RECORD_BYTES_MAX};
use super::inference::{Candidates, observe_all};
use super::records::{Dialect, RecordError, Records, read_columns};
use super::values::read_values;
use super::{FileColumns, INFERENCE_RECORDS, ReadOptions, file_error, message_error, open_decompressed};
use crate::error::{QueryError, Result};

/// Records that are observed at once when types are inferred.
const INFERENCE_BATCH: usize = 8_192;

/// Maximum bytes of a record that types are inferred from, outside of the memory limit of the database.
const INFERENCE_RECORD_BYTES_MAX: usize = 16 << 20;

/// A CSV file.
#[derive(Clone, Debug)]
pub(super) struct CsvFile {
    path: PathBuf,
    dialect: Dialect,
    has_header: bool,
    /// All columns of the file.
    all: SchemaRef,
    /// Indexes of the columns that are read, in ascending order.
    projection: Vec<usize>,
    schema: SchemaRef,
}

impl CsvFile {
    /// Describes a file for reading into the columns of a table.
    ///
    /// # Errors
    /// If the file cannot be read, has no columns, or names the columns of the table in another order.
    pub fn new(path: &Path, options: &ReadOptions, columns: &FileColumns) -> Result<Self> {
        let dialect = options.dialect(path)?;
        let (has_header, schema) = match options.header {
            Some(false) => (false, text_schema(&columns.schema)),
            header => match columns_of_header(path, &dialect, columns)? {
                Some(named) => (true, text_schema(&named)),
                None => (header.is_some(), text_schema(&columns.schema)),
            },
        };
        if schema.fields().is_empty() {
            return Err(message_error(path, "it has no columns".to_owned()));
        }
        Ok(Self::with_schema(path, dialect, has_header, Arc::new(schema)))
    }

    /// Describes files whose columns are inferred from their contents. Skips empty files.
    ///
    /// # Errors
    /// If a file cannot be read, all are empty, or one has other columns than the first one.
    pub fn infer(paths: &[PathBuf], options: &ReadOptions) -> Result<Vec<Self>> {
        let has_header = options.header.unwrap_or(true);
        let mut inference = Inference::new(has_header, paths.len());
        let mut dialects = Vec::new();
        for path in paths {
            let dialect = options.dialect(path)?;
            if inference.observe(path, &dialect)? {
                dialects.push((path, dialect));
            }
        }
        if dialects.is_empty() {
            return Err(message_error(&paths[0], "it has no columns".to_owned()));
        }
        let schema = Arc::new(inference.schema());
        let file = |(path, dialect): (&PathBuf, _)| Self::with_schema(path, dialect, has_header, Arc::clone(&schema));
        Ok(dialects.into_iter().map(file).collect())
    }

    fn with_schema(path: &Path, dialect: Dialect, has_header: bool, all: SchemaRef) -> Self {
        let projection = (0..all.fields().len()).collect();
        Self { path: path.to_owned(), dialect, has_header, schema: Arc::clone(&all), all, projection }
    }

    /// All columns of the file.
    pub fn full_schema(&self) -> &SchemaRef {
        &self.all
    }

    /// Returns the same file, restricted to the columns with these indexes, which ascend.
    ///
    /// # Errors
    /// If a column does not exist.
    pub fn with_columns(&self, projection: &[usize]) -> datafusion::common::Result<Self> {
        let schema = Arc::new(self.all.project(projection)?);
        Ok(Self { projection: projection.to_vec(), schema, ..self.clone() })
    }

    /// Reads the rows of a chunk.
    fn read_chunk(&self, chunk: &Chunk, batch_rows: usize) -> Result<Vec<RecordBatch>> {
        let mut records = Records::new(&chunk.bytes, &self.dialect, chunk.line_end);
        if self.has_header && chunk.first_line == 1 {
            records.read(true, |_, _| {}).map_err(|error| self.record_error(chunk, error))?;
        }
        let mut batches = Vec::new();
        loop {
            let read = read_columns(&mut records, self.all.fields().len(), &self.projection, batch_rows)
                .map_err(|error| self.record_error(chunk, error))?;
            if read.starts.is_empty() {
                return Ok(batches);
            }
            let mut columns = Vec::with_capacity(read.columns.len());
            for (texts, field) in read.columns.iter().zip(self.schema.fields()) {
                let values = read_values(texts, field.data_type());
                columns.push(values.map_err(|_| self.value_error(chunk, &read.starts, texts, field))?);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(read.starts.len()));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
            batches.push(batch.map_err(DataFusionError::from)?);
        }
    }

    fn record_error(&self, chunk: &Chunk, error: RecordError) -> QueryError {
        let names: Vec<_> = self.all.fields().iter().map(|field| field.name().as_str()).collect();
        record_error(&self.path, chunk, &names, error)
    }

    /// Error about the first text that is not a value of a column's type.
    fn value_error(&self, chunk: &Chunk, starts: &[usize], texts: &ArrayRef, field: &Field) -> QueryError {
        let error = |row: usize| Some((row, read_values(&texts.slice(row, 1), field.data_type()).err()?));
        let Some((row, error)) = (0..texts.len()).find_map(error) else {
            return message_error(&self.path, format!("column {:?}: a value is invalid", field.name()));
        };
        let cause = QueryError::from(DataFusionError::from(error));
        let message = format!("line {}, column {:?}: {cause}", chunk.line_at(starts[row]), field.name());
        let (path, sqlstate) = (self.path.display().to_string(), cause.sqlstate());
        QueryError::File { path, message, hint: None, sqlstate }
    }

    /// Reads the file and sends its rows. Up to `threads` chunks are read at once.
    async fn send_rows(
        self: Arc<Self>,
        sender: Sender<datafusion::common::Result<RecordBatch>>,
        memory: MemoryReservation,
        (threads, batch_rows): (usize, usize),
    ) -> datafusion::common::Result<()> {
        let joined = |error| DataFusionError::ExecutionJoin(Box::new(error));
        let chunks = open_chunks(&self.path, &self.dialect, RECORD_BYTES_MAX).map_err(external)?;
        let mut source = Some(chunks.with_memory(memory));
        let mut pending = VecDeque::with_capacity(threads);
        loop {
            while pending.len() < threads
                && let Some(mut chunks) = source.take()
            {
                let next = SpawnedTask::spawn_blocking(move || (chunks.next(), chunks));
                if let (Some(chunk), chunks) = next.join_unwind().await.map_err(joined)? {
                    let chunk = chunk.map_err(|error| external(chunk_error(&self.path, error)))?;
                    source = Some(chunks);
                    let file = Arc::clone(&self);
                    pending.push_back(SpawnedTask::spawn_blocking(move || file.read_chunk(&chunk, batch_rows)));
                }
            }
            let Some(task) = pending.pop_front() else { return Ok(()) };
            for batch in task.join_unwind().await.map_err(joined)?.map_err(external)? {
                // `send` fails if the statement was cancelled or another part of it has failed.
                if sender.send(Ok(batch)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

impl PartitionStream for CsvFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        /// Maximum number of batches that are produced ahead of the reader.
        const READ_AHEAD: usize = 4;
        let config = context.session_config();
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), READ_AHEAD);
        let sender = builder.tx();
        let memory = MemoryConsumer::new("CSV").register(context.memory_pool());
        let sizes = (config.target_partitions(), config.batch_size());
        builder.spawn(Arc::new(self.clone()).send_rows(sender, memory, sizes));
        builder.build()
    }
}

fn external(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn open_chunks(path: &Path, dialect: &Dialect, record_bytes_max: usize) -> Result<Chunks<Box<dyn Read + Send>>> {
    Ok(Chunks::new(open_decompressed(path)?, dialect.clone(), record_bytes_max))
}

fn chunk_error(path: &Path, error: ChunkError) -> QueryError {
    match error {
        ChunkError::Memory(error) => error.into(),
        ChunkError::Read(error) => file_error(path, &ArrowError::IoError(error.to_string(), error)),
        ChunkError::TooLong { bytes_max, line, quote_line } => {
            let allowed = match bytes_max < RECORD_BYTES_MAX {
                true => " while types are inferred; COPY into a table allows 256 MiB",
                false => "",
            };
            let cause = match quote_line {
                Some(quote_line) => format!("the quote in line {quote_line} may not be closed: "),
                None => String::new(),
            };
            let mebibytes = bytes_max >> 20;
            message_error(path, format!("line {line}: {cause}a record has at most {mebibytes} MiB{allowed}"))
        }
    }
}

/// Error about a record of a file. `columns` are the names of the file's columns.
fn record_error(path: &Path, chunk: &Chunk, columns: &[&str], error: RecordError) -> QueryError {
    let (at, message) = match error {
        RecordError::Fields { at, found } => match columns.get(found) {
            Some(missing) => (at, format!("missing data for column {missing:?}")),
            None => (at, "extra data after last expected column".to_owned()),
        },
        RecordError::Unterminated { at } => (at, "unterminated CSV quoted field".to_owned()),
        RecordError::LineEnd { at, byte } => return line_end_error(path, chunk.line_at(at), byte),
        RecordError::Encoding { at, byte } => return encoding_error(path, chunk.line_at(at), byte),
        RecordError::TooLarge => (0, "a value has more than 2 GB".to_owned()),
    };
    message_error(path, format!("line {}: {message}", chunk.line_at(at)))
}

fn encoding_error(path: &Path, line: u64, byte: u8) -> QueryError {
    let message = format!("line {line}: invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}");
    QueryError::File { path: path.display().to_string(), message, hint: None, sqlstate: "22021" }
}

/// Error about a line feed or carriage return that is not the end of a line in its file.
fn line_end_error(path: &Path, line: u64, byte: u8) -> QueryError {
    let (name, hint) = match byte {
        b'\r' => ("carriage return", "Use quoted CSV field to represent carriage return."),
        _ => ("newline", "Use quoted CSV field to represent newline."),
    };
    let message = format!("line {line}: unquoted {name} found in data");
    QueryError::File { path: path.display().to_string(), message, hint: Some(hint), sqlstate: "22P04" }
}

/// Returns the schema in which the columns of a table are read from a file.
fn text_schema(schema: &Schema) -> ArrowSchema {
    let fields = schema.columns().iter().map(|column| {
        let arrow = match column.logical_type {
            LogicalType::Varchar => DataType::Utf8,
            other => other.arrow(),
        };
        // Nulls in NOT NULL columns are found and reported when the rows are converted to the types of the table.
        Field::new(&column.name, arrow, true)
    });
    ArrowSchema::new(fields.collect::<Vec<_>>())
}

/// Returns the fields of the first record of a file, or no fields if the file is empty. A null becomes empty text.
fn first_record(path: &Path, dialect: &Dialect, record_bytes_max: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let Some(chunk) = open_chunks(path, dialect, record_bytes_max)?.next() else { return Ok(names) };
    let chunk = chunk.map_err(|error| chunk_error(path, error))?;
    let name = |_: usize, text: Option<&[u8]>| names.push(String::from_utf8_lossy(text.unwrap_or_default()).into());
    let read = Records::new(&chunk.bytes, dialect, chunk.line_end).read(true, name);
    read.map_err(|error| record_error(path, &chunk, &[], error))?;
    Ok(names)
}

/// Returns the columns of a table that the first record of a file names, or `None` if it does not name columns.
///
/// # Errors
/// If it names all columns in another order: the columns of CSV files match by ordinal.
fn columns_of_header(path: &Path, dialect: &Dialect, columns: &FileColumns) -> Result<Option<Schema>> {
    let found: Vec<_> = first_record(path, dialect, RECORD_BYTES_MAX)?.iter().map(|name| comparable(name)).collect();
    let wanted: Vec<_> = columns.schema.columns().iter().map(|column| comparable(&column.name)).collect();
    if found == wanted {
        return Ok(Some(columns.schema.clone()));
    }
    let indexes: Option<Vec<_>> = found.iter().map(|name| wanted.iter().position(|other| other == name)).collect();
    let Some(indexes) = indexes.filter(|indexes| !indexes.is_empty() && is_distinct(indexes)) else { return Ok(None) };
    if indexes.len() == wanted.len() {
        let (found, wanted) = (found.join(", "), wanted.join(", "));
        let message = format!(
            "its first line names the columns as ({found}), and CSV is read by index, here ({wanted}); name them: COPY \
             table ({found}) FROM ..."
        );
        return Err(message_error(path, message));
    }
    if columns.are_listed {
        return Ok(None);
    }
    Ok(Some(Schema::new(indexes.iter().map(|index| columns.schema.columns()[*index].clone()).collect())?))
}

/// Normalizes the name of a column for comparisons.
fn comparable(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}

fn is_distinct(indexes: &[usize]) -> bool {
    let mut sorted = indexes.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// Makes the names of a header distinct. A repeated name gets a number, as in DuckDB: `a, a_1`.
fn distinct_names(header: Vec<String>) -> Vec<String> {
    // For each name so far, the number that the next column of this name gets if the result is free.
    let mut numbers: HashMap<String, usize> = HashMap::with_capacity(header.len());
    let distinct = |mut name: String| {
        while let Some(number) = numbers.get_mut(&name) {
            *number += 1;
            name = format!("{name}_{}", *number - 1);
        }
        numbers.insert(name.clone(), 1);
        name
    };
    header.into_iter().map(distinct).collect()
}

/// Inference of the columns of files, which all have the columns of the first one.
struct Inference {
    has_header: bool,
    /// Number of records of each file that are observed.
    records: usize,
    /// The first file that is not empty.
    first: PathBuf,
    names: Vec<String>,
    candidates: Vec<Candidates>,
}

impl Inference {
    fn new(has_header: bool, files: usize) -> Self {
        /// Minimum number of records of each file.
        const RECORDS_MIN: usize = 1_000;
        let records = (INFERENCE_RECORDS / files.max(1)).max(RECORDS_MIN);
        Self { has_header, records, first: PathBuf::new(), names: Vec::new(), candidates: Vec::new() }
    }

    /// Observes the first records of a file. Returns false if it is empty.
    ///
    /// # Errors
    /// If the file cannot be read, or has other columns than the first one.
    fn observe(&mut self, path: &Path, dialect: &Dialect) -> Result<bool> {
        let first = first_record(path, dialect, INFERENCE_RECORD_BYTES_MAX)?;
        if first.is_empty() {
            return Ok(false);
        }
        let names = match self.has_header {
            true => distinct_names(first),
            false => (1..=first.len()).map(|index| format!("column_{index}")).collect(),
        };
        if self.names.is_empty() {
            self.candidates = vec![Candidates::default(); names.len()];
            (self.first, self.names) = (path.to_owned(), names);
        } else if !names.iter().map(|name| comparable(name)).eq(self.names.iter().map(|name| comparable(name))) {
            let (found, wanted) = (names.join(", "), self.names.join(", "));
            let message = format!(
                "its columns are ({found}), but the columns of {:?} are ({wanted}); files that are read together must \
                 have the same columns in the same order",
                self.first
            );
            return Err(message_error(path, message));
        }
        self.observe_records(path, dialect)?;
        Ok(true)
    }

    fn observe_records(&mut self, path: &Path, dialect: &Dialect) -> Result<()> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let wanted: Vec<usize> = (0..names.len()).collect();
        let mut remaining = self.records;
        for chunk in open_chunks(path, dialect, INFERENCE_RECORD_BYTES_MAX)? {
            let chunk = chunk.map_err(|error| chunk_error(path, error))?;
            let error = |error| record_error(path, &chunk, &names, error);
            let mut records = Records::new(&chunk.bytes, dialect, chunk.line_end);
            if self.has_header && chunk.first_line == 1 {
                records.read(true, |_, _| {}).map_err(error)?;
            }
            while remaining > 0 {
                let rows = remaining.min(INFERENCE_BATCH);
                let read = read_columns(&mut records, names.len(), &wanted, rows).map_err(error)?;
                if read.starts.is_empty() {
                    break;
                }
                remaining -= read.starts.len();
                observe_all(&mut self.candidates, &read.columns);
            }
            if remaining == 0 {
                break;
            }
        }
        Ok(())
    }

    fn schema(&self) -> ArrowSchema {
        let fields = self.names.iter().zip(&self.candidates);
        let field = |(name, candidates): (&String, &Candidates)| Field::new(name, candidates.data_type(), true);
        ArrowSchema::new(fields.map(field).collect::<Vec<_>>())
    }
}
