//! All access to files goes through [`Disk`]: the one place that real storage, memory and simulated crashes share.
//!
//! Names are relative to the database directory and joined by `/`; the empty name is that directory itself.
//!
//! What an implementation promises, and nothing beyond it:
//! - the content of a file survives a crash once [`WriteFile::sync`] returned;
//! - a created, renamed or removed name survives once [`Disk::sync_directory`] of its directory returned;
//! - before that, any part of it may survive, in any order, or none; but a rename over a name leaves either the
//!   old file or the new one there.

mod file;
mod memory;
mod simulated;

pub use file::FileDisk;
pub use file::physical_memory;
pub use memory::MemoryDisk;
pub use simulated::{Fault, SimulatedDisk};

use std::fmt::Debug;
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

    /// Locks a file, which is created where there is none, against all other holders until the guard is dropped;
    /// `None` where another holds it.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;
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
pub trait Lock: Debug + Send + Sync {}

/// Reads a whole file. One that grows meanwhile is read as far as it was long at first.
pub(crate) fn read_whole(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(name)?;
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(length, 0);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
