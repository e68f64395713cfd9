//! The files of a database directory: their names, and operations on them.
//!
//! ```text
//!   catalog                        contents of the database at a checkpoint, which replaces the file as a whole
//!   catalog.new                    the next catalog, while a checkpoint writes it
//!   incomplete                     exists until a repair or restore is complete; the database cannot be opened then
//!   lock                           locked while a process has the database open for writing; contains its process id
//!   blocks/000000000000002a.block  block 42: immutable; its number is not reused once it is committed
//!   log/0000000000000006.closed.log   log file 6, closed: log file 7 exists
//!   log/0000000000000007.log       log file 7; files before the one that the catalog references are no longer valid
//!   log/0000000000000007.delta     rows that are in no block when log file 7 begins
//!   log/0000000000000008.log.new   the next log file, while it is begun
//!   log/retained                   number of the first log file that is retained for the next backup
//!   readers/4711-1                 a process that reads the database, and holds the lock of this file
//! ```

use std::io::{self, BufWriter, Write};

use crate::BlockId;
use crate::disk::{DirectoryEntry, Disk, WriteFile};
use crate::error::FileError;

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

/// The block of a file, from its name in `blocks`. `None` if [`block_name`] does not produce that name.
pub(crate) fn parse_block_name(name: &str) -> Option<BlockId> {
    let block = BlockId(u64::from_str_radix(name.strip_suffix(BLOCK_SUFFIX)?, 16).ok()?);
    (block_name(block).strip_prefix(BLOCKS)?.strip_prefix('/')? == name).then_some(block)
}

/// Name of a log file until the next one is begun.
pub(crate) fn log_name(number: u64) -> String {
    format!("{LOG}/{number:016x}{LOG_SUFFIX}")
}

/// Name of a log file after the next one was begun. The name implies that the next file exists.
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

/// The number of a delta file, from its name in `log`. `None` if [`delta_name`] does not produce that name.
pub(crate) fn parse_delta_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(DELTA_SUFFIX)?, 16).ok()?;
    (delta_name(number).strip_prefix(LOG)?.strip_prefix('/')? == name).then_some(number)
}

/// The number of a log file, from its name in `log`. `None` if neither [`log_name`] nor [`closed_log_name`] produces
/// that name.
pub(crate) fn parse_log_name(name: &str) -> Option<u64> {
    parse_open_log_name(name).or_else(|| parse_closed_log_name(name))
}

/// The number of an open log file, from its name in `log`. `None` if [`log_name`] does not produce that name.
pub(crate) fn parse_open_log_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(LOG_SUFFIX)?, 16).ok()?;
    (log_name(number).strip_prefix(LOG)?.strip_prefix('/')? == name).then_some(number)
}

/// The number of a closed log file, from its name in `log`. `None` if [`closed_log_name`] does not produce that name.
pub(crate) fn parse_closed_log_name(name: &str) -> Option<u64> {
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

/// Whether Taut creates files with this name in `log`.
pub(crate) fn is_log_name(name: &str) -> bool {
    let finished = name.strip_suffix(".new").unwrap_or(name);
    let path = format!("{LOG}/{name}");
    let is_log_file = parse_open_log_name(finished).is_some()
        || parse_closed_log_name(name).is_some()
        || parse_delta_name(name).is_some();
    is_log_file || path == RETAINED || path == RETAINED_NEW
}

/// Whether Taut creates entries with this name and kind in a directory of the database.
pub(crate) fn is_database_file_name(directory: &str, entry: &DirectoryEntry) -> bool {
    let name = entry.name.as_str();
    match directory {
        ROOT if entry.is_directory => [BLOCKS, LOG, READERS].contains(&name),
        ROOT => [CATALOG, CATALOG_NEW, INCOMPLETE, LOCK].contains(&name),
        LOG => !entry.is_directory && is_log_name(name),
        READERS => !entry.is_directory && is_reader_name(name),
        _ => !entry.is_directory && parse_block_name(name).is_some(),
    }
}

/// The entries of a directory of the database. Empty if the directory does not exist.
pub(crate) fn list(disk: &dyn Disk, name: &str) -> Result<Vec<DirectoryEntry>, FileError> {
    match disk.list(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(|source| file_error(disk, "list", name, source)),
    }
}

pub(crate) fn file_error(disk: &dyn Disk, operation: &'static str, name: &str, source: io::Error) -> FileError {
    FileError { operation, path: disk.path(name), source }
}

/// Creates a file on a disk, writes `content` to it, and syncs it.
pub(crate) fn write_file_on<T>(
    disk: &dyn Disk,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, FileError> {
    const BUFFER_BYTES: usize = 1 << 20;
    let failed = |operation| move |source| file_error(disk, operation, name, source);
    let mut file = disk.create(name).map_err(failed("create"))?;
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, DiskWriter(&mut *file));
    let written = content(&mut buffered).and_then(|value| buffered.flush().map(|()| value));
    // After a failure, dropping the writer must not write the rest of its buffer.
    drop(buffered.into_parts());
    let value = written.map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    Ok(value)
}

/// Adapts a [`WriteFile`] to [`Write`].
struct DiskWriter<'a>(&'a mut dyn WriteFile);

impl Write for DiskWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_are_names_of_blocks() {
        let name = block_name(BlockId(42));
        assert_eq!(name, "blocks/000000000000002a.block");
        assert_eq!(parse_block_name("000000000000002a.block"), Some(BlockId(42)));
        for other in ["000000000000002A.block", "2a.block", "+00000000000002a.block", "000000000000002a.block.old", ""]
        {
            assert_eq!(parse_block_name(other), None, "{other}");
        }
    }

    #[test]
    fn only_valid_names_are_names_of_readers() {
        assert_eq!(reader_name(4711, 2), "readers/4711-2");
        assert!(is_reader_name("4711-2"));
        for other in ["4711", "4711-", "-2", "04711-2", "4711-+2", "4711-2.old", ""] {
            assert!(!is_reader_name(other), "{other}");
        }
    }

    #[test]
    fn only_valid_names_are_names_of_log_files() {
        assert_eq!(log_name(42), "log/000000000000002a.log");
        assert_eq!(parse_log_name("000000000000002a.log"), Some(42));
        assert_eq!(parse_log_name("ffffffffffffffff.log"), Some(u64::MAX));
        assert_eq!(
            (parse_log_name("000000000000002a.closed.log"), closed_log_name(42)),
            (Some(42), "log/000000000000002a.closed.log".into())
        );
        assert_eq!(
            (parse_closed_log_name("000000000000002a.log"), parse_open_log_name("000000000000002a.closed.log")),
            (None, None)
        );
        assert_eq!(parse_delta_name(delta_name(42).strip_prefix("log/").unwrap()), Some(42));
        let new = new_log_name(42);
        for other in ["000000000000002A.log", "2a.log", "+00000000000002a.log", &new["log/".len()..], ""] {
            assert_eq!(parse_log_name(other), None, "{other}");
        }
    }
}
