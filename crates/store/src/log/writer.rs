//! Writing, with group commit: records are collected in memory, and one waiting thread writes and syncs them for all.
//!
//! ```text
//!   append             | 14 | 15 | 16 |         in memory, in the order of calls
//!   flush, leader      takes all records          one write, and one sync if a caller needs it
//!   flush, follower    waits for the leader       then its record is flushed, or it leads the next group
//! ```
//!
//! A sync that also makes a new length durable takes 1.5 times as long. So the file is extended ahead of the writes, in
//! steps of [`Disk::extension_step`]. A new file is not extended before its first group.

use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::begin::{PreparedLogFile, prepare, publish};
use super::format::{self, HEAD_BYTES, Head, frame, seal};
use super::replay::{LogEnd, Record, replay};
use crate::disk::{Disk, WriteFile};
use crate::error::{FileError, LogFailed, OpenError};
use crate::files::{LOG, ROOT, file_error, log_name};

/// Position of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Number of restarts of the log before the record. After a restart, sequence numbers of lost records are reused.
    epoch: usize,
    sequence: u64,
}

impl Position {
    /// The sequence number of the record.
    pub fn sequence(self) -> u64 {
        self.sequence
    }
}

/// Durability of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The record survives if the machine stops.
    Synced,
    /// The record survives if the process ends.
    Written,
}

/// A log open for writing.
///
/// After a failed write or sync, it is unknown what is on the medium. The log then stays failed: [`Log::flush`] returns
/// the first failure for every record that had not reached the requested durability before. See [`Log::restart`].
///
/// Records are collected in memory until a thread flushes them. Dropping the log writes nothing; see [`Log::close`].
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    database: u64,
    state: Mutex<WriterState>,
    /// Notified when a leader has finished.
    leader_done: Condvar,
}

/// State of an open log, behind its mutex.
#[derive(Debug)]
struct WriterState {
    number: u64,
    /// Seed of the checksums in the current file.
    seed: u64,
    /// The current file. `None` while a leader writes to it.
    file: Option<Box<dyn WriteFile>>,
    /// Framed records that no leader has taken yet. After a failure, all records that are possibly missing from the
    /// file.
    buffer: Vec<u8>,
    /// Valid bytes of the current file, including the records in `buffer`.
    bytes: u64,
    /// Length of the current file, zeros at the end included.
    length: u64,
    /// Number of synced bytes of the current file.
    synced_bytes: u64,
    /// Sequence numbers of the last appended, the last written and the last synced record.
    last_sequence: u64,
    written_sequence: u64,
    synced_sequence: u64,
    /// The log must be synced up to the record with this sequence number, because a thread waits for it.
    sync_requested_sequence: u64,
    failure: Option<LogFailed>,
    /// For each restart: the sequence number of the last record that it kept, and the failure.
    restarts: Vec<(u64, LogFailed)>,
}

impl Log {
    /// Begins the log of a database, durably. The first record gets the sequence number after `last_sequence`.
    ///
    /// # Errors
    /// If the directory or the first file of the log cannot be written.
    pub fn create(disk: Arc<dyn Disk>, database: u64, number: u64, last_sequence: u64) -> Result<Self, FileError> {
        let head = Head { database, number, last_sequence, previous_bytes: 0, initial_bytes: 0 };
        Self::begin(disk, head, &[])
    }

    /// Continues in a new file where [`super::replay()`] ended. All replayed records are durable afterwards.
    ///
    /// # Errors
    /// If the file cannot be written. The log can then be replayed and resumed again.
    pub fn resume(disk: Arc<dyn Disk>, database: u64, end: &LogEnd) -> Result<Self, FileError> {
        let head = Head {
            database,
            number: end.number + 1,
            last_sequence: end.durable_sequence,
            previous_bytes: end.durable_bytes,
            initial_bytes: 0,
        };
        Self::begin(disk, head, &end.unsynced_payloads)
    }

    fn begin(disk: Arc<dyn Disk>, head: Head, carried: &[Vec<u8>]) -> Result<Self, FileError> {
        disk.create_directory(LOG).map_err(|source| file_error(&*disk, "create", LOG, source))?;
        // File names that a killed process created may not be durable. Names of earlier files must become durable
        // before later ones.
        for name in [ROOT, LOG] {
            disk.sync_directory(name).map_err(|source| file_error(&*disk, "sync", name, source))?;
        }
        let PreparedLogFile { head, file } = prepare(&*disk, head, carried)?;
        publish(&*disk, head.number)?;
        let last_sequence = head.last_sequence + carried.len() as u64;
        let state = WriterState {
            number: head.number,
            seed: head.seed(),
            file: Some(file),
            buffer: Vec::new(),
            bytes: head.initial_bytes,
            length: head.initial_bytes,
            synced_bytes: head.initial_bytes,
            last_sequence,
            written_sequence: last_sequence,
            synced_sequence: last_sequence,
            sync_requested_sequence: last_sequence,
            failure: None,
            restarts: Vec::new(),
        };
        Ok(Self { disk, database: head.database, state: Mutex::new(state), leader_done: Condvar::new() })
    }

    /// Appends a record to the buffer of the next flush, without I/O. The payload is the concatenation of the parts.
    /// Records have the order of the calls.
    ///
    /// # Errors
    /// If the log has failed.
    pub fn append(&self, payload: &[&[u8]]) -> Result<Position, LogFailed> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let sequence = state.last_sequence + 1;
        let before = state.buffer.len();
        frame(&mut state.buffer, sequence, payload);
        state.bytes += (state.buffer.len() - before) as u64;
        state.last_sequence = sequence;
        Ok(Position { epoch: state.restarts.len(), sequence })
    }

    /// Waits until the record and all earlier records have the requested durability.
    ///
    /// # Errors
    /// If the log fails before that. The records may still be found when the log is replayed.
    pub fn flush(&self, position: Position, durability: Durability) -> Result<(), LogFailed> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.outcome_after_restart(position) {
                return outcome;
            }
            let reached = match durability {
                Durability::Synced => state.synced_sequence,
                Durability::Written => state.written_sequence,
            };
            if position.sequence <= reached {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if durability == Durability::Synced {
                state.sync_requested_sequence = state.sync_requested_sequence.max(position.sequence);
            }
            match state.file.take() {
                Some(file) => self.write_group(&mut state, file),
                None => self.leader_done.wait(&mut state),
            }
        }
    }

    /// Makes all records so far durable.
    ///
    /// # Errors
    /// If the flush fails, as for [`Log::flush`].
    pub fn close(&self) -> Result<(), LogFailed> {
        let last = {
            let state = self.state.lock();
            Position { epoch: state.restarts.len(), sequence: state.last_sequence }
        };
        self.flush(last, Durability::Synced)
    }

    /// Makes all records so far durable and continues in the next file. Returns its number. Records that are appended
    /// meanwhile go to the new file.
    ///
    /// # Errors
    /// If the records or the file cannot be written. If the file failed before it was renamed into place, the log
    /// continues in the previous file. Otherwise the log has failed.
    pub fn rotate(&self) -> Result<u64, LogFailed> {
        let mut state = self.state.lock();
        let file = self.take_synced(&mut state)?;
        let head = Head {
            database: self.database,
            number: state.number + 1,
            last_sequence: state.last_sequence,
            previous_bytes: state.bytes,
            initial_bytes: 0,
        };
        let prepared = MutexGuard::unlocked(&mut state, || prepare(&*self.disk, head, &[]));
        let next_file = match prepared {
            Ok(next_file) => next_file,
            Err(error) => {
                state.file = Some(file);
                self.leader_done.notify_all();
                return Err(LogFailed::new(error));
            }
        };
        // From here on the new file may be valid. A record written to the old file would then be ignored.
        drop(file);
        if let Err(error) = MutexGuard::unlocked(&mut state, || publish(&*self.disk, head.number)) {
            return Err(self.fail(&mut state, error));
        }
        state.switch_to(next_file);
        self.leader_done.notify_all();
        Ok(state.number)
    }

    /// Whether the log has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Outcome of a record if the log was restarted since the record was appended: `Ok` if the restart kept the record,
    /// otherwise the failure. `None` if there was no restart.
    pub fn outcome_after_restart(&self, position: Position) -> Option<Result<(), LogFailed>> {
        self.state.lock().outcome_after_restart(position)
    }

    /// Continues after a failure, in the next file, after the last durable record. Later records up to `last_seen` are
    /// carried over, because readers have seen them. All other records are discarded.
    ///
    /// # Errors
    /// If the log cannot continue. The restart can be tried again.
    pub fn restart(&self, last_seen: u64) -> Result<(), LogFailed> {
        let mut state = self.state.lock();
        let Some(failure) = state.failure.clone() else { return Ok(()) };
        let carried = self.unsynced_payloads(&state, last_seen).ok_or_else(|| failure.clone())?;
        let head = Head {
            database: self.database,
            number: state.number + 1,
            last_sequence: state.synced_sequence,
            previous_bytes: state.synced_bytes,
            initial_bytes: 0,
        };
        // The lock is held, so no other thread appends or flushes meanwhile.
        let next_file = prepare(&*self.disk, head, &carried).map_err(LogFailed::new)?;
        publish(&*self.disk, head.number).map_err(LogFailed::new)?;
        state.buffer = Vec::new();
        state.switch_to(next_file);
        let last_kept = state.synced_sequence + carried.len() as u64;
        (state.last_sequence, state.written_sequence) = (last_kept, last_kept);
        (state.synced_sequence, state.sync_requested_sequence) = (last_kept, last_kept);
        state.failure = None;
        state.restarts.push((last_kept, failure));
        self.leader_done.notify_all();
        Ok(())
    }

    /// Payloads of the records after the last synced one, up to the record `last`. Written records are read from the
    /// file, later ones from memory. `None` if the file does not contain all of them.
    fn unsynced_payloads(&self, state: &WriterState, last: u64) -> Option<Vec<Vec<u8>>> {
        let mut payloads = Vec::new();
        let written = last.min(state.written_sequence);
        if written > state.synced_sequence {
            let unsynced = state.synced_sequence + 1..=written;
            let mut visit = |record: Record<'_>| {
                if unsynced.contains(&record.sequence) {
                    payloads.push(record.payload.to_vec());
                }
                Ok(())
            };
            replay::<OpenError>(&*self.disk, self.database, state.number, None, &mut visit).ok()?;
        }
        let in_memory = last.saturating_sub(state.written_sequence);
        payloads.extend(format::payloads(&state.buffer).into_iter().take(in_memory as usize).map(<[u8]>::to_vec));
        (payloads.len() as u64 == last.saturating_sub(state.synced_sequence)).then_some(payloads)
    }

    /// Bytes of records in the current file, including records not written yet.
    pub fn record_bytes(&self) -> u64 {
        self.state.lock().bytes - HEAD_BYTES as u64
    }

    /// The number of the current file.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Valid bytes of the current file, including records not written yet.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The sequence number of the last record appended.
    #[cfg(test)]
    pub fn last_sequence(&self) -> u64 {
        self.state.lock().last_sequence
    }

    /// The sequence number of the last synced record.
    pub fn durable_sequence(&self) -> u64 {
        self.state.lock().synced_sequence
    }

    /// Takes the current file once all records are synced. No thread can write until it is put back.
    fn take_synced(&self, state: &mut MutexGuard<'_, WriterState>) -> Result<Box<dyn WriteFile>, LogFailed> {
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            match state.file.take() {
                Some(file) if state.synced_sequence == state.last_sequence => return Ok(file),
                Some(file) => {
                    state.sync_requested_sequence = state.last_sequence;
                    self.write_group(state, file);
                }
                None => self.leader_done.wait(state),
            }
        }
    }

    /// Leads a group: writes the whole buffer, and syncs it if a thread waits for that. The lock is released during the
    /// I/O.
    fn write_group(&self, state: &mut MutexGuard<'_, WriterState>, mut file: Box<dyn WriteFile>) {
        let mut group = mem::take(&mut state.buffer);
        let (seed, synced_bytes, number) = (state.seed, state.synced_bytes, state.number);
        let (bytes, last_sequence) = (state.bytes, state.last_sequence);
        let needs_sync = state.sync_requested_sequence > state.synced_sequence;
        let extended = bytes.checked_next_multiple_of(self.disk.extension_step()).filter(|_| bytes > state.length);
        let result = MutexGuard::unlocked(state, || {
            let failed = |operation| move |source| file_error(&*self.disk, operation, &log_name(number), source);
            if !group.is_empty() {
                seal(&mut group, synced_bytes, seed);
                extended.map_or(Ok(()), |length| file.extend(length)).map_err(failed("extend"))?;
                file.write_all(&group).map_err(failed("write"))?;
            }
            if needs_sync { file.sync().map_err(failed("sync")) } else { Ok(()) }
        });
        if let Err(error) = result {
            // Records that were appended meanwhile follow the group.
            group.append(&mut state.buffer);
            state.buffer = group;
            self.fail(state, error);
            return;
        }
        state.file = Some(file);
        state.written_sequence = last_sequence;
        state.length = extended.unwrap_or(state.length);
        if needs_sync {
            state.synced_sequence = last_sequence;
            state.synced_bytes = bytes;
        }
        self.leader_done.notify_all();
    }

    /// Puts the log into its failed state.
    fn fail(&self, state: &mut WriterState, error: FileError) -> LogFailed {
        let failure = LogFailed::new(error);
        state.failure = Some(failure.clone());
        self.leader_done.notify_all();
        failure
    }
}

impl WriterState {
    /// Makes a published file the current one. Buffered records go there.
    fn switch_to(&mut self, next_file: PreparedLogFile) {
        let PreparedLogFile { head, file } = next_file;
        (self.number, self.seed, self.file) = (head.number, head.seed(), Some(file));
        (self.length, self.synced_bytes) = (head.initial_bytes, head.initial_bytes);
        self.bytes = head.initial_bytes + self.buffer.len() as u64;
    }

    fn outcome_after_restart(&self, position: Position) -> Option<Result<(), LogFailed>> {
        let (last_kept, failure) = self.restarts.get(position.epoch)?;
        Some(if position.sequence <= *last_kept { Ok(()) } else { Err(failure.clone()) })
    }
}
