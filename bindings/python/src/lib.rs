//! Native module of the Python package `taut`.
//!
//! The module `_taut` has only connections, results, backups and the exceptions of DB-API 2.0. Everything that can be
//! written in Python is in `python/taut`.

mod backup;
mod connection;
mod errors;
mod guarded;
mod many;
mod parameters;
mod plain;
mod result;
mod values;
mod waiting;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

#[pymodule]
mod _taut {
    #[pymodule_export]
    use crate::backup::{backups, parse_time, restore};
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::errors::{
        DataError, DatabaseError, Error, IntegrityError, InterfaceError, InternalError, NotSupportedError,
        OperationalError, ProgrammingError, Warning,
    };
    #[pymodule_export]
    use crate::result::{Batches, Result};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        taut_allocator::set_up();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Major version of the package `datafusion` that can read tables of Taut.
        module.add("DATAFUSION_VERSION", datafusion_ffi::version())?;
        let options = taut::reference::TableDesign::OPTIONS.map(|option| option.name);
        module.add("TABLE_OPTIONS", PyTuple::new(module.py(), options)?)?;
        crate::waiting::remember_main_thread(module.py())?;
        // Defaults of the class, for errors that the package itself raises.
        let error = module.getattr("Error")?;
        for attribute in ["sqlstate", "message", "detail", "hint"] {
            error.setattr(attribute, module.py().None())?;
        }
        error.setattr("position", module.py().None())
    }
}
