//! What a statement reads, for transactions that must not see others change it.
//!
//! ```text
//! a name is looked up     all rows of the table are read, until more is known
//! a scan is planned       counted
//! the plan is made        its scans say which rows they ask for; where none is missing, those are read and no others
//! ```
//!
//! Who plans without [`create_physical_plan`] has read the whole tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use taut_store::{TableId, Transaction};
use taut_types::ColumnTest;

use crate::operators::{Interrupt, make_interruptible};
use crate::scan::scan_source;

/// The tables that a statement reads, as far as it is planned. An extension of the configuration with which it is.
#[derive(Debug)]
pub struct StatementReads {
    /// Not held: rows that are still read do not keep a transaction from ending.
    transaction: Weak<Transaction>,
    tables: Mutex<BTreeMap<TableId, Planned>>,
}

#[derive(Debug, Default)]
struct Planned {
    look_ups: usize,
    scans: usize,
    is_target: bool,
}

impl StatementReads {
    /// Those of a statement of a transaction, where anybody wants to know.
    pub fn of(transaction: &Arc<Transaction>) -> Option<Arc<Self>> {
        let reads = || Self { transaction: Arc::downgrade(transaction), tables: Mutex::default() };
        transaction.is_serializable().then(|| Arc::new(reads()))
    }

    /// Says that a name stands for a table, of which all rows may be read.
    pub fn look_up(&self, table: TableId) {
        if let Some(transaction) = self.transaction.upgrade() {
            transaction.reads(table);
        }
        self.tables.lock().entry(table).or_default().look_ups += 1;
    }

    /// Says that a table is scanned.
    pub fn scan(&self, table: TableId) {
        self.tables.lock().entry(table).or_default().scans += 1;
    }

    /// Says that rows are inserted into a table, which needs none that it has: what keys ask for is seen to elsewhere.
    pub fn insert_into(&self, table: TableId) {
        self.tables.lock().entry(table).or_default().is_target = true;
    }

    fn withdraw(&self) {
        let Some(transaction) = self.transaction.upgrade() else { return };
        for (table, planned) in std::mem::take(&mut *self.tables.lock()) {
            transaction.reads_less(table, planned.look_ups);
        }
    }

    /// Says which rows a plan reads. A scan that was planned and is not in it has told the planner something.
    ///
    /// # Errors
    /// None, but as traversals of plans have.
    pub fn narrow(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let Some(transaction) = self.transaction.upgrade() else { return Ok(()) };
        let mut found: BTreeMap<TableId, Vec<Vec<ColumnTest>>> = BTreeMap::new();
        plan.apply(|node| {
            if let Some(source) = scan_source(node) {
                found.entry(source.table().stored().id).or_default().push(source.tests_at_planning());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        for (table, planned) in std::mem::take(&mut *self.tables.lock()) {
            let scans = found.remove(&table).unwrap_or_default();
            if scans.len() != planned.scans || scans.is_empty() && !planned.is_target {
                continue;
            }
            scans.into_iter().for_each(|tests| transaction.reads_where(table, tests));
            transaction.reads_less(table, planned.look_ups);
        }
        Ok(())
    }
}

/// Says that what was planned with a state is not run.
pub fn withdraw_reads(state: &SessionState) {
    if let Some(reads) = state.config().get_extension::<StatementReads>() {
        reads.withdraw();
    }
}

/// Plans a statement that is run then, and says which rows it reads.
///
/// # Errors
/// When it cannot be planned.
pub async fn create_physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let physical = create_bare_plan(state, plan).await?;
    match state.config().get_extension::<Interrupt>() {
        Some(interrupt) => make_interruptible(physical, &interrupt),
        None => Ok(physical),
    }
}

/// As [`create_physical_plan`], for who changes the plan before it is made interruptible.
///
/// # Errors
/// When it cannot be planned.
pub async fn create_bare_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let physical = state.create_physical_plan(plan).await?;
    if let Some(reads) = state.config().get_extension::<StatementReads>() {
        reads.narrow(&physical)?;
    }
    Ok(physical)
}
