//! Errors of the store: one enum for each kind of operation. Each error names the operation and its object. Its message
//! includes the cause, because callers may show the message alone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::LockHolder;
use crate::{BlockId, SequenceId, TableId};
use taut_block::{BlockError, BuildError, CorruptBlock, SectionError};
use taut_types::SchemaError;

/// A failed operation on a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct FileError {
    /// The operation, as a verb.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the file system.
    pub source: io::Error,
}

impl FileError {
    /// Whether the file may be intact although the operation failed, for example without permission.
    pub(crate) fn may_be_intact(&self) -> bool {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        !is_lost(&self.source) && ![NotFound, IsADirectory, NotADirectory].contains(&self.source.kind())
    }
}

/// Why a database was not opened. Nothing has changed then, unless it was being created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
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
    /// The directory has no catalog, but is not empty.
    #[error("{} is not a database: it has no catalog, but contains {found:?}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A name in it that does not belong to an empty database.
        found: String,
    },
    /// The directory is empty or left by an interrupted creation, and the options do not create a database.
    #[error("{} is an empty directory, not a database", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A repair or a restore is writing the database, or was interrupted while writing it.
    #[error(
        "{} is not a complete database: a repair or restore is writing it, or was interrupted; repair or restore to it \
         again, or remove the directory",
        path.display()
    )]
    Incomplete {
        /// The directory.
        path: PathBuf,
    },
    /// Another process, or this one, has the database open.
    #[error("database {} is in use by {}; it can be opened read-only", path.display(), holder_text(holder.as_ref()))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, if known.
        holder: Option<LockHolder>,
    },
    /// The catalog was written by another version of Taut.
    #[error("{} has format version {found}; this program reads {readable:?}", path.display())]
    Version {
        /// The catalog file.
        path: PathBuf,
        /// Its format version.
        found: u64,
        /// The versions that can be read.
        readable: &'static [u64],
    },
    /// The catalog, the log or the delta file is damaged.
    #[error("{} is corrupt at byte {at}: expected {expected}; restore the database from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the damage in bytes.
        at: u64,
        /// What was expected there.
        expected: String,
    },
    /// A log file that the catalog or the previous log file requires is missing.
    #[error("log file {} is missing, and with it committed transactions; restore it from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    MissingLog {
        /// The file.
        path: PathBuf,
    },
    /// The first catalog of a database, or the log file that follows recovery, could not be written.
    #[error("the database cannot be opened for writing: {0}")]
    Begin(Box<CommitError>),
    /// The delta file, to which the catalog refers, is missing. It holds the rows that are in no block.
    #[error("file {} is missing, and with it rows of tables and deletions; restore it from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\"", path.display())]
    MissingDelta {
        /// The file.
        path: PathBuf,
    },
    /// A process is creating the database, or was interrupted while creating it.
    #[error("{} is not a database yet: {holder} is creating it, or was interrupted while creating it", path.display())]
    Creating {
        /// The directory.
        path: PathBuf,
        /// The process that creates it.
        holder: LockHolder,
    },
    /// Another process has the database open for writing, and this one cannot register as a reader.
    #[error(
        "database {} is in use by {}, and cannot be read meanwhile: no file can be created in {}: {source}",
        path.display(),
        holder_text(holder.as_ref()),
        readers.display()
    )]
    NotRegistered {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, if known.
        holder: Option<LockHolder>,
        /// The directory in which readers register.
        readers: PathBuf,
        /// Why registration failed.
        source: io::Error,
    },
    /// The path now leads to a different database than the one that was opened.
    #[error("{} was replaced by another database while this one was open", path.display())]
    Replaced {
        /// The directory.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl OpenError {
    /// Separates damage from a file that cannot be read and may be intact.
    ///
    /// # Errors
    /// If the file may be intact: the failed operation.
    pub(crate) fn into_damage(self) -> Result<Self, FileError> {
        match self {
            Self::File(error) if error.may_be_intact() => Err(error),
            error => Ok(error),
        }
    }
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
    /// The block file could not be written.
    #[error("block {block} is not written: {source}")]
    File {
        /// The id of the block.
        block: BlockId,
        /// The error of the file.
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
    /// The path of the database no longer leads to the directory that was opened and locked.
    #[error("the commit did not happen: the directory {} was replaced or removed while the database was open", path.display())]
    DirectoryReplaced {
        /// The path.
        path: PathBuf,
    },
    /// The name is taken by a table, view, index or sequence.
    #[error("relation {name:?} already exists")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A schema to be created already exists.
    #[error("schema {schema:?} already exists")]
    SchemaExists {
        /// The name.
        schema: String,
    },
    /// The schema was dropped, or never existed.
    #[error("schema {schema:?} does not exist")]
    NoSchema {
        /// The name.
        schema: String,
    },
    /// A schema to be dropped contains a table, view, sequence or function.
    #[error("cannot drop schema {schema:?} because {object} is in it")]
    SchemaNotEmpty {
        /// The schema.
        schema: String,
        /// One of its objects, such as `relation "t"`.
        object: String,
    },
    /// A permanent relation would depend on a temporary one, which ends with the session.
    #[error("permanent relation {other:?} cannot depend on temporary relation {relation:?}")]
    Temporary {
        /// The temporary relation.
        relation: String,
        /// The permanent relation.
        other: String,
    },
    /// The table was dropped, or never existed.
    #[error("there is no table with number {}; it was dropped, or never existed", table.0)]
    NoTable {
        /// The table.
        table: TableId,
    },
    /// The view was dropped, or never existed.
    #[error("view {name:?} does not exist")]
    NoView {
        /// The name.
        name: String,
    },
    /// The name of a new function is taken.
    #[error("function {name:?} already exists")]
    FunctionExists {
        /// The name.
        name: String,
    },
    /// The function was dropped, or never existed.
    #[error("function {name:?} does not exist")]
    NoFunction {
        /// The name.
        name: String,
    },
    /// The function was created, replaced or dropped at the same time.
    #[error("could not serialize access due to concurrent change of function {function:?}")]
    FunctionChanged {
        /// The function.
        function: String,
    },
    /// A view calls the function to be dropped.
    #[error("cannot drop function {function:?} because view {view:?} calls it")]
    ViewCalls {
        /// The function.
        function: String,
        /// The view.
        view: String,
    },
    /// The object of a comment was dropped, or never existed.
    #[error("the object of the comment does not exist")]
    NoCommentedObject,
    /// The sequence was dropped, or never existed.
    #[error("there is no sequence with number {}; it was dropped, or never existed", sequence.0)]
    NoSequence {
        /// The sequence.
        sequence: SequenceId,
    },
    /// The sequence has no more numbers.
    #[error("nextval: reached {} value of sequence {sequence:?} ({limit})", if *ascends { "maximum" } else { "minimum" })]
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// Its last possible number.
        limit: i64,
        /// Whether its numbers ascend.
        ascends: bool,
    },
    /// The definition of a sequence was changed at the same time.
    #[error("could not serialize access due to concurrent change of sequence {sequence:?}")]
    SequenceChanged {
        /// The sequence.
        sequence: String,
    },
    /// The definition of a sequence is invalid.
    #[error("invalid sequence: expected {expected}")]
    Sequence {
        /// The missing condition.
        expected: String,
    },
    /// A block to be replaced is not in the table, because it was replaced meanwhile.
    #[error("table {table:?} has no block {block}; it was replaced meanwhile")]
    NoBlock {
        /// The table.
        table: String,
        /// The block.
        block: BlockId,
    },
    /// New blocks have a different number of rows than the blocks they replace.
    #[error("new blocks of table {table:?} have {found} rows, those that they replace {expected}")]
    RowsDiffer {
        /// The table.
        table: String,
        /// Number of rows replaced.
        expected: u64,
        /// Number of rows in the new blocks.
        found: u64,
    },
    /// Another statement changed the design ([`TableDesign`](taut_types::TableDesign)) of the table at the same time.
    #[error("could not serialize access due to concurrent change of the design of table {table:?}")]
    Design {
        /// The table.
        table: String,
    },
    /// The sort order of the table and its rows were changed at the same time.
    #[error("could not serialize access due to concurrent change of the sort order or rows of table {table:?}")]
    SortOrder {
        /// The table.
        table: String,
    },
    /// Constraints do not fit their table, or the tables that they reference.
    #[error("the constraints of table {table:?} need {expected}")]
    Constraints {
        /// The table.
        table: String,
        /// The missing condition.
        expected: String,
    },
    /// A column cannot become NOT NULL while deleted rows, or rows in no block, may hold nulls.
    #[error("table {table:?} has deleted rows, or rows in no block")]
    MayHoldNulls {
        /// The table.
        table: String,
    },
    /// A column cannot be dropped while a key, foreign key, index, sort order or partitioning uses it.
    #[error("cannot drop column {column:?} of table {table:?} because other objects depend on it")]
    ColumnInUse {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// The type of a column of a table with rows cannot be set without converting its values.
    #[error("table {table:?} has rows")]
    HasRows {
        /// The table.
        table: String,
    },
    /// A table cannot have these columns.
    #[error("table {table:?}: {source}")]
    Schema {
        /// The table.
        table: String,
        /// What is wrong with the columns.
        source: SchemaError,
    },
    /// A table cannot be dropped because another table has a foreign key to it.
    #[error("cannot drop table {table:?} because other objects depend on it")]
    Referenced {
        /// The table.
        table: String,
        /// The table that references it.
        by: String,
    },
    /// A table or view cannot be dropped or renamed because a view reads it.
    #[error("cannot drop or rename {relation:?} because view {view:?} depends on it")]
    ViewDepends {
        /// The table or view.
        relation: String,
        /// A view that reads it.
        view: String,
    },
    /// A table or view that a new view reads was changed at the same time.
    #[error("could not serialize access due to concurrent change of a table or view that view {view:?} reads")]
    ViewChanged {
        /// The new view.
        view: String,
    },
    /// The constraints of the table and its rows were changed at the same time.
    #[error("could not serialize access due to concurrent change of the constraints or rows of table {table:?}")]
    ConstraintsChanged {
        /// The table.
        table: String,
    },
    /// Blocks whose rows must keep their order are not neighbours in one run.
    #[error(
        "the replaced blocks of table {table:?} are not neighbours in one run, so their rows have no order to keep"
    )]
    NotOneRun {
        /// The table.
        table: String,
    },
    /// A block does not have the columns of its table, or a design names columns that do not exist.
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
    /// Another transaction deleted or replaced a row that this one deleted or replaced, or relocated rows that this one
    /// replaces.
    #[error("could not serialize access due to concurrent update")]
    RowsChanged {
        /// The table.
        table: String,
    },
    /// Another transaction changed rows in the read set of this one, so the two are not serializable.
    #[error("could not serialize access due to read/write dependencies among transactions")]
    Serialization {
        /// The table.
        table: String,
    },
    /// Rows to be relocated were inserted, replaced or deleted by the same transaction.
    #[error(
        "table {table:?} has rows that this transaction has changed, which cannot be moved to other blocks before COMMIT"
    )]
    OwnRows {
        /// The table.
        table: String,
    },
    /// Rows to be relocated are locked by a transaction.
    #[error("could not serialize access due to rows that are locked by another transaction")]
    RowsLocked,
    /// Inserted rows do not fit the end of their page, or the rows of a page do not fit the schema of their table: a
    /// bug.
    #[error("rows of table {table:?} do not fit the page that they were to go to")]
    Misplaced {
        /// The table.
        table: String,
    },
    /// The database has used up its block and page ids, or a commit record is too large for the log.
    #[error("the commit is larger than a record of the log, or the database has had 4,294,967,296 blocks and pages")]
    TooLarge,
    /// The changes cannot be encoded as JSON.
    #[error("the commit cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// Inserted rows cannot be encoded for the log.
    #[error("the inserted rows cannot be encoded: {0}")]
    Rows(#[from] BuildError),
    /// A file could not be written.
    #[error("the commit did not happen: {0}")]
    File(#[from] FileError),
    /// A block that was written cannot be read back.
    #[error("the commit did not happen: {source}")]
    Unreadable {
        /// The read error.
        #[source]
        source: Box<ReadError>,
    },
    /// The log could not be written. The commit did not happen.
    #[error("the commit did not happen: {0}")]
    Log(#[source] LogFailed),
    /// The log could neither be written nor restarted. The change is not visible. If the database is opened again, the
    /// change may or may not be there. Once a later commit succeeds, the change is certainly lost.
    #[error("the commit may or may not survive: {cause}")]
    Uncertain {
        /// The first failure.
        #[source]
        cause: LogFailed,
    },
}

/// Why an operation of a transaction failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Deadlock: the transaction would wait for a transaction that waits for it.
    #[error("deadlock detected")]
    Deadlock,
    /// There is no savepoint with this name.
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

/// Why records of the log are not durable: the first failed operation on the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log cannot be written: {cause}")]
pub struct LogFailed {
    /// The first failure.
    #[source]
    cause: Arc<FileError>,
}

impl LogFailed {
    pub(crate) fn new(cause: FileError) -> Self {
        Self { cause: Arc::new(cause) }
    }
}

/// Why a block could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A block of a table is missing or damaged. All other tables remain usable, and this one can be dropped.
    #[error(
        "table {table:?} is damaged: {error}; restore the file from a backup, salvage the other rows with \"taut repair DATABASE NEW_DATABASE\", or remove the table with DROP TABLE"
    )]
    Table {
        /// The table.
        table: String,
        /// The damage and its file. The message of this error includes its text, so it is not reported as a source.
        error: Box<Self>,
    },
    /// The block file does not exist.
    #[error("block file {} is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A writer removed the block file although this reader needs it, because the file with which this process
    /// registered as a reader had been removed.
    #[error(
        "block file {} was removed while this process read the database, because its entry in {} was removed; refresh or \
         reopen the database",
        path.display(),
        readers.display()
    )]
    Unregistered {
        /// The file.
        path: PathBuf,
        /// The directory in which readers register.
        readers: PathBuf,
    },
    /// The block file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The block file is not as long as when it was written.
    #[error("{} has {found} bytes, not {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length when it was written.
        expected: u64,
        /// Its length now.
        found: u64,
    },
    /// The header of the block file does not match its checksum.
    #[error("{} is corrupt: its header, bytes 0 to {length}, has checksum {found:016x}, not {expected:016x}", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Bytes of the header.
        length: u64,
        /// Its checksum when it was written.
        expected: u64,
        /// Its checksum now.
        found: u64,
    },
    /// A section of the block file does not match its checksum.
    #[error("{}, from byte {at} on: a section of {length} bytes has checksum {found:016x}, not {expected:016x}", path.display())]
    Section {
        /// The file.
        path: PathBuf,
        /// Offset of the section in the file.
        at: u64,
        /// Bytes of the section.
        length: u64,
        /// Its checksum when it was written.
        expected: u64,
        /// Its checksum now.
        found: u64,
    },
    /// The header of the block file is invalid.
    #[error("{} is corrupt: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The position of the error, and what was expected there.
        source: CorruptBlock,
    },
    /// The header of the block file contradicts the catalog.
    #[error("{}: its header says {found} {what}, not {expected}", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// What the numbers count.
        what: &'static str,
        /// The number in the catalog.
        expected: u64,
        /// The number in the header.
        found: u64,
    },
    /// A padding byte between the sections is not zero.
    #[error("{} is corrupt at byte {at}: expected zero, found {found}", path.display())]
    Padding {
        /// The file.
        path: PathBuf,
        /// Offset of the byte in the file.
        at: u64,
        /// The byte.
        found: u8,
    },
    /// Part of the block cannot be read, or is not what was written.
    #[error("{}{}: {source}", path.display(), at.map_or_else(String::new, |at| format!(", from byte {at} on")))]
    Block {
        /// The file.
        path: PathBuf,
        /// Offset in the file, if known.
        at: Option<u64>,
        /// The error, and the section it is in.
        source: BlockError,
    },
}

impl ReadError {
    /// Separates damage from a file that cannot be read and may be intact.
    ///
    /// # Errors
    /// If the file may be intact: the failed operation.
    pub(crate) fn into_damage(self) -> Result<Self, FileError> {
        match self {
            Self::File(error) if error.may_be_intact() => Err(error),
            Self::Block { path, at, source: BlockError::Section(SectionError::Io { section, source }) } => {
                let error = FileError { operation: "read", path, source };
                match error.may_be_intact() {
                    true => Err(error),
                    false => {
                        let FileError { path, source, .. } = error;
                        let source = BlockError::Section(SectionError::Io { section, source });
                        Ok(Self::Block { path, at, source })
                    }
                }
            }
            error => Ok(error),
        }
    }

    /// Whether the block is missing or permanently damaged, as opposed to a read error that may be temporary.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::File(error) => is_lost(&error.source),
            Self::Unregistered { .. } => false,
            Self::Block { source, .. } => match source {
                BlockError::Section(SectionError::Io { source, .. }) => is_lost(source),
                BlockError::Corrupt { .. } | BlockError::Section(SectionError::Corrupt { .. }) => true,
                _ => false,
            },
            _ => true,
        }
    }
}

/// Whether bytes are lost on the medium: a file ends too early, or a sector cannot be read.
fn is_lost(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::UnexpectedEof || (cfg!(unix) && error.raw_os_error() == Some(EIO))
}
