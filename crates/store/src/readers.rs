//! Readers: processes that have the database open read-only, while another one may write it.
//!
//! ```text
//!   reader   readers/4711-1 created, locked    states: needs everything
//!            catalog and log read
//!            readers/4711-1 overwritten        states: needs version 42, and no log files any more
//!   writer   block replaced in version 43      durable in the log
//!            readers listed                    those with a locked file are live; the others are removed
//!            block removed                     unless a live reader reads a version before 43
//! ```
//!
//! A writer first makes the change durable that makes a file unnecessary, then lists the readers, then removes the
//! file. A reader that is not in the list registered after the change, and so reads a state that does not need the file
//! (docs/adr/0031-readers-register.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, process};

use parking_lot::Mutex;
use taut_block::checksum;

use crate::disk::{Disk, Registration};
use crate::files::{READERS, block_name, is_reader_name, list, reader_name};
use crate::{BlockFile, BlockId, WeakBlockFile};

/// Announced instead of a version by a reader that is opening or refreshing, and may read any file. It is less than
/// every version that removes files.
const NEEDS_EVERYTHING: u64 = 0;

/// Content of a reader's file: the version that it reads, and a checksum, because others read the file while it is
/// overwritten.
fn to_bytes(version: u64) -> Vec<u8> {
    let text = format!("version {version:016x}");
    let text_checksum = checksum(text.as_bytes());
    format!("{text} xxh3 {text_checksum:016x}\n").into_bytes()
}

/// The version in a reader's file. If the content is invalid, the reader may need everything.
fn parse(bytes: &[u8]) -> u64 {
    let hexadecimal = bytes.get("version ".len()..).and_then(|rest| rest.get(..16));
    let digits = hexadecimal.and_then(|digits| std::str::from_utf8(digits).ok());
    let version = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    version.filter(|version| to_bytes(*version) == bytes).unwrap_or(NEEDS_EVERYTHING)
}

/// The oldest version that a live reader needs. `None` if there are no readers. Removes the files of dead readers.
pub(crate) fn oldest_needed(disk: &dyn Disk) -> Option<u64> {
    let entries = match list(disk, READERS) {
        Ok(entries) => entries,
        Err(_) => return Some(NEEDS_EVERYTHING),
    };
    let readers = entries.into_iter().filter(|entry| !entry.is_directory && is_reader_name(&entry.name));
    let version = |name: String| match disk.read_registration(&format!("{READERS}/{name}")) {
        Ok(content) => content.map(|content| parse(&content)),
        Err(_) => Some(NEEDS_EVERYTHING),
    };
    readers.filter_map(|entry| version(entry.name)).min()
}

/// Whether a reader may be reading the catalog and the log. `oldest_needed` is the oldest version that a reader needs.
pub(crate) fn may_read_log(oldest_needed: Option<u64>) -> bool {
    oldest_needed == Some(NEEDS_EVERYTHING)
}

/// Whether readers need a block that no version from `removed_in` on references. `oldest_needed` is the oldest version
/// they need.
fn is_block_needed(oldest_needed: Option<u64>, removed_in: u64) -> bool {
    oldest_needed.is_some_and(|oldest_needed| oldest_needed < removed_in)
}

/// Block files that the writer removes once no reader needs them, each with the first version that does not reference
/// it.
#[derive(Debug, Default)]
pub(crate) struct PendingRemovals(Mutex<Vec<(BlockId, u64)>>);

impl PendingRemovals {
    /// Removes the file of a block, now or once no reader needs it.
    pub fn remove(&self, disk: &dyn Disk, block: BlockId, removed_in: u64) {
        // No reader needs a block that was never committed.
        if removed_in == 0 || !self.defer(oldest_needed(disk), block, removed_in) {
            // If this fails, the next opening removes the file.
            let _ = disk.remove(&block_name(block));
        }
    }

    /// Defers a removal if a reader may need the block. Returns whether it was deferred.
    pub fn defer(&self, oldest_needed: Option<u64>, block: BlockId, removed_in: u64) -> bool {
        let is_needed = is_block_needed(oldest_needed, removed_in);
        if is_needed {
            self.0.lock().push((block, removed_in));
        }
        is_needed
    }

    /// Removes the files that no reader needs any more, and the files of dead readers.
    pub fn remove_unneeded(&self, disk: &dyn Disk) {
        let oldest_needed = oldest_needed(disk);
        let mut removals = self.0.lock();
        let removed = removals.extract_if(.., |(_, removed_in)| !is_block_needed(oldest_needed, *removed_in));
        // If a removal fails, the next opening removes the file.
        removed.for_each(|(block, _)| drop(disk.remove(&block_name(block))));
    }
}

/// The registration of this process as a reader of the database.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Whether a file represents this reader. Otherwise no file could be created, and a lock excludes writers instead.
    is_registered: bool,
    versions: Mutex<ReaderVersions>,
}

#[derive(Debug)]
struct ReaderVersions {
    /// The file of this reader: its name, and the guard that holds it.
    registration: Option<(String, Box<dyn Registration>)>,
    /// Version in the file.
    written_version: u64,
    /// Version that was read last.
    current_version: u64,
    /// Whether files are being read that `current_version` may not need.
    is_reading: bool,
    /// Blocks that only earlier versions reference, with the last such version, while this process still reads them.
    earlier_blocks: Vec<(u64, WeakBlockFile)>,
}

/// Maximum number of file names that are tried for a registration.
const ATTEMPTS_MAX: usize = 1_000;

/// Number in the file name of the next reader of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Reader {
    /// Registers a reader that needs everything.
    ///
    /// # Errors
    /// If the file of the reader cannot be created.
    pub fn register(disk: &dyn Disk) -> io::Result<Self> {
        let reader = Self::unregistered();
        reader.versions.lock().registration = Some(create_registration(disk)?);
        Ok(Self { is_registered: true, ..reader })
    }

    /// A reader without a registration, for use while no writer can open the database.
    pub fn unregistered() -> Self {
        let versions = ReaderVersions {
            registration: None,
            written_version: NEEDS_EVERYTHING,
            current_version: NEEDS_EVERYTHING,
            is_reading: true,
            earlier_blocks: Vec::new(),
        };
        Self { is_registered: false, versions: Mutex::new(versions) }
    }

    /// Whether a file represents this reader. Only then can a writer open the database meanwhile.
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Whether the file of this reader was removed externally, so that a writer may remove files that the reader needs.
    pub fn is_removed(&self, disk: &dyn Disk) -> bool {
        self.versions.lock().is_removed(disk)
    }

    /// Registers again if the file of this reader was removed. The reader then needs everything, until
    /// [`Reader::announce_version`]. Returns whether the file was removed.
    ///
    /// # Errors
    /// If the file of the reader cannot be created.
    pub fn register_again(&self, disk: &dyn Disk) -> io::Result<bool> {
        let versions = &mut *self.versions.lock();
        let is_removed = versions.is_removed(disk);
        if is_removed {
            versions.registration = Some(create_registration(disk)?);
            (versions.written_version, versions.is_reading) = (NEEDS_EVERYTHING, true);
        }
        Ok(is_removed)
    }

    /// Announces that everything is needed, until [`Reader::announce_version`].
    ///
    /// # Errors
    /// If the file of the reader cannot be written.
    pub fn announce_all(&self) -> io::Result<()> {
        let versions = &mut *self.versions.lock();
        versions.is_reading = true;
        versions.write()
    }

    /// Announces the version that is read from now on. `removed` are the blocks that the previous version references
    /// and this one does not.
    pub fn announce_version(&self, version: u64, removed: &[Arc<BlockFile>]) {
        let versions = &mut *self.versions.lock();
        let before = versions.current_version;
        versions.earlier_blocks.extend(removed.iter().map(|block| (before, block.downgrade())));
        versions.current_version = version;
        versions.announce_current();
    }

    /// Returns to the version that was announced before [`Reader::announce_all`].
    pub fn announce_previous(&self) {
        self.versions.lock().announce_current();
    }

    /// Announces again which version is needed, after a block of an earlier version was released.
    pub fn announce_release(&self) {
        // If this fails, more files are kept than necessary, until the next announcement.
        let _ = self.versions.lock().write();
    }
}

/// Creates a file that announces that everything is needed.
fn create_registration(disk: &dyn Disk) -> io::Result<(String, Box<dyn Registration>)> {
    // A name may be taken by a process with the same id on another machine, or by a dead reader.
    for _ in 0..ATTEMPTS_MAX {
        let name = reader_name(process::id(), NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        if let Some(registration) = disk.register(&name, &to_bytes(NEEDS_EVERYTHING))? {
            return Ok((name, registration));
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl ReaderVersions {
    fn is_removed(&self, disk: &dyn Disk) -> bool {
        let Some((name, _)) = &self.registration else { return false };
        // If the listing fails, the file is assumed to exist.
        let entries = list(disk, READERS);
        entries.is_ok_and(|entries| !entries.iter().any(|entry| format!("{READERS}/{}", entry.name) == *name))
    }

    fn announce_current(&mut self) {
        self.is_reading = false;
        // If this fails, more files are kept than necessary, until the next announcement.
        let _ = self.write();
    }

    fn write(&mut self) -> io::Result<()> {
        self.earlier_blocks.retain(|(_, block)| block.is_held());
        let earliest = self.earlier_blocks.iter().map(|(version, _)| *version).fold(self.current_version, u64::min);
        let version = if self.is_reading { NEEDS_EVERYTHING } else { earliest };
        if version == self.written_version {
            return Ok(());
        }
        let Some((_, registration)) = &self.registration else { return Ok(()) };
        // If this fails, the content of the file is unknown, so the next call writes it again.
        self.written_version = u64::MAX;
        registration.set(&to_bytes(version))?;
        self.written_version = version;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_versions_round_trip_and_invalid_content_needs_everything() {
        for version in [0, 1, 42, u64::MAX] {
            let bytes = to_bytes(version);
            assert_eq!((parse(&bytes), bytes.len()), (version, to_bytes(0).len()));
            for at in 0..bytes.len() {
                let mut torn = bytes.clone();
                torn[at] ^= 1;
                assert_eq!(parse(&torn), NEEDS_EVERYTHING, "{version}, byte {at}");
                assert_eq!(parse(&bytes[..at]), NEEDS_EVERYTHING, "{version}, {at} bytes");
            }
        }
        // Parts of two contents.
        let (one, other) = (to_bytes(0x1234), to_bytes(0x9876));
        assert_eq!(parse(&[&one[..22], &other[22..]].concat()), NEEDS_EVERYTHING);
    }

    #[test]
    fn a_reader_needs_files_removed_after_its_version() {
        assert!(!is_block_needed(None, 7));
        assert!(is_block_needed(Some(NEEDS_EVERYTHING), 1) && is_block_needed(Some(6), 7));
        assert!(!is_block_needed(Some(7), 7) && !is_block_needed(Some(8), 7));
    }
}
