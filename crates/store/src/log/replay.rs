//! Replay of the log files, which distinguishes damage from a torn tail. The module `log` documents the rules.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{
    DATABASE_AT, HEAD_BYTES, Head, LAST_SEQUENCE_AT, NUMBER_AT, PREVIOUS_BYTES_AT, ParsedRecord, RECORD_BYTES,
    RECORD_MAGIC, peek_durable,
};
use crate::disk::{Disk, ReadFile, read_file};
use crate::error::{FileError, OpenError};
use crate::files::{LOG, closed_log_name, file_error, list, log_name, parse_closed_log_name, parse_log_name};

/// A replayed record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// Sequence number of the record.
    pub sequence: u64,
    /// The bytes that were appended.
    pub payload: &'a [u8],
    /// Path of the file with the record.
    pub path: &'a Path,
    /// Offset of the record in the file.
    pub at: u64,
}

impl Record<'_> {
    /// Offset of the payload in the file.
    pub fn payload_at(&self) -> u64 {
        self.at + RECORD_BYTES as u64
    }
}

/// End of the log.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// Number of the last file.
    pub number: u64,
    /// Sequence number of the last record.
    pub last_sequence: u64,
    /// Bytes of the last file up to the end of the last record.
    pub bytes: u64,
    /// The tail after the last record, unless it is only zeros.
    pub torn_tail: Option<TornTail>,
    /// Known durable bytes of the last file, up to the end of a record.
    pub(super) durable_bytes: u64,
    /// Sequence number of the last record in `durable_bytes`.
    pub(super) durable_sequence: u64,
    /// Payloads of the records after `durable_bytes`.
    pub(super) unsynced_payloads: Vec<Vec<u8>>,
}

impl LogEnd {
    /// Sequence number of the last record that the log itself proves to be durable.
    pub fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }
}

/// A torn tail, which is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the tail.
    pub at: u64,
    /// Bytes of the tail up to its last byte that is not zero.
    pub bytes: u64,
    /// What was expected at the offset.
    pub expected: &'static str,
}

/// Visits the records of all files from number `first` on, in order. `last_sequence` is the sequence number of the last
/// record before file `first`, if known. Changes no file.
///
/// # Errors
/// If a file is missing, damaged or of another database, or `visit` returns an error. The records visited until then
/// are correct, but later ones are missing.
pub(crate) fn replay<E: From<OpenError>>(
    disk: &dyn Disk,
    database: u64,
    first: u64,
    last_sequence: Option<u64>,
    visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<LogEnd, E> {
    let entries = list(disk, LOG).map_err(OpenError::from)?;
    let existing = entries.iter().filter_map(|entry| parse_log_name(&entry.name));
    let expected_to_exist = entries.iter().filter_map(|entry| parse_closed_log_name(&entry.name)?.checked_add(1));
    let last = existing.chain(expected_to_exist).fold(first, u64::max);
    let mut file = LogFile::open(disk, database, first)?;
    if let Some(expected) = last_sequence {
        file.check_last_sequence(expected)?;
    }
    for number in first..last {
        let next = match LogFile::open(disk, database, number + 1) {
            Ok(next) => next,
            Err(error) => {
                file.visit(disk, None, visit)?;
                return Err(error.into());
            }
        };
        let end = file.visit(disk, Some(&next), visit)?;
        next.check_last_sequence(end.last_sequence)?;
        file = next;
    }
    file.visit(disk, None, visit)
}

/// Records found in the log after its first damage.
#[derive(Debug, Default)]
pub(crate) struct RecordsPastDamage {
    /// Greatest sequence number found, if it is greater than the last visited one.
    pub last_sequence: Option<u64>,
    /// Payloads of valid records, ordered by sequence number.
    pub records: Vec<Vec<u8>>,
}

/// Finds all valid records after `last_sequence` in the files from number `first` on, including records that follow
/// damage in their file. Skips files with a damaged head.
///
/// # Errors
/// If the file system cannot read a file that may be intact.
pub(crate) fn records_past_damage(
    disk: &dyn Disk,
    database: u64,
    first: u64,
    last_sequence: u64,
) -> Result<RecordsPastDamage, FileError> {
    let (mut greatest, mut records) = (last_sequence, BTreeMap::new());
    let entries = list(disk, LOG)?;
    let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| parse_log_name(&entry.name)).collect();
    numbers.sort_unstable();
    for number in numbers.into_iter().filter(|number| *number >= first) {
        let file = match LogFile::open(disk, database, number) {
            Ok(file) => file,
            Err(error) => {
                error.into_damage()?;
                continue;
            }
        };
        greatest = greatest.max(file.head.last_sequence);
        let bytes = match file.read(disk) {
            Ok(bytes) => bytes,
            Err(error) => {
                error.into_damage()?;
                continue;
            }
        };
        let seed = file.head.seed();
        let mut at = HEAD_BYTES;
        while at < bytes.len() {
            match ParsedRecord::parse(&bytes[at..], seed) {
                Ok(record) => {
                    greatest = greatest.max(record.sequence);
                    if record.sequence > last_sequence {
                        // A later file may carry over the same record.
                        records.insert(record.sequence, record.payload.to_vec());
                    }
                    at += RECORD_BYTES + record.payload.len();
                }
                Err(_) => {
                    let rest = &bytes[at + 1..];
                    let next = rest.windows(RECORD_MAGIC.len()).position(|window| window == RECORD_MAGIC);
                    at = next.map_or(bytes.len(), |next| at + 1 + next);
                }
            }
        }
    }
    let last_sequence = (greatest > last_sequence).then_some(greatest);
    Ok(RecordsPastDamage { last_sequence, records: records.into_values().collect() })
}

/// An open log file with a valid head.
#[derive(Debug)]
struct LogFile {
    name: String,
    path: PathBuf,
    head: Head,
    file: Arc<dyn ReadFile>,
}

/// Opens a log file for reading, whether it is closed (`.closed.log`) or not. Returns its name, too. Another process
/// may close the file meanwhile, but never makes a closed file open again.
///
/// # Errors
/// If the file system returns an error: `NotFound` if the file does not exist.
pub(crate) fn open_file(disk: &dyn Disk, number: u64) -> io::Result<(String, Arc<dyn ReadFile>)> {
    let name = log_name(number);
    match disk.open(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = closed_log_name(number);
            let file = disk.open(&name)?;
            Ok((name, file))
        }
        result => Ok((name, result?)),
    }
}

/// Syncs a log file that another process wrote, closed or not.
///
/// # Errors
/// If the file system returns an error: `NotFound` if the file does not exist.
pub(crate) fn sync_file(disk: &dyn Disk, number: u64) -> io::Result<()> {
    match disk.sync_file(&log_name(number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.sync_file(&closed_log_name(number)),
        result => result,
    }
}

impl LogFile {
    fn open(disk: &dyn Disk, database: u64, number: u64) -> Result<Self, OpenError> {
        let (name, file) = open_file(disk, number).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => OpenError::MissingLog { path: disk.path(&log_name(number)) },
            _ => file_error(disk, "open", &log_name(number), source).into(),
        })?;
        let path = disk.path(&name);
        let failed = |source| file_error(disk, "read", &name, source);
        let length = file.length().map_err(failed)?;
        let corrupt = |at: usize, expected: String| OpenError::Corrupt { path: path.clone(), at: at as u64, expected };
        if length < HEAD_BYTES as u64 {
            return Err(corrupt(0, format!("a head of {HEAD_BYTES} bytes, found {length}")));
        }
        let mut bytes = [0; HEAD_BYTES];
        file.read_at(0, &mut bytes).map_err(failed)?;
        let head = Head::parse(&bytes).map_err(|(at, expected)| corrupt(at, expected.to_owned()))?;
        for (at, what, expected, found) in
            [(DATABASE_AT, "database", database, head.database), (NUMBER_AT, "file", number, head.number)]
        {
            if found != expected {
                return Err(corrupt(at, format!("number {expected:x} of the {what}, found {found:x}")));
            }
        }
        Ok(Self { name, path, head, file })
    }

    /// All bytes of the file, even if it was renamed meanwhile.
    fn read(&self, disk: &dyn Disk) -> Result<Vec<u8>, OpenError> {
        read_file(&*self.file).map_err(|source| file_error(disk, "read", &self.name, source).into())
    }

    fn corrupt(&self, at: usize, expected: String) -> OpenError {
        OpenError::Corrupt { path: self.path.clone(), at: at as u64, expected }
    }

    fn check_last_sequence(&self, expected: u64) -> Result<(), OpenError> {
        let found = self.head.last_sequence;
        if found == expected {
            return Ok(());
        }
        Err(self.corrupt(LAST_SEQUENCE_AT, format!("{expected} as the last record before this file, found {found}")))
    }

    /// Visits the valid records of the file. If there is a next file, it determines which records are valid. Otherwise
    /// all records up to the end of the log are valid.
    fn visit<E: From<OpenError>>(
        &self,
        disk: &dyn Disk,
        next: Option<&Self>,
        visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<LogEnd, E> {
        let file = self.read(disk)?;
        let bytes = self.valid_bytes(&file, next)?;
        let mut cursor = RecordCursor { file: self, bytes, at: HEAD_BYTES, sequence: self.head.last_sequence };
        let mut durable_prefix = DurablePrefix::at_head(self.head, next.is_some());
        let mut torn_tail = None;
        while cursor.at < bytes.len() {
            let at = cursor.at;
            match cursor.next()? {
                Ok(record) => {
                    let ParsedRecord { sequence, payload, .. } = record;
                    visit(Record { sequence, payload, path: &self.path, at: at as u64 })?;
                    durable_prefix.add(at + RECORD_BYTES..cursor.at, record.durable);
                }
                Err(expected) => {
                    let tail = cursor.tail_bytes();
                    if next.is_some() || cursor.was_durable(tail) {
                        return Err(self.corrupt(at, expected.to_owned()).into());
                    }
                    let torn = TornTail { path: self.path.clone(), at: at as u64, bytes: tail as u64, expected };
                    torn_tail = (tail > 0).then_some(torn);
                    break;
                }
            }
        }
        if (cursor.at as u64) < self.head.initial_bytes {
            let expected = format!("the records with which the file began, up to byte {}", self.head.initial_bytes);
            return Err(self.corrupt(cursor.at, expected).into());
        }
        Ok(LogEnd {
            number: self.head.number,
            last_sequence: cursor.sequence,
            bytes: cursor.at as u64,
            torn_tail,
            durable_bytes: durable_prefix.bytes as u64,
            durable_sequence: durable_prefix.sequence,
            unsynced_payloads: durable_prefix.after.into_iter().map(|payload| bytes[payload].to_vec()).collect(),
        })
    }

    /// The bytes of the file that the next file counts as valid. All bytes if there is no next file.
    fn valid_bytes<'a>(&self, bytes: &'a [u8], next: Option<&Self>) -> Result<&'a [u8], OpenError> {
        let Some(next) = next else { return Ok(bytes) };
        let valid_bytes = next.head.previous_bytes;
        if valid_bytes < self.head.initial_bytes {
            let expected = format!("at least {} valid bytes in the previous file", self.head.initial_bytes);
            return Err(next.corrupt(PREVIOUS_BYTES_AT, expected));
        }
        let range = usize::try_from(valid_bytes).ok().and_then(|valid_bytes| bytes.get(..valid_bytes));
        let expected = || format!("{valid_bytes} bytes, which the next file counts as valid");
        range.ok_or_else(|| self.corrupt(bytes.len(), expected()))
    }
}

/// A position in a file, and the sequence number of the record before it.
#[derive(Debug)]
struct RecordCursor<'a> {
    file: &'a LogFile,
    bytes: &'a [u8],
    at: usize,
    sequence: u64,
}

impl<'a> RecordCursor<'a> {
    /// Parses the next record and moves past it, or returns what was expected. A valid record that contradicts its
    /// position is an error, because a torn write cannot cause it.
    fn next(&mut self) -> Result<Result<ParsedRecord<'a>, &'static str>, OpenError> {
        let record = match ParsedRecord::parse(&self.bytes[self.at..], self.file.head.seed()) {
            Ok(record) => record,
            Err(expected) => return Ok(Err(expected)),
        };
        let sequence = self.sequence.wrapping_add(1);
        if record.sequence != sequence {
            let expected = format!("record {sequence}, found {}", record.sequence);
            return Err(self.file.corrupt(self.at, expected));
        }
        if record.durable > self.at as u64 {
            let expected =
                format!("a record with at most {} durable bytes before it, found {}", self.at, record.durable);
            return Err(self.file.corrupt(self.at, expected));
        }
        (self.at, self.sequence) = (self.at + RECORD_BYTES + record.payload.len(), sequence);
        Ok(Ok(record))
    }

    /// Number of bytes from the position on, without the zeros at the end of the file.
    fn tail_bytes(&self) -> usize {
        self.bytes[self.at..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    }

    /// Whether a later record, which begins in the tail, states that the invalid bytes at the position were durable.
    fn was_durable(&self, tail_bytes: usize) -> bool {
        let seed = self.file.head.seed();
        // Lengths are no longer reliable, so a record may begin at every byte.
        let rest = (self.at + 1..self.at + tail_bytes).map(|at| (at as u64, &self.bytes[at..]));
        let mut candidates = rest.filter(|(_, bytes)| bytes.starts_with(&RECORD_MAGIC));
        candidates.any(|(at, bytes)| {
            // This check is cheaper than the checksum. A payload may contain a copy of an earlier record, whose
            // `durable` is before this position.
            let claims_durable = peek_durable(bytes).is_some_and(|durable| durable > self.at as u64 && durable <= at);
            claims_durable && ParsedRecord::parse(bytes, seed).is_ok()
        })
    }
}

/// Tracks how many bytes of a file are known to be durable, while its records are read in order.
#[derive(Debug)]
struct DurablePrefix {
    /// Number of durable bytes according to the head or a record.
    durable: u64,
    /// End of the last record within the durable bytes.
    bytes: usize,
    /// Sequence number of the last record within the durable bytes.
    sequence: u64,
    /// Ranges of the payloads of the later records.
    after: VecDeque<Range<usize>>,
}

impl DurablePrefix {
    /// State before the first record. All bytes of a file that has a successor are durable.
    fn at_head(head: Head, has_successor: bool) -> Self {
        let durable = if has_successor { u64::MAX } else { head.initial_bytes };
        Self { durable, bytes: HEAD_BYTES, sequence: head.last_sequence, after: VecDeque::new() }
    }

    /// Adds the next record.
    fn add(&mut self, payload: Range<usize>, durable: u64) {
        self.durable = self.durable.max(durable);
        self.after.push_back(payload);
        while let Some(first) = self.after.pop_front_if(|payload| payload.end as u64 <= self.durable) {
            (self.bytes, self.sequence) = (first.end, self.sequence.wrapping_add(1));
        }
    }
}
