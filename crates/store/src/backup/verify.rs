//! Verification of a backup directory: every byte of every file is compared with the checksums in the manifests.
//!
//! ```text
//!   manifest        its own checksum
//!   catalog, delta  checksum in the manifest; decoded; the blocks that they reference are in a manifest
//!   log             checksum in the manifest; every commit is decoded, and replayed on the earlier backup
//!   blocks          length and checksum in the manifest, once for all backups that share the block
//! ```

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use super::Backups;
use super::commits::{checksum_of, read_commits};
use super::directory::{
    BACKUPS, BLOCKS, BackupFileKind, backup_file_name, block_name, is_backup_name, parse_backup_file_name,
};
use super::error::BackupError;
use super::manifest::{BlockChecksum, BlockKey, LogManifest, Manifest};
use crate::catalog::record;
use crate::directory::Directory;
use crate::disk::{MemoryDisk, NoLock};
use crate::error::OpenError;
use crate::files::{file_error, list};
use crate::verify::{Finding, Problem};
use crate::{BlockEntry, Cache, Catalog};

/// Result of a verification of a backup directory.
#[derive(Debug)]
pub struct BackupVerification {
    /// All problems found, harmless ones included.
    pub findings: Vec<Finding>,
    /// Number of backups with an intact manifest.
    pub backups: u64,
    /// Number of blocks that these backups need. A block that several backups share counts once.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub block_bytes: u64,
}

impl Backups {
    /// Verifies all backups of the directory. Returns everything that is wrong. A block that several backups share is
    /// read once.
    pub fn verify(&self) -> BackupVerification {
        let mut findings = Vec::new();
        self.check_names(&mut findings);
        findings.extend(self.damaged().into_iter().map(|(_, error)| finding(error, PathBuf::new())));
        let checksums = self.directory.blocks();
        for manifest in self.directory.manifests.values() {
            self.check_backup(manifest, &checksums, &mut findings);
        }
        for manifest in self.directory.manifests.values() {
            if let Some(log) = &manifest.log
                && let Err(error) = self.check_log(manifest, log, &checksums)
            {
                findings.push(finding(
                    error,
                    self.directory.disk.path(&backup_file_name(manifest.number, BackupFileKind::Log)),
                ));
            }
        }
        let block_bytes = self.check_blocks(&mut findings);
        let backups = self.directory.manifests.len() as u64;
        BackupVerification { findings, backups, blocks: checksums.len() as u64, block_bytes }
    }

    /// Searches for names that do not belong to a backup directory, and for catalogs without a manifest.
    fn check_names(&self, findings: &mut Vec<Finding>) {
        let disk = &*self.directory.disk;
        for directory in [BACKUPS, BLOCKS] {
            match list(disk, directory) {
                Ok(entries) => {
                    for entry in entries {
                        let problem = match parse_backup_file_name(&entry.name) {
                            _ if entry.is_directory || !is_backup_name(&entry.name) => Problem::Foreign,
                            Some((number, BackupFileKind::Catalog))
                                if directory == BACKUPS && !self.has_manifest(number) =>
                            {
                                Problem::NoManifest
                            }
                            _ => continue,
                        };
                        let path = disk.path(&format!("{directory}/{}", entry.name));
                        findings.push(Finding { path, table: None, problem });
                    }
                }
                Err(error) => findings.push(finding(error.into(), disk.path(directory))),
            }
        }
    }

    /// Whether a backup has a manifest, intact or damaged.
    fn has_manifest(&self, number: u64) -> bool {
        self.directory.manifests.contains_key(&number) || self.directory.damaged.contains_key(&number)
    }

    /// Checks the catalog file and the delta file of a backup.
    fn check_backup(
        &self,
        manifest: &Manifest,
        checksums: &HashMap<BlockKey, BlockChecksum>,
        findings: &mut Vec<Finding>,
    ) {
        let mut are_files_intact = true;
        let delta = manifest.delta.map(|delta| (BackupFileKind::Delta, delta));
        for (kind, sum) in std::iter::once((BackupFileKind::Catalog, manifest.catalog)).chain(delta) {
            let name = backup_file_name(manifest.number, kind);
            if let Err(error) = self.read_backup_file(&name, sum) {
                findings.push(finding(error, self.directory.disk.path(&name)));
                are_files_intact = false;
            }
        }
        if are_files_intact && let Err(error) = self.check_state(manifest, checksums) {
            findings.push(finding(
                error,
                self.directory.disk.path(&backup_file_name(manifest.number, BackupFileKind::Catalog)),
            ));
        }
    }

    /// Checks a backup whose files have the right checksums: it can be opened, and all its blocks are in a manifest.
    fn check_state(
        &self,
        manifest: &Manifest,
        checksums: &HashMap<BlockKey, BlockChecksum>,
    ) -> Result<(), BackupError> {
        let state = self.open_backup(&directory_in_memory(), manifest)?;
        let catalog: &Catalog = state.edit.catalog();
        if (catalog.database, catalog.version) != (manifest.database, manifest.commit) {
            let path = self.directory.disk.path(&backup_file_name(manifest.number, BackupFileKind::Catalog));
            let expected = format!("commit {} of the database of the manifest", manifest.commit);
            return Err(BackupError::Damaged { path, table: None, expected });
        }
        let mut blocks =
            catalog.tables().flat_map(|table| table.blocks.iter().map(|block| (&table.name, block.entry())));
        blocks.try_for_each(|(table, entry)| self.check_checksum_exists(Some(table), entry, checksums))
    }

    /// Returns an error if no manifest has the checksum of a block, which a restore needs.
    fn check_checksum_exists(
        &self,
        table: Option<&String>,
        entry: &BlockEntry,
        checksums: &HashMap<BlockKey, BlockChecksum>,
    ) -> Result<(), BackupError> {
        let key = BlockKey::of(entry);
        if checksums.get(&key).is_some_and(|sum| sum.bytes() == entry.file_bytes) {
            return Ok(());
        }
        let (path, table) = (self.directory.disk.path(&block_name(key)), table.cloned());
        Err(BackupError::Damaged { path, table, expected: "a block that a manifest names".to_owned() })
    }

    /// Checks the archived commits of a backup. Replays them if the backup that they continue still exists.
    fn check_log(
        &self,
        manifest: &Manifest,
        log: &LogManifest,
        checksums: &HashMap<BlockKey, BlockChecksum>,
    ) -> Result<(), BackupError> {
        let (mut commits, mut missing_block) = (0, None);
        let first = (manifest.commit + 1).checked_sub(log.commits);
        read_commits(&self.directory, manifest.number, log, manifest.database, |sequence, payload| {
            if first.map(|first| first + commits) != Some(sequence) {
                return Err((0, format!("a commit of the last {} up to {}", log.commits, manifest.commit)));
            }
            let parsed = record::parse(payload).map_err(|(offset, expected)| (offset as u64, expected))?;
            for (_, entry) in parsed.changes.iter().flat_map(|change| change.new_blocks()) {
                let checked = self.check_checksum_exists(None, &entry, checksums);
                missing_block = missing_block.take().or(checked.err());
            }
            commits += 1;
            Ok(true)
        })?;
        if let Some(error) = missing_block {
            return Err(error);
        }
        if commits != log.commits {
            let path = self.directory.disk.path(&backup_file_name(manifest.number, BackupFileKind::Log));
            return Err(BackupError::Damaged { path, table: None, expected: format!("{} commits", log.commits) });
        }
        let Some(base) = self.directory.manifests.get(&log.base) else { return Ok(()) };
        let continuation = self.directory.continuation(base.number);
        if base.number >= manifest.number || continuation.is_none_or(|(next, _)| next.number != manifest.number) {
            return Ok(());
        }
        // A problem of the base backup is reported with that backup.
        let Ok(mut state) = self.open_backup(&directory_in_memory(), base) else { return Ok(()) };
        self.replay(&mut state, base, manifest.time, &mut |_| ControlFlow::Continue(()))
    }

    /// Checks each block once. Returns the bytes of all blocks.
    fn check_blocks(&self, findings: &mut Vec<Finding>) -> u64 {
        let (mut checked, mut bytes) = (HashSet::new(), 0);
        for (table, block) in self.directory.manifests.values().flat_map(Manifest::blocks) {
            if checked.insert(block.key()) {
                bytes += block.bytes();
                if let Err(error) = self.check_block(table, block) {
                    findings.push(finding(error, self.directory.disk.path(&block_name(block.key()))));
                }
            }
        }
        bytes
    }

    fn check_block(&self, table: &str, block: &BlockChecksum) -> Result<(), BackupError> {
        let (disk, name) = (&*self.directory.disk, block_name(block.key()));
        let damaged =
            |expected| BackupError::Damaged { path: disk.path(&name), table: Some(table.to_owned()), expected };
        let failed = |operation: &'static str, source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => damaged("a file, which is missing".to_owned()),
            _ => file_error(disk, operation, &name, source).into(),
        };
        let file = disk.open(&name).map_err(|source| failed("open", source))?;
        let found = file.length().map_err(|source| failed("read", source))?;
        if found != block.bytes() {
            return Err(damaged(format!("{} bytes, found {found}", block.bytes())));
        }
        let found = checksum_of(&*file, found).map_err(|source| failed("read", source))?;
        if found != block.xxh3() {
            return Err(damaged(format!("content with checksum {:016x}, found {found:016x}", block.xxh3())));
        }
        Ok(())
    }
}

/// A directory for opening the catalog of a backup. No block is read through it.
fn directory_in_memory() -> Arc<Directory> {
    Arc::new(Directory::new(Arc::new(MemoryDisk::new()), Box::new(NoLock), Cache::new(0)))
}

/// Converts an error to a finding. `path` is the file if the error contains no path.
fn finding(error: BackupError, path: PathBuf) -> Finding {
    match error {
        BackupError::Damaged { path, table, expected } => {
            Finding { path, table, problem: Problem::Content { expected } }
        }
        BackupError::File(error) => Finding { path: error.path.clone(), table: None, problem: Problem::File(error) },
        BackupError::Open(error @ OpenError::Version { .. }) => {
            Finding { path, table: None, problem: Problem::Catalog(error) }
        }
        error => {
            let expected = format!("a backup that can be restored: {error}");
            Finding { path, table: None, problem: Problem::Content { expected } }
        }
    }
}
