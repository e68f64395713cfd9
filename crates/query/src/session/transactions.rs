//! The transaction of a session, the statements that control it, such as `BEGIN` and `COMMIT`, and the default modes of
//! transactions.

use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use taut_sql::{CATALOG, IsolationLevel, Statement, StatementClass, TableSource, is_insert};
use taut_store::{AttachedSnapshot, Catalog, CommitError, SavepointState, Synchronous, TableId, Transaction};
use taut_types::is_temporary_relation;

use super::temporary::OnCommitActions;
use super::{Done, Outcome, QuerySession};
use crate::error::{AttachError, QueryError, Result, Violation};
use crate::exec::reads::StatementReads;
use crate::mover::{MaintenanceLock, Mover};
use crate::write::changes::Changes;

/// Transaction state and settings of a session.
#[derive(Debug)]
pub(super) struct Transactions {
    current: Option<OpenTransaction>,
    /// Isolation level of transactions that do not specify one.
    isolation: IsolationLevel,
    read_only: bool,
    pub synchronous: Synchronous,
    /// `ON COMMIT` actions of temporary tables.
    pub on_commit: OnCommitActions,
}

/// A transaction that a statement has begun.
#[derive(Clone, Debug)]
struct OpenTransaction {
    transaction: Arc<Transaction>,
    start: DateTime<Utc>,
    isolation: IsolationLevel,
    read_only: bool,
    /// The attached databases as its first statement found them. `None` until then.
    attached: Option<Arc<[AttachedSnapshot]>>,
    /// Transactions of the other databases that its statements may change. At most one database has changes when it
    /// commits.
    others: Vec<OtherTransaction>,
    /// Whether a statement has run in the transaction. The first statement fixes the snapshot.
    has_run: bool,
    /// Whether a statement has failed. The transaction can then only be rolled back.
    has_failed: bool,
    /// Maintenance locks of tables whose blocks the transaction replaces, held until it ends.
    maintenance_locks: Vec<(TableId, Arc<MaintenanceLock>)>,
}

/// The part of a transaction that is in another database than that of the session.
#[derive(Clone, Debug)]
struct OtherTransaction {
    /// Name of the database.
    database: Arc<str>,
    transaction: Arc<Transaction>,
    /// Mover of the database, if it is an attached one. The transaction uses it even if the database is detached.
    mover: Option<Arc<Mover>>,
    maintenance_locks: Vec<(TableId, Arc<MaintenanceLock>)>,
}

impl Default for Transactions {
    fn default() -> Self {
        let (synchronous, on_commit) = (Synchronous::Full, OnCommitActions::default());
        Self { current: None, isolation: IsolationLevel::default(), read_only: false, synchronous, on_commit }
    }
}

/// Isolation level and access mode of transactions.
pub(super) struct TransactionModes {
    pub isolation: IsolationLevel,
    pub read_only: bool,
}

impl Transactions {
    /// Modes of transactions that do not specify their own.
    pub fn default_modes(&self) -> TransactionModes {
        TransactionModes { isolation: self.isolation, read_only: self.read_only }
    }

    /// The transaction in progress.
    pub fn transaction(&self) -> Option<Arc<Transaction>> {
        self.current.as_ref().map(|current| Arc::clone(&current.transaction))
    }

    /// The attached databases as the transaction in progress sees them. `None` if it has run no statement.
    pub fn attached(&self) -> Option<Arc<[AttachedSnapshot]>> {
        let current = self.current.as_ref()?;
        let attached = current.attached.as_ref()?;
        if current.others.is_empty() {
            return Some(Arc::clone(attached));
        }
        let seen = |database: &AttachedSnapshot| match current.other(&database.name) {
            Some(other) => AttachedSnapshot { catalog: other.transaction.snapshot(), ..database.clone() },
            None => database.clone(),
        };
        Some(attached.iter().map(seen).collect())
    }

    /// Name of another database in which the transaction in progress has changed or locked rows. Each database finds
    /// only the deadlocks between its own locks, so a transaction has locks in one database.
    pub fn changed_other(&self) -> Option<Arc<str>> {
        let changed = self.current.as_ref()?.others.iter().find(|other| other.transaction.may_block_others())?;
        Some(Arc::clone(&changed.database))
    }

    /// State of a session on an attached database, which runs a statement of the transaction in progress.
    ///
    /// # Errors
    /// If the transaction does not know the database.
    pub fn for_attached(&self, database: &str) -> Result<Self> {
        let on_attached = |current: &OpenTransaction| {
            let missing = || AttachError::Missing { name: database.to_owned() };
            let target = current.other(database).ok_or_else(missing)?.clone();
            let own = OtherTransaction {
                database: CATALOG.into(),
                transaction: Arc::clone(&current.transaction),
                mover: None,
                maintenance_locks: Vec::new(),
            };
            let others = current.others.iter().filter(|other| *other.database != *database).cloned();
            Ok::<_, AttachError>(OpenTransaction {
                transaction: target.transaction,
                maintenance_locks: target.maintenance_locks,
                attached: Some(Arc::new([])),
                others: std::iter::once(own).chain(others).collect(),
                ..current.clone()
            })
        };
        let current = self.current.as_ref().map(on_attached).transpose()?;
        Ok(Self { current, on_commit: OnCommitActions::default(), ..*self })
    }

    /// The mover that the transaction in progress uses for an attached database.
    pub fn mover_of(&self, database: &str) -> Option<Arc<Mover>> {
        self.current.as_ref()?.other(database)?.mover.clone()
    }

    /// Adopts the maintenance locks of a session on an attached database, which has run a statement of the transaction
    /// in progress.
    pub fn keep_locks_of(&mut self, database: &str, session: &Self) {
        if let (Some(current), Some(ended)) = (&mut self.current, &session.current)
            && let Some(other) = current.others.iter_mut().find(|other| *other.database == *database)
        {
            other.maintenance_locks.clone_from(&ended.maintenance_locks);
        }
    }

    /// When the transaction in progress began.
    pub fn start(&self) -> Option<DateTime<Utc>> {
        self.current.as_ref().map(|current| current.start)
    }

    /// Modes of the transaction in progress. If there is none, modes of the next statement.
    pub fn modes(&self) -> TransactionModes {
        match &self.current {
            Some(OpenTransaction { isolation, read_only, .. }) => {
                TransactionModes { isolation: *isolation, read_only: *read_only }
            }
            None => self.default_modes(),
        }
    }
}

impl QuerySession {
    /// Runs a statement that controls transactions. Returns `None` for all other statements.
    pub(super) fn run_transaction_control(&self, statement: &Statement) -> Result<Option<Outcome>> {
        let state = &mut *self.transactions.lock();
        let mut done = match statement {
            Statement::Begin { .. } => Done::with_tag("BEGIN"),
            Statement::Commit => Done::with_tag("COMMIT"),
            Statement::Rollback { .. } => Done::with_tag("ROLLBACK"),
            Statement::Savepoint { .. } => Done::with_tag("SAVEPOINT"),
            Statement::Release { .. } => Done::with_tag("RELEASE"),
            Statement::SetTransaction { .. } => Done::with_tag("SET"),
            _ => return Ok(None),
        };
        match statement {
            Statement::Begin { .. } if state.current.is_some() => {
                done.notices.push("there already is a transaction in progress".to_owned());
            }
            Statement::Begin { isolation, read_only } => {
                self.check_read_write(*read_only)?;
                let transaction = Arc::new(self.store.begin());
                let isolation = isolation.unwrap_or(state.isolation);
                transaction.set_serializable(isolation == IsolationLevel::Serializable);
                let read_only = read_only.unwrap_or(state.read_only);
                let (has_run, has_failed, maintenance_locks, others) = (false, false, Vec::new(), Vec::new());
                state.current = Some(OpenTransaction {
                    transaction,
                    start: SystemTime::now().into(),
                    isolation,
                    read_only,
                    attached: None,
                    others,
                    has_run,
                    has_failed,
                    maintenance_locks,
                });
            }
            Statement::Commit => match state.current.take() {
                None => done.notices.push("there is no transaction in progress".to_owned()),
                Some(current) if current.has_failed => done = Done::with_tag("ROLLBACK"),
                Some(current) => {
                    state.on_commit.apply(&current.transaction)?;
                    self.interrupt().cancellation().commit_unless_cancelled(|| current.commit(state.synchronous))?;
                }
            },
            Statement::Rollback { savepoint: None } => {
                if state.current.take().is_none() {
                    done.notices.push("there is no transaction in progress".to_owned());
                }
            }
            Statement::Rollback { savepoint: Some(name) } => {
                let current = require_transaction(&mut state.current, "ROLLBACK TO SAVEPOINT")?;
                current.transactions().try_for_each(|transaction| transaction.roll_back_to(name))?;
                current.has_failed = false;
            }
            Statement::Savepoint { name } => {
                let current = require_transaction(&mut state.current, "SAVEPOINT")?.ensure_not_failed()?;
                current.transactions().for_each(|transaction| transaction.savepoint(name));
            }
            Statement::Release { name } => {
                require_transaction(&mut state.current, "RELEASE SAVEPOINT")?
                    .ensure_not_failed()?
                    .transactions()
                    .try_for_each(|transaction| transaction.release(name))?;
            }
            Statement::SetTransaction { isolation, read_only, session: true } => {
                self.check_read_write(*read_only)?;
                state.isolation = isolation.unwrap_or(state.isolation);
                state.read_only = read_only.unwrap_or(state.read_only);
            }
            Statement::SetTransaction { isolation, read_only, session: false } => {
                self.check_read_write(*read_only)?;
                let current = require_transaction(&mut state.current, "SET TRANSACTION")?.ensure_not_failed()?;
                if isolation.is_some_and(|isolation| isolation != current.isolation) && current.has_run {
                    return Err(QueryError::Transaction {
                        message: "SET TRANSACTION ISOLATION LEVEL must be called before any query".to_owned(),
                        hint: None,
                        sqlstate: "25001",
                    });
                }
                current.isolation = isolation.unwrap_or(current.isolation);
                current.read_only = read_only.unwrap_or(current.read_only);
                current.transaction.set_serializable(current.isolation == IsolationLevel::Serializable);
            }
            _ => return Ok(None),
        }
        Ok(Some(Outcome::Done(done)))
    }

    /// Prepares for a statement: rejects it in a failed transaction, and sets the snapshot that it sees.
    pub(super) fn begin_statement(&self) -> Result<()> {
        let state = &mut *self.transactions.lock();
        let Some(current) = &mut state.current else { return Ok(()) };
        current.ensure_not_failed()?;
        if !current.has_run {
            current.transaction.refresh_with_savepoints()?;
            current.begin_others(self.store.attached(), &self.mover);
        } else if current.isolation == IsolationLevel::ReadCommitted {
            current.transactions().try_for_each(|transaction| transaction.refresh())?;
            current.refresh_attached();
        }
        current.has_run = true;
        Ok(())
    }

    /// Whether a statement outside of a transaction must begin one before it is planned. This is necessary if the
    /// statement writes at level SERIALIZABLE, has several steps, or may commit together with `ON COMMIT` actions.
    pub(super) fn needs_own_transaction(&self, statement: &Statement) -> bool {
        let state = self.transactions.lock();
        let writes = match statement {
            Statement::Mutation { explain, .. } => explain.as_ref().is_none_or(|options| options.analyze),
            Statement::CreateTable { source: TableSource::Query { .. }, .. } => true,
            Statement::ModifyingWith { .. } | Statement::OpenPivot { .. } => true,
            Statement::Planned { statement, .. } => is_insert(statement),
            Statement::Execute { name, .. } => match self.prepared.get(name) {
                Ok(Statement::Planned { statement, .. }) => is_insert(&statement),
                Ok(Statement::Mutation { .. } | Statement::ModifyingWith { .. }) => true,
                _ => false,
            },
            _ => false,
        };
        let has_steps = matches!(statement, Statement::DropSchemas { .. });
        let has_actions =
            !state.on_commit.is_empty() && (writes || matches!(statement.class(), StatementClass::Definition(_)));
        let is_serializable = writes && state.isolation == IsolationLevel::Serializable;
        state.current.is_none() && (has_steps || has_actions || is_serializable)
    }

    /// Adds the tables of a violated constraint to the read set, because the transaction may continue from a savepoint.
    pub(super) fn record_violation_reads(&self, violation: &Violation) {
        let Some((transaction, _)) = self.transaction() else { return };
        let snapshot = transaction.snapshot();
        for table in violation.tables().into_iter().filter_map(|name| snapshot.table(name)) {
            transaction.record_table_read(table.id);
        }
    }

    /// Marks the transaction in progress as failed.
    pub(super) fn mark_transaction_failed(&self) {
        if let Some(current) = &mut self.transactions.lock().current {
            current.has_failed = true;
        }
    }

    /// Recorder for the read set of a statement. Returns `None` without a transaction that needs a read set.
    pub(super) fn statement_reads(&self) -> Option<Arc<StatementReads>> {
        let state = self.transactions.lock();
        let current = state.current.as_ref().filter(|current| current.transaction.is_serializable())?;
        Some(StatementReads::for_transactions(current.transactions()))
    }

    /// Whether a transaction is in progress.
    pub fn is_in_transaction(&self) -> bool {
        self.transactions.lock().current.is_some()
    }

    /// The transaction in progress and its isolation level. Returns `None` if there is none.
    pub(super) fn transaction(&self) -> Option<(Arc<Transaction>, IsolationLevel)> {
        let state = self.transactions.lock();
        state.current.as_ref().map(|current| (Arc::clone(&current.transaction), current.isolation))
    }

    /// Whether the rows that a statement sees satisfy all keys and foreign keys.
    ///
    /// Changed rows are checked against the newest rows, not against an older snapshot. A transaction with an
    /// older snapshot may therefore see a row that references a row it does not see. It may also see two rows with the
    /// same key, if one of them has been deleted since.
    pub(super) fn are_keys_valid(&self) -> bool {
        let state = self.transactions.lock();
        state.current.as_ref().is_none_or(|current| {
            current.isolation == IsolationLevel::ReadCommitted || current.transaction.is_read_only()
        })
    }

    /// Runs a statement that changes rows, in the transaction in progress or in its own transaction, which then
    /// commits. Undoes the changes if the statement fails.
    pub(super) async fn in_transaction<T>(&self, run: impl AsyncFnOnce(Changes) -> Result<T>) -> Result<T> {
        let (transaction, is_own) = match self.transaction() {
            Some((transaction, _)) => (transaction, false),
            None => (Arc::new(self.store.begin()), true),
        };
        let mut undo = Undo { transaction: &transaction, mark: Some(transaction.savepoint_state()) };
        let changes = Changes::in_transaction(Arc::clone(&self.store), Arc::clone(&transaction));
        let done = match run(changes.clone()).await {
            Ok(value) => self.check_keys(&changes).await.map(|()| value),
            Err(error) => Err(error),
        };
        match done {
            Ok(value) if is_own => {
                undo.mark = None;
                let synchronous = self.transactions.lock().synchronous;
                self.interrupt().cancellation().commit_unless_cancelled(|| transaction.commit(synchronous))?;
                Ok(value)
            }
            Ok(value) => {
                undo.mark = None;
                Ok(value)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the transaction in progress holds the maintenance lock of a table.
    pub(super) fn has_maintenance_lock(&self, table: TableId) -> bool {
        let state = self.transactions.lock();
        state.current.as_ref().is_some_and(|current| current.maintenance_locks.iter().any(|(kept, _)| *kept == table))
    }

    /// Holds a maintenance lock until the transaction in progress ends. Returns the lock to the caller if there is no
    /// transaction.
    pub(super) fn keep_maintenance_lock(&self, table: TableId, lock: MaintenanceLock) -> Option<MaintenanceLock> {
        match &mut self.transactions.lock().current {
            Some(current) => {
                current.maintenance_locks.push((table, Arc::new(lock)));
                None
            }
            None => Some(lock),
        }
    }

    /// Drops the transaction in progress, which rolls it back.
    pub(super) fn discard_transaction(&self) {
        self.transactions.lock().current = None;
    }

    /// Destination of the changes of a statement that has no transaction of its own. It is the transaction in progress.
    /// Without a transaction, it is the store, which commits each change at once.
    pub(super) fn changes(&self) -> Changes {
        let changes = match self.transaction() {
            Some((transaction, _)) => Changes::in_transaction(Arc::clone(&self.store), transaction),
            None => Changes::autocommit(Arc::clone(&self.store)),
        };
        changes.with_cancellation(self.interrupt().cancellation().clone())
    }

    /// Snapshot that a statement sees now.
    pub(super) fn snapshot(&self) -> Arc<Catalog> {
        match self.transaction() {
            Some((transaction, _)) => transaction.snapshot(),
            None => self.store.snapshot(),
        }
    }

    /// Returns an error if the statement would write in a read-only transaction, or in one that has changed another
    /// database. All transactions of a database that is open read-only are read-only.
    pub(super) fn check_may_write(&self, statement: &str) -> Result<()> {
        if self.is_read_only() {
            return Err(QueryError::Transaction {
                message: format!("cannot execute {statement} in a read-only transaction"),
                hint: None,
                sqlstate: "25006",
            });
        }
        let changed = self.transactions.lock().changed_other();
        match changed {
            Some(changed) => {
                let (database, changed) = (self.database_name().to_owned(), (*changed).to_owned());
                Err(AttachError::SecondDatabase { database, changed }.into())
            }
            None => Ok(()),
        }
    }

    /// Like [`QuerySession::check_may_write`], for a statement that changes rows of a relation. Temporary relations may
    /// always be changed.
    pub(super) fn check_may_change(&self, relation: &str, statement: &str) -> Result<()> {
        match is_temporary_relation(relation) {
            true => Ok(()),
            false => self.check_may_write(statement),
        }
    }

    /// Like [`QuerySession::check_may_write`], for a definition. Temporary relations can be defined in a database that
    /// is open read-only, but not in a transaction with mode `READ ONLY`, as in PostgreSQL.
    pub(super) fn check_may_define(&self, statement: &str, is_temporary: impl FnOnce() -> bool) -> Result<()> {
        match self.check_may_write(statement) {
            Err(_) if !self.transactions.lock().modes().read_only && is_temporary() => Ok(()),
            checked => checked,
        }
    }

    /// Whether the transaction in progress is read-only. If there is none, whether the next statement must be
    /// read-only.
    fn is_read_only(&self) -> bool {
        self.store.is_read_only() || self.transactions.lock().modes().read_only
    }

    /// Returns an error for `READ WRITE` in a database that is open read-only.
    fn check_read_write(&self, read_only: Option<bool>) -> Result<()> {
        match read_only {
            Some(false) if self.store.is_read_only() => Err(QueryError::Transaction {
                message: "cannot set transaction read-write mode: the database is open read-only".to_owned(),
                hint: None,
                sqlstate: "25006",
            }),
            _ => Ok(()),
        }
    }
}

/// Drop guard: undoes the changes of a statement that fails, or whose future is dropped early.
struct Undo<'a> {
    transaction: &'a Transaction,
    mark: Option<SavepointState>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.transaction.restore(mark);
        }
    }
}

impl OpenTransaction {
    /// Its transactions in all databases, that of the session's own first.
    fn transactions(&self) -> impl Iterator<Item = &Arc<Transaction>> {
        std::iter::once(&self.transaction).chain(self.others.iter().map(|other| &other.transaction))
    }

    fn other(&self, database: &str) -> Option<&OtherTransaction> {
        self.others.iter().find(|other| *other.database == *database)
    }

    /// Begins a transaction in each attached database that can be written.
    fn begin_others(&mut self, attached: Arc<[AttachedSnapshot]>, mover: &Mover) {
        let savepoints = self.transaction.savepoint_names();
        for database in attached.iter().filter(|database| !database.store.is_read_only()) {
            let transaction = Arc::new(database.store.begin());
            transaction.set_serializable(self.isolation == IsolationLevel::Serializable);
            savepoints.iter().for_each(|name| transaction.savepoint(name));
            let mover = Some(mover.of_attached(&database.store));
            let database = Arc::clone(&database.name);
            self.others.push(OtherTransaction { database, transaction, mover, maintenance_locks: Vec::new() });
        }
        self.attached = Some(attached);
    }

    /// Updates the snapshots of databases that are attached read-only.
    fn refresh_attached(&mut self) {
        let newest =
            |database: &AttachedSnapshot| AttachedSnapshot { catalog: database.store.snapshot(), ..database.clone() };
        self.attached = self.attached.as_ref().map(|attached| attached.iter().map(newest).collect());
    }

    /// Commits the changes, which are in one database. The session's own may have changes of temporary relations too,
    /// which are checked first and committed last.
    fn commit(&self, synchronous: Synchronous) -> Result<()> {
        let mut changed = self.others.iter().filter(|other| other.transaction.has_permanent_changes());
        if let Some(other) = changed.next() {
            let second = changed.next().map(|second| (*second.database).to_owned());
            let own = || self.transaction.has_permanent_changes().then(|| CATALOG.to_owned());
            if let Some(database) = second.or_else(own) {
                return Err(AttachError::SecondDatabase { database, changed: (*other.database).to_owned() }.into());
            }
            self.transaction.set_serializable(false);
            self.transaction.preview()?;
            other.transaction.commit(synchronous)?;
        }
        Ok(self.transaction.commit(synchronous)?)
    }

    fn ensure_not_failed(&mut self) -> Result<&mut Self> {
        match self.has_failed {
            false => Ok(self),
            true => Err(QueryError::Transaction {
                message: "current transaction is aborted, commands ignored until end of transaction block".to_owned(),
                hint: Some("Run ROLLBACK, or ROLLBACK TO a savepoint."),
                sqlstate: "25P02",
            }),
        }
    }
}

fn require_transaction<'a>(current: &'a mut Option<OpenTransaction>, what: &str) -> Result<&'a mut OpenTransaction> {
    current.as_mut().ok_or_else(|| QueryError::Transaction {
        message: format!("{what} can only be used in transaction blocks"),
        hint: Some("BEGIN starts a transaction block."),
        sqlstate: "25P01",
    })
}

/// Whether an error is a write conflict. The statement can be retried if it has its own transaction, or if the
/// isolation level is READ COMMITTED.
pub(super) fn is_row_conflict(error: &QueryError) -> bool {
    matches!(error, QueryError::Commit(CommitError::RowsChanged { .. } | CommitError::ConstraintsChanged { .. }))
}
