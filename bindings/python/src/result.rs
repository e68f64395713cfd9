//! The result of a statement: rows as they are computed, as Python objects or as a stream of Arrow batches.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use pyo3_arrow::PyRecordBatchReader;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use taut::{Outcome, Rows};

use crate::errors::{InterfaceError, InternalError, raised};
use crate::plain::{plain, plain_schema};
use crate::values::tuples;
use crate::waiting::Waiting;

/// What a statement gave. Its rows can be read once.
#[pyclass(module = "taut._taut", frozen)]
pub struct Result {
    schema: SchemaRef,
    tag: Option<String>,
    row_count: Option<u64>,
    notices: Vec<String>,
    reading: Mutex<Reading>,
    waiting: Arc<Waiting>,
}

/// Where reading is.
#[derive(Default)]
struct Reading {
    /// What is computed and not read yet, before what `rows` will give.
    ready: VecDeque<RecordBatch>,
    rows: Option<Rows>,
    /// Whether any row was given away.
    is_begun: bool,
    /// Whether all rows were given away at once.
    is_taken: bool,
}

impl Reading {
    /// Computes another batch, and tells whether there was one.
    fn compute(&mut self, py: Python<'_>, waiting: &Waiting) -> PyResult<bool> {
        let Some(rows) = &mut self.rows else { return Ok(false) };
        match py.detach(|| rows.next()) {
            Some(Ok(batch)) => {
                self.ready.push_back(batch);
                Ok(true)
            }
            Some(Err(error)) => {
                self.rows = None;
                waiting.end();
                Err(raised(py, &error, waiting))
            }
            None => {
                self.rows = None;
                waiting.end();
                Ok(false)
            }
        }
    }
}

impl Result {
    pub fn new(outcome: Outcome, waiting: Arc<Waiting>) -> Self {
        let (schema, tag, row_count, notices, rows) = match outcome {
            Outcome::Rows(rows) => (rows.schema(), None, None, Vec::new(), Some(rows)),
            Outcome::Done(done) => (Arc::new(Schema::empty()), Some(done.tag), done.rows, done.notices, None),
        };
        let reading = Mutex::new(Reading { rows, ..Reading::default() });
        Self { schema, tag, row_count, notices, reading, waiting }
    }
}

#[pymethods]
impl Result {
    /// Name, SQL type and nullability of each column; empty where the statement gives no rows.
    #[getter]
    fn columns(&self) -> Vec<(String, String, bool)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), taut::type_name(field.data_type()), field.is_nullable())).collect()
    }

    /// What was done, such as `INSERT 3`; `None` where the statement gives rows.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Rows written, where some were.
    #[getter]
    fn row_count(&self) -> Option<u64> {
        self.row_count
    }

    /// What the user should know.
    #[getter]
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Up to so many rows more, as a list of tuples.
    fn fetch<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyList>> {
        let mut reading = self.lock(py)?;
        let mut found: Vec<Bound<'py, PyTuple>> = Vec::new();
        while found.len() < rows {
            let Some(batch) = reading.ready.front_mut() else {
                match reading.compute(py, &self.waiting)? {
                    true => continue,
                    false => break,
                }
            };
            let taken = batch.num_rows().min(rows - found.len());
            found.extend(tuples(py, batch, 0..taken)?);
            if taken == batch.num_rows() {
                reading.ready.pop_front();
            } else {
                *batch = batch.slice(taken, batch.num_rows() - taken);
            }
        }
        reading.is_begun |= !found.is_empty();
        PyList::new(py, found)
    }

    /// The next rows, up to so many, which are still to be read after it; and whether there are more.
    fn peek<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<(Bound<'py, PyList>, bool)> {
        let (batches, more) = self.first(py, rows)?;
        let mut found = Vec::new();
        for batch in &batches {
            found.extend(tuples(py, batch, 0..batch.num_rows())?);
        }
        Ok((PyList::new(py, found)?, more))
    }

    /// The same as a table of text.
    fn peek_text(&self, py: Python<'_>, rows: usize) -> PyResult<(String, bool)> {
        let (batches, more) = self.first(py, rows)?;
        let empty = [RecordBatch::new_empty(Arc::clone(&self.schema))];
        let batches = if batches.is_empty() { &empty } else { batches.as_slice() };
        let options = FormatOptions::default().with_display_error(true).with_null("NULL");
        let table = pretty_format_batches_with_options(batches, &options);
        Ok((table.map_err(|error| InternalError::new_err(error.to_string()))?.to_string(), more))
    }

    /// All rows, computed, as something that has `__arrow_c_stream__`; text as views or as arrays of offsets.
    fn collect(&self, py: Python<'_>, views: bool) -> PyResult<Batches> {
        let (ready, rows) = self.take(py)?;
        let schema = if views { Arc::clone(&self.schema) } else { plain_schema(&self.schema) };
        let batches = py.detach(|| {
            let mut batches = Vec::new();
            for batch in ready.into_iter().map(Ok).chain(rows.into_iter().flatten()) {
                match views {
                    true => batches.push(batch.map_err(Failure::Statement)?),
                    false => {
                        plain(&batch.map_err(Failure::Statement)?, &schema, &mut batches).map_err(Failure::Arrow)?
                    }
                }
            }
            Ok(batches)
        });
        self.waiting.end();
        match batches {
            Ok(batches) => Ok(Batches { schema, batches }),
            Err(Failure::Statement(error)) => Err(raised(py, &error, &self.waiting)),
            Err(Failure::Arrow(error)) => Err(InternalError::new_err(error.to_string())),
        }
    }

    /// The rows, computed as they are read, as something that has `__arrow_c_stream__`, with text as arrays of offsets.
    fn stream(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        let (ready, rows) = self.take(py)?;
        let source = Stream { schema: Arc::clone(&self.schema), ready, rows, waiting: Arc::clone(&self.waiting) };
        let schema = plain_schema(&self.schema);
        let stream = PlainStream { schema, ready: VecDeque::new(), source };
        Ok(PyRecordBatchReader::new(Box::new(stream)))
    }

    /// Ends the statement, if it still runs.
    fn close(&self, py: Python<'_>) {
        let mut reading = self.reading.lock_py_attached(py);
        *reading = Reading { is_taken: true, ..Reading::default() };
    }

    /// The columns as an Arrow schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    /// The rows as a stream of Arrow batches, computed as they are read. It takes them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (ready, rows) = self.take(py)?;
        let stream = Stream { schema: Arc::clone(&self.schema), ready, rows, waiting: Arc::clone(&self.waiting) };
        capsule(py, stream, requested_schema)
    }
}

/// Why a result could not be collected.
enum Failure {
    Statement(taut::Error),
    Arrow(ArrowError),
}

impl Result {
    /// Takes what is left, to be read elsewhere.
    fn take(&self, py: Python<'_>) -> PyResult<(VecDeque<RecordBatch>, Option<Rows>)> {
        let mut reading = self.lock(py)?;
        if reading.is_begun {
            return Err(InterfaceError::new_err(
                "rows of this result were read already, and can be read once; run the statement again, or keep what \
                 to_arrow() gives",
            ));
        }
        reading.is_taken = true;
        Ok((std::mem::take(&mut reading.ready), reading.rows.take()))
    }

    /// The reading of rows, where there are rows to read.
    fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, Reading>> {
        if let Some(tag) = &self.tag {
            return Err(InterfaceError::new_err(format!("the statement gives no rows; it is done: {tag}")));
        }
        let reading = self.reading.lock_py_attached(py);
        match reading.is_taken {
            true => Err(InterfaceError::new_err(
                "the rows of this result were taken as Arrow or it was closed, and they can be read once; run the \
                 statement again, or keep what to_arrow() gives",
            )),
            false => Ok(reading),
        }
    }

    /// The first rows that are left, up to so many, and whether there are more.
    fn first(&self, py: Python<'_>, rows: usize) -> PyResult<(Vec<RecordBatch>, bool)> {
        let mut reading = self.lock(py)?;
        let ready = |reading: &Reading| reading.ready.iter().map(RecordBatch::num_rows).sum::<usize>();
        while ready(&reading) <= rows && reading.compute(py, &self.waiting)? {}
        let mut left = rows;
        let mut first = Vec::new();
        for batch in &reading.ready {
            let taken = left.min(batch.num_rows());
            if taken > 0 {
                first.push(batch.slice(0, taken));
            }
            left -= taken;
        }
        Ok((first, ready(&reading) > rows))
    }
}

/// Rows that are computed, for whoever reads Arrow.
#[pyclass(module = "taut._taut", frozen)]
pub struct Batches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Batches {
    /// The rows as a stream of Arrow batches; any number of times.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        capsule(py, reader, requested_schema)
    }
}

/// A reader as the Arrow PyCapsule interface hands it over.
fn capsule<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let field = Arc::new(Field::new_struct("", reader.schema().fields().clone(), false));
    let arrays = reader.map(|batch| Ok(Arc::new(StructArray::from(batch?)) as ArrayRef));
    Ok(to_stream_pycapsule(py, Box::new(ArrayIterator::new(arrays, field)), requested_schema)?)
}

/// Rows as a reader of batches, for a consumer that may be of any language and on any thread.
struct Stream {
    schema: SchemaRef,
    ready: VecDeque<RecordBatch>,
    rows: Option<Rows>,
    waiting: Arc<Waiting>,
}

impl Iterator for Stream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.ready.pop_front() {
            return Some(Ok(batch));
        }
        let Some(next) = self.rows.as_mut()?.next() else {
            self.waiting.end();
            return None;
        };
        if next.is_err() && self.waiting.take_raised().is_some() {
            // The consumer will raise something of its own; the signal was heard here, and is sent again for Python.
            Python::try_attach(|py| py.import("_thread")?.call_method0("interrupt_main").map(drop));
        }
        Some(next.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The same with text as arrays of offsets.
struct PlainStream {
    schema: SchemaRef,
    ready: VecDeque<RecordBatch>,
    source: Stream,
}

impl Iterator for PlainStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() {
            let mut batches = Vec::new();
            match self.source.next()?.and_then(|batch| plain(&batch, &self.schema, &mut batches)) {
                Ok(()) => self.ready = batches.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl RecordBatchReader for PlainStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
