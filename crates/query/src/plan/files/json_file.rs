//! Files of JSON lines: one object per row.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder;
use datafusion::arrow::json::reader::{ValueIter, infer_json_schema_from_iterator};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use taut_types::LogicalType;

use super::{FileColumns, INFERENCE_RECORDS, file_error, message_error, open_decompressed};
use crate::error::{QueryError, Result};

/// A file of JSON lines. A key that is not a column is an error.
#[derive(Clone, Debug)]
pub(super) struct JsonFile {
    path: PathBuf,
    schema: SchemaRef,
    /// True if the columns were inferred, false if they are columns of a table.
    is_inferred: bool,
}

impl JsonFile {
    pub fn new(path: &Path, schema: SchemaRef, is_inferred: bool) -> Self {
        Self { path: path.to_owned(), schema, is_inferred }
    }

    fn batches(
        &self,
        batch_rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + use<>> {
        ReaderBuilder::new(Arc::clone(&self.schema))
            .with_batch_size(batch_rows)
            .with_strict_mode(true)
            // A column with numbers and strings is inferred as text.
            .with_coerce_primitive(self.is_inferred)
            .build(BufReader::new(open_decompressed(&self.path)?))
            .map_err(|error| file_error(&self.path, &error))
    }

    /// Error about a record that cannot be read.
    fn record_error(&self, error: &ArrowError) -> QueryError {
        let text = error.to_string();
        let key = text.split_once("column '").and_then(|(_, text)| text.split_once("' missing from schema"));
        match key {
            Some((key, _)) if self.is_inferred => message_error(
                &self.path,
                format!(
                    "key {key:?} is not among the first records, from which columns are inferred; CREATE TABLE with all \
                     columns, then COPY the file into it"
                ),
            ),
            Some((key, _)) => message_error(&self.path, format!("key {key:?} is not a column of the table")),
            None => file_error(&self.path, error),
        }
    }
}

/// Columns of JSON files, inferred from their first records.
///
/// # Errors
/// If a file cannot be read, or the values of a key have no common type.
pub(super) fn infer_schema(paths: &[PathBuf]) -> Result<ArrowSchema> {
    /// Strings for the numbers that JSON cannot represent.
    const SPECIAL_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    /// Minimum number of records of each file.
    const RECORDS_MIN: usize = 1_000;
    let records_max = (INFERENCE_RECORDS / paths.len().max(1)).max(RECORDS_MIN);
    let (mut special, mut precise) = (BTreeSet::new(), BTreeSet::new());
    let mut schemas = Vec::new();
    for path in paths {
        let mut source = BufReader::new(open_decompressed(path)?);
        let records = ValueIter::new(&mut source, Some(records_max)).map(|record| {
            let mut record = record?;
            for (key, value) in record.as_object_mut().into_iter().flatten() {
                let integer = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
                if integer.is_some_and(|integer| (integer as f64) as i128 != integer) && !precise.contains(key) {
                    precise.insert(key.clone());
                }
                if value.as_str().is_some_and(|text| SPECIAL_NUMBERS.contains(&text)) {
                    special.insert(key.clone());
                    // A null has no influence on the type.
                    *value = Default::default();
                }
            }
            Ok(record)
        });
        let schema = infer_json_schema_from_iterator(records).map_err(|error| file_error(path, &error))?;
        schemas.push(schema);
    }
    let schema = merged(paths, schemas)?;
    let with_known_type = |field: &Arc<Field>| match field.data_type() {
        DataType::Int64 if special.contains(field.name()) => field.as_ref().clone().with_data_type(DataType::Float64),
        _ => field.as_ref().clone(),
    };
    let with_digits = |field: Field| match field.data_type() {
        // A double would change an integer. As text it keeps its digits, as in CSV files.
        DataType::Float64 if precise.contains(field.name()) => field.with_data_type(DataType::Utf8),
        // The type of a column without any value is unknown; it becomes text.
        DataType::Null => field.with_data_type(DataType::Utf8),
        _ => field,
    };
    Ok(ArrowSchema::new(schema.fields().iter().map(with_known_type).map(with_digits).collect::<Vec<_>>()))
}

/// Merges the columns of all files, in the order of their first occurrence. Numbers become double precision if one file
/// has integers and another one fractions, and text if one file has text.
fn merged(paths: &[PathBuf], schemas: Vec<ArrowSchema>) -> Result<ArrowSchema> {
    let mut fields: Vec<Field> = Vec::new();
    for (path, schema) in paths.iter().zip(schemas) {
        for field in schema.fields() {
            let Some(known) = fields.iter_mut().find(|known| known.name() == field.name()) else {
                fields.push(field.as_ref().clone());
                continue;
            };
            let Some(common) = common_type(known.data_type(), field.data_type()) else {
                let (name, first, other) = (field.name(), kind(known.data_type()), kind(field.data_type()));
                return Err(message_error(path, format!("key {name:?} is {other}, and {first} in a file before")));
            };
            known.set_data_type(common);
        }
    }
    Ok(ArrowSchema::new(fields))
}

/// Returns the kind of JSON values that have an inferred type, for messages.
fn kind(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::List(_) => "an array",
        DataType::Struct(_) => "an object",
        DataType::Boolean => "a boolean",
        DataType::Utf8 => "text",
        _ => "a number",
    }
}

/// A type that can hold the values of two inferred types. `None` if no type can, as for an array and a number.
fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Boolean, Float64, Int64, Null, Utf8};
    match (left, right) {
        _ if left == right => Some(left.clone()),
        (Null, other) | (other, Null) => Some(other.clone()),
        (Int64 | Float64, Int64 | Float64) => Some(Float64),
        (Int64 | Float64 | Boolean | Utf8, Int64 | Float64 | Boolean | Utf8) => Some(Utf8),
        _ => None,
    }
}

/// Returns the schema in which the columns of a table are read from a JSON file, without the columns that get their
/// defaults.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn schema_for(path: &Path, columns: &FileColumns) -> Result<ArrowSchema> {
    let keys = if columns.are_listed || !columns.have_defaults.contains(&true) { None } else { Some(keys_of(path)?) };
    let is_read = |index: usize, name: &String| match &keys {
        Some(keys) => !columns.have_defaults[index] || keys.contains(name),
        None => true,
    };
    let all = columns.schema.columns().iter().enumerate();
    let read = all.filter(|(index, column)| is_read(*index, &column.name));
    // Nulls in NOT NULL columns are found and reported when the rows are converted to the types of the table. Values of
    // types that JSON does not have are read as text and converted there too.
    let field = |name: &String, logical: LogicalType| match logical.arrow() {
        arrow if arrow.is_numeric() || arrow == DataType::Boolean => Field::new(name, arrow, true),
        _ => Field::new(name, DataType::Utf8, true),
    };
    let fields = read.map(|(_, column)| field(&column.name, column.logical_type));
    Ok(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// Keys of the first records of a file.
fn keys_of(path: &Path) -> Result<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    let mut source = BufReader::new(open_decompressed(path)?);
    for record in ValueIter::new(&mut source, Some(INFERENCE_RECORDS)) {
        let record = record.map_err(|error| file_error(path, &error))?;
        for key in record.as_object().into_iter().flat_map(|object| object.keys()) {
            if !keys.contains(key) {
                keys.insert(key.clone());
            }
        }
    }
    Ok(keys)
}

impl PartitionStream for JsonFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        /// Maximum number of batches that are produced ahead of the reader.
        const READ_AHEAD: usize = 4;
        let batch_rows = context.session_config().batch_size();
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), READ_AHEAD);
        let sender = builder.tx();
        let file = self.clone();
        builder.spawn_blocking(move || {
            for batch in file.batches(batch_rows).map_err(|error| DataFusionError::External(Box::new(error)))? {
                let explain = |error| DataFusionError::External(Box::new(file.record_error(&error)));
                let batch = batch.map_err(explain);
                let failed = batch.is_err();
                // `blocking_send` fails if the statement was cancelled or another part of it has failed.
                if sender.blocking_send(batch).is_err() || failed {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}
