//! Lists the backups in a directory, and restores databases from them.

use std::ops::ControlFlow;
use std::path::Path;

use taut_query::QueryError;
use taut_store::backup::{BackupError, Backups};
pub use taut_store::backup::{
    BackupInfo, BackupLog, BackupOptions, BackupProgress, BackupReport, RestoreOptions, RestoreReport, format_time,
    parse_time,
};

use crate::Error;

/// Complete backups in a directory, ordered by number.
///
/// # Errors
/// If there is no backup directory, another process uses it, or the manifest of a backup is damaged.
pub fn backups(directory: impl AsRef<Path>) -> Result<Vec<BackupInfo>, Error> {
    let backups = Backups::open(directory).map_err(QueryError::from)?;
    match backups.damaged().into_iter().next() {
        Some((_, damage)) => Err(QueryError::from(damage).into()),
        None => Ok(backups.list()),
    }
}

/// Restores a database from a backup directory to a directory that does not exist or is empty.
///
/// Calls `progress` repeatedly during the restore. If `progress` returns `Break`, the restore is cancelled.
///
/// # Errors
/// If the directory of the database is not empty, the backup or the point in time does not exist, or a file of the
/// backup is damaged. The files written so far are then removed.
pub fn restore(
    backups: impl AsRef<Path>,
    database: impl AsRef<Path>,
    options: RestoreOptions,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<RestoreReport, Error> {
    let restored = Backups::open(backups).and_then(|backups| backups.restore(database, options, progress));
    Ok(restored.map_err(|error| match error {
        BackupError::Cancelled => QueryError::Cancelled,
        error => error.into(),
    })?)
}
