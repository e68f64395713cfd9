//! Why a backup or a restore failed. Each message names the file, and the table where there is one.

use std::path::PathBuf;

use super::time::format_time;
use crate::disk::LockHolder;
use crate::error::{CommitError, FileError, OpenError, ReadError, holder_text};

/// Why a backup was not taken, listed or restored. The backups that there were are whole then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is nothing at this path.
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
    /// The directory holds something else.
    #[error("{} is not a backup directory: it holds {found:?}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something in it that no backup directory has.
        found: String,
    },
    /// The backup directory and the database directory overlap.
    #[error("the backup directory {} and the database directory {} must not lie within each other", path.display(), database.display())]
    Overlaps {
        /// The backup directory.
        path: PathBuf,
        /// The database directory.
        database: PathBuf,
    },
    /// The directory holds backups of another database.
    #[error("{} holds backups of another database; use another directory (a restored database counts as another one)", path.display())]
    OtherDatabase {
        /// The backup directory.
        path: PathBuf,
    },
    /// Another process uses the backup directory.
    #[error("backup directory {} is in use by {}", path.display(), holder_text(holder.as_ref()))]
    InUse {
        /// The backup directory.
        path: PathBuf,
        /// The process that uses it, if it is known.
        holder: Option<LockHolder>,
    },
    /// The directory has no backup.
    #[error("backup directory {} has no complete backup", path.display())]
    NoBackups {
        /// The backup directory.
        path: PathBuf,
    },
    /// There is no backup with this number.
    #[error("backup directory {} has no backup {number}; it has {}", path.display(), list_numbers(found))]
    NoSuchBackup {
        /// The backup directory.
        path: PathBuf,
        /// The number asked for.
        number: u64,
        /// The numbers that there are.
        found: Vec<u64>,
    },
    /// The directory to restore to is not empty.
    #[error("{} already exists and is not empty; a backup is restored to a new directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The commits around a time were not archived.
    #[error(
        "cannot restore to {}: {reason}; complete backups are {}",
        format_time(*time), list_backups(backups)
    )]
    NotCovered {
        /// The time asked for.
        time: i64,
        /// Why.
        reason: String,
        /// The backups that there are, with their times.
        backups: Vec<(u64, i64)>,
    },
    /// A file of a backup is damaged or missing.
    #[error("{}{}: expected {expected}", path.display(), table_text(table.as_deref()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The table whose rows are in it.
        table: Option<String>,
        /// What should be there.
        expected: String,
    },
    /// A block of the database is damaged, so that it was not backed up.
    #[error("table {table:?} cannot be backed up: {source}")]
    Source {
        /// The table.
        table: String,
        /// What is wrong with the block.
        source: ReadError,
    },
    /// Old backups are not removed, since it is unknown which files a damaged one needs.
    #[error("old backups are not removed while {} is damaged; remove that file, and its backup with it", path.display())]
    NotRemoved {
        /// The damaged manifest.
        path: PathBuf,
    },
    /// No backup would be left.
    #[error("at least one backup must be kept")]
    KeepsNone,
    /// The log of a database that is open for reading only cannot be retained.
    #[error("a database that is open for reading only cannot be backed up with its log")]
    ReadOnly,
    /// The caller cancelled it.
    #[error("the backup was cancelled")]
    Cancelled,
    /// A document cannot be written as JSON.
    #[error("a manifest cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// The log of the database, or the new database, cannot be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The database cannot be read, or the new one not be begun.
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
