//! Verification: reads every byte of every file, bypassing the cache, and returns what is wrong.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use taut_block::{ScanReport, Selection};
use taut_types::ColumnIndex;

use crate::catalog::format::CatalogFile;
use crate::catalog::record;
use crate::disk::{Disk, read_whole};
use crate::error::{FileError, OpenError, ReadError};
use crate::files::{BLOCKS, CATALOG, LOG, READERS, ROOT, block_name, is_database_file_name, list, log_name};
use crate::log;
use crate::open::{read_catalog, read_delta};
use crate::{BlockFile, OpenBlock, Store, Table};

/// A problem that verification found in a file. [`Problem::is_damage`] separates damage from harmless problems.
#[derive(Debug)]
pub struct Finding {
    /// Path of the file.
    pub path: PathBuf,
    /// The table whose rows are in the file.
    pub table: Option<String>,
    /// The problem, and where in the file it is.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// A block file that the catalog references does not exist.
    Missing,
    /// A file or directory that does not belong to a database or a backup. It is harmless.
    Foreign,
    /// A file whose backup has no manifest: the backup was interrupted, or its manifest was removed. It is harmless.
    NoManifest,
    /// A file or directory cannot be read.
    File(FileError),
    /// The catalog, the delta file or the log is damaged.
    Catalog(OpenError),
    /// The catalog file belongs to a database other than the open one.
    OtherDatabase,
    /// The last commit in the catalog file and the log is not the last commit of the open database.
    Replaced {
        /// Version of the last commit.
        expected: u64,
        /// Version found in the files.
        found: u64,
    },
    /// The block cannot be opened or read.
    Block(ReadError),
    /// A padding byte between sections is not zero.
    Padding {
        /// Offset of the byte in the file.
        at: u64,
        /// The byte.
        found: u8,
    },
    /// A property of the block differs from the catalog.
    Differs {
        /// The property that differs.
        what: &'static str,
    },
    /// A file of a backup is missing, or differs from its manifest.
    Content {
        /// What was expected.
        expected: String,
    },
    /// A row does not belong to the partition of its block in the catalog.
    Partition {
        /// Partition in the catalog.
        expected: u32,
        /// Partition of the row.
        found: u32,
        /// Position of the row in the block, from zero.
        row: u64,
    },
    /// The null count of a column in the catalog is not the sum over the blocks of the table.
    Nulls {
        /// Name of the column.
        column: String,
    },
}

impl Problem {
    /// Whether content is damaged or missing. Other problems are harmless.
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Foreign | Self::NoManifest)
    }
}

impl Display for Finding {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Missing => write!(formatter, "{path} is missing"),
            Problem::Foreign => write!(formatter, "{path} is not a file of Taut"),
            Problem::NoManifest => write!(
                formatter,
                "{path} belongs to no backup: the backup was interrupted, or its manifest was removed; the next backup \
                 removes the file"
            ),
            // These errors include the path.
            Problem::File(error) => write!(formatter, "{error}"),
            Problem::Catalog(error) => write!(formatter, "{error}"),
            Problem::Block(error) => write!(formatter, "{error}"),
            Problem::OtherDatabase => write!(formatter, "{path} belongs to another database"),
            Problem::Replaced { expected, found } => write!(formatter, "{path} has version {found}, not {expected}"),
            Problem::Padding { at, found } => write!(formatter, "{path}, byte {at}: expected zero, found {found}"),
            Problem::Differs { what } => write!(formatter, "{path} has another {what} than the catalog"),
            Problem::Content { expected } => write!(formatter, "{path}: expected {expected}"),
            Problem::Partition { expected, found, row } => {
                write!(formatter, "{path}, row {row}: expected partition {expected}, found {found}")
            }
            Problem::Nulls { column } => {
                write!(formatter, "{path} has another null count of column {column:?} than the blocks")
            }
        }?;
        self.table.as_ref().map_or(Ok(()), |table| write!(formatter, " (table {table:?})"))
    }
}

/// Verifies the whole database. Returns everything that is wrong. Commits wait only while the catalog and the log are
/// read.
pub fn verify(store: &Store) -> Vec<Finding> {
    let mut findings = Vec::new();
    let snapshot = check_catalog(store, &mut findings);
    check_names(store, &mut findings);
    for table in snapshot.tables() {
        check_table(store, table, &mut findings);
    }
    findings
}

/// Compares the catalog file and the log with the catalog in memory. Returns the catalog in memory.
fn check_catalog(store: &Store, findings: &mut Vec<Finding>) -> Arc<crate::Catalog> {
    let disk = &*store.directory().disk;
    if store.directory().reader().is_some() {
        return check_as_reader(store, findings);
    }
    let _no_checkpoint = store.inner.checkpoints.lock();
    let mut commits = store.inner.commits.lock();
    if let Some(log) = commits.log.clone() {
        // Syncs records that are still in memory. If that fails, their commits return the error. Then publishes
        // durable commits that are not visible yet, because another thread is about to publish them.
        if log.close().is_ok() {
            store.inner.publish_all(&mut commits);
        }
    }
    let snapshot = store.snapshot();
    let read = read_whole(disk, CATALOG)
        .map_err(|source| Problem::File(FileError { operation: "read", path: disk.path(CATALOG), source }));
    let read = read.and_then(|bytes| read_catalog(disk, &bytes).map_err(Problem::Catalog));
    let (path, problem) = match read.and_then(|file| last_commit(disk, &file, snapshot.database_id())) {
        Err(problem) => match &problem {
            Problem::Catalog(OpenError::Corrupt { path, .. }) => (path.clone(), problem),
            _ => (disk.path(CATALOG), problem),
        },
        Ok((found, path)) if found != snapshot.version() => {
            (path, Problem::Replaced { expected: snapshot.version(), found })
        }
        Ok(_) => return snapshot,
    };
    findings.push(Finding { path, table: None, problem });
    snapshot
}

/// Like [`check_catalog`], in a read-only process. Another process may be writing, so the files may be newer than the
/// snapshot.
fn check_as_reader(store: &Store, findings: &mut Vec<Finding>) -> Arc<crate::Catalog> {
    let (snapshot, path) = (store.snapshot(), store.directory().disk.path(CATALOG));
    let problem = match store.read_newest() {
        Ok((database, _)) if database != snapshot.database_id() => Problem::OtherDatabase,
        Ok((_, version)) if version >= snapshot.version() => return snapshot,
        Ok((_, found)) => Problem::Replaced { expected: snapshot.version(), found },
        Err(error) => Problem::Catalog(error),
    };
    let path = match &problem {
        Problem::Catalog(OpenError::Corrupt { path, .. }) => path.clone(),
        _ => path,
    };
    findings.push(Finding { path, table: None, problem });
    snapshot
}

/// Version of the catalog after all records of the log, and the file in which the log ends.
fn last_commit(disk: &dyn Disk, file: &CatalogFile<'_>, database: u64) -> Result<(u64, PathBuf), Problem> {
    if file.database != database {
        return Err(Problem::OtherDatabase);
    }
    let Some(first) = file.log else { return Ok((file.version, disk.path(CATALOG))) };
    if let Some(delta) = file.delta {
        read_delta(disk, first, delta).map_err(Problem::Catalog)?;
    }
    let end = log::replay::<OpenError>(disk, database, first, Some(file.version), &mut |record| {
        let parsed = record::parse(record.payload);
        parsed.map(drop).map_err(|(at, expected)| OpenError::Corrupt {
            path: record.path.to_owned(),
            at: record.payload_at() + at as u64,
            expected,
        })
    });
    let end = end.map_err(Problem::Catalog)?;
    Ok((end.last_sequence, disk.path(&log_name(end.number))))
}

/// Searches for names that do not belong to a database. Block files that no catalog references are allowed: a load may
/// be writing them.
fn check_names(store: &Store, findings: &mut Vec<Finding>) {
    let disk = &*store.directory().disk;
    let mut report = |name: &str, problem| findings.push(Finding { path: disk.path(name), table: None, problem });
    for directory in [ROOT, BLOCKS, LOG, READERS] {
        let entries = match list(disk, directory) {
            Ok(entries) => entries,
            Err(error) => {
                report(directory, Problem::File(error));
                continue;
            }
        };
        for entry in entries {
            if !is_database_file_name(directory, &entry) {
                let name = if directory == ROOT { entry.name } else { format!("{directory}/{}", entry.name) };
                report(&name, Problem::Foreign);
            }
        }
    }
}

/// Checks all blocks of a table, and the catalog's statistics over all of them.
fn check_table(store: &Store, table: &Table, findings: &mut Vec<Finding>) {
    let disk = &*store.directory().disk;
    let mut report = |name: &str, problem| {
        findings.push(Finding { path: disk.path(name), table: Some(table.name.clone()), problem });
    };
    let mut nulls = vec![0; table.schema.len()];
    let mut are_blocks_intact = true;
    for (index, block) in table.blocks.iter().enumerate() {
        let checked = check_block(table, block, &mut nulls).and_then(|open| check_partition(table, index, &open));
        if let Err(problem) = checked {
            are_blocks_intact = false;
            report(&block_name(block.id()), problem);
        }
    }
    for (column, (nulls, statistics)) in nulls.into_iter().zip(table.statistics.iter()).enumerate() {
        if are_blocks_intact && nulls != statistics.nulls {
            report(CATALOG, Problem::Nulls { column: table.schema.columns()[column].name.clone() });
        }
    }
}

/// Reads all bytes of a block file, bypassing the cache, and checks their consistency.
///
/// # Errors
/// If anything is wrong. The error is the first problem found.
pub(crate) fn check_block_file(file: &Arc<BlockFile>) -> Result<(), ReadError> {
    let open = file.open_uncached()?;
    open.block().check(&open).map_err(|error| open.locate_in_file(error))?;
    match find_nonzero_padding(&open)? {
        Some((at, found)) => Err(ReadError::Padding { path: open.path(), at, found }),
        None => Ok(()),
    }
}

/// Checks a block, and adds its null count of each column to `nulls`.
fn check_block(table: &Table, file: &Arc<BlockFile>, nulls: &mut [u64]) -> Result<OpenBlock, Problem> {
    let open = file.open_uncached().map_err(|error| match error {
        ReadError::Missing { .. } => Problem::Missing,
        error => Problem::Block(error),
    })?;
    let block = open.block();
    let damaged = |error| Problem::Block(open.locate_in_file(error));
    block.check(&open).map_err(damaged)?;
    check_padding(&open)?;
    let (_, design) = block.description(&open).map_err(damaged)?;
    // A block keeps the column names and nullability with which it was written, so only types are compared.
    if !block.has_types(&table.schema) {
        return Err(Problem::Differs { what: "schema" });
    }
    if design.layout.name() != &*file.entry().layout {
        return Err(Problem::Differs { what: "layout" });
    }
    for column in (0..table.schema.len()).map(ColumnIndex::from) {
        let statistics = block.statistics(&open, column).map_err(damaged)?;
        if statistics.rows != file.entry().rows {
            return Err(Problem::Differs { what: "number of rows" });
        }
        nulls[column.index()] = nulls[column.index()].saturating_add(statistics.nulls);
    }
    Ok(open)
}

/// Checks that all rows of a block belong to its partition in the catalog.
fn check_partition(table: &Table, index: usize, open: &OpenBlock) -> Result<(), Problem> {
    let (Some(partitions), Some(expected)) = (&table.partitions, table.partition_of(index)) else { return Ok(()) };
    let column = partitions.partitioning.design().column;
    let logical = table.schema.column(column).logical_type;
    let block = open.block();
    for segment in 0..block.segments() {
        let rows = block.segment_rows(segment);
        let mut reader = block.open_segment(open, segment);
        let arrays = reader.project(&Selection::All(rows), 0..rows, &[column], &mut ScanReport::default());
        let arrays = arrays.map_err(|error| Problem::Block(open.locate_in_file(error)))?;
        let found =
            arrays.first().map(|array| partitions.partitioning.partitions_of_rows(array, logical)).unwrap_or_default();
        if let Some(row) = found.iter().position(|found| *found != expected) {
            let row_of_block = block.segment_start(segment) + row as u64;
            return Err(Problem::Partition { expected, found: found[row], row: row_of_block });
        }
    }
    Ok(())
}

/// Checks that all bytes outside of sections are zero. No checksum covers them, and nothing reads them.
fn check_padding(open: &OpenBlock) -> Result<(), Problem> {
    match find_nonzero_padding(open).map_err(Problem::File)? {
        Some((at, found)) => Err(Problem::Padding { at, found }),
        None => Ok(()),
    }
}

/// The first nonzero byte outside of sections: its offset and value.
fn find_nonzero_padding(open: &OpenBlock) -> Result<Option<(u64, u8)>, FileError> {
    let block = open.block();
    for index in 0..block.section_count() {
        let section = block.section(index);
        let end = section.offset + section.length;
        let next =
            if index + 1 < block.section_count() { block.section(index + 1).offset } else { block.file_length() };
        let bytes = open.read_raw(end..next)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some((end + at as u64, bytes[at])));
        }
    }
    Ok(None)
}
