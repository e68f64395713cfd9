//! Retention of log files and replaced blocks until the next backup archives them.
//!
//! A backup with the log needs every commit since the previous backup. It also needs every block that these commits
//! added, even if it was replaced since. So, after the first backup with the log:
//!
//! ```text
//!   log/retained      names the first log file that checkpoints must not remove
//!   blocks/*.block    files of replaced or dropped blocks are retained, unless the previous backup has them
//! ```
//!
//! The file `log/retained` is written before a backup copies anything, and replaced when the backup is complete.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::catalog::record;
use crate::directory::Directory;
use crate::disk::read_whole;
use crate::document;
use crate::error::{FileError, OpenError};
use crate::files::{LOG, RETAINED, RETAINED_NEW, list, parse_block_name, parse_delta_name};
use crate::readers;
use crate::{BlockEntry, BlockFile, BlockId, Catalog, log};

const MAGIC: &str = "taut-retained";
const VERSION: u64 = 1;

/// The log files and blocks that are retained for the next backup.
#[derive(Clone, Debug)]
pub(crate) struct Retention {
    pub file: RetentionFile,
    /// Blocks in the last backup, which need not be retained.
    pub archived: Arc<HashSet<BlockId>>,
    /// Retained blocks that no catalog references any more, each with the commit that removed it.
    pub blocks: Vec<(u64, Arc<BlockFile>)>,
}

/// Content of the file `log/retained`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionFile {
    /// Number of the first retained log file. It holds the first commit after `version`, or is older.
    #[serde(rename = "from")]
    pub first_log: u64,
    /// Version of the last commit in the last backup.
    pub version: u64,
    /// Random numbers that identify the last backup and the backups that were begun since. A manifest with another
    /// token belongs to a backup that these log files do not continue, for example a backup of a copy of this database.
    pub tokens: Vec<u64>,
}

impl Retention {
    /// Whether the file of a block must be retained when a commit removes the block.
    pub fn must_retain(&self, block: BlockId) -> bool {
        !self.archived.contains(&block)
    }

    /// Writes the file `log/retained`, durably.
    pub fn write(&self, directory: &Directory) -> Result<(), FileError> {
        let bytes = document::to_bytes((MAGIC, VERSION), &self.file);
        let bytes = bytes.map_err(|source| directory.error("encode", RETAINED, source.into()))?;
        directory.write_file(RETAINED_NEW, |to| to.write_all(&bytes))?;
        let disk = &directory.disk;
        disk.rename(RETAINED_NEW, RETAINED).map_err(|source| directory.error("rename", RETAINED_NEW, source))?;
        disk.sync_directory(LOG).map_err(|source| directory.error("sync", LOG, source))
    }

    /// Removes the file `log/retained`, durably.
    pub fn remove(directory: &Directory) -> Result<(), FileError> {
        match directory.disk.remove(RETAINED) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result.map_err(|source| directory.error("remove", RETAINED, source))?,
        }
        directory.disk.sync_directory(LOG).map_err(|source| directory.error("sync", LOG, source))
    }

    /// Reads the retention when a database is opened. `None` if the file `log/retained` does not exist or is invalid.
    /// Also `None` if log files or blocks that it needs are missing, for example because an earlier version of Taut
    /// removed them. The next backup then begins a new log archive.
    pub fn read(directory: &Arc<Directory>, catalog: &Catalog) -> Result<Option<Self>, FileError> {
        let bytes = match read_whole(&*directory.disk, RETAINED) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(|source| directory.error("read", RETAINED, source))?,
        };
        let Ok(file) = document::parse::<RetentionFile>((MAGIC, VERSION), &bytes) else { return Ok(None) };
        let Ok(mut added) = added_blocks(directory, catalog.database, &file) else { return Ok(None) };
        let referenced: HashSet<BlockId> = catalog.blocks().map(|block| block.id()).collect();
        let archived = referenced.iter().filter(|block| !added.contains_key(block)).copied().collect();
        added.retain(|block, _| !referenced.contains(block));
        let entries = list(&*directory.disk, crate::files::BLOCKS)?;
        let files = entries.iter().filter(|entry| !entry.is_directory);
        let present: HashSet<BlockId> = files.filter_map(|entry| parse_block_name(&entry.name)).collect();
        if added.keys().any(|block| !present.contains(block)) {
            return Ok(None);
        }
        let retained = |entry| (catalog.version, Arc::new(BlockFile::new(Arc::clone(directory), entry)));
        Ok(Some(Self { file, archived: Arc::new(archived), blocks: added.into_values().map(retained).collect() }))
    }
}

/// The blocks added by commits since the last backup.
fn added_blocks(
    directory: &Directory,
    database: u64,
    file: &RetentionFile,
) -> Result<HashMap<BlockId, BlockEntry>, OpenError> {
    let (mut added, mut last_added) = (HashMap::new(), None);
    let gap = |path, at, expected| OpenError::Corrupt { path, at, expected: format!("record {expected}") };
    log::replay::<OpenError>(&*directory.disk, database, file.first_log, None, &mut |record| {
        if record.sequence <= file.version {
            return Ok(());
        }
        if record.sequence > file.version + 1 && last_added.is_none() {
            return Err(gap(record.path.to_owned(), record.at, file.version + 1));
        }
        last_added = Some(record.sequence);
        let parsed = record::parse(record.payload).map_err(|(at, expected)| OpenError::Corrupt {
            path: record.path.to_owned(),
            at: record.payload_at() + at as u64,
            expected,
        })?;
        let blocks = parsed.changes.iter().flat_map(|change| change.new_blocks());
        added.extend(blocks.map(|(_, entry)| (entry.id, entry)));
        Ok(())
    })?;
    Ok(added)
}

/// Removes the log files and delta files with numbers below `number`, except log files from number `retained` on, which
/// are retained for a backup. Removes nothing while another process reads any of them. The next checkpoint or opening
/// then removes them.
pub(crate) fn remove_files_before(directory: &Directory, number: u64, retained: Option<u64>) -> Result<(), FileError> {
    if readers::may_read_log(readers::oldest_needed(&*directory.disk)) {
        return Ok(());
    }
    log::remove_before(&*directory.disk, retained.map_or(number, |retained| retained.min(number)))?;
    for entry in list(&*directory.disk, LOG)? {
        if parse_delta_name(&entry.name).is_some_and(|old| old < number) {
            let name = format!("{LOG}/{}", entry.name);
            directory.disk.remove(&name).map_err(|source| directory.error("remove", &name, source))?;
        }
    }
    Ok(())
}
