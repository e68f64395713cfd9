//! Tests that the successor of a closed file exists. Also that a log is readable after a crash between any two steps of
//! a switch to the next file.

use super::*;
use crate::disk::Fault;

/// The numbers of the files, each with whether it is closed.
fn files(disk: &SimulatedDisk) -> Vec<(u64, bool)> {
    let files = disk.files();
    (0..20)
        .filter_map(|number| {
            let (open, closed) = (files.contains_key(&log_name(number)), files.contains_key(&closed_log_name(number)));
            assert!(!(open && closed), "file {number} has two names");
            (open || closed).then_some((number, closed))
        })
        .collect()
}

#[test]
fn every_file_but_the_last_is_closed() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    assert_eq!(files(&disk), [(1, false)]);
    append_synced(&log, 0);
    log.rotate().unwrap();
    assert_eq!(files(&disk), [(1, true), (2, false)]);
    append_synced(&log, 0);
    disk.set_fault(Some(Fault::FailEvery { change: "sync log/0000000000000002.log.new", has_effect: false }));
    let position = append(&log, 0).unwrap();
    log.flush(position, Durability::Synced).unwrap_err();
    log.restart(2).unwrap();
    assert_eq!(files(&disk), [(1, true), (2, true), (3, false)]);
    let (end, _) = read(&disk, 1, Some(0)).unwrap();
    Log::resume(shared(&disk), DATABASE, &end).unwrap();
    assert_eq!(files(&disk), [(1, true), (2, true), (3, true), (4, false)]);
}

/// Earlier versions of Taut never closed files, and a crash may precede the closing.
#[test]
fn files_that_are_not_closed_are_read_and_closed_when_the_next_is_begun() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    for _ in 0..3 {
        append_synced(&log, 0);
        log.rotate().unwrap();
    }
    drop(log);
    for number in 1..=3 {
        disk.rename(&closed_log_name(number), &log_name(number)).unwrap();
    }
    let (end, records) = read(&disk, 1, Some(0)).unwrap();
    assert_eq!((end.number, records), (4, payloads(1..=3, 0)));
    Log::resume(shared(&disk), DATABASE, &end).unwrap();
    assert_eq!(files(&disk), [(1, true), (2, true), (3, true), (4, true), (5, false)]);
    assert_eq!(read(&disk, 1, Some(0)).unwrap().1, payloads(1..=3, 0));
}

/// A crash at each change of a rotation, a resumption or a restart leaves a readable log. If a file with an
/// acknowledged record is then deleted, the replay returns an error.
#[test]
fn a_crash_while_switching_files_loses_no_acknowledged_record_undetected() {
    let (mut points, mut deletions) = (0, 0);
    for operation in ["rotate", "resume", "restart"] {
        for at in 0.. {
            let disk = new_disk();
            let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
            append_synced(&log, 0);
            let acknowledged = switch_file(&disk, log, operation, at);
            if !disk.is_crashed() {
                assert!(at > 4, "{operation}: only {at} changes");
                break;
            }
            points += 1;
            let context = format!("{operation}, crash at change {at} ({:?})", disk.changes().last());
            for seed in 0..40 {
                let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_loss(seed) };
                let (end, records) = read(&disk, 1, Some(0)).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(end.last_sequence >= acknowledged, "{context}: {} of {acknowledged}", end.last_sequence);
                assert_eq!(records, payloads(1..=end.last_sequence, 0), "{context}");
                for (number, _) in files(&disk) {
                    let without = disk.after_kill();
                    without.remove(&name_of(&disk, number)).unwrap();
                    match read(&without, 1, Some(0)) {
                        Err(OpenError::MissingLog { .. }) => deletions += 1,
                        Err(error) => panic!("{context}, file {number} removed: {error}"),
                        Ok((end, _)) => assert!(end.last_sequence >= acknowledged, "{context}, file {number} removed"),
                    }
                }
            }
        }
    }
    assert!(points > 15 && deletions > points, "{points} crash points, {deletions} deletions");
}

/// Switches to the next file, and stops the machine at change `at`. Returns the number of records acknowledged as
/// durable.
fn switch_file(disk: &SimulatedDisk, log: Log, operation: &str, at: u64) -> u64 {
    let log = match operation {
        "resume" => {
            // This record is written but not known to be durable, so the next file carries it over.
            let position = append(&log, 0).unwrap();
            log.flush(position, Durability::Written).unwrap();
            drop(log);
            let (end, _) = read(disk, 1, Some(0)).unwrap();
            disk.set_fault(Some(Fault::CrashAt(at)));
            let Ok(log) = Log::resume(shared(disk), DATABASE, &end) else { return 1 };
            log
        }
        "restart" => {
            disk.set_fault(Some(Fault::FailAt(0)));
            let position = append(&log, 0).unwrap();
            log.flush(position, Durability::Synced).unwrap_err();
            disk.set_fault(Some(Fault::CrashAt(at)));
            if log.restart(1).is_err() {
                return 1;
            }
            log
        }
        _ => {
            disk.set_fault(Some(Fault::CrashAt(at)));
            if log.rotate().is_err() {
                return 1;
            }
            log
        }
    };
    let mut acknowledged = log.durable_sequence();
    for _ in 0..2 {
        let Ok(position) = append(&log, 0) else { break };
        if log.flush(position, Durability::Synced).is_err() {
            break;
        }
        acknowledged = position.sequence();
    }
    acknowledged
}

/// A process may read while another one begins the next file.
#[test]
fn a_file_may_be_closed_while_it_is_read() {
    let disk = new_disk();
    let log = Log::create(shared(&disk), DATABASE, 1, 0).unwrap();
    append_synced(&log, 0);
    log.rotate().unwrap();
    append_synced(&log, 0);
    let mut records = Payloads::new();
    let end = replay(&disk, DATABASE, 1, Some(0), &mut |record| {
        if record.sequence == 1 {
            log.rotate().unwrap();
        }
        records.push((record.sequence, record.payload.to_vec()));
        Ok::<_, OpenError>(())
    });
    assert_eq!((end.unwrap().number, records), (2, payloads(1..=2, 0)));
    assert_eq!(files(&disk), [(1, true), (2, true), (3, false)]);
}
