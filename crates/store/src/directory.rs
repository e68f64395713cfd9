//! The database directory: the names in it, and the state that all its block files share.
//!
//! ```text
//!   catalog                        contents of the database at a checkpoint, which replaces the file as a whole
//!   catalog.new                    the next catalog, while a checkpoint writes it
//!   incomplete                     a repair or restore that writes the database has not finished: it does not open
//!   lock                           id of the process that last opened the database; locked like the directory
//!   blocks/000000000000002a.block  block 42: immutable, named by its number, never reused once committed
//!   log/0000000000000006.closed.log   log file 6, closed: log file 7 exists
//!   log/0000000000000007.log       log file 7; files before the one that the catalog references are no longer valid
//!   log/0000000000000007.delta     rows that are in no block when log file 7 begins
//!   log/0000000000000008.log.new   the next log file, while it is begun
//!   log/retained                   number of the first log file that is retained for the next backup
//!   readers/4711-1                 a process that reads the database, and holds the lock of this file
//! ```

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};

use crate::delta::ContainerId;
use crate::disk::{DirectoryEntry, Disk, Lock, ReadFile};
use crate::error::{CommitError, FileError};
use crate::readers::{Reader, Removals};
use crate::{BlockId, Cache, Catalog, TableId};

pub(crate) const CATALOG: &str = "catalog";
pub(crate) const CATALOG_NEW: &str = "catalog.new";
/// File in the directory of a database that a repair or a restore has not finished.
pub(crate) const INCOMPLETE: &str = "incomplete";
pub(crate) const LOCK: &str = "lock";
pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const LOG: &str = "log";
/// File that names the log files retained for the next backup.
pub(crate) const RETAINED: &str = "log/retained";
pub(crate) const RETAINED_NEW: &str = "log/retained.new";
pub(crate) const READERS: &str = "readers";
/// The name of the database directory itself.
pub(crate) const ROOT: &str = "";

const BLOCK_SUFFIX: &str = ".block";
const LOG_SUFFIX: &str = ".log";
const CLOSED_LOG_SUFFIX: &str = ".closed.log";
const DELTA_SUFFIX: &str = ".delta";

/// Name of the file of a block.
pub(crate) fn block_name(block: BlockId) -> String {
    format!("{BLOCKS}/{block}{BLOCK_SUFFIX}")
}

/// The block of a file name in `blocks`. `None` if [`block_name`] does not produce that name.
pub(crate) fn block_of(name: &str) -> Option<BlockId> {
    let block = BlockId(u64::from_str_radix(name.strip_suffix(BLOCK_SUFFIX)?, 16).ok()?);
    (block_name(block).strip_prefix(BLOCKS)?.strip_prefix('/')? == name).then_some(block)
}

/// Name of a log file until the next one is begun.
pub(crate) fn log_name(number: u64) -> String {
    format!("{LOG}/{number:016x}{LOG_SUFFIX}")
}

/// Name of a log file after the next one was begun. It asserts that the next one exists.
pub(crate) fn closed_log_name(number: u64) -> String {
    format!("{LOG}/{number:016x}{CLOSED_LOG_SUFFIX}")
}

/// Name of a log file before it is valid.
pub(crate) fn new_log_name(number: u64) -> String {
    format!("{}.new", log_name(number))
}

/// Name of the delta file, with the rows that are in no block when a log file begins.
pub(crate) fn delta_name(number: u64) -> String {
    format!("{LOG}/{number:016x}{DELTA_SUFFIX}")
}

/// The number of a delta file name in `log`. `None` if [`delta_name`] does not produce that name.
pub(crate) fn delta_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(DELTA_SUFFIX)?, 16).ok()?;
    (delta_name(number).strip_prefix(LOG)?.strip_prefix('/')? == name).then_some(number)
}

/// The number of a log file name in `log`. `None` if neither [`log_name`] nor [`closed_log_name`] produces that name.
pub(crate) fn log_of(name: &str) -> Option<u64> {
    open_log_of(name).or_else(|| closed_log_of(name))
}

/// The number of an open log file name in `log`. `None` if [`log_name`] does not produce that name.
pub(crate) fn open_log_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(LOG_SUFFIX)?, 16).ok()?;
    (log_name(number).strip_prefix(LOG)?.strip_prefix('/')? == name).then_some(number)
}

/// The number of a closed log file name in `log`. `None` if [`closed_log_name`] does not produce that name.
pub(crate) fn closed_log_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(CLOSED_LOG_SUFFIX)?, 16).ok()?;
    (closed_log_name(number).strip_prefix(LOG)?.strip_prefix('/')? == name).then_some(number)
}

/// Name of the file of a reader: its process id, and a number that is unique in the process.
pub(crate) fn reader_name(process: u32, number: u64) -> String {
    format!("{READERS}/{process}-{number}")
}

/// Whether [`reader_name`] produces a file name in `readers`.
pub(crate) fn is_reader_name(name: &str) -> bool {
    let numbers =
        name.split_once('-').and_then(|(process, number)| Some((process.parse().ok()?, number.parse().ok()?)));
    numbers.is_some_and(|(process, number)| reader_name(process, number).strip_prefix("readers/") == Some(name))
}

/// Whether a file name in `log` is one that this program gives.
pub(crate) fn is_log_name(name: &str) -> bool {
    let finished = name.strip_suffix(".new").unwrap_or(name);
    let path = format!("{LOG}/{name}");
    let is_of_log = open_log_of(finished).is_some() || closed_log_of(name).is_some() || delta_of(name).is_some();
    is_of_log || path == RETAINED || path == RETAINED_NEW
}

/// Whether an entry of one of the directories of a database has a name that this program gives.
pub(crate) fn is_own_name(directory: &str, entry: &DirectoryEntry) -> bool {
    let name = entry.name.as_str();
    match directory {
        ROOT if entry.is_directory => [BLOCKS, LOG, READERS].contains(&name),
        ROOT => [CATALOG, CATALOG_NEW, INCOMPLETE, LOCK].contains(&name),
        LOG => !entry.is_directory && is_log_name(name),
        READERS => !entry.is_directory && is_reader_name(name),
        _ => !entry.is_directory && block_of(name).is_some(),
    }
}

/// State that all block files share. The lock is held as long as any of them is alive, because the last holder may
/// remove files.
#[derive(Debug)]
pub(crate) struct Directory {
    pub disk: Arc<dyn Disk>,
    pub cache: Cache,
    files: Mutex<VecDeque<(BlockId, Arc<dyn ReadFile>)>>,
    next_block: AtomicU64,
    /// Pages with smaller ids do not grow any more.
    growing_from: AtomicU64,
    next_table: AtomicU64,
    next_transaction: AtomicU64,
    next_definitions: AtomicU64,
    /// Block ids that other files already use as names.
    taken: OnceLock<HashSet<BlockId>>,
    /// The newest snapshot of the store, if there is one yet.
    newest: OnceLock<Weak<RwLock<Arc<Catalog>>>>,
    lock: Box<dyn Lock>,
    /// `Some` if the database is open read-only.
    reader: Option<Reader>,
    /// Block files to remove once no reader needs them.
    removals: Removals,
}

/// Maximum number of files kept open for the next read. Operating systems allow a process about a thousand.
const OPEN_FILES_MAX: usize = 128;

impl Directory {
    pub fn new(disk: Arc<dyn Disk>, lock: Box<dyn Lock>, cache: Cache) -> Self {
        Self {
            disk,
            cache,
            files: Mutex::default(),
            next_block: AtomicU64::new(1),
            growing_from: AtomicU64::new(0),
            next_table: AtomicU64::new(1),
            next_transaction: AtomicU64::new(1),
            next_definitions: AtomicU64::new(1),
            taken: OnceLock::new(),
            newest: OnceLock::new(),
            lock,
            reader: None,
            removals: Removals::default(),
        }
    }

    /// The directory of a database that is open read-only. A reader that is not registered holds a lock that excludes
    /// writers.
    pub fn of_reader(disk: Arc<dyn Disk>, lock: Box<dyn Lock>, reader: Reader, cache: Cache) -> Self {
        Self { reader: Some(reader), ..Self::new(disk, lock, cache) }
    }

    /// The registration of this process, if it has the database open read-only.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Removes files whose readers are gone. If a removal fails, the next opening of the database removes the file.
    pub fn remove_released(&self) {
        // Another directory at this path has readers and blocks of its own.
        if self.check_lock().is_ok() {
            self.removals.collect(&*self.disk);
        }
    }

    /// The removals that wait for readers.
    pub fn removals(&self) -> &Removals {
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
    pub fn reserve(&self, (next_block, next_table): (u64, u64)) {
        self.next_block.fetch_max(next_block, Ordering::Relaxed);
        self.next_table.fetch_max(next_table, Ordering::Relaxed);
    }

    /// Ids of the next block or page, and of the next table.
    pub fn next_numbers(&self) -> (u64, u64) {
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
        self.growing_from.fetch_max(self.next_block.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether rows may be appended to a page.
    pub fn may_grow(&self, page: ContainerId) -> bool {
        u64::from(page.0) >= self.growing_from.load(Ordering::Relaxed)
    }

    /// Allocates a transaction id, unique since the database was opened.
    pub fn allocate_transaction(&self) -> u64 {
        self.next_transaction.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a value for [`Catalog::definitions()`], unique since the database was opened.
    pub fn allocate_definitions(&self) -> u64 {
        self.next_definitions.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a block id that no block has had and no file uses.
    pub fn allocate_block(&self) -> BlockId {
        loop {
            let block = BlockId(self.next_block.fetch_add(1, Ordering::Relaxed));
            if !self.taken.get().is_some_and(|taken| taken.contains(&block)) {
                return block;
            }
        }
    }

    /// Reserves block ids that other files already use as names, so that no new block replaces them.
    pub fn reserve_names(&self, taken: HashSet<BlockId>) {
        let _ = self.taken.set(taken);
    }

    /// Stores a reference to the newest snapshot, to name tables in errors.
    pub fn set_newest(&self, newest: &Arc<RwLock<Arc<Catalog>>>) {
        let _ = self.newest.set(Arc::downgrade(newest));
    }

    /// Name of the table that a block belongs to in the newest snapshot.
    pub fn table_of(&self, block: BlockId) -> Option<String> {
        let newest = Arc::clone(&self.newest.get()?.upgrade()?.read());
        let table = newest.tables().find(|table| table.blocks.iter().any(|other| other.id() == block))?;
        Some(table.name.clone())
    }

    /// The open file of a block. Opens it if it is not kept open.
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

    /// Closes the file of a block, so that the next read opens the file that has its name by then.
    pub fn close_block(&self, block: BlockId) {
        self.files.lock().retain(|(open, _)| *open != block);
    }

    /// Removes the file of a block that this process no longer references, and that no version of the database from
    /// `version` on references. The file stays while another process reads an earlier version. If a removal fails, the
    /// next opening of the database removes the file. A process that only reads does not remove the file. It announces
    /// that it no longer needs it.
    pub fn remove_block(&self, block: BlockId, version: u64) {
        self.close_block(block);
        match &self.reader {
            Some(reader) => reader.release(),
            // Another directory at this path may have a block of the same number.
            None if self.check_lock().is_ok() => self.removals.remove(&*self.disk, block, version),
            None => {}
        }
    }

    /// An error of a file operation on a name.
    pub fn error(&self, operation: &'static str, name: &str, source: io::Error) -> FileError {
        FileError { operation, path: self.disk.path(name), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_blocks_are_taken_for_blocks() {
        let name = block_name(BlockId(42));
        assert_eq!(name, "blocks/000000000000002a.block");
        assert_eq!(block_of("000000000000002a.block"), Some(BlockId(42)));
        for other in ["000000000000002A.block", "2a.block", "+00000000000002a.block", "000000000000002a.block.old", ""]
        {
            assert_eq!(block_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_names_of_readers_are_taken_for_readers() {
        assert_eq!(reader_name(4711, 2), "readers/4711-2");
        assert!(is_reader_name("4711-2"));
        for other in ["4711", "4711-", "-2", "04711-2", "4711-+2", "4711-2.old", ""] {
            assert!(!is_reader_name(other), "{other}");
        }
    }

    #[test]
    fn only_names_of_log_files_are_taken_for_log_files() {
        assert_eq!(log_name(42), "log/000000000000002a.log");
        assert_eq!(log_of("000000000000002a.log"), Some(42));
        assert_eq!(log_of("ffffffffffffffff.log"), Some(u64::MAX));
        assert_eq!(
            (log_of("000000000000002a.closed.log"), closed_log_name(42)),
            (Some(42), "log/000000000000002a.closed.log".into())
        );
        assert_eq!((closed_log_of("000000000000002a.log"), open_log_of("000000000000002a.closed.log")), (None, None));
        assert_eq!(delta_of(delta_name(42).strip_prefix("log/").unwrap()), Some(42));
        let new = new_log_name(42);
        for other in ["000000000000002A.log", "2a.log", "+00000000000002a.log", &new["log/".len()..], ""] {
            assert_eq!(log_of(other), None, "{other}");
        }
    }
}
