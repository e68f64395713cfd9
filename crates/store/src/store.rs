//! An open database: snapshots to read from, and commits that publish new ones.
//!
//! ```text
//!   write_block   blocks/N.block written, synced        nobody can see it
//!   commit        blocks/ synced                        its name is durable
//!                 changes made on the newest catalog    one commit at a time, in memory
//!                 record appended to the log
//!                 log written and synced                <- the commit has happened; many share one sync
//!                 snapshot exchanged                    readers that start now see it
//!                 replaced block files removed          when their last reader is gone
//!   checkpoint    log goes on in another file
//!                 catalog replaced, log before removed
//! ```
//!
//! A crash leaves a catalog, and a log whose whole records lead from it to the last commit that survived
//! (docs/adr/0017-commits-go-to-a-log.md).

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use taut_types::TableDesign;

use crate::catalog::change::Change;
use crate::catalog::{Changed, Lead, record};
use crate::delta::UnitId;
use crate::directory::{BLOCKS, Directory, ROOT, block_name};
use crate::disk::{Disk, FileDisk, MemoryDisk, WriteFile};
use crate::error::{CommitError, FileError, LogFailed, OpenError, WriteError};
use crate::locks::{Locks, TransactionId};
use crate::log::{Durability, Log, Position};
use crate::moves::MovesSince;
use crate::open::{OpenOptions, Opened, Recovery, file_error, open};
use crate::read_only::ReadPosition;
use crate::retention::Retention;
use crate::{BlockEntry, BlockFile, BlockId, CacheStatistics, Catalog, CatalogEdit, NewBlock, RowOrder, Transaction};
use taut_block::{BlockImage, checksum};

/// What is certain of a commit when it returns. A commit that adds, replaces or removes blocks is always `Full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Synchronous {
    /// It survives when the machine stops.
    #[default]
    Full,
    /// It survives when the process is killed; when the machine stops, the last ones may be lost, and never one without
    /// those after it.
    Normal,
    /// It survives when the database is closed; when the process is killed, the last ones may be lost, and never one
    /// without those after it.
    Off,
}

/// An open database. Clones share it; it is closed when the last one and all snapshots are gone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub directory: Arc<Directory>,
    pub snapshot: Arc<RwLock<Arc<Catalog>>>,
    pub commits: Mutex<Commits>,
    /// Held while a checkpoint is taken.
    pub checkpoints: Mutex<()>,
    /// Held while a backup is taken.
    pub backups: Mutex<()>,
    locks: Locks,
    recovery: Recovery,
    is_read_only: bool,
    /// What was read last, if the database is open read-only.
    pub position: Mutex<Option<ReadPosition>>,
}

/// What only one commit at a time may touch.
#[derive(Debug)]
pub(crate) struct Commits {
    /// What the commits so far lead to, those that are not durable yet too.
    pub newest: Arc<Catalog>,
    /// Commits that nobody sees yet, in order.
    pending: VecDeque<Pending>,
    /// Begun by the first commit, if not before.
    pub log: Option<Arc<Log>>,
    /// Blocks of commits whose outcome is uncertain. Their files must stay until the database is opened again.
    uncertain: Vec<Arc<BlockFile>>,
    /// Bytes of log that the next checkpoint takes away, from when the database was opened.
    pub replayed_bytes: u64,
    /// The time of the last commit or backup, in microseconds since 1970 in UTC.
    pub last_time: i64,
    /// What stays for the next backup.
    pub retention: Option<Retention>,
}

/// A commit that is in the log, but not durable yet.
#[derive(Debug)]
struct Pending {
    catalog: Arc<Catalog>,
    added: Vec<Arc<BlockFile>>,
    removed: Vec<Arc<BlockFile>>,
}

impl Commits {
    /// The time of a commit that happens now. Each is later than the one before, also where the clock is set back, so
    /// that a time leads to one commit.
    pub fn next_time(&mut self) -> i64 {
        self.last_time = clock().max(self.last_time.saturating_add(1));
        self.last_time
    }
}

/// The time now, in microseconds since 1970 in UTC.
pub(crate) fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Pending {
    fn moves_blocks(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }
}

impl Store {
    /// Opens the database in a directory of the file system.
    ///
    /// # Errors
    /// When there is none and none is to be created, another process has it open, it was written by another
    /// version, or it is damaged. Nothing that is no database is changed.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(FileDisk::new(path)), options)
    }

    /// A new database in memory, which ends with its last holder.
    ///
    /// # Errors
    /// Never, as far as memory reaches.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::open_on(Arc::new(MemoryDisk::new()), OpenOptions { create: true, ..OpenOptions::default() })
    }

    /// Opens the database on a disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Self, OpenError> {
        let Opened { directory, catalog, recovery, log, retention, position } = open(disk, options)?;
        let newest = Arc::new(catalog);
        let commits = Commits {
            newest: Arc::clone(&newest),
            pending: VecDeque::new(),
            log: log.map(Arc::new),
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
            checkpoints: Mutex::default(),
            backups: Mutex::default(),
            locks: Locks::default(),
            recovery,
            is_read_only: options.inspect || options.read_only,
            position: Mutex::new(position),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where the database lies, for messages.
    pub fn path(&self) -> PathBuf {
        self.inner.directory.disk.path(ROOT)
    }

    /// Whether it is open read-only, or for inspection: nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.inner.is_read_only
    }

    /// What was found when it was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// What the database holds now.
    pub fn snapshot(&self) -> Arc<Catalog> {
        Arc::clone(&self.inner.snapshot.read())
    }

    /// Has rows that are inserted from now on go to new pages, so that the pages there are can be moved while others insert.
    /// Commits that are under way may still append to one.
    pub fn close_pages(&self) {
        self.inner.directory.close_pages();
    }

    /// What the commits so far lead to, those that may still fail too.
    pub(crate) fn newest(&self) -> Arc<Catalog> {
        Arc::clone(&self.inner.commits.lock().newest)
    }

    /// What the cache of sections holds.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.inner.directory.cache.statistics()
    }

    /// Writes a block to a file of its own, durably. Nobody sees it until it is committed.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is left of it then.
    pub fn write_block(&self, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        if self.inner.is_read_only {
            return Err(WriteError::ReadOnly);
        }
        loop {
            match self.write_block_as(self.inner.directory.allocate_block(), image, design) {
                // A directory has the name that the block would have had.
                Err(WriteError::File { source, .. }) if source.source.kind() == io::ErrorKind::IsADirectory => {}
                result => return result,
            }
        }
    }

    fn write_block_as(&self, id: BlockId, image: &BlockImage, design: &TableDesign) -> Result<NewBlock, WriteError> {
        let directory = &self.inner.directory;
        let entry = entry_of(id, image, design);
        let file = Arc::new(BlockFile::new(Arc::clone(directory), entry));
        file.remove_from(0);
        write_file(directory, &block_name(id), |mut to| image.write_to(&mut to))
            .map_err(|source| WriteError::File { block: id, source })?;
        Ok(NewBlock { file, statistics: image.statistics.clone(), partition: None })
    }

    /// Begins a transaction on what the database holds now.
    pub fn begin(&self) -> Transaction {
        let id = TransactionId(self.inner.directory.allocate_transaction());
        self.inner.locks.begin(id);
        Transaction::new(self.clone(), id)
    }

    /// Makes changes to the catalog, all or none, durably. Readers that start afterwards see them.
    ///
    /// The new blocks of a commit that fails are removed.
    ///
    /// # Errors
    /// What `change` returns, in which case nothing happens; or when the log cannot be written.
    pub fn commit<T, E: From<CommitError>>(
        &self,
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        self.commit_changes((None, Synchronous::Full), change)
    }

    /// As [`Store::commit`], with what is certain when it returns, for a transaction.
    pub(crate) fn commit_changes<T, E: From<CommitError>>(
        &self,
        (transaction, synchronous): (Option<TransactionId>, Synchronous),
        change: impl FnOnce(&mut CatalogEdit) -> Result<T, E>,
    ) -> Result<T, E> {
        let inner = &*self.inner;
        if inner.is_read_only {
            return Err(CommitError::ReadOnly.into());
        }
        inner.directory.check_lock()?;
        let mut commits = inner.commits.lock();
        // Before anything builds on commits that are lost.
        let settled = inner.settle(&mut commits);
        let before = Arc::clone(&commits.newest);
        let mut edit = CatalogEdit::new(&before, &inner.directory);
        let value = change(&mut edit)?;
        let Changed { catalog: mut after, changes, added, removed, moves } = edit.finish();
        if changes.is_empty() {
            return Ok(value);
        }
        settled.map_err(CommitError::Log)?;
        self.check_locks(&changes, transaction)?;
        if !changes.iter().all(Change::is_of_rows) && !after.defines_like(&before) {
            after.definitions = inner.directory.allocate_definitions();
        }
        if !moves.is_empty() {
            after.moves = MovesSince::default();
        }
        let after = Arc::new(after);
        let (log, position) = self.append(&mut commits, &changes, &after, !added.is_empty())?;
        if !moves.is_empty() {
            let moves: Arc<[_]> = moves.into();
            inner.locks.carry(&moves, || before.moves.lead_to(&after.moves, Arc::clone(&moves)));
        }
        commits.newest = Arc::clone(&after);
        commits.pending.push_back(Pending { catalog: after, added, removed });
        // Readers see the commits before this one with it, and files go with those that move blocks.
        let moves_blocks = commits.pending.iter().any(Pending::moves_blocks);
        let durability = match synchronous {
            Synchronous::Full => Durability::Synced,
            _ if moves_blocks => Durability::Synced,
            Synchronous::Normal => Durability::Written,
            Synchronous::Off => {
                let published = inner.publish_up_to(&mut commits, position.sequence());
                drop((commits, published));
                return Ok(value);
            }
        };
        drop(commits);
        self.finish(&log, position, durability)?;
        Ok(value)
    }

    /// Puts changes into the log, whose next record leads to `after`.
    fn append(
        &self,
        commits: &mut Commits,
        changes: &[Change],
        after: &Catalog,
        has_blocks: bool,
    ) -> Result<(Arc<Log>, Position), CommitError> {
        let directory = &*self.inner.directory;
        let bytes = record::to_bytes(changes, after, Some(commits.next_time()))?;
        if has_blocks {
            directory.disk.sync_directory(BLOCKS).map_err(|source| directory.error("sync", BLOCKS, source))?;
        }
        let log = self.inner.log(commits)?;
        let position = log.append(&[&bytes]).map_err(CommitError::Log)?;
        debug_assert_eq!(position.sequence(), after.version, "a record for each version");
        Ok((log, position))
    }

    /// Waits until a commit is as durable as asked, and lets readers see it.
    fn finish(&self, log: &Log, position: Position, durability: Durability) -> Result<(), CommitError> {
        let flushed = log.flush(position, durability);
        let mut commits = self.inner.commits.lock();
        let settled = self.inner.settle(&mut commits);
        match (log.verdict(position), settled) {
            (Some(verdict), _) => verdict.map_err(CommitError::Log),
            (None, Ok(())) => {
                let published = self.inner.publish_up_to(&mut commits, position.sequence());
                drop(commits);
                // Files may go with them, while others commit.
                drop(published);
                Ok(())
            }
            (None, Err(_)) if flushed.is_ok() && self.snapshot().version >= position.sequence() => Ok(()),
            (None, Err(cause)) => Err(CommitError::Uncertain { cause }),
        }
    }

    /// Refuses to replace rows that a transaction has locked, where it is not known where they go: it could not commit.
    fn check_locks(&self, changes: &[Change], transaction: Option<TransactionId>) -> Result<(), CommitError> {
        for change in changes {
            let Change::ReplaceRows { table, old, order, .. } = change else { continue };
            if old.moves.is_some() || *order == RowOrder::Same {
                continue;
            }
            let units: BTreeSet<UnitId> = old.units().collect();
            if self.inner.locks.has_any(*table, transaction, |unit| units.contains(&unit)) {
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

    /// A name for a page of a delta.
    pub(crate) fn allocate_page(&self) -> Result<UnitId, CommitError> {
        self.inner.directory.allocate_page().ok_or(CommitError::TooLarge)
    }
}

impl Inner {
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The log, begun where it is not yet.
    pub(crate) fn log(&self, commits: &mut Commits) -> Result<Arc<Log>, CommitError> {
        if let Some(log) = &commits.log {
            return Ok(Arc::clone(log));
        }
        let log = self.recovery.begin_log(&self.directory, &commits.newest)?;
        Ok(Arc::clone(commits.log.insert(Arc::new(log))))
    }

    /// Where the log has failed, goes back to what is durable or was seen, and goes on in another file of the log: what
    /// comes after that then never happened.
    ///
    /// # Errors
    /// When no file can be begun; what becomes of the commits that nobody has seen is then uncertain.
    pub(crate) fn settle(&self, commits: &mut Commits) -> Result<(), LogFailed> {
        let Some(log) = commits.log.clone().filter(|log| log.has_failed()) else { return Ok(()) };
        self.publish_up_to(commits, log.durable_sequence());
        let lost = std::mem::take(&mut commits.pending);
        commits.uncertain.extend(lost.into_iter().flat_map(|pending| pending.added));
        commits.newest = Arc::clone(&self.snapshot.read());
        // Another process may have read what is lost now.
        let next = commits.newest.version + 1;
        commits.uncertain.iter().for_each(|block| block.remove_from(next));
        log.restart(commits.newest.version)?;
        // Only now, for their files go with them.
        commits.uncertain.clear();
        Ok(())
    }

    pub(crate) fn publish_all(&self, commits: &mut Commits) {
        let newest = commits.newest.version;
        self.publish_up_to(commits, newest);
    }

    /// Lets readers see the commits up to a version, which are returned.
    fn publish_up_to(&self, commits: &mut Commits, version: u64) -> Vec<Pending> {
        let mut published = Vec::new();
        while let Some(first) = commits.pending.pop_front_if(|first| first.catalog.version <= version) {
            first.added.iter().for_each(|block| block.stay());
            // Also where a block is among both: what is removed last counts.
            for block in &first.removed {
                match &mut commits.retention {
                    Some(retention) if retention.needs(block.id()) => {
                        retention.blocks.push((first.catalog.version, Arc::clone(block)));
                    }
                    _ => block.remove_from(first.catalog.version),
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
            block.stay();
        }
        if !self.is_read_only {
            // Else the log is replayed when the database is opened again.
            let _ = self.close();
            self.directory.remove_released();
        }
    }
}

/// What the catalog knows of a block.
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
        lead: Lead::of(design, &image.statistics),
    }
}

/// Creates a file with what `content` writes, and syncs it.
pub(crate) fn write_file(
    directory: &Directory,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    write_file_on(&*directory.disk, name, content)
}

/// Creates a file of a disk with what `content` writes, and syncs it.
pub(crate) fn write_file_on<T>(
    disk: &dyn Disk,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, FileError> {
    const BUFFER_BYTES: usize = 1 << 20;
    let failed = |operation| move |source| file_error(disk, operation, name, source);
    let mut file = disk.create(name).map_err(failed("create"))?;
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, Written(&mut *file));
    let written = content(&mut buffered).and_then(|value| buffered.flush().map(|()| value));
    // What is still buffered after a failure must not be written by the drop.
    drop(buffered.into_parts());
    let value = written.map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    Ok(value)
}

/// A file of a disk, as a writer of the standard library.
struct Written<'a>(&'a mut dyn WriteFile);

impl Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
