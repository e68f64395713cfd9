//! Values as text, as casts to text write them.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;

use super::{arrays, bytes, dates};

/// Writes values as text.
///
/// # Errors
/// If a value has no text, such as a date out of range.
pub fn write_texts(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let text = DataType::Utf8View;
    match values.data_type() {
        DataType::Dictionary(_, decoded) => write_texts(&cast(values, decoded)?),
        other if bytes::is_bytes(other) => bytes::write(values, &text),
        other if dates::is_temporal(other) => dates::write(values, &text),
        other if arrays::is_array(other) => arrays::write(values, &text),
        _ => cast(values, &text),
    }
}
