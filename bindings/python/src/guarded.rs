//! Lock for which a Python thread waits without blocking the interpreter.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;

use crate::errors::InterfaceError;

/// Interval between checks for signals during a wait.
pub const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Value that one thread uses at a time, even while that thread has released the interpreter's lock.
///
/// A thread waits for the value without the interpreter's lock, and checks for signals. A thread that already holds the
/// value, and locks it again from a signal handler or another callback, gets an error instead of a deadlock. A forked
/// process cannot use the value: the threads that compute do not exist there.
pub struct Guarded<T> {
    value: Mutex<T>,
    owner: Mutex<Option<ThreadId>>,
    process: u32,
    id: u64,
}

thread_local! {
    /// Id of the [`Guarded`] whose holder waits for this thread, or 0.
    static AWAITED_BY: Cell<u64> = const { Cell::new(0) };
}

/// Calls `run` while the holder of the [`Guarded`] with this id waits for the result. Locking that [`Guarded`] inside
/// `run` is an error.
pub fn run_awaited_by<R>(id: u64, run: impl FnOnce() -> R) -> R {
    let previous = AWAITED_BY.replace(id);
    let result = run();
    AWAITED_BY.set(previous);
    result
}

/// Exclusive access to the value of a [`Guarded`], released on drop.
pub struct GuardedRef<'a, T> {
    value: MutexGuard<'a, T>,
    owner: &'a Mutex<Option<ThreadId>>,
}

impl<T: Send> Guarded<T> {
    pub fn new(value: T) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { value: Mutex::new(value), owner: Mutex::new(None), process: std::process::id(), id }
    }

    /// Unique number of this lock in the process, never 0.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this process was forked from the process that created the value.
    pub fn is_from_other_process(&self) -> bool {
        self.process != std::process::id()
    }

    /// Waits until no other thread holds the value, and locks it. Fails if this thread already holds the value, if its
    /// holder waits for this thread, and in a forked process.
    pub fn lock(&self, py: Python<'_>) -> PyResult<GuardedRef<'_, T>> {
        if self.is_from_other_process() {
            return Err(InterfaceError::new_err(
                "this was made before the process was forked; connect in the new process, to a database that the other \
                 does not have open, or use the start method 'spawn' of multiprocessing",
            ));
        }
        let this_thread = std::thread::current().id();
        loop {
            if let Some(value) = self.value.try_lock() {
                *self.owner.lock() = Some(this_thread);
                return Ok(GuardedRef { value, owner: &self.owner });
            }
            if AWAITED_BY.get() == self.id {
                return Err(InterfaceError::new_err(
                    "what reads the data of an insert cannot use the connection of the insert, which waits for it; use \
                     con.duplicate()",
                ));
            }
            if *self.owner.lock() == Some(this_thread) {
                return Err(InterfaceError::new_err(
                    "this thread waits here for a statement already, and this call comes from what it does meanwhile",
                ));
            }
            py.check_signals()?;
            py.detach(|| drop(self.value.try_lock_for(SIGNAL_CHECK_INTERVAL)));
        }
    }

    /// Calls `read` with the value. Returns `None` if a thread holds the value.
    pub fn peek<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.value.try_lock().map(|value| read(&value))
    }
}

impl<T> Drop for GuardedRef<'_, T> {
    fn drop(&mut self) {
        *self.owner.lock() = None;
    }
}

impl<T> Deref for GuardedRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for GuardedRef<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
