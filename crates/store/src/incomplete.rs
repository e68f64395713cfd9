//! The directory of a new database while a repair or a restore writes it.
//!
//! ```text
//!   incomplete                     created together with the directory
//!   lock, blocks/, log/, catalog   written; meanwhile the directory does not open
//!   incomplete                     removed                    <- from here on it is a database
//! ```
//!
//! A process that is killed in between leaves the file `incomplete`, and so an error for everyone who opens the
//! directory. Without that file, a directory that has no catalog yet would open as an empty database. The next repair
//! or restore to the directory removes the remains and begins again.

use std::fs;
use std::path::Path;

use crate::directory::Directory;
use crate::disk::{Disk, FileDisk, Lock};
use crate::error::{FileError, OpenError};
use crate::files::{
    BLOCKS, CATALOG, INCOMPLETE, LOCK, LOG, READERS, ROOT, file_error, is_own_name, list, write_file_on,
};
use crate::root::check_root;

/// Why a new database is not begun.
pub(crate) enum NotBegun {
    /// The directory holds a database or something else, or another process uses it.
    Exists,
    /// A file cannot be read or written.
    File(FileError),
}

impl From<FileError> for NotBegun {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Whether a path of the operating system is free for a new database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetPath {
    /// Nothing exists at the path.
    Missing,
    /// An empty directory.
    Empty,
    /// Something else.
    Other,
}

impl TargetPath {
    /// What is at a path.
    pub fn of(path: &Path) -> Self {
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Self::Empty,
            Err(_) if fs::symlink_metadata(path).is_err() => Self::Missing,
            _ => Self::Other,
        }
    }
}

/// Begins a new database in a directory that is empty, does not exist, or is incomplete. Locks the directory, and
/// removes the remains of the repair or restore that did not finish.
pub(crate) fn begin(disk: &dyn Disk) -> Result<Box<dyn Lock>, NotBegun> {
    mark(disk)?;
    let lock = disk.lock(LOCK).map_err(|source| file_error(disk, "lock", LOCK, source))?;
    let lock = lock.ok_or(NotBegun::Exists)?;
    // Another process may have completed the database before this one had the lock.
    if !is_incomplete(disk)? || has_foreign_files(disk)? {
        return Err(NotBegun::Exists);
    }
    remove_files(disk)?;
    Ok(lock)
}

/// A directory in which a new database can begin.
enum Free {
    Missing,
    Empty,
    Incomplete,
}

fn check_is_free(disk: &dyn Disk) -> Result<Free, NotBegun> {
    match check_root(disk, true) {
        Ok(false) => Ok(Free::Missing),
        Ok(true) if has(disk, CATALOG)? => Err(NotBegun::Exists),
        Ok(true) => Ok(Free::Empty),
        Err(OpenError::Incomplete { .. }) => Ok(Free::Incomplete),
        Err(OpenError::File(error)) => Err(NotBegun::File(error)),
        Err(_) => Err(NotBegun::Exists),
    }
}

/// Creates the file `incomplete`, and the directory if it does not exist.
fn mark(disk: &dyn Disk) -> Result<(), NotBegun> {
    match check_is_free(disk)? {
        Free::Incomplete => Ok(()),
        Free::Missing => {
            let created = disk.create_root_with(INCOMPLETE);
            Ok(created.map_err(|source| file_error(disk, "create", ROOT, source))?)
        }
        Free::Empty => {
            // Without this lock, a process that creates a database here at the same time would find the file in it.
            let lock = disk.lock_to_read(LOCK).map_err(|source| file_error(disk, "lock", ROOT, source))?;
            let _lock = lock.ok_or(NotBegun::Exists)?;
            match check_is_free(disk)? {
                Free::Incomplete => Ok(()),
                _ => Ok(write_mark(disk)?),
            }
        }
    }
}

fn write_mark(disk: &dyn Disk) -> Result<(), FileError> {
    write_file_on(disk, INCOMPLETE, |_| Ok(()))?;
    disk.sync_directory(ROOT).map_err(|source| file_error(disk, "sync", ROOT, source))
}

/// Completes the new database, whose files are all durable: removes the file `incomplete`.
pub(crate) fn complete(directory: &Directory) -> Result<(), FileError> {
    directory.disk.remove(INCOMPLETE).map_err(|source| directory.error("remove", INCOMPLETE, source))?;
    directory.disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))
}

/// Removes the files of a new database that was not completed, except the lock and the file `incomplete`. Files that
/// cannot be removed stay, without being a database.
pub(crate) fn abandon(disk: &dyn Disk) {
    // The removal of the file may be what failed, after it had taken effect. A database without some of its files must
    // not open.
    if is_incomplete(disk).is_ok_and(|is_there| is_there) || write_mark(disk).is_ok() {
        let _ = remove_files(disk);
    }
}

/// Removes the directory of a new database that was abandoned. A directory that was empty before stays, and is empty
/// again. Does nothing if another process uses the directory by now.
pub(crate) fn remove_directory(path: &Path, before: TargetPath) {
    let disk = FileDisk::new(path);
    let is_abandoned = || is_incomplete(&disk).is_ok_and(|is_there| is_there);
    if before == TargetPath::Other || !is_abandoned() {
        return;
    }
    let Ok(Some(_lock)) = disk.lock(LOCK) else { return };
    if !is_abandoned() {
        return;
    }
    // Directories that are not empty or do not exist make this fail, which is intended.
    for directory in [BLOCKS, LOG] {
        let _ = fs::remove_dir(path.join(directory));
    }
    // If this fails, the lock file stays, which is no database.
    let _ = fs::remove_file(path.join(LOCK));
    match before {
        TargetPath::Missing if list(&disk, ROOT).is_ok_and(|entries| entries.len() == 1) => {
            disk.remove_root_with(INCOMPLETE)
        }
        TargetPath::Missing | TargetPath::Other => {}
        // If this fails, the directory does not open, and the error says why.
        TargetPath::Empty => drop(fs::remove_file(path.join(INCOMPLETE))),
    }
}

fn has(disk: &dyn Disk, name: &str) -> Result<bool, FileError> {
    Ok(list(disk, ROOT)?.iter().any(|entry| entry.name == name))
}

fn is_incomplete(disk: &dyn Disk) -> Result<bool, FileError> {
    has(disk, INCOMPLETE)
}

fn has_foreign_files(disk: &dyn Disk) -> Result<bool, FileError> {
    for directory in [ROOT, BLOCKS, LOG, READERS] {
        if list(disk, directory)?.iter().any(|entry| !is_own_name(directory, entry)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes all files of a database, except the lock and the file `incomplete`.
fn remove_files(disk: &dyn Disk) -> Result<(), FileError> {
    for directory in [ROOT, BLOCKS, LOG] {
        let mut is_changed = false;
        for entry in list(disk, directory)? {
            let stays = directory == ROOT && [LOCK, INCOMPLETE].contains(&entry.name.as_str());
            if entry.is_directory || stays || !is_own_name(directory, &entry) {
                continue;
            }
            let name = if directory == ROOT { entry.name } else { format!("{directory}/{}", entry.name) };
            disk.remove(&name).map_err(|source| file_error(disk, "remove", &name, source))?;
            is_changed = true;
        }
        if is_changed {
            // Otherwise a removed file may come back after a power loss, into the complete database.
            disk.sync_directory(directory).map_err(|source| file_error(disk, "sync", directory, source))?;
        }
    }
    Ok(())
}
