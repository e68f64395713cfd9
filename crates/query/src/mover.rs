//! The mover: a background thread that runs compaction and checkpoints. It writes delta rows to blocks, rewrites blocks
//! with many deleted rows, merges small blocks and sort runs, and truncates the log.
//!
//! ```text
//! commits ──wake──> thread: what is due? ──compaction──> one commit ──rest──> what is due? ...
//!                            │ policy.rs     worker.rs             runtime/pace.rs
//!                            └ holds the maintenance lock of a table, as VACUUM and ALTER TABLE do
//! ```
//!
//! A compaction reads and writes like a load, and publishes its result in one commit. If it stops early, the table
//! keeps the old blocks. Readers are not affected. docs/adr/0020-the-mover.md gives the reasons.

mod options;
pub(crate) mod policy;
pub(crate) mod status;
mod thread;
mod worker;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use taut_store::{Catalog, Store, Table, TableId};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, watch};

use crate::plan::engine::Engine;

use status::Status;

pub use options::MoverOptions;
pub(crate) use policy::CompactionScope;
pub(crate) use worker::{Worker, is_conflict};

/// Maximum wait for a maintenance lock whose holder may be waiting for this session.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Maintenance lock: exclusive right to rewrite the blocks of a table.
pub(crate) type MaintenanceLock = OwnedMutexGuard<()>;

/// Runs compaction in the background, from the first change until it is dropped. The mover of an attached database also
/// starts if the database has a log.
pub struct Mover {
    engine: Arc<Engine>,
    store: Weak<Store>,
    shared: Arc<MoverState>,
    thread: Mutex<Option<JoinHandle<()>>>,
    has_started: AtomicBool,
    /// Whether the database is open read-only, so that the mover never has work.
    is_read_only: bool,
    /// Id of the process that created the mover: its thread does not survive a fork.
    process: u32,
    /// The movers of the databases that are attached to this one for writing.
    attached: Mutex<Vec<Arc<Mover>>>,
}

/// State of the mover, the background thread that runs compaction. Shared by sessions and the thread.
pub(crate) struct MoverState {
    pub options: Arc<MoverOptions>,
    pub status: Mutex<Status>,
    is_on: AtomicBool,
    /// Whether the database has changed since the thread last checked.
    has_changed: AtomicBool,
    changed: Notify,
    stop: watch::Sender<bool>,
    maintenance_locks: Mutex<BTreeMap<TableId, Arc<AsyncMutex<()>>>>,
    /// Number of tasks that wait for maintenance locks.
    waiting: Arc<AtomicUsize>,
    /// Notification for the thread to cancel its current compaction.
    preempt: Notify,
}

impl Mover {
    /// Creates the mover of a store, which has exactly one while it is open. The plans of compactions run on `engine`.
    pub fn new(store: &Arc<Store>, engine: Engine, options: MoverOptions) -> Self {
        Self::with_engine(store, Arc::new(engine), options)
    }

    fn with_engine(store: &Arc<Store>, engine: Arc<Engine>, options: MoverOptions) -> Self {
        let shared = MoverState {
            is_on: AtomicBool::new(options.is_on && !store.is_read_only()),
            options: Arc::new(options),
            status: Mutex::default(),
            has_changed: AtomicBool::new(false),
            changed: Notify::new(),
            stop: watch::channel(false).0,
            maintenance_locks: Mutex::default(),
            waiting: Arc::default(),
            preempt: Notify::new(),
        };
        let mover = Self {
            engine,
            store: Arc::downgrade(store),
            shared: Arc::new(shared),
            thread: Mutex::new(None),
            has_started: AtomicBool::new(false),
            is_read_only: store.is_read_only(),
            process: std::process::id(),
            attached: Mutex::default(),
        };
        let snapshot = store.snapshot();
        if store.log_bytes() > 0 || snapshot.tables().any(|table| !table.delta.is_empty()) {
            mover.wake();
        }
        mover
    }

    /// The engine that runs the mover's plans.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn shared(&self) -> &Arc<MoverState> {
        &self.shared
    }

    /// Notifies the thread of a change, and starts it on the first call.
    pub(crate) fn wake(&self) {
        if self.is_read_only || self.shared.has_changed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.changed.notify_one();
        if !self.has_started.swap(true, Ordering::AcqRel) {
            let (shared, store) = (Arc::clone(&self.shared), Weak::clone(&self.store));
            let begun = thread::begin(shared, store, self.engine.context());
            match begun {
                Ok(thread) => *self.thread.lock() = Some(thread),
                // Without the thread, commits run compactions once the limits of backpressure are exceeded.
                Err(error) => self.shared.status.lock().end_failed(None, Duration::ZERO, Some(error.to_string())),
            }
        }
    }

    /// Switches background work on or off, for the attached databases too.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.shared.is_on.store(is_on, Ordering::Release);
        self.wake();
        self.attached.lock().iter().for_each(|attached| attached.set_on(is_on));
    }

    /// Creates the mover of a database that is attached for writing. It runs until [`Mover::detach`].
    pub(crate) fn attach(&self, store: &Arc<Store>) {
        let mover = Arc::new(self.beside(store));
        self.attached.lock().push(mover);
    }

    /// Ends the mover of an attached database, once no statement uses it.
    pub(crate) fn detach(&self, store: &Arc<Store>) {
        let is_of_store = |mover: &mut Arc<Self>| mover.is_of(store);
        // Dropped after the list is unlocked: the end of the thread may take a moment.
        let detached: Vec<Arc<Self>> = self.attached.lock().extract_if(.., is_of_store).collect();
        drop(detached);
    }

    /// The mover of an attached database. If the database has been detached, returns a new mover.
    pub(crate) fn of_attached(&self, store: &Arc<Store>) -> Arc<Self> {
        let known = self.attached.lock().iter().find(|mover| mover.is_of(store)).map(Arc::clone);
        known.unwrap_or_else(|| Arc::new(self.beside(store)))
    }

    fn beside(&self, store: &Arc<Store>) -> Self {
        // The mover of a read-only database is off whatever its options are.
        let is_on = if self.is_read_only { self.shared.options.is_on } else { self.shared.is_on() };
        let options = MoverOptions { is_on, ..self.shared.options.as_ref().clone() };
        Self::with_engine(store, Arc::clone(&self.engine), options)
    }

    fn is_of(&self, store: &Arc<Store>) -> bool {
        std::ptr::eq(self.store.as_ptr(), Arc::as_ptr(store))
    }
}

/// Counts a waiting task until the guard is dropped.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        let thread = self.thread.get_mut().take();
        match thread {
            Some(thread) if self.process == std::process::id() => {
                // The thread has already recorded its errors.
                let _ = thread.join();
            }
            thread => std::mem::forget(thread),
        }
    }
}

impl Debug for Mover {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mover({:?})", self.shared)
    }
}

impl Debug for MoverState {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "is_on: {}, {:?}", self.is_on(), self.options)
    }
}

impl MoverState {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Waits for the maintenance lock of a table.
    pub async fn lock(&self, table: TableId) -> MaintenanceLock {
        let _waiting = WaitGuard::begin(&self.waiting);
        self.maintenance_mutex(table).lock_owned().await
    }

    /// Like [`MoverState::lock_within_limit`], but first cancels the thread's compaction of the table. For statements
    /// that make this compaction useless.
    pub async fn lock_preempting(&self, table: TableId) -> Option<MaintenanceLock> {
        let lock = self.maintenance_mutex(table).try_lock_owned();
        if lock.is_err() && self.status.lock().is_running(table) {
            self.preempt.notify_one();
        }
        match lock {
            Ok(lock) => Some(lock),
            Err(_) => self.lock_within_limit(table).await,
        }
    }

    /// Waits at most [`LOCK_WAIT`] for the maintenance lock of a table. `None` after that time.
    pub async fn lock_within_limit(&self, table: TableId) -> Option<MaintenanceLock> {
        tokio::time::timeout(LOCK_WAIT, self.lock(table)).await.ok()
    }

    fn maintenance_mutex(&self, table: TableId) -> Arc<AsyncMutex<()>> {
        Arc::clone(self.maintenance_locks.lock().entry(table).or_default())
    }

    /// Whether the delta of a table is so large that commits wait until it is written to blocks.
    pub fn is_overfull(&self, table: &Table) -> bool {
        self.exceeds_hard_limit((table.delta.page_rows(), table.delta.page_bytes() as u64))
    }

    /// Whether the delta of some table may be so large that commits wait until it is written to blocks.
    pub fn may_be_overfull(&self, catalog: &Catalog) -> bool {
        self.exceeds_hard_limit(catalog.delta_rows_and_bytes())
    }

    fn exceeds_hard_limit(&self, (rows, bytes): (u64, u64)) -> bool {
        let factor = u64::from(self.options.backpressure_factor);
        rows > self.options.delta_rows.saturating_mul(factor)
            || bytes > (self.options.delta_bytes as u64).saturating_mul(factor)
    }

    /// Whether the log is so large that commits wait for a checkpoint.
    pub fn is_log_overfull(&self, store: &Store) -> bool {
        store.log_bytes() > self.options.log_bytes.saturating_mul(u64::from(self.options.backpressure_factor))
    }
}
