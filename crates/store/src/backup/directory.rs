//! A backup directory: the names of its files, and the removal of files that no backup needs.
//!
//! ```text
//!   lock                                     locked while a process uses the directory; contains its process id
//!   backups/00000003.manifest                backup 3, complete: written last
//!   backups/00000003.catalog                 its catalog
//!   backups/00000003.delta                   its rows that are in no block, and deleted rows
//!   backups/00000003.log                     the commits since the previous backup
//!   blocks/000000000000002a-<xxh3>.block     block 42, shared by all backups that need it
//!   *.new                                    a file that is being written
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::error::BackupError;
use super::manifest::{BlockChecksum, BlockKey, FileChecksum, LogManifest, Manifest};
use crate::BlockId;
use crate::disk::{Disk, Lock, read_whole};
use crate::error::FileError;
use crate::files::{CATALOG, LOG, file_error, list, write_file_on};

const ROOT: &str = "";
const LOCK: &str = "lock";
pub(super) const BACKUPS: &str = "backups";
pub(super) const BLOCKS: &str = "blocks";
const NEW_SUFFIX: &str = ".new";
const BLOCK_SUFFIX: &str = ".block";

/// A file that belongs to one backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackupFileKind {
    Manifest,
    Catalog,
    Delta,
    Log,
}

impl BackupFileKind {
    const ALL: [Self; 4] = [Self::Manifest, Self::Catalog, Self::Delta, Self::Log];

    fn suffix(self) -> &'static str {
        match self {
            Self::Manifest => ".manifest",
            Self::Catalog => ".catalog",
            Self::Delta => ".delta",
            Self::Log => ".log",
        }
    }
}

/// Name of a file of a backup.
pub(super) fn backup_file_name(number: u64, kind: BackupFileKind) -> String {
    format!("{BACKUPS}/{number:08}{}", kind.suffix())
}

/// The backup and kind of a file, from its name in `backups`. `None` if [`backup_file_name`] does not produce that
/// name.
pub(super) fn parse_backup_file_name(name: &str) -> Option<(u64, BackupFileKind)> {
    let kind = BackupFileKind::ALL.into_iter().find(|kind| name.ends_with(kind.suffix()))?;
    let number = name.strip_suffix(kind.suffix())?.parse().ok()?;
    (backup_file_name(number, kind) == format!("{BACKUPS}/{name}")).then_some((number, kind))
}

/// Name of the file of a block.
pub(super) fn block_name(block: BlockKey) -> String {
    format!("{BLOCKS}/{}-{:016x}{BLOCK_SUFFIX}", block.id, block.header)
}

/// The block of a file, from its name in `blocks`. `None` if [`block_name`] does not produce that name.
fn parse_block_name(name: &str) -> Option<BlockKey> {
    let (id, header) = name.strip_suffix(BLOCK_SUFFIX)?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let block = BlockKey { id: BlockId(number(id)?), header: number(header)? };
    (block_name(block) == format!("{BLOCKS}/{name}")).then_some(block)
}

/// Whether Taut creates files with this name in `backups` or `blocks`, either complete or while they are written.
pub(super) fn is_backup_name(name: &str) -> bool {
    let name = name.strip_suffix(NEW_SUFFIX).unwrap_or(name);
    parse_backup_file_name(name).is_some() || parse_block_name(name).is_some()
}

/// Whether a directory looks like a backup directory, and not like a database.
pub(super) fn is_backup_directory_on(disk: &dyn Disk) -> bool {
    let entries = disk.list(ROOT).unwrap_or_default();
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    has(BACKUPS) && ![CATALOG, LOG].into_iter().any(has)
}

/// An open backup directory. It is locked if this process can write to it.
#[derive(Debug)]
pub(super) struct BackupDirectory {
    pub disk: Arc<dyn Disk>,
    /// The complete backups, by number.
    pub manifests: BTreeMap<u64, Manifest>,
    /// The damaged manifests: what was expected in the file, by number of the backup.
    pub damaged: BTreeMap<u64, String>,
    /// Greatest backup number in any file name.
    last_number: u64,
    /// `None` if this process cannot write to the directory.
    lock: Option<Box<dyn Lock>>,
}

impl BackupDirectory {
    /// Opens a directory to back up to. Creates it if it does not exist, and removes the remains of an interrupted
    /// backup.
    pub fn create(disk: Arc<dyn Disk>) -> Result<Self, BackupError> {
        let failed = |operation, name| move |source| (operation, name, source);
        let result =
            if check_root(&*disk)? { Ok(()) } else { disk.create_directory(ROOT).map_err(failed("create", ROOT)) };
        result.map_err(|(operation, name, source)| file_error(&*disk, operation, name, source))?;
        let lock = lock(&*disk)?;
        check_root(&*disk)?;
        for name in [BACKUPS, BLOCKS] {
            disk.create_directory(name).map_err(|source| file_error(&*disk, "create", name, source))?;
        }
        disk.sync_directory(ROOT).map_err(|source| file_error(&*disk, "sync", ROOT, source))?;
        let directory = Self::read(disk, Some(lock))?;
        directory.remove_unneeded_files()?;
        Ok(directory)
    }

    /// Opens a directory to list or restore its backups.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, BackupError> {
        if !check_root(&*disk)? {
            return Err(BackupError::Missing { path: disk.path(ROOT) });
        }
        let lock = match lock(&*disk) {
            Err(BackupError::File(error)) if is_not_writable(&error.source) => None,
            result => Some(result?),
        };
        let directory = Self::read(disk, lock)?;
        if directory.lock.is_some() && directory.last_number > 0 {
            // A killed process may have renamed a manifest without syncing the directory. The sync makes the backup
            // durable before it is listed or restored.
            directory.sync(BACKUPS)?;
        }
        Ok(directory)
    }

    fn read(disk: Arc<dyn Disk>, lock: Option<Box<dyn Lock>>) -> Result<Self, BackupError> {
        let (manifests, damaged) = (BTreeMap::new(), BTreeMap::new());
        let mut directory = Self { disk, manifests, damaged, last_number: 0, lock };
        directory.reread_manifests()?;
        Ok(directory)
    }

    /// Reads all manifests.
    pub fn reread_manifests(&mut self) -> Result<(), BackupError> {
        let disk = &*self.disk;
        let (mut manifests, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        for entry in list(disk, BACKUPS)? {
            let Some((number, kind)) =
                parse_backup_file_name(entry.name.strip_suffix(NEW_SUFFIX).unwrap_or(&entry.name))
            else {
                continue;
            };
            self.last_number = self.last_number.max(number);
            if kind != BackupFileKind::Manifest || entry.name.ends_with(NEW_SUFFIX) {
                continue;
            }
            let name = backup_file_name(number, kind);
            let bytes = read_whole(disk, &name).map_err(|source| file_error(disk, "read", &name, source))?;
            match Manifest::parse(number, &bytes) {
                Ok(manifest) => drop(manifests.insert(number, manifest)),
                Err(expected) => drop(damaged.insert(number, expected)),
            }
        }
        (self.manifests, self.damaged) = (manifests, damaged);
        Ok(())
    }

    /// Path of the directory, for messages.
    pub fn path(&self) -> PathBuf {
        self.disk.path(ROOT)
    }

    /// The number of the next backup.
    pub fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// Numbers and times of the complete backups.
    pub fn times(&self) -> Vec<(u64, i64)> {
        self.manifests.values().map(|manifest| (manifest.number, manifest.time)).collect()
    }

    /// The error for a damaged manifest. `None` if it is not damaged.
    pub fn damaged_manifest_error(&self, number: u64) -> Option<BackupError> {
        let expected = self.damaged.get(&number)?.clone();
        Some(BackupError::Damaged {
            path: self.disk.path(&backup_file_name(number, BackupFileKind::Manifest)),
            table: None,
            expected,
        })
    }

    /// The blocks of all complete backups.
    pub fn blocks(&self) -> HashMap<BlockKey, BlockChecksum> {
        let blocks = self.manifests.values().flat_map(Manifest::blocks);
        blocks.map(|(_, block)| (block.key(), *block)).collect()
    }

    /// Whether the directory contains a block, with the length and the header checksum in its manifest. A restore
    /// verifies its sections.
    pub fn has_block(&self, block: &BlockChecksum, header_bytes: u64) -> bool {
        let read = || -> io::Result<bool> {
            let file = self.disk.open(&block_name(block.key()))?;
            let length = usize::try_from(header_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
            if file.length()? != block.bytes() {
                return Ok(false);
            }
            let mut header = vec![0; length];
            file.read_at(0, &mut header)?;
            Ok(XxHash3_64::oneshot(&header) == block.key().header)
        };
        read().unwrap_or(false)
    }

    /// Writes a file of a backup, before its manifest is written.
    pub fn write_backup_file<T>(
        &self,
        number: u64,
        kind: BackupFileKind,
        content: impl FnOnce(&mut ChecksumWriter<'_>) -> io::Result<T>,
    ) -> Result<(T, FileChecksum), FileError> {
        write_with_checksum(&*self.disk, &backup_file_name(number, kind), content)
    }

    /// Writes and syncs a block. Its name is durable once the directory `blocks` is synced.
    pub fn write_block<T>(
        &self,
        block: BlockKey,
        content: impl FnOnce(&mut ChecksumWriter<'_>) -> io::Result<T>,
    ) -> Result<(T, FileChecksum), FileError> {
        let name = block_name(block);
        let new = format!("{name}{NEW_SUFFIX}");
        let written = write_with_checksum(&*self.disk, &new, content).and_then(|written| {
            self.disk.rename(&new, &name).map_err(|source| file_error(&*self.disk, "rename", &new, source))?;
            Ok(written)
        });
        if written.is_err() {
            // If the removal fails, the file only occupies space until the next backup removes it.
            let _ = self.disk.remove(&new);
        }
        written
    }

    /// Syncs the names of all files so far, then writes the manifest, which completes the backup.
    pub fn complete(&mut self, manifest: Manifest) -> Result<(), BackupError> {
        self.sync(BLOCKS)?;
        self.sync(BACKUPS)?;
        self.write_manifest(&manifest)?;
        self.last_number = self.last_number.max(manifest.number);
        self.manifests.insert(manifest.number, manifest);
        Ok(())
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let (name, bytes) = (backup_file_name(manifest.number, BackupFileKind::Manifest), manifest.to_bytes()?);
        let new = format!("{name}{NEW_SUFFIX}");
        write_file_on(&*self.disk, &new, |to| to.write_all(&bytes))?;
        self.disk.rename(&new, &name).map_err(|source| file_error(&*self.disk, "rename", &new, source))?;
        self.sync(BACKUPS)
    }

    /// Removes all backups but the last `count`. Also removes logs whose base backup is gone. Returns the removed
    /// numbers.
    pub fn keep_last(&mut self, count: usize) -> Result<Vec<u64>, BackupError> {
        let excess = self.manifests.len().saturating_sub(count);
        let removed: Vec<u64> = self.manifests.keys().copied().take(excess).collect();
        let is_kept = |number: &u64| self.manifests.keys().skip(excess).any(|kept| kept == number);
        let kept = self.manifests.values().skip(excess);
        let without_log: Vec<Manifest> = kept
            .filter(|manifest| manifest.log.as_ref().is_some_and(|log| !is_kept(&log.base)))
            .map(|manifest| Manifest { log: None, ..manifest.clone() })
            .collect();
        if removed.is_empty() && without_log.is_empty() {
            return Ok(removed);
        }
        if let Some(number) = self.damaged.keys().next() {
            return Err(BackupError::NotRemoved {
                path: self.disk.path(&backup_file_name(*number, BackupFileKind::Manifest)),
            });
        }
        for number in &removed {
            let name = backup_file_name(*number, BackupFileKind::Manifest);
            self.disk.remove(&name).map_err(|source| file_error(&*self.disk, "remove", &name, source))?;
            self.manifests.remove(number);
        }
        self.sync(BACKUPS)?;
        for manifest in without_log {
            self.write_manifest(&manifest)?;
            self.manifests.insert(manifest.number, manifest);
        }
        self.remove_unneeded_files()?;
        Ok(removed)
    }

    /// The backup whose log continues backup `number`, if there is one. Backups without a log may lie between the two.
    pub fn continuation(&self, number: u64) -> Option<(&Manifest, &LogManifest)> {
        let mut logs = self.manifests.values().filter_map(|manifest| Some((manifest, manifest.log.as_ref()?)));
        logs.find(|(_, log)| log.base == number)
    }

    /// Whether all commits after backup `manifest` up to `time` were archived.
    pub fn covers(&self, manifest: &Manifest, time: i64) -> bool {
        let mut before = manifest;
        while before.time < time {
            let Some((next, _)) = self.continuation(before.number) else { return false };
            // A base is older than the backup that continues it. Anything else is damage.
            if next.number <= before.number {
                return false;
            }
            before = next;
        }
        true
    }

    /// Removes files that no backup needs. Does nothing if a manifest is damaged, because its files are unknown.
    pub fn remove_unneeded_files(&self) -> Result<(), BackupError> {
        if !self.damaged.is_empty() {
            return Ok(());
        }
        let is_needed = |number, kind| match (self.manifests.get(&number), kind) {
            (None, _) => false,
            (Some(manifest), BackupFileKind::Delta) => manifest.delta.is_some(),
            (Some(manifest), BackupFileKind::Log) => manifest.log.is_some(),
            (Some(_), BackupFileKind::Manifest | BackupFileKind::Catalog) => true,
        };
        let blocks: HashSet<BlockKey> = self.blocks().into_keys().collect();
        let is_unneeded_file = |name: &str| match name.strip_suffix(NEW_SUFFIX) {
            Some(name) => parse_backup_file_name(name).is_some(),
            None => parse_backup_file_name(name).is_some_and(|(number, kind)| !is_needed(number, kind)),
        };
        let is_unneeded_block = |name: &str| match name.strip_suffix(NEW_SUFFIX) {
            Some(name) => parse_block_name(name).is_some(),
            None => parse_block_name(name).is_some_and(|block| !blocks.contains(&block)),
        };
        let files_on_disk = list(&*self.disk, BACKUPS)?.into_iter().filter(|entry| is_unneeded_file(&entry.name));
        let mut unneeded: Vec<String> = files_on_disk.map(|entry| format!("{BACKUPS}/{}", entry.name)).collect();
        let blocks_on_disk = list(&*self.disk, BLOCKS)?.into_iter().filter(|entry| is_unneeded_block(&entry.name));
        unneeded.extend(blocks_on_disk.map(|entry| format!("{BLOCKS}/{}", entry.name)));
        if !unneeded.is_empty() {
            // A killed process may have removed a manifest. Until the removal is durable, the manifest can reappear
            // after a crash, and its files must exist.
            self.sync(BACKUPS)?;
        }
        unneeded.iter().try_for_each(|name| Ok(self.remove(name)?))
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.disk.remove(name).map_err(|source| file_error(&*self.disk, "remove", name, source))
    }

    fn sync(&self, name: &str) -> Result<(), BackupError> {
        Ok(self.disk.sync_directory(name).map_err(|source| file_error(&*self.disk, "sync", name, source))?)
    }
}

/// Whether the directory exists. Returns an error if it is not a backup directory.
fn check_root(disk: &dyn Disk) -> Result<bool, BackupError> {
    let path = disk.path(ROOT);
    let entries = match disk.list(ROOT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(BackupError::NotADirectory { path });
        }
        Err(source) => return Err(file_error(disk, "list", ROOT, source).into()),
    };
    match entries.into_iter().find(|entry| ![LOCK, BACKUPS, BLOCKS].contains(&entry.name.as_str())) {
        Some(entry) => Err(BackupError::Foreign { path, found: entry.name }),
        None => Ok(true),
    }
}

fn lock(disk: &dyn Disk) -> Result<Box<dyn Lock>, BackupError> {
    let lock = disk.lock(LOCK).map_err(|source| file_error(disk, "lock", LOCK, source))?;
    lock.ok_or_else(|| BackupError::InUse { path: disk.path(ROOT), holder: disk.lock_holder(LOCK) })
}

fn is_not_writable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// A file being written, with its length and checksum so far.
pub(super) struct ChecksumWriter<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
    hasher: XxHash3_64,
}

impl Write for ChecksumWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use std::hash::Hasher;
        self.to.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        self.hasher.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Creates a file, writes `content` to it, and syncs it. Returns its length and checksum.
pub(super) fn write_with_checksum<T>(
    disk: &dyn Disk,
    name: &str,
    content: impl FnOnce(&mut ChecksumWriter<'_>) -> io::Result<T>,
) -> Result<(T, FileChecksum), FileError> {
    use std::hash::Hasher;
    write_file_on(disk, name, |to| {
        let mut summed = ChecksumWriter { to, bytes: 0, hasher: XxHash3_64::new() };
        let value = content(&mut summed)?;
        Ok((value, FileChecksum { bytes: summed.bytes, xxh3: summed.hasher.finish() }))
    })
}
