//! The thread of the mover: checks which compaction is due, runs it, and rests.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use futures::FutureExt;
use taut_store::{Catalog, Store, Table, TableId};

use super::policy::{Compaction, CompactionKind, CompactionScope, next_compaction};
use super::{MaintenanceLock, MoverOptions, MoverState, Worker};
use crate::runtime::pace::Pace;

/// Minimum time between two checks, even if changes are more frequent.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Stack size in bytes. Plans are created on this stack.
const STACK_BYTES: usize = 16 << 20;

/// Starts the thread. It ends when the mover or the store is dropped.
pub(super) fn begin(
    shared: Arc<MoverState>,
    store: Weak<Store>,
    context: SessionContext,
) -> io::Result<JoinHandle<()>> {
    // The blocking threads encode blocks while this thread reads the next rows.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let thread = std::thread::Builder::new().name("taut mover".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let mut stop = shared.stop.subscribe();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = run(&shared, &store, &context) => {}
            }
        });
    })
}

async fn run(shared: &MoverState, store: &Weak<Store>, context: &SessionContext) {
    let (pace_store, options, waiting) = (Weak::clone(store), Arc::clone(&shared.options), Arc::clone(&shared.waiting));
    let pace = Arc::new(Pace::new(move || is_urgent(&pace_store, &options, &waiting)));
    let mut idle_tracker = IdleTracker::default();
    loop {
        shared.has_changed.store(false, Ordering::Release);
        let next_check = {
            let Some(store) = store.upgrade() else { return };
            let worker = Worker { store: &store, context, threads: 1, pace: Some(Arc::clone(&pace)), progress: None };
            pace.begin().await;
            while shared.is_on() && step(shared, &worker, &mut idle_tracker).await {
                pace.rest().await;
            }
            if shared.is_on() { idle_tracker.next_check(shared) } else { None }
        };
        tokio::time::sleep(CHECK_INTERVAL_MIN).await;
        let waited = async {
            match next_check {
                Some(next_check) => tokio::time::sleep_until(next_check.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.changed.notified() => {}
            () = waited => {}
        }
    }
}

/// Runs one compaction or a checkpoint if one is due. Returns true if so: the caller then checks again after a rest.
async fn step(shared: &MoverState, worker: &Worker<'_>, idle_tracker: &mut IdleTracker) -> bool {
    let snapshot = worker.store.snapshot();
    shared.status.lock().retain_tables(&snapshot);
    idle_tracker.observe(&snapshot, shared.options.idle);
    if worker.store.log_bytes() > shared.options.log_bytes && !shared.status.lock().must_wait(None) {
        // `checkpoint` records its errors for `taut.mover`.
        let _ = shared.checkpoint(worker.store);
        return true;
    }
    for kind in CompactionKind::ALL {
        for table in snapshot.tables() {
            let scope = idle_tracker.scope_of(table.id);
            if let Some((table, compaction, _lock)) = next_locked_compaction(shared, worker.store, table, (kind, scope))
            {
                // Clears a notification that was meant for an earlier compaction.
                let _ = shared.preempt.notified().now_or_never();
                tokio::select! {
                    // `compact` records its errors.
                    _ = shared.compact(worker, &table, &compaction) => {}
                    () = shared.preempt.notified() => {}
                }
                return true;
            }
        }
    }
    false
}

/// Returns the next compaction of a kind on a table, with the maintenance lock of the table. `None` if none is due, if
/// another task holds the lock, or if the last failure is too recent.
fn next_locked_compaction(
    shared: &MoverState,
    store: &Store,
    table: &Arc<Table>,
    (kind, scope): (CompactionKind, CompactionScope),
) -> Option<(Arc<Table>, Compaction, MaintenanceLock)> {
    if shared.status.lock().must_wait(Some((table.id, kind))) {
        return None;
    }
    next_compaction(table, kind, &shared.options, scope)?;
    let lock = shared.maintenance_mutex(table.id).try_lock_owned().ok()?;
    // The previous holder of the lock may have changed the table.
    let table = Arc::clone(store.snapshot().table_of(table.id)?);
    let compaction = next_compaction(&table, kind, &shared.options, scope)?;
    Some((table, compaction, lock))
}

/// Records for each table when it last changed.
#[derive(Default)]
struct IdleTracker {
    tables: BTreeMap<TableId, (TableFingerprint, Instant)>,
    idle: Duration,
}

/// Fingerprint of a table that differs if its rows have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TableFingerprint {
    page_rows: u64,
    page_bytes: usize,
    deleted: u64,
    blocks: usize,
}

impl IdleTracker {
    fn observe(&mut self, catalog: &Catalog, idle: Duration) {
        self.idle = idle;
        self.tables.retain(|table, _| catalog.table_of(*table).is_some());
        for table in catalog.tables() {
            let (page_rows, page_bytes) = (table.delta.page_rows(), table.delta.page_bytes());
            let (deleted, blocks) = (table.delta.deleted_block_rows(), table.blocks.len());
            let fingerprint = TableFingerprint { page_rows, page_bytes, deleted, blocks };
            let known = self.tables.entry(table.id).or_insert((fingerprint, Instant::now()));
            if known.0 != fingerprint {
                *known = (fingerprint, Instant::now());
            }
        }
    }

    fn scope_of(&self, table: TableId) -> CompactionScope {
        match self.tables.get(&table) {
            Some((_, since)) if since.elapsed() >= self.idle => CompactionScope::Idle,
            _ => CompactionScope::Urgent,
        }
    }

    /// Returns the time of the next check if nothing changes: when a table has been unchanged for long enough, or when
    /// a failed job may be retried. `None` if there is no such time.
    fn next_check(&self, shared: &MoverState) -> Option<Instant> {
        let has_something = |fingerprint: &TableFingerprint| fingerprint.page_rows > 0 || fingerprint.deleted > 0;
        let waiting = self
            .tables
            .values()
            .filter(|(fingerprint, since)| has_something(fingerprint) && since.elapsed() < self.idle);
        let idle = waiting.map(|(_, since)| *since + self.idle).min();
        let retry = shared.status.lock().retry_at();
        [idle, retry].into_iter().flatten().min()
    }
}

/// Whether a task waits for a maintenance lock, or the delta of a table exceeds half of the size at which commits wait
/// for it.
fn is_urgent(store: &Weak<Store>, options: &MoverOptions, waiting: &AtomicUsize) -> bool {
    if waiting.load(Ordering::Relaxed) > 0 {
        return true;
    }
    let Some(store) = store.upgrade() else { return true };
    let factor = u64::from(options.backpressure_factor).div_ceil(2).max(1);
    store.snapshot().tables().any(|table| {
        table.delta.page_rows() > options.delta_rows.saturating_mul(factor)
            || table.delta.page_bytes() as u64 > (options.delta_bytes as u64).saturating_mul(factor)
    })
}
