//! Handling of Ctrl-C. The first Ctrl-C cancels the running statement, the next one ends the process. In the shell,
//! Ctrl-C never ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use taut::{CancelHandle, Session};

use crate::failure::INTERRUPTED;

/// Handler of Ctrl-C.
#[derive(Clone, Default)]
pub struct Interrupts {
    state: Arc<InterruptState>,
}

#[derive(Default)]
struct InterruptState {
    /// Handle that cancels the statements of the watched session, if any.
    running: Mutex<Option<CancelHandle>>,
    /// Whether Ctrl-C was pressed since `running` was set.
    was_interrupted: AtomicBool,
    /// Whether Ctrl-C never ends the process.
    never_exits: AtomicBool,
}

impl Interrupts {
    /// Installs the handler of Ctrl-C. If the system does not allow that, Ctrl-C still ends the process.
    pub fn install() -> Self {
        let interrupts = Self::default();
        let state = Arc::clone(&interrupts.state);
        let listen = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
            while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                state.interrupt();
            }
        };
        // If the thread cannot start, Ctrl-C keeps its default meaning.
        let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(listen);
        interrupts
    }

    /// From now on, Ctrl-C only cancels statements and never ends the process.
    pub fn never_exit(&self) {
        self.state.never_exits.store(true, Ordering::SeqCst);
    }

    /// Until the guard is dropped, Ctrl-C cancels the statements of the session.
    pub fn watch(&self, session: &Session) -> InterruptGuard {
        self.state.was_interrupted.store(false, Ordering::SeqCst);
        self.state.set(Some(session.cancel_handle()));
        InterruptGuard { state: Arc::clone(&self.state) }
    }
}

/// Calls a function at the first Ctrl-C; the next one ends the process.
pub fn on_interrupt(callback: impl Fn() + Send + 'static) {
    let listen = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            callback();
        }
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    // If the thread cannot start, Ctrl-C keeps its default meaning.
    let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(listen);
}

/// Guard: until it is dropped, the first Ctrl-C cancels statements of a session and does not end the process.
pub struct InterruptGuard {
    state: Arc<InterruptState>,
}

impl InterruptGuard {
    /// Whether Ctrl-C was pressed since the guard was created.
    pub fn was_interrupted(&self) -> bool {
        self.state.was_interrupted.load(Ordering::SeqCst)
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        self.state.set(None);
    }
}

impl InterruptState {
    fn set(&self, running: Option<CancelHandle>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    fn interrupt(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.as_ref() {
            Some(handle) if !self.was_interrupted.swap(true, Ordering::SeqCst) => handle.cancel(),
            _ if self.never_exits.load(Ordering::SeqCst) => {}
            _ => std::process::exit(i32::from(INTERRUPTED)),
        }
    }
}
