//! A block file: its entry in the catalog, its header, and its sections, which are read through the cache.
//!
//! Bytes are verified when they are read into memory, and then served without further checks. The header is verified
//! against the checksum in the catalog, each section against the checksum in the header.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arrow_buffer::{Buffer, MutableBuffer};
use taut_types::{ColumnStatistics, Partitioning};

use crate::cache::CachedSections;
use crate::directory::Directory;
use crate::error::{FileError, ReadError};
use crate::files::{READERS, block_name};
use crate::{BlockEntry, BlockId};
use taut_block::{
    Block, BlockError, ColumnMap, ColumnSource, DerivedLookup, Extreme, SectionEntry, SectionError, Sections, checksum,
};

/// The file of a block, with the columns of one version of its table. Once the newest catalog no longer references the
/// block, dropping the last reference to the file removes it.
///
/// If a column is added to the table or dropped from it, the table gets another `BlockFile` with the same file and
/// another map of columns. Readers of the previous version continue with the previous `BlockFile`.
#[derive(Debug)]
pub struct BlockFile {
    entry: BlockEntry,
    /// Maps columns of the table to columns in the file. `None` if they are the same.
    columns: Option<Arc<ColumnMap>>,
    /// The opened block with these columns, created on first use.
    mapped: OnceLock<Arc<Block>>,
    shared: Arc<SharedFile>,
}

/// What all versions of a block have in common: the file, and the parts of it that are in memory.
#[derive(Debug)]
struct SharedFile {
    directory: Arc<Directory>,
    id: BlockId,
    opened: OnceLock<OpenedBlock>,
    /// The first version of the catalog that does not reference the block, or [`REFERENCED`].
    removed_in: AtomicU64,
}

/// Marks a block that the newest version references.
const REFERENCED: u64 = u64::MAX;

/// The cached state of an opened block. The block has the columns with which it was written.
#[derive(Clone, Debug)]
struct OpenedBlock {
    block: Arc<Block>,
    sections: Arc<CachedSections>,
}

impl BlockFile {
    pub(crate) fn new(directory: Arc<Directory>, entry: BlockEntry) -> Self {
        let (opened, removed_in) = (OnceLock::new(), AtomicU64::new(REFERENCED));
        let shared = Arc::new(SharedFile { directory, id: entry.id, opened, removed_in });
        Self { entry, columns: None, mapped: OnceLock::new(), shared }
    }

    /// The same block with a map of columns. Called before the block is opened.
    pub(crate) fn with_map(self, columns: Option<Arc<ColumnMap>>) -> Self {
        Self { columns, ..self }
    }

    /// The same file in a version of its table that has other columns. `entry` has the same file, and the index that
    /// its sort column has in this version.
    pub(crate) fn with_columns(&self, entry: BlockEntry, columns: Option<Arc<ColumnMap>>) -> Self {
        Self { entry, columns, mapped: OnceLock::new(), shared: Arc::clone(&self.shared) }
    }

    /// Maps columns of the table to columns in the file. `None` if they are the same.
    pub fn columns(&self) -> Option<&Arc<ColumnMap>> {
        self.columns.as_ref()
    }

    /// Returns a weak reference, which shows whether any version of the block is still held.
    pub(crate) fn downgrade(&self) -> WeakBlockFile {
        WeakBlockFile(Arc::downgrade(&self.shared))
    }

    /// Whether both refer to the same open file and header in memory.
    pub(crate) fn shares_file_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The catalog's entry for the block.
    pub fn entry(&self) -> &BlockEntry {
        &self.entry
    }

    /// Id of the block.
    pub fn id(&self) -> BlockId {
        self.entry.id
    }

    /// Opens the block for one scan. Its reads are counted in `counters`. The first call reads the header and keeps it
    /// in memory.
    ///
    /// # Errors
    /// If the header cannot be read, or is damaged.
    pub fn open(self: &Arc<Self>, counters: &Arc<ReadCounters>) -> Result<OpenBlock, ReadError> {
        let opened = match self.shared.opened.get() {
            Some(opened) => opened,
            None => {
                let block = self.read_header(counters).map_err(|error| self.add_table_name(error))?;
                let block = Arc::new(block);
                self.shared.opened.get_or_init(|| {
                    let sections = self.directory().cache.register(block.section_count());
                    OpenedBlock { block, sections }
                })
            }
        };
        let OpenedBlock { block, sections } = opened.clone();
        let block = match (&self.columns, self.mapped.get()) {
            (None, _) => block,
            (_, Some(mapped)) => Arc::clone(mapped),
            (_, None) => {
                let mapped = self.with_columns_of_table(&block).map_err(|error| self.add_table_name(error))?;
                Arc::clone(self.mapped.get_or_init(|| Arc::new(mapped)))
            }
        };
        let cache_slots = Some(sections);
        Ok(OpenBlock { file: Arc::clone(self), block, counters: Arc::clone(counters), cache_slots, fills_cache: true })
    }

    /// Opens the block like [`BlockFile::open`], for a caller that reads it once and then replaces it. Sections in the
    /// cache are used, but no section is added to the cache.
    ///
    /// # Errors
    /// If the header cannot be read, or is damaged.
    pub fn open_once(self: &Arc<Self>, counters: &Arc<ReadCounters>) -> Result<OpenBlock, ReadError> {
        Ok(OpenBlock { fills_cache: false, ..self.open(counters)? })
    }

    /// Opens the file again and reads its header, without the cache.
    pub(crate) fn open_uncached(self: &Arc<Self>) -> Result<OpenBlock, ReadError> {
        let counters = Arc::default();
        self.directory().close_block(self.id());
        let block = Arc::new(self.with_columns_of_table(&self.read_header(&counters)?)?);
        Ok(OpenBlock { file: Arc::clone(self), block, counters, cache_slots: None, fills_cache: false })
    }

    /// Opens the block from a damaged file. The header must be intact. Sections may be damaged or lie beyond the end of
    /// the file.
    pub(crate) fn open_damaged(self: &Arc<Self>) -> Result<OpenBlock, ReadError> {
        let counters = Arc::default();
        self.directory().close_block(self.id());
        let block = self.read_and_verify_header(&counters, None)?;
        let block = Arc::new(self.with_columns_of_table(&block)?);
        Ok(OpenBlock { file: Arc::clone(self), block, counters, cache_slots: None, fills_cache: false })
    }

    /// The block with the columns of its table.
    fn with_columns_of_table(&self, block: &Block) -> Result<Block, ReadError> {
        let path = || self.directory().disk.path(&block_name(self.id()));
        let mapped = block.with_columns(self.columns.clone());
        mapped.map_err(|source| ReadError::Block { path: path(), at: None, source })
    }

    fn read_header(&self, counters: &ReadCounters) -> Result<Block, ReadError> {
        self.read_and_verify_header(counters, Some(self.entry.file_bytes))
    }

    /// Reads and verifies the header. Checks the length of the file only if `file_length` is given.
    fn read_and_verify_header(&self, counters: &ReadCounters, file_length: Option<u64>) -> Result<Block, ReadError> {
        let BlockEntry { id, file_bytes, header_bytes, header_checksum, rows, segments, .. } = self.entry;
        let error = |operation, source| self.directory().error(operation, &block_name(id), source);
        let path = || self.directory().disk.path(&block_name(id));
        let file = self.directory().open_block(id).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => self.missing_file_error(),
            _ => error("open", source).into(),
        })?;
        let found = file.length().map_err(|source| error("measure", source))?;
        if let Some(expected) = file_length.filter(|expected| *expected != found) {
            return Err(ReadError::Length { path: path(), expected, found });
        }
        let length = usize::try_from(header_bytes).map_err(|_| error("read", io::ErrorKind::FileTooLarge.into()))?;
        let mut header = MutableBuffer::from_len_zeroed(length);
        file.read_at(0, &mut header).map_err(|source| error("read the header of", source))?;
        counters.count_disk(length);
        let found = checksum(&header);
        if found != header_checksum {
            return Err(ReadError::Checksum { path: path(), length: header_bytes, expected: header_checksum, found });
        }
        let block = Block::parse(header.into()).map_err(|source| ReadError::Header { path: path(), source })?;
        if block.rows() != rows {
            return Err(ReadError::Differs { path: path(), what: "rows", expected: rows, found: block.rows() });
        }
        if block.segments() as u64 != segments {
            let found = block.segments() as u64;
            return Err(ReadError::Differs { path: path(), what: "segments", expected: segments, found });
        }
        // Sections are contiguous up to the file length in the header.
        if block.file_length() != file_bytes {
            let found = block.file_length();
            return Err(ReadError::Differs { path: path(), what: "bytes", expected: file_bytes, found });
        }
        Ok(block)
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.shared.directory
    }

    /// The error of a block file that does not exist.
    fn missing_file_error(&self) -> ReadError {
        let disk = &*self.directory().disk;
        let path = disk.path(&block_name(self.id()));
        match self.directory().reader().is_some_and(|reader| reader.is_removed(disk)) {
            true => ReadError::Unregistered { path, readers: disk.path(READERS) },
            false => ReadError::Missing { path },
        }
    }

    /// Adds the table, and advice, to the error of a missing or damaged block.
    fn add_table_name(&self, error: ReadError) -> ReadError {
        match error.is_damage().then(|| self.directory().table_name_of(self.id())).flatten() {
            Some(table) => ReadError::Table { table, error: Box::new(error) },
            None => error,
        }
    }

    /// Marks the file for removal when the last holder is dropped. `version` is the first version of the catalog that
    /// does not reference the block, because the block was replaced or dropped. It is 0 for an uncommitted block, which
    /// no version references.
    pub(crate) fn remove_at_version(&self, version: u64) {
        self.shared.removed_in.store(version, Ordering::Release);
    }

    /// Revokes [`BlockFile::remove_at_version`]: the file stays when the last holder is dropped.
    pub(crate) fn cancel_removal(&self) {
        self.shared.removed_in.store(REFERENCED, Ordering::Release);
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.get() {
            self.directory.cache.unregister(&opened.sections);
        }
        match self.removed_in.load(Ordering::Acquire) {
            REFERENCED => {}
            version => self.directory.remove_block(self.id, version),
        }
    }
}

/// Reference to a block file that does not hold it.
#[derive(Clone, Debug)]
pub(crate) struct WeakBlockFile(Weak<SharedFile>);

impl WeakBlockFile {
    /// Whether a version of the block is still held.
    pub fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A block that is written and synced, but not committed. Its file is removed when the last copy is dropped.
#[derive(Clone, Debug)]
pub struct NewBlock {
    pub(crate) file: Arc<BlockFile>,
    pub(crate) statistics: Vec<ColumnStatistics>,
    /// The partition that contains all rows of the block.
    pub(crate) partition: Option<(Arc<Partitioning>, u32)>,
}

impl NewBlock {
    /// Sets the partition that contains all rows of the block. It is ignored if the table has another partitioning at
    /// commit.
    #[must_use]
    pub fn in_partition(self, partitioning: &Arc<Partitioning>, partition: u32) -> Self {
        Self { partition: Some((Arc::clone(partitioning), partition)), ..self }
    }

    /// Applies the column map of `old`. Both blocks must have the same rows, and their files the same columns.
    ///
    /// # Errors
    /// If the value of an added column is not of its type.
    pub fn with_columns_of(self, old: &BlockFile) -> Result<Self, BlockError> {
        let Some(map) = old.columns() else { return Ok(self) };
        let statistics = map.sources().iter().map(|source| match source {
            ColumnSource::Stored(column) => Ok(self.statistics.get(column.index()).cloned().unwrap_or_default()),
            ColumnSource::Added(added) => added.statistics(self.entry().rows),
        });
        let statistics = statistics.collect::<Result<_, BlockError>>()?;
        let entry = BlockEntry { sort_bounds: old.entry().sort_bounds.clone(), ..self.entry().clone() };
        let file = Arc::new(self.file.with_columns(entry, Some(Arc::clone(map))));
        Ok(Self { file, statistics, ..self })
    }

    /// The block file.
    pub fn file(&self) -> &Arc<BlockFile> {
        &self.file
    }

    /// Entry of the block in the catalog once it is committed.
    pub fn entry(&self) -> &BlockEntry {
        self.file.entry()
    }
}

/// A block opened for one scan.
#[derive(Clone, Debug)]
pub struct OpenBlock {
    file: Arc<BlockFile>,
    block: Arc<Block>,
    counters: Arc<ReadCounters>,
    /// The cache slots of the block. `None` if the cache is bypassed.
    cache_slots: Option<Arc<CachedSections>>,
    /// Whether sections that are read from the file are cached.
    fills_cache: bool,
}

impl OpenBlock {
    /// The parsed block. Its sections are read through `self`.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The block file.
    pub fn file(&self) -> &Arc<BlockFile> {
        &self.file
    }

    /// Path of the block file.
    pub(crate) fn path(&self) -> PathBuf {
        self.file.directory().disk.path(&block_name(self.file.id()))
    }

    /// Adds table, file and offset to an error of the block.
    pub fn locate(&self, error: BlockError) -> ReadError {
        self.file.add_table_name(self.locate_in_file(error))
    }

    /// Adds file and offset to an error of the block.
    pub(crate) fn locate_in_file(&self, error: BlockError) -> ReadError {
        if let BlockError::Section(SectionError::Io { source, .. }) = &error
            && source.kind() == io::ErrorKind::NotFound
            && let missing @ ReadError::Unregistered { .. } = self.file.missing_file_error()
        {
            return missing;
        }
        let (section, offset_in_section) = match &error {
            BlockError::Section(SectionError::Io { section, .. } | SectionError::Corrupt { section, .. }) => {
                (Some(*section), 0)
            }
            BlockError::Corrupt { section, at, .. } => (Some(*section), *at as u64),
            _ => (None, 0),
        };
        let section = section.and_then(|section| self.section_entry(section));
        let at = section.map(|section| section.offset.saturating_add(offset_in_section));
        ReadError::Block { path: self.path(), at, source: error }
    }

    /// Reads a range of the file without verifying it.
    pub(crate) fn read_raw(&self, bytes: Range<u64>) -> Result<Buffer, FileError> {
        let (directory, name) = (self.file.directory(), block_name(self.file.id()));
        self.read(bytes.start, bytes.end - bytes.start).map_err(|source| directory.error("read", &name, source))
    }

    fn section_entry(&self, index: u32) -> Option<SectionEntry> {
        (index < self.block.section_count()).then(|| self.block.section(index))
    }

    fn read(&self, offset: u64, length: u64) -> io::Result<Buffer> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = MutableBuffer::from_len_zeroed(length);
        self.file.directory().open_block(self.file.id())?.read_at(offset, &mut bytes)?;
        self.counters.count_disk(length);
        Ok(bytes.into())
    }
}

impl Sections for OpenBlock {
    fn section(&self, index: u32) -> Result<Buffer, SectionError> {
        if let Some(buffer) = self.cache_slots.as_ref().and_then(|cache_slots| cache_slots.get(index)) {
            self.counters.count_cache(buffer.len());
            return Ok(buffer);
        }
        let entry = self.section_entry(index);
        let entry = entry.ok_or(SectionError::Corrupt { section: index, expected: "a section with this number" })?;
        let buffer = self.read(entry.offset, entry.length);
        let buffer = buffer.map_err(|source| SectionError::Io { section: index, source })?;
        entry.verify(index, &buffer)?;
        Ok(match &self.cache_slots {
            Some(cache_slots) if self.fills_cache => self.file.directory().cache.insert(cache_slots, index, buffer),
            _ => buffer,
        })
    }

    fn extremes(&self, index: u32, extreme: Extreme) -> DerivedLookup {
        self.cache_slots.as_ref().map_or(DerivedLookup::Bypass, |cache_slots| cache_slots.extremes(index, extreme))
    }

    fn cache_extremes(&self, index: u32, extreme: Extreme, extremes: Buffer) {
        if let Some(cache_slots) = &self.cache_slots {
            self.file.directory().cache.insert_extremes(cache_slots, index, extreme, extremes);
        }
    }
}

/// Counters of the bytes that a query reads. Each thread of a query has its own, because it counts every section that
/// it reads. The alignment keeps the counters of two threads out of one cache line (no false sharing).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ReadCounters {
    disk_bytes: AtomicU64,
    cache_bytes: AtomicU64,
}

impl ReadCounters {
    /// Creates counters that are zero.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Bytes read from files.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes.load(Ordering::Relaxed)
    }

    /// Bytes found in the cache.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_bytes.load(Ordering::Relaxed)
    }

    fn count_disk(&self, bytes: usize) {
        self.disk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn count_cache(&self, bytes: usize) {
        self.cache_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
