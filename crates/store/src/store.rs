//! An open database: snapshots to read from, and commits that publish new ones.
//!
//! ```text
//!   write_block   blocks/N.block written, synced        not visible yet
//!   commit        blocks/ synced                        its name is durable
//!                 changes made to the newest catalog    one commit at a time, in memory
//!                 record appended to the log
//!                 log written and synced                <- the commit has happened; many share one sync
//!                 snapshot exchanged                    readers that start now see it
//!                 replaced block files removed          when their last reader has ended
//!   checkpoint    log continues in another file
//!                 catalog replaced, earlier log removed
//! ```
//!
//! After a crash there is a catalog and a log. Replaying the complete records of the log on the catalog restores the
//! last commit that survived (docs/adr/0017-commits-go-to-a-log.md).

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use taut_types::TableDesign;

use crate::attached::AttachedDatabases;
use crate::catalog::change::Change;
use crate::catalog::record::{self, CommitStamp, now_in_micros};
use crate::catalog::{AppliedEdit, SortBounds};
use crate::delta::ContainerId;
use crate::directory::Directory;
use crate::disk::{Disk, FileDisk, MemoryDisk};
use crate::error::{CommitError, LogFailed, OpenError, WriteError};
use crate::files::{BLOCKS, ROOT, block_name};
use crate::locks::{Locks, TransactionId};
use crate::log::{Durability, Log, Position};
use crate::open::{OpenOptions, OpenedDatabase, Recovery, open};
use crate::read_only;
use crate::read_only::ReadPosition;
use crate::relocations::RelocationsSince;
use crate::retention::Retention;
use crate::temporary::Temporary;
use crate::{
    BlockEntry, BlockFile, BlockId, CacheStatistics, Catalog, CatalogEdit, NewBlock, RowOrder, SequenceId, TableId,
    Transaction,
};
use taut_block::{BlockImage, checksum};

/// Durability that a commit guarantees when it returns. A commit that adds, replaces or removes blocks is always
/// `Full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Synchronous {
    /// The commit survives if the machine stops.
    #[default]
    Full,
    /// The commit survives if the process is killed. If the machine stops, the newest commits may be lost, but none
    /// that is older than a surviving one.
    Normal,
    /// The commit survives if the database is closed. If the process is killed, the newest commits may be lost, but
    /// none that is older than a surviving one.
    Off,
}

/// An open database. Clones share the same database. It is closed when the last clone and all snapshots are dropped.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Temporary relations of the session, if this handle belongs to one.
    temporary: Option<Arc<Temporary>>,
    /// The shared handle from which the handle of a session was made. It stays alive, so that a weak reference to it
    /// finds the open database while the session reads rows.
    _parent: Option<Arc<Store>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub directory: Arc<Directory>,
    pub snapshot: Arc<RwLock<Arc<Catalog>>>,
    pub commits: Mutex<Commits>,
    pub attached: AttachedDatabases,
    /// Held while a checkpoint is taken.
    pub checkpoints: Mutex<()>,
    /// Held while a backup is taken.
    pub backups: Mutex<()>,
    locks: Locks,
    recovery: Recovery,
    is_read_only: bool,
    /// Position up to which the log was last read, if the database is open read-only.
    pub read_position: Mutex<Option<ReadPosition>>,
}

/// State that only one commit at a time may change.
#[derive(Debug)]
pub(crate) struct Commits {
    /// The catalog after all commits so far, including commits that are not durable yet.
    pub newest: Arc<Catalog>,
    /// Commits that readers cannot see yet, in order.
    pending: VecDeque<Pending>,
    /// `None` until the log is begun: when the database is opened, or at the first commit.
    pub log: Option<Arc<Log>>,
    /// Whether this process has begun a timeline, whose first commit is in the log.
    has_timeline: bool,
    /// Blocks of commits whose outcome is uncertain. Their files must stay until the log restarts, or the database is
    /// opened again.
    uncertain: Vec<Arc<BlockFile>>,
    /// Bytes of log that were replayed when the database was opened. The next checkpoint removes them.
    pub replayed_bytes: u64,
    /// Time of the last commit or backup, in microseconds since 1970 in UTC.
    pub last_time: i64,
    /// Files that are retained for the next backup.
    pub retention: Option<Retention>,
}

/// A commit that is in the log but not visible to readers yet.
#[derive(Debug)]
struct Pending {
    catalog: Arc<Catalog>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
}

impl Commits {
    /// Time for a commit that happens now. It is later than all earlier times, even if the system clock was set back,
    /// so a time identifies one commit.
    pub fn next_time(&mut self) -> i64 {
        self.last_time = now_in_micros().max(self.last_time.saturating_add(1));
        self.last_time
    }
}

impl Pending {
    fn changes_blocks(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }
}

impl Store {
    /// Opens the database in a directory of the file system.
    ///
    /// # Errors
    /// If there is no database and `options` do not create one, another process has it open, another version wrote it,
    /// or it is damaged. A directory that is not a database is not changed.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(FileDisk::new(path)), options)
    }

    /// Creates a database in memory. It is freed when its last handle is dropped.
    ///
    /// # Errors
    /// If memory is exhausted.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::open_on(Arc::new(MemoryDisk::new()), OpenOptions { create: true, ..OpenOptions::default() })
    }

    /// Opens the database on a disk.
    ///
    /// # Errors
    /// If the database cannot be opened, as for [`Store::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Self, OpenError> {
        let (opened, position) = match options.read_only {
            true => read_only::open(disk, options).map(|(opened, position)| (opened, Some(position)))?,
            false => (open(disk, options)?, None),
        };
        let OpenedDatabase { directory, catalog, recovery, log, retention } = opened;
        let newest = Arc::new(catalog);
        let commits = Commits {
            newest: Arc::clone(&newest),
            pending: VecDeque::new(),
            log: log.map(Arc::new),
            has_timeline: false,
            uncertain: Vec::new(),
            replayed_bytes: recovery.bytes,
            last_time: recovery.last_time.unwrap_or(i64::MIN),
            retention,
        };
        let snapshot = Arc::new(RwLock::new(newest));
        directory.set_newest(&snapshot);
        let inner = Inner {
            directory,
            snapshot,
            commits: Mutex::new(commits),
            attached: AttachedDatabases::default(),
            checkpoints: Mutex::default(),
            backups: Mutex::default(),
            locks: Locks::default(),
            recovery,
            is_read_only: options.inspect || options.read_only,
            read_position: Mutex::new(position),
        };
        Ok(Self { inner: Arc::new(inner), temporary: None, _parent: None })
    }

    /// A handle of the same database for one session, which can have temporary relations. They are in schema
    /// [`TEMPORARY_SCHEMA`](taut_types::TEMPORARY_SCHEMA), and their blocks on `disk`. Clones of the handle share them.
    /// They are freed when the last clone, its snapshots and its transactions are dropped.
    #[must_use]
    pub fn for_session(self: &Arc<Self>, disk: Arc<dyn Disk>) -> Self {
        let temporary = Arc::new(Temporary::new(disk, Arc::clone(&self.inner.directory.cache)));
        Self { inner: Arc::clone(&self.inner), temporary: Some(temporary), _parent: Some(Arc::clone(self)) }
    }

    /// Path of the database, for messages.
    pub fn path(&self) -> PathBuf {
        self.inner.directory.disk.path(ROOT)
    }

    /// Whether the database is open read-only or for inspection, so that nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.inner.is_read_only
    }

    /// What recovery found when the database was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// The newest catalog that readers can see, with the temporary relations of the session.
    pub fn snapshot(&self) -> Arc<Catalog> {
        self.merged(&self.permanent_snapshot())
    }

    /// The newest catalog that readers can see, without temporary relations.
    pub(crate) fn permanent_snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.inner.snapshot.read())
    }

    /// A permanent catalog with the temporary relations of the session.
    fn merged(&self, permanent: &Arc<Catalog>) -> Arc<Catalog> {
        match &self.temporary {
            Some(temporary) => temporary.merge(permanent, || self.inner.directory.allocate_definitions_id()),
            None => Arc::clone(permanent),
        }
    }

    /// An edit of a catalog that this handle has returned.
    pub(crate) fn edit(&self, catalog: &Catalog) -> CatalogEdit {
        let temporary = self.temporary.as_ref().map(|temporary| &temporary.directory);
        CatalogEdit::new(catalog, &self.inner.directory).with_temporary(temporary)
    }

    /// Directs rows that are inserted from now on to new pages, so that existing pages can be compacted into blocks
    /// meanwhile. Running commits may still append to an existing page.
    pub fn close_pages(&self) {
        self.inner.directory.close_pages();
        if let Some(temporary) = &self.temporary {
            temporary.directory.close_pages();
        }
    }

    /// Whether new commits may append rows to a page of a table.
    pub fn may_grow(&self, table: TableId, page: ContainerId) -> bool {
        self.directory_of(table).may_grow(page)
    }

    /// Directory of the blocks and pages of a table.
    fn directory_of(&self, table: TableId) -> &Arc<Directory> {
        let temporary = self.temporary.as_ref().filter(|_| table.is_temporary());
        temporary.map_or(&self.inner.directory, |temporary| &temporary.directory)
    }

    /// The catalog after all commits so far, including commits that may still fail.
    pub(crate) fn newest_unpublished(&self) -> Arc<Catalog> {
        let newest = Arc::clone(&self.inner.commits.lock().newest);
        self.merged(&newest)
    }

    /// Current contents of the cache.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.inner.directory.cache.statistics()
    }

    /// Writes a block to a new file, durably. The block is visible only after it is committed.
    ///
    /// # Errors
    /// If the file cannot be written. No file remains then.
    pub fn write_block(&self, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        if self.inner.is_read_only {
            return Err(WriteError::ReadOnly);
        }
        self.write_block_in(&self.inner.directory, image, design)
    }

    /// Writes a block of a temporary table as [`Store::write_block`] does.
    ///
    /// # Errors
    /// If the file cannot be written, or the handle has no temporary relations. No file remains then.
    pub fn write_temporary_block(&self, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        match &self.temporary {
            Some(temporary) => self.write_block_in(&temporary.directory, image, design),
            None => Err(WriteError::ReadOnly),
        }
    }

    fn write_block_in(
        &self,
        directory: &Arc<Directory>,
        image: &BlockImage,
        design: &TableDesign,
    ) -> Result<NewBlock, WriteError> {
        loop {
            match Self::write_block_as(directory, directory.allocate_block(), image, design) {
                // A directory has the name of the block's file, so the block gets the next id.
                Err(WriteError::File { source, .. }) if source.source.kind() == io::ErrorKind::IsADirectory => {}
                result => return result,
            }
        }
    }

    fn write_block_as(
        directory: &Arc<Directory>,
        id: BlockId,
        image: &BlockImage,
        design: &TableDesign,
    ) -> Result<NewBlock, WriteError> {
        let entry = entry_of(id, image, design);
        let file = Arc::new(BlockFile::new(Arc::clone(directory), entry));
        file.remove_at_version(0);
        directory
            .write_file(&block_name(id), |mut to| image.write_to(&mut to))
            .map_err(|source| WriteError::File { block: id, source })?;
        Ok(NewBlock { file, statistics: image.statistics.clone(), partition: None })
    }

    /// Begins a transaction on the current snapshot.
    pub fn begin(&self) -> Transaction {
        let id = TransactionId(self.inner.directory.allocate_transaction());
        self.inner.locks.begin(id);
        Transaction::new(self.clone(), id)
    }

    /// Changes the catalog atomically and durably. Readers that start afterwards see the changes.
    ///
    /// If the commit fails, its new blocks are removed.
    ///
    /// # Errors
    /// If `change` returns an error, or the log cannot be written. Nothing changes then, unless the error is
    /// [`CommitError::Uncertain`].
    pub fn commit<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        self.commit_changes((None, Synchronous::Full), change)
    }

    /// Takes the next `count` numbers of a sequence, in a separate commit. The numbers stay taken if the process is
    /// killed. If the machine stops, they may be taken again, unless a later commit is durable.
    ///
    /// # Errors
    /// If the sequence does not exist, has fewer than `count` numbers left, or the log cannot be written.
    pub fn next_values(&self, sequence: SequenceId, count: usize) -> Result<Vec<i64>, CommitError> {
        self.commit_changes((None, Synchronous::Normal), |edit| edit.next_values(sequence, count))
    }

    /// Sets the last number of a sequence, or the next one if `is_called` is false, in a separate commit.
    ///
    /// # Errors
    /// If the sequence does not exist, the number is not within its limits, or the log cannot be written.
    pub fn set_value(&self, sequence: SequenceId, last: i64, is_called: bool) -> Result<(), CommitError> {
        self.commit_changes((None, Synchronous::Normal), |edit| edit.set_value(sequence, last, is_called))
    }

    /// Commits as [`Store::commit`] does, for a transaction and with the given durability.
    pub(crate) fn commit_changes<T, E: From<CommitError>>(
        &self,
        (transaction, synchronous): (Option<TransactionId>, Synchronous),
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        let inner = &*self.inner;
        match (inner.is_read_only, &self.temporary) {
            (true, None) => return Err(CommitError::ReadOnly.into()),
            (true, Some(_)) => {}
            (false, _) => inner.directory.check_lock()?,
        }
        let _session = self.temporary.as_ref().map(|temporary| temporary.commits.lock());
        let mut commits = inner.commits.lock();
        // Recovery comes first, because the change must not build on lost commits.
        let recovered = inner.recover_from_log_failure(&mut commits);
        let before = Arc::clone(&commits.newest);
        let mut edit = self.edit(&self.merged(&before));
        let value = change(&mut edit)?;
        let edit = edit.finish();
        let (edit, temporary_part) = match &self.temporary {
            Some(temporary) => temporary.divide(edit, &before),
            None => (edit, None),
        };
        if !edit.changes.is_empty() {
            recovered.map_err(CommitError::Log)?;
            self.commit_edit(commits, edit, (transaction, synchronous))?;
        }
        // After the permanent changes, which may fail.
        if let (Some(temporary), Some(part)) = (&self.temporary, temporary_part) {
            temporary.publish(part);
        }
        Ok(value)
    }

    /// Writes the changes of an edit of the newest catalog to the log, and publishes them.
    fn commit_edit(
        &self,
        mut commits: MutexGuard<'_, Commits>,
        edit: AppliedEdit,
        (transaction, synchronous): (Option<TransactionId>, Synchronous),
    ) -> Result<(), CommitError> {
        let inner = &*self.inner;
        if inner.is_read_only {
            return Err(CommitError::ReadOnly);
        }
        let before = Arc::clone(&commits.newest);
        let AppliedEdit { catalog: mut after, changes, added, removed, relocations } = edit;
        self.check_locks(&changes, transaction)?;
        if !changes.iter().all(Change::changes_only_rows) && !after.has_same_definitions(&before) {
            after.definitions_id = inner.directory.allocate_definitions_id();
        }
        if !relocations.is_empty() {
            after.relocations = RelocationsSince::default();
        }
        let stamp = CommitStamp { time: commits.next_time(), begins_timeline: !commits.has_timeline };
        if stamp.begins_timeline {
            after.timelines = after.timelines.with(after.version, stamp.time);
        }
        let after = Arc::new(after);
        let (log, position) = self.append(&mut commits, &changes, (&after, stamp), !added.is_empty())?;
        commits.has_timeline = true;
        if !relocations.is_empty() {
            let relocations: Arc<[_]> = relocations.into();
            inner.locks.extend_to_relocations(&relocations, || {
                before.relocations.set_next(&after.relocations, Arc::clone(&relocations))
            });
        }
        commits.newest = Arc::clone(&after);
        commits.pending.push_back(Pending { catalog: after, added, removed });
        // This commit also makes the pending commits before it visible. If one of them replaces blocks, files are then
        // removed.
        let changes_blocks = commits.pending.iter().any(Pending::changes_blocks);
        let durability = match synchronous {
            Synchronous::Full => Durability::Synced,
            _ if changes_blocks => Durability::Synced,
            Synchronous::Normal => Durability::Written,
            Synchronous::Off => {
                let published = inner.publish_up_to(&mut commits, position.sequence());
                drop((commits, published));
                return Ok(());
            }
        };
        drop(commits);
        self.flush_and_publish(&log, position, durability)
    }

    /// Appends changes to the log, as the record that changes the newest catalog to `after`.
    fn append(
        &self,
        commits: &mut Commits,
        changes: &[Change],
        (after, stamp): (&Catalog, CommitStamp),
        has_blocks: bool,
    ) -> Result<(Arc<Log>, Position), CommitError> {
        let directory = &*self.inner.directory;
        let bytes = record::to_bytes(changes, after, Some(stamp))?;
        if has_blocks {
            directory.disk.sync_directory(BLOCKS).map_err(|source| directory.error("sync", BLOCKS, source))?;
        }
        let log = self.inner.log(commits)?;
        let position = log.append(&[&bytes]).map_err(CommitError::Log)?;
        debug_assert_eq!(position.sequence(), after.version, "a record for each version");
        Ok((log, position))
    }

    /// Waits until a commit has the requested durability, and makes it visible to readers.
    fn flush_and_publish(&self, log: &Log, position: Position, durability: Durability) -> Result<(), CommitError> {
        let flushed = log.flush(position, durability);
        let mut commits = self.inner.commits.lock();
        let recovered = self.inner.recover_from_log_failure(&mut commits);
        match (log.outcome_after_restart(position), recovered) {
            (Some(outcome), _) => outcome.map_err(CommitError::Log),
            (None, Ok(())) => {
                let published = self.inner.publish_up_to(&mut commits, position.sequence());
                drop(commits);
                // Dropping the published commits may remove files, so the lock is released first.
                drop(published);
                Ok(())
            }
            // The log failed after this commit was flushed, and the commit is visible already.
            (None, Err(_)) if flushed.is_ok() && self.snapshot().version >= position.sequence() => Ok(()),
            (None, Err(cause)) => Err(CommitError::Uncertain { cause }),
        }
    }

    /// Returns an error if a change replaces rows that another transaction has locked, and their relocations are not
    /// known. That transaction could not commit afterwards.
    fn check_locks(&self, changes: &[Change], transaction: Option<TransactionId>) -> Result<(), CommitError> {
        for change in changes {
            let Change::ReplaceRows { table, old, order, .. } = change else { continue };
            if old.relocations.is_some() || *order == RowOrder::SamePositions {
                continue;
            }
            let containers: BTreeSet<ContainerId> = old.containers().collect();
            if self
                .inner
                .locks
                .is_any_locked_by_others(*table, transaction, |container| containers.contains(&container))
            {
                return Err(CommitError::RowsLocked);
            }
        }
        Ok(())
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.inner.directory
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    /// Allocates an id for a page of the delta of a table.
    pub(crate) fn allocate_page(&self, table: TableId) -> Result<ContainerId, CommitError> {
        self.directory_of(table).allocate_page().ok_or(CommitError::TooLarge)
    }
}

impl Inner {
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the log. Begins it if it does not exist yet.
    pub(crate) fn log(&self, commits: &mut Commits) -> Result<Arc<Log>, CommitError> {
        if let Some(log) = &commits.log {
            return Ok(Arc::clone(log));
        }
        let log = self.recovery.begin_log(&self.directory, &commits.newest)?;
        Ok(Arc::clone(commits.log.insert(Arc::new(log))))
    }

    /// After a failure of the log, reverts to the last commit that is durable or visible, and continues in another log
    /// file. The commits after it are undone.
    ///
    /// # Errors
    /// If no log file can be begun. The outcome of the commits that are not visible is then uncertain.
    pub(crate) fn recover_from_log_failure(&self, commits: &mut Commits) -> Result<(), LogFailed> {
        let Some(log) = commits.log.clone().filter(|log| log.has_failed()) else { return Ok(()) };
        self.publish_up_to(commits, log.durable_sequence());
        let lost = std::mem::take(&mut commits.pending);
        commits.uncertain.extend(lost.into_iter().flat_map(|pending| pending.added));
        commits.newest = Arc::clone(&self.snapshot.read());
        // A reader in another process may have read the commits that are lost now.
        let next = commits.newest.version + 1;
        commits.uncertain.iter().for_each(|block| block.remove_at_version(next));
        // Later commits reuse the versions of the lost ones, which another process may have read and backed up. A new
        // timeline distinguishes the two.
        commits.has_timeline = false;
        log.restart(commits.newest.version)?;
        // Dropping the blocks removes their files, so the log must have restarted first.
        commits.uncertain.clear();
        Ok(())
    }

    pub(crate) fn publish_all(&self, commits: &mut Commits) {
        let newest = commits.newest.version;
        self.publish_up_to(commits, newest);
    }

    /// Makes the commits up to `version` visible to readers, and returns them.
    fn publish_up_to(&self, commits: &mut Commits, version: u64) -> Vec<Pending> {
        let mut published = Vec::new();
        while let Some(first) = commits.pending.pop_front_if(|first| first.catalog.version <= version) {
            first.added.iter().for_each(|block| block.cancel_removal());
            // A block may be both added and removed. The removal comes last, so it takes effect.
            for block in &first.removed {
                match &mut commits.retention {
                    Some(retention) if retention.must_retain(block.id()) => {
                        retention.blocks.push((first.catalog.version, Arc::clone(block)));
                    }
                    _ => block.remove_at_version(first.catalog.version),
                }
            }
            published.push(first);
        }
        if let Some(last) = published.last() {
            *self.snapshot.write() = Arc::clone(&last.catalog);
        }
        published
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for block in &self.commits.get_mut().uncertain {
            block.cancel_removal();
        }
        if !self.is_read_only {
            // If closing fails, the log is replayed when the database is opened again.
            let _ = self.close();
            self.directory.remove_released_files();
        }
    }
}

/// The catalog's entry for a block.
pub(crate) fn entry_of(id: BlockId, image: &BlockImage, design: &TableDesign) -> BlockEntry {
    BlockEntry {
        id,
        file_bytes: image.bytes(),
        header_bytes: image.header.len() as u64,
        header_checksum: checksum(&image.header),
        rows: image.rows,
        plain_bytes: image.plain_bytes,
        segments: image.segments,
        layout: design.layout.name().into(),
        sort_bounds: SortBounds::of(design, &image.statistics),
    }
}
