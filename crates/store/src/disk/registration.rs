//! Registration files of live readers in the file system.
//!
//! A reader holds the exclusive lock (`flock`) of its file. The lock always ends with the process. So a process that
//! gets the lock knows that the reader has ended, and removes the file before it releases the lock.
//!
//! A file is created before it is locked. A process that tries the lock in between assumes that the reader is gone, and
//! may remove the file. So the reader checks afterwards whether the file that it locked still has its name. From then
//! on no other process removes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Registration;
use super::file::is_at;

/// Maximum bytes to read of a registration file. No such file is longer.
const CONTENT_MAX: u64 = 1 << 10;

/// The locked file of a reader.
#[derive(Debug)]
pub(super) struct FileRegistration {
    path: PathBuf,
    file: File,
    /// Process that created the file. A forked child process has a copy of this value, and must not remove the file.
    process: u32,
}

impl FileRegistration {
    /// Creates and locks a file. `None` if the name is taken, or another process assumed that its reader is gone.
    pub fn create(path: PathBuf, content: &[u8]) -> io::Result<Option<Self>> {
        let created = match create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_parent(&path)?;
                create_new(&path)
            }
            created => created,
        };
        let mut file = match created {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(error),
        };
        let registered = match file.try_lock() {
            Ok(()) => file.write_all(content).and_then(|()| is_at(&file, &path)),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        };
        match registered {
            Ok(true) => Ok(Some(Self { path, file, process: std::process::id() })),
            other => {
                // If this fails, the next writer removes the file, because it is not locked.
                let _ = fs::remove_file(&path);
                other.map(|_| None)
            }
        }
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).read(true).write(true).open(path)
}

fn create_parent(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    match fs::create_dir(parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

impl Registration for FileRegistration {
    fn set(&self, content: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(content)
    }
}

impl Drop for FileRegistration {
    fn drop(&mut self) {
        if self.process == std::process::id() && is_at(&self.file, &self.path).unwrap_or(false) {
            // If these fail, closing the file unlocks it, and the next writer removes it.
            let _ = fs::remove_file(&self.path);
            let _ = self.file.unlock();
        }
    }
}

/// The content of a reader's file. `None` if the reader is gone; the file is then removed.
pub(super) fn read_registration(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Some file systems lock a file exclusively only if it is open for writing, which another user's file may not
    // allow.
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        opened => opened,
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {
            // Its name may belong to another file by now. If the removal fails, the next writer removes the file.
            if is_at(&file, path)? {
                let _ = fs::remove_file(path);
            }
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => {
            let mut content = Vec::new();
            (&file).take(CONTENT_MAX).read_to_end(&mut content)?;
            Ok(Some(content))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_live_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("readers/1-1");
        let reader = FileRegistration::create(path.clone(), b"one").unwrap().unwrap();
        assert!(FileRegistration::create(path.clone(), b"two").unwrap().is_none());
        assert_eq!(read_registration(&path).unwrap().unwrap(), b"one");
        reader.set(b"two").unwrap();
        assert_eq!(read_registration(&path).unwrap().unwrap(), b"two");
        drop(reader);
        assert!(!path.exists() && read_registration(&path).unwrap().is_none());
        // A file without a lock belongs to a dead reader.
        fs::write(&path, "one").unwrap();
        assert!(read_registration(&path).unwrap().is_none() && !path.exists());
    }
}
