//! The state that all block files of an open database share.

use std::collections::{HashSet, VecDeque};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};

use crate::delta::ContainerId;
use crate::disk::{Disk, Lock, NoLock, ReadFile};
use crate::error::{CommitError, FileError};
use crate::files::{ROOT, block_name, file_error, write_file_on};
use crate::readers::{PendingRemovals, Reader};
use crate::{BlockId, Cache, Catalog, TableId};

/// State that all block files share. The lock of the database directory is held as long as any block file is alive,
/// because dropping a block file may remove it from the disk.
#[derive(Debug)]
pub(crate) struct Directory {
    pub disk: Arc<dyn Disk>,
    pub cache: Arc<Cache>,
    files: Mutex<VecDeque<(BlockId, Arc<dyn ReadFile>)>>,
    next_block: AtomicU64,
    /// Smallest id of a page that may grow.
    first_growing_page: AtomicU64,
    next_table: AtomicU64,
    next_transaction: AtomicU64,
    next_definitions: AtomicU64,
    /// Block ids in the names of files that are not in the catalog. They are never allocated.
    reserved_ids: OnceLock<HashSet<BlockId>>,
    /// The newest snapshot of the store. Not set while the store is being opened.
    newest: OnceLock<Weak<RwLock<Arc<Catalog>>>>,
    lock: Box<dyn Lock>,
    /// `Some` if the database is open read-only.
    reader: Option<Reader>,
    /// Block files to remove once no reader needs them.
    removals: PendingRemovals,
}

/// Maximum number of files kept open for the next read. Operating systems allow a process about a thousand.
const OPEN_FILES_MAX: usize = 128;

impl Directory {
    pub fn new(disk: Arc<dyn Disk>, lock: Box<dyn Lock>, cache: Cache) -> Self {
        Self {
            disk,
            cache: Arc::new(cache),
            files: Mutex::default(),
            next_block: AtomicU64::new(1),
            first_growing_page: AtomicU64::new(0),
            next_table: AtomicU64::new(1),
            next_transaction: AtomicU64::new(1),
            next_definitions: AtomicU64::new(1),
            reserved_ids: OnceLock::new(),
            newest: OnceLock::new(),
            lock,
            reader: None,
            removals: PendingRemovals::default(),
        }
    }

    /// The directory of a database that is open read-only. A reader that is not registered holds a lock that excludes
    /// writers.
    pub fn of_reader(disk: Arc<dyn Disk>, lock: Box<dyn Lock>, reader: Reader, cache: Cache) -> Self {
        Self { reader: Some(reader), ..Self::new(disk, lock, cache) }
    }

    /// A directory of blocks that belong to no database: no other process reads them.
    pub fn of_temporary_blocks(disk: Arc<dyn Disk>, cache: Arc<Cache>) -> Self {
        Self { cache, ..Self::new(disk, Box::new(NoLock), Cache::new(0)) }
    }

    /// The registration of this process, if it has the database open read-only.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Removes the block files that no reader needs any more. If a removal fails, the next opening of the database
    /// removes the file.
    pub fn remove_released_files(&self) {
        // If another directory is now at this path, its readers and blocks do not belong to this database.
        if self.check_lock().is_ok() {
            self.removals.remove_unneeded(&*self.disk);
        }
    }

    /// The removals that wait for readers.
    pub fn removals(&self) -> &PendingRemovals {
        &self.removals
    }

    /// Checks that the path still leads to the directory that is locked.
    ///
    /// # Errors
    /// If it leads to another directory or none, or cannot be read.
    pub fn check_lock(&self) -> Result<(), CommitError> {
        match self.lock.is_valid() {
            Ok(true) => Ok(()),
            Ok(false) => Err(CommitError::DirectoryReplaced { path: self.disk.path(ROOT) }),
            Err(source) => Err(self.error("check", ROOT, source).into()),
        }
    }

    /// Reserves the ids of blocks, pages and tables below the given ones.
    pub fn reserve_ids_below(&self, (next_block, next_table): (u64, u64)) {
        self.next_block.fetch_max(next_block, Ordering::Relaxed);
        self.next_table.fetch_max(next_table, Ordering::Relaxed);
    }

    /// Ids of the next block or page, and of the next table.
    pub fn next_ids(&self) -> (u64, u64) {
        (self.next_block.load(Ordering::Relaxed), self.next_table.load(Ordering::Relaxed))
    }

    /// Allocates a table id.
    pub fn allocate_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Allocates an id for a delta page. `None` if there are no more.
    pub fn allocate_page(&self) -> Option<ContainerId> {
        ContainerId::of(self.allocate_block())
    }

    /// Stops all existing pages from growing: rows are appended to newer pages from now on.
    pub fn close_pages(&self) {
        self.first_growing_page.fetch_max(self.next_block.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether rows may be appended to a page.
    pub fn may_grow(&self, page: ContainerId) -> bool {
        u64::from(page.0) >= self.first_growing_page.load(Ordering::Relaxed)
    }

    /// Allocates a transaction id, unique since the database was opened.
    pub fn allocate_transaction(&self) -> u64 {
        self.next_transaction.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a value for [`Catalog::definitions_id()`], unique since the database was opened.
    pub fn allocate_definitions_id(&self) -> u64 {
        self.next_definitions.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a block id that no block has had and no file uses.
    pub fn allocate_block(&self) -> BlockId {
        loop {
            let block = BlockId(self.next_block.fetch_add(1, Ordering::Relaxed));
            if !self.reserved_ids.get().is_some_and(|reserved_ids| reserved_ids.contains(&block)) {
                return block;
            }
        }
    }

    /// Reserves the block ids in the names of existing files, so that no new block replaces these files.
    pub fn reserve_block_ids(&self, reserved_ids: HashSet<BlockId>) {
        // Only opening calls this, once, so nothing is set yet.
        let _ = self.reserved_ids.set(reserved_ids);
    }

    /// Stores a reference to the newest snapshot, to name tables in errors.
    pub fn set_newest(&self, newest: &Arc<RwLock<Arc<Catalog>>>) {
        // Only opening calls this, once, so nothing is set yet.
        let _ = self.newest.set(Arc::downgrade(newest));
    }

    /// Name of the table that a block belongs to in the newest snapshot.
    pub fn table_name_of(&self, block: BlockId) -> Option<String> {
        let newest = Arc::clone(&self.newest.get()?.upgrade()?.read());
        let table = newest.tables().find(|table| table.blocks.iter().any(|other| other.id() == block))?;
        Some(table.name.clone())
    }

    /// The file of a block, opened if it is not open yet.
    pub fn open_block(&self, block: BlockId) -> io::Result<Arc<dyn ReadFile>> {
        if let Some((_, file)) = self.files.lock().iter().find(|(open, _)| *open == block) {
            return Ok(Arc::clone(file));
        }
        let file = self.disk.open(&block_name(block))?;
        let mut files = self.files.lock();
        if files.len() == OPEN_FILES_MAX {
            files.pop_front();
        }
        files.push_back((block, Arc::clone(&file)));
        Ok(file)
    }

    /// Closes the file of a block. The next read opens the file of that name again.
    pub fn close_block(&self, block: BlockId) {
        self.files.lock().retain(|(open, _)| *open != block);
    }

    /// Removes the file of a block that this process no longer references. No version of the database from `version` on
    /// references it. The file stays while another process reads an earlier version. If a removal fails, the next
    /// opening of the database removes the file. A read-only process does not remove the file, but announces that it no
    /// longer needs it.
    pub fn remove_block(&self, block: BlockId, version: u64) {
        self.close_block(block);
        match &self.reader {
            Some(reader) => reader.announce_release(),
            // Another directory at this path may have a block of the same number.
            None if self.check_lock().is_ok() => self.removals.remove(&*self.disk, block, version),
            None => {}
        }
    }

    /// Creates a file, writes `content` to it, and syncs it.
    ///
    /// # Errors
    /// If `content` returns an error, or the file cannot be written.
    pub fn write_file(
        &self,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), FileError> {
        write_file_on(&*self.disk, name, content)
    }

    /// An error of a file operation on a name.
    pub fn error(&self, operation: &'static str, name: &str, source: io::Error) -> FileError {
        file_error(&*self.disk, operation, name, source)
    }
}
