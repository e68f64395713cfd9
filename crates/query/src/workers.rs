//! Where the operating system puts the threads that compute partitions.
//!
//! ```text
//!   processor 0   wakes a worker, goes on computing    | the worker waits here
//!   processor 1   idle                                 |
//! ```
//!
//! A thread that is woken may be queued behind the one that wakes it while another processor is idle: Linux moves it when it
//! next balances its queues, milliseconds later, and most selections do not take as long. So whoever starts to compute
//! moves the workers that are queued behind it.

use parking_lot::Mutex;

/// How many workers are moved at once: a worker that starts to compute has woken one at most, and moves it in turn.
const MOVED_MAX: usize = 4;

/// The threads of a runtime that have nothing to do, or were woken and have not run since. The one that parked last is the
/// last, and the first to be woken.
#[derive(Debug, Default)]
pub struct Workers {
    parked: Mutex<Vec<system::Thread>>,
}

impl Workers {
    /// To be called by a worker before it waits for work.
    pub fn park(&self) {
        self.parked.lock().push(system::this_thread());
    }

    /// To be called by a worker that has work again.
    pub fn unpark(&self) {
        let own = system::this_thread();
        self.parked.lock().retain(|thread| *thread != own);
    }

    /// To be called by a thread that starts to compute. Moves workers that were woken and wait for its processor to others
    /// that they may use. It changes nothing for workers that sleep, nor where the operating system does not let us.
    pub(crate) fn make_way(&self) {
        // Those that are moved want the list at once, to leave it.
        let newest: Vec<_> = self.parked.lock().iter().rev().take(MOVED_MAX).copied().collect();
        system::move_away(&newest);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub type Thread = rustix::thread::Pid;

    pub fn this_thread() -> Thread {
        gettid()
    }

    /// A thread that is queued on a processor that it may no longer use is put in the queue of another at once, and stays there
    /// when it may use the first again.
    pub fn move_away(threads: &[Thread]) {
        let own = sched_getcpu();
        for thread in threads {
            let Ok(before) = sched_getaffinity(Some(*thread)) else { continue };
            if own >= CpuSet::MAX_CPU || !before.is_set(own) || before.count() < 2 {
                continue;
            }
            let mut others = before;
            others.unset(own);
            // Refused, it stays where it is, which costs time only.
            if sched_setaffinity(Some(*thread), &others).is_ok() {
                let _ = sched_setaffinity(Some(*thread), &before);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub type Thread = std::thread::ThreadId;

    pub fn this_thread() -> Thread {
        std::thread::current().id()
    }

    pub fn move_away(_: &[Thread]) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::*;

    fn only(processor: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(processor);
        set
    }

    /// Two processors that this thread may use, or none.
    fn two_processors() -> Option<[usize; 2]> {
        let usable = sched_getaffinity(None).unwrap();
        let mut places = (0..CpuSet::MAX_CPU).filter(|place| usable.is_set(*place));
        Some([places.next()?, places.next()?])
    }

    /// On a thread whose processors are nobody else's: the runner of tests may have one thread for all.
    fn on_its_own(test: impl FnOnce(usize, usize) + Send) {
        if let Some([own, other]) = two_processors() {
            thread::scope(|scope| scope.spawn(|| test(own, other)).join()).unwrap();
        }
    }

    #[test]
    fn a_worker_that_waits_for_this_processor_runs_on_another() {
        on_its_own(|own, other| {
            let mut both = only(own);
            both.set(other);
            let (workers, is_queued) = (Workers::default(), AtomicBool::new(false));
            let ran_on = AtomicUsize::new(usize::MAX);
            thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    sched_setaffinity(None, &only(own)).unwrap();
                    workers.park();
                    is_queued.store(true, Ordering::SeqCst);
                    // Computes, on the one processor or the other.
                    while ran_on.load(Ordering::SeqCst) != other {
                        ran_on.store(sched_getcpu(), Ordering::SeqCst);
                    }
                    workers.unpark();
                    sched_getaffinity(None).unwrap()
                });
                while !is_queued.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                sched_setaffinity(None, &only(own)).unwrap();
                let thread = workers.parked.lock()[0];
                sched_setaffinity(Some(thread), &both).unwrap();
                while ran_on.load(Ordering::SeqCst) != other {
                    workers.make_way();
                    spin_loop();
                }
                assert_eq!(worker.join().unwrap(), both, "it may use what it could use before");
            });
            assert_eq!(workers.parked.into_inner(), []);
        });
    }

    #[test]
    fn a_worker_that_may_use_no_other_processor_stays() {
        on_its_own(|own, _| {
            let workers = Workers::default();
            sched_setaffinity(None, &only(own)).unwrap();
            workers.park();
            workers.make_way();
            assert_eq!(sched_getaffinity(None).unwrap(), only(own));
        });
    }
}
