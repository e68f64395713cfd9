//! Backups of a database, and databases restored from them.
//!
//! A backup directory holds several backups, each of the state after one commit. They share common blocks, because a
//! block never changes. [`Store::backup`] adds a backup while the database is in use; [`Backups`] lists and restores
//! them. A backup with the log can also be restored to any point in time since the previous backup
//! (docs/adr/0032-backups-share-blocks.md).
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let (backups, restored) = (directory.path().join("backups"), directory.path().join("restored"));
//! use std::ops::ControlFlow;
//! use taut_store::Store;
//! use taut_store::backup::{BackupOptions, Backups, RestoreOptions};
//!
//! let store = Store::in_memory().unwrap();
//! let report = store.backup(&backups, BackupOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
//! assert_eq!(report.number, 1);
//! let backups = Backups::open(&backups).unwrap();
//! backups.restore(&restored, RestoreOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
//! ```

mod commits;
mod create;
mod directory;
mod error;
mod history;
mod manifest;
mod overlap;
mod restore;
mod time;
mod verify;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use directory::BackupDirectory;
pub use error::BackupError;
pub use time::{format_time, parse_time};
pub use verify::BackupVerification;

#[cfg(doc)]
use crate::Store;
use crate::disk::{Disk, FileDisk};

/// Maximum bytes of a block that are copied between two progress calls.
const COPY_BYTES: u64 = 4 << 20;

/// Options of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    /// Whether commits are archived from this backup on. The database can then be restored to any point in time between
    /// this backup and the next one. The database keeps its log files and replaced blocks until the next backup, or
    /// until [`Store::stop_log_retention`].
    pub log: bool,
    /// Number of newest backups to keep, this one included. `None` keeps all.
    pub keep: Option<usize>,
}

/// Progress of a backup or restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of blocks that are copied, or that an earlier backup already has.
    pub done_bytes: u64,
    /// Total bytes of blocks.
    pub total_bytes: u64,
}

/// Result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Number of the backup in its directory.
    pub number: u64,
    /// Version of the last commit in the backup.
    pub commit: u64,
    /// Time of the state in the backup, in microseconds since 1970 in UTC.
    pub time: i64,
    /// Bytes of all files that the backup needs, without its manifest.
    pub bytes: u64,
    /// Bytes that were written for the backup, without its manifest.
    pub written_bytes: u64,
    /// Number of blocks that were copied.
    pub copied_blocks: u64,
    /// Number of blocks that an earlier backup already had.
    pub shared_blocks: u64,
    /// Whether the backup archives commits, and since when.
    pub log: BackupLog,
    /// Numbers of the backups that were removed.
    pub removed: Vec<u64>,
}

/// The archived log of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupLog {
    /// No commits are archived.
    None,
    /// Commits are archived from this backup on. No point in time between it and the previous backup can be restored.
    Begun,
    /// The log holds the commits since the previous backup.
    Continued {
        /// Number of the previous backup.
        base: u64,
        /// Number of commits in the log.
        commits: u64,
    },
}

/// A backup in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Number of the backup in its directory.
    pub number: u64,
    /// Version of the last commit in the backup.
    pub commit: u64,
    /// Time of the state in the backup, in microseconds since 1970 in UTC.
    pub time: i64,
    /// Number of tables in the backup.
    pub tables: usize,
    /// Bytes of all files that the backup needs, without its manifest.
    pub bytes: u64,
    /// Bytes that were written for the backup, without its manifest.
    pub written_bytes: u64,
    /// Number of the earlier backup that the log continues. Every point in time between that backup and this one can be
    /// restored. `None` if the backup has no log.
    pub log_since: Option<u64>,
}

/// The state to restore. The default is the state of the last backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Number of the backup to restore. With a time, the backup on which commits are replayed.
    pub backup: Option<u64>,
    /// Point in time to restore, in microseconds since 1970 in UTC. All commits at or before this time are restored.
    pub time: Option<i64>,
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Number of the restored backup.
    pub backup: u64,
    /// Version of the last commit in the restored database.
    pub commit: u64,
    /// Time of that commit, or of the backup if no commits were replayed, in microseconds since 1970 in UTC.
    pub time: i64,
    /// Number of commits replayed on top of the backup.
    pub replayed_commits: u64,
    /// Total bytes of the blocks in the restored database.
    pub bytes: u64,
}

/// Receives the progress of a backup or a restore, and can cancel it.
type Progress<'a> = &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>;

/// Whether a path leads to a backup directory, and not to a database.
pub fn is_backup_directory(path: impl AsRef<Path>) -> bool {
    directory::is_backup_directory_on(&FileDisk::new(path))
}

/// The backups in a directory. The directory is locked, so no other process changes it.
#[derive(Debug)]
pub struct Backups {
    directory: BackupDirectory,
}

impl Backups {
    /// Opens a backup directory.
    ///
    /// # Errors
    /// If it does not exist, or another process uses it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BackupError> {
        Self::open_on(Arc::new(FileDisk::new(path)))
    }

    /// Opens a backup directory on a disk.
    ///
    /// # Errors
    /// If the directory cannot be opened, as for [`Backups::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<Self, BackupError> {
        Ok(Self { directory: BackupDirectory::open(disk)? })
    }

    /// Path of the backup directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path()
    }

    /// The complete backups, ordered by number.
    pub fn list(&self) -> Vec<BackupInfo> {
        let info = |manifest: &manifest::Manifest| BackupInfo {
            number: manifest.number,
            commit: manifest.commit,
            time: manifest.time,
            tables: manifest.tables.len(),
            bytes: manifest.bytes(),
            written_bytes: manifest.written_bytes,
            log_since: manifest.log.as_ref().map(|log| log.base),
        };
        self.directory.manifests.values().map(info).collect()
    }

    /// Numbers of the backups that cannot be restored because their manifests are damaged, each with its error.
    pub fn damaged(&self) -> Vec<(u64, BackupError)> {
        let damage = |number: &u64| Some((*number, self.directory.damaged_manifest_error(*number)?));
        self.directory.damaged.keys().filter_map(damage).collect()
    }

    /// Removes all backups but the newest `count`, and the blocks that only they needed. Returns the numbers of removed
    /// backups.
    ///
    /// # Errors
    /// If `count` is 0, a file cannot be removed, or a manifest is damaged, so that the files it needs are unknown.
    pub fn keep_last(&mut self, count: usize) -> Result<Vec<u64>, BackupError> {
        if count == 0 {
            return Err(BackupError::KeepsNone);
        }
        self.directory.keep_last(count)
    }
}
