//! Conversion of text and bytes from view arrays to arrays with offsets, for consumers that cannot compute on views.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, ArrayRef, GenericByteViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};

/// Maximum bytes of values that the 32-bit offsets of one array can address.
const BYTES_MAX: usize = i32::MAX as usize;

/// Returns the schema with each view type replaced by the type with offsets.
pub fn plain_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(plain_field).collect::<Fields>();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    match plain_type(field.data_type()) {
        Some(plain) => Arc::new(Field::clone(field).with_data_type(plain)),
        None => Arc::clone(field),
    }
}

/// Replaces the view types in a type, nested ones included. Returns `None` if there are none.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    let changed = match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(plain_field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        _ => return None,
    };
    (changed != *data_type).then_some(changed)
}

/// Converts a batch to a [`plain_schema`] and appends it to `batches`. Splits it if a column has more bytes than
/// offsets can address.
pub fn append_plain(batch: &RecordBatch, schema: &SchemaRef, batches: &mut Vec<RecordBatch>) -> Result<(), ArrowError> {
    let rows = batch.num_rows();
    if rows > 1 && batch.columns().iter().any(|column| view_bytes(column) > BYTES_MAX) {
        append_plain(&batch.slice(0, rows / 2), schema, batches)?;
        return append_plain(&batch.slice(rows / 2, rows - rows / 2), schema, batches);
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| match field.data_type() {
        same if same == column.data_type() => Ok(Arc::clone(column)),
        plain => arrow_cast::cast(column, plain),
    });
    let (columns, options) = (columns.collect::<Result<_, _>>()?, RecordBatchOptions::new().with_row_count(Some(rows)));
    batches.push(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?);
    Ok(())
}

fn view_bytes(column: &ArrayRef) -> usize {
    fn bytes<T: ByteViewType>(array: &GenericByteViewArray<T>) -> usize {
        array.lengths().map(|length| length as usize).sum()
    }
    match column.data_type() {
        DataType::Utf8View => bytes(column.as_string_view()),
        DataType::BinaryView => bytes(column.as_binary_view()),
        _ => 0,
    }
}
