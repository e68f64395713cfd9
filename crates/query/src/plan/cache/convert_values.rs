//! Converts values to the parameter types of a cached plan.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use taut_sql::Value;

use crate::plan::parameters::scalar_of;

/// Converts a value to a type if its meaning stays the same. Returns `None` for any other value: the planner would
/// compare it in another type, so the cached plan does not apply to it.
pub fn convert_exactly(value: &Value, wanted: &DataType) -> Option<ScalarValue> {
    if *value == Value::Null {
        return ScalarValue::try_from(wanted).ok();
    }
    let scalar = scalar_of(value).ok()?;
    let value_type = scalar.data_type();
    if value_type == *wanted {
        return Some(scalar);
    }
    let is_convertible = match (&value_type, wanted) {
        (DataType::Int64, wanted) => wanted.is_integer() || matches!(wanted, DataType::Decimal128(..)),
        (DataType::Decimal128(..), DataType::Decimal128(..)) => true,
        (DataType::Float64, DataType::Float32) => true,
        (DataType::Utf8View, wanted) => wanted.is_string(),
        (DataType::BinaryView, wanted) => wanted.is_binary(),
        _ => false,
    };
    if !is_convertible {
        return None;
    }
    let cast = scalar.cast_to(wanted).ok().filter(|cast| !cast.is_null())?;
    (cast.cast_to(&value_type).ok()? == scalar).then_some(cast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_only_if_their_meaning_stays_the_same() {
        let int = |value| Value::Integer(value);
        let text = |value: &str| Value::Text(value.to_owned());
        let decimal = |unscaled, precision, scale| Value::Decimal { unscaled, precision, scale };
        let accepted = [
            (int(5), DataType::Int32, ScalarValue::Int32(Some(5))),
            (int(-5), DataType::Decimal128(15, 2), ScalarValue::Decimal128(Some(-500), 15, 2)),
            (decimal(50, 2, 1), DataType::Decimal128(15, 2), ScalarValue::Decimal128(Some(500), 15, 2)),
            (Value::Double(0.5), DataType::Float32, ScalarValue::Float32(Some(0.5))),
            (text("é"), DataType::Utf8View, ScalarValue::Utf8View(Some("é".to_owned()))),
            (Value::Null, DataType::Date32, ScalarValue::Date32(None)),
        ];
        for (value, wanted, expected) in accepted {
            assert_eq!(convert_exactly(&value, &wanted), Some(expected), "{value:?} as {wanted}");
        }
        let refused = [
            (int(1 << 40), DataType::Int32),
            (int(5), DataType::Utf8View),
            (int(5), DataType::Float64),
            (decimal(1234, 4, 3), DataType::Decimal128(15, 2)),
            (decimal(50, 2, 1), DataType::Int32),
            (Value::Double(0.1), DataType::Float32),
            (Value::Double(5.0), DataType::Int32),
            (text("5"), DataType::Int32),
            (text("2020-01-01"), DataType::Date32),
            (Value::Date(5), DataType::Int32),
        ];
        for (value, wanted) in refused {
            assert_eq!(convert_exactly(&value, &wanted), None, "{value:?} as {wanted}");
        }
    }
}
