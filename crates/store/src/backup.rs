//! Backups of a database, and databases restored from them.
//!
//! A backup directory holds several backups, each of the state after one commit, which share the blocks that they have in
//! common: a block never changes. [`Store::backup`] adds one while the database is in use, [`Backups`] lists and restores
//! them. A backup with the log can also be restored to any point in time since the backup before
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
mod directory;
pub(crate) mod document;
mod error;
mod manifest;
mod overlap;
mod restore;
mod take;
mod time;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use directory::BackupDirectory;
pub use error::BackupError;
pub use time::{format_time, parse_time};

#[cfg(doc)]
use crate::Store;
use crate::disk::{Disk, FileDisk};

/// How a database is backed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    /// Whether commits are archived from this backup on, so that a database can be restored to points in time between it
    /// and the next one. The database then keeps its log files and replaced blocks until the next backup, or until
    /// [`Store::stop_log_retention`].
    pub log: bool,
    /// How many of the newest backups are kept, this one included. `None` keeps all.
    pub keep: Option<usize>,
}

/// How far a backup or restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of blocks that are done: copied, or there already.
    pub done_bytes: u64,
    /// Bytes of blocks in all.
    pub total_bytes: u64,
}

/// A backup that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Its number in the backup directory.
    pub number: u64,
    /// The last commit that it holds.
    pub commit: u64,
    /// When its state was fixed, in microseconds since 1970 in UTC.
    pub time: i64,
    /// Bytes of all files that it needs, its manifest aside.
    pub bytes: u64,
    /// Bytes that were written for it, its manifest aside.
    pub written_bytes: u64,
    /// Blocks that were copied.
    pub copied_blocks: u64,
    /// Blocks that an earlier backup has.
    pub shared_blocks: u64,
    /// What became of the log.
    pub log: BackupLog,
    /// The backups that were removed.
    pub removed: Vec<u64>,
}

/// The log of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupLog {
    /// No commits are archived.
    None,
    /// Commits are archived from this backup on. Between it and the backup before there are no points in time to restore to.
    Begun,
    /// It holds the commits since the backup before.
    Continued {
        /// The backup before.
        base: u64,
        /// How many commits it holds.
        commits: u64,
    },
}

/// A backup in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Its number.
    pub number: u64,
    /// The last commit that it holds.
    pub commit: u64,
    /// When its state was fixed, in microseconds since 1970 in UTC.
    pub time: i64,
    /// How many tables it holds.
    pub tables: usize,
    /// Bytes of all files that it needs, its manifest aside.
    pub bytes: u64,
    /// Bytes that were written for it, its manifest aside.
    pub written_bytes: u64,
    /// The backup from which on its log has all commits, so that every point in time between is there.
    pub log_since: Option<u64>,
}

/// Which state is restored. By default that of the last backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The backup to restore, or with a time the one from which commits are made again.
    pub backup: Option<u64>,
    /// The point in time, in microseconds since 1970 in UTC: the last commit at or before it is the last that is restored.
    pub time: Option<i64>,
}

/// A database that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The backup that it came from.
    pub backup: u64,
    /// The last commit that it holds.
    pub commit: u64,
    /// The time of that commit, or of the backup if no commits were made again; in microseconds since 1970 in UTC.
    pub time: i64,
    /// Commits that were made again on top of the backup.
    pub replayed_commits: u64,
    /// Bytes of its blocks.
    pub bytes: u64,
}

/// The backups in a directory, which nobody else can change meanwhile.
#[derive(Debug)]
pub struct Backups {
    directory: BackupDirectory,
}

impl Backups {
    /// Opens a backup directory.
    ///
    /// # Errors
    /// If there is none, or another process uses it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BackupError> {
        Self::open_on(Arc::new(FileDisk::new(path)))
    }

    /// Opens a backup directory on a disk.
    ///
    /// # Errors
    /// As [`Backups::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<Self, BackupError> {
        Ok(Self { directory: BackupDirectory::open(disk)? })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.path()
    }

    /// The complete backups, by number.
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

    /// The backups that cannot be restored, since their manifests are damaged.
    pub fn damaged(&self) -> Vec<(u64, BackupError)> {
        let damage = |number: &u64| Some((*number, self.directory.damage_of(*number)?));
        self.directory.damaged.keys().filter_map(damage).collect()
    }

    /// Removes all backups but the newest ones, and the blocks that only they needed; returns which.
    ///
    /// # Errors
    /// If a file cannot be removed, or a damaged manifest hides which blocks are needed.
    pub fn keep_last(&mut self, count: usize) -> Result<Vec<u64>, BackupError> {
        if count == 0 {
            return Err(BackupError::KeepsNone);
        }
        self.directory.keep_last(count)
    }
}
