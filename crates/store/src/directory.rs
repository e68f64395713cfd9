//! The database directory: the names in it, and what all its block files share.
//!
//! ```text
//!   catalog                        what the database holds; replaced whole by every commit
//!   catalog.new                    the next catalog, while a commit writes it
//!   lock                           empty; locked while a process has the database open
//!   blocks/000000000000002a.block  block 42: immutable, named by its number, never reused once committed
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, Lock, ReadFile};
use crate::error::FileError;
use crate::{BlockId, Cache};

pub(crate) const CATALOG: &str = "catalog";
pub(crate) const CATALOG_NEW: &str = "catalog.new";
pub(crate) const LOCK: &str = "lock";
pub(crate) const BLOCKS: &str = "blocks";
/// The name of the database directory itself.
pub(crate) const ROOT: &str = "";

const BLOCK_SUFFIX: &str = ".block";

/// The name of a block's file.
pub(crate) fn block_name(block: BlockId) -> String {
    format!("{BLOCKS}/{block}{BLOCK_SUFFIX}")
}

/// The block of a file directly in `blocks`, where the name is one that [`block_name`] gives.
pub(crate) fn block_of(name: &str) -> Option<BlockId> {
    let block = BlockId(u64::from_str_radix(name.strip_suffix(BLOCK_SUFFIX)?, 16).ok()?);
    (block_name(block).strip_prefix(BLOCKS)?.strip_prefix('/')? == name).then_some(block)
}

/// What block files share. The lock is held as long as any of them lives, for the last holder may remove files.
#[derive(Debug)]
pub(crate) struct Directory {
    pub disk: Arc<dyn Disk>,
    pub cache: Cache,
    files: Mutex<VecDeque<(BlockId, Arc<dyn ReadFile>)>>,
    next_block: AtomicU64,
    _lock: Box<dyn Lock>,
}

/// Open files kept for the next read; operating systems allow a process about a thousand.
const OPEN_FILES_MAX: usize = 128;

impl Directory {
    pub fn new(disk: Arc<dyn Disk>, lock: Box<dyn Lock>, cache: Cache, next_block: u64) -> Self {
        let (files, next_block) = (Mutex::default(), AtomicU64::new(next_block));
        Self { disk, cache, files, next_block, _lock: lock }
    }

    /// A number that no block has or had since the database was opened.
    pub fn allocate_block(&self) -> BlockId {
        BlockId(self.next_block.fetch_add(1, Ordering::Relaxed))
    }

    /// The number that the next block will have.
    pub fn next_block(&self) -> u64 {
        self.next_block.load(Ordering::Relaxed)
    }

    /// The file of a block, opened now or kept open from before.
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

    /// Closes the file of a block, so that the next read finds the one that has its name by then.
    pub fn close_block(&self, block: BlockId) {
        self.files.lock().retain(|(open, _)| *open != block);
    }

    /// Removes the file of a block that nobody can name any more. What fails here is made up for when the database
    /// is opened the next time.
    pub fn remove_block(&self, block: BlockId) {
        self.close_block(block);
        let _ = self.disk.remove(&block_name(block));
    }

    /// An error of an operation on one of the names.
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
}
