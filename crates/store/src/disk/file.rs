//! Implementation of [`Disk`] by files of the operating system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::registration::{FileRegistration, read_registration};
use super::{DirectoryEntry, Disk, Lock, LockHolder, NoLock, ReadFile, Registration, WriteFile};

/// Files under a directory of the file system.
///
/// The lock is an advisory lock of the operating system on the directory. A lock file in the directory is locked too,
/// for file systems that do not lock directories. Both locks end with the process in any case.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
}

impl FileDisk {
    /// The files under `root`, which need not exist yet. A relative `root` is resolved now, so it does not follow a
    /// later change of the working directory.
    pub fn new(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()) }
    }

    /// Removes the database directory, which holds at most the file `name`. The directory is renamed first, so that its
    /// path never leads to a directory without the file. What cannot be removed stays under the new name, where it does
    /// no harm.
    pub(crate) fn remove_root_with_file(&self, name: &str) {
        if let Ok(staging_path) = self.staging_path()
            && fs::rename(&self.root, &staging_path).is_ok()
        {
            remove_staged(&staging_path, name);
        }
    }

    /// Locks an open lock file, whose directory is already locked. Returns `None` if another process holds the lock of
    /// the file.
    fn lock_file(&self, directory: Option<File>, path: PathBuf, file: File) -> io::Result<Option<FileLock>> {
        match file.try_lock() {
            Ok(()) => {
                Ok(Some(FileLock { root: self.root.clone(), directory, path, file, process: std::process::id() }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Path beside the database directory. The directory is created there, and then renamed into place.
    fn staging_path(&self) -> io::Result<PathBuf> {
        let (parent, name) = (self.root.parent(), self.root.file_name());
        let (parent, name) = parent.zip(name).ok_or(io::ErrorKind::InvalidInput)?;
        let mut staging_path = std::ffi::OsString::from(".");
        staging_path.push(name);
        // Two processes must not share this directory: one would rename it before the other has filled it.
        staging_path.push(format!(".{}.new", std::process::id()));
        Ok(parent.join(staging_path))
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
            // Names on this disk are relative to the database directory. No name refers to its parent, so the parent is
            // synced here and not by `sync_directory`.
            Ok(()) if name.is_empty() => sync_parent(&self.root),
            result => result,
        }
    }

    fn create_root_with_file(&self, name: &str) -> io::Result<()> {
        let staging_path = self.staging_path()?;
        if let Err(error) = fs::create_dir(&staging_path) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            // A killed process with the same id left the directory.
            remove_staged(&staging_path, name);
            fs::create_dir(&staging_path)?;
        }
        let create = || {
            File::create(staging_path.join(name))?.sync_all()?;
            sync_path(&staging_path)?;
            fs::rename(&staging_path, &self.root)?;
            sync_parent(&self.root)
        };
        create().inspect_err(|_| remove_staged(&staging_path, name))
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        sync_path(&self.path(name))
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let DirectoryLock::Taken(directory) = lock_directory(&self.root, File::try_lock)? else { return Ok(None) };
        // Earlier versions of Taut lock only this file.
        let path = self.path(name);
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
        let Some(lock) = self.lock_file(directory, path, file)? else { return Ok(None) };
        // The process id is only for messages, so its errors are ignored.
        let _ = lock.file.set_len(0).and_then(|()| writeln!(&lock.file, "{}", lock.process));
        Ok(Some(Box::new(lock)))
    }

    fn lock_without_writing(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let DirectoryLock::Taken(directory) = lock_directory(&self.root, File::try_lock)? else { return Ok(None) };
        let path = self.path(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            // Earlier versions of Taut lock only this file. It does not exist, so none of them has the database open.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Box::new(DirectoryOnlyLock(directory))));
            }
            Err(error) => return Err(error),
        };
        Ok(self.lock_file(directory, path, file)?.map(|lock| Box::new(lock) as Box<dyn Lock>))
    }

    fn lock_holder(&self, name: &str) -> Option<LockHolder> {
        let process = process_with_lock(&self.root).or_else(|| process_with_lock(&self.path(name)));
        let process = process.or_else(|| fs::read_to_string(self.path(name)).ok()?.trim().parse().ok())?;
        let command = fs::read_to_string(format!("/proc/{process}/comm")).ok();
        Some(LockHolder { process, command: command.map(|command| command.trim().to_owned()) })
    }

    fn lock_shared(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let DirectoryLock::Taken(directory) = lock_directory(&self.root, File::try_lock_shared)? else {
            return Ok(None);
        };
        // If directories cannot be locked, this file is the only lock of a writer. It may be missing, or belong to
        // another user.
        let path = self.path(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(_) if directory.is_none() => return Ok(Some(Box::new(NoLock))),
            Err(_) => {
                let locked = SharedLock { files: directory.into_iter().collect(), process: std::process::id() };
                return Ok(Some(Box::new(locked)));
            }
        };
        match file.try_lock_shared() {
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
        }
        let files = directory.into_iter().chain([file]).collect();
        Ok(Some(Box::new(SharedLock { files, process: std::process::id() })))
    }

    fn register(&self, name: &str, content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        let registration = FileRegistration::create(self.path(name), content)?;
        Ok(registration.map(|registration| Box::new(registration) as Box<dyn Registration>))
    }

    fn read_registration(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        read_registration(&self.path(name))
    }

    /// On Unix, this syncs what any process wrote through any descriptor. Elsewhere the file must be open for writing,
    /// for which a reader has no permission.
    fn sync_file(&self, name: &str) -> io::Result<()> {
        if cfg!(unix) { File::open(self.path(name))?.sync_data() } else { Ok(()) }
    }

    fn extension_step(&self) -> u64 {
        EXTENSION_STEP
    }
}

/// Removes a directory that holds only a file `name`, or nothing. If this fails, the remains are harmless.
fn remove_staged(staging_path: &Path, name: &str) {
    let _ = fs::remove_file(staging_path.join(name));
    let _ = fs::remove_dir(staging_path);
}

/// Step in bytes by which a log file is extended. It is large enough for thousands of small commits, which share one
/// sync of the file's new length. It is small enough that the zeros at the end of the file are read quickly.
const EXTENSION_STEP: u64 = 1 << 20;

/// The lock of a directory without a lock file. Held until the open directory is closed.
#[derive(Debug)]
struct DirectoryOnlyLock(#[expect(dead_code, reason = "closing it unlocks it")] Option<File>);

impl Lock for DirectoryOnlyLock {}

/// The locks of an opened database.
#[derive(Debug)]
struct FileLock {
    root: PathBuf,
    /// The locked directory, which cannot be deleted separately from the database. `None` if the file system locks only
    /// files, as NFS and Windows do.
    directory: Option<File>,
    path: PathBuf,
    file: File,
    /// Process that took the locks.
    process: u32,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A forked child process has copies of the open files until it executes its program, so closing alone would not
        // release the locks. A child that drops its copy of this value must not release the locks of its parent.
        if self.process == std::process::id() {
            // If these fail, closing the files unlocks them.
            let _ = self.file.unlock();
            let _ = self.directory.as_ref().map(File::unlock);
        }
    }
}

impl Lock for FileLock {
    fn is_valid(&self) -> io::Result<bool> {
        match &self.directory {
            Some(directory) => is_at(directory, &self.root),
            None => is_at(&self.file, &self.path),
        }
    }
}

/// The shared locks of a reader that is not registered. No writer can open the database while they are held.
#[derive(Debug)]
struct SharedLock {
    files: Vec<File>,
    /// Process that took the locks; see [`FileLock`].
    process: u32,
}

impl Lock for SharedLock {}

impl Drop for SharedLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // If this fails, closing the files unlocks them.
            self.files.iter().for_each(|file| drop(file.unlock()));
        }
    }
}

/// Function that tries to lock a file without waiting.
type TryLock = fn(&File) -> Result<(), TryLockError>;

#[cfg_attr(not(unix), expect(dead_code, reason = "only unix locks directories"))]
enum DirectoryLock {
    /// The locked directory. `None` if the file system does not lock directories.
    Taken(Option<File>),
    /// Another process holds the lock.
    Held,
}

#[cfg(unix)]
fn lock_directory(path: &Path, lock: TryLock) -> io::Result<DirectoryLock> {
    let directory = File::open(path)?;
    Ok(match lock(&directory) {
        Ok(()) => DirectoryLock::Taken(Some(directory)),
        Err(TryLockError::WouldBlock) => DirectoryLock::Held,
        Err(TryLockError::Error(_)) => DirectoryLock::Taken(None),
    })
}

#[cfg(not(unix))]
fn lock_directory(_path: &Path, _lock: TryLock) -> io::Result<DirectoryLock> {
    Ok(DirectoryLock::Taken(None))
}

/// Whether the path leads to the open file or directory. Its inode number is not reused while it is open.
#[cfg(unix)]
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Always true: Windows neither renames nor removes a directory with an open file.
#[cfg(not(unix))]
pub(super) fn is_at(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

/// The process that holds a lock on a file or directory, according to `/proc/locks`, which identifies files by device
/// and inode.
#[cfg(target_os = "linux")]
fn process_with_lock(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{}", fs::metadata(path).ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // For example `1: FLOCK  ADVISORY  WRITE 4711 08:01:131075 0 EOF`: process 4711, device 08:01, inode 131075.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, file, ..] = fields[..] else { return None };
        // On layered file systems, this line contains the device of the layer below, so it is not compared.
        if file.ends_with(&inode) { process.parse().ok() } else { None }
    })
}

#[cfg(not(target_os = "linux"))]
fn process_with_lock(_path: &Path) -> Option<u32> {
    None
}

impl WriteFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        // This does not move the file's cursor.
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Syncs the length with the content. Timestamps are not needed.
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

/// Does nothing: Windows cannot open a directory as a file, and NTFS journals names itself.
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

/// Bytes of physical memory, if the operating system reports them.
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
    fn a_lock_excludes_other_locks_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(directory.path());
        let held = disk.lock("lock").unwrap();
        assert!(held.is_some());
        let other = FileDisk::new(directory.path());
        assert!(other.lock("lock").unwrap().is_none());
        assert_eq!(other.lock_holder("lock").unwrap().process, std::process::id());
        drop(held);
        assert!(disk.lock("lock").unwrap().is_some());
    }

    #[test]
    fn physical_memory_is_plausible_if_known() {
        if let Some(bytes) = physical_memory() {
            assert!(bytes > 16 << 20, "{bytes}");
        }
    }
}
