//! An open database: snapshots to read from, and commits that publish new ones.
//!
//! ```text
//!   write_block  blocks/N.block written, synced                 nobody can see it
//!   commit       blocks/ synced                                 its name is durable
//!                catalog.new written, synced
//!                catalog.new renamed to catalog, root synced    <- the commit has happened
//!                snapshot exchanged                             readers that start now see it
//!                replaced block files removed                   when their last reader is gone
//! ```
//!
//! A crash before the rename leaves the old catalog, after it the new one; the files that the surviving catalog
//! does not name are removed when the database is opened again.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use taut_types::TableDesign;

use crate::catalog::{Changed, Lead, format};
use crate::directory::{BLOCKS, CATALOG, CATALOG_NEW, Directory, ROOT, block_name};
use crate::disk::{Disk, FileDisk, MemoryDisk, WriteFile};
use crate::error::{CommitError, FileError, OpenError, WriteError};
use crate::open::{OpenOptions, open};
use crate::{BlockEntry, BlockFile, CacheStatistics, Catalog, CatalogEdit, NewBlock};
use taut_block::{BlockImage, checksum};

/// An open database. Clones share it; it is closed when the last one and all snapshots are gone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: Arc<Directory>,
    snapshot: RwLock<Arc<Catalog>>,
    commits: Mutex<Commits>,
    is_read_only: bool,
}

/// What only one commit at a time may touch.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Blocks of commits whose outcome is uncertain. Their files must stay until a commit succeeds, or until the
    /// database is opened again, for the catalog on disk may name them.
    uncertain: Vec<Arc<BlockFile>>,
}

impl Store {
    /// Opens the database in a directory of the file system.
    ///
    /// # Errors
    /// When there is none and none is to be created, another process has it open, it was written by another
    /// version, or it is damaged. Nothing that is no database is changed.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(FileDisk::new(path)), options)
    }

    /// A new database in memory, which ends with its last holder.
    ///
    /// # Errors
    /// Never, as far as memory reaches.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::open_on(Arc::new(MemoryDisk::new()), OpenOptions { create: true, ..OpenOptions::default() })
    }

    /// Opens the database on a disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Self, OpenError> {
        let (directory, catalog) = open(disk, options)?;
        let (snapshot, commits) = (RwLock::new(Arc::new(catalog)), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { directory, snapshot, commits, is_read_only: options.inspect }) })
    }

    /// Where the database lies, for messages.
    pub fn path(&self) -> PathBuf {
        self.inner.directory.disk.path(ROOT)
    }

    /// What the database holds now.
    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.inner.snapshot.read())
    }

    /// What the cache of sections did so far, and holds.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.inner.directory.cache.statistics()
    }

    /// Writes a block to a file of its own, durably. Nobody sees it until it is committed.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is left of it then.
    pub fn write_block(&self, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        if self.inner.is_read_only {
            return Err(WriteError::ReadOnly);
        }
        let directory = &self.inner.directory;
        let id = directory.allocate_block();
        let entry = BlockEntry {
            id,
            file_bytes: image.bytes(),
            header_bytes: image.header.len() as u64,
            header_checksum: checksum(&image.header),
            rows: image.rows,
            plain_bytes: image.plain_bytes,
            segments: image.segments,
            layout: design.layout.name().into(),
            lead: Lead::of(design, &image.statistics),
        };
        let file = Arc::new(BlockFile::new(Arc::clone(directory), entry));
        file.remove_on_drop(true);
        write_file(directory, &block_name(id), |mut to| image.write_to(&mut to))
            .map_err(|source| WriteError::File { block: id, source })?;
        Ok(NewBlock { file, statistics: image.statistics.clone(), partition: None })
    }

    /// Makes changes to the catalog, all or none, durably. Readers that start afterwards see them.
    ///
    /// One commit runs at a time. The new blocks of one that fails are removed.
    ///
    /// # Errors
    /// What `change` returns, in which case nothing happens; or when the catalog cannot be written.
    pub fn commit<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        let inner = &*self.inner;
        if inner.is_read_only {
            return Err(CommitError::ReadOnly.into());
        }
        let mut commits = inner.commits.lock();
        let before = self.snapshot();
        let mut edit = CatalogEdit::new(&before, &inner.directory);
        let value = change(&mut edit)?;
        let Changed { catalog: mut after, added, removed } = edit.finish();
        if !after.defines_like(&before) {
            after.definitions = after.version;
        }
        match publish(&inner.directory, &before, &after, !added.is_empty()) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, CommitError::Uncertain { .. }) {
                    commits.uncertain.extend(added);
                }
                return Err(error.into());
            }
        }
        added.iter().for_each(|block| block.remove_on_drop(false));
        removed.iter().for_each(|block| block.remove_on_drop(true));
        *inner.snapshot.write() = Arc::new(after);
        // Only now, for their files go with them.
        commits.uncertain.clear();
        drop(commits);
        Ok(value)
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.inner.directory
    }

    /// Keeps commits away as long as the guard lives.
    pub(crate) fn hold_commits(&self) -> MutexGuard<'_, Commits> {
        self.inner.commits.lock()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for block in &self.commits.get_mut().uncertain {
            block.remove_on_drop(false);
        }
    }
}

/// Replaces the catalog on disk. When that fails, the one before is there again, durably, or the error says that it
/// may not be.
fn publish(directory: &Directory, before: &Catalog, after: &Catalog, has_blocks: bool) -> Result<(), CommitError> {
    let bytes = format::to_bytes(after)?;
    if has_blocks {
        directory.disk.sync_directory(BLOCKS).map_err(|source| directory.error("sync", BLOCKS, source))?;
    }
    write_new_catalog(directory, &bytes)?;
    let Err(attempt) = rename_new_catalog(directory) else { return Ok(()) };
    let restored =
        write_new_catalog(directory, &format::to_bytes(before)?).and_then(|()| rename_new_catalog(directory));
    match restored {
        Ok(()) => Err(CommitError::File(attempt)),
        Err(source) => Err(CommitError::Uncertain { attempt, source }),
    }
}

/// Writes the first catalog of a database.
pub(crate) fn publish_first(directory: &Directory, catalog: &Catalog) -> Result<(), FileError> {
    let bytes = format::to_bytes(catalog).map_err(|error| directory.error("encode", CATALOG_NEW, error.into()))?;
    write_new_catalog(directory, &bytes)?;
    rename_new_catalog(directory)
}

fn write_new_catalog(directory: &Directory, bytes: &[u8]) -> Result<(), FileError> {
    let written = write_file(directory, CATALOG_NEW, |to| to.write_all(bytes));
    if written.is_err() {
        // Left behind, it would only take room.
        let _ = directory.disk.remove(CATALOG_NEW);
    }
    written
}

/// Puts the new catalog in place. When this fails, either one may be there.
fn rename_new_catalog(directory: &Directory) -> Result<(), FileError> {
    let disk = &directory.disk;
    disk.rename(CATALOG_NEW, CATALOG).map_err(|source| directory.error("rename", CATALOG_NEW, source))?;
    disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))
}

/// Creates a file with what `content` writes, and syncs it.
fn write_file(
    directory: &Directory,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    const BUFFER_BYTES: usize = 1 << 20;
    let mut file = directory.disk.create(name).map_err(|source| directory.error("create", name, source))?;
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, Written(&mut *file));
    let written = content(&mut buffered).and_then(|()| buffered.flush());
    // What is still buffered after a failure must not be written by the drop.
    drop(buffered.into_parts());
    written.map_err(|source| directory.error("write", name, source))?;
    file.sync().map_err(|source| directory.error("sync", name, source))
}

/// A file of a disk, as a writer of the standard library.
struct Written<'a>(&'a mut dyn WriteFile);

impl Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
