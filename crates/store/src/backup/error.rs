//! Errors of backups and restores. Each message names the file, and the table if there is one.

use std::path::PathBuf;

use super::time::format_time;
use crate::disk::LockHolder;
use crate::error::{CommitError, FileError, OpenError, ReadError, holder_text};

/// Why a backup was not taken, listed or restored. Existing backups remain intact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is nothing at the path.
    #[error("there is no backup directory at {}", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{} is a file; a backup directory is a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory contains files that do not belong to a backup directory.
    #[error("{} is not a backup directory: it contains {found:?}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A name in it that does not belong to a backup directory.
        found: String,
    },
    /// The backup directory contains the database directory, is inside it, or is the same directory.
    #[error("the backup directory {} and the database directory {} must not lie within each other", path.display(), database.display())]
    Overlaps {
        /// The backup directory.
        path: PathBuf,
        /// The database directory.
        database: PathBuf,
    },
    /// The directory contains backups of another database.
    #[error("{} contains backups of another database; use another directory (a restored database counts as another one)", path.display())]
    OtherDatabase {
        /// The backup directory.
        path: PathBuf,
    },
    /// The directory contains backups of a copy of the database that has other commits.
    #[error(
        "{} contains backup {number} of commit {commit}, which this database does not have: it was taken of a copy of this \
         database, or before this one was set back to an earlier state; use another directory",
        path.display()
    )]
    Diverged {
        /// The backup directory.
        path: PathBuf,
        /// Number of the backup.
        number: u64,
        /// Version of its last commit.
        commit: u64,
    },
    /// Another process uses the backup directory.
    #[error("backup directory {} is in use by {}", path.display(), holder_text(holder.as_ref()))]
    InUse {
        /// The backup directory.
        path: PathBuf,
        /// The process that uses it, if known.
        holder: Option<LockHolder>,
    },
    /// The directory has no complete backup.
    #[error("backup directory {} has no complete backup", path.display())]
    NoBackups {
        /// The backup directory.
        path: PathBuf,
    },
    /// There is no backup of that number.
    #[error("backup directory {} has no backup {number}; it has {}", path.display(), list_numbers(found))]
    NoSuchBackup {
        /// The backup directory.
        path: PathBuf,
        /// The requested number.
        number: u64,
        /// The existing numbers.
        found: Vec<u64>,
    },
    /// The directory to restore to is not empty.
    #[error("{} already exists and is not empty; a backup is restored to a new directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The commits up to the requested time were not archived.
    #[error(
        "cannot restore to {}: {reason}; complete backups are {}",
        format_time(*time), list_backups(backups)
    )]
    NotCovered {
        /// The requested time, in microseconds since 1970 in UTC.
        time: i64,
        /// The reason.
        reason: String,
        /// Numbers and times of the existing backups.
        backups: Vec<(u64, i64)>,
    },
    /// A file of a backup is damaged or missing.
    #[error("{}{}: expected {expected}", path.display(), table_text(table.as_deref()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The table whose rows are in the file.
        table: Option<String>,
        /// What was expected.
        expected: String,
    },
    /// A block of the database is damaged, so it cannot be backed up.
    #[error("table {table:?} cannot be backed up: {source}")]
    Source {
        /// The table.
        table: String,
        /// The damage of the block.
        source: ReadError,
    },
    /// Old backups cannot be removed, because it is unknown which files a backup with a damaged manifest needs.
    #[error("old backups are not removed while {} is damaged; remove that file, and its backup with it", path.display())]
    NotRemoved {
        /// The damaged manifest.
        path: PathBuf,
    },
    /// The request would keep no backup.
    #[error("at least one backup must be kept")]
    KeepsNone,
    /// The database is open read-only, so the retention of its log can neither begin nor end.
    #[error(
        "a database that is open for reading only can neither be backed up with its log nor end the retention of its log"
    )]
    ReadOnly,
    /// The caller cancelled the operation.
    #[error("the operation was cancelled")]
    Cancelled,
    /// A manifest or a catalog cannot be encoded as JSON.
    #[error("a manifest or a catalog cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// The log of the database, or the new database, cannot be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The database cannot be read, or the new one cannot be created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

fn table_text(table: Option<&str>) -> String {
    table.map_or_else(String::new, |table| format!(" (table {table:?})"))
}

fn list_numbers(numbers: &[u64]) -> String {
    match numbers {
        [] => "none".to_owned(),
        _ => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn list_backups(backups: &[(u64, i64)]) -> String {
    match backups {
        [] => "none".to_owned(),
        _ => {
            let text = backups.iter().map(|(number, time)| format!("{number} ({})", format_time(*time)));
            text.collect::<Vec<_>>().join(", ")
        }
    }
}
