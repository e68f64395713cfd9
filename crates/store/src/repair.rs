//! Salvages what can be read of a damaged database into a new one. Nothing is written to the damaged one.
//!
//! ```text
//!   catalog      the newest that can be read      repair/history.rs
//!   delta, log   as far as their checksums hold
//!   blocks       whole ones are copied byte for byte; of others, whole segments are written to new blocks
//!                                                 repair/blocks.rs
//!   keys         dropped where the rows that are left violate them
//!                                                 repair/constraints.rs
//! ```
//!
//! The new catalog is written last. Until then the new directory is no database.

mod blocks;
mod constraints;
mod history;

use std::fmt::{self, Display, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::write_catalog;
use crate::directory::{BLOCKS, Directory, LOCK, RETAINED, ROOT};
use crate::disk::{Disk, FileDisk};
use crate::error::{CommitError, FileError, OpenError, ReadError};
use crate::log::Log;
use crate::open::{CutLog, FIRST_LOG, file_error, list};
use crate::{Cache, Catalog};

use blocks::salvage_blocks;
use constraints::drop_violated;
use history::{History, read_history};

/// What a repair has salvaged, and what is lost.
#[derive(Debug)]
pub struct RepairReport {
    /// What is lost of the database as a whole.
    pub losses: Vec<DatabaseLoss>,
    /// All tables of the new database, by name.
    pub tables: Vec<RepairedTable>,
    /// An end of the log that is no whole commit, as a crash leaves it. By itself it is no loss.
    pub cut: Option<CutLog>,
    /// Whether the damaged database retains its log for the next backup. The new one does not: it is another database, whose
    /// backups go to another directory, and the points in time since the last backup are in the damaged one only.
    pub retained_log: bool,
}

impl RepairReport {
    /// Returns whether nothing is lost that the damaged database is known to have had.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.tables.iter().all(|table| table.losses.is_empty())
    }
}

/// A table of the new database.
#[derive(Debug)]
pub struct RepairedTable {
    /// Its name.
    pub name: String,
    /// Its rows, without deleted ones.
    pub rows: u64,
    /// Blocks that were copied byte for byte.
    pub copied_blocks: usize,
    /// Blocks that were written with the rows that are left of a damaged one.
    pub rewritten_blocks: usize,
    /// What is lost.
    pub losses: Vec<TableLoss>,
}

/// Something that is lost of the database as a whole.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatabaseLoss {
    /// The catalog cannot be read. An older or unfinished one was used.
    Catalog {
        /// Why it cannot be read.
        error: OpenError,
        /// The one that was used.
        used: PathBuf,
        /// Its commit.
        version: u64,
    },
    /// The rows that were in no block when the catalog was written, and which rows of blocks were deleted then.
    Delta {
        /// Why they cannot be read.
        error: OpenError,
    },
    /// All commits from a place in the log on.
    Log {
        /// Why the log cannot be read further.
        error: OpenError,
        /// The last commit that was salvaged.
        version: u64,
        /// How many commits are lost, as far as the rest of the log tells.
        commits: Option<u64>,
    },
    /// Changes in the log that cannot be made without the rows that are lost.
    Changes {
        /// How many.
        count: u64,
    },
}

impl Display for DatabaseLoss {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog { error, used, version } => {
                write!(
                    formatter,
                    "{}; {} was used, which was written at commit {version}",
                    reason(error),
                    used.display()
                )
            }
            Self::Delta { error } => write!(
                formatter,
                "{}; rows that were in no block are lost, and rows that were deleted may be back",
                reason(error)
            ),
            Self::Log { error, version, commits } => {
                write!(formatter, "{}; commit {version} is the last that was salvaged", reason(error))?;
                match commits {
                    Some(commits) => write!(formatter, ", {commits} later ones are lost"),
                    None => write!(formatter, ", all later ones are lost"),
                }
            }
            Self::Changes { count } => write!(formatter, "{count} changes in the log were of rows that are lost"),
        }
    }
}

/// An error without the advice to do what is being done.
fn reason(error: &OpenError) -> String {
    match error {
        OpenError::MissingLog { path } => format!("log file {} is missing", path.display()),
        OpenError::MissingDelta { path } => format!("file {} is missing", path.display()),
        OpenError::Corrupt { path, at, expected } => {
            format!("{} is corrupt at byte {at}: expected {expected}", path.display())
        }
        error => error.to_string(),
    }
}

/// Something that is lost of a table.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableLoss {
    /// Rows of a block.
    Rows {
        /// The file.
        path: PathBuf,
        /// Which rows of the block, counted from zero.
        rows: Vec<Range<u64>>,
        /// How many of them were not deleted.
        count: u64,
        /// What is wrong with the file.
        error: ReadError,
    },
    /// The index sections, statistics or other parts of a block of which no row is lost.
    Rewritten {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ReadError,
    },
    /// A constraint that the rows that are left violate.
    Constraint {
        /// Its name.
        name: String,
        /// How they violate it.
        reason: &'static str,
    },
}

impl Display for TableLoss {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { path, rows, count, error } => {
                write!(formatter, "{count} rows are lost with ")?;
                for (at, range) in rows.iter().enumerate() {
                    let separator = if at == 0 { "rows" } else { "," };
                    write!(formatter, "{separator} {} to {}", range.start, range.end.saturating_sub(1))?;
                }
                write!(formatter, " of {}: {error}", path.display())
            }
            Self::Rewritten { path, error } => {
                write!(formatter, "no row is lost of {}, which was written anew: {error}", path.display())
            }
            Self::Constraint { name, reason } => write!(formatter, "constraint {name:?} is dropped: {reason}"),
        }
    }
}

/// Why nothing was salvaged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The damaged database cannot be read at all: it does not exist, or a process has it open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No catalog can be read, so that nobody knows which tables there were.
    #[error("nothing can be salvaged without a catalog, and none can be read: {}", reason(.error))]
    NoCatalog {
        /// What is wrong with the catalog.
        error: OpenError,
    },
    /// The new database is to be in a directory that is in use.
    #[error("{} already exists and is not empty; name a new directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The new database is to be within the damaged one.
    #[error("{} is inside the damaged database, which is left as it is; name another directory", path.display())]
    Inside {
        /// The directory.
        path: PathBuf,
    },
    /// The new database cannot be written.
    #[error("the new database is not complete: {0}")]
    Write(#[from] CommitError),
}

impl From<FileError> for RepairError {
    fn from(error: FileError) -> Self {
        Self::Write(error.into())
    }
}

/// Salvages what can be read of the database in one directory into a new database in another. Nothing is written to the
/// first, not even to its lock file. The second must be empty or not exist.
///
/// # Errors
/// If there is no database, a process has it open, or no catalog can be read; and if the new one cannot be written, whose
/// directory is then no database.
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport, RepairError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if let (Ok(inside), Some(parent)) = (from.canonicalize(), existing_ancestor(to))
        && parent.starts_with(inside)
    {
        return Err(RepairError::Inside { path: to.to_owned() });
    }
    repair_on(Arc::new(FileDisk::new(from)), Arc::new(FileDisk::new(to)))
}

/// The nearest directory at or above a path that exists.
fn existing_ancestor(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()?.ancestors().find_map(|path| path.canonicalize().ok())
}

/// As [`repair`], on two disks.
///
/// # Errors
/// As [`repair`].
pub fn repair_on(from: Arc<dyn Disk>, to: Arc<dyn Disk>) -> Result<RepairReport, RepairError> {
    check_is_there(&*from)?;
    let lock = from.lock_to_read(LOCK).map_err(|source| OpenError::from(file_error(&*from, "lock", ROOT, source)))?;
    let lock = lock.ok_or_else(|| OpenError::Locked { path: from.path(ROOT), holder: from.lock_holder(LOCK) })?;
    let damaged = Arc::new(Directory::new(Arc::clone(&from), lock, Cache::new(0)));
    let History { catalog, mut losses, cut, is_mixed } = read_history(&damaged)?;

    let new = create(to)?;
    let (mut tables, mut reports) = (Vec::new(), Vec::new());
    for table in catalog.tables() {
        let (table, report) = salvage_blocks(&damaged, table, &new)?;
        tables.push(table);
        reports.push(report);
    }
    let deletions_are_lost = is_mixed || losses.iter().any(|loss| matches!(loss, DatabaseLoss::Delta { .. }));
    drop_violated(&mut tables, &mut reports, deletions_are_lost);
    let database = RandomState::new().hash_one("database");
    let catalog = Catalog { database, tables: tables.into_iter().map(Arc::new).collect(), ..catalog };
    new.reserve(damaged.next_numbers());
    new.disk.sync_directory(BLOCKS).map_err(|source| new.error("sync", BLOCKS, source))?;
    Log::create(Arc::clone(&new.disk), database, FIRST_LOG, catalog.version)?;
    write_catalog(&new, &catalog, FIRST_LOG)?;
    losses.sort_by_key(|loss| matches!(loss, DatabaseLoss::Changes { .. }));
    let retained_log = from.open(RETAINED).is_ok();
    Ok(RepairReport { losses, tables: reports, cut, retained_log })
}

fn check_is_there(disk: &dyn Disk) -> Result<(), OpenError> {
    let path = disk.path(ROOT);
    match disk.list(ROOT) {
        Ok(entries) if entries.is_empty() => Err(OpenError::Empty { path }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::Missing { path }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(OpenError::NotADirectory { path }),
        Err(source) => Err(file_error(disk, "list", ROOT, source).into()),
    }
}

/// Creates the directory of the new database, without a catalog.
fn create(disk: Arc<dyn Disk>) -> Result<Arc<Directory>, RepairError> {
    match disk.list(ROOT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            disk.create_directory(ROOT).map_err(|source| file_error(&*disk, "create", ROOT, source))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(RepairError::Exists { path: disk.path(ROOT) });
        }
        Err(source) => return Err(file_error(&*disk, "list", ROOT, source).into()),
        Ok(_) => {}
    }
    if !list(&*disk, ROOT)?.is_empty() {
        return Err(RepairError::Exists { path: disk.path(ROOT) });
    }
    let lock = disk.lock(LOCK).map_err(|source| file_error(&*disk, "lock", LOCK, source))?;
    let lock = lock.ok_or_else(|| RepairError::Exists { path: disk.path(ROOT) })?;
    let directory = Arc::new(Directory::new(disk, lock, Cache::new(Cache::default_limit())));
    directory.disk.create_directory(BLOCKS).map_err(|source| directory.error("create", BLOCKS, source))?;
    Ok(directory)
}
