//! Converts Python values to parameters of statements.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    IntoPyDict, PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyDelta, PyFloat, PyInt, PyList, PyMapping,
    PyMemoryView, PySequence, PyString, PyTime, PyTuple, PyType,
};
use taut::{Parameters, Value};

use crate::errors::{DataError, NotSupportedError};

/// Maximum precision of a decimal.
const DIGITS_MAX: i64 = 38;

/// Converts the parameters of a statement: a sequence for `$1` or `?`, a mapping for `$name`, `None` for no parameters.
pub fn parameters_of(parameters: Option<&Bound<'_, PyAny>>) -> PyResult<Parameters> {
    let Some(parameters) = parameters else { return Ok(Parameters::default()) };
    if let Ok(named) = parameters.cast::<PyMapping>() {
        let mut values = HashMap::new();
        for item in named.items()? {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let error = |_| PyTypeError::new_err("the name of a parameter is a str, without the $");
            values.insert(name.extract().map_err(error)?, value_of(&value)?);
        }
        return Ok(Parameters::Named(values));
    }
    if is_text(parameters) || parameters.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("parameters are a sequence or a mapping; write (value,) for one value"));
    }
    // A set is iterable, but has no order.
    let is_ordered = parameters.cast::<PySequence>().is_ok()
        || parameters.hasattr("__getitem__")?
        || parameters.hasattr("__next__")?;
    if !is_ordered {
        return Err(PyTypeError::new_err("parameters are a sequence or a mapping"));
    }
    let values = parameters.try_iter()?.map(|value| value_of(&value?));
    Ok(Parameters::Positional(values.collect::<PyResult<_>>()?))
}

fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
}

/// Converts one value. Scalars of NumPy and pandas convert like the Python value that they hold, and arrays like lists.
fn value_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Boolean(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return integer_of(value);
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Double(value.extract()?));
    }
    if is_text(value) {
        return Ok(Value::Text(value.extract()?));
    }
    let is_bytes = value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>();
    if is_bytes || value.is_instance_of::<PyMemoryView>() {
        let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
        return Ok(Value::Bytes(bytes.extract()?));
    }
    let type_name = value.get_type().qualname()?.to_string();
    // Null values of pandas. `NaT` is an instance of `datetime` too, so this check comes first.
    if type_name == "NAType" || type_name == "NaTType" {
        return Ok(Value::Null);
    }
    if value.is_instance_of::<PyDateTime>() {
        return timestamp_of(value);
    }
    if value.is_instance_of::<PyDate>() {
        let date: NaiveDate = value.extract()?;
        let days = date.signed_duration_since(DateTime::UNIX_EPOCH.date_naive()).num_days();
        // Python dates have years 1 to 9999, so the days fit an i32.
        return Ok(Value::Date(days as i32));
    }
    if value.is_instance_of::<PyTime>() {
        return time_of(value);
    }
    if value.is_instance_of::<PyDelta>() {
        return interval_of(value);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return array_of(value);
    }
    static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if value.is_instance(DECIMAL.import(value.py(), "decimal", "Decimal")?)? {
        return decimal_of(value);
    }
    if type_name == "UUID" {
        return Ok(Value::Text(value.str()?.extract()?));
    }
    if type_name == "datetime64" {
        return datetime64_of(value);
    }
    if type_name == "timedelta64" {
        return timedelta64_of(value);
    }
    // A NumPy scalar has zero dimensions.
    match value.getattr("ndim").and_then(|dimensions| dimensions.extract::<i64>()) {
        Ok(0) if value.hasattr("item")? => {
            let inner = value.call_method0("item")?;
            if !inner.get_type().is(value.get_type()) {
                return value_of(&inner);
            }
        }
        // A NumPy array or a pandas Series. Iteration preserves the unit of times, `tolist` does not.
        Ok(1..) if value.hasattr("tolist")? => return array_of(value),
        _ => {}
    }
    Err(PyTypeError::new_err(format!(
        "a parameter of type {type_name}; allowed are None, bool, int, float, decimal.Decimal, str, bytes, date, time, \
         datetime, timedelta, and lists, tuples and arrays of these"
    )))
}

/// Converts a list, a tuple or an array.
fn array_of(values: &Bound<'_, PyAny>) -> PyResult<Value> {
    let values = values.try_iter()?.map(|value| value_of(&value?));
    Ok(Value::Array(values.collect::<PyResult<_>>()?))
}

/// Converts a time of day.
fn time_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if !value.getattr("tzinfo")?.is_none() {
        return Err(NotSupportedError::new_err(format!(
            "parameter {value}: a time with a time zone is not supported; use replace(tzinfo=None) or a datetime"
        )));
    }
    let time: NaiveTime = value.extract()?;
    Ok(Value::Time(i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond() / 1_000)))
}

/// Converts a timedelta. Its days become days of the interval, not hours, as in psycopg2.
fn interval_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // Only timedeltas of pandas have `nanoseconds`.
    if value.hasattr("nanoseconds")? && value.getattr("nanoseconds")?.is_truthy()? {
        return Err(DataError::new_err(format!(
            "parameter {value}: intervals have microsecond precision; use floor('us')"
        )));
    }
    let days: i32 = value.getattr("days")?.extract()?;
    let seconds: i64 = value.getattr("seconds")?.extract()?;
    let micros: i64 = value.getattr("microseconds")?.extract()?;
    Ok(Value::Interval { months: 0, days, nanoseconds: (seconds * 1_000_000 + micros) * 1_000 })
}

/// Converts a `timedelta64` of NumPy, in any unit.
fn timedelta64_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let micros = value.call_method1("astype", ("timedelta64[us]",))?;
    let inner = micros.call_method0("item")?;
    if inner.is_none() {
        return Ok(Value::Null);
    }
    if micros.ne(value)? || !inner.is_instance_of::<PyDelta>() {
        return Err(DataError::new_err(format!("parameter {value}: intervals have microsecond precision")));
    }
    interval_of(&inner)
}

fn integer_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Integer(number));
    }
    let unscaled = value.extract::<i128>().ok().filter(|number| number.unsigned_abs() < 10_u128.pow(DIGITS_MAX as u32));
    match unscaled {
        Some(unscaled) => {
            let digits = unscaled.unsigned_abs().checked_ilog10().unwrap_or_default() + 1;
            Ok(Value::Decimal { unscaled, precision: digits as u8, scale: 0 })
        }
        None => Err(DataError::new_err(format!("an integer parameter has more than {DIGITS_MAX} digits"))),
    }
}

/// Converts a `Decimal` from its text. Checks the exponent first, because a large one makes the text long.
fn decimal_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let error = |what: &str| DataError::new_err(format!("parameter {value}: {what}"));
    if !value.call_method0("is_finite")?.extract::<bool>()? {
        return Err(error("a decimal cannot be NaN or infinite; use a float"));
    }
    let exponent: i64 = value.call_method0("as_tuple")?.getattr("exponent")?.extract()?;
    let leading_exponent: i64 = value.call_method0("adjusted")?.extract()?;
    let is_zero = !value.is_truthy()?;
    let scale = (-exponent).max(0);
    let integer_digits = if is_zero { 0 } else { (leading_exponent + 1).max(0) };
    if scale > DIGITS_MAX || integer_digits + scale > DIGITS_MAX {
        return Err(error("decimals have up to 38 digits"));
    }
    let text: String = value.call_method1("__format__", ("f",))?.extract()?;
    let digits: String = text.chars().filter(|c| c.is_ascii_digit()).collect();
    let unscaled: i128 = digits.parse().map_err(|_| error("decimals have up to 38 digits"))?;
    let unscaled = if text.starts_with('-') { -unscaled } else { unscaled };
    Ok(Value::Decimal { unscaled, precision: (integer_digits + scale).max(1) as u8, scale: scale as i8 })
}

/// Converts a datetime: to a `timestamptz` if it has a time zone, otherwise to a `timestamp`.
fn timestamp_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // Only timestamps of pandas have `nanosecond`.
    if value.hasattr("nanosecond")? && value.getattr("nanosecond")?.is_truthy()? {
        return Err(DataError::new_err(format!(
            "parameter {value}: timestamps have microsecond precision; use floor('us')"
        )));
    }
    let without_zone = [("tzinfo", value.py().None())].into_py_dict(value.py())?;
    let local: NaiveDateTime = value.call_method("replace", (), Some(&without_zone))?.extract()?;
    let offset: Option<TimeDelta> = value.call_method0("utcoffset")?.extract()?;
    let micros = local.and_utc().timestamp_micros();
    Ok(match offset {
        None => Value::Timestamp(micros),
        Some(offset) => Value::TimestampTz(micros - offset.num_microseconds().unwrap_or_default()),
    })
}

/// Converts a `datetime64` of NumPy, in any unit.
fn datetime64_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let micros = value.call_method1("astype", ("datetime64[us]",))?;
    let inner = micros.call_method0("item")?;
    if inner.is_none() {
        return Ok(Value::Null);
    }
    if micros.ne(value)? || !inner.is_instance_of::<PyDateTime>() {
        return Err(DataError::new_err(format!(
            "parameter {value}: timestamps have microsecond precision, and years 1 to 9999"
        )));
    }
    timestamp_of(&inner)
}
