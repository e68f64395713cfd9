//! What can go wrong: one enum for each thing a caller asks for. Each names the operation, the thing and the place,
//! and its message includes the cause, for callers may show the message alone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::LockHolder;
use crate::{BlockId, TableId};
use taut_block::{BlockError, BuildError, CorruptBlock, SectionError};

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried, as a verb.
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the file system answered.
    pub source: io::Error,
}

/// Why a database was not opened. Nothing was changed then, unless it was being created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at this path.
    #[error("there is no database at {}", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{} is a file; a database is a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory without a catalog, and not empty either.
    #[error("{} is no database: it has no catalog, but holds {found:?}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something in it that is not of an empty database.
        found: String,
    },
    /// An empty directory, or one whose creation was interrupted, while no database is to be created.
    #[error("{} is an empty directory, not a database", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// Another process has the database open, or this one still has it.
    #[error("database {} is in use by {}; it can be opened read-only", path.display(), holder_text(holder.as_ref()))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, if it is known.
        holder: Option<LockHolder>,
    },
    /// The catalog was written by another version of Taut.
    #[error("{} has format version {found}; this program reads {readable:?}", path.display())]
    Version {
        /// The catalog.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The versions that can be read.
        readable: &'static [u64],
    },
    /// The catalog, the log or the file of rows in no block is damaged.
    #[error("{} is corrupt at byte {at}: expected {expected}; restore the database from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What should be there.
        expected: String,
    },
    /// A log file does not exist, though the catalog or the log file before it says so.
    #[error("log file {} is missing, and with it committed transactions; restore it from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    MissingLog {
        /// The file.
        path: PathBuf,
    },
    /// The first catalog of a database, or the log after what was found, could not be written.
    #[error("the database cannot be opened for writing: {0}")]
    Begin(Box<CommitError>),
    /// The file with the rows that are in no block does not exist, though the catalog says so.
    #[error("file {} is missing, and with it rows of tables and deletions; restore it from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    MissingDelta {
        /// The file.
        path: PathBuf,
    },
    /// A process is creating the database, or was interrupted while it did.
    #[error("{} is no database yet: {holder} is creating it, or was interrupted while it did", path.display())]
    Creating {
        /// The directory.
        path: PathBuf,
        /// The process.
        holder: LockHolder,
    },
    /// Another process has the database open for writing, and this one cannot tell it what it reads.
    #[error(
        "database {} is in use by {}, and cannot be read meanwhile: no file can be created in {}: {source}",
        path.display(),
        holder_text(holder.as_ref()),
        readers.display()
    )]
    NotRegistered {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, if it is known.
        holder: Option<LockHolder>,
        /// The directory in which readers register.
        readers: PathBuf,
        /// Why this one could not.
        source: io::Error,
    },
    /// The path leads to another database than the one that was opened.
    #[error("{} was replaced by another database while this one was open", path.display())]
    Replaced {
        /// The directory.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

pub(crate) fn holder_text(holder: Option<&LockHolder>) -> String {
    holder.map_or_else(|| "another process, or this one".to_owned(), ToString::to_string)
}

/// Why a block was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The database is open read-only.
    #[error("the database is open read-only")]
    ReadOnly,
    /// Its file could not be written.
    #[error("block {block} is not written: {source}")]
    File {
        /// The number it would have had.
        block: BlockId,
        /// Why.
        source: FileError,
    },
}

/// Why a commit did not happen. Unless it is [`CommitError::Uncertain`], nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The database is open read-only.
    #[error("the database is open read-only")]
    ReadOnly,
    /// The path of the database leads to another directory than the one that was opened and locked, or to none.
    #[error("the commit did not happen: the directory {} was replaced or removed while the database was open", path.display())]
    DirectoryReplaced {
        /// The path.
        path: PathBuf,
    },
    /// The name is taken by a table or a view.
    #[error("there already is a table, view or index named {name:?}")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The table is gone, or never was.
    #[error("there is no table with number {}; it was dropped meanwhile", table.0)]
    NoTable {
        /// The table.
        table: TableId,
    },
    /// The view is gone, or never was.
    #[error("there is no view named {name:?}")]
    NoView {
        /// The name.
        name: String,
    },
    /// A block to be replaced is not in the table: it was replaced meanwhile.
    #[error("table {table:?} has no block {block}; it was replaced meanwhile")]
    NoBlock {
        /// The table.
        table: String,
        /// The block.
        block: BlockId,
    },
    /// New blocks do not have the rows of those that they replace.
    #[error("new blocks of table {table:?} have {found} rows, those that they replace {expected}")]
    RowsDiffer {
        /// The table.
        table: String,
        /// Rows replaced.
        expected: u64,
        /// Rows of the new blocks.
        found: u64,
    },
    /// The design of a table was changed by two statements at once.
    #[error("table {table:?} got another design meanwhile; run the statement again")]
    Design {
        /// The table.
        table: String,
    },
    /// The sort order of a table and its rows changed at once.
    #[error("table {table:?} got another sort order, or rows in the one before, meanwhile; run the statement again")]
    SortOrder {
        /// The table.
        table: String,
    },
    /// Constraints do not fit their table, or those of the tables that they reference.
    #[error("the constraints of table {table:?} need {expected}")]
    Constraints {
        /// The table.
        table: String,
        /// What is not there.
        expected: String,
    },
    /// Nulls may be among deleted rows, or rows in no block, of a column that is to be without.
    #[error("table {table:?} has deleted rows, or rows in no block; VACUUM FULL it first")]
    NotSettled {
        /// The table.
        table: String,
    },
    /// Another table has a foreign key to the table that is to go.
    #[error("table {table:?} cannot be dropped: table {by:?} has a foreign key to it; drop that first")]
    Referenced {
        /// The table.
        table: String,
        /// The table that references it.
        by: String,
    },
    /// The constraints of a table and its rows changed at once.
    #[error("table {table:?} got other constraints, or other rows, meanwhile; run the statement again")]
    ConstraintsChanged {
        /// The table.
        table: String,
    },
    /// Blocks whose rows are to keep their order are not neighbours in one run.
    #[error(
        "the replaced blocks of table {table:?} are not neighbours in one run, so their rows have no order to keep"
    )]
    NotOneRun {
        /// The table.
        table: String,
    },
    /// A block does not have the columns of its table, or a design names columns that there are not.
    #[error("table {table:?} has {expected} columns; {what} does not fit them")]
    ColumnsDiffer {
        /// The table.
        table: String,
        /// What does not fit.
        what: String,
        /// Columns of the table.
        expected: usize,
    },
    /// The block was written to another database.
    #[error("block {block} was written to another database")]
    ForeignBlock {
        /// The block.
        block: BlockId,
    },
    /// Another transaction deleted or replaced a row that this one deleted or replaced, or moved rows that it read to
    /// replace them.
    #[error("rows of table {table:?} were changed by another transaction meanwhile; run the transaction again")]
    RowsChanged {
        /// The table.
        table: String,
    },
    /// Another transaction changed rows that this one has read, or looked for in vain, so that they are not as if one had
    /// run after the other.
    #[error(
        "rows of table {table:?} that this transaction has read were changed by another one since; run the transaction again"
    )]
    Serialization {
        /// The table.
        table: String,
    },
    /// Rows that were to be moved were inserted, replaced or deleted by the transaction that moves them.
    #[error(
        "table {table:?} has rows that this transaction has changed, which cannot be moved to other blocks before COMMIT"
    )]
    OwnRows {
        /// The table.
        table: String,
    },
    /// Rows that were to be moved are locked by a transaction.
    #[error("a transaction that has not ended changes rows that were to be moved; run the statement again")]
    RowsLocked,
    /// Inserted rows do not go where they should; a bug.
    #[error("rows of table {table:?} do not fit the page that they were to go to")]
    Misplaced {
        /// The table.
        table: String,
    },
    /// There is something of which a database can only have so many, or something that is too large for the log.
    #[error("the commit is larger than a record of the log, or the database has had 4,294,967,296 blocks and pages")]
    TooLarge,
    /// The changes cannot be written as JSON.
    #[error("the commit cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// Inserted rows cannot be written to the log.
    #[error("the inserted rows cannot be encoded: {0}")]
    Rows(#[from] BuildError),
    /// A file could not be written.
    #[error("the commit did not happen: {0}")]
    File(#[from] FileError),
    /// A block that was written cannot be read.
    #[error("the commit did not happen: {source}")]
    Unreadable {
        /// Why.
        #[source]
        source: Box<ReadError>,
    },
    /// The log could not be written. The commit did not happen.
    #[error("the commit did not happen: {0}")]
    Log(#[source] LogFailed),
    /// The log could not be written, nor begun anew. The change is not visible; whether it is after the database was
    /// opened again depends on what the disk kept. The next commit that succeeds settles it: the change then never
    /// happened.
    #[error("the commit may or may not survive: {cause}")]
    Uncertain {
        /// What failed first.
        #[source]
        cause: LogFailed,
    },
}

/// Why a transaction cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// It waits for a transaction that waits for it.
    #[error("two transactions wait for each other; this one was ended, and can be run again")]
    Deadlock,
    /// There is no savepoint of that name.
    #[error("savepoint {name:?} does not exist")]
    NoSavepoint {
        /// The name.
        name: String,
    },
    /// A change cannot be made.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why records of the log are not durable: the first operation of it that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log cannot be written: {cause}")]
pub struct LogFailed {
    /// What failed first.
    #[source]
    cause: Arc<FileError>,
}

impl LogFailed {
    pub(crate) fn new(cause: FileError) -> Self {
        Self { cause: Arc::new(cause) }
    }
}

/// Why a block was not opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A block of a table is missing or damaged. All other tables can be used, and this one can be dropped.
    #[error(
        "table {table:?} is damaged: {error}; restore the file from a backup, salvage the other rows with \"taut repair DATABASE NEW_DATABASE\", or remove the table with DROP TABLE"
    )]
    Table {
        /// The table.
        table: String,
        /// What is wrong with the block, and which file it is. The message has it in its middle, so it is no cause to append.
        error: Box<Self>,
    },
    /// Its file does not exist.
    #[error("block file {} is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Its file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its file is shorter or longer than it was written.
    #[error("{} has {found} bytes, not {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length as it was written.
        expected: u64,
        /// Its length now.
        found: u64,
    },
    /// Its header is not the one that was written.
    #[error("{} is corrupt: its header, bytes 0 to {length}, has checksum {found:016x}, not {expected:016x}", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Bytes of the header.
        length: u64,
        /// Its checksum as it was written.
        expected: u64,
        /// Its checksum now.
        found: u64,
    },
    /// A section of it is not the one that was written.
    #[error("{}, from byte {at} on: a section of {length} bytes has checksum {found:016x}, not {expected:016x}", path.display())]
    Section {
        /// The file.
        path: PathBuf,
        /// Where the section begins.
        at: u64,
        /// Bytes of the section.
        length: u64,
        /// Its checksum as it was written.
        expected: u64,
        /// Its checksum now.
        found: u64,
    },
    /// Its header makes no sense.
    #[error("{} is corrupt: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Where, and what should be there.
        source: CorruptBlock,
    },
    /// Its header does not agree with the catalog or the file.
    #[error("{}: its header says {found} {what}, not {expected}", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// What the number counts.
        what: &'static str,
        /// The number in the catalog.
        expected: u64,
        /// The number in the header.
        found: u64,
    },
    /// A byte between its sections, where nothing is stored, is not zero.
    #[error("{} is corrupt at byte {at}: expected zero, found {found}", path.display())]
    Padding {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// The byte.
        found: u8,
    },
    /// Something inside it cannot be read, or is not what was written.
    #[error("{}{}: {source}", path.display(), at.map_or_else(String::new, |at| format!(", from byte {at} on")))]
    Block {
        /// The file.
        path: PathBuf,
        /// Where in the file, as far as it is known.
        at: Option<u64>,
        /// What, and in which section.
        source: BlockError,
    },
}

impl ReadError {
    /// Returns whether the block is missing or damaged for good, and it is not only that reading failed now.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::File(error) => is_lost(&error.source),
            Self::Block { source, .. } => match source {
                BlockError::Section(SectionError::Io { source, .. }) => is_lost(source),
                BlockError::Corrupt { .. } | BlockError::Section(SectionError::Corrupt { .. }) => true,
                _ => false,
            },
            _ => true,
        }
    }
}

/// Whether bytes are gone from the medium: a file ends too early, or a sector of it cannot be read.
fn is_lost(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::UnexpectedEof || (cfg!(unix) && error.raw_os_error() == Some(EIO))
}
