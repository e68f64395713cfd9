//! Python values as values of parameters.

use std::collections::HashMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDate, PyDateTime, PyDict, PyFloat, PyInt, PyString};
use taut::{Parameters, Value};

use crate::errors::DataError;

/// The parameters of a statement: a sequence for `$1` or `?`, a mapping for `$name`, `None` for none.
pub fn parameters_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Parameters> {
    let Some(given) = given else { return Ok(Parameters::default()) };
    if let Ok(named) = given.cast::<PyDict>() {
        let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let wrong = |_| PyTypeError::new_err("the name of a parameter is a str, without the $");
            Ok((name.extract().map_err(wrong)?, value_of(&value)?))
        };
        return Ok(Parameters::Named(named.iter().map(pair).collect::<PyResult<HashMap<String, Value>>>()?));
    }
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("parameters are a sequence or a mapping; write (value,) for one value"));
    }
    let values = given.try_iter().map_err(|_| PyTypeError::new_err("parameters are a sequence or a mapping"))?;
    Ok(Parameters::Positional(values.map(|value| value_of(&value?)).collect::<PyResult<_>>()?))
}

/// A value. numpy's and pandas' scalars count as what they hold.
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
    if value.is_instance_of::<PyString>() {
        return Ok(Value::Text(value.extract()?));
    }
    if let Ok(bytes) = value.extract::<Vec<u8>>()
        && (value.is_instance_of::<PyBytes>() || value.hasattr("hex")?)
    {
        return Ok(Value::Bytes(bytes));
    }
    temporal_or_other(value)
}

fn integer_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Integer(number));
    }
    decimal_of(&value.str()?.to_string())
        .ok_or_else(|| DataError::new_err(format!("parameter {value}: integers have up to 38 digits")))
}

fn temporal_or_other(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    const EPOCH_DAY: i64 = 719_163;
    let kind = value.get_type().qualname()?.to_string();
    // What pandas has for nothing; the latter is a datetime too.
    if kind == "NAType" || kind == "NaTType" {
        return Ok(Value::Null);
    }
    if value.is_instance_of::<PyDateTime>() {
        let zone = value.getattr("tzinfo")?;
        let datetime = value.py().import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let aware = match zone.is_none() {
            true => {
                let named = pyo3::types::PyDict::new(value.py());
                named.set_item("tzinfo", &utc)?;
                value.call_method("replace", (), Some(&named))?
            }
            false => value.call_method1("astimezone", (&utc,))?,
        };
        let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, &utc))?;
        let delta = aware.sub(epoch)?;
        let days: i64 = delta.getattr("days")?.extract()?;
        let seconds: i64 = delta.getattr("seconds")?.extract()?;
        let micros: i64 = delta.getattr("microseconds")?.extract()?;
        let micros = (days * 86_400 + seconds) * 1_000_000 + micros;
        return Ok(if zone.is_none() { Value::Timestamp(micros) } else { Value::TimestampTz(micros) });
    }
    if value.is_instance_of::<PyDate>() {
        let day: i64 = value.call_method0("toordinal")?.extract()?;
        return Ok(Value::Date((day - EPOCH_DAY) as i32));
    }
    if kind == "Decimal" {
        let text = format!("{}", value.call_method1("__format__", ("f",))?);
        return decimal_of(&text)
            .ok_or_else(|| DataError::new_err(format!("parameter {value}: decimals have up to 38 digits")));
    }
    if kind == "UUID" {
        return Ok(Value::Text(value.str()?.to_string()));
    }
    if value.hasattr("item")? {
        let inner = value.call_method0("item")?;
        if !inner.get_type().is(value.get_type()) {
            return value_of(&inner);
        }
    }
    Err(PyTypeError::new_err(format!(
        "a parameter of type {kind}; allowed are None, bool, int, float, decimal.Decimal, str, bytes, date and datetime"
    )))
}

/// `-12.50` as a decimal of its digits.
fn decimal_of(text: &str) -> Option<Value> {
    const DIGITS_MAX: usize = 38;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    if significant.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let unscaled: i128 = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    let scale = fraction.len() as i8;
    let precision = significant.len().max(fraction.len()).max(1) as u8;
    Some(Value::Decimal { unscaled: if negative { -unscaled } else { unscaled }, precision, scale })
}
