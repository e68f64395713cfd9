//! What happens on the thread that waits for a statement: signals are heard, and progress is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use taut::{Progress, ProgressCallback, WaitCallback};

/// The waiting of one connection.
///
/// The threads that compute never touch Python: they leave their progress here, and the thread that waits, which may take
/// the interpreter's lock, shows it.
#[derive(Default)]
pub struct Waiting {
    /// What the handler of a signal raised.
    raised: Mutex<Option<PyErr>>,
    progress: Mutex<Option<Progress>>,
    /// Is called with operation, rows done and rows in all or `None`; with nothing when the statement ends.
    reporter: Option<Py<PyAny>>,
    was_shown: AtomicBool,
}

impl Waiting {
    pub fn new(reporter: Option<Py<PyAny>>) -> Self {
        Self { reporter, ..Self::default() }
    }

    /// What a session is told to ask.
    pub fn callback(self: &Arc<Self>) -> WaitCallback {
        let waiting = Arc::clone(self);
        // Where the interpreter is on its way out, so is the statement.
        Arc::new(move || Python::try_attach(|py| waiting.goes_on(py)).unwrap_or(false))
    }

    /// Who a session is told to tell of progress.
    pub fn progress_callback(self: &Arc<Self>) -> Option<ProgressCallback> {
        self.reporter.as_ref()?;
        let waiting = Arc::clone(self);
        Some(Arc::new(move |progress| *waiting.progress.lock() = Some(progress.clone())))
    }

    fn goes_on(&self, py: Python<'_>) -> bool {
        // Hears signals on the main thread of Python only.
        if let Err(raised) = py.check_signals() {
            *self.raised.lock() = Some(raised);
            return false;
        }
        let latest = self.progress.lock().take();
        if let Some(latest) = latest {
            self.was_shown.store(true, Ordering::Relaxed);
            self.report(py, Some(&latest));
        }
        true
    }

    /// Is told that the statement has ended, or its rows.
    pub fn end(&self) {
        *self.progress.lock() = None;
        if self.was_shown.swap(false, Ordering::Relaxed) {
            Python::try_attach(|py| self.report(py, None));
        }
    }

    /// What a handler of a signal raised, if that ended the statement.
    pub fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().take()
    }

    fn report(&self, py: Python<'_>, progress: Option<&Progress>) {
        let Some(reporter) = &self.reporter else { return };
        let told = match progress {
            Some(progress) => reporter.call1(py, (&progress.operation, progress.rows_done, progress.rows_total)),
            None => reporter.call0(py),
        };
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }
}
