//! Opening a database read-only. Nothing is written except the reader's own file.
//!
//! A reader registers, so that a writer keeps the files that the reader needs (`readers.rs`). If the reader cannot
//! create a file, for example on a read-only file system, it holds the shared lock of the directory instead. Then no
//! writer can open the database. If a writer has it open, opening fails.
//!
//! A reader reads the log up to the last complete record. After that there may be a record that the writer is writing,
//! or the remains of a crash, which the next writer reports. The reader syncs what it reads. So a commit that it has
//! seen survives a power loss, like an acknowledged one.

use std::io;
use std::sync::Arc;

use taut_block::checksum;

use crate::catalog::record::now_in_micros;
use crate::directory::Directory;
use crate::disk::{Disk, read_whole};
use crate::error::OpenError;
use crate::files::{CATALOG, LOCK, LOG, READERS, ROOT, file_error, log_name, parse_log_name};
use crate::log;
use crate::open::{OpenOptions, OpenedDatabase, Recovery, build_catalog, missing_blocks, read_catalog, replay};
use crate::readers::Reader;
use crate::root::check_root;
use crate::{Cache, Catalog};

/// Position up to which the files were last read, to detect newer commits.
#[derive(Debug)]
pub(crate) struct ReadPosition {
    /// XXH3 of the catalog file.
    catalog: u64,
    /// Number of the last log file, and its bytes up to the end of the last complete record.
    log: Option<(u64, u64)>,
    /// The last version that is certain to remain. Commits after it may be undone if the writer cannot write its log.
    pub durable_version: u64,
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<(OpenedDatabase, ReadPosition), OpenError> {
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
    directory.reader().into_iter().for_each(|reader| reader.announce_version(position.durable_version, &[]));
    Ok((OpenedDatabase { directory, catalog, recovery, log: None, retention: None }, position))
}

impl ReadPosition {
    /// Quick check for newer commits. Returns true if the catalog and the end of the log are unchanged.
    pub fn is_newest(&self, disk: &dyn Disk) -> bool {
        let is_unchanged = || -> io::Result<bool> {
            if checksum(&read_whole(disk, CATALOG)?) != self.catalog {
                return Ok(false);
            }
            let Some((number, bytes)) = self.log else { return Ok(true) };
            let has_next =
                disk.list(LOG)?.iter().filter_map(|entry| parse_log_name(&entry.name)).any(|other| other > number);
            let (_, file) = log::open_file(disk, number)?;
            // The first eight bytes of a record are not all zero. A file that was extended ahead of its records has
            // zeros there.
            let mut next = vec![0; file.length()?.saturating_sub(bytes).min(8) as usize];
            file.read_at(bytes, &mut next)?;
            Ok(!has_next && next.iter().all(|byte| *byte == 0))
        };
        // After an error, the caller announces that it needs all files, and then reads everything again.
        is_unchanged().unwrap_or(false)
    }
}

/// Reads the catalog and the log, even while a writer appends to the log.
pub(crate) fn load(directory: &Arc<Directory>) -> Result<(Catalog, Recovery, ReadPosition), OpenError> {
    let mut damage = None;
    loop {
        match load_once(directory) {
            // A file is not read atomically. The bytes read may lack a record, but include a later record which states
            // that the missing one is durable. So damage is an error only if two reads find it at the same offset.
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
    let (disk, reading_began) = (&*directory.disk, now_in_micros());
    let bytes = read_whole(disk, CATALOG).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: disk.path(ROOT) },
        _ => file_error(disk, "read", CATALOG, source).into(),
    })?;
    let file = read_catalog(disk, &bytes)?;
    // A backup of this snapshot writes these ids to its catalog.
    directory.reserve_ids_below((file.next_block, file.next_table));
    let (first, delta) = (file.log, file.delta);
    let catalog = build_catalog(file, directory);
    let (catalog, mut recovery) = match first {
        None => (catalog, Recovery::without_log()),
        Some(first) => replay(catalog, first, delta, directory)?,
    };
    let log = recovery.end().map(|end| (end.number, end.bytes));
    if let Some((number, _)) = log {
        let synced = ignore_unsupported_sync(log::sync_file(disk, number));
        synced.map_err(|source| file_error(disk, "sync", &log_name(number), source))?;
        ignore_unsupported_sync(disk.sync_directory(LOG)).map_err(|source| file_error(disk, "sync", LOG, source))?;
    }
    recovery.missing_blocks = missing_blocks(directory, &catalog)?;
    // The time of a checkpoint is not known, but it is before `reading_began`, and later commits are after it.
    recovery.last_time = recovery.last_time.or(Some(reading_began));
    if directory.reader().is_some_and(Reader::is_registered) {
        // The tail may be a record that a writer is writing now.
        recovery.torn_tail = None;
    }
    let durable_version = recovery.end().map_or(catalog.version, |end| end.durable_sequence());
    Ok((catalog, recovery, ReadPosition { catalog: checksum(&bytes), log, durable_version }))
}

/// Result of a sync by a reader. Ignores errors of media that cannot be written, and of file systems that do not let a
/// reader sync.
fn ignore_unsupported_sync(result: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    match result {
        Err(error) if [ReadOnlyFilesystem, PermissionDenied, Unsupported, InvalidInput].contains(&error.kind()) => {
            Ok(())
        }
        result => result,
    }
}
