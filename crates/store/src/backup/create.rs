//! Takes a backup: pins the state of one commit, and copies its files while commits and checkpoints continue.
//!
//! ```text
//!   pin       all commits so far are synced; the catalog of the last one pins its blocks
//!   copy      blocks that no backup has, the catalog, rows that are in no block
//!   archive   commits since the previous backup, and the blocks that they added, if the log was retained
//!   complete  the manifest is renamed into place          <- from here on the backup is valid
//!   release   the database retains only files that the next backup needs
//! ```

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use super::commits::{write_commit, write_header};
use super::directory::{BackupDirectory, BackupFileKind, backup_file_name};
use super::error::BackupError;
use super::manifest::{BlockChecksum, BlockKey, FileChecksum, LogManifest, Manifest, TableManifest};
use super::overlap::check_overlap;
use super::{BackupLog, BackupOptions, BackupProgress, BackupReport, COPY_BYTES, Progress};
use crate::catalog::file::changes_of;
use crate::catalog::format::{self, DeltaFileEntry};
use crate::catalog::record;
use crate::disk::{Disk, FileDisk};
use crate::error::{CommitError, OpenError, ReadError};
use crate::files::file_error;
use crate::log::FIRST_LOG;
use crate::retention::{Retention, RetentionFile};
use crate::{BlockEntry, BlockFile, BlockId, Catalog, Store, TableId, log};
use taut_block::checksum;

impl Store {
    /// Backs up the database to a directory, which is created if it does not exist. A block that an earlier backup in
    /// the directory contains is not copied again. Readers, commits and checkpoints continue during the backup.
    ///
    /// The backup calls `progress` repeatedly. It is cancelled if `progress` returns `ControlFlow::Break`. `progress`
    /// must not use the store.
    ///
    /// # Errors
    /// If the directory is not a backup directory of this database, is in use, overlaps the database or cannot be
    /// written. If the database is damaged, `options.keep` is 0, or `progress` cancels the backup. Existing backups
    /// remain intact.
    pub fn backup(
        &self,
        to: impl AsRef<Path>,
        options: BackupOptions,
        progress: Progress<'_>,
    ) -> Result<BackupReport, BackupError> {
        let database = self.path();
        // A database in memory has no directory.
        if database.exists() {
            check_overlap(to.as_ref(), &database)?;
        }
        self.backup_to(Arc::new(FileDisk::new(to)), options, progress)
    }

    /// Backs up as [`Store::backup`] does, to a disk that does not overlap the disk of the database.
    ///
    /// # Errors
    /// If the backup fails, as for [`Store::backup`].
    pub fn backup_to(
        &self,
        disk: Arc<dyn Disk>,
        options: BackupOptions,
        progress: Progress<'_>,
    ) -> Result<BackupReport, BackupError> {
        if options.keep == Some(0) {
            return Err(BackupError::KeepsNone);
        }
        let _backup_lock = self.inner.backups.lock();
        let mut directory = BackupDirectory::create(disk)?;
        self.check_history(&directory)?;
        let retained = self.retained_files();
        let pinned = self.pin_state(options.log)?;
        let result = Backup { store: self, directory: &mut directory, pinned: &pinned, written: 0 }.run(progress);
        let (mut report, continues) = match result {
            Ok(finished) => finished,
            Err(error) => {
                // Retention for an earlier backup continues. Retention that this backup began ends. If it cannot be
                // ended, the retained files stay until the next backup with the log.
                if retained.is_none() && pinned.token.is_some() {
                    let _ = self.set_retention(None);
                }
                // Removes partial files, because the backup may have failed for lack of space. If their removal fails,
                // the next backup removes them.
                let _ = directory.reread_manifests().and_then(|()| directory.remove_unneeded_files());
                return Err(error);
            }
        };
        match pinned.token {
            Some(token) => self.advance_retention(&pinned, token)?,
            // The log was retained for the backups in this directory. They continue without the log, so retention ends.
            None if continues => self.set_retention(None)?,
            None => {}
        }
        if let Some(keep) = options.keep {
            report.removed = directory.keep_last(keep)?;
        }
        Ok(report)
    }

    /// Ends the retention of log files and replaced blocks for the next backup. No point in time between the last
    /// backup and the next one can then be restored.
    ///
    /// # Errors
    /// If the database is read-only, or the file `log/retained` cannot be removed.
    pub fn stop_log_retention(&self) -> Result<(), BackupError> {
        if self.inner.is_read_only() {
            return Err(BackupError::ReadOnly);
        }
        let _backup_lock = self.inner.backups.lock();
        self.set_retention(None)
    }

    /// Whether log files and replaced blocks are retained for the next backup.
    pub fn retains_log(&self) -> bool {
        self.inner.commits.lock().retention.is_some()
    }

    fn retained_files(&self) -> Option<RetentionFile> {
        self.inner.commits.lock().retention.as_ref().map(|retention| retention.file.clone())
    }

    /// Pins the state that is backed up, and begins or extends retention if `with_log`.
    fn pin_state(&self, with_log: bool) -> Result<PinnedState, BackupError> {
        let inner = &*self.inner;
        if inner.is_read_only() {
            if with_log {
                return Err(BackupError::ReadOnly);
            }
            // The state gets the time of its last commit. The current time could be later than the next commit, which
            // the writing process may already have made.
            let mut commits = inner.commits.lock();
            let time = if commits.last_time == i64::MIN { commits.next_time() } else { commits.last_time };
            // A refresh replaces `newest` and `last_time` together under this lock.
            let catalog = Arc::clone(&commits.newest);
            let next_ids = inner.directory.next_ids();
            return Ok(PinnedState { catalog, next_ids, time, token: None, log: 0, retained: None });
        }
        // A running checkpoint would remove log files that must be retained from now on.
        let _no_checkpoint = inner.checkpoints.lock();
        let mut commits = inner.commits.lock();
        inner.recover_from_log_failure(&mut commits).map_err(CommitError::Log)?;
        let log = inner.log(&mut commits)?;
        // A backup must not contain commits that the database may lose.
        log.close().map_err(CommitError::Log)?;
        inner.publish_all(&mut commits);
        let (catalog, time) = (Arc::clone(&commits.newest), commits.next_time());
        let token = with_log.then(|| RandomState::new().hash_one("backup"));
        let retained = commits.retention.clone();
        let log = log.number();
        if let Some(token) = token {
            let retention = match &mut commits.retention {
                Some(retention) => {
                    retention.file.tokens.push(token);
                    retention
                }
                empty => {
                    let file = RetentionFile { first_log: log, version: catalog.version, tokens: vec![token] };
                    empty.insert(Retention { file, archived: Arc::new(block_ids(&catalog)), blocks: Vec::new() })
                }
            };
            let written = retention.clone();
            let next_ids = inner.directory.next_ids();
            drop(commits);
            if let Err(error) = written.write(&inner.directory) {
                self.undo_retention(retained);
                return Err(error.into());
            }
            return Ok(PinnedState { catalog, next_ids, time, token: Some(token), log, retained });
        }
        Ok(PinnedState { catalog, next_ids: inner.directory.next_ids(), time, token, log, retained })
    }

    /// Restores the previous retention after a backup could not begin.
    fn undo_retention(&self, before: Option<Retention>) {
        let mut commits = self.inner.commits.lock();
        let current = commits.retention.take();
        match before {
            // Blocks that were replaced since then stay retained.
            Some(before) => {
                commits.retention = current.map(|current| Retention { file: before.file, ..current });
            }
            None => {
                drop(commits);
                // The file may have been written despite the error. If it cannot be removed, the next opening retains
                // files again, until the next backup.
                let _ = Retention::remove(&self.inner.directory);
                current
                    .into_iter()
                    .flat_map(|current| current.blocks)
                    .for_each(|(version, block)| block.remove_at_version(version));
            }
        }
    }

    /// Releases the files that were retained for a backup that is now complete. Retains files for the next one.
    fn advance_retention(&self, pinned: &PinnedState, token: u64) -> Result<(), BackupError> {
        let file = RetentionFile { first_log: pinned.log, version: pinned.catalog.version, tokens: vec![token] };
        self.set_retention(Some((file, Arc::new(block_ids(&pinned.catalog)))))
    }

    /// Replaces the retention, or ends it if `new` is `None`. The file `log/retained` changes before blocks are
    /// released.
    fn set_retention(&self, new: Option<(RetentionFile, Arc<HashSet<BlockId>>)>) -> Result<(), BackupError> {
        let directory = &self.inner.directory;
        match &new {
            Some((file, archived)) => {
                let next = Retention { file: file.clone(), archived: Arc::clone(archived), blocks: Vec::new() };
                next.write(directory)?;
            }
            None => Retention::remove(directory)?,
        }
        let mut commits = self.inner.commits.lock();
        let Some(before) = commits.retention.take() else { return Ok(()) };
        let is_still_needed = |version: u64, block: &BlockFile| {
            new.as_ref().is_some_and(|(file, archived)| version > file.version && !archived.contains(&block.id()))
        };
        let (needed, released): (Vec<_>, Vec<_>) =
            before.blocks.into_iter().partition(|(version, block)| is_still_needed(*version, block));
        commits.retention = new.map(|(file, archived)| Retention { file, archived, blocks: needed });
        drop(commits);
        // Removing files can take long, so the lock on commits is released first.
        released.iter().for_each(|(version, block)| block.remove_at_version(*version));
        Ok(())
    }
}

fn block_ids(catalog: &Catalog) -> HashSet<BlockId> {
    catalog.blocks().map(|block| block.id()).collect()
}

/// The pinned state that is backed up. Its catalog keeps the block files alive.
#[derive(Debug)]
struct PinnedState {
    catalog: Arc<Catalog>,
    next_ids: (u64, u64),
    time: i64,
    /// Random number of this backup, if the log is retained from this backup on.
    token: Option<u64>,
    /// Number of the log file in which the first commit after this state is written.
    log: u64,
    /// Retention before the backup began.
    retained: Option<Retention>,
}

/// A backup in progress.
struct Backup<'a> {
    store: &'a Store,
    directory: &'a mut BackupDirectory,
    pinned: &'a PinnedState,
    written: u64,
}

impl Backup<'_> {
    /// Takes the backup. Returns its report, and whether it continues an earlier backup with a retained log.
    fn run(mut self, progress: Progress<'_>) -> Result<(BackupReport, bool), BackupError> {
        let (number, catalog) = (self.directory.next_number(), Arc::clone(&self.pinned.catalog));
        let continued_backup = self.continued_backup();
        let mut checksums = self.directory.blocks();
        let mut counts = CopyCounts {
            total_bytes: catalog.blocks().map(|block| block.entry().file_bytes).sum(),
            ..CopyCounts::default()
        };
        let mut tables = Vec::new();
        for table in catalog.tables() {
            let blocks = self.copy_blocks(&table.name, &table.blocks, &mut checksums, &mut counts, progress)?;
            tables.push(TableManifest { id: table.id, name: table.name.clone(), blocks });
        }
        let log = match (self.pinned.token, &continued_backup) {
            (Some(_), Some(base)) => self.archive(number, base, &tables, (&mut checksums, &mut counts), progress)?,
            _ => None,
        };
        let (catalog_sum, delta) = self.write_catalog(number)?;
        let manifest = Manifest {
            number,
            database: catalog.database,
            commit: catalog.version,
            timeline: catalog.timelines.of_version(catalog.version),
            time: self.pinned.time,
            written_bytes: self.written,
            catalog: catalog_sum,
            delta,
            tables,
            token: self.pinned.token,
            log,
        };
        let log = match (self.pinned.token, &manifest.log) {
            (None, _) => BackupLog::None,
            (Some(_), None) => BackupLog::Begun,
            (Some(_), Some(log)) => BackupLog::Continued { base: log.base, commits: log.commits },
        };
        let report = BackupReport {
            number,
            commit: manifest.commit,
            time: manifest.time,
            bytes: manifest.bytes(),
            written_bytes: self.written,
            copied_blocks: counts.copied,
            shared_blocks: counts.shared,
            log,
            removed: Vec::new(),
        };
        self.directory.complete(manifest)?;
        Ok((report, continued_backup.is_some()))
    }

    /// The earlier backup that the retained log continues. Returns `None` if this directory does not have it.
    fn continued_backup(&self) -> Option<Manifest> {
        let retained = self.pinned.retained.as_ref()?;
        let is_same = |manifest: &&Manifest| manifest.token.is_some_and(|token| retained.file.tokens.contains(&token));
        let base = self.directory.manifests.values().rev().find(is_same)?;
        let commits = retained.file.version..=self.pinned.catalog.version;
        // A copy of the database may have continued the backup already. This directory then has the history of that
        // copy.
        let is_free = self.directory.continuation(base.number).is_none();
        (is_free && commits.contains(&base.commit)).then(|| base.clone())
    }

    /// Copies those `blocks` of a table that no backup in the directory contains. Returns the checksums of all
    /// `blocks`.
    fn copy_blocks(
        &mut self,
        table: &str,
        blocks: &[Arc<BlockFile>],
        checksums: &mut HashMap<BlockKey, BlockChecksum>,
        counts: &mut CopyCounts,
        progress: Progress<'_>,
    ) -> Result<Vec<BlockChecksum>, BackupError> {
        let mut copied = Vec::with_capacity(blocks.len());
        for block in blocks {
            let (entry, key) = (block.entry(), BlockKey::of(block.entry()));
            let existing = checksums.get(&key).filter(|sum| self.directory.has_block(sum, entry.header_bytes)).copied();
            let sum = match existing {
                Some(sum) => {
                    counts.shared += 1;
                    counts.done_bytes += sum.bytes();
                    counts.report(progress)?;
                    sum
                }
                None => {
                    let file = self.copy_block(table, block, counts, progress)?;
                    counts.copied += 1;
                    BlockChecksum(key.id, file.bytes, key.header, file.xxh3)
                }
            };
            checksums.insert(key, sum);
            copied.push(sum);
        }
        Ok(copied)
    }

    /// Copies a block, and verifies all its checksums against the copied bytes.
    fn copy_block(
        &mut self,
        table: &str,
        block: &Arc<BlockFile>,
        counts: &mut CopyCounts,
        progress: Progress<'_>,
    ) -> Result<FileChecksum, BackupError> {
        let damaged = |source| BackupError::Source { table: table.to_owned(), source };
        let open = block.open_uncached().map_err(damaged)?;
        // A read error or a cancellation. Write errors are in `written`.
        let mut failure = None;
        let written = self.directory.write_block(BlockKey::of(block.entry()), |to| {
            let mut fail = |error| {
                failure = Some(error);
                io::Error::other("the block cannot be read")
            };
            let mut copy = |bytes: Range<u64>, sum: Option<u64>| -> io::Result<()> {
                use std::hash::Hasher;
                let mut hasher = twox_hash::XxHash3_64::new();
                let mut offset = bytes.start;
                while offset < bytes.end {
                    let end = bytes.end.min(offset + COPY_BYTES);
                    let read = open.read_raw(offset..end).map_err(|error| fail(damaged(ReadError::File(error))))?;
                    hasher.write(&read);
                    to.write_all(&read)?;
                    counts.done_bytes += end - offset;
                    counts.report(progress).map_err(&mut fail)?;
                    offset = end;
                }
                match sum {
                    Some(expected) if expected != hasher.finish() => {
                        let (path, found) = (open.path(), hasher.finish());
                        let length = bytes.end - bytes.start;
                        let error = match bytes.start {
                            0 => ReadError::Checksum { path, length, expected, found },
                            at => ReadError::Section { path, at, length, expected, found },
                        };
                        Err(fail(damaged(error)))
                    }
                    _ => Ok(()),
                }
            };
            let entry = block.entry();
            copy(0..entry.header_bytes, Some(entry.header_checksum))?;
            let mut end = entry.header_bytes;
            for index in 0..open.block().section_count() {
                let section = open.block().section(index);
                copy(end..section.offset, None)?;
                end = section.offset + section.length;
                copy(section.offset..end, Some(section.checksum))?;
            }
            copy(end..entry.file_bytes, None)
        });
        let ((), sum) = match failure {
            Some(error) => return Err(error),
            None => written?,
        };
        self.written += sum.bytes;
        Ok(sum)
    }

    /// Writes the catalog, and a delta file if there are rows outside of blocks or deleted rows.
    fn write_catalog(&mut self, number: u64) -> Result<(FileChecksum, Option<FileChecksum>), BackupError> {
        let catalog = &*self.pinned.catalog;
        let changes = changes_of(catalog)?;
        let delta = match changes.is_empty() {
            true => None,
            false => {
                let bytes = record::to_bytes(&changes, catalog, None)?;
                let sum = DeltaFileEntry { bytes: bytes.len() as u64, checksum: checksum(&bytes) };
                let ((), written) =
                    self.directory.write_backup_file(number, BackupFileKind::Delta, |to| to.write_all(&bytes))?;
                Some((sum, written))
            }
        };
        let bytes = format::to_bytes(catalog, self.pinned.next_ids, FIRST_LOG, delta.map(|(delta, _)| delta));
        let bytes = bytes?;
        let ((), catalog) =
            self.directory.write_backup_file(number, BackupFileKind::Catalog, |to| to.write_all(&bytes))?;
        let delta = delta.map(|(_, written)| written);
        self.written += catalog.bytes + delta.map_or(0, |delta| delta.bytes);
        Ok((catalog, delta))
    }

    /// Archives the commits since the backup `base`. Returns `None` if the log does not have all of them, or if a block
    /// that they added is missing or damaged. The backup then begins a new log archive.
    fn archive(
        &mut self,
        number: u64,
        base: &Manifest,
        tables: &[TableManifest],
        (checksums, counts): (&mut HashMap<BlockKey, BlockChecksum>, &mut CopyCounts),
        progress: Progress<'_>,
    ) -> Result<Option<LogManifest>, BackupError> {
        let Some(retained) = &self.pinned.retained else { return Ok(None) };
        let (disk, catalog) = (&*self.store.inner.directory.disk, &*self.pinned.catalog);
        let named = base.tables.iter().chain(tables).map(|table| (table.id, table.name.clone()));
        let mut added = ArchivedCommits { names: named.collect(), blocks: Vec::new(), last: base.commit };
        let mut failure = None;
        let from = retained.file.first_log;
        // A checkpoint would begin another log file, and change the log file that is read here.
        let no_checkpoint = self.store.inner.checkpoints.lock();
        let ((), file) = self.directory.write_backup_file(number, BackupFileKind::Log, |to| {
            write_header(to, catalog.database)?;
            if base.commit == catalog.version {
                return Ok(());
            }
            let replayed = log::replay::<ReplayEnd>(disk, catalog.database, from, None, &mut |record| {
                if record.sequence > base.commit {
                    added.add(record.sequence, record.payload)?;
                    write_commit(to, record.sequence, record.payload).map_err(ReplayEnd::Write)?;
                    counts.report(progress).map_err(ReplayEnd::Cancelled)?;
                }
                // Later records may be incomplete.
                if record.sequence == catalog.version { Err(ReplayEnd::AtEnd) } else { Ok(()) }
            });
            match replayed {
                Err(ReplayEnd::Write(error)) => return Err(error),
                Err(ReplayEnd::Cancelled(error)) => failure = Some(error),
                Ok(_) | Err(ReplayEnd::AtEnd | ReplayEnd::Gap | ReplayEnd::Open(_)) => {}
            }
            Ok(())
        })?;
        drop(no_checkpoint);
        if let Some(error) = failure {
            return Err(error);
        }
        if added.last != catalog.version {
            self.directory.remove_backup_file(number, BackupFileKind::Log)?;
            return Ok(None);
        }
        let present: HashMap<BlockId, &Arc<BlockFile>> = catalog.blocks().map(|block| (block.id(), block)).collect();
        // Blocks that were replaced since the state was pinned are in `present`, so they are not needed here.
        let replaced: HashMap<BlockId, &Arc<BlockFile>> =
            retained.blocks.iter().map(|(_, block)| (block.id(), block)).collect();
        let mut replaced_by_table = Vec::<(TableManifest, Vec<Arc<BlockFile>>)>::new();
        for (table, entry) in added.blocks.iter().filter(|(_, entry)| !present.contains_key(&entry.id)) {
            let Some(block) = replaced.get(&entry.id) else {
                self.directory.remove_backup_file(number, BackupFileKind::Log)?;
                return Ok(None);
            };
            if replaced_by_table.last().is_none_or(|(last, _)| last.id != *table) {
                let name = added.names.get(table).cloned().unwrap_or_default();
                replaced_by_table.push((TableManifest { id: *table, name, blocks: Vec::new() }, Vec::new()));
            }
            replaced_by_table.iter_mut().rev().take(1).for_each(|(_, blocks)| blocks.push(Arc::clone(block)));
        }
        counts.total_bytes +=
            replaced_by_table.iter().flat_map(|(_, blocks)| blocks).map(|block| block.entry().file_bytes).sum::<u64>();
        let mut tables = Vec::with_capacity(replaced_by_table.len());
        for (table, blocks) in replaced_by_table {
            let blocks = match self.copy_blocks(&table.name, &blocks, checksums, counts, progress) {
                // No table references the block any more, so it cannot be repaired. An error would recur in every
                // later backup.
                Err(BackupError::Source { source, .. }) if source.is_damage() => {
                    self.directory.remove_backup_file(number, BackupFileKind::Log)?;
                    return Ok(None);
                }
                blocks => blocks?,
            };
            tables.push(TableManifest { blocks, ..table });
        }
        self.written += file.bytes;
        Ok(Some(LogManifest { base: base.number, commits: catalog.version - base.commit, file, tables }))
    }
}

/// Names of tables and added blocks, from the commits since a backup.
struct ArchivedCommits {
    /// Names of tables, by id.
    names: HashMap<TableId, String>,
    blocks: Vec<(TableId, BlockEntry)>,
    /// Sequence number of the last commit.
    last: u64,
}

impl ArchivedCommits {
    fn add(&mut self, sequence: u64, payload: &[u8]) -> Result<(), ReplayEnd> {
        if sequence != self.last + 1 {
            return Err(ReplayEnd::Gap);
        }
        let parsed = record::parse(payload).map_err(|_| ReplayEnd::Gap)?;
        for change in &parsed.changes {
            if let Some((table, name)) = change.named_table() {
                self.names.entry(table).or_insert_with(|| name.to_owned());
            }
            self.blocks.extend(change.new_blocks());
        }
        self.last = sequence;
        Ok(())
    }
}

/// Why the replay of the log ended.
enum ReplayEnd {
    AtEnd,
    /// Commits are missing or cannot be read.
    Gap,
    Write(io::Error),
    Cancelled(BackupError),
    Open(#[expect(dead_code, reason = "whatever the error is, the backup begins a new log archive")] OpenError),
}

impl From<OpenError> for ReplayEnd {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

#[derive(Default)]
struct CopyCounts {
    copied: u64,
    shared: u64,
    done_bytes: u64,
    total_bytes: u64,
}

impl CopyCounts {
    fn report(&self, progress: Progress<'_>) -> Result<(), BackupError> {
        let current = BackupProgress { done_bytes: self.done_bytes, total_bytes: self.total_bytes };
        match progress(current) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(BackupError::Cancelled),
        }
    }
}

impl BackupDirectory {
    fn remove_backup_file(&self, number: u64, kind: BackupFileKind) -> Result<(), BackupError> {
        let name = backup_file_name(number, kind);
        Ok(self.disk.remove(&name).map_err(|source| file_error(&*self.disk, "remove", &name, source))?)
    }
}
