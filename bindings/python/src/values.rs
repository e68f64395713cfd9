//! Conversion of Arrow values to Python objects.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTimestampType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DecimalType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};
use chrono::TimeDelta;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::errors::{DataError, InternalError};

/// Days per month when an interval becomes a `timedelta`.
const MONTH_DAYS: i64 = 30;

type Objects<'py> = Vec<Bound<'py, PyAny>>;

/// Converts a range of rows of a batch to tuples. The type of each column is matched once, not once per row.
pub fn tuples<'py>(py: Python<'py>, batch: &RecordBatch, rows: Range<usize>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let columns = batch.columns().iter().map(|column| Ok(objects(py, column, rows.clone())?.into_iter()));
    let mut columns = columns.collect::<PyResult<Vec<_>>>()?;
    rows.map(|_| PyTuple::new(py, columns.iter_mut().filter_map(Iterator::next).collect::<Objects<'_>>())).collect()
}

/// Converts a range of values of an array to Python objects.
fn objects<'py>(py: Python<'py>, array: &ArrayRef, rows: Range<usize>) -> PyResult<Objects<'py>> {
    match array.data_type() {
        DataType::Null => Ok(vec![py.None().into_bound(py); rows.len()]),
        DataType::Boolean => {
            let values = array.as_boolean();
            map_rows(py, array, rows, |row| values.value(row).into_bound_py_any(py))
        }
        DataType::Int8 => numbers::<Int8Type>(py, array, rows),
        DataType::Int16 => numbers::<Int16Type>(py, array, rows),
        DataType::Int32 => numbers::<Int32Type>(py, array, rows),
        DataType::Int64 => numbers::<Int64Type>(py, array, rows),
        DataType::UInt8 => numbers::<UInt8Type>(py, array, rows),
        DataType::UInt16 => numbers::<UInt16Type>(py, array, rows),
        DataType::UInt32 => numbers::<UInt32Type>(py, array, rows),
        DataType::UInt64 => numbers::<UInt64Type>(py, array, rows),
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>();
            map_rows(py, array, rows, |row| values.value(row).to_f64().into_bound_py_any(py))
        }
        DataType::Float32 => numbers::<Float32Type>(py, array, rows),
        DataType::Float64 => numbers::<Float64Type>(py, array, rows),
        DataType::Decimal32(..) => decimals::<Decimal32Type>(py, array, rows),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(py, array, rows),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(py, array, rows),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(py, array, rows),
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            map_rows(py, array, rows, |row| values.value(row).into_bound_py_any(py))
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            map_rows(py, array, rows, |row| values.value(row).into_bound_py_any(py))
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            map_rows(py, array, rows, |row| values.value(row).into_bound_py_any(py))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            map_rows(py, array, rows, |row| Ok(PyBytes::new(py, values.value(row)).into_any()))
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            map_rows(py, array, rows, |row| Ok(PyBytes::new(py, values.value(row)).into_any()))
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            map_rows(py, array, rows, |row| Ok(PyBytes::new(py, values.value(row)).into_any()))
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            map_rows(py, array, rows, |row| Ok(PyBytes::new(py, values.value(row)).into_any()))
        }
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => {
            datetimes(py, array, rows)
        }
        DataType::Duration(_) | DataType::Interval(_) => timedeltas(py, array, rows),
        DataType::List(_) => {
            let values = array.as_list::<i32>();
            map_rows(py, array, rows, |row| list(py, &values.value(row)))
        }
        DataType::LargeList(_) => {
            let values = array.as_list::<i64>();
            map_rows(py, array, rows, |row| list(py, &values.value(row)))
        }
        DataType::FixedSizeList(..) => {
            let values = array.as_fixed_size_list();
            map_rows(py, array, rows, |row| list(py, &values.value(row)))
        }
        DataType::Struct(_) => {
            let values = array.as_struct();
            map_rows(py, array, rows, |row| dictionary(py, values, row))
        }
        DataType::Map(..) => {
            let values = array.as_map();
            map_rows(py, array, rows, |row| map(py, &values.value(row)))
        }
        DataType::Dictionary(_, values) => {
            let some = arrow_cast::cast(&array.slice(rows.start, rows.len()), values).map_err(internal)?;
            objects(py, &some, 0..rows.len())
        }
        // Other types have no Python type and become text.
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(array, &options).map_err(internal)?;
            let nulls = array.logical_nulls();
            let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            map_rows(py, array, rows, |row| match is_null(row) {
                true => Ok(py.None().into_bound(py)),
                false => Ok(PyString::new(py, &formatter.value(row).to_string()).into_any()),
            })
        }
    }
}

fn map_rows<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    rows: Range<usize>,
    mut object: impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Objects<'py>> {
    rows.map(|row| if array.is_null(row) { Ok(py.None().into_bound(py)) } else { object(row) }).collect()
}

fn numbers<'py, T>(py: Python<'py>, array: &ArrayRef, rows: Range<usize>) -> PyResult<Objects<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let values = array.as_primitive::<T>();
    map_rows(py, array, rows, |row| values.value(row).into_bound_py_any(py))
}

fn decimals<'py, T>(py: Python<'py>, array: &ArrayRef, rows: Range<usize>) -> PyResult<Objects<'py>>
where
    T: DecimalType,
{
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = DECIMAL.import(py, "decimal", "Decimal")?;
    let values = array.as_primitive::<T>();
    map_rows(py, array, rows, |row| class.call1((values.value_as_string(row),)))
}

/// Converts dates, times of day and timestamps. Python has microseconds, so nanoseconds are truncated.
fn datetimes<'py>(py: Python<'py>, array: &ArrayRef, rows: Range<usize>) -> PyResult<Objects<'py>> {
    macro_rules! values {
        ($kind:ty, $value:ident) => {{
            let values = array.as_primitive::<$kind>();
            map_rows(py, array, rows, |row| {
                let value = values.$value(row).ok_or_else(|| out_of_range(array, row))?;
                value.into_bound_py_any(py).map_err(|_| out_of_range(array, row))
            })
        }};
    }
    match array.data_type() {
        DataType::Date32 => values!(Date32Type, value_as_date),
        DataType::Date64 => values!(Date64Type, value_as_date),
        DataType::Time32(TimeUnit::Second) => values!(Time32SecondType, value_as_time),
        DataType::Time32(_) => values!(Time32MillisecondType, value_as_time),
        DataType::Time64(TimeUnit::Microsecond) => values!(Time64MicrosecondType, value_as_time),
        DataType::Time64(_) => values!(Time64NanosecondType, value_as_time),
        DataType::Timestamp(TimeUnit::Second, zone) => {
            timestamps::<TimestampSecondType>(py, array, rows, zone.is_some())
        }
        DataType::Timestamp(TimeUnit::Millisecond, zone) => {
            timestamps::<TimestampMillisecondType>(py, array, rows, zone.is_some())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            timestamps::<TimestampMicrosecondType>(py, array, rows, zone.is_some())
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            timestamps::<TimestampNanosecondType>(py, array, rows, zone.is_some())
        }
        other => Err(InternalError::new_err(format!("{other} is not a point in time"))),
    }
}

/// Converts timestamps. With `is_instant`, the objects have the time zone UTC.
fn timestamps<'py, T: ArrowTimestampType>(
    py: Python<'py>,
    array: &ArrayRef,
    rows: Range<usize>,
    is_instant: bool,
) -> PyResult<Objects<'py>> {
    let values = array.as_primitive::<T>();
    map_rows(py, array, rows, |row| {
        let value = arrow_array::temporal_conversions::as_datetime::<T>(values.value(row));
        let value = value.ok_or_else(|| out_of_range(array, row))?;
        let object = if is_instant { value.and_utc().into_bound_py_any(py) } else { value.into_bound_py_any(py) };
        object.map_err(|_| out_of_range(array, row))
    })
}

/// Converts durations and intervals to `timedelta`. A month has 30 days.
fn timedeltas<'py>(py: Python<'py>, array: &ArrayRef, rows: Range<usize>) -> PyResult<Objects<'py>> {
    macro_rules! values {
        ($kind:ty, $span:expr) => {{
            let values = array.as_primitive::<$kind>();
            map_rows(py, array, rows, |row| {
                let span: Option<TimeDelta> = $span(values.value(row));
                let span = span.ok_or_else(|| out_of_range(array, row))?;
                span.into_bound_py_any(py).map_err(|_| out_of_range(array, row))
            })
        }};
    }
    let days = |days: i64| TimeDelta::try_days(days);
    match array.data_type() {
        DataType::Duration(TimeUnit::Second) => values!(DurationSecondType, TimeDelta::try_seconds),
        DataType::Duration(TimeUnit::Millisecond) => values!(DurationMillisecondType, TimeDelta::try_milliseconds),
        DataType::Duration(TimeUnit::Microsecond) => {
            values!(DurationMicrosecondType, |value| Some(TimeDelta::microseconds(value)))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            values!(DurationNanosecondType, |value| Some(TimeDelta::nanoseconds(value)))
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            values!(IntervalYearMonthType, |months: i32| days(i64::from(months) * MONTH_DAYS))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            values!(IntervalDayTimeType, |value: arrow_array::types::IntervalDayTime| {
                days(value.days.into())?.checked_add(&TimeDelta::milliseconds(value.milliseconds.into()))
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            values!(IntervalMonthDayNanoType, |value: arrow_array::types::IntervalMonthDayNano| {
                days(i64::from(value.months) * MONTH_DAYS + i64::from(value.days))?
                    .checked_add(&TimeDelta::nanoseconds(value.nanoseconds))
            })
        }
        other => Err(InternalError::new_err(format!("{other} is not a time span"))),
    }
}

fn list<'py>(py: Python<'py>, values: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, objects(py, values, 0..values.len())?)?.into_any())
}

fn dictionary<'py>(py: Python<'py>, values: &StructArray, row: usize) -> PyResult<Bound<'py, PyAny>> {
    let entries = PyDict::new(py);
    for (field, column) in values.fields().iter().zip(values.columns()) {
        entries.set_item(field.name(), objects(py, column, row..row + 1)?.pop())?;
    }
    Ok(entries.into_any())
}

fn map<'py>(py: Python<'py>, entries: &StructArray) -> PyResult<Bound<'py, PyAny>> {
    let rows = 0..entries.len();
    let (keys, values) = (objects(py, entries.column(0), rows.clone())?, objects(py, entries.column(1), rows)?);
    let map = PyDict::new(py);
    for (key, value) in keys.into_iter().zip(values) {
        map.set_item(key, value)?;
    }
    Ok(map.into_any())
}

fn out_of_range(array: &ArrayRef, row: usize) -> PyErr {
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(array, &options).and_then(|formatter| formatter.value(row).try_to_string());
    let text = text.unwrap_or_else(|_| format!("a value of type {}", array.data_type()));
    DataError::new_err(format!(
        "{text} is outside the range of Python's datetime, the years 1 to 9999; read it as Arrow or cast it to text"
    ))
}

fn internal(error: ArrowError) -> PyErr {
    InternalError::new_err(error.to_string())
}
