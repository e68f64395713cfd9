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
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Handle that cancels the statements of the watched session, if any.
    running: Mutex<Option<CancelHandle>>,
    /// Whether Ctrl-C was pressed since `running` was set.
    is_caught: AtomicBool,
    /// Whether Ctrl-C never ends the process.
    outlives: AtomicBool,
}

impl Interrupts {
    /// Installs the handler of Ctrl-C. If the system does not allow that, Ctrl-C still ends the process.
    pub fn install() -> Self {
        let interrupts = Self::default();
        let shared = Arc::clone(&interrupts.shared);
        let wait = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
            while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                shared.interrupt();
            }
        };
        // If the thread cannot start, Ctrl-C keeps its default meaning.
        let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(wait);
        interrupts
    }

    /// From now on, Ctrl-C only cancels statements and never ends the process.
    pub fn outlive(&self) {
        self.shared.outlives.store(true, Ordering::SeqCst);
    }

    /// Until the guard is dropped, Ctrl-C cancels the statements of the session.
    pub fn watch(&self, session: &Session) -> Watch {
        self.shared.is_caught.store(false, Ordering::SeqCst);
        self.shared.set(Some(session.cancel_handle()));
        Watch { shared: Arc::clone(&self.shared) }
    }
}

/// Calls a function at the first Ctrl-C; the next one ends the process.
pub fn on_interrupt(act: impl Fn() + Send + 'static) {
    let wait = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            act();
        }
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    // If the thread cannot start, Ctrl-C keeps its default meaning.
    let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(wait);
}

/// Guard: until it is dropped, the first Ctrl-C cancels statements of a session and does not end the process.
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// Whether Ctrl-C was pressed since the guard was created.
    pub fn is_caught(&self) -> bool {
        self.shared.is_caught.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.set(None);
    }
}

impl Shared {
    fn set(&self, running: Option<CancelHandle>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    fn interrupt(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.as_ref() {
            Some(handle) if !self.is_caught.swap(true, Ordering::SeqCst) => handle.cancel(),
            _ if self.outlives.load(Ordering::SeqCst) => {}
            _ => std::process::exit(i32::from(INTERRUPTED)),
        }
    }
}
