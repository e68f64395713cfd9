//! Stores the blocks of temporary tables in chunks of one spill file.
//!
//! ```text
//!   spill file   | block 1 | block 2 | block 1 | free | block 3 |     chunks of equal size
//! ```
//!
//! The file is created with the first block. Like all spill files it has no name, so nothing remains after the process
//! ends, and nothing is synced. Later blocks reuse the chunks of removed blocks.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use taut_store::disk::{DirectoryEntry, Disk, Lock, ReadFile, WriteFile};

use super::spill::{ScratchFile, SpillDirectory};

/// Bytes of a chunk. The unused part of a block's last chunk takes no space in the file system.
const CHUNK_BYTES: u64 = 256 << 10;

/// Disk whose files are stored in chunks of one spill file.
pub struct TemporaryDisk {
    directory: SpillDirectory,
    /// The spill file, once it is created.
    space: Mutex<Option<Arc<Space>>>,
    files: Mutex<BTreeMap<String, Arc<ChunkedFile>>>,
}

/// The spill file, and which of its chunks are free.
#[derive(Debug)]
struct Space {
    file: ScratchFile,
    chunks: Mutex<FreeChunks>,
}

#[derive(Debug, Default)]
struct FreeChunks {
    /// Number of chunks in the file.
    total: u64,
    free: Vec<u64>,
}

/// Content of a file. Its chunks are freed when its last handle is dropped.
#[derive(Debug)]
struct ChunkedFile {
    space: Arc<Space>,
    content: RwLock<Content>,
}

#[derive(Debug, Default)]
struct Content {
    chunks: Vec<u64>,
    length: u64,
}

impl TemporaryDisk {
    /// Creates an empty disk. Its spill file will be in `directory`.
    pub fn new(directory: &SpillDirectory) -> Self {
        Self { directory: directory.clone(), space: Mutex::default(), files: Mutex::default() }
    }

    fn space(&self) -> io::Result<Arc<Space>> {
        let mut space = self.space.lock();
        if let Some(space) = &*space {
            return Ok(Arc::clone(space));
        }
        let file = self.directory.create_scratch()?;
        Ok(Arc::clone(space.insert(Arc::new(Space { file, chunks: Mutex::default() }))))
    }
}

impl Space {
    fn take_chunk(&self) -> u64 {
        let chunks = &mut *self.chunks.lock();
        chunks.free.pop().unwrap_or_else(|| {
            chunks.total += 1;
            chunks.total - 1
        })
    }

    fn release(&self, released: &mut Vec<u64>) {
        let chunks = &mut *self.chunks.lock();
        chunks.free.append(released);
        // If `clear` fails, later blocks reuse the chunks.
        if chunks.free.len() as u64 == chunks.total && self.file.clear().is_ok() {
            *chunks = FreeChunks::default();
        }
    }
}

impl ChunkedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let content = &mut *self.content.write();
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = content.length % CHUNK_BYTES;
            if within == 0 && content.length / CHUNK_BYTES == content.chunks.len() as u64 {
                content.chunks.push(self.space.take_chunk());
            }
            let (here, after) = rest.split_at(rest.len().min((CHUNK_BYTES - within) as usize));
            let chunk = content.chunks.last().copied().unwrap_or_default();
            self.space.file.write_at(here, chunk * CHUNK_BYTES + within)?;
            content.length += here.len() as u64;
            rest = after;
        }
        Ok(())
    }
}

impl Drop for ChunkedFile {
    fn drop(&mut self) {
        self.space.release(&mut self.content.get_mut().chunks);
    }
}

impl ReadFile for ChunkedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.content.read().length)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let content = self.content.read();
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > content.length) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let within = at % CHUNK_BYTES;
            let bytes = rest.len().min((CHUNK_BYTES - within) as usize);
            let (here, after) = rest.split_at_mut(bytes);
            let chunk = content.chunks.get((at / CHUNK_BYTES) as usize).ok_or(ErrorKind::UnexpectedEof)?;
            self.space.file.read_at(here, chunk * CHUNK_BYTES + within)?;
            (at, rest) = (at + bytes as u64, after);
        }
        Ok(())
    }
}

/// A file that is being written.
#[derive(Debug)]
struct ChunkWriter(Arc<ChunkedFile>);

impl WriteFile for ChunkWriter {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    /// Not supported: only logs are extended.
    fn extend(&mut self, _length: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for TemporaryDisk {
    /// The directory of the spill file, which has no name.
    fn path(&self, _name: &str) -> PathBuf {
        self.directory.path()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let file = Arc::new(ChunkedFile { space: self.space()?, content: RwLock::default() });
        self.files.lock().insert(name.to_owned(), Arc::clone(&file));
        Ok(Box::new(ChunkWriter(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.files.lock().get(name).cloned().ok_or(ErrorKind::NotFound)?;
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.files.lock().remove(name);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        let files = self.files.lock();
        let names = files.keys().filter_map(|name| name.strip_prefix(directory)?.strip_prefix('/'));
        Ok(names.map(|name| DirectoryEntry { name: name.to_owned(), is_directory: false }).collect())
    }

    fn create_directory(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Not supported: no other process can open the disk.
    fn lock(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn extension_step(&self) -> u64 {
        0
    }
}

impl Debug for TemporaryDisk {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "TemporaryDisk({} files)", self.files.lock().len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn files_share_the_chunks_of_one_file_without_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let disk = TemporaryDisk::new(&SpillDirectory::new(Some(directory.path())));
        let content = |seed: usize| (0..3 * CHUNK_BYTES as usize + 17).map(move |at| ((at * seed) % 251) as u8);
        let (one, two): (Vec<u8>, Vec<u8>) = (content(1).collect(), content(7).collect());
        let (mut first, mut second) = (disk.create("blocks/1").unwrap(), disk.create("blocks/2").unwrap());
        for (one, two) in one.chunks(100_001).zip(two.chunks(100_001)) {
            first.write_all(one).unwrap();
            second.write_all(two).unwrap();
        }
        drop((first, second));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let read = |file: &dyn ReadFile, at: usize, bytes: usize| {
            let mut into = vec![0; bytes];
            file.read_at(at as u64, &mut into).map(|()| into)
        };
        let (reader, other) = (disk.open("blocks/1").unwrap(), disk.open("blocks/2").unwrap());
        for (at, bytes) in [(0, one.len()), (5, 0), (CHUNK_BYTES as usize - 1, 2), (one.len() - 1, 1)] {
            assert_eq!(read(&*reader, at, bytes).unwrap(), one[at..at + bytes]);
            assert_eq!(read(&*other, at, bytes).unwrap(), two[at..at + bytes]);
        }
        assert_eq!(read(&*reader, one.len(), 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        // A removed file stays readable, and releases its chunks when its last handle is dropped.
        disk.remove("blocks/1").unwrap();
        disk.create("blocks/3").unwrap().write_all(&two).unwrap();
        assert_eq!(read(&*reader, 0, one.len()).unwrap(), one);
        drop(reader);
        let space = disk.space().unwrap();
        let total = || space.chunks.lock().total;
        let before = total();
        disk.create("blocks/4").unwrap().write_all(&one).unwrap();
        assert_eq!(total(), before);
        assert_eq!(read(&*disk.open("blocks/4").unwrap(), 0, one.len()).unwrap(), one);
        ["blocks/2", "blocks/3", "blocks/4"].into_iter().for_each(|name| disk.remove(name).unwrap());
        drop(other);
        assert_eq!(total(), 0);
    }
}
