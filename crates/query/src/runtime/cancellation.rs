//! Cancellation of a statement, which is possible until it begins to commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::DataFusionError;
use tokio_util::sync::CancellationToken;

use super::session_value::session_value;
use crate::error::QueryError;

/// Whether a statement was cancelled, and whether it can still be cancelled. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Cancellation {
    token: CancellationToken,
    is_committing: Arc<AtomicBool>,
}

/// Cancellation of a statement in its configuration, where planning rules and functions find it.
#[derive(Clone, Debug)]
pub struct StatementCancellation(pub Cancellation);

session_value!(StatementCancellation, "taut_cancellation");

impl Cancellation {
    /// Creates the state of a statement that ends when `token` is cancelled. The statement sets `is_committing` when it
    /// begins to commit.
    pub fn new(token: CancellationToken, is_committing: Arc<AtomicBool>) -> Self {
        Self { token, is_committing }
    }

    /// Runs `commit`. While `commit` runs and after it has succeeded, the statement cannot be cancelled, because its
    /// user must learn that the changes are committed.
    ///
    /// # Errors
    /// If the statement is already cancelled, or `commit` fails.
    pub fn commit_unless_cancelled<T, E>(&self, commit: impl FnOnce() -> Result<T, E>) -> Result<T, QueryError>
    where
        QueryError: From<E>,
    {
        self.is_committing.store(true, Ordering::SeqCst);
        let result = match self.token.is_cancelled() {
            // The caller that cancelled the statement may have read `is_committing` before it was set.
            true => Err(QueryError::Cancelled),
            false => commit().map_err(QueryError::from),
        };
        if result.is_err() {
            self.is_committing.store(false, Ordering::SeqCst);
        }
        result
    }

    /// Runs work that does not affect the result of the statement, until the statement is cancelled.
    pub async fn run_after_commit(&self, work: impl Future) {
        tokio::select! {
            biased;
            () = self.token.cancelled() => {}
            _ = work => {}
        }
    }

    /// Checks that the statement was not cancelled.
    ///
    /// # Errors
    /// If the statement was cancelled before it began to commit.
    pub fn check(&self) -> Result<(), DataFusionError> {
        match self.token.is_cancelled() && !self.is_committing.load(Ordering::SeqCst) {
            true => Err(DataFusionError::External(Box::new(QueryError::Cancelled))),
            false => Ok(()),
        }
    }
}
