//! Maintenance in the foreground: by `VACUUM` and `CHECKPOINT`, and by commits when the mover (`mover.rs`) has fallen
//! behind.

use std::sync::Arc;
use std::time::Duration;

use taut_sql::{Statement, StatementClass};
use taut_store::{Table, TableId};

use super::{Done, Outcome, QuerySession};
use crate::error::{QueryError, Result};
use crate::mover::policy::{Compaction, CompactionKind, full_merge, next_compaction};
use crate::mover::{CompactionScope, MaintenanceLock, MoverOptions, Worker, is_conflict};
use crate::write::rewrite::finish_rewrite;

/// Maximum number of attempts of a compaction whose rows change concurrently.
const ATTEMPTS_MAX: usize = 100;
/// Pause before the second attempt. It grows by this duration before each further attempt.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of compactions of one kind on a table in one statement. Each compaction reduces the remaining work,
/// but concurrent changes may add more.
const COMPACTIONS_MAX: usize = 10_000;

impl QuerySession {
    /// Writes a checkpoint and deletes the log before it.
    pub(super) fn checkpoint(&self) -> Result<Outcome> {
        self.mover.shared().checkpoint(&self.store)?;
        Ok(Outcome::Done(Done::with_tag("CHECKPOINT")))
    }

    /// Runs all due compactions of the named tables, or of all tables if `names` is empty. With `full`, runs a full
    /// compaction, after which each table is as if it had just been loaded.
    pub(super) async fn vacuum(&self, full: bool, names: &[String]) -> Result<Outcome> {
        if self.is_in_transaction() {
            return Err(QueryError::Transaction {
                message: "VACUUM cannot run inside a transaction block".to_owned(),
                hint: Some("ALTER TABLE ... COMPACT cannot either; end the transaction first."),
                sqlstate: "25001",
            });
        }
        let tables = match names {
            [] => self.snapshot().tables().map(|table| table.id).collect(),
            names => names.iter().map(|name| Ok(self.table(name)?.id)).collect::<Result<Vec<_>>>()?,
        };
        let options = &self.mover.shared().options;
        let options = if full { options.for_full_compaction() } else { options.as_ref().clone() };
        let mut damaged = None;
        for table in tables {
            let lock = self.mover.shared().lock(table).await;
            match self.vacuum_table(table, full, &options).await {
                // Damage in one table does not stop the compaction of other tables.
                Err(error) if error.is_damage() => damaged = damaged.or(Some(error)),
                result => result?,
            }
            drop(lock);
        }
        if !self.store.is_read_only() {
            self.mover.shared().checkpoint(&self.store)?;
        }
        self.mover.wake();
        damaged.map_or(Ok(()), Err)?;
        Ok(Outcome::Done(Done::with_tag("VACUUM")))
    }

    async fn vacuum_table(&self, id: TableId, full: bool, options: &MoverOptions) -> Result<()> {
        self.compact_with_retries(id, |table| {
            next_compaction(table, CompactionKind::Seal, options, CompactionScope::All)
        })
        .await?;
        if full && self.store.snapshot().table_of(id).is_some() {
            finish_rewrite(&self.changes(), id, self.threads, None).await?;
            self.compact_with_retries(id, full_merge).await?;
        }
        for kind in [CompactionKind::Clean, CompactionKind::Merge] {
            for _ in 0..COMPACTIONS_MAX {
                if !self
                    .compact_with_retries(id, |table| next_compaction(table, kind, options, CompactionScope::All))
                    .await?
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs the compaction that `choose` returns for a table, and retries it if its rows change concurrently. Returns
    /// false if there is nothing to compact. The caller must hold the maintenance lock of the table.
    async fn compact_with_retries(&self, id: TableId, choose: impl Fn(&Table) -> Option<Compaction>) -> Result<bool> {
        // A compaction fails if one of its pages grows meanwhile. Therefore all existing pages are closed: new commits
        // append to newer pages, which the compaction does not read. Running commits may still append to closed pages,
        // and cause a retry.
        self.store.close_pages();
        let mut attempts = 0;
        loop {
            attempts += 1;
            if attempts > 1 {
                tokio::time::sleep(PAUSE * (attempts as u32 - 1)).await;
            }
            // A dropped table needs no compaction.
            let Some(table) = self.store.snapshot().table_of(id).cloned() else { return Ok(false) };
            let Some(mut compaction) = choose(&table) else { return Ok(false) };
            if compaction.kind == CompactionKind::Seal {
                let pages = &table.delta.pages()[..compaction.pages];
                compaction.pages = pages.iter().take_while(|page| !self.store.may_grow(id, page.id())).count();
                if compaction.pages == 0 {
                    return Ok(false);
                }
            }
            match self.run_compaction(&table, &compaction).await {
                Err(error) if is_conflict(&error) && attempts < ATTEMPTS_MAX => {}
                done => return done.map(|()| true),
            }
        }
    }

    async fn run_compaction(&self, table: &Arc<Table>, compaction: &Compaction) -> Result<()> {
        let progress = self.progress_counter(&format!("{} {}", compaction.kind.name(), table.name), None);
        let (store, context, threads) = (&self.store, &self.context, self.threads);
        self.mover.shared().compact(&Worker { store, context, threads, pace: None, progress }, table, compaction).await
    }

    /// Wakes the mover after a commit, and applies backpressure to keep memory and log bounded.
    ///
    /// If the mover has fallen far behind, the commit itself writes delta rows to blocks and takes a checkpoint. If
    /// another statement or transaction holds the maintenance lock of the table, the commit waits for it, up to a time
    /// limit. `taut.mover` shows the errors.
    pub(super) async fn apply_backpressure(&self) {
        self.mover.wake();
        if self.is_in_transaction() {
            return;
        }
        // The mover does not see temporary tables, so only commits bound their memory.
        let may_compact = |table: &&Arc<Table>| table.id.is_temporary() || !self.store.is_read_only();
        let shared = self.mover.shared();
        let snapshot = self.store.snapshot();
        // Skips the loop over all tables after most statements.
        let overfull = shared.may_be_overfull(&snapshot).then(|| snapshot.tables());
        for table in overfull.into_iter().flatten().filter(may_compact).filter(|table| shared.is_overfull(table)) {
            if shared.status.lock().must_wait(Some((table.id, CompactionKind::Seal))) {
                continue;
            }
            let Some(_lock) = shared.lock_within_limit(table.id).await else {
                // Postpones the next attempt, so that the next commits do not wait for the same lock.
                let error = "a statement or transaction that replaces blocks of the table does not end".to_owned();
                shared.status.lock().end_failed(Some((table.id, CompactionKind::Seal)), Duration::ZERO, Some(error));
                continue;
            };
            // The previous holder of the lock may have compacted the table.
            let newest = self.store.snapshot().table_of(table.id).cloned();
            let Some(newest) = newest.filter(|table| shared.is_overfull(table)) else { continue };
            if let Some(compaction) =
                next_compaction(&newest, CompactionKind::Seal, &shared.options, CompactionScope::Urgent)
            {
                let _ = self.run_compaction(&newest, &compaction).await;
            }
        }
        if !self.store.is_read_only() && shared.is_log_overfull(&self.store) && !shared.status.lock().must_wait(None) {
            let _ = shared.checkpoint(&self.store);
        }
    }

    /// Acquires the maintenance lock of a table, for a statement that replaces blocks itself. Returns the lock if no
    /// transaction is in progress. Otherwise returns `None`, and the transaction holds the lock until it ends. Also
    /// returns `None` if the lock is not free within a time limit.
    pub(super) async fn lock_for_maintenance(&self, table: TableId) -> Option<MaintenanceLock> {
        if self.has_maintenance_lock(table) {
            return None;
        }
        let lock = self.mover.shared().lock_preempting(table).await?;
        self.keep_maintenance_lock(table, lock)
    }

    /// Time limit of a statement; `None` for no limit.
    ///
    /// Statements that set or show a setting of Taut have no limit, so a limit that is too short can still be changed.
    /// Statements that control a transaction have no limit either, except `COMMIT`.
    pub fn time_limit(&self, statement: &Statement) -> Option<Duration> {
        let is_limited = match statement.class() {
            StatementClass::Setting => false,
            // `SET mover = on` is in the maintenance class, but has no limit.
            StatementClass::Maintenance(_) => !matches!(statement, Statement::Set(_)),
            StatementClass::TransactionControl => matches!(statement, Statement::Commit),
            _ => true,
        };
        self.statement_timeout().filter(|_| is_limited)
    }
}
