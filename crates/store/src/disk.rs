//! All access to files goes through [`Disk`]: the one place that real storage, memory and simulated crashes share.
//!
//! Names are relative to the database directory and joined by `/`; the empty name is that directory itself.
//!
//! What an implementation promises, and nothing beyond it:
//! - the content of a file, and its length, survive a crash once [`WriteFile::sync`] returned;
//! - a created, renamed or removed name survives once [`Disk::sync_directory`] of its directory returned;
//! - before that, any part of it may survive, in any order, or none; but a rename over a name leaves either the
//!   old file or the new one there.

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
    /// Where a name lies, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// Creates a file, or empties the one there is.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Whatever the file system answers; `NotFound` where there is no such file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>>;

    /// Gives a file another name, replacing the file of that name.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the file system answers; `NotFound` where there is no such file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// What lies directly in a directory, in no particular order.
    ///
    /// # Errors
    /// Whatever the file system answers; `NotFound` or `NotADirectory` where there is no such directory.
    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>>;

    /// Creates a directory; one that exists is no error.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn create_directory(&self, name: &str) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn sync_directory(&self, name: &str) -> io::Result<()>;

    /// Locks the database directory against all other holders until the guard is dropped. Returns `None` if another
    /// holds the lock. `name` is a file for locks that cannot be taken on a directory; it is created if it is missing.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// Locks the database directory as [`Disk::lock`] does, without creating or writing anything.
    ///
    /// # Errors
    /// Whatever the file system answers; `Unsupported` where nothing can be locked without being written.
    fn lock_to_read(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The process that holds the lock, for messages. Returns `None` if it is not known.
    fn lock_holder(&self, _name: &str) -> Option<LockHolder> {
        None
    }

    /// Locks the database directory against [`Disk::lock`] until the guard is dropped, while others hold the same shared
    /// lock. Returns `None` if a holder of the exclusive lock excludes that. A disk without such locks takes the exclusive
    /// one.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn lock_shared(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(name)
    }

    /// Creates a file that names a live reader: it counts as live until the guard is dropped or its process ends, however
    /// that ends. Returns `None` if the name is taken. The directory of the file is created if it is missing.
    ///
    /// # Errors
    /// Whatever the file system answers; `Unsupported` where readers cannot be registered.
    fn register(&self, _name: &str, _content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The content of a file that [`Disk::register`] created, as of now. Returns `None` if its reader is gone; the file is
    /// then removed, if that is possible.
    ///
    /// # Errors
    /// Whatever the file system answers; it is then unknown whether the reader lives.
    fn registered(&self, _name: &str) -> io::Result<Option<Vec<u8>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes durable what another process wrote to a file.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn sync_file(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// The multiple of bytes to which a file is best extended that is synced again and again while it grows; 0 where
    /// a sync costs the same with a new length as without.
    fn extension_step(&self) -> u64;
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The name, without its directory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_directory: bool,
}

/// A file being written, from its beginning on.
pub trait WriteFile: Debug + Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// Whatever the file system answers; part of the bytes may then be written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file longer: so many bytes, of which those that are not written yet are zeros. The next write still
    /// goes behind the one before.
    ///
    /// # Errors
    /// Whatever the file system answers; the file may then be longer or not.
    fn extend(&mut self, length: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    /// Whatever the file system answers; what is on the medium is then unknown.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file open for reading. It stays readable after its name is gone.
pub trait ReadFile: Debug + Send + Sync {
    /// Bytes in the file.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn length(&self) -> io::Result<u64>;

    /// Fills a buffer with the bytes from an offset on.
    ///
    /// # Errors
    /// Whatever the file system answers; `UnexpectedEof` where the file ends before the buffer is full.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Holds a lock until it is dropped.
pub trait Lock: Debug + Send + Sync {
    /// Returns whether the database directory is still the one that was locked.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn is_valid(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// A lock that excludes nobody.
#[derive(Debug)]
pub(crate) struct NoLock;

impl Lock for NoLock {}

/// The file of a live reader. Dropping it removes the file.
pub trait Registration: Debug + Send + Sync {
    /// Replaces the content, by one of the same length. Who reads it meanwhile may see parts of both.
    ///
    /// # Errors
    /// Whatever the file system answers; the content may then be parts of both.
    fn set(&self, content: &[u8]) -> io::Result<()>;
}

/// A process that has a database open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The id of the process.
    pub process: u32,
    /// The name of its command, if it is known.
    pub command: Option<String>,
}

impl Display for LockHolder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {}", self.process)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(formatter, " ({command})"))
    }
}

/// Reads a whole file. One that grows meanwhile is read as far as it was long at first.
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

    /// Whether all disks agree, which the log's tests take for granted.
    #[test]
    fn writes_go_on_in_an_extended_file_where_they_ended() {
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
    fn power_loss_keeps_any_of_writes_and_lengths() {
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
