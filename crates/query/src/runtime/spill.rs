//! Spill files: data that does not fit in memory, such as sorted runs and parts of aggregations and joins.
//!
//! Spill files have no name. They are created unlinked if the operating system supports it, and otherwise unlinked
//! before anything is written. No file remains after the process ends, even after `kill -9` or loss of power.

use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::spill_file::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, TryStreamExt};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// Bytes of one read. Each read is a round trip to a thread for blocking calls.
const READ_BYTES: usize = 1 << 20;
/// Size of the write buffer in bytes. The writer of record batches makes many small writes.
const WRITE_BYTES: usize = 256 << 10;

/// Directory of the spill files of a database.
#[derive(Clone)]
pub struct SpillDirectory(Arc<Mutex<Directories>>);

struct Directories {
    /// Directory of the database, or the operating system's temporary directory if the database has no directory.
    default: PathBuf,
    /// Directory that the user chose with `SET temp_directory`.
    chosen: Option<PathBuf>,
}

impl SpillDirectory {
    /// Uses the directory of a database. `None` is for a database without a directory: it uses the operating system's
    /// temporary directory.
    pub fn new(database: Option<&Path>) -> Self {
        let default = database.map_or_else(std::env::temp_dir, Path::to_owned);
        Self(Arc::new(Mutex::new(Directories { default, chosen: None })))
    }

    /// The current directory.
    pub(crate) fn path(&self) -> PathBuf {
        let directories = self.0.lock();
        directories.chosen.as_ref().unwrap_or(&directories.default).clone()
    }

    /// Changes the directory for new files; `None` restores the default. Existing files stay where they are.
    ///
    /// # Errors
    /// If no file can be created in the directory. The directory is then unchanged.
    pub(crate) fn set_directory(&self, directory: Option<PathBuf>) -> Result<(), SpillError> {
        if let Some(directory) = &directory {
            create_in(directory)?;
        }
        self.0.lock().chosen = directory;
        Ok(())
    }

    /// Creates a spill file whose parts can be read in any order.
    ///
    /// # Errors
    /// If no file can be created.
    pub(super) fn create_region(&self) -> Result<SpillRegion, SpillError> {
        Ok(SpillRegion(self.create_unnamed()?))
    }

    /// Creates a spill file that is written and read at any offsets.
    ///
    /// # Errors
    /// If no file can be created.
    pub(super) fn create_scratch(&self) -> Result<ScratchFile, SpillError> {
        Ok(ScratchFile(self.create()?.0))
    }

    fn create_unnamed(&self) -> Result<UnnamedFile, SpillError> {
        let (file, directory) = self.create()?;
        Ok(UnnamedFile { file: Arc::new(file), written: Arc::default(), directory: directory.into() })
    }

    /// Creates a file, and returns it with its directory. A read-only database spills to the operating system's
    /// temporary directory.
    fn create(&self) -> Result<(File, PathBuf), SpillError> {
        let directory = self.path();
        match create_in(&directory) {
            Err(SpillError { cause, .. })
                if self.0.lock().chosen.is_none()
                    && matches!(cause.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
            {
                let directory = std::env::temp_dir();
                Ok((create_in(&directory)?, directory))
            }
            created => Ok((created?, directory)),
        }
    }
}

fn create_in(directory: &Path) -> Result<File, SpillError> {
    tempfile::tempfile_in(directory).map_err(|cause| SpillError { directory: directory.to_owned(), cause })
}

impl Debug for SpillDirectory {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "SpillDirectory({})", self.path().display())
    }
}

/// Error about a spill file that cannot be created, written or read.
#[derive(Debug, thiserror::Error)]
#[error("spill file in {}: {}{}", directory.display(), cause, disk_full_hint(cause))]
pub(crate) struct SpillError {
    directory: PathBuf,
    cause: io::Error,
}

impl SpillError {
    /// Whether the disk or a quota is full.
    pub fn is_full(&self) -> bool {
        is_full(&self.cause)
    }
}

fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

fn disk_full_hint(cause: &io::Error) -> &'static str {
    match is_full(cause) {
        true => {
            "; free space there, choose another directory with SET temp_directory = '...', or open the database with more \
             memory"
        }
        false => "; another directory is chosen with SET temp_directory = '...'",
    }
}

impl From<SpillError> for io::Error {
    fn from(error: SpillError) -> Self {
        Self::new(error.cause.kind(), error)
    }
}

impl From<SpillError> for DataFusionError {
    fn from(error: SpillError) -> Self {
        Self::External(Box::new(error))
    }
}

impl TempFileFactory for SpillDirectory {
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(self.create_unnamed()?))
    }
}

/// A file without a name. The operating system deletes it when its last reader and writer are dropped.
#[derive(Clone)]
struct UnnamedFile {
    file: Arc<File>,
    /// Size in bytes.
    written: Arc<AtomicU64>,
    directory: Arc<Path>,
}

impl UnnamedFile {
    fn error(&self, cause: io::Error) -> SpillError {
        SpillError { directory: self.directory.to_path_buf(), cause }
    }

    /// Reads at most [`READ_BYTES`] at `offset`; returns no bytes at the end of the file.
    fn read(&self, offset: u64) -> Result<Bytes, SpillError> {
        let left = self.written.load(Ordering::Acquire).saturating_sub(offset);
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES)];
        positioned::read_exact_at(&self.file, &mut bytes, offset).map_err(|cause| self.error(cause))?;
        Ok(bytes.into())
    }
}

/// A spill file whose parts can be read in any order, even while other parts are appended. Clones share the file.
#[derive(Clone)]
pub(super) struct SpillRegion(UnnamedFile);

impl SpillRegion {
    /// Appends bytes, and returns their range in the file. Appends must not run concurrently.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, bytes: &[u8]) -> Result<Range<u64>, SpillError> {
        let Self(file) = self;
        let begin = file.written.load(Ordering::Acquire);
        write_all_at(&file.file, bytes, begin).map_err(|cause| file.error(cause))?;
        file.written.store(begin + bytes.len() as u64, Ordering::Release);
        Ok(begin..begin + bytes.len() as u64)
    }

    /// Reads bytes that [`SpillRegion::append`] has written.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, SpillError> {
        let Self(file) = self;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        positioned::read_exact_at(&file.file, &mut bytes, range.start).map_err(|cause| file.error(cause))?;
        Ok(bytes)
    }
}

/// A spill file that is written and read at any offsets.
#[derive(Debug)]
pub(super) struct ScratchFile(File);

impl ScratchFile {
    /// Writes all bytes at an offset, which may be past the end of the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        write_all_at(&self.0, bytes, offset)
    }

    /// Fills a buffer with the bytes at an offset.
    ///
    /// # Errors
    /// If the file cannot be read, or has fewer bytes.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        positioned::read_exact_at(&self.0, into, offset)
    }

    /// Releases the space of the whole file.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn clear(&self) -> io::Result<()> {
        self.0.set_len(0)
    }
}

fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match positioned::write_at(file, rest, offset + (bytes.len() - rest.len()) as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

impl SpillFile for UnnamedFile {
    fn size(&self) -> Option<u64> {
        Some(self.written.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let stream = futures::stream::try_unfold((self.clone(), 0), |(file, offset)| async move {
            let reading = file.clone();
            let read = spawn_blocking(move || reading.read(offset)).await;
            let bytes = read.map_err(|error| DataFusionError::External(Box::new(error)))??;
            let next = offset + bytes.len() as u64;
            Ok((!bytes.is_empty()).then_some((bytes, (file, next))))
        });
        Ok(Box::pin(stream.into_stream()))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer(BufWriter::with_capacity(WRITE_BYTES, Appender(self.clone())))))
    }
}

/// Writer that appends to a file.
struct Appender(UnnamedFile);

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(file) = self;
        let offset = file.written.load(Ordering::Acquire);
        let written = positioned::write_at(&file.file, bytes, offset);
        let written = written.map_err(|cause| io::Error::new(cause.kind(), file.error(cause)))?;
        file.written.store(offset + written as u64, Ordering::Release);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Writer(BufWriter<Appender>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

#[cfg(unix)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    pub fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }

    pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
}

#[cfg(windows)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;

    pub fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut read = 0;
        while read < bytes.len() {
            match file.seek_read(&mut bytes[read..], offset + read as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        Ok(())
    }

    pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(bytes, offset)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn names_in(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[tokio::test]
    async fn written_files_are_readable_and_have_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let spills = SpillDirectory::new(Some(directory.path()));
        let file = spills.create_temp_file("a test").unwrap();
        let bytes: Vec<u8> = (0..3 * READ_BYTES + 17).map(|index| (index % 251) as u8).collect();
        for part in [&bytes[..5], &bytes[5..READ_BYTES + 1], &bytes[READ_BYTES + 1..]] {
            let mut writer = file.open_writer().unwrap();
            writer.write_all(part).unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(names_in(directory.path()), 0);
        assert_eq!(file.size(), Some(bytes.len() as u64));
        // Two readers do not disturb each other.
        let (first, second) = (file.read_stream().unwrap(), file.read_stream().unwrap());
        let (first, second): (Vec<Bytes>, Vec<Bytes>) =
            futures::try_join!(first.try_collect(), second.try_collect()).unwrap();
        assert_eq!(first.concat(), bytes);
        assert_eq!(second.concat(), bytes);
    }

    #[test]
    fn a_missing_directory_is_refused_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let spills = SpillDirectory::new(Some(directory.path()));
        let missing = directory.path().join("missing");
        let error = spills.set_directory(Some(missing.clone())).unwrap_err().to_string();
        assert!(error.contains(&missing.display().to_string()), "{error}");
        assert_eq!(spills.path(), directory.path());
        let other = tempfile::tempdir().unwrap();
        spills.set_directory(Some(other.path().to_owned())).unwrap();
        assert_eq!(spills.path(), other.path());
        spills.set_directory(None).unwrap();
        assert_eq!(spills.path(), directory.path());
    }

    #[test]
    fn the_error_of_a_full_disk_names_the_directory_and_the_setting() {
        let error = SpillError { directory: "/small".into(), cause: ErrorKind::StorageFull.into() };
        assert!(error.is_full());
        let message = error.to_string();
        assert!(message.contains("/small") && message.contains("SET temp_directory"), "{message}");
    }
}
