//! Read set of a statement, for serializable transactions.
//!
//! ```text
//! a name is looked up     the read set has all rows of the table, until the plan is complete
//! a scan is planned       the number of planned scans of the table grows by one
//! the plan is complete    if it has every planned scan, the read set has only rows that pass the scans' predicates
//! ```
//!
//! [`StatementReads::narrow`] does the last step, and [`create_physical_plan`] calls it. If a plan runs without this
//! call, whole tables stay in the read set.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use taut_store::{Store, TableId, Transaction};
use taut_types::ColumnPredicate;

use crate::exec::operators::{Interrupt, make_interruptible};
use crate::exec::scan::scan_source;

/// Tables that a statement has looked up and scans that were planned for it so far. An extension of the session
/// configuration used for planning.
#[derive(Debug)]
pub struct StatementReads {
    /// The transaction of each database that the statement may read. Weak, so that rows that are still being read do
    /// not prevent a transaction from ending.
    transactions: Vec<Weak<Transaction>>,
    tables: Mutex<BTreeMap<RecordedTable, PlannedScans>>,
}

/// Index of a transaction, and a table of its database. Tables of different databases may have the same id.
type RecordedTable = (usize, TableId);

/// Lookups and planned scans of one table.
#[derive(Debug, Default)]
struct PlannedScans {
    /// Number of times that the table was looked up by name.
    lookups: usize,
    /// Number of scans that were planned.
    scans: usize,
    /// Whether the statement inserts into the table. If so, the lookup of its name without a scan reads no rows.
    is_target: bool,
}

impl StatementReads {
    /// Creates the recorder for a statement that reads the databases of these transactions.
    pub fn for_transactions<'a>(transactions: impl Iterator<Item = &'a Arc<Transaction>>) -> Arc<Self> {
        Arc::new(Self { transactions: transactions.map(Arc::downgrade).collect(), tables: Mutex::default() })
    }

    /// Records the lookup of a table by name. The read set has all rows of the table until [`Self::narrow`] is called.
    pub fn record_lookup(&self, store: &Store, table: TableId) {
        let Some((index, transaction)) = self.transaction_on(store) else { return };
        transaction.record_table_read(table);
        self.tables.lock().entry((index, table)).or_default().lookups += 1;
    }

    /// Records that a scan of a table was planned.
    pub fn record_scan(&self, store: &Store, table: TableId) {
        let Some((index, _)) = self.transaction_on(store) else { return };
        self.tables.lock().entry((index, table)).or_default().scans += 1;
    }

    /// Records that rows are inserted into a table. This reads no rows of the table; key lookups are recorded
    /// elsewhere.
    pub fn record_target(&self, store: &Store, table: TableId) {
        let Some((index, _)) = self.transaction_on(store) else { return };
        self.tables.lock().entry((index, table)).or_default().is_target = true;
    }

    /// The transaction of a database, and its index. Returns `None` for a database that is attached read-only, and
    /// after the end of the transaction.
    fn transaction_on(&self, store: &Store) -> Option<(usize, Arc<Transaction>)> {
        let mut running =
            self.transactions.iter().enumerate().filter_map(|(index, found)| Some((index, found.upgrade()?)));
        running.find(|(_, transaction)| transaction.is_on(store))
    }

    fn withdraw(&self) {
        for ((index, table), planned) in std::mem::take(&mut *self.tables.lock()) {
            if let Some(transaction) = self.transactions[index].upgrade() {
                transaction.withdraw_table_reads(table, planned.lookups);
            }
        }
    }

    /// Narrows the read set to the predicates of the scans in a plan. If a planned scan is no longer in the plan, its
    /// result may have been computed during planning, for example from exact statistics. The whole table then stays in
    /// the read set.
    ///
    /// # Errors
    /// If traversing the plan fails.
    pub fn narrow(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let mut found: BTreeMap<RecordedTable, Vec<Vec<ColumnPredicate>>> = BTreeMap::new();
        plan.apply(|node| {
            if let Some(source) = scan_source(node)
                && let Some((index, _)) = self.transaction_on(&source.table().store)
            {
                let scans = found.entry((index, source.table().stored().id)).or_default();
                scans.push(source.predicates_at_planning());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        for ((index, table), planned) in std::mem::take(&mut *self.tables.lock()) {
            let Some(transaction) = self.transactions[index].upgrade() else { continue };
            let scans = found.remove(&(index, table)).unwrap_or_default();
            if scans.len() != planned.scans || scans.is_empty() && !planned.is_target {
                continue;
            }
            scans.into_iter().for_each(|predicates| transaction.record_reads_where(table, predicates));
            transaction.withdraw_table_reads(table, planned.lookups);
        }
        Ok(())
    }
}

/// Removes the tables that a plan has looked up from the read set. Call if the plan will not run.
pub fn withdraw_reads(state: &SessionState) {
    if let Some(reads) = state.config().get_extension::<StatementReads>() {
        reads.withdraw();
    }
}

/// Plans a statement that will run, narrows its read set, and makes the plan interruptible.
///
/// # Errors
/// If the statement cannot be planned.
pub async fn create_physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let physical = create_uninterruptible_plan(state, plan).await?;
    match state.config().get_extension::<Interrupt>() {
        Some(interrupt) => make_interruptible(physical, &interrupt),
        None => Ok(physical),
    }
}

/// Plans a statement like [`create_physical_plan`], but leaves the plan uninterruptible. The caller changes the plan
/// first and makes it interruptible afterwards.
///
/// # Errors
/// If the statement cannot be planned.
pub async fn create_uninterruptible_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let physical = state.create_physical_plan(plan).await?;
    if let Some(reads) = state.config().get_extension::<StatementReads>() {
        reads.narrow(&physical)?;
    }
    Ok(physical)
}
