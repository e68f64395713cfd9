//! Checks what a directory contains before it is opened: a database, the remains of an interrupted creation, or other
//! files.

use std::io;

use crate::disk::{DirectoryEntry, Disk};
use crate::error::OpenError;
use crate::files::{BLOCKS, CATALOG, CATALOG_NEW, INCOMPLETE, LOCK, LOG, READERS, ROOT, file_error, list};
use crate::log::{self, FIRST_LOG};

/// Whether the directory exists. Returns an error if it contains other files or an incomplete database, or if it
/// contains no database and `create` is false.
pub(crate) fn check_root(disk: &dyn Disk, create: bool) -> Result<bool, OpenError> {
    let path = disk.path(ROOT);
    let entries = match disk.list(ROOT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing { path }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(OpenError::NotADirectory { path }),
        Err(source) => return Err(file_error(disk, "list", ROOT, source).into()),
    };
    if entries.iter().any(|entry| entry.name == INCOMPLETE) {
        return Err(OpenError::Incomplete { path });
    }
    if entries.iter().any(|entry| entry.name == CATALOG) {
        return Ok(true);
    }
    // An interrupted creation may leave these names, but no blocks and no commits.
    let is_from_creation =
        |entry: &DirectoryEntry| [LOCK, CATALOG_NEW, BLOCKS, LOG, READERS].contains(&entry.name.as_str());
    let found = match entries.iter().find(|entry| !is_from_creation(entry)) {
        Some(entry) => Some(entry.name.clone()),
        None => match list(disk, BLOCKS)?.first() {
            Some(entry) => Some(format!("{BLOCKS}/{}", entry.name)),
            None => log::find_commits(disk, FIRST_LOG)?,
        },
    };
    match found {
        Some(found) => Err(OpenError::Foreign { path, found }),
        None if create => Ok(true),
        None => Err(OpenError::Empty { path }),
    }
}
