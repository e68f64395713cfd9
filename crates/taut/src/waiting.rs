//! Waits on the calling thread for a future that other threads complete.
//!
//! Timers of the runtime depend on its own threads, which may all be busy. The waiting thread therefore measures its
//! time itself. It reacts to a wake-up at once and calls `next` on time, even if all other threads are busy.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// What a waiting thread does next.
pub(crate) enum Next {
    /// Wait until this time or a wake-up, whichever is first, and then decide again. `None` waits for a wake-up only.
    Wait(Option<Instant>),
    /// Stop waiting.
    Stop,
}

/// Wakes one thread.
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls a future on this thread until it is ready. Returns `None` if `next` returns [`Next::Stop`] first.
pub(crate) fn wait<T>(future: impl Future<Output = T>, mut next: impl FnMut() -> Next) -> Option<T> {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        loop {
            let deadline = match next() {
                Next::Stop => return None,
                Next::Wait(deadline) => deadline,
            };
            if sleeper.is_woken.swap(false, Ordering::Acquire) {
                break;
            }
            match deadline {
                Some(deadline) => thread::park_timeout(deadline.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_future_that_another_thread_completes_is_waited_for() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                sender.send(7).unwrap();
            });
            assert_eq!(wait(receiver, || Next::Wait(None)), Some(Ok(7)));
        });
    }

    #[test]
    fn waiting_stops_at_its_deadline() {
        let until = Instant::now() + Duration::from_millis(20);
        let next = || if Instant::now() < until { Next::Wait(Some(until)) } else { Next::Stop };
        assert_eq!(wait(std::future::pending::<()>(), next), None);
    }
}
