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

use super::{FileColumns, INFERENCE_RECORDS, file_error, open_decompressed};
use crate::error::Result;

/// A file of JSON lines.
#[derive(Clone, Debug)]
pub(super) struct JsonFile {
    path: PathBuf,
    schema: SchemaRef,
    /// Whether the columns are those of a table. A key that is not a column is then an error.
    is_strict: bool,
}

impl JsonFile {
    pub fn new(path: &Path, schema: SchemaRef, is_strict: bool) -> Self {
        Self { path: path.to_owned(), schema, is_strict }
    }

    fn batches(
        &self,
        batch_rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + use<>> {
        ReaderBuilder::new(Arc::clone(&self.schema))
            .with_batch_size(batch_rows)
            .with_strict_mode(self.is_strict)
            // A column of numbers and texts is inferred to be text.
            .with_coerce_primitive(!self.is_strict)
            .build(BufReader::new(open_decompressed(&self.path)?))
            .map_err(|error| file_error(&self.path, &error))
    }
}

/// Columns of a JSON file, inferred from its first records.
///
/// # Errors
/// If the file cannot be read, or has values that exclude each other.
pub(super) fn infer_schema(path: &Path) -> Result<ArrowSchema> {
    /// Numbers that JSON has no form for, as they are written.
    const SPECIAL_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    let mut source = BufReader::new(open_decompressed(path)?);
    let mut special = BTreeSet::new();
    let records = ValueIter::new(&mut source, Some(INFERENCE_RECORDS)).map(|record| {
        let mut record = record?;
        for (key, value) in record.as_object_mut().into_iter().flatten() {
            if value.as_str().is_some_and(|text| SPECIAL_NUMBERS.contains(&text)) {
                special.insert(key.clone());
                // A null has no influence on the type.
                *value = Default::default();
            }
        }
        Ok(record)
    });
    let schema = infer_json_schema_from_iterator(records).map_err(|error| file_error(path, &error))?;
    let with_known_type = |field: &Arc<Field>| match field.data_type() {
        DataType::Int64 if special.contains(field.name()) => field.as_ref().clone().with_data_type(DataType::Float64),
        // The type of a column without any value is unknown; it becomes text.
        DataType::Null => field.as_ref().clone().with_data_type(DataType::Utf8),
        _ => field.as_ref().clone(),
    };
    Ok(ArrowSchema::new(schema.fields().iter().map(with_known_type).collect::<Vec<_>>()))
}

/// Schema that a JSON file is read into for the columns of a table, without the columns that get their defaults.
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
    // Nulls in NOT NULL columns are found and reported when the rows are converted to the types of the table. So are
    // texts of types that JSON does not have.
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
        /// Maximum number of batches that are read ahead of the encoder.
        const READ_AHEAD: usize = 4;
        let batch_rows = context.session_config().batch_size();
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), READ_AHEAD);
        let sender = builder.tx();
        let file = self.clone();
        builder.spawn_blocking(move || {
            for batch in file.batches(batch_rows).map_err(|error| DataFusionError::External(Box::new(error)))? {
                let explain = |error| DataFusionError::External(Box::new(file_error(&file.path, &error)));
                let batch = batch.map_err(explain);
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
