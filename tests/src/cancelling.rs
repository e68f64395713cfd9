//! Cancels a statement of a session from another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taut::Session;

/// Interval between two cancellations.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs a statement and cancels it after `delay`. Returns the result of the statement.
///
/// A cancellation does not affect statements that begin later, and on a busy machine the statement may not have begun
/// after `delay`. It is therefore cancelled again until it ends.
pub fn run_and_cancel<T>(session: &Session, delay: Duration, statement: impl FnOnce() -> T) -> T {
    let handle = session.cancel_handle();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !has_ended.load(Ordering::SeqCst) {
                if start.elapsed() >= delay {
                    handle.cancel();
                }
                thread::sleep(INTERVAL);
            }
        });
        let outcome = statement();
        has_ended.store(true, Ordering::SeqCst);
        outcome
    })
}
