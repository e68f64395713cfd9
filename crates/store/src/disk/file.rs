//! The disk of the operating system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DirectoryEntry, Disk, Lock, ReadFile, WriteFile};

/// Files under a directory of the operating system.
///
/// The lock is the operating system's advisory lock of a file, which ends with the process however it ends.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
}

impl FileDisk {
    /// The files under `root`, which need not exist yet. It stays that directory when the process changes its own.
    pub fn new(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()) }
    }
}

impl Disk for FileDisk {
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(File::create(self.path(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(File::open(self.path(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        fs::read_dir(self.path(directory))?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(DirectoryEntry { name, is_directory: entry.file_type()?.is_dir() })
            })
            .collect()
    }

    fn create_directory(&self, name: &str) -> io::Result<()> {
        match fs::create_dir(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // Whoever creates the database directory cannot reach its parent by a name, so it is made durable here.
            Ok(()) if name.is_empty() => sync_parent(&self.root),
            result => result,
        }
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        sync_path(&self.path(name))
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(self.path(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(LockedFile { _file: file }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn extension_step(&self) -> u64 {
        EXTENSION_STEP
    }
}

/// Thousands of small commits share the sync of one new length, and a reader has few zeros to look through.
const EXTENSION_STEP: u64 = 1 << 20;

#[derive(Debug)]
struct LockedFile {
    _file: File,
}

impl Lock for LockedFile {}

impl WriteFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        // The file's cursor stays where it is.
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is synced with the content; times are of no use to us.
        self.sync_data()
    }
}

impl ReadFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, into, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let count = std::os::windows::fs::FileExt::seek_read(self, into, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += count as u64;
            into = &mut into[count..];
        }
        Ok(())
    }
}

#[cfg(unix)]
fn sync_path(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Directories cannot be opened as files there; NTFS keeps its names by its own journal.
#[cfg(not(unix))]
fn sync_path(_directory: &Path) -> io::Result<()> {
    Ok(())
}

fn sync_parent(directory: &Path) -> io::Result<()> {
    match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_path(Path::new(".")),
        Some(parent) => sync_path(parent),
        None => Ok(()),
    }
}

/// Bytes of physical memory, where the operating system tells.
pub fn physical_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(directory.path());
        let held = disk.lock("lock").unwrap();
        assert!(held.is_some());
        assert!(FileDisk::new(directory.path()).lock("lock").unwrap().is_none());
        drop(held);
        assert!(disk.lock("lock").unwrap().is_some());
    }

    #[test]
    fn physical_memory_is_plausible_where_it_is_known() {
        if let Some(bytes) = physical_memory() {
            assert!(bytes > 16 << 20, "{bytes}");
        }
    }
}
