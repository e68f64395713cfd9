//! A disk in memory, for databases that end with their process.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{DirectoryEntry, Disk, Lock, NoLock, ReadFile, WriteFile};

/// Files in memory. Each `MemoryDisk` is a separate directory, which no other process can open.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    files: Mutex<BTreeMap<String, Arc<SharedBytes>>>,
}

/// Content of a file, shared by its handles.
type SharedBytes = RwLock<Vec<u8>>;

impl MemoryDisk {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Disk for MemoryDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(":memory:").join(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let content = Arc::<SharedBytes>::default();
        self.files.lock().insert(name.to_owned(), Arc::clone(&content));
        Ok(Box::new(WrittenFile { content, written: 0 }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let content = self.files.lock().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile(content)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Lists the names below a directory. A directory needs no creation, so any directory can be listed.
    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let mut entries = Vec::new();
        for path in self.files.lock().keys() {
            let Some(rest) = path.strip_prefix(&prefix) else { continue };
            let (name, is_directory) = rest.split_once('/').map_or((rest, false), |(first, _)| (first, true));
            entries.push(DirectoryEntry { name: name.to_owned(), is_directory });
        }
        entries.dedup();
        Ok(entries)
    }

    fn create_directory(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Always succeeds: only one store ever uses a disk in memory.
    fn lock(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        Ok(Some(Box::new(NoLock)))
    }

    fn lock_without_writing(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(name)
    }

    fn extension_step(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
struct WrittenFile {
    content: Arc<SharedBytes>,
    written: usize,
}

impl WriteFile for WrittenFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_at(&mut self.content.write(), self.written, bytes);
        self.written += bytes.len();
        Ok(())
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.content.write().resize(length, 0);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file.
#[derive(Debug)]
struct MemoryFile(Arc<SharedBytes>);

impl ReadFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let content = self.0.read();
        into.copy_from_slice(range_of(&content, offset, into.len())?);
        Ok(())
    }
}

/// Writes bytes at an offset within the file or at its end.
pub(super) fn write_at(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = file.len().min(offset + bytes.len());
    let (overlap, rest) = bytes.split_at(end - offset);
    file[offset..end].copy_from_slice(overlap);
    file.extend_from_slice(rest);
}

/// The bytes of a range. `UnexpectedEof` if the file ends before the range does.
pub(super) fn range_of(bytes: &[u8], offset: u64, length: usize) -> io::Result<&[u8]> {
    let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
    let end = start.checked_add(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_survives_its_rename_and_removal() {
        let disk = MemoryDisk::new();
        disk.create("blocks/a").unwrap().write_all(b"content").unwrap();
        let reader = disk.open("blocks/a").unwrap();
        disk.rename("blocks/a", "blocks/b").unwrap();
        let entry = |name: &str, is_directory| DirectoryEntry { name: name.to_owned(), is_directory };
        assert_eq!(disk.list("").unwrap(), [entry("blocks", true)]);
        assert_eq!(disk.list("blocks").unwrap(), [entry("b", false)]);
        disk.remove("blocks/b").unwrap();
        assert_eq!(disk.open("blocks/b").unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut bytes = [0; 4];
        reader.read_at(3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"tent");
        assert_eq!(reader.read_at(4, &mut bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
