//! Opening a database read-only, and seeing what was committed since: nothing is written but the reader's own file.
//!
//! A reader registers, so that a writer keeps the files that it needs (`readers.rs`). Where it has no right to create a file,
//! or the file system is mounted read-only, it holds the shared lock of the directory instead: no writer can have the
//! database open then. It is refused where one has.
//!
//! It reads the log up to the last whole record. What follows is a record that the writer is writing, or what a crash left;
//! the next writer reports that. What it reads, it syncs: a commit that was seen survives a loss of power, as one that was
//! acknowledged does.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use taut_block::checksum;

use crate::directory::{CATALOG, Directory, LOCK, LOG, READERS, ROOT, log_name, log_of};
use crate::disk::{Disk, read_whole};
use crate::error::{FileError, OpenError};
use crate::log;
use crate::open::{OpenOptions, Opened, Recovery, build, check_root, file_error, missing_blocks, read_catalog, replay};
use crate::readers::Reader;
use crate::store::clock;
use crate::{BlockFile, BlockId, Cache, Catalog, Store, Table};

/// Where reading ended, to see whether anything came since.
#[derive(Debug)]
pub(crate) struct ReadPosition {
    /// xxh3 of the catalog's file.
    catalog: u64,
    /// The last log file, and how many of its bytes are whole records.
    log: Option<(u64, u64)>,
    /// The last version that surely remains: commits after it may be undone if the writer cannot write its log.
    settled: u64,
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Opened, OpenError> {
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
    Ok(Opened { directory, catalog, recovery, log: None, retention: None, position: Some(position) })
}

impl Store {
    /// Has a database that is open read-only show the last commit, as if it was opened now; returns whether there is a
    /// newer one than before. Snapshots and transactions from before still show what they did. A database that is open for
    /// writing always shows the last commit.
    ///
    /// # Errors
    /// When the catalog or the log cannot be read, or the path leads to another database; what is shown is then as before.
    pub fn refresh(&self) -> Result<bool, OpenError> {
        let directory = self.directory();
        // Held to the end: only one refreshes at a time.
        let mut position = self.inner.position.lock();
        let (Some(reader), Some(known)) = (directory.reader(), &mut *position) else { return Ok(false) };
        if known.is_newest(&*directory.disk) {
            return Ok(false);
        }
        let before = self.snapshot();
        let reading = Reading::begin(directory, reader)?;
        let (mut after, recovery, read) = load(directory)?;
        if after.database != before.database {
            return Err(OpenError::Replaced { path: directory.disk.path(ROOT) });
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
        // Those that nobody reads are released here, and the others by who reads them.
        gone.iter().for_each(|block| block.remove_from(0));
        Ok(is_newer)
    }

    /// Reads the last commit from the files without showing it; its database and version.
    pub(crate) fn read_newest(&self) -> Result<(u64, u64), OpenError> {
        let directory = self.directory();
        let _position = self.inner.position.lock();
        let _reading = directory.reader().map(|reader| Reading::begin(directory, reader)).transpose()?;
        let (catalog, ..) = load(directory)?;
        Ok((catalog.database, catalog.version))
    }
}

/// That a reader reads the catalog and log. Dropping it goes back to the version from before.
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
    /// Whether nothing was committed since, as far as that is seen at once.
    fn is_newest(&self, disk: &dyn Disk) -> bool {
        let looked = || -> io::Result<bool> {
            if checksum(&read_whole(disk, CATALOG)?) != self.catalog {
                return Ok(false);
            }
            let Some((number, bytes)) = self.log else { return Ok(true) };
            let has_next = disk.list(LOG)?.iter().filter_map(|entry| log_of(&entry.name)).any(|other| other > number);
            let (_, file) = log::open_file(disk, number)?;
            // A record begins with a number other than zero; what is extended, but not written yet, is zeros.
            let mut next = vec![0; file.length()?.saturating_sub(bytes).min(8) as usize];
            file.read_at(bytes, &mut next)?;
            Ok(!has_next && next.iter().all(|byte| *byte == 0))
        };
        // Whatever fails here is looked at again while nothing can be removed.
        looked().unwrap_or(false)
    }
}

/// Reads the catalog and the log, while a writer may be appending to it.
fn load(directory: &Arc<Directory>) -> Result<(Catalog, Recovery, ReadPosition), OpenError> {
    let mut damage = None;
    loop {
        match load_once(directory) {
            // A file is not read at one moment. A record may be missing that was written while a later one, which says that
            // it is durable, is already there. So damage is where it is still found after that.
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
    // A backup of what is read tells them.
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
    // Of a checkpoint the time is not known, but it is before that, and what follows is after it.
    recovery.last_time = recovery.last_time.or(Some(begun));
    if directory.reader().is_some_and(Reader::is_registered) {
        // It may be a record that a writer is writing now.
        recovery.cut = None;
    }
    let settled = recovery.end().map_or(catalog.version, |end| end.settled_sequence());
    Ok((catalog, recovery, ReadPosition { catalog: checksum(&bytes), log, settled }))
}

/// A sync by who only reads. What cannot be written needs none, and some file systems do not let a reader sync.
fn sync_read(result: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    match result {
        Err(error) if [ReadOnlyFilesystem, PermissionDenied, Unsupported, InvalidInput].contains(&error.kind()) => {
            Ok(())
        }
        result => result,
    }
}

/// Takes the blocks that were known before from there: what was read of them is in memory.
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

/// The blocks that only the version before names.
fn gone(before: &Catalog, after: &Catalog) -> Vec<Arc<BlockFile>> {
    let named: HashMap<BlockId, &Arc<BlockFile>> = after.blocks().map(|block| (block.id(), block)).collect();
    let is_gone = |block: &&Arc<BlockFile>| named.get(&block.id()).is_none_or(|named| !Arc::ptr_eq(named, block));
    before.blocks().filter(is_gone).map(Arc::clone).collect()
}
