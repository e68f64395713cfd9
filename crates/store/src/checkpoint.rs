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

use taut_block::checksum;

use crate::catalog::change::Change;
use crate::catalog::format::{self, DeltaFile};
use crate::catalog::record;
use crate::directory::{CATALOG, CATALOG_NEW, Directory, LOG, ROOT, delta_name, delta_of};
use crate::error::{CommitError, FileError};
use crate::log;
use crate::open::list;
use crate::readers;
use crate::store::{Inner, write_file};
use crate::{Catalog, Store};

impl Store {
    /// Writes the current state to the catalog, so that the log up to now is no longer needed, and removes that log.
    /// Readers and commits continue meanwhile.
    ///
    /// # Errors
    /// If a file cannot be written. Nothing is lost then.
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
            self.settle(&mut commits).map_err(CommitError::Log)?;
            let log = self.log(&mut commits)?;
            let number = log.rotate().map_err(CommitError::Log)?;
            self.publish_all(&mut commits);
            commits.replayed_bytes = 0;
            (Arc::clone(&commits.newest), number)
        };
        write_catalog(&self.directory, &catalog, number)?;
        // A backup that begins meanwhile waits for the checkpoint before it requests log files.
        let retained = self.commits.lock().retention.as_ref().map(|retention| retention.file.from);
        remove_before(&self.directory, number, retained)?;
        self.directory.remove_released();
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

/// Replaces the catalog file, and the delta file that belongs to it. The log continues in file `number`.
pub(crate) fn write_catalog(directory: &Directory, catalog: &Catalog, number: u64) -> Result<(), CommitError> {
    let changes = changes_of(catalog)?;
    let delta = if changes.is_empty() {
        None
    } else {
        let bytes = record::to_bytes(&changes, catalog, None)?;
        let name = delta_name(number);
        write_file(directory, &name, |to| to.write_all(&bytes))?;
        directory.disk.sync_directory(LOG).map_err(|source| directory.error("sync", LOG, source))?;
        Some(DeltaFile { bytes: bytes.len() as u64, checksum: checksum(&bytes) })
    };
    let bytes = format::to_bytes(catalog, directory.next_numbers(), number, delta)?;
    let written = write_file(directory, CATALOG_NEW, |to| to.write_all(&bytes));
    if written.is_err() {
        // If this fails, the file only takes space.
        let _ = directory.disk.remove(CATALOG_NEW);
    }
    written?;
    let disk = &directory.disk;
    disk.rename(CATALOG_NEW, CATALOG).map_err(|source| directory.error("rename", CATALOG_NEW, source))?;
    disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))?;
    Ok(())
}

/// Removes the log files and delta files with numbers below `number`, except log files that are retained for a backup,
/// from number `retained` on. Removes nothing while another process reads any of them. The next checkpoint or opening
/// then removes them.
pub(crate) fn remove_before(directory: &Directory, number: u64, retained: Option<u64>) -> Result<(), FileError> {
    if readers::reads_log(readers::oldest(&*directory.disk)) {
        return Ok(());
    }
    log::remove_before(&*directory.disk, retained.map_or(number, |retained| retained.min(number)))?;
    for entry in list(&*directory.disk, LOG)? {
        if delta_of(&entry.name).is_some_and(|old| old < number) {
            let name = format!("{LOG}/{}", entry.name);
            directory.disk.remove(&name).map_err(|source| directory.error("remove", &name, source))?;
        }
    }
    Ok(())
}

/// The changes that restore the deltas of all tables, given their blocks.
pub(crate) fn changes_of(catalog: &Catalog) -> Result<Vec<Change>, CommitError> {
    let mut changes = Vec::new();
    for table in catalog.tables() {
        for page in table.delta.pages() {
            let rows = page.batch(&table.schema);
            let rows = rows.map_err(|_| CommitError::Misplaced { table: table.name.clone() })?;
            changes.push(Change::InsertRows { table: table.id, page: page.id(), first: 0, rows });
        }
        for (unit, deleted) in table.delta.all_deleted() {
            changes.extend(deleted.segments().map(|(segment, rows)| Change::DeleteRows {
                table: table.id,
                unit,
                segment,
                rows: rows.as_ref().clone(),
            }));
        }
    }
    Ok(changes)
}
