//! Verification of a backup directory finds damage of every file, names the file, and changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::backups::{WITH_LOG, WITHOUT_LOG, back_up, never_cancel};
use common::random_steps::random_step;
use common::{append, change_rows, create_table, open, write};
use taut_store::backup::{BackupOptions, BackupVerification, Backups, is_backup_directory};
use taut_store::disk::{Disk, SimulatedDisk};
use taut_store::{Finding, OpenOptions, Problem, Store, Synchronous, verify};

/// Four backups of a database that changes in between: three with the log, and the last one without. They share blocks.
fn sample() -> SimulatedDisk {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "shared").unwrap();
    append(&store, "shared", vec![write(&store, &(0..300).collect::<Vec<_>>(), "column").unwrap()]).unwrap();
    change_rows(&store, "shared", &[1_000, 1_001], &[7]).unwrap();
    for (round, options) in [WITH_LOG, WITH_LOG, WITH_LOG, WITHOUT_LOG].into_iter().enumerate() {
        for number in 0..8 {
            random_step(&store, 3, round as u64 * 8 + number, Synchronous::Full).unwrap();
        }
        back_up(&store, &backups, options).unwrap();
    }
    backups
}

fn verified(backups: &SimulatedDisk) -> BackupVerification {
    Backups::open_on(Arc::new(backups.clone())).unwrap().verify()
}

/// Verifies a backup directory. Returns the names of the files with findings, and the text of all findings.
fn found(backups: &SimulatedDisk) -> (BTreeSet<String>, String) {
    let before = backups.files();
    let findings = verified(backups).findings;
    assert!(backups.files() == before, "a verification writes nothing");
    let root = backups.path("");
    let name = |finding: &Finding| finding.path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.iter().all(|finding| finding.to_string().contains(&name(finding))), "{texts:?}");
    let names: BTreeSet<String> = findings.iter().map(name).collect();
    assert_eq!(names.len(), findings.len(), "each file is reported once: {texts:?}");
    (names, texts.join("\n"))
}

#[test]
fn complete_backups_have_no_damage_and_share_blocks() {
    let backups = sample();
    let BackupVerification { findings, backups: count, blocks, block_bytes } = verified(&backups);
    assert!(findings.is_empty(), "{findings:?}");
    let files = backups.files();
    let of_blocks: Vec<usize> =
        files.iter().filter(|(name, _)| name.ends_with(".block")).map(|(_, bytes)| bytes.len()).collect();
    assert_eq!((count, blocks, block_bytes), (4, of_blocks.len() as u64, of_blocks.iter().sum::<usize>() as u64));
    assert!(files.keys().filter(|name| name.ends_with(".log")).count() == 2);
    assert!(files.keys().any(|name| name.ends_with(".delta")));
    // The remains of an interrupted backup are not damage.
    for name in
        ["backups/00000009.catalog", "backups/00000009.manifest.new", "blocks/0000000000000fff-00000000000000aa.block"]
    {
        backups.put(name, b"remains");
    }
    backups.put("blocks/notes.txt", b"mine");
    let [remains, foreign] = &verified(&backups).findings[..] else { panic!("not two problems") };
    assert!(matches!(remains.problem, Problem::NoManifest) && remains.path.ends_with("00000009.catalog"), "{remains}");
    assert!(matches!(foreign.problem, Problem::Foreign) && foreign.path.ends_with("blocks/notes.txt"), "{foreign}");
    assert!(!remains.problem.is_damage() && !foreign.problem.is_damage());
}

#[test]
fn damage_of_every_file_is_found_and_named() {
    let backups = sample();
    let files = backups.files();
    let (mut shared, mut flips) = (0, 0);
    for (name, bytes) in files.iter().filter(|(name, _)| *name != "lock") {
        let damage = |change: &dyn Fn(&mut Vec<u8>)| {
            let (damaged, mut bytes) = (backups.after_kill(), bytes.clone());
            change(&mut bytes);
            damaged.put(name, &bytes);
            damaged
        };
        let step = (bytes.len() / 20).max(1);
        let mut cases: Vec<(String, SimulatedDisk)> = (0..bytes.len())
            .step_by(step)
            .chain([bytes.len() - 1])
            .map(|at| (format!("byte {at}"), damage(&|bytes| bytes[at] ^= 1 << (at % 8))))
            .collect();
        flips += cases.len();
        cases.push(("shorter".into(), damage(&|bytes| bytes.truncate(bytes.len() - 1))));
        cases.push(("longer".into(), damage(&|bytes| bytes.push(0))));
        cases.push(("empty".into(), damage(&Vec::clear)));
        let removed = backups.after_kill();
        removed.remove(name).unwrap();
        if let Some(number) = name.strip_suffix(".manifest") {
            // Without its manifest, a backup looks like one that was interrupted.
            let findings = verified(&removed).findings;
            let is_noted = |finding: &Finding| {
                matches!(finding.problem, Problem::NoManifest) && finding.path.ends_with(format!("{number}.catalog"))
            };
            assert!(findings.iter().any(is_noted), "{name}: {findings:?}");
        } else {
            cases.push(("missing".into(), removed));
        }
        for (case, damaged) in cases {
            let (names, text) = found(&damaged);
            assert!(names.contains(name), "{name}, {case}: {text}");
            assert_eq!(names.len(), 1, "{name}, {case}: {text}");
            if name.ends_with(".block") {
                assert!(text.contains("(table \""), "{name}, {case}: {text}");
                shared += 1;
            }
        }
    }
    assert!(flips > 300 && shared > 50, "{flips} {shared}");
}

/// A manifest with a valid checksum is damage if its number is not the one in its file name.
#[test]
fn a_manifest_of_another_backup_is_found() {
    let backups = sample();
    let files = backups.files();
    // The manifest of backup 2 with the number of backup 1 in its name.
    backups.put("backups/00000001.manifest", &files["backups/00000002.manifest"]);
    let (names, text) = found(&backups);
    assert!(names.contains("backups/00000001.manifest"), "{text}");
    assert!(text.contains("expected the manifest of backup 1, found that of 2"), "{text}");
}

#[test]
fn a_backup_directory_is_not_opened_as_a_database() {
    let root = tempfile::tempdir().unwrap();
    let (database, backups) = (root.path().join("database"), root.path().join("backups"));
    let store = Store::open(&database, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap()]).unwrap();
    store.backup(&backups, BackupOptions::default(), &mut never_cancel).unwrap();
    assert!(is_backup_directory(&backups) && !is_backup_directory(&database));
    std::fs::create_dir(database.join("backups")).unwrap();
    assert!(!is_backup_directory(&database) && !is_backup_directory(root.path().join("nothing")));
    assert!(Backups::open(&backups).unwrap().verify().findings.is_empty());
    let block = std::fs::read_dir(backups.join("blocks")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&block).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&block, bytes).unwrap();
    let [damage] = &Backups::open(&backups).unwrap().verify().findings[..] else { panic!("one damaged block") };
    assert_eq!((&damage.path, damage.table.as_deref()), (&block, Some("t")));
    assert!(damage.to_string().contains(": expected content with checksum "), "{damage}");
}

/// A backup reads only the blocks that it copies. So a block that was damaged in the database can be copied back from
/// the backup directory, where its file name begins with the same number.
#[test]
fn a_damaged_block_that_an_earlier_backup_has_is_not_read_and_can_be_restored() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    let name = disk.files().into_keys().find(|name| name.ends_with(".block")).unwrap();
    disk.remove(&name).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    assert!(verified(&backups).findings.is_empty());
    assert_eq!(verify(&store).len(), 1);
    let other =
        store.backup_to(Arc::new(SimulatedDisk::new()), BackupOptions::default(), &mut never_cancel).unwrap_err();
    assert!(other.to_string().starts_with("table \"t\" cannot be backed up: "), "{other}");
    let number = name.strip_suffix(".block").unwrap();
    let copy = backups.files().into_iter().find(|(copy, _)| copy.starts_with(&format!("{number}-"))).unwrap();
    disk.put(&name, &copy.1);
    assert!(verify(&store).is_empty());
}
