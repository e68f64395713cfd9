//! Writing: records gather in memory, and one waiting thread writes and syncs them for all.
//!
//! ```text
//!   append             | 14 | 15 | 16 |         in memory, in the order of calls
//!   flush, leading     takes them all           one write, and one sync if anybody needs it
//!   flush, following   waits                    then finds its record covered, or leads the next group
//! ```
//!
//! A sync that also makes a new length durable costs half as much again, so the file is extended ahead of what is written,
//! by steps of [`Disk::extension_step`]. A file begins without: one in which nothing is written stays as small as it is.

use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::begin::{Begun, prepare, publish};
use super::format::{self, HEAD_BYTES, Head, frame, seal};
use super::replay::{End, Record, replay};
use crate::directory::{LOG, ROOT, log_name};
use crate::disk::{Disk, WriteFile};
use crate::error::{FileError, LogFailed, OpenError};
use crate::open::file_error;

/// The place of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// How often the log had been begun anew after a failure: numbers of lost records are given again.
    epoch: usize,
    sequence: u64,
}

impl Position {
    /// The sequence number of the record.
    pub fn sequence(self) -> u64 {
        self.sequence
    }
}

/// How far a record has to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It survives when the machine stops.
    Synced,
    /// It survives when the process ends.
    Written,
}

/// A log that is written.
///
/// After a write or sync that failed, nobody knows what is on the medium. The log then stays failed: whatever was not
/// covered before gets the first cause as its error. See [`Log::restart`].
///
/// Records gather in memory until somebody flushes. Nothing is written when the log is dropped; see [`Log::close`].
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    database: u64,
    state: Mutex<State>,
    /// Whenever a leader is done.
    led: Condvar,
}

#[derive(Debug)]
struct State {
    number: u64,
    /// Of the checksums in the current file.
    seed: u64,
    /// `None` while somebody writes to it.
    file: Option<Box<dyn WriteFile>>,
    /// Framed records that nobody has taken yet; after a failure, all that may not be in the file.
    buffer: Vec<u8>,
    /// Bytes of the current file that count, once all records are written.
    bytes: u64,
    /// Its length, with zeros behind them.
    length: u64,
    /// How much of it is synced.
    synced_bytes: u64,
    /// Of the last record that was appended, written and synced.
    last_sequence: u64,
    written_sequence: u64,
    synced_sequence: u64,
    /// The last record for which somebody waits to be synced.
    wanted_sequence: u64,
    failure: Option<LogFailed>,
    /// For each time that the log was begun anew, the last record before that counts, and what had failed.
    restarts: Vec<(u64, LogFailed)>,
}

impl Log {
    /// Begins the log of a database, durably; `last_sequence` is the number before that of its first record.
    ///
    /// # Errors
    /// When its directory or first file cannot be written.
    pub fn create(disk: Arc<dyn Disk>, database: u64, number: u64, last_sequence: u64) -> Result<Self, FileError> {
        let head = Head { database, number, last_sequence, before_bytes: 0, begun_bytes: 0 };
        Self::begin(disk, head, &[])
    }

    /// Goes on where [`super::replay()`] ended, in a new file. All that was visited is durable afterwards.
    ///
    /// # Errors
    /// When the file cannot be written; the log can then be replayed and resumed again.
    pub fn resume(disk: Arc<dyn Disk>, database: u64, end: &End) -> Result<Self, FileError> {
        let head = Head {
            database,
            number: end.number + 1,
            last_sequence: end.settled_sequence,
            before_bytes: end.settled_bytes,
            begun_bytes: 0,
        };
        Self::begin(disk, head, &end.unsettled)
    }

    fn begin(disk: Arc<dyn Disk>, head: Head, carried: &[Vec<u8>]) -> Result<Self, FileError> {
        disk.create_directory(LOG).map_err(|source| file_error(&*disk, "create", LOG, source))?;
        // Names that a killed process gave may not be durable. Those of earlier files must be before that of a later.
        for name in [ROOT, LOG] {
            disk.sync_directory(name).map_err(|source| file_error(&*disk, "sync", name, source))?;
        }
        let Begun { head, file } = prepare(&*disk, head, carried)?;
        publish(&*disk, head.number)?;
        let last_sequence = head.last_sequence + carried.len() as u64;
        let state = State {
            number: head.number,
            seed: head.seed(),
            file: Some(file),
            buffer: Vec::new(),
            bytes: head.begun_bytes,
            length: head.begun_bytes,
            synced_bytes: head.begun_bytes,
            last_sequence,
            written_sequence: last_sequence,
            synced_sequence: last_sequence,
            wanted_sequence: last_sequence,
            failure: None,
            restarts: Vec::new(),
        };
        Ok(Self { disk, database: head.database, state: Mutex::new(state), led: Condvar::new() })
    }

    /// Appends a record, whose payload is the parts in their order, to what the next flush writes. Only memory is
    /// touched; the order of records is that of calls.
    ///
    /// # Errors
    /// When the log has failed.
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

    /// Waits until the record and all before it are as durable as asked.
    ///
    /// # Errors
    /// When they are not, for the log has failed. They may still be found when it is replayed.
    pub fn flush(&self, position: Position, durability: Durability) -> Result<(), LogFailed> {
        let mut state = self.state.lock();
        loop {
            if let Some(verdict) = state.verdict(position) {
                return verdict;
            }
            let covered = match durability {
                Durability::Synced => state.synced_sequence,
                Durability::Written => state.written_sequence,
            };
            if position.sequence <= covered {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if durability == Durability::Synced {
                state.wanted_sequence = state.wanted_sequence.max(position.sequence);
            }
            match state.file.take() {
                Some(file) => self.lead(&mut state, file),
                None => self.led.wait(&mut state),
            }
        }
    }

    /// Makes all records so far durable.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub fn close(&self) -> Result<(), LogFailed> {
        let last = {
            let state = self.state.lock();
            Position { epoch: state.restarts.len(), sequence: state.last_sequence }
        };
        self.flush(last, Durability::Synced)
    }

    /// Makes all records so far durable and goes on in the next file, whose number is returned. Records that are
    /// appended meanwhile go there.
    ///
    /// # Errors
    /// When the records or the file cannot be written. If it was the file, before it got its name, the log goes on in
    /// the one before; otherwise it has failed.
    pub fn rotate(&self) -> Result<u64, LogFailed> {
        let mut state = self.state.lock();
        let file = self.take_synced(&mut state)?;
        let head = Head {
            database: self.database,
            number: state.number + 1,
            last_sequence: state.last_sequence,
            before_bytes: state.bytes,
            begun_bytes: 0,
        };
        let prepared = MutexGuard::unlocked(&mut state, || prepare(&*self.disk, head, &[]));
        let begun = match prepared {
            Ok(begun) => begun,
            Err(error) => {
                state.file = Some(file);
                self.led.notify_all();
                return Err(LogFailed::new(error));
            }
        };
        // From here on the new file may count, and then nothing more of the old one does.
        drop(file);
        if let Err(error) = MutexGuard::unlocked(&mut state, || publish(&*self.disk, head.number)) {
            return Err(self.fail(&mut state, error));
        }
        state.go_on_in(begun);
        self.led.notify_all();
        Ok(state.number)
    }

    /// Whether it has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// What has become of a record, if the log failed and was begun anew after it was appended.
    pub fn verdict(&self, position: Position) -> Option<Result<(), LogFailed>> {
        self.state.lock().verdict(position)
    }

    /// Goes on after a failure, in the next file, behind the last record that is durable. Those after it that somebody
    /// has seen, up to `seen`, are carried over; all others never happened.
    ///
    /// # Errors
    /// When it cannot; it may be tried again.
    pub fn restart(&self, seen: u64) -> Result<(), LogFailed> {
        let mut state = self.state.lock();
        let Some(failure) = state.failure.clone() else { return Ok(()) };
        let carried = self.unsynced(&state, seen).ok_or_else(|| failure.clone())?;
        let head = Head {
            database: self.database,
            number: state.number + 1,
            last_sequence: state.synced_sequence,
            before_bytes: state.synced_bytes,
            begun_bytes: 0,
        };
        // Nobody else can do anything meanwhile.
        let begun = prepare(&*self.disk, head, &carried).map_err(LogFailed::new)?;
        publish(&*self.disk, head.number).map_err(LogFailed::new)?;
        state.buffer = Vec::new();
        state.go_on_in(begun);
        let kept = state.synced_sequence + carried.len() as u64;
        (state.last_sequence, state.written_sequence) = (kept, kept);
        (state.synced_sequence, state.wanted_sequence) = (kept, kept);
        state.failure = None;
        state.restarts.push((kept, failure));
        self.led.notify_all();
        Ok(())
    }

    /// The payloads of the records after the last one that is synced, up to one of them: from the file as far as they
    /// were written, and then from memory. `None` where the file does not give them back.
    fn unsynced(&self, state: &State, last: u64) -> Option<Vec<Vec<u8>>> {
        let mut payloads = Vec::new();
        let written = last.min(state.written_sequence);
        if written > state.synced_sequence {
            let wanted = state.synced_sequence + 1..=written;
            let mut visit = |record: Record<'_>| {
                if wanted.contains(&record.sequence) {
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

    /// Bytes of records in the current file, with those that are not written yet.
    pub fn record_bytes(&self) -> u64 {
        self.state.lock().bytes - HEAD_BYTES as u64
    }

    /// The number of the current file.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Bytes of the current file that count, with those that are not written yet.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The sequence number of the last record appended.
    #[cfg(test)]
    pub fn last_sequence(&self) -> u64 {
        self.state.lock().last_sequence
    }

    /// The sequence number of the last record that is synced.
    pub fn durable_sequence(&self) -> u64 {
        self.state.lock().synced_sequence
    }

    /// The current file, once all records are synced. Nobody can write until it is put back.
    fn take_synced(&self, state: &mut MutexGuard<'_, State>) -> Result<Box<dyn WriteFile>, LogFailed> {
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            match state.file.take() {
                Some(file) if state.synced_sequence == state.last_sequence => return Ok(file),
                Some(file) => {
                    state.wanted_sequence = state.last_sequence;
                    self.lead(state, file);
                }
                None => self.led.wait(state),
            }
        }
    }

    /// Writes all that is buffered, and syncs it if anybody waits for that. The lock is free meanwhile.
    fn lead(&self, state: &mut MutexGuard<'_, State>, mut file: Box<dyn WriteFile>) {
        let mut group = mem::take(&mut state.buffer);
        let (seed, synced_bytes, number) = (state.seed, state.synced_bytes, state.number);
        let (bytes, last_sequence) = (state.bytes, state.last_sequence);
        let is_synced = state.wanted_sequence > state.synced_sequence;
        let extended = bytes.checked_next_multiple_of(self.disk.extension_step()).filter(|_| bytes > state.length);
        let result = MutexGuard::unlocked(state, || {
            let failed = |operation| move |source| file_error(&*self.disk, operation, &log_name(number), source);
            if !group.is_empty() {
                seal(&mut group, synced_bytes, seed);
                extended.map_or(Ok(()), |length| file.extend(length)).map_err(failed("extend"))?;
                file.write_all(&group).map_err(failed("write"))?;
            }
            if is_synced { file.sync().map_err(failed("sync")) } else { Ok(()) }
        });
        if let Err(error) = result {
            // What was appended meanwhile follows it.
            group.append(&mut state.buffer);
            state.buffer = group;
            self.fail(state, error);
            return;
        }
        state.file = Some(file);
        state.written_sequence = last_sequence;
        state.length = extended.unwrap_or(state.length);
        if is_synced {
            state.synced_sequence = last_sequence;
            state.synced_bytes = bytes;
        }
        self.led.notify_all();
    }

    /// Fails the log for ever.
    fn fail(&self, state: &mut State, error: FileError) -> LogFailed {
        let failure = LogFailed::new(error);
        state.failure = Some(failure.clone());
        self.led.notify_all();
        failure
    }
}

impl State {
    /// Takes a file that counts now for the current one. What is buffered goes there.
    fn go_on_in(&mut self, begun: Begun) {
        let Begun { head, file } = begun;
        (self.number, self.seed, self.file) = (head.number, head.seed(), Some(file));
        (self.length, self.synced_bytes) = (head.begun_bytes, head.begun_bytes);
        self.bytes = head.begun_bytes + self.buffer.len() as u64;
    }

    fn verdict(&self, position: Position) -> Option<Result<(), LogFailed>> {
        let (kept, failure) = self.restarts.get(position.epoch)?;
        Some(if position.sequence <= *kept { Ok(()) } else { Err(failure.clone()) })
    }
}
