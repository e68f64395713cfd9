//! Replay of bytes that no log wrote. It never panics, and returns no record that was not appended.

use taut_testkit::Random;

use super::*;
use crate::log::format::{HEAD_BYTES, Head, RECORD_MAGIC, frame, seal};

const HEAD: Head =
    Head { database: DATABASE, number: 1, last_sequence: 0, previous_bytes: 0, initial_bytes: HEAD_BYTES as u64 };

fn read_file(head: Head, behind: &[u8]) -> Result<(LogEnd, Payloads), OpenError> {
    let disk = new_disk();
    disk.put(&log_name(1), &[&head.to_bytes(), behind].concat());
    disk.create_directory("log").unwrap();
    read(&disk, 1, None)
}

#[test]
fn random_bytes_after_a_head_are_a_torn_tail_without_the_zeros_at_its_end() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        for _ in 0..random.number() % 60 {
            match random.number() % 5 {
                0 => bytes.extend_from_slice(&RECORD_MAGIC),
                1 => bytes.extend_from_slice(&[0; 4]),
                2 => bytes.extend_from_slice(&(random.number() % 200).to_le_bytes()),
                3 => bytes.extend_from_slice(&u64::MAX.to_le_bytes()),
                _ => bytes.extend_from_slice(&random.number().to_le_bytes()),
            }
        }
        let (end, records) = read_file(HEAD, &bytes).unwrap();
        assert!(records.is_empty() && end.bytes == HEAD_BYTES as u64, "seed {seed}");
        let tail = bytes.iter().rposition(|byte| *byte != 0).map(|last| last as u64 + 1);
        assert_eq!(end.torn_tail.map(|torn_tail| torn_tail.bytes), tail, "seed {seed}");
    }
}

#[test]
fn heads_with_any_numbers_never_panic() {
    let extremes = [0, 1, 55, 56, 96, 97, 500, u64::MAX];
    let mut record = Vec::new();
    frame(&mut record, 0, &[b"payload"]);
    for last_sequence in extremes {
        for previous_bytes in extremes {
            for initial_bytes in extremes {
                let head = Head { last_sequence, previous_bytes, initial_bytes, ..HEAD };
                seal(&mut record, 0, head.seed());
                let result = read_file(head, &record);
                // The record has sequence number 0, which follows only `u64::MAX`. The file must be at least as long as
                // the head states.
                let fits = last_sequence == u64::MAX && (56..=56 + record.len() as u64).contains(&initial_bytes);
                assert_eq!(result.is_ok(), fits, "{head:?}");
                let disk = new_disk();
                let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
                append_synced(&log, 0);
                disk.put(&log_name(2), &Head { number: 2, ..head }.to_bytes());
                // File 2 may count no record of file 1 as valid, or its only record.
                let counts = [(0, HEAD_BYTES as u64), (1, log.bytes())].contains(&(last_sequence, previous_bytes));
                let fits = counts && initial_bytes == HEAD_BYTES as u64;
                assert_eq!(read(&disk, 1, None).is_ok(), fits, "{head:?}");
            }
        }
    }
}

/// A valid record in the wrong position is not a torn write. It must be an error, because no later check would detect
/// it.
#[test]
fn records_that_contradict_their_position_are_damage() {
    for (sequence, durable) in [(2, 0), (0, 0), (u64::MAX, 0), (1, HEAD_BYTES as u64 + 1), (1, u64::MAX)] {
        let mut record = Vec::new();
        frame(&mut record, sequence, &[b"payload"]);
        seal(&mut record, durable, HEAD.seed());
        let Err(OpenError::Corrupt { at, .. }) = read_file(HEAD, &record) else { panic!("{sequence} {durable}") };
        assert_eq!(at, HEAD_BYTES as u64);
    }
}

/// A payload may hold the bytes of records: copies from this file, or a record that claims durability under another
/// head.
#[test]
fn records_inside_a_torn_payload_prove_nothing_durable() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    (0..4).for_each(|_| append_synced(&log, 0));
    let name = log_name(1);
    let copy = disk.files()[&name][..log.bytes() as usize].to_vec();
    let claim = |seed| {
        let mut claim = Vec::new();
        frame(&mut claim, 6, &[b"claim"]);
        seal(&mut claim, copy.len() as u64 + 1, seed);
        claim
    };
    let own_seed = Head::parse(copy.first_chunk().unwrap()).unwrap().seed();
    let position = log.append(&[&copy, &claim(Head { number: 2, ..HEAD }.seed())]).unwrap();
    log.flush(position, Durability::Written).unwrap();
    let mut bytes = disk.files()[&name].clone();
    bytes[copy.len() + 16] ^= 1;
    disk.put(&name, &bytes);
    let (end, records) = read(&disk, 1, None).unwrap();
    assert_eq!((records, end.torn_tail.unwrap().at), (payloads(1..=4, 0), copy.len() as u64));
    // The same bytes under the file's own seed prove that bytes were durable.
    disk.put(&name, &[&bytes[..], &claim(own_seed)].concat());
    assert!(matches!(read(&disk, 1, None), Err(OpenError::Corrupt { at, .. }) if at == copy.len() as u64));
}
