//! Failures of the disk. After a failed write or sync, all later calls fail until the log is restarted. Records
//! acknowledged before are kept, and a new process can resume the log.

use super::*;
use crate::disk::Fault;

/// Appends, flushes and rotates until an operation fails. Returns the log if it was created, the number of acknowledged
/// records, and whether a rotation failed.
fn run(disk: &SimulatedDisk) -> (Option<Log>, u64, bool) {
    let Ok(log) = Log::create(shared(disk), DATABASE, 1, 0) else { return (None, 0, false) };
    let mut synced = 0;
    for step in 0..20 {
        let Ok(position) = append(&log, 0) else { break };
        let durability = if step % 4 == 1 { Durability::Written } else { Durability::Synced };
        if log.flush(position, durability).is_err() {
            break;
        }
        synced = log.durable_sequence();
        if step % 7 == 6 && log.rotate().is_err() {
            return (Some(log), synced, true);
        }
    }
    (Some(log), synced, false)
}

/// Runs a log on a disk with a fault, and resumes it without the fault. Returns whether the fault prevented one of the
/// 20 records from becoming durable.
fn check(fault: Fault) -> bool {
    let disk = new_disk();
    disk.set_fault(Some(fault));
    let context = format!("{fault:?}");
    let (log, synced, is_rotation) = run(&disk);
    disk.set_fault(None);
    let Some(log) = log else {
        Log::create(shared(&disk), DATABASE, 1, 0).unwrap_or_else(|error| panic!("{context}: {error}"));
        return true;
    };
    let has_failed = log.durable_sequence() < 20;
    let appended = log.last_sequence();
    if has_failed && !is_rotation {
        let first = append(&log, 0).unwrap_err().to_string();
        let is_named = ["write", "extend", "sync", "rename"]
            .map(|operation| first.contains(&format!("cannot {operation} /simulated/log/")));
        assert!(is_named.contains(&true), "{context}: {first}");
        assert_eq!(log.rotate().unwrap_err().to_string(), first, "{context}");
        assert_eq!(log.close().unwrap_err().to_string(), first, "{context}");
    }
    let (end, records) = read(&disk, 1, Some(0)).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!((synced..=appended).contains(&end.last_sequence), "{context}: {}", end.last_sequence);
    assert!(records == payloads(1..=end.last_sequence, 0), "{context}");
    drop(log);
    let log = Log::resume(shared(&disk), DATABASE, &end).unwrap_or_else(|error| panic!("{context}: {error}"));
    (0..3).for_each(|_| append_synced(&log, 0));
    let (end, records) = read(&disk.after_power_loss(1), 1, Some(0)).unwrap();
    assert!(records == payloads(1..=log.last_sequence(), 0) && end.torn_tail.is_none(), "{context}");
    has_failed
}

#[test]
fn a_failure_at_any_change_is_permanent() {
    for fault in [Fault::FailAt, Fault::FailAfter, Fault::FailFrom] {
        let changes = (0..).take_while(|at| check(fault(*at))).count();
        assert!(changes > 40, "only {changes} changes failed");
    }
}

#[test]
fn a_full_disk_is_a_failure() {
    let failures = (0..20_000).step_by(97).filter(|bytes| check(Fault::Capacity(*bytes))).count();
    assert!(failures > 50, "only {failures} disks were full");
}

#[test]
fn a_failed_read_is_an_error_and_not_the_end_of_the_log() {
    let disk = new_disk();
    run(&disk);
    let reads = (0..).take_while(|at| {
        disk.set_fault(Some(Fault::FailReadAt(*at)));
        let result = read(&disk, 1, Some(0));
        assert!(result.as_ref().is_ok_and(|read| read.1.len() == 20) || matches!(result, Err(OpenError::File(_))));
        result.is_err()
    });
    assert!(reads.count() > 10);
}

#[test]
fn the_log_stays_in_its_file_if_the_next_one_cannot_be_created() {
    let new = "log/0000000000000002.log.new";
    for failing in ["create", "write", "sync"] {
        let disk = new_disk();
        let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
        append(&log, 0).unwrap();
        disk.set_fault(Some(Fault::FailEvery { change: format!("{failing} {new}").leak(), has_effect: true }));
        let error = log.rotate().unwrap_err().to_string();
        assert!(error.contains(&format!("cannot {failing} /simulated/{new}")), "{error}");
        assert_eq!((log.number(), log.durable_sequence()), (1, 1));
        append_synced(&log, 0);
        disk.set_fault(None);
        assert_eq!(log.rotate().unwrap(), 2);
        append_synced(&log, 0);
        assert_eq!(read(&disk.after_power_loss(0), 1, Some(0)).unwrap().1, payloads(1..=3, 0));
    }
}

#[test]
fn a_log_whose_file_cannot_be_extended_can_continue_in_another() {
    for has_effect in [false, true] {
        let disk = new_disk();
        let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
        (0..2).for_each(|_| append_synced(&log, 0));
        // The simulated disk lists changes of a file under the name with which the file was created.
        disk.set_fault(Some(Fault::FailEvery { change: "extend log/0000000000000001.log.new", has_effect }));
        // These records fit without an extension.
        (0..2).for_each(|_| append_synced(&log, 0));
        let position = append(&log, 0).unwrap();
        append(&log, 0).unwrap();
        let error = log.flush(position, Durability::Written).unwrap_err().to_string();
        assert!(error.contains("cannot extend /simulated/log/0000000000000001.log"), "{error}");
        // Records 5 and 6, which end at byte 5,976, do not fit into the 1,000 bytes to which the file was extended.
        assert_eq!((log.durable_sequence(), length(&disk, 1)), (4, if has_effect { 6_000 } else { 1_000 }));
        // Readers may have seen record 5, which is only in memory. The restart keeps it, and discards record 6.
        log.restart(5).unwrap();
        assert_eq!((log.number(), log.last_sequence(), log.durable_sequence()), (2, 5, 5));
        append_synced(&log, 0);
        assert!(length(&disk, 2) > log.bytes());
        let (end, records) = read(&disk.after_power_loss(0), 1, Some(0)).unwrap();
        assert_eq!((records, end.torn_tail), (payloads(1..=6, 0), None));
    }
}

#[test]
fn records_flushed_before_a_failure_stay_acknowledged() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    let first = append(&log, 0).unwrap();
    log.flush(first, Durability::Synced).unwrap();
    let second = append(&log, 0).unwrap();
    log.flush(second, Durability::Written).unwrap();
    disk.set_fault(Some(Fault::FailAt(0)));
    log.flush(second, Durability::Synced).unwrap_err();
    log.flush(first, Durability::Synced).unwrap();
    log.flush(second, Durability::Written).unwrap();
    log.flush(second, Durability::Synced).unwrap_err();
}
