//! Restore: opens a backup in memory, replays commits on it, and writes the result as a new database.
//!
//! ```text
//!   incomplete         written first; a directory with this file cannot be opened (crate::incomplete)
//!   blocks/*.block     copied, verified against the checksums in the manifests, synced
//!   log/1.log          empty
//!   catalog            renamed into place
//!   incomplete         removed                   <- from here on it is a database
//! ```
//!
//! The new database has its own id, because its commits do not continue the history of the original database.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::commits::read_commits;
use super::directory::{BackupFileKind, backup_file_name, block_name, write_with_checksum};
use super::error::BackupError;
use super::manifest::{BlockChecksum, BlockKey, FileChecksum, Manifest};
use super::overlap::check_overlap;
use super::{BackupProgress, Backups, COPY_BYTES, Progress, RestoreOptions, RestoreReport, format_time};
use crate::catalog::check::check;
use crate::catalog::file::write_catalog;
use crate::catalog::format::{self, Unreadable};
use crate::catalog::{Timelines, record};
use crate::directory::Directory;
use crate::disk::{Disk, FileDisk, read_whole};
use crate::error::OpenError;
use crate::files::{BLOCKS, ROOT, block_name as stored_block_name, file_error};
use crate::incomplete::{self, NotStarted, TargetPath};
use crate::log::{FIRST_LOG, Log};
use crate::open::{apply_record, build_catalog, create_blocks_directory};
use crate::{BlockFile, Cache, Catalog, CatalogEdit};
use taut_block::checksum;

impl Backups {
    /// Restores a database to a directory, which must be missing, empty, or left behind by a killed restore or repair.
    ///
    /// `progress` is called repeatedly. It cancels the restore by returning `ControlFlow::Break`.
    ///
    /// # Errors
    /// If the directory is not empty, the backup or the point in time does not exist, a file of the backup is damaged,
    /// or `progress` cancels the restore. Anything written to the directory is then removed.
    pub fn restore(
        &self,
        path: impl AsRef<Path>,
        options: RestoreOptions,
        progress: Progress<'_>,
    ) -> Result<RestoreReport, BackupError> {
        let path = path.as_ref();
        check_overlap(&self.path(), path)?;
        let target = TargetPath::of(path);
        let restored = self.restore_to(Arc::new(FileDisk::new(path)), options, progress);
        if !matches!(restored, Ok(_) | Err(BackupError::Exists { .. })) {
            incomplete::remove_directory(path, target);
        }
        restored
    }

    /// Restores as [`Backups::restore`] does, to a disk that does not overlap the disk of the backups.
    ///
    /// # Errors
    /// If the restore fails, as for [`Backups::restore`].
    pub fn restore_to(
        &self,
        disk: Arc<dyn Disk>,
        options: RestoreOptions,
        progress: Progress<'_>,
    ) -> Result<RestoreReport, BackupError> {
        let base = self.base_backup(options)?;
        let lock = incomplete::begin(&*disk).map_err(|error| match error {
            NotStarted::Exists => BackupError::Exists { path: disk.path(ROOT) },
            NotStarted::File(error) => error.into(),
        })?;
        let directory = Arc::new(Directory::new(Arc::clone(&disk), lock, Cache::new(0)));
        let restored = self.write(&directory, base, options, progress);
        if restored.is_err() {
            incomplete::abandon(&*disk);
        }
        restored
    }

    /// The backup that is restored, or on which commits are replayed.
    fn base_backup(&self, options: RestoreOptions) -> Result<&Manifest, BackupError> {
        let manifests = &self.directory.manifests;
        if let Some(number) = options.backup {
            let manifest = manifests.get(&number);
            let manifest = manifest.ok_or_else(|| {
                self.directory.damaged_manifest_error(number).unwrap_or_else(|| BackupError::NoSuchBackup {
                    path: self.path(),
                    number,
                    found: manifests.keys().copied().collect(),
                })
            })?;
            return match options.time {
                Some(time) if time < manifest.time => {
                    let reason = format!("backup {number} is of {}", format_time(manifest.time));
                    Err(self.not_covered_error(time, reason))
                }
                _ => Ok(manifest),
            };
        }
        match (options.time, manifests.values().next_back()) {
            // A damaged manifest may belong to a later backup. The user expects the last state, not an earlier one.
            (None, last) => match self.directory.damaged.keys().next_back() {
                Some(number) if last.is_none_or(|last| last.number < *number) => Err(self
                    .directory
                    .damaged_manifest_error(*number)
                    .unwrap_or(BackupError::NoBackups { path: self.path() })),
                _ => last.ok_or_else(|| BackupError::NoBackups { path: self.path() }),
            },
            (Some(_), None) => Err(BackupError::NoBackups { path: self.path() }),
            (Some(time), Some(_)) => {
                let earlier = || manifests.values().rev().filter(|manifest| manifest.time <= time);
                let base = earlier().find(|manifest| self.directory.covers(manifest, time));
                base.or_else(|| earlier().next())
                    .ok_or_else(|| self.not_covered_error(time, "the first backup was taken later".to_owned()))
            }
        }
    }

    fn not_covered_error(&self, time: i64, reason: String) -> BackupError {
        BackupError::NotCovered { time, reason, backups: self.directory.times() }
    }

    /// Writes the new database.
    fn write(
        &self,
        directory: &Arc<Directory>,
        base: &Manifest,
        options: RestoreOptions,
        progress: Progress<'_>,
    ) -> Result<RestoreReport, BackupError> {
        let mut state = self.open_backup(directory, base)?;
        if let Some(time) = options.time {
            self.replay(&mut state, base, time, progress)?;
        }
        let RestoreState { edit, commits, time } = state;
        let database = RandomState::new().hash_one("database");
        let catalog = Catalog { database, timelines: Timelines::default(), ..edit.into_catalog() };
        create_blocks_directory(directory)?;
        let bytes = self.copy_blocks(directory, &catalog, progress)?;
        let failed = |name: &'static str| move |source| directory.error("sync", name, source);
        directory.disk.sync_directory(BLOCKS).map_err(failed(BLOCKS))?;
        directory.disk.sync_directory(ROOT).map_err(failed(ROOT))?;
        Log::create(Arc::clone(&directory.disk), catalog.database, FIRST_LOG, catalog.version)?;
        write_catalog(directory, &catalog, FIRST_LOG)?;
        incomplete::complete(directory)?;
        Ok(RestoreReport { backup: base.number, commit: catalog.version, time, replayed_commits: commits, bytes })
    }

    /// Opens a backup in memory, as a catalog of the new database.
    pub(super) fn open_backup(
        &self,
        directory: &Arc<Directory>,
        manifest: &Manifest,
    ) -> Result<RestoreState, BackupError> {
        let name = backup_file_name(manifest.number, BackupFileKind::Catalog);
        let bytes = self.read_backup_file(&name, manifest.catalog)?;
        let damaged = |name: &str, offset: u64, expected: &str| BackupError::Damaged {
            path: self.directory.disk.path(name),
            table: None,
            expected: format!("{expected} at byte {offset}"),
        };
        let file = format::parse(&bytes).map_err(|error| match error {
            Unreadable::Version { found } => {
                let path = self.directory.disk.path(&name);
                OpenError::Version { path, found, readable: &format::READABLE }.into()
            }
            Unreadable::Corrupt { at, expected } => damaged(&name, at, &expected),
        })?;
        check(&file).map_err(|expected| damaged(&name, 0, &expected))?;
        directory.reserve_ids_below((file.next_block, file.next_table));
        let catalog = build_catalog(file, directory);
        let mut edit = CatalogEdit::new(&catalog, directory);
        if let Some(sum) = manifest.delta {
            let name = backup_file_name(manifest.number, BackupFileKind::Delta);
            let bytes = self.read_backup_file(&name, sum)?;
            apply_record(&mut edit, &bytes).map_err(|(offset, expected)| damaged(&name, offset, &expected))?;
        }
        Ok(RestoreState { edit, commits: 0, time: manifest.time })
    }

    /// Reads a file of a backup, and verifies it against the manifest.
    pub(super) fn read_backup_file(&self, name: &str, expected: FileChecksum) -> Result<Vec<u8>, BackupError> {
        let disk = &*self.directory.disk;
        let damaged = |expected| BackupError::Damaged { path: disk.path(name), table: None, expected };
        let bytes = read_whole(disk, name).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => damaged("a file, which is missing".to_owned()),
            _ => file_error(disk, "read", name, source).into(),
        })?;
        if bytes.len() as u64 != expected.bytes {
            return Err(damaged(format!("{} bytes, found {}", expected.bytes, bytes.len())));
        }
        match checksum(&bytes) {
            found if found == expected.xxh3 => Ok(bytes),
            found => Err(damaged(format!("content with checksum {:016x}, found {found:016x}", expected.xxh3))),
        }
    }

    /// Replays the commits after a backup, up to a time.
    pub(super) fn replay(
        &self,
        state: &mut RestoreState,
        base: &Manifest,
        until: i64,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let mut last = base;
        while last.time < until {
            let next = self.directory.manifests.values().find(|next| next.number > last.number);
            let continuation = self.directory.continuation(last.number).filter(|(next, _)| next.number > last.number);
            let Some((next, log)) = continuation else {
                // A damaged backup in between may hold the commits.
                let end = next.map_or(u64::MAX, |next| next.number);
                let mut damaged = self.directory.damaged.range(last.number..end);
                if let Some(damage) =
                    damaged.next().and_then(|(number, _)| self.directory.damaged_manifest_error(*number))
                {
                    return Err(damage);
                }
                let (number, time) = (last.number, format_time(last.time));
                let reason = match next {
                    Some(next) => format!(
                        "the commits between backup {number} ({time}) and backup {} ({}) were not archived",
                        next.number,
                        format_time(next.time)
                    ),
                    None => format!("commits after backup {number} ({time}), the last one, are in no backup"),
                };
                return Err(self.not_covered_error(until, reason));
            };
            let (mut is_past, mut is_cancelled) = (false, false);
            read_commits(&self.directory, next.number, log, next.database, |sequence, payload| {
                if let ControlFlow::Break(()) = progress(BackupProgress { done_bytes: 0, total_bytes: 0 }) {
                    is_cancelled = true;
                    return Ok(false);
                }
                let parsed = record::parse(payload).map_err(|(offset, expected)| (offset as u64, expected))?;
                let time = parsed.stamp.map(|stamp| stamp.time);
                if time.is_some_and(|time| time > until) {
                    is_past = true;
                    return Ok(false);
                }
                let expected = state.edit.catalog().version + 1;
                if sequence != expected {
                    return Err((0, format!("commit {expected}, found {sequence}")));
                }
                apply_record(&mut state.edit, payload)?;
                state.edit.set_version(sequence);
                state.commits += 1;
                state.time = time.unwrap_or(state.time);
                Ok(true)
            })?;
            if is_cancelled {
                return Err(BackupError::Cancelled);
            }
            if !is_past && state.edit.catalog().version != next.commit {
                let path = self.directory.disk.path(&backup_file_name(next.number, BackupFileKind::Log));
                let expected = format!("the commits up to {}", next.commit);
                return Err(BackupError::Damaged { path, table: None, expected });
            }
            if is_past || next.time > until {
                break;
            }
            last = next;
        }
        Ok(())
    }

    /// Copies the blocks of a catalog, and verifies them against the manifests. Returns their bytes.
    fn copy_blocks(
        &self,
        directory: &Directory,
        catalog: &Catalog,
        progress: Progress<'_>,
    ) -> Result<u64, BackupError> {
        let checksums: HashMap<BlockKey, BlockChecksum> = self.directory.blocks();
        let total_bytes = catalog.blocks().map(|block| block.entry().file_bytes).sum();
        let mut done_so_far = BackupProgress { done_bytes: 0, total_bytes };
        let mut copied_ids = HashSet::new();
        for table in catalog.tables() {
            for block in table.blocks.iter().filter(|block| copied_ids.insert(block.id())) {
                self.copy_block(directory, (&table.name, block), &checksums, (&mut done_so_far, progress))?;
            }
        }
        Ok(total_bytes)
    }

    fn copy_block(
        &self,
        directory: &Directory,
        (table, block): (&str, &BlockFile),
        checksums: &HashMap<BlockKey, BlockChecksum>,
        (done_so_far, progress): (&mut BackupProgress, Progress<'_>),
    ) -> Result<(), BackupError> {
        let key = BlockKey::of(block.entry());
        let (disk, name) = (&*self.directory.disk, block_name(key));
        let damaged =
            |expected: String| BackupError::Damaged { path: disk.path(&name), table: Some(table.to_owned()), expected };
        let failed = |operation: &'static str, source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => damaged("a file, which is missing".to_owned()),
            _ => file_error(disk, operation, &name, source).into(),
        };
        let sum = checksums.get(&key).ok_or_else(|| damaged("a block that a manifest names".to_owned()))?;
        let file = disk.open(&name).map_err(|source| failed("open", source))?;
        let found = file.length().map_err(|source| failed("read", source))?;
        if found != sum.bytes() || found != block.entry().file_bytes {
            return Err(damaged(format!("{} bytes, found {found}", sum.bytes())));
        }
        // A read error, or a cancellation. Errors of writing are in `written`.
        let mut failure = None;
        let written = write_with_checksum(&*directory.disk, &stored_block_name(block.id()), |to| {
            let (mut offset, mut buffer) = (0, vec![0; found.min(COPY_BYTES) as usize]);
            while offset < found {
                let count = (found - offset).min(COPY_BYTES) as usize;
                file.read_at(offset, &mut buffer[..count]).map_err(|source| {
                    failure = Some(failed("read", source));
                    io::Error::other("the block cannot be read")
                })?;
                to.write_all(&buffer[..count])?;
                offset += count as u64;
                done_so_far.done_bytes += count as u64;
                if let ControlFlow::Break(()) = progress(*done_so_far) {
                    failure = Some(BackupError::Cancelled);
                    return Err(io::Error::other("cancelled"));
                }
            }
            Ok(())
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let ((), copied) = written?;
        match copied.xxh3 == sum.xxh3() {
            true => Ok(()),
            false => Err(damaged(format!("content with checksum {:016x}, found {:016x}", sum.xxh3(), copied.xxh3))),
        }
    }
}

/// The state of a database during a restore.
pub(super) struct RestoreState {
    pub(super) edit: CatalogEdit,
    /// Number of replayed commits.
    commits: u64,
    /// Time of the last replayed commit that has one, or of the backup.
    time: i64,
}
