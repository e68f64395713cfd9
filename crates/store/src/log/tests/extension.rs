//! A file is extended ahead of its writes. Its bytes after the written part are zeros.

use super::*;
use crate::log::format::HEAD_BYTES;

#[test]
fn a_file_is_extended_by_steps_before_it_is_written() {
    const STEP: u64 = 1_000;
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    assert_eq!(length(&disk, 1), HEAD_BYTES as u64);
    let (mut lengths, mut expected) = (vec![HEAD_BYTES as u64], Vec::new());
    // Clears the list of changes.
    disk.set_fault(None);
    for sequence in 1..=60 {
        let durability = if sequence % 3 == 0 { Durability::Written } else { Durability::Synced };
        let position = append(&log, 0).unwrap();
        log.flush(position, durability).unwrap();
        let length = length(&disk, 1);
        assert!(length.is_multiple_of(STEP) && (log.bytes()..log.bytes() + STEP).contains(&length), "{length}");
        if length > lengths[lengths.len() - 1] {
            lengths.push(length);
            expected.push("extend");
        }
        expected.push("write");
        expected.extend((durability == Durability::Synced).then_some("sync"));
    }
    let changes = disk.changes();
    let operations: Vec<&str> = changes.iter().map(|change| change.split(' ').next().unwrap()).collect();
    assert_eq!(operations, expected);
    assert!((10..60).contains(&lengths.len()), "{lengths:?}");
    // The head of the next file counts only written bytes, and that file begins without zeros.
    let bytes = log.bytes();
    log.rotate().unwrap();
    assert!(length(&disk, 1) > bytes && length(&disk, 2) == HEAD_BYTES as u64);
    let (end, records) = read(&disk, 1, Some(0)).unwrap();
    assert_eq!((end.number, end.bytes, records), (2, HEAD_BYTES as u64, payloads(1..=60, 0)));
}

#[test]
fn a_log_on_a_disk_without_an_extension_step_has_no_zeros() {
    let disk = new_disk().with_extension_step(0);
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    (0..10).for_each(|_| append_synced(&log, 0));
    assert_eq!(length(&disk, 1), log.bytes());
    assert!(!disk.changes().iter().any(|change| change.starts_with("extend")));
}

#[test]
fn zeros_at_the_end_are_not_a_torn_tail() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    (0..4).for_each(|_| append_synced(&log, 0));
    let written = disk.files()[&log_name(1)][..log.bytes() as usize].to_vec();
    for zeros in [0, 1, 39, 40, 41, 511, 512, 4_096, 3 << 20] {
        let mut bytes = [&written[..], &vec![0; zeros]].concat();
        disk.put(&log_name(1), &bytes);
        let (end, records) = read(&disk, 1, Some(0)).unwrap();
        assert_eq!((end.bytes, end.torn_tail), (log.bytes(), None), "{zeros} zeros");
        assert_eq!((end.durable_bytes < end.bytes, records), (true, payloads(1..=4, 0)), "{zeros} zeros");
        bytes.push(1);
        for behind in [0, 1, 700] {
            disk.put(&log_name(1), &[&bytes[..], &vec![0; behind]].concat());
            let (end, records) = read(&disk, 1, Some(0)).unwrap();
            let torn_tail = end.torn_tail.map(|torn_tail| (torn_tail.at, torn_tail.bytes));
            assert_eq!(torn_tail, Some((log.bytes(), zeros as u64 + 1)), "{zeros} zeros before, {behind} behind");
            assert_eq!((end.bytes, records), (log.bytes(), payloads(1..=4, 0)));
        }
    }
}

/// Power loss may lose the first sectors of a group and keep later ones.
#[test]
fn records_after_zeros_are_a_tail_unless_they_state_that_the_zeros_were_durable() {
    for is_synced_between in [false, true] {
        let disk = new_disk();
        let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
        (0..2).for_each(|_| append_synced(&log, 0));
        let start = log.bytes() as usize;
        let first = append(&log, 0).unwrap();
        let end = log.bytes() as usize;
        if is_synced_between {
            log.flush(first, Durability::Synced).unwrap();
        }
        append_synced(&log, 0);
        let mut bytes = disk.files()[&log_name(1)].clone();
        bytes[start..end].fill(0);
        disk.put(&log_name(1), &bytes);
        let result = read(&disk, 1, Some(0));
        if is_synced_between {
            let Err(OpenError::Corrupt { at, .. }) = result else { panic!("{result:?}") };
            assert_eq!(at, start as u64);
        } else {
            let (end, records) = result.unwrap();
            assert_eq!(records, payloads(1..=2, 0));
            assert_eq!(
                end.torn_tail.map(|torn_tail| (torn_tail.at, torn_tail.bytes)),
                Some((start as u64, log.bytes() - start as u64))
            );
        }
    }
}
