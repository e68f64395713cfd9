//! Every byte of every file is damaged, and every file is cut at every length: opening or verifying reports it, and
//! no wrong row is ever returned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Contents, append, contents, create_table, open, write};
use taut_store::disk::{Disk, SimulatedDisk};
use taut_store::{CommitError, OpenError, OpenOptions, Problem, ReadCounters, Store, verify};

/// A closed database of two small blocks, and what it holds.
fn tiny() -> (SimulatedDisk, Contents) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 5, 900], "column").unwrap()]).unwrap();
    append(&store, "t", vec![write(&store, &[-3], "packed_row").unwrap()]).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_view("v", "select 1")).unwrap();
    let contents = contents(&store).unwrap();
    (disk, contents)
}

/// Opens a disk on which a file is damaged, and reads everything; the damage must be noticed.
fn assert_noticed(disk: &SimulatedDisk, expected: &Contents, context: &str) {
    let Ok(store) = open(disk) else { return };
    if let Ok(found) = contents(&store) {
        assert_eq!(found, *expected, "{context}: wrong rows");
    }
    // Verification must notice it even when all is in memory already.
    let damages: Vec<String> = verify(&store).iter().map(ToString::to_string).collect();
    assert!(!damages.is_empty(), "{context}: not reported");
}

/// The two blocks and the catalog, each by name and content. The lock is empty.
fn files(disk: &SimulatedDisk) -> [(String, Vec<u8>); 3] {
    let files: Vec<_> = disk.files().into_iter().filter(|(name, _)| name != "lock").collect();
    files.try_into().unwrap()
}

#[test]
fn a_flipped_bit_in_any_byte_is_noticed() {
    let (disk, expected) = tiny();
    for (name, bytes) in files(&disk) {
        for at in 0..bytes.len() {
            let damaged = disk.after_kill();
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged.put(&name, &bytes);
            assert_noticed(&damaged, &expected, &format!("{name}, byte {at} of {}", bytes.len()));
        }
    }
}

#[test]
fn a_file_cut_anywhere_or_too_long_is_noticed() {
    let (disk, expected) = tiny();
    for (name, bytes) in files(&disk) {
        for length in 0..bytes.len() {
            let damaged = disk.after_kill();
            damaged.put(&name, &bytes[..length]);
            assert_noticed(&damaged, &expected, &format!("{name}, cut at {length} of {}", bytes.len()));
        }
        let damaged = disk.after_kill();
        damaged.put(&name, &[&bytes[..], &[0]].concat());
        assert_noticed(&damaged, &expected, &format!("{name}, one byte longer"));
    }
}

#[test]
fn a_block_in_the_place_of_another_like_it_is_noticed() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap(), write(&store, &[3, 4], "row").unwrap()]).unwrap();
    let expected = contents(&store).unwrap();
    drop(store);
    let [(first, content), (_, second), _] = files(&disk);
    assert_eq!(content.len(), second.len());
    disk.put(&first, &second);
    assert_noticed(&disk, &expected, "exchanged");
}

/// What is in memory does not hide what became of the files.
#[test]
fn damage_behind_an_open_store_is_noticed() {
    let (disk, expected) = tiny();
    for (name, bytes) in files(&disk) {
        let store = open(&disk).unwrap();
        assert_eq!(contents(&store).unwrap(), expected);
        assert!(verify(&store).is_empty());
        let mut damaged = bytes.clone();
        damaged[bytes.len() - 64] ^= 1;
        disk.put(&name, &damaged);
        assert_eq!(verify(&store).len(), 1, "{name} damaged");
        assert_eq!(contents(&store).unwrap(), expected);
        disk.remove(&name).unwrap();
        assert_eq!(verify(&store).len(), 1, "{name} removed");
        disk.put(&name, &bytes);
        assert!(verify(&store).is_empty());
    }
}

#[test]
fn reports_name_file_table_and_place() {
    let (disk, _) = tiny();
    let [(name, mut bytes), ..] = files(&disk);
    let last = bytes.len() - 64;
    bytes[last] ^= 1;
    disk.put(&name, &bytes);
    disk.put("blocks/notes.txt", b"hello");
    disk.put("README", b"hello");
    let store = open(&disk).unwrap();
    let damages = verify(&store);
    let texts: Vec<String> = damages.iter().map(ToString::to_string).collect();
    let [readme, notes, block] = &texts[..] else { panic!("{texts:?}") };
    assert_eq!(readme, "/simulated/README is not of this database");
    assert_eq!(notes, "/simulated/blocks/notes.txt is not of this database");
    let place = block.strip_prefix(&format!("/simulated/{name}, from byte ")).unwrap_or_else(|| panic!("{block}"));
    let (byte, rest) = place.split_once(' ').unwrap();
    let section = byte.parse::<usize>().unwrap();
    assert!(section <= last && last < section + 512, "{block}");
    assert_eq!(rest, "on: section 2: expected the checksum that the header says (table \"t\")");
    // Foreign files are left alone.
    assert!(disk.files().contains_key("blocks/notes.txt") && disk.files().contains_key("README"));
}

#[test]
fn a_missing_block_refuses_opening_but_not_inspection() {
    let (disk, _) = tiny();
    let [(name, _), ..] = files(&disk);
    disk.remove(&name).unwrap();
    disk.put("blocks/00000000000000ff.block", b"left behind");
    let error = open(&disk).unwrap_err();
    let OpenError::MissingBlocks { table, files } = &error else { panic!("{error}") };
    assert_eq!((table.as_str(), files.len()), ("t", 1));
    assert!(error.to_string().contains(&name), "{error}");
    let inspect = OpenOptions { inspect: true, ..OpenOptions::default() };
    let store = Store::open_on(Arc::new(disk.clone()), inspect).unwrap();
    let damages = verify(&store);
    assert!(matches!(damages[..], [ref damage] if matches!(damage.problem, Problem::Missing)), "{damages:?}");
    let snapshot = store.snapshot();
    assert!(snapshot.table("t").unwrap().blocks[1].open(&ReadCounters::new()).is_ok());
    assert!(matches!(store.commit::<_, CommitError>(|_| Ok(())), Err(CommitError::ReadOnly)));
    assert!(disk.files().contains_key("blocks/00000000000000ff.block"), "inspection removes nothing");
}
