//! Salvages a damaged database into a new one. The damaged one is not changed.
//!
//! ```text
//!   catalog      the newest readable one           repair/history.rs
//!   delta, log   as far as their checksums are valid
//!   blocks       intact ones are copied byte for byte; the intact segments of others are written to new blocks
//!                                                 repair/blocks.rs
//!   constraints  dropped if the remaining rows violate them
//!                                                 repair/constraints.rs
//! ```
//!
//! Until the repair is complete, the new directory has a file `incomplete`, and opening it fails: see
//! `crate::incomplete`.

mod blocks;
mod constraints;
mod history;

use std::fmt::{self, Display, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::Timelines;
use crate::catalog::file::write_catalog;
use crate::directory::Directory;
use crate::disk::{Disk, FileDisk};
use crate::error::{CommitError, FileError, OpenError, ReadError};
use crate::files::{BLOCKS, LOCK, RETAINED, ROOT, file_error};
use crate::incomplete::{self, NotStarted, TargetPath};
use crate::log::{FIRST_LOG, Log};
use crate::open::{TornLogTail, create_blocks_directory};
use crate::{Cache, Catalog};

use blocks::salvage_blocks;
use constraints::drop_violated_constraints;
use history::{History, read_history};

/// Result of a repair: what was salvaged, and what is lost.
#[derive(Debug)]
pub struct RepairReport {
    /// Losses of the database as a whole.
    pub losses: Vec<DatabaseLoss>,
    /// All tables of the new database, ordered by name.
    pub tables: Vec<RepairedTable>,
    /// An incomplete end of the log, as a crash leaves it. It does not count as a loss.
    pub torn_tail: Option<TornLogTail>,
    /// Whether the damaged database retains its log for the next backup. The new one does not, because it is another
    /// database and needs another backup directory. The commits since the last backup are only in the log of the
    /// damaged one.
    pub retained_log: bool,
}

impl RepairReport {
    /// Whether the new database has all rows and constraints that the damaged one is known to have had.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && self.tables.iter().all(|table| table.losses.is_empty())
    }
}

/// A table of the new database.
#[derive(Debug)]
pub struct RepairedTable {
    /// Name of the table.
    pub name: String,
    /// Live rows of the table.
    pub rows: u64,
    /// Number of blocks that were copied byte for byte.
    pub copied_blocks: usize,
    /// Number of new blocks, written with the remaining rows of damaged ones.
    pub rewritten_blocks: usize,
    /// Losses of the table.
    pub losses: Vec<TableLoss>,
    /// Damaged blocks that lost no row.
    pub without_loss: Vec<DamagedBlock>,
}

/// A loss of the database as a whole.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatabaseLoss {
    /// The catalog cannot be read. An older or unfinished one was used.
    Catalog {
        /// Why the catalog cannot be read.
        error: OpenError,
        /// Path of the catalog that was used.
        used: PathBuf,
        /// Version of that catalog.
        version: u64,
    },
    /// The delta file is lost: the rows that were in no block at the last checkpoint, and the deletions of rows in
    /// blocks.
    Delta {
        /// Why the delta file cannot be read.
        error: OpenError,
    },
    /// All commits after some position in the log are lost.
    Log {
        /// Why the log cannot be read further.
        error: OpenError,
        /// Version of the last salvaged commit.
        version: u64,
        /// Number of lost commits, if the rest of the log shows it.
        commits: Option<u64>,
    },
    /// Changes in the log cannot be replayed because their rows are lost.
    Changes {
        /// Number of changes.
        count: u64,
    },
}

impl Display for DatabaseLoss {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog { error, used, version } => {
                write!(formatter, "{}; used {} instead, written at commit {version}", reason(error), used.display())
            }
            Self::Delta { error } => write!(
                formatter,
                "{}; rows that were in no block are lost, and deleted rows may have come back",
                reason(error)
            ),
            Self::Log { error, version, commits } => {
                write!(formatter, "{}; commit {version} is the last one salvaged", reason(error))?;
                match commits {
                    Some(commits) => write!(formatter, ", {commits} later ones are lost"),
                    None => write!(formatter, ", all later ones are lost"),
                }
            }
            Self::Changes { count } => write!(formatter, "{count} changes in the log refer to rows that are lost"),
        }
    }
}

/// Text of an error, without the advice to repair the database.
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

/// A loss of one table.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableLoss {
    /// Rows of a block are lost.
    Rows {
        /// The block file.
        path: PathBuf,
        /// Ranges of row positions in the block, from zero, that contain all lost rows.
        rows: Vec<Range<u64>>,
        /// Number of lost rows that were live.
        count: u64,
        /// Why the rows cannot be read.
        error: ReadError,
    },
    /// A constraint was dropped because the remaining rows violate it.
    Constraint {
        /// Name of the constraint.
        name: String,
        /// How the rows violate it.
        reason: &'static str,
    },
}

impl Display for TableLoss {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { path, rows, count, error } => {
                write!(formatter, "{count} rows are lost, of ")?;
                for (index, range) in rows.iter().enumerate() {
                    let separator = if index == 0 { "rows" } else { "," };
                    write!(formatter, "{separator} {} to {}", range.start, range.end.saturating_sub(1))?;
                }
                write!(formatter, " in {}: {error}", path.display())
            }
            Self::Constraint { name, reason } => write!(formatter, "constraint {name:?} is dropped: {reason}"),
        }
    }
}

/// A damaged block that lost no row: the damage is in index sections, in statistics, or in rows that had been
/// deleted. The new database has a new block with the rows, if there are any, and with all indexes and statistics.
#[derive(Debug)]
pub struct DamagedBlock {
    /// The block file.
    pub path: PathBuf,
    /// Why the block cannot be read whole.
    pub error: ReadError,
}

impl Display for DamagedBlock {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "no row of {} is lost; {}", self.path.display(), self.error)
    }
}

/// Why a repair failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The damaged database cannot be opened: it does not exist, or a process has it open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No catalog can be read, so the tables are unknown.
    #[error("nothing can be salvaged without a catalog, and none can be read: {}", reason(.error))]
    NoCatalog {
        /// Why the catalog cannot be read.
        error: OpenError,
    },
    /// A file of the damaged database cannot be read, but may be intact. A repair without it might lose rows that can
    /// still be read later.
    #[error("{0}; the file may be intact, so the repair stops: make it readable, and repair again")]
    Unreadable(FileError),
    /// The directory of the new database is not empty.
    #[error("{} already exists and is not empty; name a new directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of the new database is inside the damaged one.
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

/// Salvages the database in directory `from` into a new database in directory `to`. Nothing is written to `from`, not
/// even to its lock file. `to` must be missing, empty, or left behind by a killed repair or restore.
///
/// # Errors
/// If there is no database, a process has it open, no catalog can be read, or the new database cannot be written. If a
/// file cannot be read for a reason other than damage, for example without permission. Anything written to `to` is then
/// removed.
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport, RepairError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if let (Ok(inside), Some(parent)) = (from.canonicalize(), existing_ancestor(to))
        && parent.starts_with(inside)
    {
        return Err(RepairError::Inside { path: to.to_owned() });
    }
    let before = TargetPath::of(to);
    let repaired = repair_on(Arc::new(FileDisk::new(from)), Arc::new(FileDisk::new(to)));
    if !matches!(repaired, Ok(_) | Err(RepairError::Exists { .. })) {
        incomplete::remove_directory(to, before);
    }
    repaired
}

/// The nearest existing directory at or above a path.
fn existing_ancestor(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()?.ancestors().find_map(|path| path.canonicalize().ok())
}

/// Like [`repair`], on two disks. If it fails, it does not remove the new directory.
///
/// # Errors
/// If the repair fails, as for [`repair`].
pub fn repair_on(from: Arc<dyn Disk>, to: Arc<dyn Disk>) -> Result<RepairReport, RepairError> {
    check_exists(&*from)?;
    let lock =
        from.lock_without_writing(LOCK).map_err(|source| OpenError::from(file_error(&*from, "lock", ROOT, source)))?;
    let lock = lock.ok_or_else(|| OpenError::Locked { path: from.path(ROOT), holder: from.lock_holder(LOCK) })?;
    let damaged = Arc::new(Directory::new(Arc::clone(&from), lock, Cache::new(0)));
    let History { catalog, mut losses, torn_tail, is_mixed } = read_history(&damaged)?;

    let lock = incomplete::begin(&*to).map_err(|error| match error {
        NotStarted::Exists => RepairError::Exists { path: to.path(ROOT) },
        NotStarted::File(error) => error.into(),
    })?;
    let new = Arc::new(Directory::new(Arc::clone(&to), lock, Cache::new(Cache::default_limit())));
    let deletions_are_lost = is_mixed || losses.iter().any(|loss| matches!(loss, DatabaseLoss::Delta { .. }));
    let tables =
        write_database(&damaged, catalog, &new, deletions_are_lost).inspect_err(|_| incomplete::abandon(&*to))?;
    losses.sort_by_key(|loss| matches!(loss, DatabaseLoss::Changes { .. }));
    let retained_log = from.open(RETAINED).is_ok();
    Ok(RepairReport { losses, tables, torn_tail, retained_log })
}

/// Writes the new database. Returns the reports on its tables.
fn write_database(
    damaged: &Arc<Directory>,
    catalog: Catalog,
    new: &Arc<Directory>,
    deletions_are_lost: bool,
) -> Result<Vec<RepairedTable>, RepairError> {
    create_blocks_directory(new)?;
    let (mut tables, mut reports) = (Vec::new(), Vec::new());
    for table in catalog.tables() {
        let (table, report) = salvage_blocks(damaged, table, new)?;
        tables.push(table);
        reports.push(report);
    }
    drop_violated_constraints(&mut tables, &mut reports, deletions_are_lost);
    let database = RandomState::new().hash_one("database");
    let tables = tables.into_iter().map(Arc::new).collect();
    let catalog = Catalog { database, timelines: Timelines::default(), tables, ..catalog };
    new.reserve_ids_below(damaged.next_ids());
    new.disk.sync_directory(BLOCKS).map_err(|source| new.error("sync", BLOCKS, source))?;
    Log::create(Arc::clone(&new.disk), database, FIRST_LOG, catalog.version)?;
    write_catalog(new, &catalog, FIRST_LOG)?;
    incomplete::complete(new)?;
    Ok(reports)
}

/// Checks that the directory of a disk exists and is not empty.
fn check_exists(disk: &dyn Disk) -> Result<(), OpenError> {
    let path = disk.path(ROOT);
    match disk.list(ROOT) {
        Ok(entries) if entries.is_empty() => Err(OpenError::Empty { path }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::Missing { path }),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(OpenError::NotADirectory { path }),
        Err(source) => Err(file_error(disk, "list", ROOT, source).into()),
    }
}
