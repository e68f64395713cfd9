//! The files that `COPY ... TO` writes.
//!
//! Rows are written to new files in a hidden directory beside the target. The files are renamed when all of them are
//! complete. Until then, a failed or cancelled statement changes no existing file, and adds no file to a directory.
//!
//! ```text
//!   sales.csv                       the target: one file
//!   .taut-copy-4711-0/              locked while process 4711 writes to it
//!   .taut-copy-4711-0/sales.csv     the new file
//!
//!   sales/                          the target: a directory of files, or of one directory per partition
//!   .taut-copy-4711-1/sales/        the new files, which become files of the target
//! ```
//!
//! A process that is killed leaves its hidden directory behind, unlocked. When another process first writes a target in
//! the same parent directory, it removes the hidden directory.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::logical_expr::LogicalPlan;
use parking_lot::Mutex;
use taut_store::backup::is_backup_directory;
use url::Url;

use crate::error::{QueryError, Result};
use crate::plan::files::is_url;

/// Prefix of the names of hidden directories.
const PREFIX: &str = ".taut-copy-";

/// Substrings of DataFusion's messages about a file that cannot be written.
const WRITE_ERRORS: [&str; 2] = ["Unable to copy data to file", "Error writing to object store"];
/// Substring of DataFusion's message about a file whose end cannot be written. The message omits the cause.
const UNNAMED_WRITE_ERROR: &str = "Error encountered while finalizing writes";

/// A file or a directory of files that is written beside its target. Dropping it removes it, unless it was published.
pub(super) struct StagedFile {
    staged: PathBuf,
    target: PathBuf,
    /// Whether the target is a directory, to which files are added.
    is_directory: bool,
    _directory: StagingDirectory,
}

impl StagedFile {
    /// Redirects a `COPY ... TO`, with or without `EXPLAIN ANALYZE`, to a staged file or directory. Returns `None` for
    /// other statements.
    ///
    /// # Errors
    /// If the target is a URL of another machine, is in a database, or exists and is of the wrong kind. If a symbolic
    /// link cannot be resolved, or the hidden directory cannot be created.
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
        let Some(staged) = Self::create_for_target(&copy.output_url, !copy.partition_by.is_empty())? else {
            return Ok(None);
        };
        // In a URL, DataFusion does not interpret special characters of the path.
        let path =
            std::path::absolute(&staged.staged).map_err(|error| staged.error("find the absolute path of", error))?;
        let url = if staged.is_directory { Url::from_directory_path(path) } else { Url::from_file_path(path) };
        let Ok(url) = url else { return Ok(None) };
        copy.output_url = url.into();
        Ok(Some(staged))
    }

    fn create_for_target(target: &str, is_partitioned: bool) -> Result<Option<Self>> {
        let file_url = Url::parse(target).ok().filter(|url| url.scheme() == "file");
        let path = file_url.and_then(|url| url.to_file_path().ok());
        let target = path.as_ref().and_then(|path| path.to_str()).unwrap_or(target);
        if is_url(target) {
            return Err(QueryError::unsupported(
                format!("COPY TO {target:?}, which is not a local file,"),
                "a path or a file: URL is",
            ));
        }
        let is_directory = is_partitioned || target.ends_with('/');
        let target = match target.trim_end_matches('/') {
            // The target is the root directory.
            "" => return Ok(None),
            target => target,
        };
        let target = match fs::symlink_metadata(target) {
            // Replaces the file that the link points to, not the link.
            Ok(metadata) if metadata.is_symlink() => {
                fs::canonicalize(target).map_err(|error| file_error(Path::new(target), "resolve link", error))?
            }
            _ => PathBuf::from(target),
        };
        let kind = match fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => (!is_directory).then_some("a directory"),
            Ok(metadata) if metadata.is_file() => is_directory.then_some("a file"),
            Ok(_) => Some("a device or pipe"),
            Err(_) => None,
        };
        if let Some(kind) = kind {
            return Err(QueryError::unsupported(
                format!("COPY TO {target:?}, which is {kind},"),
                "a file, or a directory whose name ends with a slash, is",
            ));
        }
        if is_in_database(&target) {
            return Err(QueryError::unsupported(
                format!("COPY TO {target:?}, which is in a database or its backups,"),
                "a path outside of it is",
            ));
        }
        let Some(name) = target.file_name() else { return Ok(None) };
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = StagingDirectory::create_in(parent)
            .map_err(|error| file_error(&target, "create a temporary directory for", error))?;
        // DataFusion's writer treats a name without an extension as a directory.
        let mut name = name.to_owned();
        if target.extension().is_none() && !is_directory {
            name.push(".copy");
        }
        Ok(Some(Self { staged: directory.path.join(name), target, is_directory, _directory: directory }))
    }

    /// Renames the complete files to their targets. A single file has the permissions of the file that it replaces.
    ///
    /// # Errors
    /// If a file cannot be synced or renamed. A single target file has then not changed, but a target directory may
    /// already contain some of the new files.
    pub fn publish(self) -> Result<()> {
        if self.is_directory {
            return self.publish_directory();
        }
        if let Ok(replaced) = fs::metadata(&self.target) {
            let outcome = fs::set_permissions(&self.staged, replaced.permissions());
            outcome.map_err(|error| self.error("set permissions of", error))?;
        }
        let outcome = File::open(&self.staged).and_then(|file| file.sync_all());
        outcome.map_err(|error| self.error("sync", error))?;
        fs::rename(&self.staged, &self.target).map_err(|error| self.error("rename", error))
    }

    /// Moves the new files to the target directory, after all of them are durable.
    fn publish_directory(&self) -> Result<()> {
        fs::create_dir_all(&self.staged).map_err(|error| self.error("create", error))?;
        for_each_file(&self.staged, &|file| File::open(file)?.sync_all()).map_err(|error| self.error("sync", error))?;
        let moved = for_each_file(&self.staged, &|file| {
            let target = self.target.join(file.strip_prefix(&self.staged).unwrap_or(file));
            target.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::rename(file, target)
        });
        moved.and_then(|()| fs::create_dir_all(&self.target)).map_err(|error| self.error("write to", error))
    }

    fn error(&self, what: &'static str, error: io::Error) -> QueryError {
        file_error(&self.target, what, error)
    }

    /// Returns the error of a statement that could not write the file, with the path of the target. Returns other
    /// errors unchanged.
    pub fn explain_error(&self, error: QueryError) -> QueryError {
        let QueryError::Engine(engine) = &error else { return error };
        let message = engine.find_root().message();
        if WRITE_ERRORS.iter().any(|text| message.contains(text))
            && let Some(cause) = os_error(&message)
        {
            return self.error("write to", cause);
        }
        match message.contains(UNNAMED_WRITE_ERROR) {
            true => self.error("write to", io::Error::other("the disk is full or does not accept the file")),
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
                // A killed process with the same id has left this directory.
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
        // If this fails, a later process removes the directory.
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

/// Whether a name has the format of [`StagingDirectory::create_in`]: the prefix, a process id and a number.
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

/// Calls `visit` for each file in a directory and its subdirectories.
fn for_each_file(directory: &Path, visit: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            for_each_file(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}

/// Whether a path is in the directory of a database or of backups.
fn is_in_database(path: &Path) -> bool {
    let resolved = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let start = resolved.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned());
    start.ancestors().any(|directory| {
        directory.join("blocks").is_dir() && (directory.join("catalog").is_file() || is_backup_directory(directory))
    })
}

/// Extracts the operating system's error from a message such as `... (os error 28)`.
fn os_error(message: &str) -> Option<io::Error> {
    let (_, rest) = message.rsplit_once("(os error ")?;
    let (number, _) = rest.split_once(')')?;
    number.parse().ok().map(io::Error::from_raw_os_error)
}

fn file_error(path: &Path, what: &'static str, error: io::Error) -> QueryError {
    QueryError::WriteFile { what, path: path.to_owned(), source: error }
}
