//! Signal checks and progress reports on the thread that waits for a statement.
//!
//! Only a thread that came from Python checks signals and reports progress, because both need the interpreter's lock.
//! A thread that reads an Arrow stream may belong to another library. If the holder of the lock waits for that thread,
//! taking the lock there would be a deadlock.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use taut::{Progress, ProgressCallback, WaitCallback};

/// State of the thread that waits for the statements of one connection.
///
/// The threads that compute store their progress here. The thread that waits may take the interpreter's lock, and
/// reports the progress.
#[derive(Default)]
pub struct Waiting {
    /// Exception that a signal handler or the reporter raised to cancel the statement.
    raised: Mutex<Option<PyErr>>,
    progress: Mutex<Option<Progress>>,
    /// Python callable. Its arguments are the operation, rows done, and total rows or `None`. At the end of the
    /// statement it is called without arguments.
    reporter: Option<Py<PyAny>>,
    was_shown: AtomicBool,
}

impl Waiting {
    pub fn new(reporter: Option<Py<PyAny>>) -> Self {
        Self { reporter, ..Self::default() }
    }

    /// Callback that the session calls while a statement runs. It returns false to cancel the statement.
    pub fn callback(self: &Arc<Self>) -> WaitCallback {
        let waiting = Arc::clone(self);
        Arc::new(move || {
            if !CAME_FROM_PYTHON.get() {
                return true;
            }
            // If the interpreter is shutting down, cancel the statement.
            Python::try_attach(|py| waiting.continues(py)).unwrap_or(false)
        })
    }

    /// Callback that the session calls with its progress. `None` if there is no reporter.
    pub fn progress_callback(self: &Arc<Self>) -> Option<ProgressCallback> {
        self.reporter.as_ref()?;
        let waiting = Arc::clone(self);
        Some(Arc::new(move |progress| *waiting.progress.lock() = Some(progress.clone())))
    }

    fn continues(&self, py: Python<'_>) -> bool {
        // Runs signal handlers only on the main thread of Python.
        if let Err(raised) = py.check_signals() {
            *self.raised.lock() = Some(raised);
            return false;
        }
        let latest = self.progress.lock().take();
        if let Some(latest) = latest {
            self.was_shown.store(true, Ordering::Relaxed);
            if let Err(error) = self.report(py, Some(&latest)) {
                // An exit or an interrupt that arrives while the bar is drawn cancels the statement.
                if !error.is_instance_of::<PyException>(py) {
                    *self.raised.lock() = Some(error);
                    return false;
                }
                error.write_unraisable(py, None);
            }
        }
        true
    }

    /// Ends the progress report, when the statement or the reading of its rows has ended.
    pub fn end(&self) {
        *self.progress.lock() = None;
        if self.was_shown.swap(false, Ordering::Relaxed) {
            Python::try_attach(|py| {
                // An interrupt that arrives here is too late: the statement has ended.
                match self.report(py, None) {
                    Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
                    _ => {}
                }
            });
        }
    }

    /// Takes the exception that cancelled the statement, if there is one.
    pub fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().take()
    }

    fn report(&self, py: Python<'_>, progress: Option<&Progress>) -> PyResult<()> {
        let Some(reporter) = &self.reporter else { return Ok(()) };
        match progress {
            Some(progress) => reporter.call1(py, (&progress.operation, progress.rows_done, progress.rows_total)),
            None => reporter.call0(py),
        }?;
        Ok(())
    }
}

thread_local! {
    static CAME_FROM_PYTHON: Cell<bool> = const { Cell::new(false) };
}

/// Releases the interpreter's lock during `wait`, and marks the thread as one that came from Python.
pub fn without_lock<T: Send>(py: Python<'_>, wait: impl FnOnce() -> T + Send) -> T {
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            CAME_FROM_PYTHON.set(self.0);
        }
    }
    let _restored = Restored(CAME_FROM_PYTHON.replace(true));
    py.detach(wait)
}

/// Calls `wait` on any thread. The main thread of Python, which may hold the interpreter's lock, releases it meanwhile,
/// because the threads that compute may have to free memory of Python. Returns `None` if the interpreter is shutting
/// down.
pub fn without_lock_of_main<T: Send>(wait: impl FnOnce() -> T + Send) -> Option<T> {
    if MAIN_THREAD.get() != Some(&std::thread::current().id()) {
        return Some(wait());
    }
    Python::try_attach(|py| without_lock(py, wait))
}

static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Stores the id of the current thread if it is the main thread of Python.
pub fn remember_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    if threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?) {
        // The module is initialized once in a process, so nothing is set before.
        let _ = MAIN_THREAD.set(std::thread::current().id());
    }
    Ok(())
}
