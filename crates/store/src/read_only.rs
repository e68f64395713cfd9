//! Opening a database read-only, and refreshing it. Nothing is written except the reader's own file.
//!
//! A reader registers, so that a writer keeps the files that it needs (`readers.rs`). If it cannot create a file, for
//! example on a read-only file system, it holds the shared lock of the directory instead. Then no writer can open the
//! database. If a writer has it open, the reader is refused.
//!
//! A reader reads the log up to the last complete record. After that there may be a record that the writer is writing,
//! or the remains of a crash, which the next writer reports. The reader syncs what it reads. So a commit that it has
//! seen survives a power loss, like an acknowledged one.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use taut_block::checksum;

use crate::directory::{CATALOG, Directory, LOCK, LOG, READERS, ROOT, log_name, log_of};
use crate::disk::{Disk, read_whole};
use crate::error::{FileError, OpenError};
use crate::log;
use crate::open::{
    OpenOptions, OpenedDatabase, Recovery, build, check_root, file_error, missing_blocks, read_catalog, replay,
};
use crate::readers::Reader;
use crate::store::clock;
use crate::{BlockFile, BlockId, Cache, Catalog, Store, Table};

/// The end of the last read, to detect newer commits.
#[derive(Debug)]
pub(crate) struct ReadPosition {
    /// XXH3 of the catalog file.
    catalog: u64,
    /// Number of the last log file, and its bytes up to the end of the last complete record.
    log: Option<(u64, u64)>,
    /// The last version that is certain to remain. Commits after it may be undone if the writer cannot write its log.
    settled: u64,
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<OpenedDatabase, OpenError> {
    check_root(&*disk, false).map_err(|error| match (error, disk.lock_holder(LOCK)) {
        (OpenError::Empty { path }, Some(holder)) => OpenError::Creating { path, holder },
        (error, _) => error,
    })?;
    let cache = Cache::new(options.cache_bytes.unwrap_or_else(Cache::default_limit));
    let directory = match Reader::register(&*disk) {
        Ok(reader) => Directory::of_reader(disk, Box::new(crate::disk::NoLock), reader, cache),
        Err(source) => {
            let locked = disk.lock_shared(LOCK).map_err(|source| file_error(&*disk, "lock", ROOT, source))?;
            let Some(lock) = locked else {
                let (path, readers) = (disk.path(ROOT), disk.path(READERS));
                return Err(OpenError::NotRegistered { path, holder: disk.lock_holder(LOCK), readers, source });
            };
            Directory::of_reader(disk, lock, Reader::unregistered(), cache)
        }
    };
    let directory = Arc::new(directory);
    let (catalog, recovery, position) = load(&directory)?;
    directory.reader().into_iter().for_each(|reader| reader.reads(Some(position.settled), &[]));
    Ok(OpenedDatabase { directory, catalog, recovery, log: None, retention: None, position: Some(position) })
}

impl Store {
    /// Updates a database that is open read-only to the last commit, as if it were opened now. Returns whether there is
    /// a newer commit than before. Existing snapshots and transactions do not change. A database that is open for
    /// writing always shows the last commit.
    ///
    /// # Errors
    /// If the catalog or the log cannot be read, or the path leads to another database. The visible state does not
    /// change then.
    pub fn refresh(&self) -> Result<bool, OpenError> {
        let directory = self.directory();
        // Held to the end, so that there is only one refresh at a time.
        let mut position = self.inner.position.lock();
        let (Some(reader), Some(known)) = (directory.reader(), &mut *position) else { return Ok(false) };
        if known.is_newest(&*directory.disk) {
            return Ok(false);
        }
        let before = self.snapshot();
        let reading = Reading::begin(directory, reader)?;
        let load_same = || match load(directory)? {
            (after, ..) if after.database != before.database => {
                Err(OpenError::Replaced { path: directory.disk.path(ROOT) })
            }
            loaded => Ok(loaded),
        };
        let (mut after, mut recovery, mut read) = load_same()?;
        let registered = reader.register_again(&*directory.disk);
        if registered.map_err(|source| directory.error("create a file in", READERS, source))? {
            // The writer may have removed files of what was read before it knew of this reader again.
            (after, recovery, read) = load_same()?;
        }
        share_blocks(&mut after, &before);
        after.definitions =
            if after.defines_like(&before) { before.definitions } else { directory.allocate_definitions() };
        let gone = gone(&before, &after);
        reading.end(read.settled, &gone);
        *known = read;
        let (is_newer, after) = (after.version != before.version, Arc::new(after));
        let mut commits = self.inner.commits.lock();
        commits.newest = Arc::clone(&after);
        commits.last_time = recovery.last_time.unwrap_or(i64::MIN);
        *self.inner.snapshot.write() = after;
        drop(commits);
        // Blocks that nobody reads are released here, the others by their last reader.
        gone.iter().for_each(|block| block.remove_from(0));
        Ok(is_newer)
    }

    /// Reads the last commit from the files without making it visible. Returns its database and version.
    pub(crate) fn read_newest(&self) -> Result<(u64, u64), OpenError> {
        let directory = self.directory();
        let _position = self.inner.position.lock();
        let _reading = directory.reader().map(|reader| Reading::begin(directory, reader)).transpose()?;
        let (catalog, ..) = load(directory)?;
        Ok((catalog.database, catalog.version))
    }
}

/// Guard while a reader reads the catalog and the log. Dropping it early announces the previous version again.
struct Reading<'a> {
    reader: &'a Reader,
    has_ended: bool,
}

impl<'a> Reading<'a> {
    fn begin(directory: &Directory, reader: &'a Reader) -> Result<Self, FileError> {
        let reading = Self { reader, has_ended: false };
        reader.reads_everything().map_err(|source| directory.error("write a file in", READERS, source))?;
        Ok(reading)
    }

    fn end(mut self, version: u64, gone: &[Arc<BlockFile>]) {
        self.has_ended = true;
        self.reader.reads(Some(version), gone);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.reader.reads(None, &[]);
        }
    }
}

impl ReadPosition {
    /// Whether nothing was committed since, as far as a quick check shows.
    fn is_newest(&self, disk: &dyn Disk) -> bool {
        let looked = || -> io::Result<bool> {
            if checksum(&read_whole(disk, CATALOG)?) != self.catalog {
                return Ok(false);
            }
            let Some((number, bytes)) = self.log else { return Ok(true) };
            let has_next = disk.list(LOG)?.iter().filter_map(|entry| log_of(&entry.name)).any(|other| other > number);
            let (_, file) = log::open_file(disk, number)?;
            // The first eight bytes of a record are not all zero. The extension of a file that is not written yet is
            // zeros.
            let mut next = vec![0; file.length()?.saturating_sub(bytes).min(8) as usize];
            file.read_at(bytes, &mut next)?;
            Ok(!has_next && next.iter().all(|byte| *byte == 0))
        };
        // After an error, `load` reads everything again, while nothing can be removed.
        looked().unwrap_or(false)
    }
}

/// Reads the catalog and the log, even while a writer appends to the log.
fn load(directory: &Arc<Directory>) -> Result<(Catalog, Recovery, ReadPosition), OpenError> {
    let mut damage = None;
    loop {
        match load_once(directory) {
            // A file is not read atomically. A record may be missing while a later record, which states that it is
            // durable, was already read. So damage counts only if it is found twice.
            Err(OpenError::Corrupt { path, at, expected }) => {
                if damage.as_ref() == Some(&(path.clone(), at)) {
                    return Err(OpenError::Corrupt { path, at, expected });
                }
                damage = Some((path, at));
            }
            other => return other,
        }
    }
}

fn load_once(directory: &Arc<Directory>) -> Result<(Catalog, Recovery, ReadPosition), OpenError> {
    let (disk, begun) = (&*directory.disk, clock());
    let bytes = read_whole(disk, CATALOG).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: disk.path(ROOT) },
        _ => file_error(disk, "read", CATALOG, source).into(),
    })?;
    let file = read_catalog(disk, &bytes)?;
    // A backup of this snapshot writes these numbers.
    directory.reserve((file.next_block, file.next_table));
    let (first, delta) = (file.log, file.delta);
    let catalog = build(file, directory);
    let (catalog, mut recovery) = match first {
        None => (catalog, Recovery::nothing()),
        Some(first) => replay(catalog, first, delta, directory)?,
    };
    let log = recovery.end().map(|end| (end.number, end.bytes));
    if let Some((number, _)) = log {
        let synced = sync_read(log::sync_file(disk, number));
        synced.map_err(|source| file_error(disk, "sync", &log_name(number), source))?;
        sync_read(disk.sync_directory(LOG)).map_err(|source| file_error(disk, "sync", LOG, source))?;
    }
    recovery.missing_blocks = missing_blocks(directory, &catalog)?;
    // The time of a checkpoint is not known, but it is before `begun`, and later commits are after it.
    recovery.last_time = recovery.last_time.or(Some(begun));
    if directory.reader().is_some_and(Reader::is_registered) {
        // The tail may be a record that a writer is writing now.
        recovery.cut = None;
    }
    let settled = recovery.end().map_or(catalog.version, |end| end.settled_sequence());
    Ok((catalog, recovery, ReadPosition { catalog: checksum(&bytes), log, settled }))
}

/// Result of a sync by a reader. Ignores errors of media that cannot be written, and of file systems that do not let a
/// reader sync.
fn sync_read(result: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    match result {
        Err(error) if [ReadOnlyFilesystem, PermissionDenied, Unsupported, InvalidInput].contains(&error.kind()) => {
            Ok(())
        }
        result => result,
    }
}

/// Reuses the block files of the previous catalog, because their headers and sections are in memory.
fn share_blocks(after: &mut Catalog, before: &Catalog) {
    let known: HashMap<BlockId, &Arc<BlockFile>> = before.blocks().map(|block| (block.id(), block)).collect();
    let tables: Vec<Arc<Table>> = after.tables.iter().map(Arc::clone).collect();
    for table in tables {
        let shared = |block: &Arc<BlockFile>| match known.get(&block.id()) {
            Some(known) if known.entry() == block.entry() => Arc::clone(known),
            _ => Arc::clone(block),
        };
        let blocks = Arc::new(table.blocks.iter().map(shared).collect());
        after.tables.insert(Arc::new(Table { blocks, ..table.as_ref().clone() }));
    }
}

/// The blocks that only the previous catalog references.
fn gone(before: &Catalog, after: &Catalog) -> Vec<Arc<BlockFile>> {
    let named: HashMap<BlockId, &Arc<BlockFile>> = after.blocks().map(|block| (block.id(), block)).collect();
    let is_gone = |block: &&Arc<BlockFile>| named.get(&block.id()).is_none_or(|named| !Arc::ptr_eq(named, block));
    before.blocks().filter(is_gone).map(Arc::clone).collect()
}
