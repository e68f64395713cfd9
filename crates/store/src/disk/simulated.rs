//! A test double: a disk in memory that loses power, fills up and fails on demand.
//!
//! It separates the state that a running system sees from the durable state:
//!
//! ```text
//!   file     |== synced ==|-- written --|  zeros  |   power loss keeps any of the sectors after the synced part, and
//!                                                    any of the lengths to which the file was extended since
//!   names    durable names + changes in order        power loss keeps any of the changes
//! ```
//!
//! A sector is 512 bytes or 4 KiB, depending on the seed. A lost sector between kept ones reads as zeros or as garbage.
//! All choices come from the seed, so a failing test can be repeated.

mod state;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use self::state::{DiskState, FileContent, NameChange, Node, Outcome, Random, to_result, torn_content};
use super::memory::range_of;
use super::{DirectoryEntry, Disk, Lock, ReadFile, Registration, WriteFile};

/// A fault to simulate. Except in [`Fault::Capacity`], the number is the index of the operation that the fault affects.
/// Changes and reads are counted separately, each from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops during this change. All later operations fail. See [`SimulatedDisk::after_power_loss`].
    CrashAt(u64),
    /// This change fails once. It has no effect, except that a write has written half of its bytes.
    FailAt(u64),
    /// This change takes effect, but reports a failure, once.
    FailAfter(u64),
    /// This change and all later ones fail.
    FailFrom(u64),
    /// Every change with this name fails.
    FailEvery {
        /// The change, as in [`SimulatedDisk::changes`].
        change: &'static str,
        /// Whether the change still takes effect.
        has_effect: bool,
    },
    /// This read, listing or opening fails once.
    FailReadAt(u64),
    /// The disk is full when it contains this number of bytes.
    Capacity(u64),
}

/// A disk under test. Clones share its state.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    extension_step: u64,
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        // Small, so that a short test extends a file often. Not a power of two, so that it ends within a sector.
        Self { state: Arc::default(), extension_step: 1_000 }
    }
}

impl SimulatedDisk {
    /// A disk on which the database directory does not exist yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same disk with another [`Disk::extension_step`].
    pub fn with_extension_step(self, bytes: u64) -> Self {
        Self { extension_step: bytes, ..self }
    }

    /// Sets the fault from now on. Resets the counts of changes and reads.
    pub fn set_fault(&self, fault: Option<Fault>) {
        let mut state = self.state.lock();
        state.fault = fault;
        state.changes.clear();
        state.reads = 0;
    }

    /// The changes since the fault was set, each as operation and name.
    pub fn changes(&self) -> Vec<String> {
        self.state.lock().changes.clone()
    }

    /// Number of reads, listings and openings since the fault was set.
    pub fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// Whether the machine has stopped.
    pub fn is_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// The files and their contents as a running system sees them.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        let file = |(name, node): (&String, &Node)| match node {
            Node::File(file) => Some((name.clone(), state.files[*file].bytes.clone())),
            Node::Directory => None,
        };
        state.names.iter().filter_map(file).collect()
    }

    /// Adds a durable file, as if another program had written it.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let node = Node::File(state.files.len());
        state.files.push(FileContent::durable(bytes.to_vec()));
        state.set_durably(name, node);
    }

    /// Kills the processes of all registered readers: their files stay, without locks.
    pub fn kill_readers(&self) {
        self.state.lock().live_readers.clear();
    }

    /// The disk after the process was killed, as a new process finds it: with all changes, synced or not. Readers are
    /// other processes, and stay live.
    pub fn after_kill(&self) -> Self {
        let mut state = self.state.lock().clone();
        (state.fault, state.crashed, state.locked, state.shared_locks) = (None, false, false, 0);
        Self { state: Arc::new(Mutex::new(state)), extension_step: self.extension_step }
    }

    /// The disk after a power loss, as the machine finds it when it starts again.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let before = self.state.lock().clone();
        let mut random = Random(seed);
        // About this number of every eight changes that were not synced survives: half, none, all, almost all or few.
        let kept_of_8 = [4, 0, 8, 7, 1][(random.next() % 5) as usize];
        let mut names = before.durable;
        for change in before.pending.iter().filter(|_| random.next() % 8 < kept_of_8) {
            change.apply(&mut names);
        }
        let files = before.files.iter().map(|content| torn_content(content, kept_of_8, &mut random)).collect();
        let state = DiskState { durable: names.clone(), names, files, ..DiskState::default() };
        Self { state: Arc::new(Mutex::new(state)), extension_step: self.extension_step }
    }
}

impl Disk for SimulatedDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.state.lock();
        if state.names.get(name) == Some(&Node::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = state.files.len();
        state.files.push(FileContent::default());
        state.change_name("create", NameChange::Set(name.to_owned(), Node::File(file)))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let mut state = self.state.lock();
        state.count_read()?;
        let file = state.file(name)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let node = Node::File(state.file(from)?);
        state.change_name("rename", NameChange::Rename(from.to_owned(), to.to_owned(), node))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.file(name)?;
        state.change_name("remove", NameChange::Remove(name.to_owned()))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        let mut state = self.state.lock();
        state.count_read()?;
        match state.names.get(directory) {
            Some(Node::Directory) => {}
            Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let entry = |(path, node): (&String, &Node)| {
            let name = path.strip_prefix(&prefix).filter(|name| !name.is_empty() && !name.contains('/'))?;
            Some(DirectoryEntry { name: name.to_owned(), is_directory: *node == Node::Directory })
        };
        Ok(state.names.iter().filter_map(entry).collect())
    }

    fn create_directory(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.names.get(name) == Some(&Node::Directory) {
            return state.check_power();
        }
        let change = NameChange::Set(name.to_owned(), Node::Directory);
        if name.is_empty() {
            change.apply(&mut state.durable);
        }
        state.change_name("create directory", change)
    }

    fn create_root_with_file(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.names.contains_key("") {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let outcome = state.record_change("create directory", "")?;
        if outcome != Outcome::FailsBefore {
            let node = Node::File(state.files.len());
            state.files.push(FileContent::durable(Vec::new()));
            state.set_durably(name, node);
        }
        to_result(outcome)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let outcome = state.record_change("sync", name)?;
        if outcome != Outcome::FailsBefore {
            let (durable, pending) =
                std::mem::take(&mut state.pending).into_iter().partition(|c| c.directory() == name);
            state.pending = pending;
            let durable: Vec<NameChange> = durable;
            durable.iter().for_each(|change| change.apply(&mut state.durable));
        }
        to_result(outcome)
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        if state.file(name).is_err() {
            let node = Node::File(state.files.len());
            state.files.push(FileContent::default());
            state.change_name("create", NameChange::Set(name.to_owned(), node))?;
        }
        if state.shared_locks > 0 || std::mem::replace(&mut state.locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimulatedLock(self.clone()))))
    }

    fn lock_without_writing(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        state.check_power()?;
        if std::mem::replace(&mut state.locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimulatedLock(self.clone()))))
    }

    fn lock_shared(&self, _name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        state.check_power()?;
        if state.locked {
            return Ok(None);
        }
        state.shared_locks += 1;
        Ok(Some(Box::new(SimulatedSharedLock(self.clone()))))
    }

    fn register(&self, name: &str, content: &[u8]) -> io::Result<Option<Box<dyn Registration>>> {
        let mut state = self.state.lock();
        if state.file(name).is_ok() {
            return Ok(None);
        }
        let file = state.files.len();
        state.files.push(FileContent::default());
        state.change_name("create", NameChange::Set(name.to_owned(), Node::File(file)))?;
        state.write(name, file, content)?;
        let alive = Arc::new(());
        state.live_readers.insert(name.to_owned(), Arc::downgrade(&alive));
        Ok(Some(Box::new(SimulatedRegistration { disk: self.clone(), name: name.to_owned(), file, alive })))
    }

    fn read_registration(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state.lock();
        state.count_read()?;
        let file = match state.file(name) {
            Ok(file) => file,
            Err(_) => return Ok(None),
        };
        if state.live_readers.get(name).is_some_and(|alive| alive.strong_count() > 0) {
            return Ok(Some(state.files[file].bytes.clone()));
        }
        // If this fails, the file stays, but the reader is gone.
        let _ = state.change_name("remove", NameChange::Remove(name.to_owned()));
        Ok(None)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.file(name)?;
        let outcome = state.record_change("sync", name)?;
        if outcome != Outcome::FailsBefore {
            state.files[file].sync();
        }
        to_result(outcome)
    }

    fn extension_step(&self) -> u64 {
        self.extension_step
    }
}

#[derive(Debug)]
struct SimulatedLock(SimulatedDisk);

impl Lock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.0.state.lock().locked = false;
    }
}

#[derive(Debug)]
struct SimulatedSharedLock(SimulatedDisk);

impl Lock for SimulatedSharedLock {}

impl Drop for SimulatedSharedLock {
    fn drop(&mut self) {
        let shared = &mut self.0.state.lock().shared_locks;
        *shared = shared.saturating_sub(1);
    }
}

#[derive(Debug)]
struct SimulatedRegistration {
    disk: SimulatedDisk,
    name: String,
    file: usize,
    alive: Arc<()>,
}

impl SimulatedRegistration {
    /// Whether the process of this reader is live in the simulation.
    fn is_live(&self, state: &DiskState) -> bool {
        state.live_readers.get(&self.name).is_some_and(|alive| Weak::as_ptr(alive) == Arc::as_ptr(&self.alive))
    }
}

impl Registration for SimulatedRegistration {
    fn set(&self, content: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        if state.record_change("write", &self.name)? == Outcome::FailsBefore {
            return to_result(Outcome::FailsBefore);
        }
        state.files[self.file].replace(content);
        Ok(())
    }
}

impl Drop for SimulatedRegistration {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if self.is_live(&state) {
            // If this fails, the file stays, like the file of a dead reader.
            let _ = state.change_name("remove", NameChange::Remove(self.name.clone()));
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
    file: usize,
}

impl WriteFile for SimulatedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.state.lock().write(&self.name, self.file, bytes)
    }

    fn extend(&mut self, length: u64) -> io::Result<()> {
        self.disk.state.lock().extend(&self.name, self.file, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let outcome = state.record_change("sync", &self.name)?;
        if outcome != Outcome::FailsBefore {
            state.files[self.file].sync();
        }
        to_result(outcome)
    }
}

impl ReadFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.check_power()?;
        Ok(state.files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.count_read()?;
        into.copy_from_slice(range_of(&state.files[self.file].bytes, offset, into.len())?);
        Ok(())
    }
}
