//! Column statistics for the planner of DataFusion.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics as EngineStatistics, ScalarValue};
use taut_types::{ColumnIndex, Datum, LogicalType};

use super::TautTable;

impl TautTable {
    /// Statistics of a column for the planner. Bounds are exact if the delta is empty and the bounds are values of the
    /// column. Bounds of floating-point columns are never exact, because their stored order differs from the order in
    /// SQL.
    ///
    /// Statistics in the catalog cover exactly the rows in blocks. Once rows are deleted, minima and maxima are
    /// inexact. While the delta has pages, minima and maxima are absent.
    pub(crate) fn column_statistics(&self, column: usize) -> EngineStatistics {
        let Some(statistics) = self.stored.statistics.get(column) else { return EngineStatistics::new_unknown() };
        let logical_type = self.stored.schema.column(ColumnIndex::from(column)).logical_type;
        let (delta, is_exact) = (&self.stored.delta, self.stored.delta.is_empty());
        let bound = |datum: &Option<Datum>| match datum.as_ref().and_then(|datum| scalar_of(datum, logical_type)) {
            _ if !delta.has_no_pages() => Precision::Absent,
            Some(value) if is_exact && statistics.exact && !is_floating(logical_type) => Precision::Exact(value),
            Some(value) => Precision::Inexact(value),
            None => Precision::Absent,
        };
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let null_count = match is_exact {
            true => Precision::Exact(count(statistics.nulls)),
            false => Precision::Inexact(count(statistics.nulls.min(self.rows))),
        };
        EngineStatistics {
            null_count,
            min_value: bound(&statistics.min),
            max_value: bound(&statistics.max),
            sum_value: Precision::Absent,
            distinct_count: match statistics.rows == 0 && !delta.has_no_pages() {
                true => Precision::Absent,
                false => Precision::Inexact(count(statistics.distinct_estimate().min(self.rows))),
            },
            byte_size: Precision::Absent,
        }
    }

    /// Approximate bytes of one value of a column in an Arrow array.
    pub(crate) fn row_bytes(&self, column: usize) -> f64 {
        /// Bytes of the view of one string.
        const VIEW_BYTES: f64 = 16.0;
        if self.is_row_id(column) {
            return size_of::<u64>() as f64;
        }
        match self.stored.schema.column(ColumnIndex::from(column)).logical_type {
            LogicalType::Decimal { .. } => 16.0,
            logical_type => match logical_type.plain_bytes() {
                Some(bytes) => bytes as f64,
                None => {
                    let known = self.stored.statistics.get(column);
                    let (plain, rows) = known.map_or((0, 0), |known| (known.plain_bytes, known.rows));
                    VIEW_BYTES + plain as f64 / (rows as f64).max(1.0)
                }
            },
        }
    }
}

fn is_floating(logical_type: LogicalType) -> bool {
    matches!(logical_type, LogicalType::Real | LogicalType::Double)
}

/// Converts a datum to a scalar of DataFusion. Returns `None` if the datum is not a value of the type.
fn scalar_of(datum: &Datum, logical_type: LogicalType) -> Option<ScalarValue> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(match (datum, logical_type) {
        (Datum::Number(number), LogicalType::Boolean) => ScalarValue::Boolean(Some(*number != 0)),
        (Datum::Number(number), LogicalType::SmallInt) => ScalarValue::Int16(Some(i16::try_from(*number).ok()?)),
        (Datum::Number(number), LogicalType::Integer) => ScalarValue::Int32(Some(i32::try_from(*number).ok()?)),
        (Datum::Number(number), LogicalType::BigInt) => ScalarValue::Int64(Some(i64::try_from(*number).ok()?)),
        (Datum::Number(number), LogicalType::Real) => {
            ScalarValue::Float32(Some(taut_types::f32_from_ordered(i32::try_from(*number).ok()?)))
        }
        (Datum::Number(number), LogicalType::Double) => {
            ScalarValue::Float64(Some(taut_types::f64_from_ordered(i64::try_from(*number).ok()?)))
        }
        (Datum::Number(number), LogicalType::Decimal { precision, scale }) => {
            ScalarValue::Decimal128(Some(*number), precision, scale as i8)
        }
        (Datum::Number(number), LogicalType::Date) => ScalarValue::Date32(Some(i32::try_from(*number).ok()?)),
        (Datum::Number(number), LogicalType::Timestamp) => {
            ScalarValue::TimestampMicrosecond(Some(i64::try_from(*number).ok()?), None)
        }
        (Datum::Number(number), LogicalType::TimestampTz) => {
            ScalarValue::TimestampMicrosecond(Some(i64::try_from(*number).ok()?), Some("+00:00".into()))
        }
        (Datum::Bytes(bytes), LogicalType::Varchar) => ScalarValue::Utf8View(Some(text(bytes)?)),
        (Datum::Bytes(bytes), LogicalType::Bytea) => ScalarValue::BinaryView(Some(bytes.to_vec())),
        _ => return None,
    })
}
