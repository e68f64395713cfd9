//! The directory of a new database while a repair or a restore writes it.
//!
//! ```text
//!   incomplete                     created together with the directory
//!   lock, blocks/, log/, catalog   written; meanwhile the directory cannot be opened
//!   incomplete                     removed                    <- from here on it is a database
//! ```
//!
//! A process that is killed in between leaves the file `incomplete`, so that opening the directory fails. Without that
//! file, a directory that has no catalog yet would open as an empty database. The next repair or restore to the
//! directory removes the remains and starts again.

use std::fs;
use std::path::Path;

use crate::directory::Directory;
use crate::disk::{Disk, FileDisk, Lock};
use crate::error::{FileError, OpenError};
use crate::files::{
    BLOCKS, CATALOG, INCOMPLETE, LOCK, LOG, READERS, ROOT, file_error, is_database_file_name, list, write_file_on,
};
use crate::root::check_root;

/// Why a new database cannot be written.
pub(crate) enum NotStarted {
    /// The directory holds a database or something else, or another process uses it.
    Exists,
    /// A file cannot be read or written.
    File(FileError),
}

impl From<FileError> for NotStarted {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// What exists at the path of a new database before it is written.
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
    /// Examines a path in the file system.
    pub fn of(path: &Path) -> Self {
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Self::Empty,
            Err(_) if fs::symlink_metadata(path).is_err() => Self::Missing,
            _ => Self::Other,
        }
    }
}

/// Begins a new database in a directory that is empty, does not exist, or is incomplete. Locks the directory, and
/// removes the remains of an unfinished repair or restore.
pub(crate) fn begin(disk: &dyn Disk) -> Result<Box<dyn Lock>, NotStarted> {
    create_incomplete_file(disk)?;
    let lock = disk.lock(LOCK).map_err(|source| file_error(disk, "lock", LOCK, source))?;
    let lock = lock.ok_or(NotStarted::Exists)?;
    // Another process may have completed the database before this one had the lock.
    if !is_incomplete(disk)? || has_foreign_files(disk)? {
        return Err(NotStarted::Exists);
    }
    remove_files(disk)?;
    Ok(lock)
}

/// State of a directory in which a new database can be created.
enum TargetState {
    Missing,
    Empty,
    Incomplete,
}

fn check_target(disk: &dyn Disk) -> Result<TargetState, NotStarted> {
    match check_root(disk, true) {
        Ok(false) => Ok(TargetState::Missing),
        Ok(true) if has_entry(disk, CATALOG)? => Err(NotStarted::Exists),
        Ok(true) => Ok(TargetState::Empty),
        Err(OpenError::Incomplete { .. }) => Ok(TargetState::Incomplete),
        Err(OpenError::File(error)) => Err(NotStarted::File(error)),
        Err(_) => Err(NotStarted::Exists),
    }
}

/// Creates the file `incomplete`, and the directory if it does not exist.
fn create_incomplete_file(disk: &dyn Disk) -> Result<(), NotStarted> {
    match check_target(disk)? {
        TargetState::Incomplete => Ok(()),
        TargetState::Missing => {
            let created = disk.create_root_with_file(INCOMPLETE);
            Ok(created.map_err(|source| file_error(disk, "create", ROOT, source))?)
        }
        TargetState::Empty => {
            // Without this lock, another process could create a database here at the same time, and the file would be
            // in that database.
            let lock = disk.lock_without_writing(LOCK).map_err(|source| file_error(disk, "lock", ROOT, source))?;
            let _lock = lock.ok_or(NotStarted::Exists)?;
            match check_target(disk)? {
                TargetState::Incomplete => Ok(()),
                _ => Ok(write_incomplete_file(disk)?),
            }
        }
    }
}

fn write_incomplete_file(disk: &dyn Disk) -> Result<(), FileError> {
    write_file_on(disk, INCOMPLETE, |_| Ok(()))?;
    disk.sync_directory(ROOT).map_err(|source| file_error(disk, "sync", ROOT, source))
}

/// Completes the new database by removing the file `incomplete`. All other files must be durable.
pub(crate) fn complete(directory: &Directory) -> Result<(), FileError> {
    directory.disk.remove(INCOMPLETE).map_err(|source| directory.error("remove", INCOMPLETE, source))?;
    directory.disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))
}

/// Removes the files of a new database that was not completed, except the lock and the file `incomplete`. Files that
/// cannot be removed stay, but the directory cannot be opened as a database.
pub(crate) fn abandon(disk: &dyn Disk) {
    // The step that failed may be the removal of `incomplete`, and may have taken effect. So the file is written again,
    // because a database with some files removed must not be opened.
    if is_incomplete(disk).is_ok_and(|exists| exists) || write_incomplete_file(disk).is_ok() {
        let _ = remove_files(disk);
    }
}

/// Removes the directory of a new database that was abandoned. A directory that was empty before stays, and is empty
/// again. Does nothing if another process uses the directory by now.
pub(crate) fn remove_directory(path: &Path, before: TargetPath) {
    let disk = FileDisk::new(path);
    let is_abandoned = || is_incomplete(&disk).is_ok_and(|exists| exists);
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
    // If this fails, the lock file stays. A directory with only a lock file is not a database.
    let _ = fs::remove_file(path.join(LOCK));
    match before {
        TargetPath::Missing if list(&disk, ROOT).is_ok_and(|entries| entries.len() == 1) => {
            disk.remove_root_with_file(INCOMPLETE)
        }
        TargetPath::Missing | TargetPath::Other => {}
        // If this fails, opening the directory returns an error that names the file.
        TargetPath::Empty => drop(fs::remove_file(path.join(INCOMPLETE))),
    }
}

fn has_entry(disk: &dyn Disk, name: &str) -> Result<bool, FileError> {
    Ok(list(disk, ROOT)?.iter().any(|entry| entry.name == name))
}

fn is_incomplete(disk: &dyn Disk) -> Result<bool, FileError> {
    has_entry(disk, INCOMPLETE)
}

fn has_foreign_files(disk: &dyn Disk) -> Result<bool, FileError> {
    for directory in [ROOT, BLOCKS, LOG, READERS] {
        if list(disk, directory)?.iter().any(|entry| !is_database_file_name(directory, entry)) {
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
            let is_kept = directory == ROOT && [LOCK, INCOMPLETE].contains(&entry.name.as_str());
            if entry.is_directory || is_kept || !is_database_file_name(directory, &entry) {
                continue;
            }
            let name = if directory == ROOT { entry.name } else { format!("{directory}/{}", entry.name) };
            disk.remove(&name).map_err(|source| file_error(disk, "remove", &name, source))?;
            is_changed = true;
        }
        if is_changed {
            // Without the sync, a removed file could reappear after a power loss, when the database is complete.
            disk.sync_directory(directory).map_err(|source| file_error(disk, "sync", directory, source))?;
        }
    }
    Ok(())
}
