//! Retries of statements. A statement is retried after a conflict with a change of columns or constraints. It is
//! retried with merge joins after its hash joins have run out of memory.

use std::time::Duration;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{SetExpr, Statement as Ast};
use taut_sql::{Parameters, Statement, TableChange};

use super::merge_join::{is_out_of_memory, wait_for_memory};
use super::{Outcome, QuerySession};
use crate::error::Result;

/// Maximum number of attempts of a statement that conflicts with changes of columns or constraints.
const ATTEMPTS_MAX: u64 = 100;
/// Maximum pause before a retry, in milliseconds.
const RETRY_PAUSE_MAX: u64 = 20;

impl QuerySession {
    /// Runs a statement. Retries it after a conflict with a concurrent change of columns or constraints, if no
    /// transaction is in progress and [`can_rerun`] returns true.
    pub(super) async fn run_with_retries(&self, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        for attempt in 1..ATTEMPTS_MAX {
            match self.run_with_memory_fallback(statement, parameters).await {
                Err(error) if error.is_schema_conflict() && !self.is_in_transaction() && can_rerun(statement) => {
                    // Waits for the conflicting commit, which is visible only after it is durable.
                    tokio::time::sleep(Duration::from_millis(attempt.min(RETRY_PAUSE_MAX))).await;
                }
                outcome => return outcome,
            }
        }
        self.run_with_memory_fallback(statement, parameters).await
    }

    /// Runs a statement. If its hash joins run out of memory, runs it again with joins that spill.
    pub(super) async fn run_with_memory_fallback(
        &self,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        match self.run_statement(statement, parameters).await {
            Err(error) if is_out_of_memory(&error) && self.interrupt().has_hash_join() => {}
            outcome => return outcome,
        }
        wait_for_memory(&self.context.runtime_env()).await;
        // The failed run has changed nothing: a statement applies its changes only after it has computed all of them.
        self.running.lock().prefers_merge_joins = true;
        let outcome = Box::pin(self.run_statement(statement, parameters)).await;
        self.running.lock().prefers_merge_joins = false;
        outcome
    }
}

/// Whether a statement can run again after a conflict: it changes columns or views, or inserts listed values.
fn can_rerun(statement: &Statement) -> bool {
    match statement {
        Statement::AlterTable { change: TableChange::Schema(_), .. }
        | Statement::CreateView { .. }
        | Statement::CreateFunction { .. }
        | Statement::AlterView { .. } => true,
        Statement::Planned { statement, .. } => match statement.as_ref() {
            PlannerStatement::Statement(ast) => match ast.as_ref() {
                Ast::Insert(insert) => {
                    insert.source.as_ref().is_some_and(|source| matches!(*source.body, SetExpr::Values(_)))
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}
