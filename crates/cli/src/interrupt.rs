//! Ctrl-C: the first one cancels what runs, the next one ends the process, unless that is a shell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use taut::{CancelHandle, Session};

use crate::failure::INTERRUPTED;

/// What Ctrl-C acts on.
#[derive(Clone, Default)]
pub struct Interrupts {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What runs now.
    running: Mutex<Option<CancelHandle>>,
    /// Whether Ctrl-C was pressed since `running` was set.
    is_caught: AtomicBool,
    /// Whether Ctrl-C never ends the process.
    outlives: AtomicBool,
}

impl Interrupts {
    /// Takes over Ctrl-C. Where the system does not allow that, it goes on ending the process.
    pub fn install() -> Self {
        let interrupts = Self::default();
        let shared = Arc::clone(&interrupts.shared);
        let wait = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
            while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                shared.interrupt();
            }
        };
        // Without the thread Ctrl-C keeps its default meaning.
        let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(wait);
        interrupts
    }

    /// From now on, Ctrl-C only cancels.
    pub fn outlive(&self) {
        self.shared.outlives.store(true, Ordering::SeqCst);
    }

    /// Lets Ctrl-C cancel what the session runs while the guard lives.
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
    // Without the thread Ctrl-C keeps its default meaning.
    let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(wait);
}

/// While it lives, Ctrl-C cancels instead of ending the process.
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// Whether Ctrl-C was pressed.
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
