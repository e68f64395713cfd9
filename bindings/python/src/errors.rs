//! Exceptions of DB-API 2.0, selected by SQLSTATE.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::waiting::Waiting;

create_exception!(taut, Warning, PyException, "Something the user should know.");
create_exception!(
    taut,
    Error,
    PyException,
    "Any error of Taut, with `sqlstate`, `message`, `detail`, `hint` and `position`."
);
create_exception!(taut, InterfaceError, Error, "This package was used in a way it cannot serve.");
create_exception!(taut, DatabaseError, Error, "The database refused or failed.");
create_exception!(taut, DataError, DatabaseError, "A value is invalid, out of range or of the wrong type.");
create_exception!(
    taut,
    OperationalError,
    DatabaseError,
    "A failure outside of the statement: of the machine or its files, a conflict, an interrupt or a time limit."
);
create_exception!(taut, IntegrityError, DatabaseError, "A statement violates a constraint.");
create_exception!(taut, InternalError, DatabaseError, "A bug in Taut, or a damaged database.");
create_exception!(taut, ProgrammingError, DatabaseError, "A statement or its parameters are wrong.");
create_exception!(taut, NotSupportedError, DatabaseError, "A statement that is not supported.");

/// Converts an error to its exception, with the attributes `sqlstate`, `message`, `detail`, `hint` and `position`.
/// Parts that the error does not have are `None`.
pub fn exception(py: Python<'_>, error: &taut::Error) -> PyErr {
    let (state, message) = (error.sqlstate(), error.to_string());
    let exception = match (state.get(..2).unwrap_or_default(), state) {
        ("0A", _) => NotSupportedError::new_err(message),
        ("42" | "26", _) | ("08", "08P01") | ("22", "22023") => ProgrammingError::new_err(message),
        ("08" | "24", _) => InterfaceError::new_err(message),
        ("22", _) => DataError::new_err(message),
        ("23", _) => IntegrityError::new_err(message),
        ("XX", _) => InternalError::new_err(message),
        _ => OperationalError::new_err(message),
    };
    let value = exception.value(py);
    // Setting them cannot fail: an exception accepts any attribute.
    let _ = value.setattr("sqlstate", state);
    let _ = value.setattr("message", error.message());
    let _ = value.setattr("detail", error.detail());
    let _ = value.setattr("hint", error.hint());
    let _ = value.setattr("position", error.position());
    exception
}

/// Converts the error of a statement to its exception. If a signal handler cancelled the statement, returns what the
/// handler raised.
pub fn statement_exception(py: Python<'_>, error: &taut::Error, waiting: &Waiting) -> PyErr {
    let by_signal = if error.is_cancelled() { waiting.take_raised() } else { None };
    by_signal.unwrap_or_else(|| exception(py, error))
}
