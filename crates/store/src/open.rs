//! Opening and recovery of a database. The catalog is read, and the commits in the log are replayed. Then the remains
//! of an interrupted load, commit or checkpoint are removed.
//!
//! Every block file that the result references was durable before the commit that references it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use taut_block::{ColumnMap, checksum};

use crate::catalog::check::check;
use crate::catalog::file::write_catalog;
use crate::catalog::format::{self, CatalogFile, DeltaFileEntry, TableFile, Unreadable};
use crate::catalog::{Timelines, record};
use crate::delta::Delta;
use crate::directory::Directory;
use crate::disk::{Disk, read_whole};
use crate::error::{CommitError, FileError, OpenError};
use crate::files::{
    BLOCKS, CATALOG, CATALOG_NEW, LOCK, READERS, ROOT, block_name, delta_name, file_error, list, parse_block_name,
};
use crate::log::{self, FIRST_LOG, Log, LogEnd, TornTail};
use crate::readers;
use crate::retention::{Retention, remove_files_before};
use crate::root::check_root;
use crate::{BlockEntry, BlockFile, BlockId, Cache, Catalog, CatalogEdit, Constraints, Sequence, Table};

/// Options for opening a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether to create a database in a new or empty directory if there is none.
    pub create: bool,
    /// Whether the database is opened for inspection: nothing is removed, and nothing can be written. Unlike
    /// `read_only`, this fails while another process has it open for writing.
    pub inspect: bool,
    /// Whether the database is opened read-only, even while another process has it open for writing. Nothing is
    /// removed, repaired or upgraded, and nothing can be written. The visible state is the last commit at the time of
    /// opening, or of the last [`Store::refresh`](crate::Store::refresh).
    pub read_only: bool,
    /// Maximum bytes of sections in memory. `None` means [`Cache::default_limit`].
    pub cache_bytes: Option<usize>,
}

/// An opened database.
pub(crate) struct OpenedDatabase {
    pub directory: Arc<Directory>,
    pub catalog: Catalog,
    pub recovery: Recovery,
    /// The log for new commits, if it has begun.
    pub log: Option<Log>,
    /// Files that are retained for the next backup.
    pub retention: Option<Retention>,
}

/// What recovery found in the log when a database was opened.
#[derive(Debug)]
pub struct Recovery {
    /// Number of replayed commits.
    pub commits: u64,
    /// Sum of the payloads of the replayed log records, in bytes.
    pub bytes: u64,
    /// A damaged end of the log, which was ignored.
    pub torn_tail: Option<TornLogTail>,
    /// Block files that the catalog references and that do not exist. Reads of their tables fail if they need these
    /// files. All other tables can be used.
    pub missing_blocks: Vec<MissingBlock>,
    /// Time of the last replayed commit, in microseconds since 1970 in UTC, if known. If it is not known and the
    /// database is open read-only, the time at which reading began.
    pub last_time: Option<i64>,
    /// Where the log for new commits continues.
    log_start: LogStart,
}

#[derive(Debug)]
enum LogStart {
    /// No log was replayed: the database is new, or an earlier version of Taut without a log wrote it.
    NoLog,
    /// The log continues after this end.
    After(LogEnd),
}

/// An incomplete end of the log: a commit that a crash interrupted, or that was damaged later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornLogTail {
    /// Path of the log file.
    pub path: PathBuf,
    /// Offset at which its last complete commit ends.
    pub at: u64,
    /// Number of bytes after `at`, up to the last byte that is not zero.
    pub bytes: u64,
}

/// A missing block file of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingBlock {
    /// Name of the table.
    pub table: String,
    /// Path of the block file.
    pub path: PathBuf,
}

impl Display for MissingBlock {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { table, path } = self;
        write!(formatter, "table {table:?} is damaged: block file {} is missing", path.display())
    }
}

impl Display for TornLogTail {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { path, at, bytes } = self;
        write!(
            formatter,
            "{} ends with a complete commit at byte {at}; the {bytes} bytes after it are not one and are ignored",
            path.display()
        )
    }
}

impl Recovery {
    /// Recovery of a database without a log to replay: a new one, or one of an earlier version of Taut without a log.
    pub(crate) fn without_log() -> Self {
        Self {
            commits: 0,
            bytes: 0,
            torn_tail: None,
            missing_blocks: Vec::new(),
            last_time: None,
            log_start: LogStart::NoLog,
        }
    }

    /// End of the replayed log, if there is one.
    pub(crate) fn end(&self) -> Option<&LogEnd> {
        match &self.log_start {
            LogStart::NoLog => None,
            LogStart::After(end) => Some(end),
        }
    }

    /// Begins the log for new commits.
    pub(crate) fn begin_log(&self, directory: &Directory, catalog: &Catalog) -> Result<Log, CommitError> {
        let disk = Arc::clone(&directory.disk);
        match &self.log_start {
            LogStart::After(end) => Ok(Log::resume(disk, catalog.database, end)?),
            LogStart::NoLog => {
                let log = Log::create(disk, catalog.database, FIRST_LOG, catalog.version)?;
                write_catalog(directory, catalog, FIRST_LOG)?;
                Ok(log)
            }
        }
    }
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<OpenedDatabase, OpenError> {
    let create = options.create && !options.inspect;
    if !check_root(&*disk, create)? {
        // The directory is checked before anything is created, and again under the lock: another process may be
        // creating the database too.
        disk.create_directory(ROOT).map_err(|source| file_error(&*disk, "create", ROOT, source))?;
    }
    let lock = disk.lock(LOCK).map_err(|source| file_error(&*disk, "lock", LOCK, source))?;
    let lock = lock.ok_or_else(|| OpenError::Locked { path: disk.path(ROOT), holder: disk.lock_holder(LOCK) })?;
    check_root(&*disk, create)?;
    let cache = Cache::new(options.cache_bytes.unwrap_or_else(Cache::default_limit));
    let directory = Arc::new(Directory::new(Arc::clone(&disk), lock, cache));
    let bytes = match read_whole(&*disk, CATALOG) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(file_error(&*disk, "read", CATALOG, source).into()),
    };
    let Some(bytes) = bytes else {
        let catalog = Catalog::empty(RandomState::new().hash_one("database"));
        create_blocks_directory(&directory)?;
        create_readers_directory(&directory);
        let log = Some(Log::create(disk, catalog.database, FIRST_LOG, catalog.version)?);
        write_catalog(&directory, &catalog, FIRST_LOG).map_err(|error| OpenError::Begin(Box::new(error)))?;
        let recovery = Recovery::without_log();
        return Ok(OpenedDatabase { directory, catalog, recovery, log, retention: None });
    };
    let file = read_catalog(&*disk, &bytes)?;
    directory.reserve_ids_below((file.next_block, file.next_table));
    let (first, delta) = (file.log, file.delta);
    let catalog = build_catalog(file, &directory);
    let (catalog, mut recovery) = match first {
        None => (catalog, Recovery::without_log()),
        Some(first) => replay(catalog, first, delta, &directory)?,
    };
    recovery.missing_blocks = missing_blocks(&directory, &catalog)?;
    let (mut log, mut retention) = (None, None);
    if !options.inspect {
        if recovery.commits > 0 {
            // Records of a killed process may not be durable. They must become durable before files that only an
            // earlier state needs are removed.
            let log_begun = recovery.begin_log(&directory, &catalog);
            log = Some(log_begun.map_err(|error| OpenError::Begin(Box::new(error)))?);
        }
        retention = Retention::read(&directory, &catalog)?;
        remove_leftovers(&directory, &catalog, first, recovery.missing_blocks.is_empty(), retention.as_ref())?;
    }
    Ok(OpenedDatabase { directory, catalog, recovery, log, retention })
}

/// Replays the delta file and the log on a catalog, from log file `first` on.
pub(crate) fn replay(
    catalog: Catalog,
    first: u64,
    delta: Option<DeltaFileEntry>,
    directory: &Arc<Directory>,
) -> Result<(Catalog, Recovery), OpenError> {
    let disk = &*directory.disk;
    let mut edit = CatalogEdit::new(&catalog, directory);
    if let Some(delta) = delta {
        let bytes = read_delta(disk, first, delta)?;
        let corrupt =
            |(at, expected): (u64, String)| OpenError::Corrupt { path: disk.path(&delta_name(first)), at, expected };
        apply_record(&mut edit, &bytes).map_err(corrupt)?;
    }
    let (mut commits, mut read, mut last_time) = (0, 0, None);
    let end = log::replay(disk, catalog.database, first, Some(catalog.version), &mut |record| {
        let corrupt = |(at, expected): (u64, String)| OpenError::Corrupt {
            path: record.path.to_owned(),
            at: record.payload_at() + at,
            expected,
        };
        let time = apply_record(&mut edit, record.payload).map_err(corrupt)?;
        last_time = time.or(last_time);
        edit.set_version(record.sequence);
        commits += 1;
        read += record.payload.len() as u64;
        Ok::<(), OpenError>(())
    })?;
    let torn_tail = end.torn_tail.clone().map(|TornTail { path, at, bytes, .. }| TornLogTail { path, at, bytes });
    let catalog = edit.into_catalog();
    let recovery = Recovery {
        commits,
        bytes: read,
        torn_tail,
        missing_blocks: Vec::new(),
        last_time,
        log_start: LogStart::After(end),
    };
    Ok((catalog, recovery))
}

/// Reads the delta file, with the rows that are in no block. Its length and checksum must match the catalog.
pub(crate) fn read_delta(disk: &dyn Disk, number: u64, expected: DeltaFileEntry) -> Result<Vec<u8>, OpenError> {
    let name = delta_name(number);
    let bytes = read_whole(disk, &name).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::MissingDelta { path: disk.path(&name) },
        _ => file_error(disk, "read", &name, source).into(),
    })?;
    let corrupt = |at, expected| OpenError::Corrupt { path: disk.path(&name), at, expected };
    if bytes.len() as u64 != expected.bytes {
        let at = expected.bytes.min(bytes.len() as u64);
        return Err(corrupt(at, format!("{} bytes, found {}", expected.bytes, bytes.len())));
    }
    let found = checksum(&bytes);
    if found != expected.checksum {
        return Err(corrupt(0, format!("content with checksum {:016x}, found {found:016x}", expected.checksum)));
    }
    Ok(bytes)
}

/// Applies the changes of one record, and returns the time of their commit. On failure, returns an offset in the bytes
/// and what was expected there.
pub(crate) fn apply_record(edit: &mut CatalogEdit, bytes: &[u8]) -> Result<Option<i64>, (u64, String)> {
    let parsed = record::parse(bytes).map_err(|(at, expected)| (at as u64, expected))?;
    for change in parsed.changes {
        let next_ids = change.next_ids();
        let change = change.into_change(edit.catalog(), edit.directory()).map_err(|expected| (0, expected))?;
        edit.redo(&change).map_err(|error| (0, format!("a change that can be made: {error}")))?;
        edit.directory().reserve_ids_below(next_ids);
    }
    if let Some(stamp) = parsed.stamp.filter(|stamp| stamp.begins_timeline) {
        edit.begin_timeline(stamp.time);
    }
    Ok(parsed.stamp.map(|stamp| stamp.time))
}

/// Decodes and checks the catalog file.
pub(crate) fn read_catalog(disk: &dyn Disk, bytes: &[u8]) -> Result<CatalogFile<'static>, OpenError> {
    let path = || disk.path(CATALOG);
    let file = format::parse(bytes).map_err(|error| match error {
        Unreadable::Version { found } => OpenError::Version { path: path(), found, readable: &format::READABLE },
        Unreadable::Corrupt { at, expected } => OpenError::Corrupt { path: path(), at, expected },
    })?;
    let content_offset = bytes.iter().position(|byte| *byte == b'{').unwrap_or_default() as u64;
    check(&file).map_err(|expected| OpenError::Corrupt { path: path(), at: content_offset, expected })?;
    Ok(file)
}

/// Creates the directory in which readers register. If this fails, readers may still create it.
fn create_readers_directory(directory: &Directory) {
    let _ = directory.disk.create_directory(READERS);
}

pub(crate) fn create_blocks_directory(directory: &Directory) -> Result<(), FileError> {
    directory.disk.create_directory(BLOCKS).map_err(|source| directory.error("create", BLOCKS, source))
}

/// Builds the catalog of a checked file.
pub(crate) fn build_catalog(file: CatalogFile<'static>, directory: &Arc<Directory>) -> Catalog {
    let blocks = |table: &mut TableFile<'static>| {
        let maps: Vec<Arc<ColumnMap>> = table.column_maps.drain(..).map(|map| Arc::new(map.into_owned())).collect();
        let maps = std::mem::take(&mut table.map_of_blocks)
            .into_iter()
            .map(move |index| index.and_then(|index| maps.get(index).cloned()))
            .chain(std::iter::repeat(None));
        let block = |(entry, map): (Cow<'static, BlockEntry>, _)| {
            let file = BlockFile::new(Arc::clone(directory), entry.into_owned());
            Arc::new(file.with_map(map))
        };
        Arc::new(std::mem::take(&mut table.blocks).into_iter().zip(maps).map(block).collect())
    };
    let delta = |constraints: &Constraints| {
        let mut delta = Delta::default();
        delta.set_keys(constraints.lookup_columns().iter().map(|columns| &**columns));
        delta
    };
    let schemas = file.schemas.into_iter().map(Cow::into_owned).collect();
    let named = Catalog { schemas, ..Catalog::empty(file.database) };
    let tables = file.tables.into_iter().map(|mut table| Table {
        blocks: blocks(&mut table),
        id: table.id,
        name: named.upgraded_name(&table.name),
        schema: Arc::new(table.schema.into_owned()),
        design: Arc::new(table.design.into_owned()),
        runs: Arc::new(table.runs.into_owned()),
        partitions: table.partitions.map(|partitions| Arc::new(partitions.into_owned())),
        statistics: Arc::new(table.statistics.into_owned()),
        delta: delta(&table.constraints),
        constraints: Arc::new(table.constraints.into_owned()),
        content_version: 0,
        sparse_index: Arc::default(),
    });
    let views = file.views.into_iter().map(|view| view.into_owned().with_upgraded_names(&named));
    let views: RedBlackTreeMapSync<_, _> = views.map(|view| (view.name.clone(), view)).collect();
    let sequence = |sequence: Cow<'_, Sequence>| {
        let sequence = sequence.into_owned();
        (sequence.id, Sequence { name: named.upgraded_name(&sequence.name), ..sequence })
    };
    let sequences: RedBlackTreeMapSync<_, _> = file.sequences.into_iter().map(sequence).collect();
    let functions = file.functions.into_iter().map(Cow::into_owned).map(|function| (function.name.clone(), function));
    let functions = functions.collect();
    let comments =
        file.comments.into_iter().map(|(on, text)| (on.into_owned().with_upgraded_name(&named), text.into_owned()));
    let comments = comments.collect();
    let tables = tables.map(Arc::new).collect();
    Catalog {
        version: file.version,
        timelines: Timelines::of_file(file.timelines),
        tables,
        views,
        sequences,
        functions,
        comments,
        ..named
    }
}

/// Ids of all block files. A directory with the name of a block file is foreign: `verify` reports it.
fn block_files(directory: &Directory) -> Result<HashSet<BlockId>, FileError> {
    let entries = list(&*directory.disk, BLOCKS)?;
    Ok(entries.iter().filter(|entry| !entry.is_directory).filter_map(|entry| parse_block_name(&entry.name)).collect())
}

/// The block files that the catalog references and that do not exist.
pub(crate) fn missing_blocks(directory: &Directory, catalog: &Catalog) -> Result<Vec<MissingBlock>, FileError> {
    let present = block_files(directory)?;
    let missing_in_table = |table: &Arc<Table>| -> Vec<MissingBlock> {
        let absent = table.blocks.iter().map(|block| block.id()).filter(|block| !present.contains(block));
        let missing = |block| MissingBlock { table: table.name.clone(), path: directory.disk.path(&block_name(block)) };
        absent.map(missing).collect()
    };
    Ok(catalog.tables().flat_map(missing_in_table).collect())
}

/// Removes the remains of an interrupted load, commit or checkpoint. An unreferenced block file that is not retained
/// for a backup may be a missing file under a wrong name. So it is removed only if no block file is missing.
fn remove_leftovers(
    directory: &Directory,
    catalog: &Catalog,
    log: Option<u64>,
    has_all_blocks: bool,
    retention: Option<&Retention>,
) -> Result<(), OpenError> {
    let disk = &*directory.disk;
    create_blocks_directory(directory)?;
    create_readers_directory(directory);
    // The process that renamed the catalog into place may have ended before it synced the directory. Until the rename
    // is durable, the previous catalog may reappear, and need the files that this one no longer references.
    disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))?;
    let retained = retention.iter().flat_map(|retention| retention.blocks.iter().map(|(_, block)| block));
    let referenced: HashSet<BlockId> = catalog.blocks().chain(retained).map(|block| block.id()).collect();
    let unreferenced: HashSet<BlockId> = block_files(directory)?.difference(&referenced).copied().collect();
    // It is unknown when or whether a block was replaced, so any live reader may need it.
    let (oldest, removed_in) = (readers::oldest_needed(disk), catalog.version + 1);
    let is_kept = |block: &BlockId| !has_all_blocks || directory.removals().defer(oldest, *block, removed_in);
    let (kept, removed): (HashSet<_>, HashSet<_>) = unreferenced.into_iter().partition(is_kept);
    for block in removed {
        remove(directory, &block_name(block))?;
    }
    directory.reserve_block_ids(kept);
    let has_new_catalog = list(disk, ROOT)?.iter().any(|entry| entry.name == CATALOG_NEW);
    if has_new_catalog {
        remove(directory, CATALOG_NEW)?;
    }
    if let Some(log) = log {
        remove_files_before(directory, log, retention.map(|retention| retention.file.first_log))?;
    }
    Ok(())
}

fn remove(directory: &Directory, name: &str) -> Result<(), FileError> {
    directory.disk.remove(name).map_err(|source| directory.error("remove", name, source))
}
