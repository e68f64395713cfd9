//! Moves threads that compute partitions to idle processors.
//!
//! ```text
//!   processor 0   wakes a worker, keeps computing      | the worker waits here
//!   processor 1   idle                                 |
//! ```
//!
//! A thread that is woken may be queued behind the thread that wakes it, while another processor is idle. Linux moves
//! the woken thread when it next balances its queues, milliseconds later. Most short queries have finished by then.
//! Therefore a thread that starts to compute moves the workers that are queued behind it.

use parking_lot::Mutex;

/// Maximum number of workers that are moved at once. A few are enough: a thread that starts to compute has just woken
/// one worker. That worker wakes the next, and moves it in turn.
const MOVED_MAX: usize = 4;

/// Threads of a runtime that are parked, or that were woken and have not run since. The thread that parked last is at
/// the end, and is the first to be woken.
#[derive(Debug, Default)]
pub struct Workers {
    parked: Mutex<Vec<system::Thread>>,
    /// Held while workers are moved. Another thread would otherwise read a temporary affinity as the worker's own.
    moving: Mutex<()>,
}

impl Workers {
    /// Registers the calling worker. Call before it waits for work.
    pub fn park(&self) {
        self.parked.lock().push(system::this_thread());
    }

    /// Removes the calling worker. Call when it has work again.
    pub fn unpark(&self) {
        let own = system::this_thread();
        self.parked.lock().retain(|thread| *thread != own);
    }

    /// Moves workers that were woken and wait for the calling thread's processor to other processors that they may use.
    /// Call when a thread starts to compute. Has no effect on sleeping workers, or if the operating system does not
    /// permit it.
    pub(crate) fn migrate_queued_workers(&self) {
        // Copied, so that the lock is free: a worker that is moved locks the list immediately to remove itself.
        let newest: Vec<_> = self.parked.lock().iter().rev().take(MOVED_MAX).copied().collect();
        let _moving = self.moving.lock();
        newest.into_iter().for_each(system::migrate);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub type Thread = rustix::thread::Pid;

    pub fn this_thread() -> Thread {
        gettid()
    }

    /// Excludes this processor from a thread's affinity and then restores the affinity. Linux moves a queued thread to
    /// another queue as soon as it may no longer use its processor, and does not move it back.
    pub fn migrate(thread: Thread) {
        let own = sched_getcpu();
        let Ok(before) = sched_getaffinity(Some(thread)) else { return };
        if own >= CpuSet::MAX_CPU || !before.is_set(own) || before.count() < 2 {
            return;
        }
        let mut others = before;
        others.unset(own);
        // If the system refuses this, the thread stays in its queue. That costs only time.
        if sched_setaffinity(Some(thread), &others).is_ok() {
            let _ = sched_setaffinity(Some(thread), &before);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub type Thread = std::thread::ThreadId;

    pub fn this_thread() -> Thread {
        std::thread::current().id()
    }

    pub fn migrate(_: Thread) {}
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::*;

    fn set_of(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    fn usable_processors() -> Vec<usize> {
        let affinity = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|index| affinity.is_set(*index)).collect()
    }

    /// Runs `check` while a registered worker spins, at first on the same processor. The thread of `check` may use only
    /// that processor. The worker may use all processors in `of_worker`. Finally checks that the affinity of the worker
    /// is unchanged.
    fn run_with_spinning_worker(of_worker: &[usize], check: impl FnOnce(&Workers, &AtomicUsize) + Send) {
        let own = of_worker[0];
        let (workers, is_over, ran_on) = (Workers::default(), AtomicBool::new(false), AtomicUsize::new(usize::MAX));
        thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &set_of(&[own])).unwrap();
                workers.park();
                while !is_over.load(Ordering::SeqCst) {
                    ran_on.store(sched_getcpu(), Ordering::SeqCst);
                }
                workers.unpark();
            });
            let tested = scope.spawn(|| {
                let began = Instant::now();
                while ran_on.load(Ordering::SeqCst) != own {
                    assert!(began.elapsed() < Duration::from_secs(60), "the worker has not started");
                    thread::sleep(Duration::from_millis(1));
                }
                sched_setaffinity(None, &set_of(&[own])).unwrap();
                let worker = workers.parked.lock()[0];
                sched_setaffinity(Some(worker), &set_of(of_worker)).unwrap();
                check(&workers, &ran_on);
                assert_eq!(sched_getaffinity(Some(worker)).unwrap(), set_of(of_worker), "the affinity is restored");
            });
            let tested = tested.join();
            is_over.store(true, Ordering::SeqCst);
            tested.unwrap();
        });
        assert_eq!(workers.parked.into_inner(), []);
    }

    #[test]
    fn a_worker_that_waits_for_this_processor_runs_on_another() {
        let [own, other, ..] = *usable_processors() else { return };
        run_with_spinning_worker(&[own, other], |workers, ran_on| {
            let began = Instant::now();
            while ran_on.load(Ordering::SeqCst) != other {
                assert!(began.elapsed() < Duration::from_secs(60), "the worker was not moved");
                workers.migrate_queued_workers();
            }
        });
    }

    /// Can fail only with three or more processors. With two, the temporary affinity of a worker has one processor, and
    /// other threads do not move such a worker.
    #[test]
    fn concurrent_migrations_keep_the_affinity_of_a_worker() {
        let usable = usable_processors();
        run_with_spinning_worker(&usable, |workers, _| {
            thread::scope(|scope| {
                for processor in &usable {
                    scope.spawn(move || {
                        sched_setaffinity(None, &set_of(&[*processor])).unwrap();
                        (0..1000).for_each(|_| workers.migrate_queued_workers());
                    });
                }
            });
        });
    }
}
