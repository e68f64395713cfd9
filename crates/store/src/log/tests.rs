//! Tests that write, tear, damage and read logs. The payload of a record is derived from its sequence number and its
//! life: the time from one opening of the log to the next. So the tests detect a record of another position or life.

mod chain;
mod crash;
mod damage;
mod extension;
mod faults;
mod groups;
mod hostile;

use std::sync::Arc;

use super::{Durability, Log, LogEnd, Position, replay};
use crate::disk::{Disk, SimulatedDisk};
use crate::error::{LogFailed, OpenError};
use crate::files::{closed_log_name, log_name};

const DATABASE: u64 = 0x7a75_7401;

fn payload_of(sequence: u64, life: u8) -> Vec<u8> {
    const LENGTHS: [usize; 8] = [3, 0, 600, 1, 40, 5_000, 39, 900];
    let length = LENGTHS[(sequence % 8) as usize];
    (0..length).map(|at| (sequence as u8).wrapping_mul(31).wrapping_add(at as u8) ^ life.wrapping_mul(85)).collect()
}

/// A disk with an empty database directory.
fn new_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_directory("").unwrap();
    disk.sync_directory("").unwrap();
    disk
}

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Appends the next record, in two parts.
fn append(log: &Log, life: u8) -> Result<Position, LogFailed> {
    let sequence = log.last_sequence() + 1;
    let payload = payload_of(sequence, life);
    let (left, right) = payload.split_at(payload.len() / 3);
    let position = log.append(&[left, right])?;
    assert_eq!(position.sequence(), sequence);
    Ok(position)
}

fn append_synced(log: &Log, life: u8) {
    let position = append(log, life).unwrap();
    log.flush(position, Durability::Synced).unwrap();
}

/// The current name of a log file.
fn name_of(disk: &SimulatedDisk, number: u64) -> String {
    let closed = closed_log_name(number);
    if disk.files().contains_key(&closed) { closed } else { log_name(number) }
}

/// The length of a log file.
fn length(disk: &SimulatedDisk, number: u64) -> u64 {
    disk.files()[&name_of(disk, number)].len() as u64
}

type Payloads = Vec<(u64, Vec<u8>)>;

/// Replays the log from file `first` on. Returns its end and all records.
fn read(disk: &dyn Disk, first: u64, last_sequence: Option<u64>) -> Result<(LogEnd, Payloads), OpenError> {
    let mut records = Payloads::new();
    let end = replay(disk, DATABASE, first, last_sequence, &mut |record| {
        records.push((record.sequence, record.payload.to_vec()));
        Ok::<_, OpenError>(())
    })?;
    assert_eq!(records.last().map_or(end.last_sequence, |last| last.0), end.last_sequence);
    Ok((end, records))
}

/// The expected records with these sequence numbers, written in one life.
fn payloads(sequences: std::ops::RangeInclusive<u64>, life: u8) -> Payloads {
    sequences.map(|sequence| (sequence, payload_of(sequence, life))).collect()
}

#[test]
fn records_survive_rotations_and_resumptions() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 7, 100).unwrap();
    // A new file has only its head, of 56 bytes.
    assert_eq!((log.number(), log.bytes(), log.last_sequence(), log.durable_sequence()), (7, 56, 100, 100));
    for _ in 0..10 {
        append(&log, 0).unwrap();
    }
    assert_eq!((log.last_sequence(), log.durable_sequence()), (110, 100));
    assert_eq!(log.rotate().unwrap(), 8);
    assert_eq!((log.number(), log.bytes(), log.durable_sequence()), (8, 56, 110));
    assert_eq!(log.rotate().unwrap(), 9);
    append_synced(&log, 0);
    let written = append(&log, 0).unwrap();
    log.flush(written, Durability::Written).unwrap();
    assert_eq!(log.durable_sequence(), 111);
    let buffered = append(&log, 0).unwrap();
    let bytes = log.bytes();
    drop(log);
    let (end, records) = read(&disk, 7, Some(100)).unwrap();
    assert_eq!(records, payloads(101..=written.sequence(), 0));
    assert_eq!((end.number, end.last_sequence, &end.torn_tail), (9, 112, &None));
    assert_eq!(bytes - end.bytes, 40 + payload_of(buffered.sequence(), 0).len() as u64);

    let log = Log::resume(shared(&disk), DATABASE, &end).unwrap();
    assert_eq!((log.number(), log.last_sequence(), log.durable_sequence()), (10, 112, 112));
    append(&log, 0).unwrap();
    append(&log, 0).unwrap();
    log.close().unwrap();
    assert_eq!(log.durable_sequence(), 114);
    let (end, records) = read(&disk, 7, None).unwrap();
    assert_eq!((end.bytes, records), (log.bytes(), payloads(101..=114, 0)));
    // A later first file, as after a checkpoint.
    assert_eq!(read(&disk, 9, Some(110)).unwrap().1, payloads(111..=114, 0));
    super::remove_before(&disk, 9).unwrap();
    let names: Vec<String> = disk.files().into_keys().collect();
    assert_eq!(names, [closed_log_name(9), log_name(10)]);
    assert_eq!(read(&disk, 9, Some(110)).unwrap().1, payloads(111..=114, 0));
}

#[test]
fn an_error_of_the_visitor_ends_the_replay_and_records_have_offsets() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 0, 0).unwrap();
    (0..3).for_each(|_| append_synced(&log, 0));
    let mut positions = Vec::new();
    let error = replay(&disk, DATABASE, 0, None, &mut |record| {
        positions.push((record.path.to_owned(), record.at));
        if record.sequence == 2 { Err(OpenError::Missing { path: record.path.to_owned() }) } else { Ok(()) }
    })
    .unwrap_err();
    let path = disk.path("log/0000000000000000.log");
    // Record 1 follows the head of 56 bytes. It has a header of 40 bytes and no payload.
    assert_eq!(positions, [(path.clone(), 56), (path.clone(), 96)]);
    assert!(matches!(error, OpenError::Missing { path: found } if found == path));
}
