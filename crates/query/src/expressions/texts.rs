//! Writes values as text, with the same result as casts to text.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;

use super::intervals::is_interval;
use super::{arrays, bytes, dates, floats};

/// Writes the value at index `row` as text, for a message. Null is `null`.
///
/// # Errors
/// If a timestamp has an unknown time zone, or the type has no text format.
pub fn write_value(values: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    let texts = write_texts(&values.slice(row, 1))?;
    let texts = texts.as_string_view();
    Ok(if texts.is_null(0) { "null".to_owned() } else { texts.value(0).to_owned() })
}

/// Writes values as text, and returns an array of the type `Utf8View`.
///
/// # Errors
/// If a timestamp has an unknown time zone, or the type has no text format.
pub fn write_texts(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let text = DataType::Utf8View;
    match values.data_type() {
        DataType::Dictionary(_, decoded) => write_texts(&cast(values, decoded)?),
        other if bytes::is_bytes(other) => bytes::write(values, &text),
        other if dates::is_temporal(other) || dates::is_difference(other) => dates::write(values, &text),
        other if floats::is_float(other) => floats::write(values, &text),
        other if arrays::is_array(other) => arrays::write(values, &text),
        _ => cast(values, &text),
    }
}

/// Returns rows in which intervals and differences of timestamps are written as text. Other columns are not changed.
///
/// # Errors
/// If the rows cannot have the changed columns.
pub fn with_written_intervals(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let is_written = |field: &Field| is_interval(field.data_type());
    if !rows.schema_ref().fields().iter().any(|field| is_written(field)) {
        return Ok(rows.clone());
    }
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, values) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let values = if is_written(field) { write_texts(values)? } else { Arc::clone(values) };
        fields.push(field.as_ref().clone().with_data_type(values.data_type().clone()));
        columns.push(values);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}
