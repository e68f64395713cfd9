//! All access to files goes through [`Disk`]: real storage, memory and simulated crashes.
//!
//! Names are relative to the database directory and joined by `/`. The empty name is that directory itself.
//!
//! An implementation guarantees the following, and no more:
//! - the content of a file and its length survive a crash once [`WriteFile::sync`] has returned;
//! - a created, renamed or removed name survives once [`Disk::sync_directory`] of its directory has returned;
//! - before that, any part of these changes may survive, in any order; but after a rename over a name, that name is
//!   either the old file or the new one.

mod file;
mod memory;
mod registration;
mod simulated;

pub use file::FileDisk;
pub use file::physical_memory;
pub use memory::MemoryDisk;
pub use simulated::{Fault, SimulatedDisk};

use std::fmt::{self, Debug, Display, Formatter};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory of files.
pub trait Disk: Debug + Send + Sync {
    /// Path of a name, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// Creates a file, or empties an existing one.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If the file system returns an error: `NotFound` if the file does not exist.
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file, replacing an existing file of the new name.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If the file system returns an error: `NotFound` if the file does not exist.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The entries of a directory, in no particular order.
    ///
    /// # Errors
    /// If the file system returns an error: `NotFound` or `NotADirectory` if the directory does not exist.
    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>>;

    /// Creates a directory, if it does not exist.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn create_directory(&self, name: &str) -> io::Result<()>;

    /// Creates the database directory with an empty file in it, and makes both durable. If the disk supports it, this
    /// is atomic: even if the process is killed, the directory never exists at the path without the file.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn create_root_with_file(&self, name: &str) -> io::Result<()> {
        self.create_directory("")?;
        self.create(name)?.sync()?;
        self.sync_directory("")
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn sync_directory(&self, name: &str) -> io::Result<()>;

    /// Locks the database directory exclusively until the guard is dropped. Returns `None` if it is already locked.
    /// `name` is a lock file, for systems that cannot lock a directory. It is created if it is missing.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// Locks the database directory as [`Disk::lock`] does, without creating or writing anything.
    ///
    /// # Errors
    /// If the file system returns an error: `Unsupported` if a lock requires writing.
    fn lock_without_writing(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The process that holds the lock, for messages. Returns `None` if it is not known.
    fn lock_holder(&self, _name: &str) -> Option<LockHolder> {
        None
    }

    /// Locks the database directory shared until the guard is dropped: it excludes [`Disk::lock`], but not other shared
    /// locks. Returns `None` if the exclusive lock is held. A disk without shared locks takes the exclusive one.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn lock_shared(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(name)
    }

    /// Creates a file that represents a live reader. The reader is live until the guard is dropped or its process ends
    /// for any reason. Returns `None` if the name is taken. The directory of the file is created if it is missing.
    ///
    /// # Errors
    /// If the file system returns an error: `Unsupported` if readers cannot be registered.
    fn register(&self, _name: &str, _content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads the current content of a file that [`Disk::register`] created. Returns `None` if its reader is gone; the
    /// file is then removed if possible.
    ///
    /// # Errors
    /// If the file system returns an error. It is then unknown whether the reader is live.
    fn read_registration(&self, _name: &str) -> io::Result<Option<Vec<u8>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes durable what another process wrote to a file.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn sync_file(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Step in bytes by which to extend a file that is synced often while it grows. Zero if a sync costs no more after
    /// the file has become longer.
    fn extension_step(&self) -> u64;
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// Name of the entry, without its directory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Whether the entry is a directory.
    pub is_directory: bool,
}

/// A file open for writing, from its beginning.
pub trait WriteFile: Debug + Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// If the file system returns an error. Part of the bytes may then be written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Extends the file to `length` bytes; bytes not written yet are zeros. The next write still continues after the
    /// last one.
    ///
    /// # Errors
    /// If the file system returns an error. The file may then be extended or not.
    fn extend(&mut self, length: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    /// If the file system returns an error. It is then unknown what is on the medium.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file open for reading. It stays readable after its name is removed.
pub trait ReadFile: Debug + Send + Sync {
    /// Length of the file in bytes.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn length(&self) -> io::Result<u64>;

    /// Fills a buffer with the bytes at an offset.
    ///
    /// # Errors
    /// If the file system returns an error: `UnexpectedEof` if the file ends before the buffer is full.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Guard of a lock. Dropping it releases the lock.
pub trait Lock: Debug + Send + Sync {
    /// Whether the database directory is still the one that was locked.
    ///
    /// # Errors
    /// If the file system returns an error.
    fn is_valid(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// A lock that excludes no other process.
#[derive(Debug)]
pub(crate) struct NoLock;

impl Lock for NoLock {}

/// The file of a live reader. Dropping it removes the file.
pub trait Registration: Debug + Send + Sync {
    /// Replaces the content of the file with content of the same length. A concurrent reader may see parts of both.
    ///
    /// # Errors
    /// If the file system returns an error. The content may then be parts of both.
    fn set(&self, content: &[u8]) -> io::Result<()>;
}

/// A process that has a database open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Process id.
    pub process: u32,
    /// Name of the command of the process, if known.
    pub command: Option<String>,
}

impl Display for LockHolder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {}", self.process)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(formatter, " ({command})"))
    }
}

/// Reads a whole file, up to the length that it has when the call begins.
pub(crate) fn read_whole(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    read_file(&*disk.open(name)?)
}

/// Reads an open file as [`read_whole`] does.
pub(crate) fn read_file(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(length, 0);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of the log assume that all disks agree on this.
    #[test]
    fn writes_to_an_extended_file_continue_after_the_last_write() {
        let directory = tempfile::tempdir().unwrap();
        let simulated = SimulatedDisk::new();
        simulated.create_directory("").unwrap();
        let disks: [&dyn Disk; 3] = [&FileDisk::new(directory.path()), &MemoryDisk::new(), &simulated];
        for disk in disks {
            let mut file = disk.create("file").unwrap();
            file.write_all(b"one").unwrap();
            file.extend(10).unwrap();
            assert_eq!(read_whole(disk, "file").unwrap(), b"one\0\0\0\0\0\0\0", "{disk:?}");
            file.write_all(b"two").unwrap();
            file.sync().unwrap();
            assert_eq!(read_whole(disk, "file").unwrap(), b"onetwo\0\0\0\0", "{disk:?}");
            file.write_all(b"behind").unwrap();
            file.extend(14).unwrap();
            file.extend(14).unwrap();
            assert_eq!(read_whole(disk, "file").unwrap(), b"onetwobehind\0\0", "{disk:?}");
        }
    }

    #[test]
    fn power_loss_keeps_any_part_of_writes_and_lengths() {
        let disk = SimulatedDisk::new();
        disk.create_directory("").unwrap();
        let mut file = disk.create("file").unwrap();
        disk.sync_directory("").unwrap();
        let mut write = |at_least: u64| {
            file.extend(at_least).unwrap();
            file.write_all(&[7; 4_096]).unwrap();
            let found = (0..300).map(|seed| {
                let bytes = disk.after_power_loss(seed).files().remove("file").unwrap();
                (bytes.len(), bytes.iter().filter(|byte| **byte == 7).count())
            });
            let found: std::collections::BTreeSet<(usize, usize)> = found.collect();
            file.sync().unwrap();
            found
        };
        let first = write(6_000);
        assert!(
            [(0, 0), (6_000, 0), (4_096, 4_096), (6_000, 4_096)].iter().all(|end| first.contains(end)),
            "{first:?}"
        );
        assert!(first.iter().all(|(length, _)| *length <= 4_096 || *length == 6_000), "{first:?}");
        let second = write(9_000);
        let ends = [(6_000, 4_096), (9_000, 4_096), (8_192, 8_192), (9_000, 8_192)];
        assert!(ends.iter().all(|end| second.contains(end)), "{second:?}");
        assert!(second.iter().all(|(length, sevens)| *length >= 6_000 && *sevens >= 4_096), "{second:?}");
    }
}
