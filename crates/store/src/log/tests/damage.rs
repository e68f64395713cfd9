//! Every flipped bit and every truncation leads to an error at its offset, or to the removal of a tail that was not
//! proved durable.

use super::*;
use crate::log::format::{HEAD_BYTES, Head, ParsedRecord, RECORD_BYTES};

/// Files 1 to 3: a rotated one, one with a torn tail, and one that carries records over and continues.
fn damaged_by_a_crash() -> SimulatedDisk {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 7).unwrap();
    let append = |log: &Log, durability| {
        let sequence = log.last_sequence() + 1;
        let position = log.append(&[&sequence.to_le_bytes(), &vec![0x5a; sequence as usize % 3]]).unwrap();
        log.flush(position, durability).unwrap();
    };
    (0..3).for_each(|_| append(&log, Durability::Synced));
    log.rotate().unwrap();
    (0..2).for_each(|_| append(&log, Durability::Synced));
    (0..2).for_each(|_| append(&log, Durability::Written));
    drop(log);
    let name = log_name(2);
    let (end, _) = read(&disk, 1, Some(7)).unwrap();
    assert_eq!(end.torn_tail, None);
    let mut torn = disk.files()[&name].clone();
    torn[end.bytes as usize..][..11].copy_from_slice(b"a torn tail");
    disk.put(&name, &torn);
    let (end, _) = read(&disk, 1, Some(7)).unwrap();
    assert_eq!(end.torn_tail.as_ref().map(|torn_tail| (torn_tail.at, torn_tail.bytes)), Some((end.bytes, 11)));
    let log = Log::resume(shared(&disk), DATABASE, &end).unwrap();
    (0..3).for_each(|_| append(&log, Durability::Synced));
    disk
}

struct Layout {
    bytes: Vec<u8>,
    /// Offsets of the head and the records, and the end of the valid bytes.
    starts: Vec<usize>,
    /// Number of bytes that are known to be durable.
    durable: usize,
}

fn layouts(disk: &SimulatedDisk) -> Vec<Layout> {
    let files = disk.files();
    let bytes = |number| files.get(&name_of(disk, number));
    let head = |number| Head::parse(bytes(number)?.first_chunk().unwrap()).ok();
    let layout = |number| {
        let (bytes, head_here) = (bytes(number)?.clone(), head(number)?);
        let counted = head(number + 1).map(|next| next.previous_bytes as usize);
        let (mut starts, mut durable) = (vec![0, HEAD_BYTES], counted.unwrap_or(head_here.initial_bytes as usize));
        let is_record = |start: usize| counted.map_or(bytes[start] != 0, |counted| start < counted);
        while is_record(starts[starts.len() - 1]) {
            let start = starts[starts.len() - 1];
            let record = ParsedRecord::parse(&bytes[start..], head_here.seed()).unwrap();
            durable = durable.max(record.durable as usize);
            starts.push(start + RECORD_BYTES + record.payload.len());
        }
        Some(Layout { bytes, starts, durable })
    };
    (1..).map_while(layout).collect()
}

/// Reads the log with one of its files replaced.
fn read_with(disk: &SimulatedDisk, number: u64, bytes: &[u8]) -> Result<(LogEnd, Payloads), OpenError> {
    disk.put(&name_of(disk, number), bytes);
    read(disk, 1, Some(7))
}

#[test]
fn every_flipped_bit_is_damage_or_cuts_a_tail_that_may_not_be_durable() {
    let disk = damaged_by_a_crash();
    let (_, records) = read(&disk, 1, Some(7)).unwrap();
    assert_eq!(records.iter().map(|record| record.0).collect::<Vec<_>>(), (8..=17).collect::<Vec<_>>());
    let layouts = layouts(&disk);
    assert_eq!(layouts.len(), 3);
    let (mut damages, mut cuts, mut ignored) = (0, 0, 0);
    for (number, layout) in (1..).zip(&layouts) {
        let path = disk.path(&name_of(&disk, number));
        for bit in 0..layout.bytes.len() * 8 {
            let (at, mut flipped) = (bit / 8, layout.bytes.clone());
            flipped[at] ^= 1 << (bit % 8);
            let context = format!("file {number}, byte {at}, bit {}", bit % 8);
            let result = read_with(&disk, number, &flipped);
            let index = layout.starts.partition_point(|start| *start <= at) - 1;
            let start = layout.starts[index];
            if index + 1 == layout.starts.len() {
                // After the valid bytes of a file with a successor, or among the zeros at the end of the last file.
                let (end, found) = result.unwrap();
                let torn_tail =
                    end.torn_tail.map(|torn_tail| (torn_tail.path, torn_tail.at as usize, torn_tail.bytes as usize));
                assert!(found == records, "{context}");
                assert_eq!(torn_tail, (number == 3).then(|| (path.clone(), start, at - start + 1)), "{context}");
                ignored += 1;
            } else if start < layout.durable {
                let Err(OpenError::Corrupt { path: found, at: corrupt, .. }) = result else {
                    panic!("{context}: {:?}", result.map(|read| read.0))
                };
                assert!(found == path && (start..=at).contains(&(corrupt as usize)), "{context}: {corrupt}");
                damages += 1;
            } else {
                let (end, found) = result.unwrap_or_else(|error| panic!("{context}: {error}"));
                let torn_tail = end.torn_tail.unwrap_or_else(|| panic!("{context}: no torn tail"));
                assert_eq!(
                    (torn_tail.path, torn_tail.at, end.bytes),
                    (path.clone(), start as u64, start as u64),
                    "{context}"
                );
                assert!(records.starts_with(&found), "{context}");
                cuts += 1;
            }
        }
        disk.put(&name_of(&disk, number), &layout.bytes);
    }
    // All bits of a byte have the same outcome. Only flipped bits of the last record lead to a torn tail.
    assert_eq!((cuts % 8, ignored % 8, ignored > 0), (0, 0, true));
    assert!(cuts > 0 && damages > 10 * cuts, "{damages} {cuts}");
}

#[test]
fn every_truncation_is_damage_or_a_shorter_log() {
    let disk = damaged_by_a_crash();
    let (_, records) = read(&disk, 1, None).unwrap();
    for (number, layout) in (1..).zip(&layouts(&disk)) {
        let counted = layout.starts[layout.starts.len() - 1];
        for length in 0..layout.bytes.len() {
            let context = format!("file {number} of {length} bytes");
            let result = read_with(&disk, number, &layout.bytes[..length]);
            let is_last = number == 3;
            let begun = Head::parse(layout.bytes.first_chunk().unwrap()).unwrap().initial_bytes as usize;
            match result {
                Err(OpenError::Corrupt { path, at, .. }) => {
                    assert!(length < if is_last { begun } else { counted }, "{context}");
                    assert!(path == disk.path(&name_of(&disk, number)) && at <= length as u64, "{context}: {at}");
                }
                Ok((end, found)) => {
                    assert!(length >= if is_last { begun } else { counted }, "{context}");
                    assert!(records.starts_with(&found) && (is_last || found == records), "{context}");
                    let is_torn = length < counted && !layout.starts.contains(&length);
                    assert_eq!(end.torn_tail.is_some(), is_last && is_torn, "{context}");
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
        disk.put(&name_of(&disk, number), &layout.bytes);
    }
}

/// Zeros are not the end of the log if bytes are known to have been durable there.
#[test]
fn zeroed_records_are_damage_if_known_to_be_durable() {
    let disk = damaged_by_a_crash();
    let (_, records) = read(&disk, 1, None).unwrap();
    let (mut damages, mut ends) = (0, 0);
    for (number, layout) in (1..).zip(&layouts(&disk)) {
        let begun = Head::parse(layout.bytes.first_chunk().unwrap()).unwrap().initial_bytes as usize;
        for (&start, &next) in layout.starts[1..].iter().zip(&layout.starts[2..]) {
            for (end, durable) in [(next, layout.durable), (layout.bytes.len(), begun)] {
                let mut bytes = layout.bytes.clone();
                bytes[start..end].fill(0);
                let context = format!("zeros from {start} to {end} of file {number}");
                match read_with(&disk, number, &bytes) {
                    Err(OpenError::Corrupt { path, at, .. }) => {
                        assert!(number < 3 || start < durable, "{context}");
                        assert_eq!((path, at), (disk.path(&name_of(&disk, number)), start as u64), "{context}");
                        damages += 1;
                    }
                    Ok((end, found)) => {
                        assert!(number == 3 && start >= durable, "{context}");
                        assert_eq!((end.bytes, end.torn_tail), (start as u64, None), "{context}");
                        assert!(records.starts_with(&found) && found.len() < records.len(), "{context}");
                        ends += 1;
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
            }
        }
        disk.put(&name_of(&disk, number), &layout.bytes);
    }
    assert!(damages > 10 && ends > 1, "{damages} {ends}");
}

#[test]
fn missing_files_are_named() {
    for missing in [&[1][..], &[2], &[3], &[2, 3], &[1, 2, 3]] {
        let disk = damaged_by_a_crash();
        missing.iter().for_each(|number| disk.remove(&name_of(&disk, *number)).unwrap());
        let Err(OpenError::MissingLog { path }) = read(&disk, 1, None) else { panic!("files {missing:?}") };
        assert_eq!(path, disk.path(&log_name(missing[0])));
    }
}

#[test]
fn files_of_other_logs_are_rejected() {
    let disk = damaged_by_a_crash();
    let at_of = |result: Result<(LogEnd, Payloads), OpenError>| match result.map(|read| read.0) {
        Err(OpenError::Corrupt { path, at, .. }) => (path, at),
        other => panic!("{other:?}"),
    };
    let layouts = layouts(&disk);
    assert_eq!(at_of(read(&disk, 1, Some(6))), (disk.path(&name_of(&disk, 1)), 24));
    assert_eq!(at_of(read_with(&disk, 2, &layouts[0].bytes)), (disk.path(&name_of(&disk, 2)), 16));
    disk.put(&name_of(&disk, 2), &layouts[1].bytes);
    let other = new_disk();
    let log = Log::create(shared(&other), DATABASE + 1, 1, 7).unwrap();
    append_synced(&log, 0);
    assert_eq!(at_of(read(&other, 1, None)), (disk.path(&log_name(1)), 8));
    // Records of another file are invalid under this file's head.
    let grafted = [&layouts[2].bytes[..HEAD_BYTES], &layouts[1].bytes[HEAD_BYTES..]].concat();
    assert_eq!(at_of(read_with(&disk, 3, &grafted)), (disk.path(&name_of(&disk, 3)), HEAD_BYTES as u64));
}
