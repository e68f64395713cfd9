//! Rows as JSON lines. Values that JSON cannot represent are strings, as in a cast to text: bytes, dates, times, and
//! numbers that are not finite.

use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray, StringViewArray, make_array};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder};
use datafusion::arrow::record_batch::RecordBatch;

use crate::expressions::{is_bytes, is_difference, is_temporal, write_texts};

/// Writes each row of a batch as a JSON object on its own line. Nulls are written too, so every object has all keys.
///
/// # Errors
/// If a value cannot be written as text, for example a date out of range.
pub fn write_json_lines(rows: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(Encoders))
        .build::<_, LineDelimited>(out);
    writer.write(rows)?;
    writer.finish()
}

/// Encoders of types that Arrow's writer would write as null, or in a format that Taut cannot read.
#[derive(Debug)]
struct Encoders;

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder> = match array.data_type() {
            DataType::Float32 => Box::new(Floats(array.as_primitive::<Float32Type>())),
            DataType::Float64 => Box::new(Floats(array.as_primitive::<Float64Type>())),
            other if is_bytes(other) || is_temporal(other) || is_difference(other) => {
                Box::new(Strings(write_texts(&make_array(array.to_data()))?.as_string_view().clone()))
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct Floats<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<T: ArrowPrimitiveType<Native: Copy + Debug + Into<f64>>> Encoder for Floats<'_, T> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        let number: f64 = value.into();
        // Writes to a vector do not fail.
        let _ = match number {
            _ if number.is_nan() => write!(out, "\"NaN\""),
            _ if number.is_infinite() => write!(out, "\"{}Infinity\"", if number < 0.0 { "-" } else { "" }),
            // The shortest digits that are read as the same number.
            _ => write!(out, "{value:?}"),
        };
    }
}

/// Strings in which only quotes and backslashes need an escape.
struct Strings(StringViewArray);

impl Encoder for Strings {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        for byte in self.0.value(row).bytes() {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, BinaryArray, Decimal128Array, Float32Array, Float64Array, StringArray};

    use super::*;

    #[test]
    fn every_value_is_written() {
        let doubles = Float64Array::from(vec![Some(0.1), Some(f64::NAN), Some(f64::NEG_INFINITY), Some(1e300), None]);
        let reals = Float32Array::from(vec![Some(0.1), Some(f32::INFINITY), Some(-0.0), Some(16_777_216.0), None]);
        let bytes = BinaryArray::from(vec![Some(b"\0".as_slice()), Some(b""), None, None, None]);
        let texts = StringArray::from(vec![Some("a\"\\\u{1}\n"), Some(""), None, None, None]);
        let decimals = Decimal128Array::from(vec![Some(i128::pow(10, 37) + 1), Some(-5), None, None, None]);
        let decimals = decimals.with_precision_and_scale(38, 2).unwrap();
        let columns: [(&str, ArrayRef); 5] = [
            ("d", Arc::new(doubles)),
            ("r", Arc::new(reals)),
            ("b", Arc::new(bytes)),
            ("t", Arc::new(texts)),
            ("n", Arc::new(decimals)),
        ];
        let mut out = Vec::new();
        write_json_lines(&RecordBatch::try_from_iter(columns).unwrap(), &mut out).unwrap();
        let expected = r#"{"d":0.1,"r":0.1,"b":"\\x00","t":"a\"\\\u0001\n","n":100000000000000000000000000000000000.01}
{"d":"NaN","r":"Infinity","b":"\\x","t":"","n":-0.05}
{"d":"-Infinity","r":-0.0,"b":null,"t":null,"n":null}
{"d":1e300,"r":16777216.0,"b":null,"t":null,"n":null}
{"d":null,"r":null,"b":null,"t":null,"n":null}
"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
