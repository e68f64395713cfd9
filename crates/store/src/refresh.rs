//! Refresh of a database that is open read-only, to the last commit of the process that writes it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::directory::Directory;
use crate::error::{FileError, OpenError};
use crate::files::{READERS, ROOT};
use crate::read_only::load;
use crate::readers::Reader;
use crate::{BlockFile, BlockId, Catalog, Store, Table};

impl Store {
    /// Updates a database that is open read-only to the last commit, as if it were opened now. Returns whether there is
    /// a newer commit than before. Existing snapshots and transactions do not change. A database that is open for
    /// writing always shows the last commit.
    ///
    /// # Errors
    /// If the catalog or the log cannot be read, or the path leads to another database. The database then still shows
    /// the previous commit.
    pub fn refresh(&self) -> Result<bool, OpenError> {
        let directory = self.directory();
        // The lock is held until the end, so that only one refresh runs at a time.
        let mut position = self.inner.read_position.lock();
        let (Some(reader), Some(last_read)) = (directory.reader(), &mut *position) else { return Ok(false) };
        if last_read.is_newest(&*directory.disk) {
            return Ok(false);
        }
        let before = self.permanent_snapshot();
        let guard = ReadGuard::begin(directory, reader)?;
        let load_checked = || match load(directory)? {
            (after, ..) if after.database != before.database => {
                Err(OpenError::Replaced { path: directory.disk.path(ROOT) })
            }
            loaded => Ok(loaded),
        };
        let (mut after, mut recovery, mut read) = load_checked()?;
        let registered = reader.register_again(&*directory.disk);
        if registered.map_err(|source| directory.error("create a file in", READERS, source))? {
            // While the file of this reader was missing, the writer may have removed files that were just read.
            (after, recovery, read) = load_checked()?;
        }
        share_blocks(&mut after, &before);
        after.definitions_id = if after.has_same_definitions(&before) {
            before.definitions_id
        } else {
            directory.allocate_definitions_id()
        };
        let removed = removed_blocks(&before, &after);
        guard.end(read.durable_version, &removed);
        *last_read = read;
        let (is_newer, after) = (after.version != before.version, Arc::new(after));
        let mut commits = self.inner.commits.lock();
        commits.newest = Arc::clone(&after);
        commits.last_time = recovery.last_time.unwrap_or(i64::MIN);
        *self.inner.snapshot.write() = after;
        drop(commits);
        // Dropping the last reference releases a block: at the end of this function, or with the last snapshot. The
        // version has no effect, because a read-only process removes no files.
        removed.iter().for_each(|block| block.remove_at_version(0));
        Ok(is_newer)
    }

    /// Reads the last commit from the files without making it visible. Returns the id of the database and the version.
    pub(crate) fn read_newest(&self) -> Result<(u64, u64), OpenError> {
        let directory = self.directory();
        let _position = self.inner.read_position.lock();
        let _guard = directory.reader().map(|reader| ReadGuard::begin(directory, reader)).transpose()?;
        let (catalog, ..) = load(directory)?;
        Ok((catalog.database, catalog.version))
    }
}

/// Guard of a reader that reads the catalog and the log. Until it ends, the writer keeps all files. Dropping it early
/// announces that the reader needs the files of the previous version again.
struct ReadGuard<'a> {
    reader: &'a Reader,
    has_ended: bool,
}

impl<'a> ReadGuard<'a> {
    fn begin(directory: &Directory, reader: &'a Reader) -> Result<Self, FileError> {
        let guard = Self { reader, has_ended: false };
        reader.announce_all().map_err(|source| directory.error("write a file in", READERS, source))?;
        Ok(guard)
    }

    /// Announces that the reader needs the files of `version`. `removed` are the blocks that only the previous version
    /// references.
    fn end(mut self, version: u64, removed: &[Arc<BlockFile>]) {
        self.has_ended = true;
        self.reader.announce_version(version, removed);
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.reader.announce_previous();
        }
    }
}

/// Reuses the block files of the previous catalog, because their headers and sections are in memory.
fn share_blocks(after: &mut Catalog, before: &Catalog) {
    let previous: HashMap<BlockId, &Arc<BlockFile>> = before.blocks().map(|block| (block.id(), block)).collect();
    let tables: Vec<Arc<Table>> = after.tables.iter().map(Arc::clone).collect();
    for table in tables {
        let shared = |block: &Arc<BlockFile>| match previous.get(&block.id()) {
            Some(previous) if previous.entry() == block.entry() && previous.columns() == block.columns() => {
                Arc::clone(previous)
            }
            Some(previous) if previous.entry().header_checksum == block.entry().header_checksum => {
                Arc::new(previous.with_columns(block.entry().clone(), block.columns().cloned()))
            }
            _ => Arc::clone(block),
        };
        let blocks = Arc::new(table.blocks.iter().map(shared).collect());
        after.tables.insert(Arc::new(Table { blocks, ..table.as_ref().clone() }));
    }
}

/// The blocks that only the previous catalog references.
fn removed_blocks(before: &Catalog, after: &Catalog) -> Vec<Arc<BlockFile>> {
    let referenced: HashMap<BlockId, &Arc<BlockFile>> = after.blocks().map(|block| (block.id(), block)).collect();
    let is_removed =
        |block: &&Arc<BlockFile>| referenced.get(&block.id()).is_none_or(|other| !other.shares_file_with(block));
    before.blocks().filter(is_removed).map(Arc::clone).collect()
}
