//! Functions that list and restore backups. They need no connection.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use pyo3::prelude::*;
use taut::{BackupInfo, BackupReport, RestoreOptions};

use crate::errors::exception;
use crate::guarded::SIGNAL_CHECK_INTERVAL;

/// A backup as a tuple for Python: number, last commit, time, bytes, written bytes, and the number of an earlier backup
/// if the log has every commit between the two. The time is in microseconds since 1970, UTC.
pub type Row = (u64, u64, i64, u64, u64, Option<u64>);

/// Converts the report of a new backup to a row.
pub fn row_of(report: &BackupReport) -> Row {
    let log_since = match report.log {
        taut::BackupLog::Continued { base, .. } => Some(base),
        _ => None,
    };
    (report.number, report.commit, report.time, report.bytes, report.written_bytes, log_since)
}

/// Lists the backups in a directory.
#[pyfunction]
pub fn backups(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<Row>> {
    let found = py.detach(|| taut::backups(&directory)).map_err(|error| exception(py, &error))?;
    let row = |info: &BackupInfo| (info.number, info.commit, info.time, info.bytes, info.written_bytes, info.log_since);
    Ok(found.iter().map(row).collect())
}

/// Restores a database. Returns the number of the backup, the last commit, its time, the number of replayed commits,
/// and the bytes of the restored blocks.
#[pyfunction]
#[pyo3(signature = (directory, database, backup=None, time=None))]
pub fn restore(
    py: Python<'_>,
    directory: PathBuf,
    database: PathBuf,
    backup: Option<u64>,
    time: Option<i64>,
) -> PyResult<(u64, u64, i64, u64, u64)> {
    let (mut raised, mut last_check) = (None, Instant::now());
    let restored = py.detach(|| {
        taut::restore(&directory, &database, RestoreOptions { backup, time }, &mut |_| {
            if last_check.elapsed() < SIGNAL_CHECK_INTERVAL {
                return ControlFlow::Continue(());
            }
            last_check = Instant::now();
            // If the interpreter is shutting down, stop the restore.
            match Python::try_attach(|py| py.check_signals()) {
                Some(Ok(())) => ControlFlow::Continue(()),
                Some(Err(error)) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
                None => ControlFlow::Break(()),
            }
        })
    });
    match (restored, raised) {
        (Err(_), Some(raised)) => Err(raised),
        (Err(error), None) => Err(exception(py, &error)),
        (Ok(report), _) => Ok((report.backup, report.commit, report.time, report.replayed_commits, report.bytes)),
    }
}

/// Parses a point in time into microseconds since 1970, in UTC unless the text has an offset. Returns `None` if the
/// text is not a time.
#[pyfunction]
pub fn parse_time(text: &str) -> Option<i64> {
    taut::parse_time(text)
}
