//! State of the simulated disk: names and bytes, both as the running system sees them and as they are durable.

use std::collections::BTreeMap;
use std::io;
use std::sync::Weak;

use super::Fault;
use crate::disk::memory::write_at;

/// The whole state of a disk, and its fault.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskState {
    /// The names that the running system sees.
    pub names: BTreeMap<String, Node>,
    /// The names that survive any power loss.
    pub durable: BTreeMap<String, Node>,
    /// Changes of names that are not durable yet, in order.
    pub pending: Vec<NameChange>,
    pub files: Vec<FileContent>,
    pub fault: Option<Fault>,
    pub changes: Vec<String>,
    pub reads: u64,
    pub crashed: bool,
    pub locked: bool,
    pub shared_locks: u32,
    /// The registered readers whose processes are live.
    pub live_readers: BTreeMap<String, Weak<()>>,
}

/// The target of a name. A file is an index into `DiskState::files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File(usize),
}

/// Content of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    /// All bytes, up to the length to which the file was extended or written.
    pub bytes: Vec<u8>,
    /// Offset of the next write.
    written: usize,
    /// Bytes of written content that are durable.
    synced: usize,
    /// Durable length.
    synced_length: usize,
    /// Lengths to which the file was extended since the last sync.
    extensions: Vec<usize>,
}

impl FileContent {
    pub fn durable(bytes: Vec<u8>) -> Self {
        let (written, synced, synced_length) = (bytes.len(), bytes.len(), bytes.len());
        Self { bytes, written, synced, synced_length, extensions: Vec::new() }
    }

    pub fn sync(&mut self) {
        (self.synced, self.synced_length) = (self.written, self.bytes.len());
        self.extensions.clear();
    }

    /// Overwrites the file.
    pub fn replace(&mut self, bytes: &[u8]) {
        (self.bytes, self.written) = (bytes.to_vec(), bytes.len());
        (self.synced, self.synced_length) = (self.synced.min(bytes.len()), self.synced_length.min(bytes.len()));
    }

    fn append(&mut self, bytes: &[u8]) {
        write_at(&mut self.bytes, self.written, bytes);
        self.written += bytes.len();
    }

    fn extend(&mut self, length: usize) {
        assert!(length >= self.bytes.len(), "a file of {} bytes is extended to {length}", self.bytes.len());
        self.bytes.resize(length, 0);
        self.extensions.push(length);
    }
}

/// A change of names, which may not be durable yet.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set(String, Node),
    Remove(String),
    Rename(String, String, Node),
}

impl NameChange {
    pub fn directory(&self) -> &str {
        let (Self::Set(name, _) | Self::Remove(name) | Self::Rename(_, name, _)) = self;
        name.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    pub fn apply(&self, names: &mut BTreeMap<String, Node>) {
        match self {
            Self::Set(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// A file after a power loss: the synced part, any of the sectors written after it, and any of the lengths to which the
/// file was extended. Of eight such sectors or lengths, about `kept_of_8` survive.
pub(super) fn torn_content(content: &FileContent, kept_of_8: u64, random: &mut Random) -> FileContent {
    let sector = if random.next().is_multiple_of(2) { 512 } else { 4096 };
    let hole = if random.next().is_multiple_of(2) { 0 } else { random.next() as u8 };
    let mut bytes = content.bytes[..content.synced].to_vec();
    while bytes.len() < content.written {
        let start = bytes.len();
        let end = ((start / sector + 1) * sector).min(content.written);
        if random.next() % 8 < kept_of_8 {
            bytes.extend_from_slice(&content.bytes[start..end]);
        } else if random.next().is_multiple_of(2) {
            bytes.resize(end, hole);
        } else {
            // The rest of the file is lost, sometimes from the middle of this sector on.
            if random.next().is_multiple_of(4) {
                bytes.extend_from_slice(&content.bytes[start..start + (end - start) / 2]);
            }
            break;
        }
    }
    let extensions = content.extensions.iter().copied().filter(|_| random.next() % 8 < kept_of_8);
    let length = extensions.fold(bytes.len().max(content.synced_length), usize::max);
    bytes.resize(length, 0);
    FileContent::durable(bytes)
}

/// A splitmix64 generator, for repeatable choices.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Outcome of a change.
#[derive(PartialEq, Eq)]
pub(super) enum Outcome {
    Works,
    FailsBefore,
    FailsAfter,
}

impl DiskState {
    /// Records a change, and returns its outcome according to the fault.
    pub fn record_change(&mut self, operation: &str, name: &str) -> io::Result<Outcome> {
        self.check_power()?;
        let number = self.changes.len() as u64;
        let change = format!("{operation} {name}");
        let fails_every = match self.fault {
            Some(Fault::FailEvery { change: failing, has_effect }) if failing == change => Some(has_effect),
            _ => None,
        };
        self.changes.push(change);
        Ok(match self.fault {
            // The change during which the machine stops is not durable. Whether it survives depends on the power loss.
            Some(Fault::CrashAt(at)) if at == number => {
                self.crashed = true;
                if operation == "sync" { Outcome::FailsBefore } else { Outcome::FailsAfter }
            }
            Some(Fault::FailAt(at)) if at == number => Outcome::FailsBefore,
            Some(Fault::FailAfter(at)) if at == number => Outcome::FailsAfter,
            Some(Fault::FailFrom(at)) if at <= number => Outcome::FailsBefore,
            _ => match fails_every {
                Some(true) => Outcome::FailsAfter,
                Some(false) => Outcome::FailsBefore,
                None => Outcome::Works,
            },
        })
    }

    /// Counts a read. Fails if a fault is set for it.
    pub fn count_read(&mut self) -> io::Result<()> {
        self.check_power()?;
        self.reads += 1;
        if self.fault == Some(Fault::FailReadAt(self.reads - 1)) { Err(failure()) } else { Ok(()) }
    }

    pub fn check_power(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::other("the simulated machine has stopped")) } else { Ok(()) }
    }

    pub fn change_name(&mut self, operation: &str, change: NameChange) -> io::Result<()> {
        let (NameChange::Set(name, _) | NameChange::Remove(name) | NameChange::Rename(_, name, _)) = &change;
        let outcome = self.record_change(operation, &name.clone())?;
        if outcome != Outcome::FailsBefore {
            change.apply(&mut self.names);
            self.pending.push(change);
        }
        to_result(outcome)
    }

    /// Sets a name and the database directory, durably.
    pub fn set_durably(&mut self, name: &str, node: Node) {
        for change in [NameChange::Set(String::new(), Node::Directory), NameChange::Set(name.to_owned(), node)] {
            change.apply(&mut self.names);
            change.apply(&mut self.durable);
        }
    }

    /// Used bytes of the disk. An extension occupies no space until it is written.
    fn used(&self) -> u64 {
        let bytes = |node: &Node| match node {
            Node::File(file) => self.files[*file].written as u64,
            Node::Directory => 0,
        };
        self.names.values().map(bytes).sum()
    }

    pub fn write(&mut self, name: &str, file: usize, bytes: &[u8]) -> io::Result<()> {
        let outcome = self.record_change("write", name)?;
        if let Some(Fault::Capacity(capacity)) = self.fault {
            let free_bytes = usize::try_from(capacity.saturating_sub(self.used())).unwrap_or(usize::MAX);
            if free_bytes < bytes.len() {
                self.files[file].append(&bytes[..free_bytes]);
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let written = if outcome == Outcome::FailsBefore { bytes.len() / 2 } else { bytes.len() };
        self.files[file].append(&bytes[..written]);
        to_result(outcome)
    }

    pub fn extend(&mut self, name: &str, file: usize, length: u64) -> io::Result<()> {
        let outcome = self.record_change("extend", name)?;
        if outcome != Outcome::FailsBefore {
            self.files[file].extend(usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?);
        }
        to_result(outcome)
    }

    pub fn file(&self, name: &str) -> io::Result<usize> {
        match self.names.get(name) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

pub(super) fn to_result(outcome: Outcome) -> io::Result<()> {
    if outcome == Outcome::Works { Ok(()) } else { Err(failure()) }
}

fn failure() -> io::Error {
    io::Error::other("simulated failure")
}
