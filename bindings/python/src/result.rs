//! The result of a statement. Its rows are computed on demand and read as Python objects or as Arrow batches.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use pyo3_arrow::{PyRecordBatchReader, PySchema};
use taut::{Outcome, Rows, with_written_intervals};

use crate::errors::{InterfaceError, InternalError, statement_exception};
use crate::guarded::{Guarded, GuardedRef};
use crate::plain::{append_plain, plain_schema};
use crate::values::tuples;
use crate::waiting::{Waiting, without_lock, without_lock_of_main};

/// The result of a statement. Its rows can be read once.
#[pyclass(module = "taut._taut", frozen)]
pub struct Result {
    schema: SchemaRef,
    tag: Option<String>,
    row_count: Option<u64>,
    notices: Vec<String>,
    reading: Guarded<ReadState>,
    waiting: Arc<Waiting>,
}

/// Progress of reading a result.
#[derive(Default)]
struct ReadState {
    /// Batches that are computed and not fully read. They precede what `rows` still returns.
    ready: VecDeque<RecordBatch>,
    /// Rows of the first batch in `ready` that were already returned.
    rows_returned: usize,
    rows: Option<Rows>,
    /// Whether any row was returned.
    has_returned_rows: bool,
    /// Why the rows can no longer be read. `None` while they can be read, and after the last row.
    end: Option<ReadEnd>,
}

/// Why the rows of a result can no longer be read.
#[derive(Clone)]
enum ReadEnd {
    /// The rows were taken as Arrow, or the result was closed.
    Taken,
    /// Reading failed with this message. Later reads fail too, so that the rows do not seem complete.
    Failed(String),
}

impl ReadState {
    /// Computes the next batch into `ready`. Returns false after the last batch.
    fn compute_batch(&mut self, py: Python<'_>, waiting: &Waiting) -> PyResult<bool> {
        let Some(rows) = &mut self.rows else { return Ok(false) };
        match without_lock(py, || rows.next()) {
            Some(Ok(batch)) => {
                self.ready.push_back(batch);
                Ok(true)
            }
            Some(Err(error)) => {
                *self = Self { end: Some(ReadEnd::Failed(error.to_string())), ..Self::default() };
                waiting.end();
                Err(statement_exception(py, &error, waiting))
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
        let reading = Guarded::new(ReadState { rows, ..ReadState::default() });
        Self { schema, tag, row_count, notices, reading, waiting }
    }
}

#[pymethods]
impl Result {
    /// Name, SQL type and nullability of each column. Empty if the statement returns no rows.
    #[getter]
    fn columns(&self) -> Vec<(String, String, bool)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), taut::type_name(field.data_type()), field.is_nullable())).collect()
    }

    /// Names of the columns of type interval.
    fn interval_columns(&self) -> Vec<String> {
        let fields = self.schema.fields().iter().filter(|field| matches!(field.data_type(), DataType::Interval(_)));
        fields.map(|field| field.name().clone()).collect()
    }

    /// Command tag, such as `INSERT 3`. `None` if the statement returns rows.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Number of rows written. `None` if the statement writes no rows.
    #[getter]
    fn row_count(&self) -> Option<u64> {
        self.row_count
    }

    /// Notices for the user.
    #[getter]
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Whether rows were returned by `fetch`.
    #[getter]
    fn has_returned_rows(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.has_returned_rows)
    }

    /// Reads up to `rows` more rows, as a list of tuples.
    fn fetch<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyList>> {
        let mut reading = self.lock(py)?;
        let mut found: Vec<Bound<'py, PyTuple>> = Vec::new();
        while found.len() < rows {
            let reading = &mut *reading;
            let Some(batch) = reading.ready.front() else {
                match reading.compute_batch(py, &self.waiting)? {
                    true => continue,
                    false => break,
                }
            };
            let end = batch.num_rows().min(reading.rows_returned.saturating_add(rows - found.len()));
            // An error loses the rows in `found`: later reads must fail too instead of skipping them silently.
            let more = tuples(py, batch, reading.rows_returned..end).inspect_err(|error| {
                reading.end = Some(ReadEnd::Failed(error.to_string()));
            });
            let is_read = end == batch.num_rows();
            found.extend(more?);
            reading.rows_returned = end;
            if is_read {
                reading.ready.pop_front();
                reading.rows_returned = 0;
            }
        }
        reading.has_returned_rows |= !found.is_empty();
        PyList::new(py, found)
    }

    /// Returns up to `rows` next rows without consuming them, and whether more rows follow.
    fn peek<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<(Bound<'py, PyList>, bool)> {
        let (batches, more) = self.peek_batches(py, rows)?;
        let mut found = Vec::new();
        for batch in &batches {
            found.extend(tuples(py, batch, 0..batch.num_rows())?);
        }
        Ok((PyList::new(py, found)?, more))
    }

    /// Returns up to `rows` next rows as a table of text without consuming them, and whether more rows follow.
    fn peek_text(&self, py: Python<'_>, rows: usize) -> PyResult<(String, bool)> {
        let (batches, more) = self.peek_batches(py, rows)?;
        let empty = [RecordBatch::new_empty(Arc::clone(&self.schema))];
        let batches = if batches.is_empty() { &empty } else { batches.as_slice() };
        let options = FormatOptions::default().with_display_error(true).with_null("NULL");
        let batches: std::result::Result<Vec<_>, _> = batches.iter().map(with_written_intervals).collect();
        let table = batches.and_then(|batches| pretty_format_batches_with_options(&batches, &options));
        Ok((table.map_err(|error| InternalError::new_err(error.to_string()))?.to_string(), more))
    }

    /// Computes all rows and returns them as an object with `__arrow_c_stream__`. `views` keeps text and bytes as view
    /// arrays; otherwise they become arrays with offsets.
    fn collect(&self, py: Python<'_>, views: bool) -> PyResult<Batches> {
        let (ready, rows) = self.take_rows(py)?;
        let schema = if views { Arc::clone(&self.schema) } else { plain_schema(&self.schema) };
        let batches: std::result::Result<_, Failure> = without_lock(py, || {
            let mut batches = Vec::new();
            for batch in ready.into_iter().map(Ok).chain(rows.into_iter().flatten()) {
                match views {
                    true => batches.push(batch.map_err(Failure::Statement)?),
                    false => append_plain(&batch.map_err(Failure::Statement)?, &schema, &mut batches)
                        .map_err(Failure::Arrow)?,
                }
            }
            Ok(batches)
        });
        self.waiting.end();
        match batches {
            Ok(batches) => Ok(Batches { schema, batches }),
            Err(failure) => {
                self.reading.lock(py)?.end = Some(ReadEnd::Failed(failure.message()));
                Err(match failure {
                    Failure::Statement(error) => statement_exception(py, &error, &self.waiting),
                    Failure::Arrow(error) => InternalError::new_err(error.to_string()),
                })
            }
        }
    }

    /// Returns a reader with `__arrow_c_stream__` that computes the rows on demand. Text and bytes are arrays with
    /// offsets.
    fn stream(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        let (ready, rows) = self.take_rows(py)?;
        let source = Stream { schema: Arc::clone(&self.schema), ready, rows, waiting: Arc::clone(&self.waiting) };
        let schema = plain_schema(&self.schema);
        let stream = PlainStream { schema, ready: VecDeque::new(), source };
        Ok(PyRecordBatchReader::new(Box::new(stream)))
    }

    /// Ends the statement if it still runs. If another thread is fetching rows, waits for its call first.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let before = std::mem::replace(
            &mut *self.reading.lock(py)?,
            ReadState { end: Some(ReadEnd::Taken), ..ReadState::default() },
        );
        py.detach(|| drop(before));
        self.waiting.end();
        Ok(())
    }

    /// Columns of the result as an Arrow schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    /// Takes the rows as a stream of Arrow batches, computed on demand. The result cannot be read afterwards.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (ready, rows) = self.take_rows(py)?;
        let stream = Stream { schema: Arc::clone(&self.schema), ready, rows, waiting: Arc::clone(&self.waiting) };
        capsule(py, stream, requested_schema)
    }
}

/// Why a result could not be collected.
enum Failure {
    Statement(taut::Error),
    Arrow(ArrowError),
}

impl Failure {
    fn message(&self) -> String {
        match self {
            Self::Statement(error) => error.to_string(),
            Self::Arrow(error) => error.to_string(),
        }
    }
}

impl Result {
    /// Takes the computed batches and the running query out of the result.
    fn take_rows(&self, py: Python<'_>) -> PyResult<(VecDeque<RecordBatch>, Option<Rows>)> {
        let mut reading = self.lock(py)?;
        if reading.has_returned_rows {
            return Err(InterfaceError::new_err(
                "rows of this result were read already, and can be read once; run the statement again, or keep what \
                 to_arrow() gives",
            ));
        }
        reading.end = Some(ReadEnd::Taken);
        Ok((std::mem::take(&mut reading.ready), reading.rows.take()))
    }

    /// Locks the reading state. Fails if the statement returned no rows or they can no longer be read.
    fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<GuardedRef<'a, ReadState>> {
        if let Some(tag) = &self.tag {
            return Err(InterfaceError::new_err(format!("the statement gives no rows; it is done: {tag}")));
        }
        let reading = self.reading.lock(py)?;
        match &reading.end {
            None => Ok(reading),
            Some(ReadEnd::Taken) => Err(InterfaceError::new_err(
                "the rows of this result were taken as Arrow or it was closed, and they can be read once; run the \
                 statement again, or keep what to_arrow() gives",
            )),
            Some(ReadEnd::Failed(message)) => Err(InterfaceError::new_err(format!(
                "the rows of this result could not be read to their end; run the statement again. It failed with: {message}"
            ))),
        }
    }

    /// Returns up to `rows` next rows without consuming them, and whether more rows follow.
    fn peek_batches(&self, py: Python<'_>, rows: usize) -> PyResult<(Vec<RecordBatch>, bool)> {
        let mut reading = self.lock(py)?;
        let ready = |reading: &ReadState| {
            reading.ready.iter().map(RecordBatch::num_rows).sum::<usize>() - reading.rows_returned
        };
        while ready(&reading) <= rows && reading.compute_batch(py, &self.waiting)? {}
        let (mut left, mut start) = (rows, reading.rows_returned);
        let mut first = Vec::new();
        for batch in &reading.ready {
            let taken = left.min(batch.num_rows() - start);
            if taken > 0 {
                first.push(batch.slice(start, taken));
            }
            (left, start) = (left - taken, 0);
        }
        Ok((first, ready(&reading) > rows))
    }
}

/// All rows of a result in memory, readable through the Arrow PyCapsule interface.
#[pyclass(module = "taut._taut", frozen)]
pub struct Batches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Batches {
    /// Rows as a stream of Arrow batches. Can be called repeatedly.
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

/// Wraps a reader in a capsule of the Arrow PyCapsule interface, cast to the types that the consumer requests.
///
/// Reading fails at a value that the requested type cannot hold.
fn capsule<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut schema = reader.schema();
    if let Some(requested) = requested_schema {
        let requested = PySchema::from_arrow_pycapsule(&requested)?.into_inner();
        let same = |(column, requested): (&FieldRef, &FieldRef)| {
            column.name() == requested.name() && arrow_cast::can_cast_types(column.data_type(), requested.data_type())
        };
        // If the columns differ or cannot be cast, the stream has its original schema, which the consumer checks.
        if schema.fields().len() == requested.fields().len() && schema.fields().iter().zip(requested.fields()).all(same)
        {
            let fields = schema.fields().iter().zip(requested.fields());
            let fields =
                fields.map(|(column, requested)| column.as_ref().clone().with_data_type(requested.data_type().clone()));
            schema = Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()));
        }
    }
    let field = Field::new_struct("", schema.fields().clone(), false).with_metadata(schema.metadata().clone());
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let arrays = reader.map(move |batch| {
        let batch = batch?;
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| match field.data_type() {
            same if same == column.data_type() => Ok(Arc::clone(column)),
            requested => cast_with_options(column, requested, &strict),
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = StructArray::try_new_with_length(schema.fields().clone(), columns, None, batch.num_rows())?;
        Ok(Arc::new(rows) as ArrayRef)
    });
    Ok(to_stream_pycapsule(py, Box::new(ArrayIterator::new(arrays, Arc::new(field))), None)?)
}

/// Reader of the rows of a result, for a consumer in any language and on any thread.
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
        let rows = self.rows.as_mut()?;
        // A panic must not unwind into the consumer, which may be written in another language.
        let next = without_lock_of_main(|| catch_unwind(AssertUnwindSafe(|| rows.next())));
        let error = match next {
            Some(Ok(Some(Ok(batch)))) => return Some(Ok(batch)),
            Some(Ok(None)) => {
                self.end();
                return None;
            }
            Some(Ok(Some(Err(error)))) if error.is_cancelled() => match self.waiting.take_raised() {
                Some(raised) => {
                    Python::try_attach(|py| interrupt_message(py, &raised)).unwrap_or_else(|| error.to_string())
                }
                None => error.to_string(),
            },
            Some(Ok(Some(Err(error)))) => error.to_string(),
            Some(Err(_)) => "a fault of Taut; please report what it wrote on standard error".to_owned(),
            None => "the interpreter is on its way out".to_owned(),
        };
        self.end();
        // The message becomes a C string, which ends at its first zero byte.
        Some(Err(ArrowError::ComputeError(error.replace('\0', "\\0"))))
    }
}

impl Stream {
    fn end(&mut self) {
        self.rows = None;
        self.waiting.end();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.waiting.end();
    }
}

/// Error message for the consumer of a stream that a signal handler ended. The consumer raises its own
/// exception, so a KeyboardInterrupt is triggered again for Python.
fn interrupt_message(py: Python<'_>, raised: &PyErr) -> String {
    let message = format!("cancelled: {raised}");
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        // The last call into Python: it only sets a flag, and a later call from here would already raise the interrupt.
        let _ = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
    }
    message
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Reader of the rows of a result with text and bytes as arrays with offsets.
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
            match self.source.next()?.and_then(|batch| append_plain(&batch, &self.schema, &mut batches)) {
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
