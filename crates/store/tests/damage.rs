//! Every byte of every file is damaged, and every file is truncated at every length. Opening or verification reports
//! the damage, and no wrong row is ever returned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Contents, append, change_rows, contents, create_table, open, view, write};
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{CommitError, OpenError, OpenOptions, Problem, ReadCounters, ReadError, Store, verify};

/// A disk with a database, and the contents of the database after each commit.
struct Sample {
    disk: SimulatedDisk,
    /// Contents by version.
    states: Vec<Contents>,
}

impl Sample {
    fn last(&self) -> &Contents {
        self.states.last().unwrap()
    }
}

/// Makes the commits of a small database. Returns its contents after each.
fn commit_all(store: &Store) -> Vec<Contents> {
    let mut states = Vec::new();
    let mut done = || states.push(contents(store).unwrap());
    create_table(store, "t").unwrap();
    done();
    append(store, "t", vec![write(store, &[1, 5, 900], "column").unwrap()]).unwrap();
    done();
    append(store, "t", vec![write(store, &[-3], "packed_row").unwrap()]).unwrap();
    done();
    store.commit::<_, CommitError>(|edit| edit.create_view(view("v", "select 1"), false)).unwrap();
    done();
    change_rows(store, "t", &[7, 8, 9], &[5]).unwrap();
    done();
    change_rows(store, "t", &[10], &[-3, 8]).unwrap();
    done();
    states
}

/// A closed database: two blocks, a catalog, a delta, and a log without records.
fn closed() -> Sample {
    let disk = SimulatedDisk::new();
    let mut states = vec![Contents::new()];
    states.extend(commit_all(&open(&disk).unwrap()));
    let log = files(&disk).into_iter().rfind(|(name, _)| name.ends_with(".log")).unwrap();
    assert_eq!(log.1.len(), LOG_HEAD);
    Sample { disk, states }
}

/// A database whose process was killed twice. All commits are in two log files.
fn killed() -> Sample {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let mut states = vec![Contents::new()];
    states.extend(commit_all(&store));
    let disk = disk.after_kill();
    let store = open(&disk).unwrap();
    for value in [20, 21] {
        change_rows(&store, "t", &[value], &[]).unwrap();
        states.push(contents(&store).unwrap());
    }
    Sample { disk: disk.after_kill(), states }
}

/// Opens a disk with a damaged file and reads everything. The damage must be detected.
///
/// Damage of the last log file may look like the end that a crash leaves. It is then reported as a torn tail, and the
/// state is an earlier one. A flipped bit loses at most the last commit, because later records show that the earlier
/// ones exist. A truncated file keeps the commits that it contains. Truncation after a complete record is not reported.
fn assert_detected(disk: &SimulatedDisk, name: &str, sample: &Sample, context: &str) {
    // Opening renames the last log file, so the damaged files are read before.
    let damaged = disk.files();
    let store = match open(disk) {
        Ok(store) => store,
        Err(error) => {
            assert!(error.to_string().contains(name), "{context}: the error names another file: {error}");
            return;
        }
    };
    let version = store.snapshot().version() as usize;
    let last = sample.states.len() - 1;
    let found = contents(&store);
    if let Ok(found) = &found {
        assert_eq!(*found, sample.states[version], "{context}: wrong rows");
    }
    if is_last_log(&sample.disk, name) && (version < last || store.recovery().torn_tail.is_some()) {
        let (whole, found_bytes) = (&sample.disk.files()[name], &damaged[name]);
        let is_shorter = found_bytes.len() < whole.len();
        assert!(is_shorter || version + 1 >= last, "{context}: version {version} of {last}");
        let ends_whole = is_shorter && whole[found_bytes.len()..].starts_with(RECORD_MAGIC);
        let path = disk.path(name);
        let is_reported = store.recovery().torn_tail.as_ref().is_some_and(|end| end.path == path && end.bytes > 0);
        assert!(is_reported != ends_whole, "{context}: torn tail reported: {is_reported}, whole records: {ends_whole}");
        assert!(found.is_ok(), "{context}");
        return;
    }
    assert_eq!(version, last, "{context}");
    // Verification must detect the damage even if all data is cached.
    let damages: Vec<String> = verify(&store).iter().map(ToString::to_string).collect();
    assert!(!damages.is_empty(), "{context}: not reported");
    let is_named = damages.iter().any(|damage| damage.contains(name));
    assert!(is_named, "{context}: {damages:?}");
}

/// Whether a file is the last log file, to which commits append.
fn is_last_log(disk: &SimulatedDisk, name: &str) -> bool {
    name.ends_with(".log") && disk.files().keys().rfind(|name| name.ends_with(".log")).is_some_and(|last| last == name)
}

/// Sizes of the header of a log file and of a record, in bytes.
const LOG_HEAD: usize = 56;
const RECORD_HEAD: usize = 40;
/// Magic number at the start of a log record.
const RECORD_MAGIC: &[u8] = b"\xd7rec";
/// Byte range, in the header of a log file, of the number of valid bytes in the previous file.
const PREVIOUS_BYTES: std::ops::Range<usize> = 32..40;

/// All files except the empty lock file, with their content.
fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    disk.files().into_iter().filter(|(name, _)| name != "lock").collect()
}

fn blocks(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    files(disk).into_iter().filter(|(name, _)| name.starts_with("blocks/")).collect()
}

/// End offset of the records of a log file.
fn end_of_records(bytes: &[u8]) -> usize {
    let mut end = LOG_HEAD;
    while bytes[end..].starts_with(RECORD_MAGIC) {
        end += RECORD_HEAD + u64::from_le_bytes(bytes[end + 8..end + 16].try_into().unwrap()) as usize;
    }
    end
}

/// Each file with its content, and the number of bytes from its start whose damage must be detected. The bytes after
/// them have no effect: records that the next log file has carried over, and zeros at the end of the last log file.
fn counted(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>, usize)> {
    let files = files(disk);
    let mut after: Option<usize> = None;
    let mut counted = Vec::new();
    for (name, bytes) in files.into_iter().rev() {
        let mut count = bytes.len();
        if name.ends_with(".log") {
            count = after.unwrap_or_else(|| end_of_records(&bytes));
            after = Some(u64::from_le_bytes(bytes[PREVIOUS_BYTES].try_into().unwrap()) as usize);
        }
        counted.push((name, bytes, count));
    }
    counted
}

#[test]
fn a_flipped_bit_in_any_byte_is_detected() {
    for sample in [closed(), killed()] {
        for (name, bytes, count) in counted(&sample.disk) {
            for at in 0..bytes.len() {
                let damaged = sample.disk.after_kill();
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << (at % 8);
                damaged.put(&name, &bytes);
                let context = format!("{name}, byte {at} of {}", bytes.len());
                if at < count {
                    assert_detected(&damaged, &name, &sample, &context);
                    continue;
                }
                let store = open(&damaged).unwrap();
                assert_eq!(contents(&store).unwrap(), *sample.last(), "{context}");
                let torn_tail =
                    store.recovery().torn_tail.clone().map(|end| (end.path, end.at as usize, end.bytes as usize));
                let is_last = is_last_log(&sample.disk, &name);
                assert_eq!(torn_tail, is_last.then(|| (damaged.path(&name), count, at - count + 1)), "{context}");
            }
        }
    }
}

#[test]
fn a_truncated_or_extended_file_is_detected() {
    for sample in [closed(), killed()] {
        for (name, bytes, count) in counted(&sample.disk) {
            for length in 0..count {
                let damaged = sample.disk.after_kill();
                damaged.put(&name, &bytes[..length]);
                assert_detected(&damaged, &name, &sample, &format!("{name}, cut at {length} of {}", bytes.len()));
            }
            let is_last = is_last_log(&sample.disk, &name);
            if count < bytes.len() && !is_last {
                // An appended byte has no effect either.
                continue;
            }
            for more in [0, 1] {
                let damaged = sample.disk.after_kill();
                damaged.put(&name, &[&bytes[..], &[more]].concat());
                if !is_last || more > 0 {
                    assert_detected(&damaged, &name, &sample, &format!("{name}, one byte longer"));
                }
            }
            // Any number of zeros at the end of the log has no effect.
            for length in (count..=bytes.len() + 1).filter(|_| is_last) {
                let damaged = sample.disk.after_kill();
                let bytes: Vec<u8> = bytes.iter().copied().chain([0]).take(length).collect();
                damaged.put(&name, &bytes);
                let store = open(&damaged).unwrap();
                assert_eq!(contents(&store).unwrap(), *sample.last(), "{name} of {length} bytes");
                assert_eq!(store.recovery().torn_tail, None, "{name} of {length} bytes");
                assert!(verify(&store).is_empty(), "{name} of {length} bytes");
            }
        }
    }
}

/// Databases with different numbers of log files. All but the first come from a killed process.
fn samples_in_every_end_state() -> Vec<(&'static str, Sample)> {
    // Without blocks and without a catalog, only the log shows that there was a database.
    let rows_only = SimulatedDisk::new();
    let store = open(&rows_only).unwrap();
    create_table(&store, "t").unwrap();
    change_rows(&store, "t", &[1, 2], &[]).unwrap();
    let states = vec![contents(&store).unwrap()];
    let rows_only = Sample { disk: rows_only.after_kill(), states };

    let mut samples = vec![("closed", closed()), ("killed twice", killed()), ("only rows in the first log", rows_only)];
    let mut add = |name, run: &dyn Fn(&SimulatedDisk, Store) -> SimulatedDisk| {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        commit_all(&store);
        let disk = run(&disk, store);
        let states = vec![contents(&open(&disk.after_kill()).unwrap()).unwrap()];
        samples.push((name, Sample { disk, states }));
    };
    let change = |store: &Store, value| change_rows(store, "t", &[value], &[]).unwrap();
    add("commits in the first log", &|disk, _store| disk.after_kill());
    add("checkpoint", &|disk, store| {
        store.checkpoint().unwrap();
        disk.after_kill()
    });
    add("commits after a checkpoint", &|disk, store| {
        store.checkpoint().unwrap();
        change(&store, 30);
        disk.after_kill()
    });
    add("opened again, nothing written", &|disk, store| {
        drop(store);
        drop(open(disk).unwrap());
        disk.after_kill()
    });
    add("opened again, and a commit", &|disk, store| {
        drop(store);
        let store = open(disk).unwrap();
        change(&store, 30);
        disk.after_kill()
    });
    add("killed and opened four times", &|disk, store| {
        drop(store);
        let mut disk = disk.clone();
        for value in 30..34 {
            let store = open(&disk).unwrap();
            change(&store, value);
            disk = disk.after_kill();
        }
        assert_eq!(logs(&disk).len(), 5);
        disk
    });
    add("a log that failed", &|disk, store| {
        disk.set_fault(Some(Fault::FailAt(0)));
        change_rows(&store, "t", &[30], &[]).unwrap_err();
        disk.set_fault(None);
        change(&store, 31);
        assert_eq!(logs(disk).len(), 2);
        disk.after_kill()
    });
    samples
}

fn logs(disk: &SimulatedDisk) -> Vec<String> {
    disk.files().into_keys().filter(|name| name.ends_with(".log")).collect()
}

#[test]
fn a_missing_file_is_detected() {
    for (end_state, sample) in samples_in_every_end_state() {
        for (name, _) in files(&sample.disk) {
            let damaged = sample.disk.after_kill();
            damaged.remove(&name).unwrap();
            if name.starts_with("blocks/") {
                // All other data stays usable: see the tests below.
                let store = open(&damaged).unwrap_or_else(|error| panic!("{end_state}, without {name}: {error}"));
                let error = contents(&store).expect_err(&format!("{end_state}, without {name}"));
                assert!(error.to_string().contains(&name), "{end_state}, without {name}: {error}");
                continue;
            }
            let error = open(&damaged).expect_err(&format!("{end_state}, without {name}"));
            if name.ends_with(".log") {
                assert!(matches!(error, OpenError::MissingLog { .. }), "{end_state}, without {name}: {error}");
            }
            let is_named = error.to_string().contains(&name.replace(".closed", "")) || name == "catalog";
            assert!(is_named, "{end_state}, without {name}: {error}");
        }
        // Removes any number of log files from the end.
        let logs = logs(&sample.disk);
        for first in 0..logs.len() {
            let damaged = sample.disk.after_kill();
            logs[first..].iter().for_each(|name| damaged.remove(name).unwrap());
            let error = open(&damaged).expect_err(&format!("{end_state}, without {:?}", &logs[first..]));
            let path = damaged.path(&logs[first].replace(".closed", ""));
            assert!(matches!(&error, OpenError::MissingLog { path: found } if *found == path), "{end_state}: {error}");
        }
    }
}

#[test]
fn the_error_of_a_missing_log_file_suggests_a_remedy() {
    let disk = killed().disk;
    disk.remove(&logs(&disk)[1]).unwrap();
    for inspect in [false, true] {
        let options = OpenOptions { inspect, ..OpenOptions::default() };
        let error = Store::open_on(Arc::new(disk.clone()), options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "log file /simulated/log/0000000000000002.log is missing, and with it committed transactions; restore it \
             from a backup, or salvage the rest with \"taut repair DATABASE NEW_DATABASE\""
        );
    }
}

#[test]
fn a_block_file_replaced_by_a_similar_one_is_detected() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap(), write(&store, &[3, 4], "row").unwrap()]).unwrap();
    let expected = contents(&store).unwrap();
    drop(store);
    let sample = Sample { disk: disk.after_kill(), states: vec![Contents::new(), Contents::new(), expected] };
    let [(first, content), (_, second)] = &blocks(&disk)[..] else { panic!("two blocks") };
    assert_eq!(content.len(), second.len());
    disk.put(first, second);
    assert_detected(&disk, first, &sample, "exchanged");
}

/// Cached data does not hide damage of the files.
#[test]
fn damage_while_a_store_is_open_is_detected() {
    for sample in [closed(), killed()] {
        let (disk, expected) = (&sample.disk, sample.last());
        let store = open(disk).unwrap();
        // After this commit, each log file has a record that the previous one does not have.
        store.commit::<_, CommitError>(|edit| edit.create_view(view("w", "select 2"), false)).unwrap();
        assert_eq!(contents(&store).unwrap(), *expected);
        assert!(verify(&store).is_empty());
        for (name, bytes, count) in counted(disk) {
            let mut damaged = bytes.clone();
            damaged[count / 2] ^= 1;
            disk.put(&name, &damaged);
            let damages: Vec<String> = verify(&store).iter().map(ToString::to_string).collect();
            assert!(matches!(&damages[..], [damage] if damage.contains(&name)), "{name} damaged: {damages:?}");
            assert_eq!(contents(&store).unwrap(), *expected);
            disk.remove(&name).unwrap();
            assert_eq!(verify(&store).len(), 1, "{name} removed");
            disk.put(&name, &bytes);
            assert!(verify(&store).is_empty());
        }
        // An intact catalog of another database.
        disk.put("catalog", &closed().disk.files().remove("catalog").unwrap());
        let damages = verify(&store);
        assert!(matches!(&damages[..], [damage] if matches!(damage.problem, Problem::OtherDatabase)), "{damages:?}");
    }
}

#[test]
fn reports_name_file_table_and_position() {
    let disk = closed().disk;
    let (name, mut bytes) = blocks(&disk).remove(0);
    let last = bytes.len() - 64;
    bytes[last] ^= 1;
    disk.put(&name, &bytes);
    disk.put("blocks/notes.txt", b"hello");
    disk.put("README", b"hello");
    let store = open(&disk).unwrap();
    let damages = verify(&store);
    let texts: Vec<String> = damages.iter().map(ToString::to_string).collect();
    let [readme, notes, block] = &texts[..] else { panic!("{texts:?}") };
    assert_eq!(readme, "/simulated/README is not a file of Taut");
    assert_eq!(notes, "/simulated/blocks/notes.txt is not a file of Taut");
    let position = block.strip_prefix(&format!("/simulated/{name}, from byte ")).unwrap_or_else(|| panic!("{block}"));
    let (byte, rest) = position.split_once(' ').unwrap();
    let section = byte.parse::<usize>().unwrap();
    assert!(section <= last && last < section + 512, "{block}");
    assert_eq!(rest, "on: section 2: expected the checksum that the header says (table \"t\")");
    // Foreign files are not removed.
    assert!(disk.files().contains_key("blocks/notes.txt") && disk.files().contains_key("README"));
}

/// Two tables with rows in blocks and in the delta, and their contents.
fn two_tables() -> (SimulatedDisk, Contents) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    for name in ["damaged", "whole"] {
        create_table(&store, name).unwrap();
        let blocks = vec![write(&store, &[1, 2, 3], "column").unwrap(), write(&store, &[4, 5], "packed_row").unwrap()];
        append(&store, name, blocks).unwrap();
        change_rows(&store, name, &[6], &[2]).unwrap();
    }
    let expected = contents(&store).unwrap();
    drop(store);
    (disk, expected)
}

/// Damages a block file, so that it cannot be opened. `damage` is one of `BLOCK_DAMAGES`.
fn lose(disk: &SimulatedDisk, name: &str, damage: &str) {
    let mut bytes = disk.files().remove(name).unwrap();
    match damage {
        "missing" => return disk.remove(name).unwrap(),
        "empty" => bytes.clear(),
        "shorter" => drop(bytes.pop()),
        "longer" => bytes.push(0),
        "of another header" => bytes[40] ^= 1,
        _ => {
            let last = bytes.len() - 64;
            bytes[last] ^= 1;
        }
    }
    disk.put(name, &bytes);
}

const BLOCK_DAMAGES: [&str; 6] =
    ["missing", "empty", "shorter", "longer", "of another header", "of another last section"];

#[test]
fn a_damaged_block_affects_only_its_table() {
    for damage in BLOCK_DAMAGES {
        let (disk, expected) = two_tables();
        let (name, _) = blocks(&disk).remove(1);
        lose(&disk, &name, damage);
        let store = open(&disk).unwrap_or_else(|error| panic!("{damage}: {error}"));
        let read = |store: &Store, table: &str| common::rows_of(store.snapshot().table(table).unwrap());
        // The error names the table, the file and the possible remedies.
        let error = read(&store, "damaged").unwrap_err();
        let ReadError::Table { table, .. } = error.downcast_ref().unwrap() else { panic!("{damage}: {error}") };
        let text = error.to_string();
        assert_eq!(table, "damaged");
        for part in ["table \"damaged\"", name.as_str(), "restore", "taut repair", "DROP TABLE"] {
            assert!(text.contains(part), "{damage}: {text}");
        }
        // Verification and the recovery report name it too.
        let damages: Vec<String> = verify(&store).iter().map(ToString::to_string).collect();
        assert!(matches!(&damages[..], [damage] if damage.contains(&name) && damage.contains("(table \"damaged\")")));
        let missing: Vec<_> = store.recovery().missing_blocks.iter().map(|missing| missing.path.clone()).collect();
        assert_eq!(missing, if damage == "missing" { vec![disk.path(&name)] } else { vec![] }, "{damage}");
        // The undamaged block and the other table stay usable.
        assert!(store.snapshot().table("damaged").unwrap().blocks[0].open(&ReadCounters::new()).is_ok());
        assert_eq!(read(&store, "whole").unwrap(), expected["whole"], "{damage}");
        change_rows(&store, "whole", &[7], &[1]).unwrap();
        append(&store, "whole", vec![write(&store, &[8], "row").unwrap()]).unwrap();
        create_table(&store, "new").unwrap();
        store.checkpoint().unwrap();
        change_rows(&store, "new", &[1], &[]).unwrap();
        let killed = disk.after_kill();
        drop(store);
        for disk in [disk, killed] {
            let store = open(&disk).unwrap_or_else(|error| panic!("{damage}, again: {error}"));
            assert_eq!(read(&store, "whole").unwrap(), [3, 4, 5, 8, 6, 7], "{damage}");
            assert_eq!(read(&store, "new").unwrap(), [1], "{damage}");
            assert!(read(&store, "damaged").is_err(), "{damage}");
            common::drop_table(&store, "damaged").unwrap();
            store.checkpoint().unwrap();
            assert!(verify(&store).is_empty(), "{damage}");
            drop(store);
            let store = open(&disk).unwrap();
            common::assert_tidy(&store, &disk, damage);
            assert!(store.recovery().missing_blocks.is_empty());
        }
    }
}

#[test]
fn rows_of_a_damaged_table_can_be_replaced() {
    for damage in BLOCK_DAMAGES {
        let (disk, _) = two_tables();
        lose(&disk, &blocks(&disk)[0].0, damage);
        let store = open(&disk).unwrap();
        let table = store.snapshot().table("damaged").unwrap().id;
        store.commit::<_, CommitError>(|edit| edit.truncate(table)).unwrap();
        append(&store, "damaged", vec![write(&store, &[9], "row").unwrap()]).unwrap();
        drop(store);
        let store = open(&disk).unwrap();
        assert_eq!(contents(&store).unwrap()["damaged"], [9], "{damage}");
        assert!(verify(&store).is_empty(), "{damage}");
    }
}

/// A missing block may exist under a wrong name. So no unknown file is removed, and no new block gets its name.
#[test]
fn unknown_block_files_stay_while_a_block_is_missing() {
    let (disk, expected) = two_tables();
    let (name, content) = blocks(&disk).remove(0);
    let next = |disk: &SimulatedDisk| {
        let last = blocks(disk).last().unwrap().0.clone();
        let number = u64::from_str_radix(&last["blocks/".len()..][..16], 16).unwrap();
        // Delta pages have the first two numbers after the last block. New blocks would get the next numbers.
        (1..6).map(move |more| format!("blocks/{:016x}.block", number + more)).collect::<Vec<_>>()
    };
    let unknown = next(&disk);
    disk.remove(&name).unwrap();
    unknown.iter().for_each(|unknown| disk.put(unknown, &content));
    let store = open(&disk).unwrap();
    for value in 10..16 {
        append(&store, "whole", vec![write(&store, &[value], "row").unwrap()]).unwrap();
    }
    drop(store);
    assert!(unknown.iter().all(|unknown| disk.files()[unknown] == content));
    // After the block is back under its name, the table is complete and the unknown files are removed.
    disk.put(&name, &content);
    let store = open(&disk).unwrap();
    assert_eq!(contents(&store).unwrap()["damaged"], expected["damaged"]);
    assert_eq!(contents(&store).unwrap()["whole"].len(), expected["whole"].len() + 6);
    common::assert_tidy(&store, &disk, "back");
}

#[test]
fn inspection_removes_nothing() {
    let disk = closed().disk;
    let (name, _) = blocks(&disk).remove(0);
    disk.remove(&name).unwrap();
    disk.put("blocks/00000000000000ff.block", b"left behind");
    let inspect = OpenOptions { inspect: true, ..OpenOptions::default() };
    let store = Store::open_on(Arc::new(disk.clone()), inspect).unwrap();
    let damages = verify(&store);
    assert!(matches!(damages[..], [ref damage] if matches!(damage.problem, Problem::Missing)), "{damages:?}");
    let snapshot = store.snapshot();
    assert!(snapshot.table("t").unwrap().blocks[1].open(&ReadCounters::new()).is_ok());
    assert!(matches!(store.commit::<_, CommitError>(|_| Ok(())), Err(CommitError::ReadOnly)));
    assert!(disk.files().contains_key("blocks/00000000000000ff.block"));
}
