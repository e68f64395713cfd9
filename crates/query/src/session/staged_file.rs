//! The file that `COPY ... TO` writes.
//!
//! Rows go to a new file, in a hidden directory beside the target. The file is renamed to the target only when it is
//! complete, so a statement that fails or is cancelled does not change an existing file.
//!
//! ```text
//!   sales.csv                       the target
//!   .taut-copy-4711-0/              locked while process 4711 writes to it
//!   .taut-copy-4711-0/sales.csv     the new file
//! ```
//!
//! A process that is killed leaves its hidden directory behind, unlocked. The first `COPY ... TO` beside it by another
//! process removes it.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::logical_expr::LogicalPlan;
use parking_lot::Mutex;
use url::Url;

use crate::error::{QueryError, Result};

/// Prefix of the names of hidden directories.
const PREFIX: &str = ".taut-copy-";

/// Texts in the engine's messages about a file that cannot be written.
const WRITE_ERRORS: [&str; 2] = ["Unable to copy data to file", "Error writing to object store"];
/// Text in the engine's message about a file whose end cannot be written. The engine drops the cause.
const UNNAMED_WRITE_ERROR: &str = "Error encountered while finalizing writes";

/// A file that is written beside its target. Dropping it removes it, unless it was published.
pub(super) struct StagedFile {
    staged: PathBuf,
    target: PathBuf,
    _directory: StagingDirectory,
}

impl StagedFile {
    /// Redirects a `COPY ... TO`, or one under `EXPLAIN ANALYZE`, to a staged file. Returns `None` for plans that do
    /// not write a single file: other statements, directories, partitioned output and URLs.
    ///
    /// # Errors
    /// If the target exists and is not a regular file, or if a symbolic link cannot be resolved.
    pub fn redirect(plan: &mut LogicalPlan) -> Result<Option<Self>> {
        let copy = match plan {
            LogicalPlan::Copy(copy) => copy,
            LogicalPlan::Analyze(analyze) => {
                let mut input = analyze.input.as_ref().clone();
                let staged = Self::redirect(&mut input)?;
                if staged.is_some() {
                    analyze.input = input.into();
                }
                return Ok(staged);
            }
            _ => return Ok(None),
        };
        if !copy.partition_by.is_empty() {
            return Ok(None);
        }
        let Some(staged) = Self::beside(&copy.output_url)? else { return Ok(None) };
        // A URL, so that no character of the path has a special meaning.
        let url =
            std::path::absolute(&staged.staged).map_err(|error| staged.failed("find the absolute path of", error))?;
        let Ok(url) = Url::from_file_path(url) else { return Ok(None) };
        copy.output_url = url.into();
        Ok(Some(staged))
    }

    fn beside(target: &str) -> Result<Option<Self>> {
        let file_url = Url::parse(target).ok().filter(|url| url.scheme() == "file");
        let path = file_url.and_then(|url| url.to_file_path().ok());
        let target = path.as_ref().and_then(|path| path.to_str()).unwrap_or(target);
        if target.contains("://") || target.ends_with('/') {
            return Ok(None);
        }
        let target = match fs::symlink_metadata(target) {
            // The link stays; the file that it points to is replaced.
            Ok(metadata) if metadata.is_symlink() => {
                fs::canonicalize(target).map_err(|error| file_error(Path::new(target), "resolve link", error))?
            }
            _ => PathBuf::from(target),
        };
        if let Ok(metadata) = fs::metadata(&target)
            && !metadata.is_file()
        {
            let kind = if metadata.is_dir() { "a directory" } else { "a device or pipe" };
            return Err(QueryError::unsupported(
                format!("COPY TO {target:?}, which is {kind},"),
                "a file, or a directory whose name ends with a slash, is",
            ));
        }
        let Some(name) = target.file_name() else { return Ok(None) };
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = StagingDirectory::create_in(parent)
            .map_err(|error| file_error(&target, "create a temporary directory for", error))?;
        // The writer takes a name without an extension for a directory.
        let mut name = name.to_owned();
        if target.extension().is_none() {
            name.push(".copy");
        }
        Ok(Some(Self { staged: directory.path.join(name), target, _directory: directory }))
    }

    /// Gives the complete file its name and the permissions of the file that it replaces.
    ///
    /// # Errors
    /// If the file cannot be synced or renamed. The target has then not changed.
    pub fn publish(self) -> Result<()> {
        if let Ok(replaced) = fs::metadata(&self.target) {
            let outcome = fs::set_permissions(&self.staged, replaced.permissions());
            outcome.map_err(|error| self.failed("set permissions of", error))?;
        }
        let outcome = File::open(&self.staged).and_then(|file| file.sync_all());
        outcome.map_err(|error| self.failed("sync", error))?;
        fs::rename(&self.staged, &self.target).map_err(|error| self.failed("rename", error))
    }

    fn failed(&self, what: &'static str, error: io::Error) -> QueryError {
        file_error(&self.target, what, error)
    }

    /// Returns the error of a statement that could not write the file, with the path of the target. Returns other
    /// errors unchanged.
    pub fn explained(&self, error: QueryError) -> QueryError {
        let QueryError::Engine(engine) = &error else { return error };
        let message = engine.find_root().message();
        if WRITE_ERRORS.iter().any(|text| message.contains(text))
            && let Some(cause) = os_error(&message)
        {
            return self.failed("write to", cause);
        }
        match message.contains(UNNAMED_WRITE_ERROR) {
            true => self.failed("write to", io::Error::other("the disk is full or does not accept the file")),
            false => error,
        }
    }
}

/// A hidden directory for one staged file, locked while its process lives. Dropping it removes it.
struct StagingDirectory {
    path: PathBuf,
    _lock: Option<File>,
}

impl StagingDirectory {
    /// Creates a directory in `parent`. The first call for a parent also removes directories that killed processes
    /// left.
    fn create_in(parent: &Path) -> io::Result<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        fs::create_dir_all(parent)?;
        if CLEANED.lock().insert(std::path::absolute(parent)?) {
            Self::remove_abandoned(parent);
        }
        loop {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match create_private(&path) {
                // A killed process had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            }
            // Before the directory is locked, another process may remove it as abandoned.
            match lock(&path) {
                Locked::ByUs(lock) if path.is_dir() => return Ok(Self { path, _lock: Some(lock) }),
                Locked::Unsupported => return Ok(Self { path, _lock: None }),
                Locked::ByUs(_) | Locked::ByOther => {}
            }
        }
    }

    /// Removes the directories of killed processes. Ignores directories that cannot be removed.
    fn remove_abandoned(parent: &Path) {
        let Ok(entries) = fs::read_dir(parent) else { return };
        for entry in entries.flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory
                && entry.file_name().to_str().is_some_and(is_staging_name)
                && let Locked::ByUs(_lock) = lock(&entry.path())
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        // A later process removes what remains.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(unix)]
fn create_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// Whether a name has the form that [`StagingDirectory::create_in`] uses: the prefix, a process id and a number.
fn is_staging_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(PREFIX).and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Result of locking a directory.
enum Locked {
    /// This process holds the lock, until the file is dropped.
    ByUs(File),
    /// Another process holds the lock, or has removed the directory.
    ByOther,
    /// The system cannot lock directories.
    Unsupported,
}

fn lock(directory: &Path) -> Locked {
    let file = match File::open(directory) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Locked::ByOther,
        Err(_) => return Locked::Unsupported,
    };
    match file.try_lock() {
        Ok(()) => Locked::ByUs(file),
        Err(TryLockError::WouldBlock) => Locked::ByOther,
        Err(TryLockError::Error(_)) => Locked::Unsupported,
    }
}

/// The operating system's error whose number is in a message, such as `... (os error 28)`.
fn os_error(message: &str) -> Option<io::Error> {
    let (_, rest) = message.rsplit_once("(os error ")?;
    let (number, _) = rest.split_once(')')?;
    number.parse().ok().map(io::Error::from_raw_os_error)
}

fn file_error(path: &Path, what: &'static str, error: io::Error) -> QueryError {
    QueryError::WriteFile { what, path: path.to_owned(), source: error }
}
