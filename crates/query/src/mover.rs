//! The mover: in the background it moves rows of deltas into blocks, writes blocks anew of which many rows are deleted,
//! merges small blocks and runs, and lets the log go.
//!
//! ```text
//! commits ──wake──> thread: what is due? ──a piece of work──> one commit ──rest──> what is due? ...
//!                            │ policy.rs      work.rs              pace.rs
//!                            └ takes the turn of a table, as VACUUM and ALTER TABLE do
//! ```
//!
//! It reads and writes as loads do, and publishes a piece by one commit: whenever it stops, there are the old rows or the
//! new ones. Readers do not notice. Why it is done so: docs/adr/0020-the-mover.md.

mod options;
mod pace;
pub(crate) mod policy;
pub(crate) mod status;
mod thread;
mod work;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use taut_store::{Catalog, Store, Table, TableId};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, watch};

use crate::settings::Engine;

use status::Status;

pub use options::MoverOptions;
pub use pace::Pace;
pub(crate) use policy::Thoroughness;
pub(crate) use work::{Worker, is_conflict};

/// What is waited at most for whoever has the turn of a table, where it might wait for this one.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// That nobody else moves the rows of a table to other blocks.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// Moves the rows of a store in the background, from the first change on, until it is dropped.
pub struct Mover {
    engine: Engine,
    store: Weak<Store>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    has_begun: AtomicBool,
    /// Whether the database is open read-only: there is nothing to do.
    is_read_only: bool,
    /// Threads do not survive a fork.
    process: u32,
}

/// What sessions and the thread share.
pub(crate) struct Shared {
    pub options: Arc<MoverOptions>,
    pub status: Mutex<Status>,
    is_on: AtomicBool,
    /// Whether something has changed since the thread last looked.
    has_changed: AtomicBool,
    changed: Notify,
    stop: watch::Sender<bool>,
    turns: Mutex<BTreeMap<TableId, Arc<AsyncMutex<()>>>>,
    /// How many wait for turns.
    waiting: Arc<AtomicUsize>,
    /// That the thread is to give up what it does.
    leave: Notify,
}

impl Mover {
    /// A mover of a store, whose plans run by an engine. There is one for each store that is open.
    pub fn new(store: &Arc<Store>, engine: Engine, options: MoverOptions) -> Self {
        let shared = Shared {
            is_on: AtomicBool::new(options.is_on && !store.is_read_only()),
            options: Arc::new(options),
            status: Mutex::default(),
            has_changed: AtomicBool::new(false),
            changed: Notify::new(),
            stop: watch::channel(false).0,
            turns: Mutex::default(),
            waiting: Arc::default(),
            leave: Notify::new(),
        };
        let mover = Self {
            engine,
            store: Arc::downgrade(store),
            shared: Arc::new(shared),
            thread: Mutex::new(None),
            has_begun: AtomicBool::new(false),
            is_read_only: store.is_read_only(),
            process: std::process::id(),
        };
        let snapshot = store.snapshot();
        if store.log_bytes() > 0 || snapshot.tables().any(|table| !table.delta.is_empty()) {
            mover.wake();
        }
        mover
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Says that something has changed.
    pub(crate) fn wake(&self) {
        if self.is_read_only || self.shared.has_changed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.changed.notify_one();
        if !self.has_begun.swap(true, Ordering::AcqRel) {
            let (shared, store) = (Arc::clone(&self.shared), Weak::clone(&self.store));
            let begun = thread::begin(shared, store, self.engine.context());
            match begun {
                Ok(thread) => *self.thread.lock() = Some(thread),
                // Commits do its work then, when they must.
                Err(error) => self.shared.status.lock().end_failed(None, Duration::ZERO, Some(error.to_string())),
            }
        }
    }

    /// Says whether it works in the background.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.shared.is_on.store(is_on, Ordering::Release);
        self.wake();
    }
}

/// Counts one who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
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
                // It has told its errors.
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

impl Debug for Shared {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "is_on: {}, {:?}", self.is_on(), self.options)
    }
}

impl Shared {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Waits until nobody else moves the rows of a table.
    pub async fn turn(&self, table: TableId) -> Turn {
        let _waiting = Waiting::begin(&self.waiting);
        self.turn_of(table).lock_owned().await
    }

    /// As [`Shared::turn_soon`], for a statement that makes the thread's work on the table useless: it is given up.
    pub async fn turn_at_once(&self, table: TableId) -> Option<Turn> {
        let turn = self.turn_of(table).try_lock_owned();
        if turn.is_err() && self.status.lock().is_running(table) {
            self.leave.notify_one();
        }
        match turn {
            Ok(turn) => Some(turn),
            Err(_) => self.turn_soon(table).await,
        }
    }

    /// As [`Shared::turn`], but not for ever: whoever has it may wait for this one.
    pub async fn turn_soon(&self, table: TableId) -> Option<Turn> {
        tokio::time::timeout(TURN_WAIT, self.turn(table)).await.ok()
    }

    fn turn_of(&self, table: TableId) -> Arc<AsyncMutex<()>> {
        Arc::clone(self.turns.lock().entry(table).or_default())
    }

    /// Whether the delta of a table is so large that commits wait for it to be sealed.
    pub fn is_overfull(&self, table: &Table) -> bool {
        self.is_too_much((table.delta.page_rows(), table.delta.page_bytes() as u64))
    }

    /// Whether that of some table may be so large.
    pub fn may_be_overfull(&self, catalog: &Catalog) -> bool {
        self.is_too_much(catalog.pages())
    }

    fn is_too_much(&self, (rows, bytes): (u64, u64)) -> bool {
        let factor = u64::from(self.options.hard_factor);
        rows > self.options.delta_rows.saturating_mul(factor)
            || bytes > (self.options.delta_bytes as u64).saturating_mul(factor)
    }

    /// Whether the log is so large that commits wait for a checkpoint.
    pub fn is_log_overfull(&self, store: &Store) -> bool {
        store.log_bytes() > self.options.log_bytes.saturating_mul(u64::from(self.options.hard_factor))
    }
}
