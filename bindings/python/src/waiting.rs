//! What happens on the thread that waits for a statement: signals are heard, and progress is shown.
//!
//! Only a thread that came from Python does so. One that reads a stream of Arrow may be of another library, and hold up
//! those who have the interpreter's lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use taut::{Progress, ProgressCallback, WaitCallback};

/// The waiting of one connection.
///
/// The threads that compute leave their progress here, and the thread that waits, which may take the interpreter's lock,
/// shows it.
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
        Arc::new(move || {
            if !CAME_FROM_PYTHON.get() {
                return true;
            }
            // Where the interpreter is on its way out, so is the statement.
            Python::try_attach(|py| waiting.goes_on(py)).unwrap_or(false)
        })
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
            if let Err(error) = self.report(py, Some(&latest)) {
                // An exit or an interrupt that came while the bar was drawn is meant for the statement.
                if !error.is_instance_of::<PyException>(py) {
                    *self.raised.lock() = Some(error);
                    return false;
                }
                error.write_unraisable(py, None);
            }
        }
        true
    }

    /// Is told that the statement has ended, or its rows.
    pub fn end(&self) {
        *self.progress.lock() = None;
        if self.was_shown.swap(false, Ordering::Relaxed) {
            Python::try_attach(|py| {
                // An interrupt here comes after the statement's end.
                match self.report(py, None) {
                    Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
                    _ => {}
                }
            });
        }
    }

    /// What a handler of a signal raised, if that ended the statement.
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

/// Waits for something on a thread that came from Python, without the interpreter's lock.
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

/// Waits for something on any thread. The main one of Python, which may hold the interpreter's lock here, gives it up
/// meanwhile: what computes may have to free memory of Python.
pub fn without_lock_of_main<T: Send>(wait: impl FnOnce() -> T + Send) -> Option<T> {
    if MAIN_THREAD.get() != Some(&std::thread::current().id()) {
        return Some(wait());
    }
    Python::try_attach(|py| without_lock(py, wait))
}

static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Remembers the main thread of Python, if this is it.
pub fn remember_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    if threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?) {
        // A module is made once in a process.
        let _ = MAIN_THREAD.set(std::thread::current().id());
    }
    Ok(())
}
