//! Helpers that delete rows by value, and poll deletions that wait for row locks of other transactions.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use taut_store::{CommitError, RowSet, TableId, Transaction, TransactionError};

use crate::common::{ready, rows_with_ids};

pub type Deleting<'a> = Pin<Box<dyn Future<Output = Result<(), TransactionError>> + Send + 'a>>;

pub fn rows_with(transaction: &Transaction, table: TableId, values: &[i64]) -> RowSet {
    let snapshot = transaction.snapshot();
    let rows = rows_with_ids(snapshot.table_of(table).unwrap()).unwrap();
    rows.into_iter().filter(|(_, value)| values.contains(value)).map(|(row, _)| row).collect()
}

pub fn delete(transaction: &Transaction, table: TableId, values: &[i64]) -> Result<(), TransactionError> {
    ready(transaction.delete_rows(table, &rows_with(transaction, table, values)))
}

pub fn poll(deleting: &mut Deleting<'_>, waker: &Waker) -> Poll<Result<(), TransactionError>> {
    deleting.as_mut().poll(&mut Context::from_waker(waker))
}

pub fn is_changed(error: &TransactionError) -> bool {
    matches!(error, TransactionError::Commit(CommitError::RowsChanged { table }) if table == "t")
}
