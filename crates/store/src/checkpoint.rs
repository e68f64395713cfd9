//! Checkpoints: the catalog is written as a whole, and the log before it is removed.
//!
//! ```text
//!   log/6.log               made durable; the log continues in 7
//!   log/7.delta             rows that are in no block, and deleted rows, at that moment
//!   catalog.new -> catalog  references log 7 and its delta     <- from here on log 6 is not needed
//!   log/6.*                 removed
//! ```
//!
//! Commits wait only while the log switches to the next file.

use std::sync::Arc;

use crate::Store;
use crate::catalog::file::write_catalog;
use crate::error::CommitError;
use crate::retention::remove_files_before;
use crate::store::Inner;

impl Store {
    /// Writes the current state to the catalog, so that the log up to now is no longer needed, and removes that log.
    /// Readers and commits continue meanwhile.
    ///
    /// # Errors
    /// If the database is read-only, or a file cannot be written. No commit is lost then.
    pub fn checkpoint(&self) -> Result<(), CommitError> {
        self.inner.checkpoint()
    }

    /// Bytes of log that would be replayed when the database is opened after a crash.
    pub fn log_bytes(&self) -> u64 {
        self.inner.log_bytes()
    }
}

impl Inner {
    pub(crate) fn checkpoint(&self) -> Result<(), CommitError> {
        if self.is_read_only() {
            return Err(CommitError::ReadOnly);
        }
        self.directory.check_lock()?;
        let _only_one = self.checkpoints.lock();
        let (catalog, number) = {
            let mut commits = self.commits.lock();
            self.recover_from_log_failure(&mut commits).map_err(CommitError::Log)?;
            let log = self.log(&mut commits)?;
            let number = log.rotate().map_err(CommitError::Log)?;
            self.publish_all(&mut commits);
            commits.replayed_bytes = 0;
            (Arc::clone(&commits.newest), number)
        };
        write_catalog(&self.directory, &catalog, number)?;
        // A backup that begins meanwhile waits for the checkpoint before it requests log files, so it requests none
        // that are removed here.
        let retained = self.commits.lock().retention.as_ref().map(|retention| retention.file.first_log);
        remove_files_before(&self.directory, number, retained)?;
        self.directory.remove_released_files();
        Ok(())
    }

    /// Takes a checkpoint if the log has any records.
    pub(crate) fn close(&self) -> Result<(), CommitError> {
        match self.log_bytes() {
            0 => Ok(()),
            _ => self.checkpoint(),
        }
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        let commits = self.commits.lock();
        commits.replayed_bytes + commits.log.as_ref().map_or(0, |log| log.record_bytes())
    }
}
