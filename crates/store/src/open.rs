//! Opening a database, which is also its recovery: what an interrupted load or commit left behind is removed.
//!
//! There is nothing to replay. The catalog that is found is the state of the last commit that survived, and every
//! block file that it names was durable before it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, OnceLock};

use crate::catalog::check::check;
use crate::catalog::format::{self, CatalogFile, Unreadable};
use crate::directory::{BLOCKS, CATALOG, CATALOG_NEW, Directory, LOCK, ROOT, block_name, block_of};
use crate::disk::{DirectoryEntry, Disk, read_whole};
use crate::error::{FileError, OpenError};
use crate::store::publish_first;
use crate::{BlockFile, BlockId, Cache, Catalog, Table};

/// How a database is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether a database is created where there is none: in a new directory, or in an empty one.
    pub create: bool,
    /// Whether the database is only looked at: it may then miss block files, nothing is removed, and nothing can be
    /// written.
    pub inspect: bool,
    /// The most bytes of sections that are kept in memory; where it is not said, [`Cache::default_limit`].
    pub cache_bytes: Option<usize>,
}

pub(crate) fn open(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<(Arc<Directory>, Catalog), OpenError> {
    let create = options.create && !options.inspect;
    if !check_root(&*disk, create)? {
        // Before anything is created, and again under the lock: another process may be creating it too.
        disk.create_directory(ROOT).map_err(|source| file_error(&*disk, "create", ROOT, source))?;
    }
    let lock = disk.lock(LOCK).map_err(|source| file_error(&*disk, "lock", LOCK, source))?;
    let lock = lock.ok_or_else(|| OpenError::Locked { path: disk.path(ROOT) })?;
    check_root(&*disk, create)?;
    let cache = Cache::new(options.cache_bytes.unwrap_or_else(Cache::default_limit));
    let bytes = match read_whole(&*disk, CATALOG) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(file_error(&*disk, "read", CATALOG, source).into()),
    };
    let Some(bytes) = bytes else {
        let catalog = Catalog::empty(RandomState::new().hash_one("database"));
        let directory = Arc::new(Directory::new(disk, lock, cache, catalog.next_block));
        create_blocks(&directory)?;
        publish_first(&directory, &catalog)?;
        return Ok((directory, catalog));
    };
    let file = read_catalog(&*disk, &bytes)?;
    let directory = Arc::new(Directory::new(disk, lock, cache, file.next_block));
    let catalog = build(file, &directory);
    if !options.inspect {
        recover(&directory, &catalog)?;
    }
    Ok((directory, catalog))
}

/// The content of the catalog's file.
pub(crate) fn read_catalog(disk: &dyn Disk, bytes: &[u8]) -> Result<CatalogFile<'static>, OpenError> {
    let path = || disk.path(CATALOG);
    let file = format::parse(bytes).map_err(|error| match error {
        Unreadable::Version { found } => OpenError::Version { path: path(), found, readable: format::READABLE },
        Unreadable::Corrupt { at, expected } => OpenError::Corrupt { path: path(), at, expected },
    })?;
    let content_at = bytes.iter().position(|byte| *byte == b'{').unwrap_or_default() as u64;
    check(&file).map_err(|expected| OpenError::Corrupt { path: path(), at: content_at, expected })?;
    Ok(file)
}

/// What lies in a directory of the database.
pub(crate) fn list(disk: &dyn Disk, name: &str) -> Result<Vec<DirectoryEntry>, FileError> {
    match disk.list(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(|source| file_error(disk, "list", name, source)),
    }
}

fn file_error(disk: &dyn Disk, operation: &'static str, name: &str, source: io::Error) -> FileError {
    FileError { operation, path: disk.path(name), source }
}

/// Whether the directory exists. It is an error when it is not one in which a database is or may be created.
fn check_root(disk: &dyn Disk, create: bool) -> Result<bool, OpenError> {
    let path = disk.path(ROOT);
    let entries = match disk.list(ROOT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing { path }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(OpenError::NotADirectory { path }),
        Err(source) => return Err(file_error(disk, "list", ROOT, source).into()),
    };
    if entries.iter().any(|entry| entry.name == CATALOG) {
        return Ok(true);
    }
    // An interrupted creation may have left these. Blocks without a catalog are no such leftover.
    let is_ours = |entry: &DirectoryEntry| [LOCK, CATALOG_NEW, BLOCKS].contains(&entry.name.as_str());
    let found = match entries.iter().find(|entry| !is_ours(entry)) {
        Some(entry) => Some(entry.name.clone()),
        None if entries.iter().any(|entry| entry.name == BLOCKS) => {
            list(disk, BLOCKS)?.first().map(|entry| format!("{BLOCKS}/{}", entry.name))
        }
        None => None,
    };
    match found {
        Some(found) => Err(OpenError::Foreign { path, found }),
        None if create => Ok(true),
        None => Err(OpenError::Empty { path }),
    }
}

fn create_blocks(directory: &Directory) -> Result<(), FileError> {
    directory.disk.create_directory(BLOCKS).map_err(|source| directory.error("create", BLOCKS, source))
}

/// Builds the catalog of a file that was checked.
fn build(file: CatalogFile<'static>, directory: &Arc<Directory>) -> Catalog {
    let block = |entry| Arc::new(BlockFile::new(Arc::clone(directory), entry));
    let tables = file.tables.into_iter().map(|table| Table {
        id: table.id,
        name: table.name.into_owned(),
        schema: Arc::new(table.schema.into_owned()),
        design: Arc::new(table.design.into_owned()),
        blocks: table.blocks.into_iter().map(|entry| block(entry.into_owned())).collect(),
        runs: table.runs.into_owned(),
        partitions: table.partitions.map(Cow::into_owned),
        statistics: table.statistics.into_owned(),
        sparse_index: OnceLock::new(),
    });
    Catalog {
        database: file.database,
        version: file.version,
        definitions: file.version,
        next_block: file.next_block,
        next_table: file.next_table,
        tables: tables.map(|table| (table.name.clone(), Arc::new(table))).collect(),
        views: file.views.into_iter().map(|view| (view.name.clone(), view.into_owned())).collect(),
    }
}

/// Refuses a database that misses blocks, and removes what an interrupted load or commit left behind.
fn recover(directory: &Directory, catalog: &Catalog) -> Result<(), OpenError> {
    let disk = &*directory.disk;
    create_blocks(directory)?;
    let present: HashSet<BlockId> = list(disk, BLOCKS)?.iter().filter_map(|entry| block_of(&entry.name)).collect();
    let missing = |table: &Arc<Table>| -> Vec<_> {
        let absent = table.blocks.iter().map(|block| block.id()).filter(|block| !present.contains(block));
        absent.map(|block| disk.path(&block_name(block))).collect()
    };
    let mut tables = catalog.tables().map(|table| (table, missing(table))).filter(|(_, files)| !files.is_empty());
    if let Some((table, mut files)) = tables.next() {
        files.extend(tables.flat_map(|(_, files)| files));
        return Err(OpenError::MissingBlocks { table: table.name.clone(), files });
    }
    // The catalog may have been renamed into place by a process that ended before it synced the directory. Until
    // that is durable, the catalog before may come back, and need the very files that this one no longer names.
    disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))?;
    let named: HashSet<BlockId> = catalog.blocks().map(|block| block.id()).collect();
    for block in present.difference(&named) {
        remove(directory, &block_name(*block))?;
    }
    let has_new_catalog = list(disk, ROOT)?.iter().any(|entry| entry.name == CATALOG_NEW);
    if has_new_catalog {
        remove(directory, CATALOG_NEW)?;
    }
    Ok(())
}

fn remove(directory: &Directory, name: &str) -> Result<(), FileError> {
    directory.disk.remove(name).map_err(|source| directory.error("remove", name, source))
}
